//! Where a ledger lies, and whether it will still be there tomorrow.

use std::{fmt, path::PathBuf};

use chrono::{DateTime, Utc};
use serde::Serialize;

/// What a ledger should know about its storage, for health checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StorageInfo {
    /// On what it lies.
    pub kind: StorageKind,
    /// Its file, if it has one.
    pub path: Option<PathBuf>,
    /// When the ledger was made. A cap in total counts from here.
    pub created_at: DateTime<Utc>,
    /// A random name given when it was made: a ledger that was wiped has another one.
    pub ledger_id: String,
    /// True if it was made by this very opening.
    pub just_created: bool,
    /// True if a restart, a redeploy or a new instance begins with an empty one, so that caps hold
    /// per instance only.
    pub vanishes: bool,
}

/// On what a ledger lies.
///
/// ```
/// use keywheel_ledger::StorageKind;
///
/// assert!(StorageKind::Overlay.vanishes());
/// assert!(!StorageKind::Disk("ext4".into()).vanishes());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StorageKind {
    /// This process's memory.
    Memory,
    /// A file system that outlives the process, by its name (`ext4`).
    Disk(String),
    /// The upper layer of a container's image, which goes with the container.
    Overlay,
    /// The machine's memory in the guise of a file system (`tmpfs`, `ramfs`).
    Tmpfs,
    /// A file system of another machine (`nfs`, `cifs`): locks and syncs may not be what they say.
    Network(String),
    /// It could not be told.
    Unknown,
}

impl StorageKind {
    /// True if what is written there goes with the container or the machine's next start.
    #[must_use]
    pub const fn vanishes(&self) -> bool {
        matches!(self, Self::Memory | Self::Overlay | Self::Tmpfs)
    }
}

impl fmt::Display for StorageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Disk(name) | Self::Network(name) => f.write_str(name),
            Self::Overlay => f.write_str("overlay"),
            Self::Tmpfs => f.write_str("tmpfs"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// What is asked of a ledger's storage when it is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Makes the ledger if there is none, and warns if its storage vanishes.
    #[default]
    Create,
    /// Refuses to start with a fresh, empty cap: the ledger has to be there, and its storage may not
    /// vanish. Make it once with [`Init`](Self::Init).
    RequireExisting,
    /// Makes the ledger where [`RequireExisting`](Self::RequireExisting) will look for it, and
    /// refuses storage that vanishes.
    Init,
    /// Accepts storage that vanishes, and with it a cap per instance, and says so loudly.
    EphemeralOk,
}
