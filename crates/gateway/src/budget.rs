//! How full the budget is, told with each answer.
//!
//! `RateLimit` and `RateLimit-Policy` are those of draft-ietf-httpapi-ratelimit-headers-10
//! (<https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-10.txt>): a list of policies, each a string
//! with `q` (quota), `qu` (its unit, where that is not requests) and `w` (window in seconds); and of each what is left
//! (`r`) and in how many seconds it comes back (`t`). Tokens are no unit of the draft's registry; `qu="tokens"` is ours.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
};

use chrono::{DateTime, Datelike, SecondsFormat, TimeDelta, Utc};
use http::{HeaderMap, HeaderName, HeaderValue};
use keywheel::ledger::{AccountId, Limit, LimitStanding, Period, Scope, Unit};

use crate::admit::MinuteStanding;

const BUDGET: HeaderName = HeaderName::from_static("x-keywheel-budget");
const WARNING: HeaderName = HeaderName::from_static("x-keywheel-warning");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// From how many percent on a warning is given.
const WARN_FROM: u64 = 80;

/// The largest number that a structured field holds (RFC 9651, §3.3.1).
const LARGEST: u64 = 999_999_999_999_999;

/// Says in an answer's headers how full its limits are: the fullest of the budget's, as it was once this request was
/// reserved, and the project's requests a minute.
pub(crate) fn mark(
    headers: &mut HeaderMap,
    standing: Option<&LimitStanding>,
    minute: Option<MinuteStanding>,
    now: DateTime<Utc>,
) {
    let (mut limits, mut policies) = (String::with_capacity(128), String::with_capacity(128));
    if let Some(standing) = standing {
        set(headers, BUDGET, &budget(standing));
        if standing.percent() >= WARN_FROM {
            set(headers, WARNING, &warning(standing));
        }
        list_standing(standing, now, &mut limits, &mut policies);
    }
    if let Some(MinuteStanding { cap, used, reset_ms }) = minute {
        let comma = if limits.is_empty() { "" } else { ", " };
        let pause_ms = reset_ms.saturating_sub(now.timestamp_millis()).max(0);
        for text in [&mut limits, &mut policies] {
            text.push_str(comma);
            text.push_str("\"requests-a-minute\"");
        }
        push_number(&mut limits, ";r=", cap.saturating_sub(used).into());
        push_number(&mut limits, ";t=", (pause_ms as u64).div_ceil(1_000));
        push_number(&mut policies, ";q=", cap.into());
        policies.push_str(";w=60");
    }
    if !limits.is_empty() {
        set(headers, RATE_LIMIT, &limits);
        set(headers, POLICY, &policies);
    }
}

/// Which limits the operator was warned of.
#[derive(Debug, Default)]
pub(crate) struct Warned {
    /// Of each limit, in which of its periods: the moment at which that ends.
    last: Mutex<HashMap<Met, Option<DateTime<Utc>>>>,
}

/// A limit that a project met.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Met {
    project: AccountId,
    scope: Scope,
    limit: Limit,
}

impl Warned {
    /// Writes one line to the log when a project first finds a limit at 80 % in one of its periods.
    pub(crate) fn note(&self, project: &AccountId, standing: &LimitStanding) {
        if self.is_new(project, standing) {
            tracing::warn!(
                project = project.as_str(),
                percent = standing.percent(),
                "{} of {} is used up to {} %",
                standing.limit,
                standing.scope,
                standing.percent()
            );
        }
    }

    fn is_new(&self, project: &AccountId, standing: &LimitStanding) -> bool {
        if standing.percent() < WARN_FROM {
            return false;
        }
        let LimitStanding { scope, limit, .. } = standing;
        let met = Met { project: project.clone(), scope: scope.clone(), limit: limit.clone() };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.insert(met, standing.begins_anew) != Some(standing.begins_anew)
    }
}

