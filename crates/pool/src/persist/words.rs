//! Words and small maps of the state file, open to words of later versions.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use keywheel_core::{Cause, Dimension};

/// Something that has a fixed set of names in JSON.
pub(crate) trait Vocabulary: Copy {
    /// The name in JSON.
    fn word(self) -> &'static str;
    /// The value that `text` names.
    fn find(text: &str) -> Option<Self>;
}

impl Vocabulary for Cause {
    fn word(self) -> &'static str {
        self.as_str()
    }

    fn find(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == text)
    }
}

impl Vocabulary for Dimension {
    fn word(self) -> &'static str {
        self.as_str()
    }

    fn find(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dimension| dimension.as_str() == text)
    }
}

/// How the end of a cooldown is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WaitSource {
    /// The provider said so.
    Stated,
    /// A reset strategy knows when the window turns.
    Derived,
    /// Nobody knows: a step of the ladder.
    Guessed,
}

impl Vocabulary for WaitSource {
    fn word(self) -> &'static str {
        match self {
            Self::Stated => "stated",
            Self::Derived => "derived",
            Self::Guessed => "guessed",
        }
    }

    fn find(text: &str) -> Option<Self> {
        [Self::Stated, Self::Derived, Self::Guessed].into_iter().find(|it| it.word() == text)
    }
}

/// How a limit is known, or why it no longer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LimitOrigin {
    /// A reply named it.
    Learned,
    /// It held no longer: an exploration beyond it was served.
    Lifted,
}

impl Vocabulary for LimitOrigin {
    fn word(self) -> &'static str {
        match self {
            Self::Learned => "learned",
            Self::Lifted => "lifted",
        }
    }

    fn find(text: &str) -> Option<Self> {
        [Self::Learned, Self::Lifted].into_iter().find(|it| it.word() == text)
    }
}

/// A word this version knows, or one of a later version, which is kept as it is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Word<T> {
    /// A known word.
    Known(T),
    /// Any other.
    Other(Box<str>),
}

impl<T: Vocabulary> Word<T> {
    /// The value, when this version knows the word.
    #[must_use]
    pub(crate) fn known(&self) -> Option<T> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Other(_) => None,
        }
    }
}

impl<T> Default for Word<T> {
    fn default() -> Self {
        Self::Other(Box::default())
    }
}

impl<T> From<T> for Word<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

impl<T: Vocabulary> From<&str> for Word<T> {
    fn from(text: &str) -> Self {
        Self::read(text)
    }
}

impl<T: Vocabulary> Name for Word<T> {
    fn text(&self) -> &str {
        match self {
            Self::Known(value) => value.word(),
            Self::Other(text) => text,
        }
    }

    fn read(text: &str) -> Self {
        T::find(text).map_or_else(|| Self::Other(text.into()), Self::Known)
    }
}

impl<T: Vocabulary> fmt::Debug for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl<T: Vocabulary> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

impl<'de, T: Vocabulary> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Named(std::marker::PhantomData))
    }
}

/// Something that is written as a text and can be read from every text.
pub(crate) trait Name: Sized {
    /// How it is written.
    fn text(&self) -> &str;
    /// The inverse of [`text`](Self::text).
    fn read(text: &str) -> Self;
}

impl Name for Box<str> {
    fn text(&self) -> &str {
        self
    }

    fn read(text: &str) -> Self {
        text.into()
    }
}

struct Named<N>(std::marker::PhantomData<N>);

impl<N: Name> de::Visitor<'_> for Named<N> {
    type Value = N;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<N, E> {
        Ok(N::read(text))
    }
}

impl<'de, N: Name> de::DeserializeSeed<'de> for Named<N> {
    type Value = N;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<N, D::Error> {
        deserializer.deserialize_str(self)
    }
}

/// A map of a few entries, sorted by name.
///
/// A bucket has one or two entries in each of its maps. A `BTreeMap` takes room for eleven at once,
/// which for 50,000 buckets is the difference between 60 and 300 MB.
#[derive(Clone, PartialEq)]
pub(crate) struct Small<K, V>(Box<[(K, V)]>);

impl<K: Name, V> Small<K, V> {
    /// How many entries there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there are none.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entry called `name`.
    #[must_use]
    pub(crate) fn find(&self, name: &str) -> Option<&V> {
        self.place(name).ok().map(|at| &self.0[at].1)
    }

    /// The entry called `name`, to be changed.
    pub(crate) fn find_mut(&mut self, name: &str) -> Option<&mut V> {
        self.place(name).ok().map(|at| &mut self.0[at].1)
    }

    /// Puts an entry in; one of the same name is replaced.
    pub(crate) fn insert(&mut self, name: K, value: V) {
        match self.place(name.text()) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.insert_at(at, (name, value)),
        }
    }

    /// The entry called `name`, made by default if it is not there.
    pub(crate) fn entry(&mut self, name: &str) -> &mut V
    where
        V: Default,
    {
        let at = match self.place(name) {
            Ok(at) => at,
            Err(at) => {
                self.insert_at(at, (K::read(name), V::default()));
                at
            }
        };
        &mut self.0[at].1
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, name: &str) -> Option<V> {
        let at = self.place(name).ok()?;
        Some(self.change(|entries| entries.remove(at)).1)
    }

    /// Keeps the entries for which `keep` says so.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.change(|entries| entries.retain_mut(|(name, value)| keep(name, value)));
    }

    /// All entries, sorted by name.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// All entries, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(name, value)| (&*name, value))
    }

    fn insert_at(&mut self, at: usize, entry: (K, V)) {
        self.change(|entries| {
            entries.reserve_exact(1);
            entries.insert(at, entry);
        });
    }

    /// Takes no more room than there are entries, before and after.
    fn change<T>(&mut self, change: impl FnOnce(&mut Vec<(K, V)>) -> T) -> T {
        let mut entries = std::mem::take(&mut self.0).into_vec();
        let changed = change(&mut entries);
        self.0 = entries.into_boxed_slice();
        changed
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.text().cmp(name))
    }
}

impl<T: Vocabulary, V> Small<Word<T>, V> {
    /// The entries whose words this version knows.
    pub(crate) fn known(&self) -> impl Iterator<Item = (T, &V)> {
        self.iter().filter_map(|(word, value)| Some((word.known()?, value)))
    }
}

impl<K, V> Default for Small<K, V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<K: Name, V> FromIterator<(K, V)> for Small<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut out = Self::default();
        entries.into_iter().for_each(|(name, value)| out.insert(name, value));
        out
    }
}

impl<K: Name, V: fmt::Debug> fmt::Debug for Small<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, value)| (name.text(), value))).finish()
    }
}

impl<K: Name, V: Serialize> Serialize for Small<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name.text(), value)?;
        }
        map.end()
    }
}

impl<'de, K: Name, V: Deserialize<'de>> Deserialize<'de> for Small<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<K, V>(std::marker::PhantomData<(K, V)>);
        impl<'de, K: Name, V: Deserialize<'de>> de::Visitor<'de> for Entries<K, V> {
            type Value = Small<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut out = Small::default();
                while let Some(name) = map.next_key_seed(Named::<K>(std::marker::PhantomData))? {
                    out.insert(name, map.next_value()?);
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}
