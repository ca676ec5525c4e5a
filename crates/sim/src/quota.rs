//! One bucket's counters: what a quota project spent on a model, and whether more fits.

use std::{collections::VecDeque, time::Duration};

use chrono::{DateTime, Datelike as _, TimeDelta, Utc};
use chrono_tz::Tz;
use keywheel_core::{Dimension, QuotaDay, clock::from_unix_ms};

use crate::config::{Limits, Windows};

const MINUTE_MS: i64 = 60_000;

/// What one request asks of its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Requests: more than one for a batch of texts.
    pub requests: u64,
    /// Input tokens.
    pub tokens: u64,
}

/// A limit that a request would have gone over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// Which limit.
    pub dimension: Dimension,
    /// Its value.
    pub limit: u64,
    /// When the same request fits, as far as this limit goes; `None` when it never does.
    pub fits_in: Option<Duration>,
}

/// How far a limit is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Which limit.
    pub dimension: Dimension,
    /// Its value.
    pub limit: u64,
    /// What of it is used.
    pub used: u64,
    /// When nothing of it will be used, if no more requests come.
    pub resets_in: Duration,
}

/// When a bucket's windows turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How minutes are counted.
    pub windows: Windows,
    /// The zone whose midnight ends the day.
    pub zone: Tz,
    /// Milliseconds after that midnight at which the day really turns.
    pub late_ms: i64,
}

impl Rules {
    /// The quota day that `now_ms` is counted in.
    #[must_use]
    pub fn day(&self, now_ms: i64) -> QuotaDay {
        let shifted = from_unix_ms(now_ms.saturating_sub(self.late_ms));
        QuotaDay::containing_in(shifted, self.zone)
    }

    /// When that day's quota comes back.
    #[must_use]
    pub fn day_ends_at(&self, now_ms: i64) -> DateTime<Utc> {
        let late = TimeDelta::milliseconds(self.late_ms);
        self.day(now_ms).ends_at().checked_add_signed(late).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }
}

/// The counters of one quota project and model.
///
/// ```
/// use std::time::Duration;
/// use chrono::{DateTime, Utc};
/// use keywheel_core::Dimension;
/// use keywheel_sim::{Limits, Windows, quota::{Ask, Bucket, Rules}};
///
/// let rules = Rules { windows: Windows::Rolling, zone: chrono_tz::UTC, late_ms: 0 };
/// let limits = Limits::new().rpm(1).rpd(500);
/// let now: DateTime<Utc> = "2026-11-30T12:00:00Z".parse().unwrap();
/// let now_ms = now.timestamp_millis();
///
/// let mut bucket = Bucket::default();
/// let ask = Ask { requests: 1, tokens: 100 };
/// assert!(bucket.admit(&limits, &rules, ask, now_ms).is_ok());
/// let refused = bucket.admit(&limits, &rules, ask, now_ms + 20_000).unwrap_err();
/// assert_eq!((refused[0].dimension, refused[0].limit), (Dimension::Rpm, 1));
/// assert_eq!(refused[0].fits_in, Some(Duration::from_secs(40)));
///
/// assert_eq!(bucket.spent_today(&rules, now_ms), 1);
/// assert_eq!(rules.day(now_ms).date().to_string(), "2026-11-30");
/// assert_eq!(rules.day_ends_at(now_ms), "2026-12-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Bucket {
    /// Counted requests of the last minute or so, oldest first.
    minute: VecDeque<Counted>,
    day: Option<QuotaDay>,
    day_requests: u64,
    day_tokens: u64,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    at_ms: i64,
    ask: Ask,
}

impl Bucket {
    /// Counts the request if every limit has room for it; else counts nothing and names all limits that
    /// have not.
    ///
    /// A limit of zero is violated by every request, however small.
    ///
    /// # Errors
    /// The limits without room, in the order requests before tokens, minute before day.
    pub fn admit(
        &mut self,
        limits: &Limits,
        rules: &Rules,
        ask: Ask,
        now_ms: i64,
    ) -> Result<(), Vec<Violation>> {
        self.turn(rules, now_ms);
        let violations = self.violations(limits, rules, ask, now_ms);
        if !violations.is_empty() {
            return Err(violations);
        }
        self.minute.push_back(Counted { at_ms: now_ms, ask });
        self.day_requests += ask.requests;
        self.day_tokens += ask.tokens;
        Ok(())
    }

    /// Requests counted in the quota day of `now_ms`.
    #[must_use]
    pub fn spent_today(&self, rules: &Rules, now_ms: i64) -> u64 {
        if self.day == Some(rules.day(now_ms)) { self.day_requests } else { 0 }
    }

