//! Small files that several processes share and `kill -9` cannot tear: for what should outlive the process beside
//! the pool's own state.
//!
//! A file is replaced as a whole: a temporary one is written, synced and renamed over it, and the folder is synced.
//! Whoever changes it holds a lock on a sibling (`….lock`) from reading to replacing; whoever only reads needs none.
//! A file that is no whole one of its kind is moved aside (`….bad-<time>`), never overwritten.
//!
//! ```
//! use std::time::Duration;
//! use keywheel_pool::durable::{SharedFile, Version};
//!
//! #[derive(Default, serde::Serialize, serde::Deserialize)]
//! struct Visits {
//!     version: Version<1>,
//!     count: u64,
//! }
//!
//! # let folder = tempfile::tempdir().unwrap();
//! let file = SharedFile::beside(&folder.path().join("pool.json"), "visits");
//! assert!(file.path().ends_with("pool.visits.json"));
//! let now_ms = 1_764_460_800_000; // names a file that has to be moved aside
//! let count = file.update(now_ms, Duration::from_secs(1), |visits: &mut Visits| {
//!     visits.count += 1;
//!     visits.count
//! });
//! assert_eq!(count.unwrap(), 1);
//! assert_eq!(file.read::<Visits>().unwrap().unwrap().count, 1);
//! ```

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read, Seek, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error as _},
};

use crate::persist::{At, Lock, NO_FILE, usable};

/// Larger shared files than this are not ours.
const MOST_BYTES: u64 = 64 << 20;

/// A JSON file that several processes share, see the [module](self).
#[derive(Debug, Clone)]
pub struct SharedFile {
    path: PathBuf,
}

impl SharedFile {
    /// The file at `path`. Nothing is opened before it is read or changed.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The file called `name` beside the pool's state file: of `pool.json` and `owners` it is `pool.owners.json`, of
    /// `pool.state` it is `pool.state.owners.json`.
    #[must_use]
    pub fn beside(state_file: &Path, name: &str) -> Self {
        let is_json = state_file.extension().is_some_and(|ending| ending == "json");
        // Pools called `team.a` and `team.b` share nothing.
        let stem = if is_json { state_file.file_stem() } else { state_file.file_name() };
        let mut file: OsString = stem.unwrap_or_default().to_owned();
        file.push(format!(".{name}.json"));
        Self::new(state_file.with_file_name(file))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file says; `None` when there is none, or none of this kind: the next [`update`](Self::update) moves
    /// that aside. Blocks on the disk, and on nothing else.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn read<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        match read(&self.path, MOST_BYTES)? {
            Raw::Missing | Raw::Huge => Ok(None),
            Raw::Text { text, .. } => Ok(serde_json::from_slice(&text).ok()),
        }
    }

    /// Changes what the file says, beginning with `T::default()` if there is no file. What is written is durable on
    /// return. Nobody else changes the file meanwhile.
    ///
    /// Blocks: on the disk, and for at most `patience` on others who change it. `now_ms` (Unix time) only names what
    /// has to be moved aside.
    ///
    /// # Errors
    /// [`UpdateError`] says why the change is not in the file. Only after [`UpdateError::NotSynced`] it is, and may
    /// yet be lost if the machine loses its power.
    pub fn update<T, R>(
        &self,
        now_ms: i64,
        patience: Duration,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, UpdateError>
    where
        T: Default + Serialize + DeserializeOwned,
    {
        // Before a lock is made beside it.
        usable(&self.path).map_err(|fault| disk("use the file")(io::Error::other(fault)))?;
        make_folder(&self.path).map_err(disk("make the folder"))?;
        let lock = sibling(&self.path, ".lock");
        let lock = Lock::take(&lock, patience, || false).map_err(disk("lock the file"))?;
        let _lock = lock.ok_or(UpdateError::Locked)?;
        let mut value = self.read_or_keep_aside(now_ms)?.unwrap_or_default();
        let result = change(&mut value);
        let write = |file: &mut BufWriter<File>| {
            serde_json::to_writer_pretty(&mut *file, &value)?;
            file.write_all(b"\n")?;
            // What cannot be read again is better not written over what can.
            match file.stream_position()? {
                0..=MOST_BYTES => Ok(()),
                _ => Err(io::Error::other("it would be too large to be read again")),
            }
        };
        replace(&self.path, write).map_err(disk("write the file"))?;
        sync_folder(&self.path).map_err(UpdateError::NotSynced)?;
        Ok(result)
    }

    fn read_or_keep_aside<T: DeserializeOwned>(
        &self,
        now_ms: i64,
    ) -> Result<Option<T>, UpdateError> {
        // The error quotes what it found, which may be anything: only its place is told.
        let fault = match read(&self.path, MOST_BYTES).map_err(disk("read the file"))? {
            Raw::Missing => return Ok(None),
            Raw::Huge => "is too large".to_owned(),
            Raw::Text { text, .. } => match serde_json::from_slice(&text) {
                Ok(value) => return Ok(Some(value)),
                Err(fault) => format!("at line {}, column {}", fault.line(), fault.column()),
            },
        };
        let kept = keep_aside(&self.path, now_ms).map_err(disk("move a bad file aside"))?;
        tracing::warn!(
            file = %self.path.display(), kept = %kept.display(), fault,
            "a file was torn, or not written by this version; it was kept aside and a new one begun"
        );
        Ok(None)
    }
}

