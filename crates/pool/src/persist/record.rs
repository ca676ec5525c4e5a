//! Objects of the state file that keep the fields they do not know.
//!
//! `#[serde(flatten)]` would do the same by reading every object into a tree first, which makes
//! loading a large file three times slower.

use std::{borrow::Cow, cell::Cell, fmt};

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

/// Fields of a later version, or somebody's own: kept as they are. One pointer while there are
/// none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Extra(Option<Box<Map<String, Value>>>);

impl Extra {
    /// Reads the value of the field `name`, and keeps both while there is room.
    ///
    /// # Errors
    /// When there is no whole value.
    pub(crate) fn read<'de, A: de::MapAccess<'de>>(
        &mut self,
        name: &str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let named = Room::take(name.len());
        if let (Some(value), true) = (map.next_value_seed(Kept)?, named) {
            self.0.get_or_insert_default().insert(name.to_owned(), value);
        }
        Ok(())
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter().flat_map(|fields| fields.iter())
    }
}

/// Room for unknown fields while a file is read on this thread: they come from anywhere, and are
/// held in memory and written back.
pub(crate) struct Room;

/// What there is at first, in bytes of text or so.
const ROOM: usize = 1 << 20;
/// What each object that is known adds.
const ROOM_EACH: usize = 256;
/// What a value takes at least.
const VALUE: usize = 16;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(0) };
    static OVERFLOWED: Cell<bool> = const { Cell::new(false) };
}

impl Room {
    /// A file begins.
    pub(crate) fn begin() {
        LEFT.set(ROOM);
        OVERFLOWED.set(false);
    }

    /// True when there was not enough in the last file, and fields were left out.
    pub(crate) fn overflowed() -> bool {
        OVERFLOWED.get()
    }

    /// Room for the unknown fields of one more object.
    pub(crate) fn give() {
        LEFT.set(LEFT.get().saturating_add(ROOM_EACH));
    }

    fn take(length: usize) -> bool {
        let left = LEFT.get().checked_sub(VALUE.saturating_add(length));
        LEFT.set(left.unwrap_or(0));
        OVERFLOWED.set(OVERFLOWED.get() || left.is_none());
        left.is_some()
    }
}

/// Reads a value; `None` when there is no room for it.
struct Kept;

impl<'de> de::DeserializeSeed<'de> for Kept {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Value>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for Kept {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Room::take(0).then_some(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Room::take(0).then(|| value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Room::take(0).then(|| value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Room::take(0).then(|| value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Room::take(0).then(|| value.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Room::take(text.len()).then(|| text.into()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut all = Room::take(0).then(Vec::new);
        while let Some(value) = seq.next_element_seed(Self)? {
            all = all.zip(value).map(|(mut all, value)| {
                all.push(value);
                all
            });
        }
        Ok(all.map(Value::Array))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut all = Room::take(0).then(Map::new);
        while let Some(name) = map.next_key::<Field<'de>>()? {
            let named = Room::take(name.0.len());
            let value = map.next_value_seed(Self)?.filter(|_| named);
            all = all.zip(value).map(|(mut all, value)| {
                all.insert(name.0.into_owned(), value);
                all
            });
        }
        Ok(all.map(Value::Object))
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
                        $crate::persist::record::Room::give();
                        let mut out = $name::default();
                        use $crate::persist::record::Field;
                        while let Some(field) = map.next_key::<Field<'de>>()? {
                            match &*field.0 {
                                $( stringify!($always) => out.$always = map.next_value()?, )*
                                $( stringify!($spoken) => out.$spoken = map.next_value()?, )*
                                name => out.extra.read(name, &mut map)?,
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
