//! JSON that is passed on exactly as it came.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error, Visitor},
};
use serde_json::value::RawValue;

/// A piece of JSON kept byte for byte: order of fields, spelling of numbers and escapes included.
///
/// Gemini answers in the order of a schema's fields and refuses a thought signature that came back
/// changed, so neither may pass through a map that sorts.
///
/// It can be read from and written to JSON only, not other formats.
///
/// ```
/// use keywheel_provider::api::Json;
///
/// let schema: Json = serde_json::from_str(r#"{"b":1.0,"a":1e2}"#).unwrap();
/// assert_eq!(schema.get(), r#"{"b":1.0,"a":1e2}"#);
/// ```
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// The JSON of `value`.
    ///
    /// # Errors
    /// `value` has no JSON form: a map whose keys are no strings, say.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// What the JSON says, as a `T`.
    ///
    /// # Errors
    /// The JSON is no `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }
}

impl fmt::Debug for Json {
    /// At most 200 characters: an inline picture would fill the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.get();
        match text.char_indices().nth(200) {
            None => f.write_str(text),
            Some((end, _)) => write!(f, "{}… ({} bytes)", &text[..end], text.len()),
        }
    }
}

impl PartialEq for Json {
    /// Byte for byte, not by meaning.
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Json {}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Self::new(&value).expect("a Value's maps have string keys, so it always has a JSON form")
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

/// Reads `null` as the default: the API's servers, and gateways before them, write both.
pub(super) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A text in which halves of characters are replaced. Gateways that count in UTF-16 cut an emoji in two, and send
/// `\ud83d` in one event and the rest in the next: the text around it is not to be lost for that.
pub(crate) struct LossyText(pub(crate) String);

impl<'de> Deserialize<'de> for LossyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = String;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                Ok(match std::str::from_utf8(bytes) {
                    Ok(text) => text.to_owned(),
                    Err(_) => without_halves(bytes),
                })
            }
        }

        // As bytes: serde_json then takes half a character, encoded as if it were a whole one.
        deserializer.deserialize_bytes(Text).map(Self)
    }
}

fn without_halves(mut bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(bytes.len());
    while let Some((&first, rest)) = bytes.split_first() {
        if let [0xED, 0xA0..=0xBF, _, rest @ ..] = bytes {
            text.extend_from_slice("\u{FFFD}".as_bytes());
            bytes = rest;
        } else {
            text.push(first);
            bytes = rest;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}
