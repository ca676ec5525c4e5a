//! What a caller tells the pool about an attempt, and what the pool answers.

use chrono::{DateTime, Utc};
use keywheel_core::{Effect, LimitSeen};
use serde::Serialize;

/// A reply that refused the request, in the words of a classifier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// What follows from it: whom it concerns, why, for how long. May be several.
    pub effects: Vec<Effect>,
    /// Limits that the reply named.
    pub limits: Vec<LimitSeen>,
    /// The reply named a quota (a `quotaId` was present), so its causes are certain.
    pub named_quota: bool,
    /// The provider's own name for the quota project (`projects/123`), where the reply tells.
    pub project_number: Option<String>,
    /// A short text for the reader of the state file and the status. Must hold no key.
    pub detail: String,
}

impl Refusal {
    /// A refusal with these effects and nothing else known.
    #[must_use]
    pub fn new(effects: impl IntoIterator<Item = Effect>) -> Self {
        Self { effects: effects.into_iter().collect(), ..Self::default() }
    }
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Reported {
    /// What the refusal changed is on disk: a `kill -9` cannot lose it. True also when it changed nothing.
    /// False when there is no state file, or the disk was not to be had within 500 ms (it goes on in the
    /// background).
    pub persisted: bool,
    /// When this key serves this model again; `None`: it can now, or no moment can be named.
    pub until: Option<DateTime<Utc>>,
    /// Something keeps this key from this model now: a cooldown, a quarantine, a full window. False: the refusal
    /// said nothing that holds (it was older than a clear, or concerned tools that the request did not use), and
    /// the same ask would get the same key again.
    pub held: bool,
}