/// A dictionary of RFC 9651, so that programs can read it.
fn budget(standing: &LimitStanding) -> String {
    let LimitStanding { limit, sum, begins_anew, .. } = standing;
    let mut text = String::with_capacity(192);
    let words = [
        ("scope=", scope(standing)),
        (", period=", period(limit.period)),
        (", unit=", unit(limit.unit)),
    ];
    words.iter().for_each(|(name, word)| text.extend([*name, *word]));
    push_number(&mut text, ", cap=", limit.cap);
    push_number(&mut text, ", used=", sum.used());
    push_number(&mut text, ", left=", standing.left());
    if let Some(model) = &limit.model {
        text.push_str(", model=");
        push_quoted(&mut text, [&**model]);
    }
    if let Some(at) = begins_anew {
        text.push_str(", reset=");
        push_quoted(&mut text, [&*stamp(*at)]);
    }
    text
}

/// A sentence for people.
fn warning(standing: &LimitStanding) -> String {
    let of = match standing.scope {
        Scope::Whole => "the allowance of all projects",
        Scope::Account(_) => "the project's budget",
    };
    let mut text = format!("{} % of {of} ({}) are used", standing.percent(), standing.limit);
    match standing.begins_anew {
        Some(at) => {
            let _ = write!(text, "; it begins anew at {}", stamp(at));
        }
        None => text.push_str("; it never begins anew"),
    }
    text
}

fn list_standing(
    standing: &LimitStanding,
    now: DateTime<Utc>,
    limits: &mut String,
    policies: &mut String,
) {
    let LimitStanding { limit, begins_anew, .. } = standing;
    let span = match limit.period {
        Period::Day => "-a-day",
        Period::Month => "-a-month",
        Period::Total => "-in-total",
    };
    let (of, model) = limit.model.as_ref().map_or(("", ""), |model| ("-for-", &**model));
    for text in [&mut *limits, &mut *policies] {
        push_quoted(text, [scope(standing), "-", unit(limit.unit), span, of, model]);
    }
    push_number(limits, ";r=", standing.left());
    if let Some(at) = begins_anew {
        let left = (*at - now).max(TimeDelta::zero());
        // Rounded up: not before it is there.
        let seconds = left.num_seconds() + i64::from(left.subsec_nanos() > 0);
        push_number(limits, ";t=", seconds.unsigned_abs());
    }
    push_number(policies, ";q=", limit.cap);
    if limit.unit == Unit::Tokens {
        policies.push_str(";qu=\"tokens\"");
    }
    if let Some(days) = days(limit.period, *begins_anew) {
        push_number(policies, ";w=", u64::from(days) * 86_400);
    }
}

/// How many days the period has that ends at `ends`.
fn days(period: Period, ends: Option<DateTime<Utc>>) -> Option<u8> {
    match period {
        Period::Day => Some(1),
        Period::Month => {
            // A day earlier it is that month wherever on earth days turn.
            let last = ends?.checked_sub_signed(TimeDelta::days(1))?.date_naive();
            Some(last.num_days_in_month())
        }
        Period::Total => None,
    }
}

fn scope(standing: &LimitStanding) -> &'static str {
    match standing.scope {
        Scope::Whole => "allowance",
        Scope::Account(_) => "project",
    }
}

const fn period(period: Period) -> &'static str {
    match period {
        Period::Day => "day",
        Period::Month => "month",
        Period::Total => "total",
    }
}

const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Tokens => "tokens",
        Unit::Calls => "calls",
    }
}

fn stamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// `name` and a number, which no structured field may have larger.
fn push_number(text: &mut String, name: &str, number: u64) {
    text.push_str(name);
    text.push_str(itoa::Buffer::new().format(number.min(LARGEST)));
}

/// A string of RFC 9651, §3.3.3, put together from `parts`: of ASCII alone.
fn push_quoted<const N: usize>(text: &mut String, parts: [&str; N]) {
    text.push('"');
    for part in parts {
        if part.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
            text.push_str(part);
            continue;
        }
        for c in part.chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                ' '..='~' => text.push(c),
                _ => text.push('?'),
            }
        }
    }
    text.push('"');
}

