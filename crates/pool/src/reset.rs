//! When a limit comes back: reset strategies, one per kind of limit, replaceable by the user.
//!
//! A strategy answers one question: *given now, how long until the reset?* The pool asks it when a reply
//! says "until the window's reset" without saying when that is. A stated wait never goes through here.

use std::{fmt, sync::Arc, time::Duration};

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use chrono_tz::Tz;
use keywheel_core::{Cause, Clock as _, QuotaDay, SystemClock};

/// Says how long a limit takes to come back. Any `Fn(Option<DateTime<Utc>>) -> Duration` is one.
///
/// ```
/// use std::time::Duration;
/// use keywheel_pool::reset::{ResetStrategy, hourly};
///
/// // Another provider's: quotas come back at every full quarter of an hour.
/// let quarterly = |now: Option<chrono::DateTime<chrono::Utc>>| {
///     let now = now.map_or(0, |now| now.timestamp());
///     Duration::from_secs(900 - now.rem_euclid(900) as u64)
/// };
/// let now = "2026-11-30T07:12:00Z".parse().unwrap();
/// assert_eq!(quarterly.until_reset(Some(now)), Duration::from_secs(3 * 60));
/// assert_eq!(hourly().until_reset(Some(now)), Duration::from_secs(48 * 60));
/// ```
pub trait ResetStrategy: Send + Sync {
    /// How long after `now` the limit is back. `None` means the machine's clock, for callers without one
    /// of their own; the pool always says when now is.
    ///
    /// The pool holds the answer between a second and 31 days.
    fn until_reset(&self, now: Option<DateTime<Utc>>) -> Duration;
}

impl<F> ResetStrategy for F
where
    F: Fn(Option<DateTime<Utc>>) -> Duration + Send + Sync,
{
    fn until_reset(&self, now: Option<DateTime<Utc>>) -> Duration {
        self(now)
    }
}

/// Always the same wait.
///
/// ```
/// use std::time::Duration;
/// use keywheel_pool::reset::{ResetStrategy, fixed, rolling};
///
/// let half_an_hour = Duration::from_secs(30 * 60);
/// assert_eq!(fixed(half_an_hour).until_reset(None), half_an_hour);
/// assert_eq!(rolling(half_an_hour).until_reset(None), half_an_hour);
/// ```
pub fn fixed(wait: Duration) -> impl ResetStrategy + Clone {
    move |_| wait
}

/// Until midnight in California, by zone rules: a quota day has 23, 24 or 25 hours.
///
/// Source: <https://ai.google.dev/gemini-api/docs/rate-limits>, "RPD quotas reset at midnight Pacific time".
///
/// ```
/// use std::time::Duration;
/// use keywheel_pool::reset::{ResetStrategy, gemini_pacific_daily_reset};
///
/// let evening = "2026-11-30T07:12:00Z".parse().unwrap(); // 23:12 in California
/// let wait = gemini_pacific_daily_reset().until_reset(Some(evening));
/// assert_eq!(wait, Duration::from_secs(48 * 60));
/// ```
pub fn gemini_pacific_daily_reset() -> impl ResetStrategy + Clone {
    |now| {
        let now = or_clock(now);
        positive(QuotaDay::containing(now).ends_at() - now)
    }
}

/// Until the next full hour.
pub fn hourly() -> impl ResetStrategy + Clone {
    |now| {
        let into = or_clock(now).timestamp_millis().rem_euclid(3_600_000);
        Duration::from_millis(u64::try_from(3_600_000 - into).unwrap_or(0))
    }
}

