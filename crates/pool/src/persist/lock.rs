//! File locks between processes.
//!
//! Two kinds. `pool.json.lock` is held around read-merge-write; it is a sibling of the state file,
//! because a lock on a file that is replaced stays on the old one, and it is never renamed or
//! removed. `pool.json.<writer>.live` is held by a writer for as long as it lives: the operating
//! system lets go of it when the process is gone, however it went, so a writer whose file can be
//! locked is dead for certain, and one that is only stopped or slow never looks dead.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::durable;

/// How long to pause between two attempts: at first, and at most. Not longer than others hold it, or
/// whoever waits longest would come last.
const PAUSES_MS: (u64, u64) = (1, 4);

/// Held while it lives.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock at `path`; `None` if somebody else had it for all of `patience`, or `stop`
    /// said so.
    ///
    /// # Errors
    /// When the lock file cannot be made or locked at all.
    pub(crate) fn take(
        path: &Path,
        patience: Duration,
        stop: impl Fn() -> bool,
    ) -> io::Result<Option<Self>> {
        let mut waited = Duration::ZERO;
        let mut pause_ms = PAUSES_MS.0;
        loop {
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, path) => return Ok(Some(Self { _file: file })),
                // Somebody removed the lock file meanwhile: ours would exclude nobody.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if waited >= patience || stop() {
                return Ok(None);
            }
            // Jitter, or several waiters would knock in step.
            let pause = Duration::from_micros(fastrand::u64(pause_ms * 500..=pause_ms * 1_000));
            std::thread::sleep(pause);
            waited += pause;
            pause_ms = (pause_ms * 2).min(PAUSES_MS.1);
        }
    }
}

/// A sign of life: a lock that a writer holds until it ends.
#[derive(Debug)]
pub(super) struct Live {
    path: PathBuf,
    file: File,
}

impl Live {
    /// The file that `writer` holds, for the state file at `state`.
    pub(super) fn path(state: &Path, writer: &str) -> PathBuf {
        durable::sibling(state, &format!(".{writer}.live"))
    }

    /// Makes and locks the file. Only under the main lock, so that nobody finds it made and not yet
    /// locked.
    ///
    /// # Errors
    /// When it cannot be made or locked.
    pub(super) fn hold(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        file.try_lock().map_err(io::Error::from)?;
        Ok(Self { path, file })
    }

    /// Lets go for good. Only after the writer has left the state file: whoever drops this without
    /// leaving is found dead by the next writer, which then does it for him.
    pub(super) fn end(self) {
        // Windows does not remove what is open.
        drop(self.file);
        let _ = fs::remove_file(self.path);
    }

    /// Whether anybody holds the file at `path`, which is removed if not. Only under the main lock.
    pub(super) fn sign(path: &Path) -> Sign {
        let opened = durable::open(path, OpenOptions::new().write(true));
        let Ok(file) = opened else { return Sign::Missing };
        if file.try_lock().is_err() {
            return Sign::Alive;
        }
        // Windows does not remove what is open.
        drop(file);
        let _ = fs::remove_file(path);
        Sign::Dead
    }
}

/// What a writer's sign of life says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// It is held: its writer lives, however long it has been silent.
    Alive,
    /// Nobody holds it any more.
    Dead,
    /// It is not there, which proves nothing: somebody may have tidied up.
    Missing,
}

/// Opens the file to lock, made if need be.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    durable::open(path, &mut options)
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(ours), Ok(there)) if same(&ours, &there))
}

/// A file that is open cannot be removed here.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_lock_is_a_fault_and_nothing_to_wait_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.json.lock");
        durable::tests::make_pipe(&path);
        let refused = Lock::take(&path, Duration::from_secs(60), || false);
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(Live::sign(&path), Sign::Missing);
    }
}
