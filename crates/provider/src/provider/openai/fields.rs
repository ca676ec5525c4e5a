//! Objects of JSON whose fields keep their order and their spelling.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The fields of an object, in their order, those that are `null` left out.
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    pub(super) fn parse(json: &'a str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    pub(super) fn find(&self, name: &str) -> Option<&'a RawValue> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Moves the fields named in `order` to the front, in that order.
    pub(super) fn sort_by(&mut self, order: &[String]) {
        let place = |name: &str| order.iter().position(|n| n == name).unwrap_or(order.len());
        self.0.sort_by_key(|(name, _)| place(name));
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &RawValue>()? {
                    if value.get() != "null" {
                        fields.push((name, value));
                    }
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Object).map(Fields)
    }
}
