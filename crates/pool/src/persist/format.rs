//! The state file's types. `docs/state-file.md` explains them to people.
//!
//! Times are [`At`]: milliseconds inside, RFC 3339 outside. Unknown fields are kept at every level,
//! and so are unknown causes, dimensions and sources. Everything that is read here came from a file
//! that anybody may have edited: [`tidy::make_sane`](super::tidy::make_sane) comes before any use.

use std::{borrow::Cow, fmt};

use chrono::NaiveDate;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use keywheel_core::{Cause, Dimension, Fingerprint};

use super::{
    record::record,
    table::Table,
    time::At,
    words::{LimitOrigin, Small, WaitSource, Word},
};

/// The version of the format that is written here.
pub(crate) const VERSION: u64 = 1;

/// The name under which the counts of writers that are gone are summed up.
pub(crate) const FOLDED: &str = "folded";

record! {
    /// The whole file.
    pub(crate) struct StateFile {
        always {
            /// [`VERSION`]; 0 when the file does not say.
            version: u64,
            /// When it was last written.
            saved_at: At,
            /// The processes (pools, to be exact) that count in this file now.
            writers: Small<Box<str>, WriterEntry>,
            /// What is known of each key.
            keys: Table<Fingerprint, KeyEntry>,
            /// What is known of whole quota projects.
            projects: Table<Box<str>, ProjectEntry>,
            /// What is known of each (quota project, model).
            buckets: Table<BucketKey, BucketEntry>,
        }
        spoken {}
    }
}

record! {
    /// A pool that counts in this file.
    pub(crate) struct WriterEntry {
        always {
            /// Its process id, for people.
            pid: u64,
            /// When it was opened.
            started_at: At,
            /// When it last saved.
            seen_at: At,
            /// How often it saved: a lower number than it remembers means that somebody put an old
            /// copy back.
            saves: u64,
        }
        spoken {}
    }
}

record! {
    /// What is known of one key.
    pub(crate) struct KeyEntry {
        always {
            /// The variable it came from.
            label: Box<str>,
            /// Its quota project.
            project: Box<str>,
            /// The soonest moment over its buckets, for readers; `None`: now, or no bucket. Derived
            /// at every save.
            available_at: Option<At>,
            /// Out of use until cleared.
            quarantine: Option<Box<Quarantine>>,
        }
        spoken {
            /// How often it was cleared; see [`BucketEntry::generation`].
            generation: u64,
            /// When it was last cleared.
            cleared_at: Option<At>,
            /// Cooldowns of the key for every model.
            cooldowns: Cooldowns,
            /// When a process last had this key; kept for 30 days after.
            seen_at: Option<At>,
            /// When a reply last named the free tier's quota for a key that is marked as paid.
            proved_free_at: Option<At>,
        }
    }
}

record! {
    /// What is known of a whole quota project.
    pub(crate) struct ProjectEntry {
        always {
            /// Out of use until cleared.
            quarantine: Option<Box<Quarantine>>,
        }
        spoken {
            /// How often it was cleared; see [`BucketEntry::generation`].
            generation: u64,
            /// When it was last cleared.
            cleared_at: Option<At>,
            /// Cooldowns of every key and model of the project, such as those for billing.
            cooldowns: Cooldowns,
        }
    }
}

record! {
    /// Why a key or quota project is out of use.
    pub(crate) struct Quarantine {
        always {
            /// Which refusal did it.
            cause: Word<Cause>,
            /// When.
            since: At,
        }
        spoken {
            /// What the provider said, scrubbed, for the reader.
            detail: Option<Box<str>>,
            /// When the next free check is due; whoever takes the check moves this on first.
            next_check_at: Option<At>,
            /// The writer that took the last one: the first to get the lock.
            checked_by: Option<Box<str>>,
        }
    }
}

record! {
    /// What is known of one (quota project, model). Small, since there may be 50,000 of them.
    pub(crate) struct BucketEntry {
        always {
            /// How often it was cleared. The cooldowns of a higher generation replace those of a
            /// lower one.
            generation: u64,
            /// One per cause.
            cooldowns: Cooldowns,
        }
        spoken {
            /// What was used in the latest quota day that anybody counted in.
            day: Option<Box<DayEntry>>,
            /// The day before that one: for a process whose clock is ahead, today is over already.
            day_before: Option<Box<DayEntry>>,
            /// What was used in the last minute.
            minute: Option<Box<MinuteEntry>>,
            /// The limits that replies named.
            limits: Small<Word<Dimension>, LimitEntry>,
            /// When it was last cleared: a generation is kept for 30 days, for those who still have
            /// an old copy.
            cleared_at: Option<At>,
            /// The bucket's own day boundary, where a reply stated one.
            boundary: Option<Box<Boundary>>,
        }
    }
}

/// One cooldown per cause.
pub(crate) type Cooldowns = Small<Word<Cause>, CooldownEntry>;

record! {
    /// Out of use until a moment, for one cause.
    pub(crate) struct CooldownEntry {
        always {
            /// Until when. `None`: no moment is known, waiting does not help (a model without a
            /// free tier).
            available_at: Option<At>,
            /// How that is known.
            source: Word<WaitSource>,
            /// When the refused request was answered.
            since: At,
        }
        spoken {
            /// The step of the ladder of guesses that this is, from 1.
            step: u64,
        }
    }
}

record! {
    /// What was used in one quota day.
    pub(crate) struct DayEntry {
        always {
            /// The day, in the zone of the quota.
            date: NaiveDate,
            /// True when the one request beyond what is believed was spent.
            explored: bool,
            /// Counts by writer.
            by: Small<Box<str>, Counts>,
        }
        spoken {
            /// When the day began, for a bucket with a boundary of its own. Days are ordered by
            /// (date, this).
            began_at: Option<At>,
            /// When the day ends, if not at midnight Pacific: by a reset strategy of somebody's own, or by
            /// the boundary.
            ends_at: Option<At>,
            /// The writer that claimed the exploration: the first to get the lock.
            explored_by: Option<Box<str>>,
        }
    }
}

