//! Moments as people write and read them.

use chrono::{DateTime, Local, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeZone, Utc};
use keywheel_core::{Clock as _, SystemClock};

/// The machine's time.
pub(crate) fn now() -> DateTime<Utc> {
    SystemClock.now()
}

/// For the help of those that take one.
pub(crate) const FORMS: &str = "\
A TIME is written 2026-11-30T07:30:00Z, or 2026-11-30T07:30 or 2026-11-30 by this machine's clock, or `now`.";

/// Reads a moment: RFC 3339, `now`, or a date or date and time on this machine's clock.
///
/// # Errors
/// Says which forms there are.
pub(crate) fn parse(text: &str) -> Result<DateTime<Utc>, String> {
    if text == "now" {
        return Ok(now());
    }
    if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
        return Ok(moment.to_utc());
    }
    let text = text.replacen(' ', "T", 1);
    let forms = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"];
    let timed = forms.iter().find_map(|form| NaiveDateTime::parse_from_str(&text, form).ok());
    let local = timed.or_else(|| Some(text.parse::<NaiveDate>().ok()?.and_time(NaiveTime::MIN)));
    let local = local.ok_or_else(|| {
        "write a moment as 2026-11-30T07:30:00Z, or 2026-11-30T07:30 by this machine's clock, or now"
            .to_owned()
    })?;
    let found = Local.from_local_datetime(&local).earliest();
    found.map(|moment| moment.to_utc()).ok_or_else(|| {
        "this machine's clock never shows that time: it is put forward there".to_owned()
    })
}

/// A moment for machines.
pub(crate) fn rfc3339(moment: DateTime<Utc>) -> String {
    moment.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// A moment on this machine's clock: the time alone where it is within a day of `now`.
pub(crate) fn here(moment: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let near = (moment - now).num_hours().abs() < 20;
    let form = if near { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
    moment.with_timezone(&Local).format(form).to_string()
}

/// How long it is from `now` until `moment`, in the two largest units: `3 h 12 min`.
pub(crate) fn left(moment: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let seconds = (moment - now).num_seconds().max(0);
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    if days > 0 {
        format!("{days} d {hours} h")
    } else if hours > 0 {
        format!("{hours} h {minutes:02} min")
    } else if minutes > 0 {
        format!("{minutes} min {rest:02} s")
    } else {
        format!("{rest} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_told_in_two_units_and_never_negative() {
        let now = parse("2026-11-30T07:12:03Z").unwrap();
        let after = |seconds| left(now + chrono::TimeDelta::seconds(seconds), now);
        assert_eq!(after(-5), "0 s");
        assert_eq!(after(59), "59 s");
        assert_eq!(after(61), "1 min 01 s");
        assert_eq!(after(3 * 3_600 + 12 * 60 + 59), "3 h 12 min");
        assert_eq!(after(2 * 86_400 + 3_600), "2 d 1 h");
    }

    #[test]
    fn what_is_no_moment_is_told_with_the_forms_there_are() {
        for text in ["", "tomorrow", "30.11.2026", "2026-13-01", "2026-11-30T25:00"] {
            assert!(parse(text).unwrap_err().contains("2026-11-30T07:30"), "{text}");
        }
        assert_eq!(rfc3339(parse("2026-11-30T08:12:03+01:00").unwrap()), "2026-11-30T07:12:03Z");
    }
}