/// Until the clock next shows `time` in `zone`, by zone rules.
///
/// A time that a change of the clocks leaves out on some day counts as the first moment after the gap.
///
/// ```
/// use std::time::Duration;
/// use chrono::NaiveTime;
/// use keywheel_pool::reset::{ResetStrategy, daily};
///
/// let midnight = daily(chrono_tz::UTC, NaiveTime::MIN);
/// let now = "2026-11-30T23:00:00Z".parse().unwrap();
/// assert_eq!(midnight.until_reset(Some(now)), Duration::from_secs(3600));
/// ```
pub fn daily(zone: Tz, time: NaiveTime) -> impl ResetStrategy + Clone {
    move |now| {
        let now = or_clock(now);
        let mut day = QuotaDay::containing_in(now, zone);
        for _ in 0..3 {
            let at = moment_of(day, time);
            if at > now {
                return positive(at - now);
            }
            day = day.next();
        }
        // Only at the end of chrono's range.
        Duration::from_secs(24 * 3600)
    }
}

/// A window of its own for each refusal: back `window` after it. The same as [`fixed`], for a day and more.
pub fn rolling(window: Duration) -> impl ResetStrategy + Clone {
    fixed(window)
}

/// Which limit a strategy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitKind {
    /// Requests per minute. Defaults to `fixed(60 s)`.
    RequestsPerMinute,
    /// Tokens per minute. Defaults to `fixed(60 s)`.
    TokensPerMinute,
    /// Requests per day; the pool's own day counters turn with it too. Defaults to
    /// [`gemini_pacific_daily_reset`].
    RequestsPerDay,
    /// Tokens per day. Defaults to whatever holds for requests per day.
    TokensPerDay,
    /// A tool's own quota. Defaults to `fixed(1 h)`.
    Tool,
    /// Money: when a quota project without credit is tried again. Defaults to `fixed(1 h)`.
    Billing,
    /// A quota that the reply does not name and for which it states no wait. By default the pool climbs a
    /// ladder of guesses (1 min, 5 min, 30 min, 2 h, end of the quota day); a strategy replaces the ladder.
    Unspecified,
}

impl LimitKind {
    pub(crate) const fn of(cause: Cause) -> Self {
        match cause {
            Cause::PerMinuteRequests => Self::RequestsPerMinute,
            Cause::PerMinuteTokens => Self::TokensPerMinute,
            Cause::PerDayRequests => Self::RequestsPerDay,
            Cause::PerDayTokens => Self::TokensPerDay,
            Cause::ToolQuota => Self::Tool,
            Cause::Billing => Self::Billing,
            _ => Self::Unspecified,
        }
    }
}

/// The strategies a pool works with, one per kind.
#[derive(Clone)]
pub(crate) struct Strategies {
    rpm: Arc<dyn ResetStrategy>,
    tpm: Arc<dyn ResetStrategy>,
    rpd: Arc<dyn ResetStrategy>,
    /// The same as `rpd` unless set.
    tpd: Option<Arc<dyn ResetStrategy>>,
    tool: Arc<dyn ResetStrategy>,
    billing: Arc<dyn ResetStrategy>,
    unspecified: Option<Arc<dyn ResetStrategy>>,
    /// The day is Google's own, so a quota day has a calendar date.
    pacific_days: bool,
    /// The kinds for which the user brought a strategy.
    users_own: Vec<LimitKind>,
}

impl Default for Strategies {
    fn default() -> Self {
        let minute: Arc<dyn ResetStrategy> = Arc::new(fixed(Duration::from_secs(60)));
        let hour: Arc<dyn ResetStrategy> = Arc::new(fixed(Duration::from_secs(3600)));
        let day: Arc<dyn ResetStrategy> = Arc::new(gemini_pacific_daily_reset());
        Self {
            rpm: Arc::clone(&minute),
            tpm: minute,
            rpd: day,
            tpd: None,
            tool: Arc::clone(&hour),
            billing: hour,
            unspecified: None,
            pacific_days: true,
            users_own: Vec::new(),
        }
    }
}

impl Strategies {
    pub(crate) fn set(&mut self, kind: LimitKind, strategy: Arc<dyn ResetStrategy>) {
        self.users_own.push(kind);
        match kind {
            LimitKind::RequestsPerMinute => self.rpm = strategy,
            LimitKind::TokensPerMinute => self.tpm = strategy,
            LimitKind::RequestsPerDay => {
                self.rpd = strategy;
                self.pacific_days = false;
            }
            LimitKind::TokensPerDay => self.tpd = Some(strategy),
            LimitKind::Tool => self.tool = strategy,
            LimitKind::Billing => self.billing = strategy,
            LimitKind::Unspecified => self.unspecified = Some(strategy),
        }
    }

