//! The small languages of the file, and guessing what was meant.

use std::time::Duration;

use keywheel_core::scrub::scrub;

/// What a duration looks like.
pub const DURATION: &str = "a duration such as \"90s\", \"2m\" or \"1h30m\"";

/// Reads `500ms`, `90s`, `1h30m`: whole numbers with units, from days to milliseconds, largest first.
///
/// ```
/// use std::time::Duration;
/// use keywheel_settings::words::duration;
///
/// assert_eq!(duration("1m30s"), Some(Duration::from_secs(90)));
/// assert_eq!(duration("90"), None, "of what?");
/// ```
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u64); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let mut rest = text.trim();
    let mut allowed = UNITS.as_slice();
    let mut total_ms: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let place = allowed.iter().position(|(unit, _)| *unit == &rest[..unit_end])?;
        total_ms = total_ms.checked_add(number.checked_mul(allowed[place].1)?)?;
        allowed = &allowed[place + 1..];
        rest = &rest[unit_end..];
    }
    Some(Duration::from_millis(total_ms))
}

/// A duration, or what is wrong with it.
///
/// ```
/// use keywheel_settings::words::any_time;
///
/// assert!(any_time("0s").unwrap().is_zero());
/// assert!(any_time("soon").unwrap_err().starts_with("must be a duration"));
/// ```
///
/// # Errors
/// It is none.
pub fn any_time(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| format!("must be {DURATION}"))
}

/// The same, but no time at all is refused.
///
/// ```
/// assert_eq!(keywheel_settings::words::some_time("0s").unwrap_err(), "must be more than no time");
/// ```
///
/// # Errors
/// It is none, or no time.
pub fn some_time(text: &str) -> Result<Duration, String> {
    match any_time(text)? {
        Duration::ZERO => Err("must be more than no time".to_owned()),
        duration => Ok(duration),
    }
}

/// A path, or what is wrong with it. It is not yet seen from the file.
///
/// ```
/// use keywheel_settings::words::path;
///
/// assert_eq!(path("state/pool.json").as_deref(), Ok("state/pool.json"));
/// assert!(path("~/pool.json").is_err(), "only shells know what ~ is");
/// ```
///
/// # Errors
/// It is empty, or begins with `~`, which would become a folder of that name.
pub fn path(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    if text.starts_with('~') {
        return Err("~ is not understood here; write the whole path".to_owned());
    }
    Ok(text.to_owned())
}

/// Which of `known` was probably meant by `word`.
///
/// ```
/// use keywheel_settings::words::meant;
///
/// assert_eq!(meant("dead-lnie", &["deadline", "selection"]), Some("deadline"));
/// assert_eq!(meant("timeout", &["deadline", "selection"]), None);
/// ```
#[must_use]
pub fn meant<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    // Far longer than any name: a key, or worse, and the distance takes time with the square of the length.
    if word.len() > 40 {
        return None;
    }
    let word = word.to_ascii_lowercase().replace(['-', ' '], "_");
    let far = |known: &str| (1 + known.len() / 4).min(3);
    let near = known.iter().map(|known| (distance(&word, known), *known));
    near.filter(|(distance, known)| *distance <= far(known)).min().map(|(_, known)| known)
}

/// `name` as a fault may show it. Whoever puts a key where a name belongs does not see it repeated.
///
/// ```
/// use keywheel_settings::words::shown;
///
/// assert_eq!(shown("max_retries"), "max_retries");
/// assert_eq!(shown("AQ.EXAMPLE-key"), "(a name)");
/// ```
#[must_use]
pub fn shown(name: &str) -> String {
    const LONGEST: usize = 32;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.*/:".contains(c);
    let harmless = name.len() <= LONGEST && name.chars().all(plain) && scrub(name, &[]) == name;
    if harmless && !name.starts_with("AQ.") { name.to_owned() } else { "(a name)".to_owned() }
}

/// How many letters have to be put in, left out, changed or swapped with the next.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            rows[i][j] = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_whole_numbers_with_units_largest_first() {
        let ms = |text| duration(text).map(|duration| duration.as_millis());
        for (text, expected) in [
            ("90s", 90_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("1s500ms", 1_500),
            ("1d", 86_400_000),
            (" 7s ", 7_000),
            ("0s", 0),
        ] {
            assert_eq!(ms(text), Some(expected), "{text}");
        }
        for text in [
            "",
            " ",
            "90",
            "s",
            "1.5s",
            "-1s",
            "+1s",
            "1 s",
            "30m1h",
            "1m1m",
            "2 minutes",
            "1y",
            "1e3s",
            "٣s",
            "99999999999999999999s",
            "9999999999999999d",
        ] {
            assert_eq!(ms(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_meant_is_guessed_only_from_near() {
        let known = ["deadline", "selection", "state", "key", "keys", "default_max_output"];
        for (word, expected) in [
            ("deadlin", Some("deadline")),
            ("Dead-Line", Some("deadline")),
            ("sleection", Some("selection")),
            ("key", Some("key")),
            ("keys", Some("keys")),
            ("kyes", Some("keys")),
            ("kye", Some("key")),
            ("kei", Some("key")),
            ("kxi", None),
            ("kze", None),
            ("monkey", None),
            ("DEADLINE", Some("deadline")),
            ("default-max-outp", Some("default_max_output")),
            ("defualt_mxa_outptu", Some("default_max_output")),
            ("dflt_mx_output", None),
            ("timeout", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(meant(word, &known), expected, "{word}");
        }
        assert_eq!(meant(&"deadline".repeat(100_000), &known), None);
    }

    #[test]
    fn a_path_is_not_empty_and_not_for_a_shell() {
        assert_eq!(path("a~b/c d").as_deref(), Ok("a~b/c d"));
        for text in ["", "  ", "~", "~/x"] {
            assert!(path(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_name_that_may_be_a_key_is_not_shown() {
        assert_eq!(shown("max_retries"), "max_retries");
        let google = "AIzaSyEXAMPLE0000000000000000000000001";
        for name in [google, "AQ.EXAMPLE", "AQ.E", "two words", "a\nb"] {
            assert_eq!(shown(name), "(a name)");
        }
        assert_eq!(shown(&"k".repeat(32)), "k".repeat(32));
        assert_eq!(shown(&"k".repeat(33)), "(a name)");
    }
}
