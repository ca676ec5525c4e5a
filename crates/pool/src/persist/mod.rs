//! Keeps what the pool knows in a state file that several processes share and `kill -9` cannot
//! tear.
//!
//! | to know | look in |
//! |---|---|
//! | what stands in the file | [`mod@format`], and `docs/state-file.md` for people |
//! | how it looks | [`layout`] |
//! | what the pool hands over and hears back | [`changes`] |
//! | how changes of several processes come together | [`merge`] |
//! | what is dropped, bounded, folded | [`tidy`], [`bounds`] |
//! | where the file is | [`location`] |
//! | how it is read and replaced, and who may do so | [`mod@file`], [`lock`] |
//! | one flush from end to end | [`book`] |
//! | when to flush, and who hears of it | [`writer`], [`desk`] |
//! | the pool's side of all this | [`persister`], [`memory`] |

mod book;
mod bounds;
mod changes;
mod desk;
mod file;
mod format;
mod layout;
mod location;
mod lock;
mod memory;
mod merge;
mod persister;
mod record;
mod restore;
mod table;
mod tidy;
mod time;
mod words;
mod writer;

#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf};

use chrono::{DateTime, Utc};
use serde::Serialize;

pub use memory::MemoryState;

pub(crate) use {
    bounds::Waits,
    changes::{BucketChange, Changes, DayChange, KeyChange, Shared, Standing},
    format::{
        Boundary, BucketEntry, BucketKey, CooldownEntry, Cooldowns, LimitEntry, Quarantine,
        StateFile, Use,
    },
    location::{NO_FILE, usable},
    lock::Lock,
    persister::Persister,
    time::At,
    words::WaitSource,
};

/// Where the pool keeps what it knows.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum StateLocation {
    /// The file that `KEYWHEEL_STATE` names, else `keywheel/pool.json` in the platform's state
    /// folder (`$XDG_STATE_HOME` or `~/.local/state` on Linux, the local data folder elsewhere).
    #[default]
    Default,
    /// This file. Its folder is made if need be.
    File(PathBuf),
    /// Memory that outlives the pool, for tests and simulated restarts.
    Memory(MemoryState),
    /// Nowhere: a restart forgets everything.
    None,
}

impl StateLocation {
    /// The file that it means, by the environment as it is now; opens nothing. `None`: memory,
    /// nowhere, or nothing that could be a file.
    ///
    /// ```
    /// use keywheel_pool::StateLocation;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let folder = folder.path().canonicalize().unwrap();
    /// let location = StateLocation::File(folder.clone());
    /// assert_eq!(location.path(), Some(folder.join("pool.json")));
    /// assert_eq!(StateLocation::None.path(), None);
    /// ```
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        let lookup = |name: &str| std::env::var_os(name);
        location::resolve(self, lookup, location::platform_state_folder).ok().flatten()
    }
}

/// Something about the state file that its owner should know. `Display` says it in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StateNote {
    /// The file could not be used and was kept aside. At the start the pool is empty then; later it
    /// writes all it knows to a new file.
    KeptAside {
        /// Where the file is now.
        kept: PathBuf,
        /// What was wrong with it.
        fault: String,
    },
    /// The file had more fields of others than are kept, above a megabyte; the next write leaves some
    /// out.
    FieldsDropped {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or used, and nothing was moved; the pool works, and forgets.
    Unusable {
        /// The file, where there is one.
        path: Option<PathBuf>,
        /// Why.
        fault: String,
    },
}

impl fmt::Display for StateNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeptAside { kept, fault } => write!(
                f,
                "the state file {fault}; it was kept as {} and a new one begun",
                kept.display()
            ),
            Self::FieldsDropped { path } => write!(
                f,
                "the state file {} has more unknown fields than are kept; some will be gone with the next write",
                path.display()
            ),
            Self::Unusable { path: Some(path), fault } => write!(
                f,
                "the state file {} {fault}; what is learned now is lost at the next restart",
                path.display()
            ),
            Self::Unusable { path: None, fault } => {
                write!(f, "no state file: {fault}; what is learned now is lost at the next restart")
            }
        }
    }
}

/// How the state file does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StateHealth {
    /// The file; `None` for state in memory, or none at all.
    pub path: Option<PathBuf>,
    /// When it was last written; `None`: not yet by this pool.
    pub saved_at: Option<DateTime<Utc>>,
    /// True when everything reported so far is on disk, or as durable as the location allows.
    pub persisted: bool,
    /// What went wrong last, since the last successful write.
    pub error: Option<String>,
    /// When that began.
    pub failing_since: Option<DateTime<Utc>>,
    /// What happened to the file since it was opened, such as another one kept aside.
    pub notes: Vec<StateNote>,
}

/// The state could not be written in time. The attempts go on in the background.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state is not on disk: {reason}")]
pub struct StateError {
    reason: String,
}

impl StateError {
    /// For whoever keeps something else beside the state file, see [`durable`](crate::durable).
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}