    /// How long from `now_ms` until `kind` is back, bounded; `None`: climb the ladder.
    pub(crate) fn wait_ms(&self, kind: LimitKind, now_ms: i64) -> Option<i64> {
        let strategy = match kind {
            LimitKind::RequestsPerMinute => &self.rpm,
            LimitKind::TokensPerMinute => &self.tpm,
            LimitKind::RequestsPerDay => &self.rpd,
            LimitKind::TokensPerDay => self.tpd.as_ref().unwrap_or(&self.rpd),
            LimitKind::Tool => &self.tool,
            LimitKind::Billing => &self.billing,
            LimitKind::Unspecified => self.unspecified.as_ref()?,
        };
        Some(bounded(strategy.as_ref(), now_ms))
    }

    /// The user brought a strategy for `kind`, which may wait longer than any default.
    pub(crate) fn is_users_own(&self, kind: LimitKind) -> bool {
        let by_requests = kind == LimitKind::TokensPerDay;
        self.users_own.contains(&kind)
            || by_requests && self.users_own.contains(&LimitKind::RequestsPerDay)
    }

    /// Days of tokens turn by a rule of their own.
    pub(crate) const fn token_days_differ(&self) -> bool {
        self.tpd.is_some()
    }

    /// The quota day that `now_ms` belongs to.
    pub(crate) fn day(&self, now_ms: i64) -> DaySpan {
        let now = keywheel_core::clock::from_unix_ms(now_ms);
        if self.pacific_days {
            let day = QuotaDay::containing(now);
            return DaySpan {
                from_ms: day.starts_at().timestamp_millis(),
                end_ms: day.ends_at().timestamp_millis(),
                date: day.date(),
                is_pacific: true,
            };
        }
        let end_ms = now_ms.saturating_add(bounded(self.rpd.as_ref(), now_ms));
        DaySpan::ending_at(end_ms, now_ms)
    }
}

impl fmt::Debug for Strategies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strategies")
            .field("pacific_days", &self.pacific_days)
            .finish_non_exhaustive()
    }
}

/// One day of a daily counter: `[from_ms, end_ms)`, and the date under which it is kept in the state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DaySpan {
    pub(crate) from_ms: i64,
    pub(crate) end_ms: i64,
    pub(crate) date: chrono::NaiveDate,
    /// From midnight to midnight in California.
    pub(crate) is_pacific: bool,
}

impl DaySpan {
    /// A day known by its end alone, taken to be 24 hours long. Its date is the one on which it ends: never
    /// earlier than the Pacific day it takes over from, so that the state file orders the two rightly.
    pub(crate) fn ending_at(end_ms: i64, now_ms: i64) -> Self {
        let from_ms = end_ms.saturating_sub(24 * 3_600_000).min(now_ms);
        let date = QuotaDay::containing(keywheel_core::clock::from_unix_ms(end_ms)).date();
        Self { from_ms, end_ms, date, is_pacific: false }
    }

    pub(crate) const fn contains(&self, at_ms: i64) -> bool {
        self.from_ms <= at_ms && at_ms < self.end_ms
    }
}

const MIN_WAIT_MS: i64 = 1_000;
const MAX_WAIT_MS: i64 = 31 * 86_400_000;

fn bounded(strategy: &dyn ResetStrategy, now_ms: i64) -> i64 {
    let wait = strategy.until_reset(Some(keywheel_core::clock::from_unix_ms(now_ms)));
    i64::try_from(wait.as_millis()).unwrap_or(i64::MAX).clamp(MIN_WAIT_MS, MAX_WAIT_MS)
}

fn or_clock(now: Option<DateTime<Utc>>) -> DateTime<Utc> {
    now.unwrap_or_else(|| SystemClock.now())
}