/// Sets it, with what is not of ASCII left out: names of models may be anything.
fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    let value = if value.is_ascii() {
        HeaderValue::from_str(value)
    } else {
        let is_kept = |c: &char| matches!(c, ' '..='~');
        HeaderValue::from_str(&value.chars().filter(is_kept).collect::<String>())
    };
    if let Ok(value) = value {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Seek as _},
        sync::Arc,
    };

    use keywheel::ledger::Sum;

    use super::*;

    const NOON: &str = "2026-11-30T20:00:00Z";

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn standing(limit: Limit, used: u64) -> LimitStanding {
        let begins_anew = (limit.period != Period::Total).then(|| at("2026-12-01T08:00:00Z"));
        let sum = Sum { settled: used / 2, reserved: used - used / 2, pruned: 0 };
        LimitStanding { scope: Scope::Account("triage".parse().unwrap()), limit, sum, begins_anew }
    }

    fn marked(standing: &LimitStanding, minute: Option<MinuteStanding>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        mark(&mut headers, Some(standing), minute, at(NOON));
        headers
    }

    #[test]
    fn an_answer_says_how_full_the_budget_is() {
        let day = standing(Limit::tokens(Period::Day, 1_000), 250);
        let reset_ms = at(NOON).timestamp_millis() + 41_001;
        let minute = MinuteStanding { cap: 60, used: 12, reset_ms };
        let headers = marked(&day, Some(minute));
        assert_eq!(
            headers["x-keywheel-budget"],
            "scope=project, period=day, unit=tokens, cap=1000, used=250, left=750, \
             reset=\"2026-12-01T08:00:00Z\""
        );
        assert_eq!(
            headers["ratelimit"],
            "\"project-tokens-a-day\";r=750;t=43200, \"requests-a-minute\";r=48;t=42"
        );
        assert_eq!(
            headers["ratelimit-policy"],
            "\"project-tokens-a-day\";q=1000;qu=\"tokens\";w=86400, \"requests-a-minute\";q=60;w=60"
        );
        assert!(!headers.contains_key("x-keywheel-warning"));
    }

    #[test]
    fn an_allowance_of_a_month_has_the_days_of_that_month_and_one_in_total_no_window() {
        let month = Limit::calls(Period::Month, 10).for_model("m\u{fc} \"x\"");
        let month = LimitStanding { scope: Scope::Whole, ..standing(month, 9) };
        let headers = marked(&month, None);
        let name = r#""allowance-calls-a-month-for-m? \"x\"""#;
        assert_eq!(headers["ratelimit"].to_str().unwrap(), format!("{name};r=1;t=43200"));
        assert_eq!(headers["ratelimit-policy"].to_str().unwrap(), format!("{name};q=10;w=2592000"));
        let budget = headers[BUDGET].to_str().unwrap();
        assert!(budget.starts_with("scope=allowance, period=month, unit=calls, "), "{budget}");
        assert!(budget.contains(r#", model="m? \"x\"", reset="#), "{budget}");
        let warning = headers[WARNING].to_str().unwrap();
        assert!(warning.starts_with("90 % of the allowance of all projects ("), "{warning}");

        let total = marked(&standing(Limit::tokens(Period::Total, u64::MAX), 7), None);
        let most = LARGEST;
        assert_eq!(
            total["ratelimit"].to_str().unwrap(),
            format!("\"project-tokens-in-total\";r={most}")
        );
        assert!(!total["x-keywheel-budget"].to_str().unwrap().contains("reset"));
        let spent = marked(&standing(Limit::tokens(Period::Total, 10), 9), None);
        let warning = spent[WARNING].to_str().unwrap();
        assert!(warning.ends_with(" are used; it never begins anew"), "{warning}");
        for headers in [headers, total, spent] {
            assert!(headers.values().all(|value| value.to_str().is_ok()));
        }
    }

    #[test]
    fn from_80_percent_on_it_warns_and_an_overrun_leaves_nothing() {
        let day = |used| standing(Limit::tokens(Period::Day, 1_000), used);
        assert!(!marked(&day(799), None).contains_key(WARNING));
        assert_eq!(
            marked(&day(800), None)[WARNING],
            "80 % of the project's budget (1000 tokens a day) are used; it begins anew at \
             2026-12-01T08:00:00Z"
        );
        let over = marked(&day(1_500), None);
        assert_eq!(over[RATE_LIMIT], "\"project-tokens-a-day\";r=0;t=43200");
        assert!(over[WARNING].to_str().unwrap().starts_with("150 %"));
    }

    /// A slow answer outlives the minute, and the day, in which its request came.
    #[test]
    fn what_began_anew_meanwhile_is_there_in_no_time() {
        let day = standing(Limit::tokens(Period::Day, 1_000), 250);
        let minute = MinuteStanding { cap: 60, used: 12, reset_ms: at(NOON).timestamp_millis() };
        let mut headers = HeaderMap::new();
        let mut limits = |standing: Option<&LimitStanding>, now: &str| {
            mark(&mut headers, standing, Some(minute), at(now));
            let all: Vec<_> = headers.get_all(RATE_LIMIT).iter().collect();
            assert_eq!(all.len(), 1, "it replaces what stood there");
            all[0].to_str().unwrap().to_owned()
        };
        let minute = "\"requests-a-minute\";r=48;t=0";
        let day_in = |seconds| format!("\"project-tokens-a-day\";r=750;t={seconds}, {minute}");
        assert_eq!(limits(Some(&day), "2026-12-01T07:59:58.5Z"), day_in(2), "not a moment earlier");
        assert_eq!(limits(Some(&day), "2026-12-01T07:59:59Z"), day_in(1));
        assert_eq!(limits(Some(&day), "2026-12-01T08:00:01Z"), day_in(0));
        assert_eq!(limits(None, "2026-12-01T08:00:01Z"), minute);
    }

    #[test]
    fn without_limits_nothing_is_said() {
        let mut headers = HeaderMap::new();
        mark(&mut headers, None, None, at(NOON));
        assert!(headers.is_empty());
    }

    #[test]
    fn the_log_has_one_line_of_a_limit_that_is_used_up_to_80_percent() {
        let mut log = Arc::new(tempfile::tempfile().unwrap());
        let to_log = tracing_subscriber::fmt().with_ansi(false).with_writer(Arc::clone(&log));
        tracing::subscriber::with_default(to_log.finish(), || {
            let warned = Warned::default();
            for used in [799, 800, 900] {
                let day = standing(Limit::tokens(Period::Day, 1_000), used);
                warned.note(&"triage".parse().unwrap(), &day);
            }
        });
        let mut text = String::new();
        log.rewind().unwrap();
        log.read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("is used up to 80 %"), "{text}");
        assert!(text.contains("triage"), "{text}");
    }

    #[test]
    fn the_operator_is_warned_once_for_each_project_limit_and_period() {
        let warned = Warned::default();
        let (triage, batch) = ("triage".parse().unwrap(), "batch".parse().unwrap());
        let day = standing(Limit::tokens(Period::Day, 1_000), 900);
        assert!(!warned.is_new(&triage, &standing(Limit::tokens(Period::Day, 1_000), 799)));
        assert!(warned.is_new(&triage, &day));
        assert!(!warned.is_new(&triage, &standing(Limit::tokens(Period::Day, 1_000), 950)));
        assert!(warned.is_new(&batch, &day));
        assert!(warned.is_new(&triage, &standing(Limit::calls(Period::Day, 10), 9)));
        let tomorrow = LimitStanding { begins_anew: Some(at("2026-12-02T08:00:00Z")), ..day };
        assert!(warned.is_new(&triage, &tomorrow));
        assert!(!warned.is_new(&triage, &tomorrow));
    }
}