/// Why a change is not in the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// Others changed the file for all of the patience.
    #[error("another process holds the file's lock")]
    Locked,
    /// The disk said no, and the file is as it was.
    #[error("cannot {0}: {1}")]
    Disk(&'static str, #[source] io::Error),
    /// The change can be read, and may not survive a loss of power.
    #[error("the folder cannot be synced: {0}")]
    NotSynced(#[source] io::Error),
}

/// The version of a file's format, as a field: a file of another version is not read, but kept aside.
///
/// ```
/// use keywheel_pool::durable::Version;
///
/// assert_eq!(serde_json::to_string(&Version::<2>).unwrap(), "2");
/// assert!(serde_json::from_str::<Version<2>>("1").is_err());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Version<const N: u32>;

impl<const N: u32> Serialize for Version<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(N)
    }
}

impl<'de, const N: u32> Deserialize<'de> for Version<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            found if found == N => Ok(Self),
            _ => Err(D::Error::custom("another version")),
        }
    }
}

/// What stands in a file's place.
pub(crate) enum Raw {
    Missing,
    /// More than was asked for.
    Huge,
    Text {
        text: Vec<u8>,
        file: File,
        found: Box<fs::Metadata>,
    },
}

/// Reads a regular file of at most `most` bytes: never a device, a pipe, or a folder.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Raw> {
    // Before opening: opening a device may do something.
    usable(path).map_err(io::Error::other)?;
    let Some(mut file) = missing_is_none(open(path, File::options().read(true)))? else {
        return Ok(Raw::Missing);
    };
    let found = file.metadata()?;
    // And after, or it might have been replaced in between.
    if !found.is_file() {
        return Err(io::Error::other(NO_FILE));
    }
    if found.len() > most {
        return Ok(Raw::Huge);
    }
    let mut text = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(0) + 1);
    // What grows while it is read is read to its end at first sight, no further.
    (&mut file).take(most).read_to_end(&mut text)?;
    Ok(Raw::Text { text, file, found: Box::new(found) })
}

/// Opens what stands at `path` without waiting for anybody: a pipe would hang until its other end is opened.
pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Regular files do not care.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NONBLOCK);
    options.open(path)
}

/// A file that was replaced.
pub(crate) struct Written {
    pub(crate) found: fs::Metadata,
    /// Still open.
    #[cfg(unix)]
    pub(crate) file: File,
}

/// Replaces the file at `path` by what `write` writes, so that at every moment either the old or the new one is
/// there, whole. Only under its lock. [`sync_folder`] makes it durable.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<Written> {
    let temporary = sibling(path, ".tmp");
    let written = write_and_rename(path, &temporary, write);
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_and_rename(
    path: &Path,
    temporary: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<Written> {
    // Left by a writer that was killed; under the lock nobody else can be using it.
    missing_is_none(fs::remove_file(temporary))?;
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(temporary)?;
    let mut buffer = BufWriter::with_capacity(1 << 16, file);
    write(&mut buffer)?;
    let mut file = buffer.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.flush()?;
    file.sync_all()?;
    let found = file.metadata()?;
    // Windows does not rename what is open.
    #[cfg(not(unix))]
    drop(file);
    fs::rename(temporary, path)?;
    Ok(Written {
        found,
        #[cfg(unix)]
        file,
    })
}

/// Moves what stands at `path` to `….bad-<time>`. Only under its lock.
pub(crate) fn keep_aside(path: &Path, now_ms: i64) -> io::Result<PathBuf> {
    // Colons are not allowed in names on Windows.
    let time = At(now_ms.div_euclid(1_000) * 1_000).to_string().replace([':', '-'], "");
    let mut kept = sibling(path, &format!(".bad-{time}"));
    for attempt in 2.. {
        if fs::symlink_metadata(&kept).is_err() {
            break;
        }
        kept = sibling(path, &format!(".bad-{time}-{attempt}"));
    }
    fs::rename(path, &kept)?;
    sync_folder(path)?;
    Ok(kept)
}

/// Makes the folder of `path`, for its owner alone.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let folder = folder(path);
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// The folder that `path` is in.
pub(crate) fn folder(path: &Path) -> &Path {
    // Of a mere name it is empty, and nothing can be opened under that.
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a rename durable.
#[cfg(unix)]
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(folder(path))?.sync_all() {
        // Some file systems cannot, and need not.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

/// Folders cannot be opened here; the file system's journal has to do.
#[cfg(not(unix))]
pub(crate) fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// The file beside `path` that is called the same with `ending`.
pub(crate) fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// A file that is not there is no fault.
pub(crate) fn missing_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn disk(what: &'static str) -> impl FnOnce(io::Error) -> UpdateError {
    move |error| UpdateError::Disk(what, error)
}

#[cfg(test)]
pub(crate) mod tests;
