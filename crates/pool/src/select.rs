//! Which quota project serves next, and which part of the pool a clear is for.

use keywheel_core::Fingerprint;
use serde::Serialize;

/// How the pool chooses among the quota projects that can serve now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// One after the other, and inside one its keys one after the other. The default.
    #[default]
    RoundRobin,
    /// The one with the most of its day left; unknown limits count as untouched.
    MostRemaining,
    /// One quota project, the first loaded, until it is quarantined; the next only then. While it cools,
    /// nothing serves. For those who must not add quotas up: see `docs/terms.md` of the repository.
    Failover,
}

/// What a clear is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Everything.
    All,
    /// One key: its quarantine, and all buckets of its quota project.
    Key(Fingerprint),
    /// The key with this label.
    Label(String),
    /// One quota project: the quarantines of its keys, and all its buckets.
    QuotaProject(String),
    /// One model in every quota project.
    Model(String),
    /// One bucket.
    Bucket {
        /// The quota project.
        quota_project: String,
        /// The model.
        model: String,
    },
}
