//! An API key that cannot be printed or serialised, and the fingerprint that stands for it.

use std::{fmt, str::FromStr};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// One API key of a provider.
///
/// `Debug` prints the [`Fingerprint`]; there is no `Display` and no `Serialize`, so a key reaches a log, an
/// error or a file only through [`expose`](Self::expose). The memory is wiped on drop.
///
/// Gemini keys come as `AIza…` (39 characters) and `AQ.…` (any length); other providers use other forms.
/// The form is therefore never checked, only that the value could be sent in a header.
///
/// ```
/// use keywheel_core::ApiKey;
///
/// let key = ApiKey::new("AQ.example").unwrap();
/// assert_eq!(format!("{key:?}"), "ApiKey(6e09eaaa86d2)");
/// assert!(ApiKey::new("two words").is_err());
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
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
