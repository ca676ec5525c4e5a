//! What SQLite's errors mean to somebody who has to do something about them.

use std::io;

use rusqlite::ErrorCode;

use crate::{ErrorKind, LedgerError};

/// Why something was not done: an answer to one caller, or a failure of the file that concerns
/// everybody whose work was in the same transaction.
#[derive(Debug)]
pub(super) enum Fault {
    /// In words already. Of one caller's work it is his own, and nothing was written for it.
    Answer(LedgerError),
    /// The file's.
    File(rusqlite::Error),
}

impl Fault {
    /// Whether another attempt, with less in one transaction, could not do better either: the disk
    /// or a lock is in the way, not one row.
    pub(super) fn concerns_all(&self) -> bool {
        use ErrorCode::{ConstraintViolation, ParameterOutOfRange, TooBig, TypeMismatch};
        let of_a_row = [ConstraintViolation, ParameterOutOfRange, TooBig, TypeMismatch];
        match self {
            Self::Answer(_) => true,
            Self::File(rusqlite::Error::SqliteFailure(error, _)) => !of_a_row.contains(&error.code),
            Self::File(_) => false,
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::File(error)
    }
}

impl From<LedgerError> for Fault {
    fn from(error: LedgerError) -> Self {
        Self::Answer(error)
    }
}

impl From<Fault> for LedgerError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Answer(error) => error,
            Fault::File(error) => explain(error),
        }
    }
}

/// An error of SQLite in words.
pub(super) fn explain(error: rusqlite::Error) -> LedgerError {
    let (kind, what) = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => (ErrorKind::Corrupt, "the ledger's file is no database"),
        Some(ErrorCode::DatabaseCorrupt) => (ErrorKind::Corrupt, "the ledger's file is damaged"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Store, "another program keeps the ledger locked")
        }
        Some(ErrorCode::DiskFull) => (ErrorKind::Store, "the disk with the ledger is full"),
        Some(ErrorCode::ReadOnly) => (ErrorKind::Store, "the ledger can only be read"),
        Some(ErrorCode::CannotOpen) => (ErrorKind::Store, "the ledger cannot be opened"),
        Some(ErrorCode::PermissionDenied) => {
            (ErrorKind::Store, "there is no permission to use the ledger")
        }
        Some(ErrorCode::SystemIoFailure) => {
            (ErrorKind::Store, "the disk with the ledger fails or is full")
        }
        Some(_) => (ErrorKind::Store, "the ledger cannot be read or written"),
        None => (ErrorKind::Corrupt, "the ledger holds what keywheel never writes"),
    };
    LedgerError::new(kind, format!("{what} ({error})")).caused_by(error)
}

/// A file beside the ledger that cannot be made or locked.
pub(super) fn io_fault(what: &str, error: io::Error) -> LedgerError {
    LedgerError::new(ErrorKind::Store, format!("{what}: {error}")).caused_by(error)
}