    /// How far a limit is used up at `now_ms`; `None` when there is no such limit.
    #[must_use]
    pub fn usage(
        &self,
        limits: &Limits,
        rules: &Rules,
        dimension: Dimension,
        now_ms: i64,
    ) -> Option<Usage> {
        let mut now = self.clone();
        now.turn(rules, now_ms);
        let sum = |amount: fn(Ask) -> u64| now.minute.iter().map(|it| amount(it.ask)).sum();
        let (limit, used) = match dimension {
            Dimension::Rpm => (limits.rpm?, sum(|ask| ask.requests)),
            Dimension::Tpm => (limits.tpm?, sum(|ask| ask.tokens)),
            Dimension::Rpd => (limits.rpd?, now.day_requests),
            Dimension::Tpd => (limits.tpd?, now.day_tokens),
            Dimension::Ipm => return None,
        };
        let resets_ms = match (dimension, rules.windows) {
            _ if used == 0 => 0,
            (Dimension::Rpd | Dimension::Tpd, _) => {
                rules.day_ends_at(now_ms).timestamp_millis() - now_ms
            }
            (_, Windows::Fixed) => MINUTE_MS - now_ms.rem_euclid(MINUTE_MS),
            (_, Windows::Rolling) => {
                now.minute.back().map_or(0, |last| last.at_ms + MINUTE_MS - now_ms)
            }
        };
        let resets_in = Duration::from_millis(u64::try_from(resets_ms).unwrap_or(0));
        Some(Usage { dimension, limit, used, resets_in })
    }

    /// Forgets what has left its window.
    fn turn(&mut self, rules: &Rules, now_ms: i64) {
        let oldest_ms = match rules.windows {
            Windows::Rolling => now_ms - MINUTE_MS + 1,
            Windows::Fixed => now_ms - now_ms.rem_euclid(MINUTE_MS),
        };
        // Entries of the future are from before the clock went back: they belong to no window of now.
        self.minute.retain(|entry| entry.at_ms >= oldest_ms && entry.at_ms <= now_ms);
        let today = rules.day(now_ms);
        if self.day != Some(today) {
            self.day = Some(today);
            self.day_requests = 0;
            self.day_tokens = 0;
        }
    }

    fn violations(&self, limits: &Limits, rules: &Rules, ask: Ask, now_ms: i64) -> Vec<Violation> {
        let minute = self.minute.iter().fold((0, 0), |(requests, tokens), entry| {
            (requests + entry.ask.requests, tokens + entry.ask.tokens)
        });
        let to_reset = (rules.day_ends_at(now_ms) - from_unix_ms(now_ms)).to_std().ok();
        let mut out = Vec::new();
        let mut note = |dimension, limit: Option<u64>, used: u64, asked: u64, fits_in| {
            let Some(limit) = limit else { return };
            if limit == 0 || used + asked > limit {
                let fits_in = if asked > limit || limit == 0 { None } else { fits_in };
                out.push(Violation { dimension, limit, fits_in });
            }
        };
        let (rpm, tpm) = (limits.rpm, limits.tpm);
        let fits = |limit, amount| self.minute_fits_in(rules, now_ms, limit, amount);
        let rpm_fits = rpm.and_then(|limit| fits(limit, (ask.requests, |ask| ask.requests)));
        let tpm_fits = tpm.and_then(|limit| fits(limit, (ask.tokens, |ask| ask.tokens)));
        note(Dimension::Rpm, rpm, minute.0, ask.requests, rpm_fits);
        note(Dimension::Rpd, limits.rpd, self.day_requests, ask.requests, to_reset);
        note(Dimension::Tpm, tpm, minute.1, ask.tokens, tpm_fits);
        note(Dimension::Tpd, limits.tpd, self.day_tokens, ask.tokens, to_reset);
        out
    }

    /// How long until `asked` more fits under a minute's `limit`.
    fn minute_fits_in(
        &self,
        rules: &Rules,
        now_ms: i64,
        limit: u64,
        (asked, amount): (u64, fn(Ask) -> u64),
    ) -> Option<Duration> {
        let wait_ms = match rules.windows {
            Windows::Fixed => MINUTE_MS - now_ms.rem_euclid(MINUTE_MS),
            Windows::Rolling => {
                let mut used: u64 = self.minute.iter().map(|entry| amount(entry.ask)).sum();
                let mut leaves_ms = now_ms;
                for entry in &self.minute {
                    if used + asked <= limit {
                        break;
                    }
                    used -= amount(entry.ask);
                    leaves_ms = entry.at_ms + MINUTE_MS;
                }
                leaves_ms - now_ms
            }
        };
        u64::try_from(wait_ms).ok().map(Duration::from_millis)
    }
}

/// A day as a number, for drawing faults and for ordering.
pub(crate) fn day_number(day: QuotaDay) -> i32 {
    day.date().num_days_from_ce()
}
