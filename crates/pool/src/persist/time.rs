//! Moments as the state file writes them: RFC 3339 in UTC, milliseconds inside.
//!
//! Parsed and printed by hand: a file of 50,000 buckets holds some 250,000 moments, and chrono's
//! general parser would take a third of the time that loading it may take.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const DAY_MS: i64 = 86_400_000;
/// 0000-01-01T00:00:00Z and 9999-12-31T23:59:59.999Z: what four digits of a year can say.
const PRINTABLE: (i64, i64) = (-62_167_219_200_000, 253_402_300_799_999);

/// A moment in milliseconds since the Unix epoch, written as `2026-11-30T08:00:02.120Z`.
///
/// A whole second is written without its fraction. Moments outside the years 0 to 9999 are written
/// as the nearest moment inside them.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At(pub(crate) i64);

impl At {
    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub(crate) const fn ms(self) -> i64 {
        self.0
    }

    /// Reads any RFC 3339 moment; fractions are cut to milliseconds.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        parse_plain(text.as_bytes()).or_else(|| {
            let other = DateTime::parse_from_rfc3339(text).ok()?;
            Some(Self(other.timestamp_millis()))
        })
    }

    fn print(self, out: &mut [u8; 24]) -> &str {
        let ms = self.0.clamp(PRINTABLE.0, PRINTABLE.1);
        let (year, month, day) = civil(ms.div_euclid(DAY_MS));
        let in_day = ms.rem_euclid(DAY_MS);
        let (seconds, fraction) = (in_day / 1_000, in_day % 1_000);
        out.copy_from_slice(b"0000-00-00T00:00:00.000Z");
        put(&mut out[0..4], year);
        put(&mut out[5..7], month);
        put(&mut out[8..10], day);
        put(&mut out[11..13], seconds / 3_600);
        put(&mut out[14..16], seconds / 60 % 60);
        put(&mut out[17..19], seconds % 60);
        put(&mut out[20..23], fraction);
        let mut length = 24;
        if fraction == 0 {
            out[19] = b'Z';
            length = 20;
        }
        std::str::from_utf8(&out[..length]).expect("only ASCII digits and signs were put in")
    }
}

impl From<DateTime<Utc>> for At {
    fn from(moment: DateTime<Utc>) -> Self {
        Self(moment.timestamp_millis())
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.print(&mut [0; 24]))
    }
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.print(&mut [0; 24]))
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Moment;
        impl de::Visitor<'_> for Moment {
            type Value = At;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a moment such as 2026-11-30T08:00:02Z")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<At, E> {
                At::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Moment)
    }
}

/// `2026-11-30T08:00:02Z`, with up to nine digits of fraction; `None` for every other form.
fn parse_plain(text: &[u8]) -> Option<At> {
    let (head, tail) = text.split_at_checked(19)?;
    let shape = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if shape.iter().any(|&(at, sign)| head[at] != sign) {
        return None;
    }
    let year = digits(&head[0..4])?;
    let month = digits(&head[5..7])?;
    let day = digits(&head[8..10])?;
    let (hour, minute, second) =
        (digits(&head[11..13])?, digits(&head[14..16])?, digits(&head[17..19])?);
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = match tail {
        [b'Z'] => 0,
        [b'.', fraction @ .., b'Z'] if (1..=9).contains(&fraction.len()) => {
            let kept = &fraction[..fraction.len().min(3)];
            digits(fraction)?;
            digits(kept)? * [100, 10, 1][kept.len() - 1]
        }
        _ => return None,
    };
    let in_day = ((hour * 60 + minute) * 60 + second) * 1_000 + fraction;
    Some(At(days(year, month, day) * DAY_MS + in_day))
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter()
        .try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
}

/// Writes `value` right-aligned over the zeros in `out`.
fn put(out: &mut [u8], mut value: i64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a Gregorian date, by counting years from March so that the leap day is
/// last.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days`]: (year, month, day).
const fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_printable_moment_reads_back_and_chrono_agrees(
            ms in PRINTABLE.0..=PRINTABLE.1
        ) {
            let text = At(ms).to_string();
            prop_assert_eq!(At::parse(&text), Some(At(ms)));
            let chrono = DateTime::parse_from_rfc3339(&text).map(|other| other.timestamp_millis());
            prop_assert_eq!(chrono, Ok(ms));
        }

        #[test]
        fn no_text_is_read_as_another_moment_than_chrono_reads(
            text in concat!(
                "[0-9]{4}-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]",
                "(\\.[0-9]{1,10})?(Z|\\+05:30)",
            )
        ) {
            let chrono = DateTime::parse_from_rfc3339(&text).ok();
            let chrono = chrono.map(|other| other.timestamp_millis());
            prop_assert_eq!(At::parse(&text).map(At::ms), chrono);
        }
    }

    #[test]
    fn the_forms_of_the_documentation() {
        assert_eq!(At::parse("2026-11-30T08:00:02Z").unwrap().to_string(), "2026-11-30T08:00:02Z");
        let fraction = At::parse("2026-11-30T07:12:03.120Z").unwrap();
        assert_eq!(fraction.to_string(), "2026-11-30T07:12:03.120Z");
        assert_eq!(At::parse("2026-11-30T13:30:02+05:30"), At::parse("2026-11-30T08:00:02Z"));
    }

    #[test]
    fn moments_beyond_the_years_are_printed_as_the_nearest_inside() {
        assert_eq!(At(i64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(At(i64::MIN).to_string(), "0000-01-01T00:00:00Z");
    }
}
