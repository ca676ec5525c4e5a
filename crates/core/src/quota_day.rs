//! The quota day: Google's daily quotas come back at midnight Pacific.
//!
//! Source: "Requests per day (RPD) quotas reset at midnight Pacific time",
//! <https://ai.google.dev/gemini-api/docs/rate-limits>. Pacific means `America/Los_Angeles` by zone
//! rules: one day a year has 23 hours and one has 25, so nothing here ever adds 24 hours.

use chrono::{
    DateTime, Datelike, Days, Duration, LocalResult, NaiveDate, NaiveTime, TimeZone, Utc,
};
use chrono_tz::Tz;

/// The zone in which Google's quota days turn.
pub const PACIFIC: Tz = chrono_tz::America::Los_Angeles;

/// One day of a daily quota: from midnight to midnight in a time zone.
///
/// ```
/// use keywheel_core::QuotaDay;
///
/// let day = QuotaDay::containing("2026-11-30T07:12:03Z".parse().unwrap());
/// assert_eq!(day.date().to_string(), "2026-11-29"); // still Sunday evening in California
/// assert_eq!(day.ends_at().to_rfc3339(), "2026-11-30T08:00:00+00:00"); // 13:30 in India
/// ```
///
/// The day on which the clocks go back has 25 hours; other providers' days turn elsewhere:
///
/// ```
/// use chrono::TimeDelta;
/// use keywheel_core::QuotaDay;
///
/// let moment = "2026-11-01T12:00:00Z".parse().unwrap();
/// let day = QuotaDay::containing(moment);
/// assert_eq!(day.length(), TimeDelta::hours(25));
/// assert!(QuotaDay::straddles(moment, day.ends_at()));
///
/// let day = QuotaDay::containing_in(moment, chrono_tz::UTC);
/// assert_eq!((day.zone(), day.length()), (chrono_tz::UTC, TimeDelta::hours(24)));
/// assert_eq!(day.starts_at().to_rfc3339(), "2026-11-01T00:00:00+00:00");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuotaDay {
    date: NaiveDate,
    zone: Tz,
}

impl QuotaDay {
    /// The Pacific quota day that `moment` belongs to. Midnight itself belongs to the new day.
    #[must_use]
    pub fn containing(moment: DateTime<Utc>) -> Self {
        Self::containing_in(moment, PACIFIC)
    }

    /// The same in any zone, for providers whose days turn elsewhere.
    #[must_use]
    pub fn containing_in(moment: DateTime<Utc>, zone: Tz) -> Self {
        // The ends of chrono's range have no local time in zones west or east of UTC.
        let margin = Duration::days(2);
        let moment =
            moment.clamp(DateTime::<Utc>::MIN_UTC + margin, DateTime::<Utc>::MAX_UTC - margin);
        let days = days_past_tables(moment.year());
        let date = (moment - days).with_timezone(&zone).date_naive();
        Self { date: date + days, zone }
    }

    /// The calendar date of the day in its zone.
    #[must_use]
    pub const fn date(self) -> NaiveDate {
        self.date
    }

    /// The zone in which the day turns.
    #[must_use]
    pub const fn zone(self) -> Tz {
        self.zone
    }

    /// The day's first moment.
    #[must_use]
    pub fn starts_at(self) -> DateTime<Utc> {
        first_moment(self.date, self.zone)
    }

    /// The next day's first moment: when the quota comes back.
    #[must_use]
    pub fn ends_at(self) -> DateTime<Utc> {
        self.next().starts_at()
    }

    /// The day after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self { date: self.date.checked_add_days(Days::new(1)).unwrap_or(self.date), ..self }
    }

    /// How long the day is: 24 hours, or 23 or 25 when the clocks change.
    #[must_use]
    pub fn length(self) -> Duration {
        self.ends_at() - self.starts_at()
    }

    /// True when a reset lies after `from` and not after `to`: figures taken over that time mix two
    /// days.
    #[must_use]
    pub fn straddles(from: DateTime<Utc>, to: DateTime<Utc>) -> bool {
        Self::containing(from) != Self::containing(to)
    }
}

/// The first moment of `date` in `zone`. Zones that change their clocks at midnight have days that
/// begin at 01:00, or whose first hour comes twice.
fn first_moment(date: NaiveDate, zone: Tz) -> DateTime<Utc> {
    let days = days_past_tables(date.year());
    let midnight = (date - days).and_time(NaiveTime::MIN);
    // The largest gap on record is a whole skipped day (Samoa, 2011): look on for 25 hours at most.
    for quarter_hours in 0..100 {
        let local = midnight + Duration::minutes(15 * quarter_hours);
        match zone.from_local_datetime(&local) {
            LocalResult::Single(moment) | LocalResult::Ambiguous(moment, _) => {
                return moment.with_timezone(&Utc) + days;
            }
            LocalResult::None => {}
        }
    }
    midnight.and_utc() + days
}

/// The last year whose clock changes stand in chrono-tz's tables; after it they know winter time
/// only.
const LAST_YEAR: i32 = 2099;

/// How far to go back from `year` to one that the tables cover and that has the same calendar, so
/// that the same rules change the clocks on the same dates.
fn days_past_tables(year: i32) -> Duration {
    if year <= LAST_YEAR {
        return Duration::zero();
    }
    let Some(new_year) = NaiveDate::from_ymd_opt(year, 1, 1) else { return Duration::zero() };
    // Any 28 years without a century in them hold every calendar: 7 weekdays, leap or not.
    let mut covered =
        (LAST_YEAR - 27..=LAST_YEAR).filter_map(|year| NaiveDate::from_ymd_opt(year, 1, 1));
    let same = |day: &NaiveDate| {
        day.weekday() == new_year.weekday() && day.leap_year() == new_year.leap_year()
    };
    covered.find(same).map_or(Duration::zero(), |day| new_year - day)
}

#[cfg(test)]
mod tests;
