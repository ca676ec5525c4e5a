//! Objects of the state file that keep the fields they do not know.
//!
//! `#[serde(flatten)]` would do the same by reading every object into a tree first, which makes
//! loading a large file three times slower.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

/// Fields of a later version, or somebody's own: kept as they are. One pointer while there are
/// none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Extra(Option<Box<Map<String, Value>>>);

impl Extra {
    /// Keeps one field.
    pub(crate) fn keep(&mut self, name: String, value: Value) {
        self.0.get_or_insert_default().insert(name, value);
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter().flat_map(|fields| fields.iter())
    }
}

/// The name of a field, borrowed from the text. (`Cow` itself always copies.)
pub(crate) struct Field<'de>(pub(crate) Cow<'de, str>);

impl<'de> Deserialize<'de> for Field<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> de::Visitor<'de> for Text {
            type Value = Field<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Field<'de>, E> {
                Ok(Field(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Field<'de>, E> {
                Ok(Field(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Values that are left out of the file while they say nothing.
pub(crate) trait Silent {
    /// True when there is nothing to say.
    fn is_silent(&self) -> bool;
}

impl<T> Silent for Option<T> {
    fn is_silent(&self) -> bool {
        self.is_none()
    }
}

impl Silent for u64 {
    fn is_silent(&self) -> bool {
        *self == 0
    }
}

impl<K: super::words::Name, V> Silent for super::words::Small<K, V> {
    fn is_silent(&self) -> bool {
        self.is_empty()
    }
}

/// Declares an object of the state file: `always` fields are always written, `spoken` ones only
/// when they say something. Every field may be absent when read, and reads as its default then.
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub(crate) struct $name:ident {
            always { $( $(#[$always_meta:meta])* $always:ident: $always_type:ty, )* }
            spoken { $( $(#[$spoken_meta:meta])* $spoken:ident: $spoken_type:ty, )* }
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(crate) struct $name {
            $( $(#[$always_meta])* pub(crate) $always: $always_type, )*
            $( $(#[$spoken_meta])* pub(crate) $spoken: $spoken_type, )*
            /// Fields that this version does not know.
            pub(crate) extra: $crate::persist::record::Extra,
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                $( map.serialize_entry(stringify!($always), &self.$always)?; )*
                $( if !$crate::persist::record::Silent::is_silent(&self.$spoken) {
                    map.serialize_entry(stringify!($spoken), &self.$spoken)?;
                } )*
                for (name, value) in self.extra.iter() {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("an object (", stringify!($name), ")"))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<Self::Value, A::Error> {
                        let mut out = $name::default();
                        use $crate::persist::record::Field;
                        while let Some(field) = map.next_key::<Field<'de>>()? {
                            match &*field.0 {
                                $( stringify!($always) => out.$always = map.next_value()?, )*
                                $( stringify!($spoken) => out.$spoken = map.next_value()?, )*
                                _ => out.extra.keep(field.0.into_owned(), map.next_value()?),
                            }
                        }
                        Ok(out)
                    }
                }
                deserializer.deserialize_map(Fields)
            }
        }
    };
}

pub(crate) use record;