record! {
    /// Absolute counts of one writer in one day.
    pub(crate) struct Counts {
        always {
            /// Requests sent and not given back.
            requests: u64,
            /// Tokens of them.
            tokens: u64,
        }
        spoken {}
    }
}

record! {
    /// What was used in the last minute.
    pub(crate) struct MinuteEntry {
        always {
            /// Uses by writer, oldest first.
            by: Small<Box<str>, Vec<Use>>,
        }
        spoken {}
    }
}

/// One use of the rolling minute: `["2026-11-30T07:12:01Z", 1, 210]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Use(
    /// When it was sent.
    pub(crate) At,
    /// Requests it counts as.
    pub(crate) u64,
    /// Tokens.
    pub(crate) u64,
);

record! {
    /// One limit.
    pub(crate) struct LimitEntry {
        always {
            /// How much per window; `None`: was known once, and no longer holds.
            value: Option<u64>,
            /// How that is known.
            source: Word<LimitOrigin>,
            /// When it was learned. The later entry wins.
            at: At,
        }
        spoken {}
    }
}

record! {
    /// A day boundary that a reply stated.
    pub(crate) struct Boundary {
        always {
            /// When the bucket's day turns, or last turned.
            turns_at: At,
            /// When that was stated. The later statement wins.
            at: At,
        }
        spoken {}
    }
}

impl StateFile {
    /// A file in which nothing is known.
    #[must_use]
    pub(crate) fn empty() -> Self {
        Self { version: VERSION, ..Self::default() }
    }

    /// What is known of (`project`, `model`).
    #[must_use]
    pub(crate) fn bucket(&self, project: &str, model: &str) -> Option<&BucketEntry> {
        self.buckets.get(&BucketKey::new(project, model))
    }
}

impl BucketEntry {
    /// The two days, the later one first.
    pub(crate) fn days(&self) -> impl Iterator<Item = &DayEntry> {
        [&self.day, &self.day_before].into_iter().flatten().map(|day| &**day)
    }

    /// The day of that [`order`](DayEntry::order).
    #[must_use]
    pub(crate) fn day_of(&self, order: (NaiveDate, Option<At>)) -> Option<&DayEntry> {
        self.days().find(|day| day.order() == order)
    }
}

impl DayEntry {
    /// What orders days: the two latest are kept.
    #[must_use]
    pub(crate) fn order(&self) -> (NaiveDate, Option<At>) {
        (self.date, self.began_at)
    }

    /// Counts of everybody except `writer`.
    #[must_use]
    pub(crate) fn others(&self, writer: &str) -> Counts {
        let mut sum = Counts::default();
        for (_, counts) in self.by.iter().filter(|(name, _)| &***name != writer) {
            sum.add(counts);
        }
        sum
    }
}

impl Counts {
    /// Adds `other`; never overflows.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }
}

impl MinuteEntry {
    /// Uses of everybody except `writer`.
    pub(crate) fn others<'a>(&'a self, writer: &str) -> impl Iterator<Item = &'a Use> {
        let writer = self.by.find(writer).map(|uses| uses.as_ptr());
        self.by
            .iter()
            .filter(move |(_, uses)| Some(uses.as_ptr()) != writer)
            .flat_map(|(_, uses)| uses)
    }
}

/// The name of a bucket in the file: `project/model`.
///
/// A slash in the name of a quota project is written `%2F` and a per cent sign `%25`, so that the
/// first slash always ends the project. Models keep theirs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BucketKey(Box<str>);

impl BucketKey {
    /// The bucket of `model` in `project`.
    #[must_use]
    pub(crate) fn new(project: &str, model: &str) -> Self {
        if !project.contains(['/', '%']) {
            return Self([project, "/", model].concat().into());
        }
        let project = project.replace('%', "%25").replace('/', "%2F");
        Self([&*project, "/", model].concat().into())
    }

    /// The quota project.
    #[must_use]
    pub(crate) fn project(&self) -> Cow<'_, str> {
        let project = self.0.split_once('/').map_or(&*self.0, |(project, _)| project);
        if !project.contains('%') {
            return Cow::Borrowed(project);
        }
        Cow::Owned(project.replace("%2F", "/").replace("%25", "%"))
    }

    /// The model.
    #[must_use]
    pub(crate) fn model(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, model)| model)
    }
}

impl fmt::Debug for BucketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for BucketKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for BucketKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for Use {
    /// Ignores elements after the third, so that a later version may add some.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de;
        struct Elements;
        impl<'de> de::Visitor<'de> for Elements {
            type Value = Use;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("[moment, requests, tokens]")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Use, A::Error> {
                let at = seq.next_element()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
                let requests = seq.next_element()?.unwrap_or(1);
                let tokens = seq.next_element()?.unwrap_or(0);
                while seq.next_element::<de::IgnoredAny>()?.is_some() {}
                Ok(Use(at, requests, tokens))
            }
        }
        deserializer.deserialize_seq(Elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_in_a_project_does_not_move_the_border_to_the_model() {
        for (project, model) in [
            ("key:3fa1c09be2d4", "gemini-3.5-flash-lite"),
            ("team/prod", "google/gemma-4"),
            ("50%/%2F", ""),
            ("", "m"),
        ] {
            let key = BucketKey::new(project, model);
            assert_eq!((&*key.project(), key.model()), (project, model));
        }
        assert_ne!(BucketKey::new("a/b", "c"), BucketKey::new("a", "b/c"));
    }
}
