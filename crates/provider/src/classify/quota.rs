//! Which quotas a reply says are exceeded, and what each means.
//!
//! The order of trust: Google's `quotaId`, its metric, the window that the text names, a code in
//! words, the headers. What is guessed teaches no limit.

use std::time::Duration;

use keywheel_core::{Cause, Dimension, LimitSeen, Tier, Wait, Window};

use super::{
    body::{Facts, Violation},
    delay,
    headers::{self, RateHeaders},
    message::{self, LimitLine, Lower, Span, Unit},
    verdict::Dialect,
};

/// The server stamps and cuts its times; a wait that ends exactly then is a little too short.
const MARGIN: Duration = Duration::from_millis(500);
/// Up to here a hint in a Gemini per-day refusal counts down to the end of the minute, not of the
/// day.
pub(super) const SHORT_HINT: Duration = Duration::from_mins(10);

/// One quota that is exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) unit: Unit,
    pub(super) span: Span,
    /// True when the reply does not name the window: minute is the guess.
    pub(super) guessed: bool,
    /// True when the quota is a tool's, not a model's.
    pub(super) tool: bool,
    /// True for Google's own quotas, whose short per-day hints are not to be believed.
    pub(super) google: bool,
    pub(super) value: Option<u64>,
    /// What this request alone asks for, where the body tells.
    pub(super) requested: Option<u64>,
    pub(super) model: Option<String>,
    pub(super) id: Option<String>,
    pub(super) metric: Option<String>,
    pub(super) tell: Tell,
}