fn positive(delta: TimeDelta) -> Duration {
    delta.to_std().unwrap_or(Duration::ZERO)
}

/// The moment at which `day` shows `time`, or the first moment after the gap that swallowed it.
fn moment_of(day: QuotaDay, time: NaiveTime) -> DateTime<Utc> {
    let local = day.date().and_time(time);
    for quarter_hours in 0..100 {
        let tried = local + TimeDelta::minutes(15 * quarter_hours);
        if let Some(at) = tried.and_local_timezone(day.zone()).earliest() {
            return at.with_timezone(&Utc);
        }
    }
    day.ends_at()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn end(strategy: &impl ResetStrategy, now: &str) -> DateTime<Utc> {
        let now = at(now);
        now + strategy.until_reset(Some(now))
    }

    #[test]
    fn the_pacific_day_ends_by_zone_rules() {
        let day = gemini_pacific_daily_reset();
        assert_eq!(end(&day, "2026-11-30T07:12:03Z"), at("2026-11-30T08:00:00Z"));
        assert_eq!(end(&day, "2026-07-01T07:00:00Z"), at("2026-07-02T07:00:00Z"));
        // 23 hours on 8 March, 25 on 1 November.
        assert_eq!(end(&day, "2026-03-08T08:00:00Z"), at("2026-03-09T07:00:00Z"));
        assert_eq!(end(&day, "2026-11-01T07:00:00Z"), at("2026-11-02T08:00:00Z"));
        // The last millisecond belongs to the old day, midnight itself to the new one.
        assert_eq!(end(&day, "2026-11-30T07:59:59.999Z"), at("2026-11-30T08:00:00Z"));
        assert_eq!(end(&day, "2026-11-30T08:00:00Z"), at("2026-12-01T08:00:00Z"));
    }

    #[test]
    fn a_daily_time_in_a_zone_is_met_even_when_the_clocks_skip_it() {
        let half_past_two =
            daily(chrono_tz::America::New_York, NaiveTime::from_hms_opt(2, 30, 0).unwrap());
        assert_eq!(end(&half_past_two, "2026-01-05T08:00:00Z"), at("2026-01-06T07:30:00Z"));
        // 8 March 2026 has no 02:30 in New York: 03:00 EDT is 07:00 UTC.
        assert_eq!(end(&half_past_two, "2026-03-08T05:00:00Z"), at("2026-03-08T07:00:00Z"));
        let midnight = daily(chrono_tz::UTC, NaiveTime::MIN);
        assert_eq!(end(&midnight, "2026-01-05T00:00:00Z"), at("2026-01-06T00:00:00Z"));
    }

    #[test]
    fn hourly_and_rolling_are_what_they_say() {
        assert_eq!(end(&hourly(), "2026-01-05T10:00:00Z"), at("2026-01-05T11:00:00Z"));
        assert_eq!(end(&hourly(), "2026-01-05T10:59:59.999Z"), at("2026-01-05T11:00:00Z"));
        let day = rolling(Duration::from_secs(86_400));
        assert_eq!(end(&day, "2026-01-05T10:30:00Z"), at("2026-01-06T10:30:00Z"));
    }

    #[test]
    fn a_strategy_without_a_moment_reads_the_machines_clock() {
        let wait = gemini_pacific_daily_reset().until_reset(None);
        assert!(wait <= Duration::from_secs(25 * 3600));
    }

    #[test]
    fn a_wild_strategy_is_bounded() {
        let mut strategies = Strategies::default();
        strategies.set(LimitKind::RequestsPerDay, Arc::new(fixed(Duration::MAX)));
        assert_eq!(strategies.wait_ms(LimitKind::RequestsPerDay, 0), Some(MAX_WAIT_MS));
        strategies.set(LimitKind::RequestsPerDay, Arc::new(fixed(Duration::ZERO)));
        assert_eq!(strategies.wait_ms(LimitKind::RequestsPerDay, 0), Some(MIN_WAIT_MS));
        assert_eq!(strategies.wait_ms(LimitKind::Unspecified, 0), None);
    }
}
