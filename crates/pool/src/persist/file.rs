//! Reads and replaces the file itself.

use std::{
    ffi::OsString,
    fmt,
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{
    format::{StateFile, VERSION},
    layout,
    location::{NO_FILE, usable},
    record::Room,
    time::At,
};

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
        sibling(&self.path, ".lock")
    }

    /// Makes the folder, for its owner alone.
    ///
    /// # Errors
    /// When it is not there and cannot be made.
    pub(super) fn make_folder(&self) -> io::Result<()> {
        let folder = self.folder();
        if folder.is_dir() {
            return Ok(());
        }
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)
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
        // Before opening: opening a pipe would wait for its other end.
        usable(&self.path).map_err(io::Error::other)?;
        let Some(mut file) = missing_is_none(File::open(&self.path))? else {
            return Ok(Found::Missing);
        };
        let found = file.metadata()?;
        // And after, or it might have been replaced in between.
        if !found.is_file() {
            return Err(io::Error::other(NO_FILE));
        }
        if found.len() > MOST_BYTES {
            return Ok(Found::Bad(Fault::Huge));
        }
        let mut text = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(0) + 1);
        // What grows while it is read is read to its end at first sight, no further.
        (&mut file).take(MOST_BYTES).read_to_end(&mut text)?;
        let seen = Seen {
            stamp: Stamp::of(&found),
            overflowed: false,
            #[cfg(unix)]
            _pin: file,
        };
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
        let temporary = sibling(&self.path, ".tmp");
        let written = self.write(state, &temporary);
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Moves what stands in the file's place to `pool.json.bad-<time>`. Only under the lock.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub(super) fn keep_aside(&self, now_ms: i64) -> io::Result<PathBuf> {
        // Colons are not allowed in names on Windows.
        let time = At(now_ms.div_euclid(1_000) * 1_000).to_string().replace([':', '-'], "");
        let mut kept = sibling(&self.path, &format!(".bad-{time}"));
        for attempt in 2.. {
            if fs::symlink_metadata(&kept).is_err() {
                break;
            }
            kept = sibling(&self.path, &format!(".bad-{time}-{attempt}"));
        }
        fs::rename(&self.path, &kept)?;
        self.sync_folder()?;
        Ok(kept)
    }

    /// Ids of the writers that have a sign of life beside the file, held or not.
    pub(super) fn live_writers(&self) -> Vec<Box<str>> {
        let Some(name) = self.path.file_name().and_then(|name| name.to_str()) else {
            return Vec::new();
        };
        let entries = fs::read_dir(self.folder()).into_iter().flatten().flatten();
        let writers = entries.filter_map(|entry| {
            let sibling = entry.file_name();
            let writer = sibling.to_str()?.strip_prefix(name)?.strip_prefix('.')?;
            writer.strip_suffix(".live").map(Box::from)
        });
        writers.collect()
    }

    fn write(&self, state: &StateFile, temporary: &Path) -> io::Result<Seen> {
        // Left by a writer that was killed; under the lock nobody else can be using it.
        missing_is_none(fs::remove_file(temporary))?;
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(temporary)?;
        let mut buffer = BufWriter::with_capacity(1 << 16, file);
        layout::write(state, &mut buffer)?;
        let mut file = buffer.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.flush()?;
        file.sync_all()?;
        let stamp = Stamp::of(&file.metadata()?);
        #[cfg(not(unix))]
        drop(file);
        fs::rename(temporary, &self.path)?;
        self.sync_folder()?;
        Ok(Seen {
            stamp,
            overflowed: false,
            #[cfg(unix)]
            _pin: file,
        })
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Makes a rename durable.
    #[cfg(unix)]
    fn sync_folder(&self) -> io::Result<()> {
        match File::open(self.folder())?.sync_all() {
            // Some file systems cannot, and need not.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            done => done,
        }
    }

    /// Folders cannot be opened here; the file system's journal has to do.
    #[cfg(not(unix))]
    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
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

/// The file beside `path` that is called the same with `ending`.
pub(super) fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

fn missing_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
