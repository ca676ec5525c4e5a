//! What arguments hold, where the parser's own words would not say what is wanted; and what of them is never repeated.

use std::str::FromStr;

use chrono_tz::Tz;
use keywheel_core::scrub::scrub;

/// A whole number that is not 0.
///
/// # Errors
/// It is none.
pub(crate) fn from_one<N: FromStr + Default + PartialEq>(text: &str) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| *number != N::default());
    number.ok_or_else(|| "it must be a whole number from 1 on".to_owned())
}

/// How often something is shown, in seconds: `2`, or `2s`.
///
/// # Errors
/// It is none, or more than an hour.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse().ok();
    number
        .filter(|number| (1..=3_600).contains(number))
        .ok_or_else(|| "it must be a number of seconds from 1 to 3600".to_owned())
}

/// A time zone by its name.
///
/// # Errors
/// There is none of that name.
pub(crate) fn zone(text: &str) -> Result<Tz, String> {
    text.parse().map_err(|_| "it must be a time zone such as UTC or Europe/Berlin".to_owned())
}

/// `message` without those of `arguments` that may be a key or a token: people put them where a label, a fingerprint or
/// a number belongs. `None`: there are none.
pub(crate) fn without_secrets(
    message: &str,
    arguments: impl Iterator<Item = String>,
) -> Option<String> {
    let values = arguments.flat_map(|argument| {
        let value = argument.split_once('=').map(|(_, value)| value.to_owned());
        [Some(argument), value].into_iter().flatten()
    });
    let mut hidden = message.to_owned();
    for value in values.filter(|value| may_be_a_secret(value)) {
        hidden = hidden.replace(&value, "…");
    }
    (hidden != message).then_some(hidden)
}

/// True for what has the form of a key, whoever's.
fn may_be_a_secret(text: &str) -> bool {
    const LONGEST_WORD: usize = 32;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    scrub(text, &[]) != text || text.len() > LONGEST_WORD && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_told_what_is_wanted() {
        assert_eq!(from_one::<u32>("7"), Ok(7));
        assert_eq!((seconds("2"), seconds("3600s")), (Ok(2), Ok(3_600)));
        for text in ["", "0", "-1", "x", "1.5"] {
            assert!(from_one::<u64>(text).unwrap_err().contains("from 1 on"), "{text}");
            assert!(seconds(text).unwrap_err().contains("seconds"), "{text}");
        }
        assert!(seconds("2m").is_err() && seconds("3601").is_err());
    }

    #[test]
    fn what_may_be_a_secret_is_hidden_and_nothing_else() {
        let told = |argument: &str| {
            let message = format!("error: unexpected argument '{argument}' found");
            without_secrets(&message, ["status".to_owned(), argument.to_owned()].into_iter())
        };
        let token = format!("kw_EXAMPLE{}", "x".repeat(36));
        for secret in ["AIzaSyEXAMPLE0000000000000000000000001", "AQ.EXAMPLE-key-1", &token] {
            for argument in [secret.to_owned(), format!("--key={secret}")] {
                let told = told(&argument).unwrap();
                assert!(told.ends_with("…' found") && !told.contains("EXAMPLE"), "it was repeated");
            }
        }
        for plain in
            ["nonsense", "--nonsense=5", "/a/path/that/is/longer/than/keys/usually/are.txt"]
        {
            assert_eq!(told(plain), None);
        }
    }
}
