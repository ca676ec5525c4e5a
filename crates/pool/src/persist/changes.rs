//! What the pool tells the state file, and how it hears back.

use std::sync::Arc;

use chrono::NaiveDate;

use keywheel_core::{Cause, Dimension, Fingerprint};

use super::{
    format::{Boundary, BucketKey, CooldownEntry, LimitEntry, Quarantine, StateFile, Use},
    time::At,
};

/// The pool's state, as the state file's thread sees it.
///
/// Both methods are called on that thread, one at a time (and, for
/// [`MemoryState`](super::MemoryState), on the thread that calls `mark_dirty` or `commit`: call
/// these without holding a lock that is taken here).
pub(crate) trait Shared: Send + Sync {
    /// What changed since the last call, in absolute values of this writer. Takes the dirty marks
    /// away: what is returned is kept, and written again, until it is on disk.
    fn collect(&self) -> Changes;

    /// What the file says now.
    ///
    /// `full` means that somebody else wrote: look at everything. Otherwise only what the last
    /// [`collect`](Self::collect) returned can have changed, such as an exploration that was
    /// granted. Own counts (those under this writer's id) are to be ignored here: the pool knows
    /// better. When a bucket comes back with a *higher* generation, somebody cleared it: cooldowns
    /// are replaced by the file's, except those that were set since the last `collect`.
    fn absorb(&self, merged: &StateFile, full: bool);
}

/// Entries that changed, in absolute values.
///
/// A key, project or bucket that appears twice counts as changed to the later value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Changes {
    /// Keys: at start all of them, so that their last-seen stamps are kept fresh.
    pub(crate) keys: Vec<(Fingerprint, KeyChange)>,
    /// Quota projects with a standing of their own.
    pub(crate) projects: Vec<(Arc<str>, Standing)>,
    /// Buckets.
    pub(crate) buckets: Vec<(BucketKey, BucketChange)>,
    /// Whoever merges says when.
    pub(crate) told: Told,
}

/// When a writer told what it knows. The pool leaves this to the state file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// When what was told before was collected: whatever was set since is news.
    pub(crate) before: At,
    /// When these changes were collected; `None`: now.
    pub(crate) now: Option<At>,
}

impl Changes {
    /// True when nothing changed.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.projects.is_empty() && self.buckets.is_empty()
    }
}

/// A key as it is now.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct KeyChange {
    /// The variable it came from.
    pub(crate) label: Box<str>,
    /// Its quota project.
    pub(crate) project: Box<str>,
    /// When a reply last disproved that it is paid.
    pub(crate) proved_free_at: Option<At>,
    /// Whether it is in use.
    pub(crate) standing: Standing,
}

/// Whether a key or quota project is in use.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Standing {
    /// How often it was cleared, as far as this pool knows.
    pub(crate) generation: u64,
    /// When it was cleared, if since the last collect: whatever the file says of before is void, even
    /// if the file's generation is higher than ours.
    pub(crate) cleared: Option<At>,
    /// Cooldowns of this generation.
    pub(crate) cooldowns: Vec<(Cause, CooldownEntry)>,
    /// Quarantine of this generation.
    pub(crate) quarantine: Option<Quarantine>,
}

/// A bucket as it is now.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BucketChange {
    /// How often it was cleared, as far as this pool knows.
    pub(crate) generation: u64,
    /// As [`Standing::cleared`].
    pub(crate) cleared: Option<At>,
    /// Cooldowns of this generation.
    pub(crate) cooldowns: Vec<(Cause, CooldownEntry)>,
    /// What this writer used in the current day.
    pub(crate) day: Option<DayChange>,
    /// What this writer used in the last minute, oldest first.
    pub(crate) minute: Vec<Use>,
    /// Limits learned or lifted.
    pub(crate) limits: Vec<(Dimension, LimitEntry)>,
    /// The bucket's own day boundary.
    pub(crate) boundary: Option<Boundary>,
}

/// What this writer used in a day.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DayChange {
    /// The day, in the zone of the quota.
    pub(crate) date: NaiveDate,
    /// When it began, for a bucket with its own boundary.
    pub(crate) began_at: Option<At>,
    /// When it ends, if not with the Pacific day.
    pub(crate) ends_at: Option<At>,
    /// Requests sent and not given back.
    pub(crate) requests: u64,
    /// Tokens of them.
    pub(crate) tokens: u64,
    /// This writer wants the day's exploration, or had it. The first under the lock gets it: look
    /// at `explored_by` in what is absorbed.
    pub(crate) explore: bool,
}
