//! What can go wrong. Refusals are not errors: see [`Denied`](crate::Denied).

use std::{error::Error, fmt, path::Path, sync::Arc};

/// Why the ledger could not do what it was asked to. Whatever the kind: nothing was granted, and
/// nothing may be sent.
///
/// Cloning is cheap: one failed commit fails every caller whose work was in it.
///
/// ```
/// use std::{error::Error, io};
/// use keywheel_ledger::{ErrorKind, LedgerError};
///
/// let full = io::Error::from(io::ErrorKind::StorageFull);
/// let error = LedgerError::new(ErrorKind::Store, "the row cannot be written").caused_by(full);
/// assert_eq!(error.kind(), ErrorKind::Store);
/// assert!(error.source().is_some());
/// ```
#[derive(Debug, Clone)]
pub struct LedgerError {
    kind: ErrorKind,
    what: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl LedgerError {
    /// An error of `kind`; `what` says in a sentence what went wrong. For those who write stores.
    #[must_use]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// The same, with what caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The same, with the file in front if it does not name it.
    pub(crate) fn in_file(mut self, path: &Path) -> Self {
        let path = path.display().to_string();
        if !self.what.contains(&path) {
            self.what = format!("{path}: {}", self.what);
        }
        self
    }

    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for LedgerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// What kind of error a [`LedgerError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store cannot be read or written now: a full disk, a lost connection, a lock that is not
    /// to be had. It may be over in a moment.
    Store,
    /// What the store holds cannot be believed: damaged, or not a ledger.
    Corrupt,
    /// The store was written by a newer keywheel.
    NewerSchema,
    /// The ledger was to exist already and does not, so its cap would start anew.
    Missing,
    /// The ledger would lie where a restart wipes it, and nobody accepted that.
    Vanishing,
    /// The ledger is being closed.
    Closed,
    /// The account is not among the rules'.
    UnknownAccount,
    /// No row has this id.
    UnknownId,
    /// The row was settled before, at another figure.
    SettledOtherwise,
    /// The idempotency key was used for a different ask.
    DifferentAsk,
    /// A value is out of range or not well formed.
    Invalid,
}
