//! Taking turns with other processes, by locks on files beside the ledger.
//!
//! SQLite alone is safe with several writers, but not fair: those who find it busy sleep and knock
//! again, whoever is there already goes on, and two of four writers got nothing at all for seconds.
//! Therefore everybody first takes the *turn* (`ledger.db.turn`), and to be next for it the *queue*
//! (`ledger.db.queue`): whoever lets go of the turn and wants it again comes behind the one who is
//! at the head of the queue already.
//!
//! The locks are never on the database file itself: on Unix, closing any file handle on it would
//! take away the locks that SQLite holds on it in the same process.
//!
//! The files stay when nobody uses them; a lock on a file that was removed excludes nobody.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use super::stopwatch::Stopwatch;

/// How often somebody who waits just lets others run, before sleeping between attempts: some tenths of a
/// millisecond, about as long as a turn lasts. A sleep takes longer than it says, and with 20 of these four
/// processes did two thirds of what they do with 400; with 2,000 some starve.
const YIELDS: u32 = 400;
/// How long to sleep between two attempts, in microseconds. Always as short, or whoever waits longest
/// would come last; random, or several waiters would knock in step.
const PAUSE_US: std::ops::Range<u64> = 20..50;

/// The right to write, one process (and one handle of it) after the other.
#[derive(Debug)]
pub(super) struct Turn {
    queue: File,
    turn: File,
}

impl Turn {
    /// For the ledger at `path`; makes the files.
    ///
    /// # Errors
    /// When they cannot be made.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { queue: open(&beside(path, ".queue"))?, turn: open(&beside(path, ".turn"))? })
    }

    /// Waits until it is our turn; `None` if that took more than about `patience`: somebody has
    /// stopped in the middle of his.
    ///
    /// # Errors
    /// When the files cannot be locked.
    pub(super) fn take(&self, patience: Duration) -> io::Result<Option<Held<'_>>> {
        let waited = Stopwatch::start();
        if !lock(&self.queue, patience, waited)? {
            return Ok(None);
        }
        let queued = Held(&self.queue);
        if !lock(&self.turn, patience, waited)? {
            return Ok(None);
        }
        drop(queued);
        Ok(Some(Held(&self.turn)))
    }
}

/// A lock, until it is dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a File);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Cannot fail for a lock that is ours; and if it did, it would go with the file.
        let _ = self.0.unlock();
    }
}

/// Who has the ledger open: everybody holds `ledger.db.open` in common with the others.
///
/// Only while holding the [`Turn`], or two who come at once would each find the other.
#[derive(Debug)]
pub(super) struct Presence(File);

impl Presence {
    /// Joins those who have the ledger at `path` open; true if nobody else has.
    ///
    /// # Errors
    /// When the file cannot be made or locked.
    pub(super) fn join(path: &Path) -> io::Result<(Self, bool)> {
        let file = open(&beside(path, ".open"))?;
        let alone = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => supported(Err(error)).map(|()| false)?,
        };
        if alone {
            file.unlock()?;
        }
        supported(file.lock_shared())?;
        Ok((Self(file), alone))
    }

    /// Leaves; true if nobody else is left.
    pub(super) fn leave(self) -> bool {
        self.0.unlock().is_ok() && self.0.try_lock().is_ok()
    }
}

/// `path` with `ending` appended to the name.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Tries until `waited` exceeds `patience`; true when it is locked.
fn lock(file: &File, patience: Duration, waited: Stopwatch) -> io::Result<bool> {
    for attempt in 0_u32.. {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => {}
            // Some network file systems have no such locks. SQLite's own keep everything right.
            Err(TryLockError::Error(error)) => return supported(Err(error)).map(|()| true),
        }
        if attempt < YIELDS {
            thread::yield_now();
            continue;
        }
        if waited.elapsed() >= patience {
            return Ok(false);
        }
        thread::sleep(Duration::from_micros(fastrand::u64(PAUSE_US)));
    }
    Ok(false)
}

fn supported(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        other => other,
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn ledger() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        (folder, path)
    }

    #[test]
    fn one_has_the_turn_and_another_gives_up_when_its_patience_ends() {
        let (_folder, path) = ledger();
        let (one, other) = (Turn::open(&path).unwrap(), Turn::open(&path).unwrap());
        let held = one.take(PATIENCE).unwrap().unwrap();
        assert!(other.take(Duration::from_millis(5)).unwrap().is_none());
        drop(held);
        // Nothing of the attempt that was given up is left over.
        for turn in [&other, &one, &other] {
            assert!(turn.take(PATIENCE).unwrap().is_some());
        }
    }

    #[test]
    fn whoever_is_next_in_the_queue_comes_before_one_who_just_had_its_turn() {
        let (_folder, path) = ledger();
        let greedy = Turn::open(&path).unwrap();
        let (said, order) = std::sync::mpsc::channel();
        let held = greedy.take(PATIENCE).unwrap().unwrap();
        let next = thread::spawn({
            let (path, said) = (path.clone(), said.clone());
            move || {
                let turn = Turn::open(&path).unwrap();
                let _held = turn.take(PATIENCE).unwrap().unwrap();
                said.send("next").unwrap();
            }
        });
        let queue = open(&beside(&path, ".queue")).unwrap();
        while queue.try_lock().is_ok() {
            queue.unlock().unwrap();
            thread::yield_now();
        }
        drop(held);
        let held = greedy.take(PATIENCE).unwrap().unwrap();
        said.send("greedy").unwrap();
        drop(held);
        next.join().unwrap();
        assert_eq!(order.try_iter().collect::<Vec<_>>(), ["next", "greedy"]);
    }

    #[test]
    fn the_last_to_leave_knows_it() {
        let (_folder, path) = ledger();
        let (first, alone) = Presence::join(&path).unwrap();
        assert!(alone);
        let (second, alone) = Presence::join(&path).unwrap();
        assert!(!alone);
        assert!(!first.leave());
        assert!(second.leave());
        assert!(Presence::join(&path).unwrap().1);
    }
}
