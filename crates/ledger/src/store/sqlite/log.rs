//! Bringing what was committed to the disk, while the next one has the turn already.
//!
//! Waiting for the disk takes about as long as all else in a turn, so it is done after it. SQLite
//! writes a commit into its log without waiting (`synchronous = NORMAL`, which keeps the file whole
//! whatever happens, but may lose what was committed last), and whoever made it waits for the log
//! before he answers anybody. There is one log for all processes, and it counts up to the first page
//! that is missing: what somebody else committed earlier, and this commit rests on, is on the disk by
//! then as well.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::{
    fault::{Fault, io_fault},
    locks::beside,
};
use crate::{ErrorKind, LedgerError};

/// The log of a ledger that is open.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// `None` after a failure.
    file: Option<File>,
    /// The disk failed: it may lack pages that it will not be asked to write a second time.
    is_doubtful: bool,
}

impl Log {
    /// Of the ledger at `path`, which is open.
    pub(super) fn of(path: &Path) -> Self {
        let path = beside(path, "-wal");
        // At once, if it can be: a handle is told of a failure only if it was there before it.
        Self { file: open(&path).ok(), path, is_doubtful: false }
    }

    /// Makes SQLite leave it to us to wait for the disk, for the transactions of `connection`.
    ///
    /// # Errors
    /// Whatever SQLite comes to.
    pub(super) fn take_over(connection: &Connection) -> rusqlite::Result<()> {
        connection.pragma_update(None, "synchronous", "NORMAL")
    }

    /// Goes on with the log that lies beside the ledger now.
    pub(super) fn follow(&mut self) {
        self.file = open(&self.path).ok();
    }

    /// Waits until everything that was committed is on the disk.
    ///
    /// # Errors
    /// When the disk fails. What was committed may or may not survive a power cut then, and what is
    /// committed after it would not without [`mend`](Self::mend).
    pub(super) fn sync(&mut self) -> Result<(), LedgerError> {
        let done = self.try_sync();
        if done.is_err() {
            (self.file, self.is_doubtful) = (None, true);
        }
        done.map_err(|error| io_fault("the disk with the ledger fails", error))
    }

    /// After a failure, copies all of the log into the ledger itself; else nothing. Only when it is
    /// our turn.
    ///
    /// # Errors
    /// When the disk still fails, or somebody has been reading for too long.
    pub(super) fn mend(&mut self, connection: &Connection) -> Result<(), Fault> {
        if !self.is_doubtful {
            return Ok(());
        }
        let is_held_up: bool =
            connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| row.get(0))?;
        if is_held_up {
            let what = "after the disk failed, the ledger's log cannot be copied: it is being read";
            return Err(LedgerError::new(ErrorKind::Store, what).into());
        }
        self.is_doubtful = false;
        Ok(())
    }

    fn try_sync(&mut self) -> io::Result<()> {
        if let Some(file) = &self.file {
            return file.sync_data();
        }
        self.file.insert(open(&self.path)?).sync_data()
    }

    /// From now on of a disk that fails, until the next failure.
    #[cfg(all(test, unix))]
    pub(super) fn break_disk(&mut self) {
        // What is written there cannot be waited for.
        self.file = open(Path::new("/dev/null")).ok();
    }
}

/// For writing, or some systems do not bring it to the disk.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}
