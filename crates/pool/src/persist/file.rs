//! Reads and replaces the file itself.

use std::{
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{
    format::{StateFile, VERSION},
    layout,
    lock::open as open_lock,
    record::Room,
};
use crate::durable::{self, Raw, missing_is_none};

/// Larger files than this are not ours: 10,000 keys with 5 models each make 30 MB.
const MOST_BYTES: u64 = 1 << 30;

/// The state file and its siblings.
#[derive(Debug, Clone)]
pub(super) struct Files {
    path: PathBuf,
}

/// What stands in the file's place.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing.
    Missing,
    /// A state file.
    Good(Box<StateFile>, Seen),
    /// Something else.
    Bad(Fault),
}

/// Why a file cannot be used. Never quotes it: whatever it is, it may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// 0 bytes.
    Empty,
    /// No whole JSON; line and column where it ends to be.
    Torn(usize, usize),
    /// JSON, but no state file.
    Foreign(usize, usize),
    /// A later format.
    Newer(u64),
    /// Larger than any state file.
    Huge,
}

/// One version of the file, told from others without reading it.
#[derive(Debug)]
pub(super) struct Seen {
    stamp: Stamp,
    /// It had more unknown fields than are kept.
    pub(super) overflowed: bool,
    /// Open for as long as we remember the file, so that no later one gets its inode.
    #[cfg(unix)]
    _pin: File,
}

impl Seen {
    /// Only unix tells files apart by more than what `stat` says everywhere, so only there it is kept open.
    #[cfg_attr(not(unix), expect(unused_variables, reason = "closed here"))]
    fn of(found: &fs::Metadata, file: File) -> Self {
        Self {
            stamp: Stamp::of(found),
            overflowed: false,
            #[cfg(unix)]
            _pin: file,
        }
    }

    /// Whether the file is still this one.
    pub(super) fn is(&self, stamp: &Stamp) -> bool {
        self.stamp == *stamp
    }
}

/// What `stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<std::time::SystemTime>,
    length: u64,
    inode: (u64, u64),
}

impl Files {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The state file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The lock around read-merge-write.
    pub(super) fn lock(&self) -> PathBuf {
        durable::sibling(&self.path, ".lock")
    }

    /// Makes the folder, for its owner alone.
    ///
    /// # Errors
    /// When it is not there and cannot be made.
    pub(super) fn make_folder(&self) -> io::Result<()> {
        durable::make_folder(&self.path)
    }

    /// Makes what every write needs first: the folder, and the file to lock in it.
    ///
    /// # Errors
    /// When they are not there and cannot be made.
    pub(super) fn try_to_write(&self) -> io::Result<()> {
        self.make_folder()?;
        open_lock(&self.lock()).map(drop)
    }

    /// Which version of the file is there; `None`: none.
    ///
    /// # Errors
    /// When that cannot be told.
    pub(super) fn look(&self) -> io::Result<Option<Stamp>> {
        missing_is_none(fs::metadata(&self.path)).map(|found| found.map(|found| Stamp::of(&found)))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// When it is there and cannot be read. It must not be replaced then.
    pub(super) fn read(&self) -> io::Result<Found> {
        let (text, file, found) = match durable::read(&self.path, MOST_BYTES)? {
            Raw::Missing => return Ok(Found::Missing),
            Raw::Huge => return Ok(Found::Bad(Fault::Huge)),
            Raw::Text { text, file, found } => (text, file, found),
        };
        let seen = Seen::of(&found, file);
        let parsed = parse(&text);
        let seen = Seen { overflowed: Room::overflowed(), ..seen };
        Ok(parsed.map_or_else(Found::Bad, |state| Found::Good(Box::new(state), seen)))
    }

    /// Replaces the file by `state`, so that at every moment either the old or the new one is
    /// there, whole. On return the new one is durable. Only under the lock.
    ///
    /// # Errors
    /// Whatever the disk says; the old file is still there then.
    pub(super) fn replace(&self, state: &StateFile) -> io::Result<Seen> {
        let written = durable::replace(&self.path, |file| layout::write(state, file))?;
        durable::sync_folder(&self.path)?;
        Ok(Seen {
            stamp: Stamp::of(&written.found),
            overflowed: false,
            #[cfg(unix)]
            _pin: written.file,
        })
    }

    /// Moves what stands in the file's place to `pool.json.bad-<time>`. Only under the lock.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub(super) fn keep_aside(&self, now_ms: i64) -> io::Result<PathBuf> {
        durable::keep_aside(&self.path, now_ms)
    }

    /// Ids of the writers that have a sign of life beside the file, held or not.
    pub(super) fn live_writers(&self) -> Vec<Box<str>> {
        let Some(name) = self.path.file_name().and_then(|name| name.to_str()) else {
            return Vec::new();
        };
        let entries = fs::read_dir(durable::folder(&self.path)).into_iter().flatten().flatten();
        let writers = entries.filter_map(|entry| {
            let sibling = entry.file_name();
            let writer = sibling.to_str()?.strip_prefix(name)?.strip_prefix('.')?;
            writer.strip_suffix(".live").map(Box::from)
        });
        writers.collect()
    }
}

impl Stamp {
    #[cfg(unix)]
    fn of(found: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let inode = (found.dev(), found.ino());
        Self { modified: found.modified().ok(), length: found.len(), inode }
    }

    #[cfg(not(unix))]
    fn of(found: &fs::Metadata) -> Self {
        Self { modified: found.modified().ok(), length: found.len(), inode: (0, 0) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("was empty"),
            Self::Torn(line, column) => write!(f, "was torn (line {line}, column {column})"),
            Self::Foreign(line, column) => {
                write!(f, "was not written by keywheel (line {line}, column {column})")
            }
            Self::Newer(version) => {
                write!(
                    f,
                    "was written by a newer keywheel (format {version}, this one knows {VERSION})"
                )
            }
            Self::Huge => f.write_str("was too large to be one"),
        }
    }
}

/// The state in `text`.
///
/// # Errors
/// [`Fault`] says why there is none.
pub(crate) fn parse(text: &[u8]) -> Result<StateFile, Fault> {
    #[derive(Deserialize)]
    struct Head {
        version: Option<u64>,
    }
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    Room::begin();
    let error = match serde_json::from_slice::<StateFile>(text) {
        Ok(state) if state.version == VERSION => return Ok(state),
        Ok(state) if state.version > VERSION => return Err(Fault::Newer(state.version)),
        Ok(_) => return Err(Fault::Foreign(1, 1)),
        Err(error) => error,
    };
    // A later format may have other types anywhere, but will say its version where we do.
    if let Ok(Head { version: Some(version) }) = serde_json::from_slice::<Head>(text)
        && version > VERSION
    {
        return Err(Fault::Newer(version));
    }
    Err(match error.classify() {
        serde_json::error::Category::Data => Fault::Foreign(error.line(), error.column()),
        _ => Fault::Torn(error.line(), error.column()),
    })
}
