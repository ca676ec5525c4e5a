//! The language of resets.

use std::time::Duration;

use chrono::{DateTime, NaiveTime, Utc};
use chrono_tz::Tz;
use keywheel_pool::{ResetStrategy, reset};
use keywheel_settings::words::{meant, some_time};

/// What a reset looks like.
pub(super) const RESET: &str =
    "\"pacific_midnight\", \"hourly\", \"daily 00:00 UTC\", \"fixed 60s\" or \"rolling 24h\"";

/// A reset strategy that the file can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reset {
    /// Midnight in California.
    PacificMidnight,
    /// The next full hour.
    Hourly,
    /// A time of day somewhere.
    Daily(Tz, NaiveTime),
    /// Always the same wait.
    Fixed(Duration),
}

impl ResetStrategy for Reset {
    fn until_reset(&self, now: Option<DateTime<Utc>>) -> Duration {
        match *self {
            Self::PacificMidnight => reset::gemini_pacific_daily_reset().until_reset(now),
            Self::Hourly => reset::hourly().until_reset(now),
            Self::Daily(zone, time) => reset::daily(zone, time).until_reset(now),
            Self::Fixed(wait) => wait,
        }
    }
}

/// Reads what [`RESET`] describes.
pub(super) fn reset(text: &str) -> Result<Reset, String> {
    let fault = || format!("must be {RESET}");
    let words: Vec<_> = text.split_whitespace().collect();
    match words.as_slice() {
        ["pacific_midnight"] => Ok(Reset::PacificMidnight),
        ["hourly"] => Ok(Reset::Hourly),
        ["fixed" | "rolling", wait] => some_time(wait).map(Reset::Fixed),
        ["daily", time, zone] => {
            let time = NaiveTime::parse_from_str(time, "%H:%M");
            let time = time.map_err(|_| "its time must be such as 00:00 or 17:30".to_owned())?;
            let zone = zone.parse();
            let zone =
                zone.map_err(|_| "its zone must be such as UTC or America/Los_Angeles".to_owned())?;
            Ok(Reset::Daily(zone, time))
        }
        [word, ..] => {
            let known = ["pacific_midnight", "hourly", "daily", "fixed", "rolling"];
            let meant = meant(word, &known).filter(|meant| meant != word);
            Err(meant.map_or_else(fault, |meant| format!("{}; did you mean \"{meant}\"?", fault())))
        }
        [] => Err(fault()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_the_strategies_they_are_called_after() {
        let now: DateTime<Utc> = "2026-11-30T07:12:00Z".parse().expect("a time");
        for (text, minutes) in [
            ("pacific_midnight", 48),
            ("hourly", 48),
            ("daily 08:00 UTC", 48),
            ("daily 00:00 America/Los_Angeles", 48),
            ("daily 07:00 UTC", 23 * 60 + 48),
            ("fixed 10m", 10),
            ("rolling 24h", 24 * 60),
        ] {
            let wait = reset(text).expect(text).until_reset(Some(now));
            assert_eq!(wait, Duration::from_secs(minutes * 60), "{text}");
        }
        for text in
            ["", "midnight", "fixed", "fixed 0s", "fixed 1 m", "daily 25:00 UTC", "hourly 3"]
        {
            assert!(reset(text).is_err(), "{text}");
        }
        let zone = reset("daily 00:00 Mars/Olympus").expect_err("no such zone");
        assert!(zone.contains("America/Los_Angeles"), "{zone}");
        let typo = reset("pacific_midnigth").expect_err("a typo");
        assert!(typo.ends_with("did you mean \"pacific_midnight\"?"), "{typo}");
    }
}