/// What names a quota. Written out only for the evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tell {
    /// The quota's id has these words.
    Id(&'static str),
    /// Its metric has.
    Metric(&'static str),
    /// `quota_unit` has.
    QuotaUnit(&'static str),
    /// Id or metric without a window, and a wait too long for anything but a day.
    LongWait,
    /// Id or metric without a window.
    NoWindow,
    /// The text names the window.
    Text(&'static str),
    /// The text names what is counted, and no window.
    TextWithoutWindow(&'static str),
    /// A code does.
    Code(&'static str),
    /// The headers do.
    Headers,
}

/// How long the server says to wait.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stated {
    pub(super) wait: Option<Duration>,
    /// True when it was longer than is believed of any server.
    pub(super) clamped: bool,
}

impl Stated {
    /// The longest of all hints: none is undercut. Zero states nothing, or a client would spin.
    pub(super) fn read(facts: &Facts, headers: &RateHeaders) -> Self {
        let message = facts.messages.iter().filter_map(|text| message::stated_wait(text)).max();
        let said = message.max(facts.retry_info).max(headers.retry_after);
        let reset = || headers.exhausted().and_then(|quota| quota.reset);
        let said = said.filter(|wait| !wait.is_zero()).or_else(reset).filter(|w| !w.is_zero());
        Self {
            wait: said.map(|wait| wait.min(delay::LONGEST)),
            clamped: said.is_some_and(|wait| wait > delay::LONGEST),
        }
    }

    pub(super) fn is_long(&self) -> bool {
        self.wait.is_some_and(|wait| wait > SHORT_HINT)
    }
}

/// All quotas that the reply names, the body's own names first.
pub(super) fn seen(
    facts: &Facts,
    violations: Vec<Violation>,
    headers: &RateHeaders,
    dialect: Dialect,
    stated: &Stated,
    lower: &Lower<'_>,
) -> Vec<Seen> {
    if !violations.is_empty() && violations.iter().all(Violation::is_complete) {
        return from_violations(violations, &[], stated);
    }
    let lines: Vec<_> = facts.messages.iter().flat_map(|text| message::limit_lines(text)).collect();
    if !violations.is_empty() {
        return from_violations(violations, &lines, stated);
    }
    let lower = lower.text();
    let mut found = if lines.iter().any(|line| line.metric.is_some() || dialect == Dialect::Gemini)
    {
        from_lines(&lines, stated)
    } else {
        Vec::new()
    };
    if found.iter().all(|seen| seen.guessed)
        && let Some(named) = from_window(lower, headers, &lines)
    {
        // A text that names the window itself beats a guess from its metric.
        found = vec![named];
    }
    if found.is_empty() {
        found.extend(from_headers(headers));
    }
    if found.is_empty() {
        found.extend(from_words(facts, dialect, lower));
    }
    found
}

fn from_violations(
    violations: Vec<Violation>,
    lines: &[LimitLine<'_>],
    stated: &Stated,
) -> Vec<Seen> {
    let of = violations.len();
    let mut all: Vec<Seen> = Vec::with_capacity(of);
    for (at, mut violation) in violations.into_iter().enumerate() {
        if let Some(line) = line_for(&violation, at, of, lines) {
            violation.value = violation.value.or(Some(line.value));
            violation.model = violation.model.or_else(|| line.model.map(str::to_owned));
            violation.metric = violation.metric.or_else(|| line.metric.map(str::to_owned));
        }
        all.push(named(violation, stated));
    }
    if all_at_once_without_values(&all) {
        for seen in &mut all {
            seen.value = Some(0);
        }
    }
    all
}

fn from_lines(lines: &[LimitLine<'_>], stated: &Stated) -> Vec<Seen> {
    let each = lines.iter().map(|line| {
        let violation = Violation {
            metric: line.metric.map(str::to_owned),
            value: Some(line.value),
            model: line.model.map(str::to_owned),
            ..Violation::default()
        };
        named(violation, stated)
    });
    each.collect()
}

/// The text's line about a violation: the same place in the list, or the same metric throughout.
fn line_for<'a>(
    violation: &Violation,
    at: usize,
    of: usize,
    lines: &'a [LimitLine<'a>],
) -> Option<&'a LimitLine<'a>> {
    let metric = violation.metric.as_deref();
    if lines.len() == of
        && (metric.is_none() || lines[at].metric.is_none() || metric == lines[at].metric)
    {
        return lines.get(at);
    }
    let mut same = lines.iter().filter(|line| metric.is_none() || line.metric == metric);
    let first = same.next()?;
    same.all(|line| line.value == first.value).then_some(first)
}

/// `quotaValue` is left out when the limit is 0, and some bodies have no text about it either.
/// Nobody uses up a minute and a day in the same request.
///
/// Source: <https://github.com/google-gemini/gemini-cli/issues/8437>
fn all_at_once_without_values(all: &[Seen]) -> bool {
    let has = |span| all.iter().any(|seen| seen.span == span && seen.id.is_some());
    all.iter().all(|seen| seen.value.is_none()) && has(Span::Day) && has(Span::Minute)
}

/// A quota that Google names by id or metric.
fn named(violation: Violation, stated: &Stated) -> Seen {
    let id = violation.id.as_deref().unwrap_or("");
    let metric = violation.metric.as_deref().unwrap_or("");
    let window = span_of(id, metric, violation.unit.as_deref());
    let (span, tell) = window.unwrap_or(match stated.is_long() {
        true => (Span::Day, Tell::LongWait),
        false => (Span::Minute, Tell::NoWindow),
    });
    Seen {
        unit: unit_of(id, metric),
        span,
        guessed: window.is_none(),
        tool: is_tool(if metric.is_empty() { id } else { metric }),
        google: true,
        value: violation.value,
        requested: None,
        tell,
        model: violation.model,
        id: violation.id,
        metric: violation.metric,
    }
}

/// The window in a quota's name, read by substring: the ids come with many prefixes and suffixes.
fn span_of(id: &str, metric: &str, quota_unit: Option<&str>) -> Option<(Span, Tell)> {
    const IDS: [(&str, Span); 5] = [
        ("PerDay", Span::Day),
        ("PerMinute", Span::Minute),
        ("Daily", Span::Day),
        ("PerHour", Span::Hour),
        ("PerSecond", Span::Minute),
    ];
    const METRICS: [(&str, Span); 3] =
        [("per_day", Span::Day), ("per_minute", Span::Minute), ("per_hour", Span::Hour)];
    const UNITS: [(&str, Span); 2] = [("/d/", Span::Day), ("/min/", Span::Minute)];
    if let Some((words, span)) = IDS.into_iter().find(|(words, _)| id.contains(words)) {
        return Some((span, Tell::Id(words)));
    }
    if let Some((words, span)) = METRICS.into_iter().find(|(words, _)| metric.contains(words)) {
        return Some((span, Tell::Metric(words)));
    }
    let (words, span) =
        UNITS.into_iter().find(|(words, _)| quota_unit.is_some_and(|unit| unit.contains(words)))?;
    Some((span, Tell::QuotaUnit(words)))
}

/// The id is the more exact of the two, where it says.
fn unit_of(id: &str, metric: &str) -> Unit {
    if id.contains("Token") {
        Unit::Tokens
    } else if id.contains("Request") {
        Unit::Requests
    } else if metric.contains("token") {
        Unit::Tokens
    } else if metric.contains("images") || id.contains("Images") {
        Unit::Images
    } else {
        Unit::Requests
    }
}

/// Search grounding and its like have quotas of their own; the model's goes on without them. By
/// whole words: `deep_research` is a model.
fn is_tool(name: &str) -> bool {
    const TOOLS: [&str; 4] = ["grounding", "search", "searches", "maps"];
    let mut previous = "";
    words(name).any(|word| {
        let is = |tool: &str| word.eq_ignore_ascii_case(tool);
        let url = std::mem::replace(&mut previous, word).eq_ignore_ascii_case("url");
        TOOLS.into_iter().any(is) || url && is("context")
    })
}

/// The words of `search_grounding_requests`, `UrlContextRequestsPerDay` or `URLContext`.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let runs = name.split(|c: char| !c.is_ascii_alphanumeric());
    runs.flat_map(|run| {
        let bytes = run.as_bytes();
        let begins = move |at: usize| {
            let after_small = !bytes[at - 1].is_ascii_uppercase();
            let before_small = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
            bytes[at].is_ascii_uppercase() && (after_small || before_small)
        };
        let mut start = 0;
        (1..=run.len()).filter_map(move |at| {
            let ends = at == run.len() || begins(at);
            ends.then(|| &run[std::mem::replace(&mut start, at)..at])
        })
    })
}

/// A quota of which the text names the window: Google's old style, and other providers.
fn from_window(lower: &str, headers: &RateHeaders, lines: &[LimitLine<'_>]) -> Option<Seen> {
    let (span, unit, words) = message::span(lower)?;
    // Google's old texts name no number, and "limit" stands before words.
    let google = lower.contains("googleapis.com");
    let value = if google {
        None
    } else {
        let limit = message::amount_after(lower, "limit");
        limit.or_else(|| lines.first().map(|line| line.value)).or_else(|| headers.bare_limit())
    };
    let requested = message::amount_after(lower, "requested");
    Some(Seen { value, requested, google, ..plain(unit, span, Tell::Text(words)) })
}

fn from_headers(headers: &RateHeaders) -> Option<Seen> {
    let quota = headers.exhausted()?;
    let (unit, span) = (quota.unit?, quota.window()?);
    let value = quota.limit.and_then(|limit| u64::try_from(limit).ok());
    Some(Seen { value, ..plain(unit, span, Tell::Headers) })
}

/// The Interactions API has codes in words; others name the quota but not its window.
fn from_words(facts: &Facts, dialect: Dialect, lower: &str) -> Option<Seen> {
    let is = |word: &str| facts.words.iter().any(|known| known == word);
    if is("quota_exceeded") && dialect == Dialect::Gemini {
        let tell = Tell::Code("quota_exceeded");
        return Some(Seen { google: true, ..plain(Unit::Requests, Span::Day, tell) });
    }
    if is("rate_limit_exceeded") && dialect == Dialect::Gemini {
        return Some(plain(Unit::Requests, Span::Minute, Tell::Code("rate_limit_exceeded")));
    }
    if let Some((span, unit, words)) = facts.words.iter().find_map(|word| message::span(word)) {
        return Some(plain(unit, span, Tell::Code(words)));
    }
    let (unit, words) = message::unit_of_rate_limit(lower)?;
    Some(Seen { guessed: true, ..plain(unit, Span::Minute, Tell::TextWithoutWindow(words)) })
}

const fn plain(unit: Unit, span: Span, tell: Tell) -> Seen {
    Seen {
        unit,
        span,
        guessed: false,
        tool: false,
        google: false,
        value: None,
        requested: None,
        model: None,
        id: None,
        metric: None,
        tell,
    }
}

impl Seen {
    /// The cause, apart from zero limits and tools; `None` for windows the pool does not count.
    pub(super) const fn cause(&self) -> Option<Cause> {
        match (self.span, self.unit) {
            (Span::Day, Unit::Tokens) => Some(Cause::PerDayTokens),
            (Span::Day, _) => Some(Cause::PerDayRequests),
            (Span::Minute, Unit::Tokens) => Some(Cause::PerMinuteTokens),
            (Span::Minute, _) => Some(Cause::PerMinuteRequests),
            (Span::Hour, _) => None,
        }
    }

    /// How long, given what the server states. `beside_a_day`: a per-day quota is exceeded too, and
    /// a long wait is that one's.
    pub(super) fn wait(&self, stated: &Stated, beside_a_day: bool) -> Wait {
        match (self.span, stated.wait) {
            (Span::Day, Some(wait)) if !self.google || wait > SHORT_HINT => Wait::Stated(wait),
            (Span::Day, _) => Wait::Reset(Window::Day),
            (Span::Minute, Some(wait)) if !(beside_a_day && stated.is_long()) => {
                Wait::Stated((wait + MARGIN).min(delay::LONGEST))
            }
            (Span::Minute, _) => Wait::Reset(Window::Minute),
            (Span::Hour, Some(wait)) => Wait::Stated(wait),
            (Span::Hour, None) => Wait::Ladder,
        }
    }

    /// True when this request alone asks for more than the limit.
    pub(super) fn is_too_small_for(&self, asked: Option<u64>) -> bool {
        let ask = self.requested.or(asked);
        let fits = match (ask, self.value) {
            (Some(ask), Some(limit)) => ask <= limit,
            _ => true,
        };
        self.unit == Unit::Tokens && self.value != Some(0) && !fits
    }

    /// The limit, where it is named beyond doubt.
    pub(super) fn into_limit(self) -> Option<LimitSeen> {
        if self.guessed || self.tool {
            return None;
        }
        let dimension: Dimension = headers::dimension(self.unit, self.span)?;
        let (value, tier) = (self.value?, self.tier());
        let (model, quota_id, metric) = (self.model, self.id, self.metric);
        Some(LimitSeen { dimension, value, tier, model, quota_id, metric })
    }

    /// The tell, in words.
    pub(super) fn evidence(&self) -> String {
        let metric = self.metric.as_deref().unwrap_or("without a metric");
        let id = self.id.as_deref().unwrap_or("");
        match (self.tell, id) {
            (Tell::Id(words), id) => ["quotaId ", id, " has ", words].concat(),
            (Tell::Metric(words), _) => ["metric ", metric, " has ", words].concat(),
            (Tell::QuotaUnit(words), _) => ["quota_unit has ", words].concat(),
            (Tell::LongWait, "") => {
                ["limit ", metric, ", no quotaId, a stated wait of over 10 minutes"].concat()
            }
            (Tell::LongWait, id) => ["quotaId ", id, ", a stated wait of over 10 minutes"].concat(),
            (Tell::NoWindow, "") => ["limit ", metric, ", no quotaId"].concat(),
            (Tell::NoWindow, id) => ["quotaId ", id, " names no window"].concat(),
            (Tell::Text(words), _) => ["the text says \"", words, "\""].concat(),
            (Tell::TextWithoutWindow(words), _) => {
                ["the text says \"", words, "\" and names no window"].concat()
            }
            (Tell::Code(words), _) => ["a code has ", words].concat(),
            (Tell::Headers, _) => "the headers say that nothing remains".to_owned(),
        }
    }

    fn tier(&self) -> Option<Tier> {
        let has = |words: [&str; 2]| {
            self.id.as_deref().is_some_and(|id| id.contains(words[0]))
                || self.metric.as_deref().is_some_and(|metric| metric.contains(words[1]))
        };
        if has(["FreeTier", "free_tier"]) {
            Some(Tier::Free)
        } else if has(["PaidTier", "paid_tier"]) {
            Some(Tier::Paid)
        } else {
            None
        }
    }
}
