//! A snapshot of the pool for people and metrics. Holds no secrets.

use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use keywheel_core::{Cause, Dimension, Fingerprint, Release, Tier};
use serde::Serialize;

use crate::{LimitSource, Limits, Selection, Source};

/// The whole pool at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PoolStatus {
    /// When the snapshot was taken.
    pub at: DateTime<Utc>,
    /// How keys are chosen.
    pub selection: Selection,
    /// Every key, in the order of loading.
    pub keys: Vec<KeyStatus>,
    /// Every bucket that was used or is known from the state file, by model, then in the order of keys.
    pub buckets: Vec<BucketStatus>,
    /// Who waits, by model.
    pub waiting: Vec<Waiting>,
    /// The provider refuses this machine until then.
    pub host_blocked_until: Option<DateTime<Utc>>,
    /// Keys thought separate that seem to share a quota.
    pub same_project: Vec<SameProjectHint>,
    /// What the owner should know, such as a paid key that turned out to be free.
    pub notes: Vec<String>,
    /// The state file.
    pub state: StateStatus,
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyStatus {
    /// Its identity.
    pub fingerprint: Fingerprint,
    /// What its owner calls it.
    pub label: String,
    /// Its quota project; `key:<fingerprint>` when unknown.
    pub quota_project: String,
    /// Its tier, as believed now.
    pub tier: Tier,
    /// Set while it is out of use.
    pub quarantine: Option<QuarantineStatus>,
    /// Its quota project is out until then (money).
    pub cooling_until: Option<DateTime<Utc>>,
    /// The provider's own name for its quota project, once a reply told.
    pub project_number: Option<String>,
}

/// Why a key is out of use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QuarantineStatus {
    /// Why.
    pub cause: Cause,
    /// Since when.
    pub since: DateTime<Utc>,
    /// How it comes back.
    pub release: Release,
    /// When the next free check is due.
    pub next_check: Option<DateTime<Utc>>,
    /// What the reply said, scrubbed.
    pub detail: String,
}

/// One quota project for one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BucketStatus {
    /// The quota project.
    pub quota_project: String,
    /// The model.
    pub model: String,
    /// The labels of its keys.
    pub labels: Vec<String>,
    /// Raised by every clear.
    pub generation: u64,
    /// Calls sent and not answered, or about to be sent.
    pub in_flight: u32,
    /// The cap on them while the rate limit is unknown.
    pub in_flight_cap: Option<u32>,
    /// The rolling minute.
    pub minute: Used,
    /// The quota day.
    pub day: Used,
    /// The day's date.
    pub date: NaiveDate,
    /// When the day ends.
    pub day_ends_at: DateTime<Utc>,
    /// The day's exploratory request has been spent.
    pub explored: bool,
    /// What it lives under.
    pub limits: Vec<LimitStatus>,
    /// What holds it back.
    pub cooldowns: Vec<CooldownStatus>,
    /// When it can serve one small request: `None` means now, or no moment can be named.
    pub available_at: Option<DateTime<Utc>>,
    /// It can serve one small request now.
    pub ready: bool,
}

/// How much of a window is used, all processes together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// Requests.
    pub requests: u64,
    /// Input tokens.
    pub tokens: u64,
}

/// What is believed of one quota project's limits for one model, see [`Pool::limits`](crate::Pool::limits).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProjectLimits {
    /// The quota project.
    pub quota_project: Arc<str>,
    /// Its tier, as believed now.
    pub tier: Tier,
    /// What the user set. `None`: left to be learned.
    pub set: Limits,
    /// What replies named. `None`: nobody knows yet, or what was learned turned out not to hold any more.
    pub learned: Limits,
    /// What was used of its quota day, all processes together.
    pub day: Used,
}

impl ProjectLimits {
    /// What holds: what the user set, else what was learned. `None` means unknown, not unlimited.
    #[must_use]
    pub fn believed(&self) -> Limits {
        self.set.or(self.learned)
    }
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LimitStatus {
    /// What it limits.
    pub dimension: Dimension,
    /// How much.
    pub value: u64,
    /// Whose word it is.
    pub source: LimitSource,
    /// When it was learned.
    pub at: Option<DateTime<Utc>>,
}

/// One cooldown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CooldownStatus {
    /// Why.
    pub cause: Cause,
    /// Until when; `None`: not a matter of waiting (no free tier).
    pub until: Option<DateTime<Utc>>,
    /// How that is known.
    pub source: Source,
    /// Since when.
    pub since: DateTime<Utc>,
}

/// How many wait for a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Waiting {
    /// The model.
    pub model: String,
    /// How many.
    pub waiters: usize,
}

/// Keys thought separate that seem to share one quota project. Never merged by the pool: tell it with
/// `GEMINI_PROJECT_<SUFFIX>` if it is true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SameProjectHint {
    /// The quota projects as the pool sees them.
    pub quota_projects: Vec<String>,
    /// The labels of their keys.
    pub labels: Vec<String>,
    /// A reply named the same project number for them, so it is certain.
    pub proven: bool,
    /// What was seen.
    pub evidence: String,
}

/// How the state file fares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StateStatus {
    /// Where it is; `None` without a file.
    pub path: Option<String>,
    /// The last write went well, or there is nothing to write.
    pub ok: bool,
    /// When it was last written.
    pub last_saved: Option<DateTime<Utc>>,
    /// What went wrong last, until something goes well.
    pub last_error: Option<String>,
    /// What was noticed on opening it.
    pub notes: Vec<String>,
}
