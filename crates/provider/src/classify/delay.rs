//! How long a server says to wait, in every notation seen. Whatever it sends, the result is
//! bounded.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// No stated wait is believed beyond this: a quota day that has 25 hours.
pub(super) const LONGEST: Duration = Duration::from_hours(25);

/// Where numbers stop being told apart; far above [`LONGEST`], far below any overflow.
const SATURATED: u64 = 1_000_000_000_000_000;

/// Reads a wait at the start of `text`: `45.837906927s`, `242ms`, `1m2s`, `10h34m44.3s`, `30
/// seconds`, `1 minute and 5 seconds`. `None` when there is none, or it is negative, or not a
/// number.
pub(super) fn compound(text: &str) -> Option<Duration> {
    let mut rest = text.trim_start();
    let mut total: Option<Duration> = None;
    while let Some((number, after)) = number(rest) {
        let Some((unit, after)) = unit(after.trim_start_matches([' ', '-'])) else { break };
        let part = number.times(unit);
        total = Some(total.unwrap_or_default().saturating_add(part));
        rest = after.trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    total
}

/// The same, or a plain number of seconds. The whole of `text` is one value.
pub(super) fn seconds_or_compound(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, after) = number(text)?;
    if after.is_empty() { Some(number.times(Duration::from_secs(1))) } else { compound(text) }
}

/// A plain number of milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<Duration> {
    let (number, after) = number(text.trim())?;
    after.is_empty().then(|| number.times(Duration::from_millis(1)))
}

/// A moment or a wait, as `Retry-After` and `x-ratelimit-reset` carry them: seconds, a duration, an
/// HTTP date, RFC 3339, or an epoch in seconds or milliseconds. `None` when it lies in the past.
pub(super) fn until(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    let text = text.trim();
    if let Some((number, after)) = number(text)
        && after.is_empty()
    {
        let now_ms = now.timestamp_millis();
        // No wait is 30 years long, and no epoch since 2001 is smaller.
        return match number.whole {
            1_000_000_000..100_000_000_000 => positive(number.millis().saturating_sub(now_ms)),
            // Up to the year 5138; what is larger still is no moment, only a large number.
            100_000_000_000..100_000_000_000_000 => {
                positive(i64::try_from(number.whole).unwrap_or(i64::MAX).saturating_sub(now_ms))
            }
            _ => Some(number.times(Duration::from_secs(1))),
        };
    }
    if let Some(wait) = compound(text) {
        return Some(wait);
    }
    let moment = DateTime::parse_from_rfc3339(text).map(|at| at.timestamp_millis()).ok();
    let moment = moment.or_else(|| {
        let at = DateTime::<Utc>::from(httpdate::parse_http_date(text).ok()?);
        Some(at.timestamp_millis())
    })?;
    positive(moment.saturating_sub(now.timestamp_millis()))
}

fn positive(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// A non-negative decimal number, cut to nine digits behind the point and saturated.
#[derive(Debug, Clone, Copy)]
struct Number {
    whole: u64,
    nanos: u32,
}

impl Number {
    fn times(self, unit: Duration) -> Duration {
        // In nanoseconds, wide enough for any product of the two.
        let number = u128::from(self.whole) * 1_000_000_000 + u128::from(self.nanos);
        let nanos = number * unit.as_nanos() / 1_000_000_000;
        let seconds = (nanos / 1_000_000_000).min(u128::from(SATURATED));
        let below = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
        Duration::new(u64::try_from(seconds).unwrap_or(SATURATED), below)
    }

    fn millis(self) -> i64 {
        let ms = u128::from(self.whole) * 1_000 + u128::from(self.nanos / 1_000_000);
        i64::try_from(ms).unwrap_or(i64::MAX)
    }
}

/// Takes a number off the start of `text`. A sign makes it none: nothing negative is a wait.
fn number(text: &str) -> Option<(Number, &str)> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = text[..digits].bytes().fold(0, |sum: u64, digit| {
        (sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))).min(SATURATED)
    });
    let mut rest = &text[digits..];
    let mut nanos = 0;
    let mut fraction = 0;
    if let Some(behind) = rest.strip_prefix('.') {
        fraction = behind.bytes().take_while(u8::is_ascii_digit).count();
        let mut scale = 100_000_000;
        for digit in behind[..fraction].bytes().take(9) {
            nanos += u32::from(digit - b'0') * scale;
            scale /= 10;
        }
        // "3." at the end of a sentence is 3.
        if fraction > 0 {
            rest = &behind[fraction..];
        }
    }
    if digits == 0 && fraction == 0 {
        return None;
    }
    let number = Number { whole, nanos };
    match exponent(rest) {
        Some((exponent, rest)) => Some((scaled(number, exponent), rest)),
        None => Some((number, rest)),
    }
}

