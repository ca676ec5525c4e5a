//! An API key that cannot be printed or serialised, and the fingerprint that stands for it.

use std::{fmt, str::FromStr};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// One API key of a provider.
///
/// `Debug` prints the [`Fingerprint`]; there is no `Display` and no `Serialize`, so a key reaches a
/// log, an error or a file only through [`expose`](Self::expose). The memory is wiped on drop.
///
/// Gemini keys come as `AIza…` (39 characters) and `AQ.…` (any length); other providers use other
/// forms. The form is therefore never checked, only that the value could be sent in a header.
///
/// ```
/// use keywheel_core::ApiKey;
///
/// let key = ApiKey::new("AQ.example").unwrap();
/// assert_eq!(format!("{key:?}"), "ApiKey(a7eacb81cdaf)");
/// assert!(ApiKey::new("two words").is_err());
/// ```
///
/// It cannot be printed:
///
/// ```compile_fail,E0277
/// let key = keywheel_core::ApiKey::new("AQ.example").unwrap();
/// println!("{key}");
/// ```
///
/// Nor serialised:
///
/// ```compile_fail,E0277
/// let key = keywheel_core::ApiKey::new("AQ.example").unwrap();
/// serde_json::to_string(&key);
/// ```
#[derive(Clone)]
pub struct ApiKey {
    secret: SecretString,
    fingerprint: Fingerprint,
}

impl ApiKey {
    /// Takes any non-empty printable ASCII value without white space.
    ///
    /// Nothing is trimmed here: quotes and stray space are the business of whoever read the value.
    ///
    /// # Errors
    /// [`ApiKeyError`] says what is wrong, never what the value was.
    pub fn new(value: impl Into<String>) -> Result<Self, ApiKeyError> {
        let value = value.into();
        if value.is_empty() {
            return Err(ApiKeyError::Empty);
        }
        if value.chars().any(char::is_whitespace) {
            return Err(ApiKeyError::WhiteSpace);
        }
        if value.chars().any(char::is_control) {
            return Err(ApiKeyError::ControlCharacter);
        }
        if !value.is_ascii() {
            return Err(ApiKeyError::NotAscii);
        }
        let fingerprint = Fingerprint::of(&value);
        Ok(Self { secret: SecretString::from(value), fingerprint })
    }

    /// The key itself, for the one header it is sent in.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.secret.expose_secret()
    }

    /// What logs, the state file and metrics call this key.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

impl PartialEq for ApiKey {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for ApiKey {}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.fingerprint)
    }
}

/// Why a value cannot be an API key. Never contains the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiKeyError {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// A space, tab or line end, often two keys in one variable.
    #[error("has white space inside")]
    WhiteSpace,
    /// A control character, often a torn paste.
    #[error("has a control character inside")]
    ControlCharacter,
    /// A character that cannot be sent in a header, often a typographic quote or dash.
    #[error("has a character inside that is not ASCII")]
    NotAscii,
}

/// The first 12 hexadecimal digits of a key's SHA-256: its identity in logs, files and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 6]);

impl Fingerprint {
    /// The fingerprint of `secret`.
    ///
    /// ```
    /// use keywheel_core::{ApiKey, Fingerprint};
    ///
    /// let key = ApiKey::new("AQ.EXAMPLE-key-1").unwrap();
    /// assert_eq!(Fingerprint::of("AQ.EXAMPLE-key-1"), key.fingerprint());
    /// assert_eq!(key.fingerprint().to_string().parse(), Ok(key.fingerprint()));
    /// ```
    #[must_use]
    pub fn of(secret: &str) -> Self {
        let digest = Sha256::digest(secret.as_bytes());
        let mut head = [0; 6];
        head.copy_from_slice(&digest[..6]);
        Self(head)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = |byte: u8| [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
        let text = self.0.map(digits);
        // As one piece: a ledger writes one with every row.
        f.write_str(str::from_utf8(text.as_flattened()).unwrap_or_default())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not 12 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is 12 hexadecimal digits")]
pub struct NotAFingerprint;

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        if text.len() != 12 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(NotAFingerprint);
        }
        let mut out = [0; 6];
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| NotAFingerprint)?;
        }
        Ok(Self(out))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn debug_shows_the_fingerprint_and_never_the_key() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "only printed")]
        struct Config {
            keys: Vec<Option<ApiKey>>,
            named: (&'static str, ApiKey),
        }
        let key = ApiKey::new("AQ.EXAMPLE-key-1").unwrap();
        let config = Config { keys: vec![Some(key.clone())], named: ("a", key.clone()) };
        for text in
            [format!("{key:?}"), format!("{key:#?}"), format!("{config:?}"), format!("{config:#?}")]
        {
            assert!(!text.contains("EXAMPLE"), "the key was printed");
            assert!(text.contains(&key.fingerprint().to_string()));
        }
    }

    #[test]
    fn a_refusal_says_what_is_wrong_and_not_what_the_value_was() {
        for (value, expected) in [
            ("", ApiKeyError::Empty),
            ("EXAMPLE 1", ApiKeyError::WhiteSpace),
            ("EXAMPLE\n", ApiKeyError::WhiteSpace),
            ("EXAMPLE\u{a0}", ApiKeyError::WhiteSpace),
            ("EXAMPLE\u{0}", ApiKeyError::ControlCharacter),
            ("EXAMPLE\u{7f}", ApiKeyError::ControlCharacter),
            ("EXAMPLE’", ApiKeyError::NotAscii),
        ] {
            let error = ApiKey::new(value).unwrap_err();
            assert_eq!(error, expected);
            assert!(!format!("{error} {error:?}").contains("EXAMPLE"), "the value was printed");
        }
    }

    #[test]
    fn keys_are_compared_by_value() {
        let [a, b, c] =
            ["AQ.EXAMPLE1", "AQ.EXAMPLE1", "AQ.EXAMPLE2"].map(|k| ApiKey::new(k).unwrap());
        assert!(a == b && a != c, "compared by something else");
        assert_eq!(a.fingerprint(), b.fingerprint());
        assert_ne!(a.fingerprint(), c.fingerprint());
    }

    #[test]
    fn a_fingerprint_is_the_head_of_the_sha256() {
        // printf 'AQ.example' | sha256sum
        assert_eq!(Fingerprint::of("AQ.example").to_string(), "a7eacb81cdaf");
        for text in
            ["", "a7eacb81cda", "a7eacb81cdaf0", "a7eacb81cdag", "a7eacb81cd\u{e9}", "+7eacb81cdaf"]
        {
            assert_eq!(text.parse::<Fingerprint>(), Err(NotAFingerprint), "{text}");
        }
        assert_eq!("A7EACB81CDAF".parse(), Ok(Fingerprint::of("AQ.example")));
    }

    proptest! {
        #[test]
        fn a_fingerprint_survives_text_and_json(secret: String) {
            let fingerprint = Fingerprint::of(&secret);
            prop_assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
            let json = serde_json::to_string(&fingerprint).unwrap();
            prop_assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), fingerprint);
        }

        #[test]
        fn any_printable_ascii_is_a_key(value in "[!-~]{1,200}") {
            prop_assert!(ApiKey::new(value.clone()).is_ok_and(|key| key.expose() == value));
        }
    }
}
