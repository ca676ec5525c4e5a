//! Why a command did not do what it was asked for, and what to do about it.

use std::{fmt, io, path::Path};

use keywheel::{
    Error,
    ledger::{ErrorKind, LedgerError},
};

use crate::exit::Exit;

/// What went wrong. `Display` says it in a sentence, and then how to go on. Never holds a key or a token.
#[derive(Debug)]
pub(crate) struct Fault {
    exit: Exit,
    what: String,
    hint: Option<String>,
    /// Whoever read the output has gone: `keywheel ledger export | head`.
    reader_gone: bool,
}

impl Fault {
    /// A fault that ends with `exit`.
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), hint: None, reader_gone: false }
    }

    /// Arguments or settings are at fault.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what)
    }

    /// A new file at `path` cannot be made.
    pub(crate) fn unmade(path: &Path, error: &io::Error) -> Self {
        let path = path.display();
        match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Self::usage(format!("{path} is there already, and stays as it is"))
            }
            _ => Self::new(Exit::Fault, format!("{path} cannot be made: {error}")),
        }
    }

    /// The file at `path`, which an argument names, cannot be read.
    pub(crate) fn unread(path: &Path, error: &io::Error) -> Self {
        let path = path.display();
        Self::usage(match error.kind() {
            io::ErrorKind::NotFound => format!("there is no file {path}"),
            io::ErrorKind::IsADirectory => format!("{path} is a folder; a file is wanted"),
            io::ErrorKind::InvalidData => format!("{path} is not UTF-8 text"),
            _ => format!("{path} cannot be read: {error}"),
        })
    }

    /// The same with what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with one thing more that can be done.
    pub(crate) fn also(self, more: &str) -> Self {
        let hint = self.hint.as_ref().map_or(more.to_owned(), |hint| format!("{hint}\n  {more}"));
        self.hint(hint)
    }

    /// The code that the program ends with.
    pub(crate) const fn exit(&self) -> Exit {
        self.exit
    }

    /// True when nobody reads any more, which is no fault of anybody.
    pub(crate) const fn is_reader_gone(&self) -> bool {
        self.reader_gone
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n  {hint}"))
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        let reader_gone = error.kind() == io::ErrorKind::BrokenPipe;
        Self { reader_gone, ..Self::new(Exit::Fault, error.to_string()) }
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(kind) => io::Error::from(kind).into(),
            None => Self::new(Exit::Fault, error.to_string()),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let (exit, hint) = match &error {
            Error::Keys(_) => (Exit::Usage, Some(NO_KEYS)),
            Error::Config(_) | Error::Setting(_) | Error::Pool(_) => (Exit::Usage, None),
            Error::NoKeys { .. } => (Exit::Usage, Some(NO_KEYS)),
            Error::AllKeysDead { .. } => {
                (Exit::DeadKey, Some("`keywheel check` says what is the matter with each key"))
            }
            Error::Exhausted { .. } => {
                (Exit::NotNow, Some("`keywheel status` shows what is spent, and until when"))
            }
            Error::OverBudget { .. } => {
                (Exit::NotNow, Some("`keywheel ledger usage` shows where the budget went"))
            }
            Error::UpstreamDown { .. } | Error::DeadlineReached { .. } => (Exit::NotNow, None),
            _ => (Exit::Fault, None),
        };
        let fault = Self::new(exit, error.to_string());
        match hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

/// How to go on without keys.
const NO_KEYS: &str = "\
put a key into the environment or into .env: GEMINI_API_KEY_1=<a key of https://aistudio.google.com/apikey>";

impl From<LedgerError> for Fault {
    fn from(error: LedgerError) -> Self {
        let exit = match error.kind() {
            ErrorKind::Missing => Exit::NewLedger,
            ErrorKind::Invalid | ErrorKind::UnknownAccount => Exit::Usage,
            _ => Exit::Fault,
        };
        Self::new(exit, error.to_string())
    }
}