/// The exponent of `1e30`, if one follows.
fn exponent(rest: &str) -> Option<(i32, &str)> {
    let behind = rest.strip_prefix(['e', 'E'])?;
    let (negative, behind) = match behind.strip_prefix('-') {
        Some(behind) => (true, behind),
        None => (false, behind.strip_prefix('+').unwrap_or(behind)),
    };
    let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let value = behind[..digits].parse().unwrap_or(9_999_i32).min(9_999);
    Some((if negative { -value } else { value }, &behind[digits..]))
}

fn scaled(number: Number, exponent: i32) -> Number {
    let value = number.whole as f64 + f64::from(number.nanos) / 1e9;
    let value = value * 10_f64.powi(exponent);
    // NaN cannot come out of two finite non-negative factors except as 0 times infinity.
    let value = if value.is_nan() { 0.0 } else { value.min(SATURATED as f64) };
    Number { whole: value as u64, nanos: ((value.fract()) * 1e9) as u32 }
}

/// Takes a unit off the start of `text`.
fn unit(text: &str) -> Option<(Duration, &str)> {
    let letters: usize = text.chars().take_while(|c| c.is_alphabetic()).map(char::len_utf8).sum();
    let (word, rest) = text.split_at(letters);
    // `1h2m` has its next number right behind the unit, so the letters are the whole unit.
    let unit = match word {
        "ns" => Duration::from_nanos(1),
        "us" | "µs" | "μs" => Duration::from_micros(1),
        "ms" | "millis" | "millisecond" | "milliseconds" => Duration::from_millis(1),
        "s" | "S" | "sec" | "secs" | "second" | "seconds" => Duration::from_secs(1),
        "m" | "min" | "mins" | "minute" | "minutes" => Duration::from_mins(1),
        "h" | "hr" | "hrs" | "hour" | "hours" => Duration::from_hours(1),
        "d" | "day" | "days" => Duration::from_hours(24),
        _ => return None,
    };
    Some((unit, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(text: &str) -> Option<f64> {
        compound(text).map(|wait| wait.as_secs_f64())
    }

    // https://github.com/dcdpr/jp/pull/1061: fractional durations were rejected.
    #[test]
    fn every_notation_seen_in_replies_is_read() {
        assert_eq!(secs("45.837906927s"), Some(45.837_906_927));
        assert_eq!(secs("242ms"), Some(0.242));
        assert_eq!(secs("39.078576ms."), Some(0.039_078_576));
        assert_eq!(secs("1m2s"), Some(62.0));
        assert_eq!(secs("10h34m44.3s."), Some(38_084.3));
        assert_eq!(secs("30 seconds. That's all"), Some(30.0));
        assert_eq!(secs("1 minute and 5 seconds"), Some(65.0));
        assert_eq!(secs("2 hours, 3 minutes"), Some(7_380.0));
        assert_eq!(secs("a moment"), None);
        assert_eq!(secs("5 apples"), None);
        assert_eq!(seconds_or_compound("505"), Some(Duration::from_secs(505)));
        assert_eq!(seconds_or_compound("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(milliseconds("1500"), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn moments_count_from_now_and_past_ones_state_nothing() {
        let now: DateTime<Utc> = "2026-10-21T07:27:50Z".parse().unwrap();
        assert_eq!(until("Wed, 21 Oct 2026 07:28:00 GMT", now), Some(Duration::from_secs(10)));
        assert_eq!(until("2026-10-21T07:28:00Z", now), Some(Duration::from_secs(10)));
        assert_eq!(until("2026-10-21T09:28:00+02:00", now), Some(Duration::from_secs(10)));
        let epoch = now.timestamp() + 10;
        assert_eq!(until(&epoch.to_string(), now), Some(Duration::from_secs(10)));
        assert_eq!(until(&format!("{epoch}000"), now), Some(Duration::from_secs(10)));
        assert_eq!(until("64", now), Some(Duration::from_secs(64)));
        assert_eq!(until("Wed, 21 Oct 2015 07:28:00 GMT", now), None);
        assert_eq!(until("1500000000", now), None);
    }

    #[test]
    fn absurd_numbers_saturate_and_nonsense_states_nothing() {
        let digits = "9".repeat(300);
        for text in [&format!("{digits}s"), "1000000000000000000s", "1e300s", "1e99999h"] {
            let wait = compound(text).unwrap();
            assert!(wait > LONGEST && wait.as_secs() <= SATURATED, "{text}: {wait:?}");
        }
        let now = DateTime::<Utc>::UNIX_EPOCH;
        assert!(until(&digits, now).unwrap() > LONGEST);
        for text in ["-5s", "NaN", "nan", "-1", "inf", "", "s", ".", "e5s", "-0", "--5"] {
            assert_eq!(compound(text), None, "{text}");
            assert_eq!(until(text, now), None, "{text}");
        }
        assert_eq!(compound("0s"), Some(Duration::ZERO));
        assert_eq!(compound("1e-400s"), Some(Duration::ZERO));
    }
}
