//! What the loader has to say: faults, notes, where it looked. None of it holds a key.

use std::{
    error::Error,
    fmt::{self, Display, Formatter},
    io,
    path::PathBuf,
};

use keywheel_core::{ApiKeyError, scrub};

/// Where something stands: a variable, or a line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A variable of the environment, or its nth item.
    Variable(String),
    /// A variable in a `.env` file.
    DotEnv {
        /// The variable, or what can be read of it.
        name: String,
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A line of a key file, counted from 1.
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A whole file.
    File(PathBuf),
    /// A key given in code, by its label.
    Code(String),
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::DotEnv { name, path, line } if name.is_empty() => {
                write!(f, "line {line} of {}", path.display())
            }
            Self::DotEnv { name, path, line } => {
                write!(f, "{name} (line {line} of {})", path.display())
            }
            Self::Line { path, line } => write!(f, "line {line} of {}", path.display()),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Code(label) => write!(f, "{label} (given in code)"),
        }
    }
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFault {
    /// Where.
    pub place: Place,
    /// What.
    pub problem: Problem,
}

impl Display for KeyFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// What can be wrong with a key or with where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The value comes from an example or a template.
    Placeholder,
    /// White space, a comma or a semicolon inside.
    SeveralKeys {
        /// How to give several.
        instead: String,
    },
    /// A quote inside.
    QuoteInside,
    /// An address (`https://...`).
    Address,
    /// An invisible character inside.
    Invisible,
    /// Not a value that could be sent.
    Value(ApiKeyError),
    /// The name ends in `_`.
    NoSuffix,
    /// The same name again in one file, with another value.
    SetTwice {
        /// The line of the first.
        first: usize,
    },
    /// The value refers to another variable.
    Reference,
    /// Not `NAME=value`.
    Malformed,
    /// Not UTF-8.
    NotUtf8,
    /// A quota project's name that looks like a key, or cannot be shown.
    ProjectName,
    /// A file that cannot be read.
    Unreadable(io::ErrorKind),
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placeholder => f.write_str("is a placeholder, not a key"),
            Self::SeveralKeys { instead } => {
                write!(f, "seems to hold several keys; use {instead}")
            }
            Self::QuoteInside => f.write_str("has a quote inside"),
            Self::Address => f.write_str("holds an address (://), not a key"),
            Self::Invisible => f.write_str("has an invisible character inside; copy the key again"),
            Self::Value(error) => Display::fmt(error, f),
            Self::NoSuffix => f.write_str("lacks the suffix after its last underscore"),
            Self::SetTwice { first } => write!(
                f,
                "is set on line {first} already, to something else; give each key its own suffix (_1, _2, ...)"
            ),
            Self::Reference => f.write_str("refers to another variable with $; write the value itself"),
            Self::Malformed => f.write_str(
                "cannot be read as NAME=value; quote a value with white space, and close the quote",
            ),
            Self::NotUtf8 => f.write_str("is not UTF-8 text"),
            Self::ProjectName => f.write_str(
                "is no name for a quota project: it looks like a key, begins with \"key:\" or has control characters",
            ),
            Self::Unreadable(kind) => write!(f, "cannot be read: {kind}"),
        }
    }
}

/// Something the owner should know, though the keys can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyNote {
    /// The same key again; it was loaded once.
    Duplicate {
        /// The label under which it was loaded.
        label: String,
        /// The other place.
        place: Place,
    },
    /// The same key as free and as paid; it was loaded as paid, so that no money is spent unasked.
    FreeAndPaid {
        /// The label under which it was loaded.
        label: String,
        /// The other place.
        place: Place,
    },
    /// The same key was put into two quota projects; the first one counts.
    TwoProjects {
        /// The label under which it was loaded.
        label: String,
        /// The other place.
        place: Place,
    },
    /// Set, but to nothing.
    Empty(Place),
    /// The environment, or a file before this one, sets the same variable to something else, and
    /// wins.
    Hidden(Place),
    /// A quota project for a key that is not there.
    ProjectWithoutKey(Place),
    /// A name that is close to one that is read, but is not read.
    NotRead(Place),
    /// A setting that is no key, in a `.env` file: only keys and tokens are read from there.
    NotFromDotEnv(Place),
    /// A line that could not be read, and does not seem to be about keys.
    Malformed(Place),
    /// Holds keys, and other users of the machine can read it.
    ReadableByOthers(Place),
    /// Keys are sent to this host by plain `http`, and it is neither this machine nor in its own network. The loader
    /// never says so: whoever sends does.
    SentInTheClear(String),
}

impl Display for KeyNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { label, place } => {
                write!(f, "{place} is the same key as {label}; it counts once")
            }
            Self::FreeAndPaid { label, place } => write!(
                f,
                "{place} and {label} are one key, given as free and as paid; it is taken as paid"
            ),
            Self::TwoProjects { label, place } => write!(
                f,
                "{place} puts the key of {label} into another quota project; the first one counts"
            ),
            Self::Empty(place) => write!(f, "{place} is set, but empty"),
            Self::Hidden(place) => {
                write!(
                    f,
                    "{place} is not used: the environment or an earlier file sets it otherwise"
                )
            }
            Self::ProjectWithoutKey(place) => {
                write!(f, "{place} names a quota project, but there is no key with that suffix")
            }
            Self::NotRead(place) => write!(
                f,
                "{place} is not read; if it is meant to be a key, put an underscore before the suffix and keep the case"
            ),
            Self::NotFromDotEnv(place) => write!(
                f,
                "{place} is not read: only keys and tokens are read from .env; set it in the environment"
            ),
            Self::Malformed(place) => write!(f, "{place} was passed over: it is not NAME=value"),
            Self::ReadableByOthers(place) => write!(
                f,
                "{place} holds keys and can be read by other users of this machine; chmod 600 keeps them out"
            ),
            Self::SentInTheClear(host) => write!(
                f,
                "keys are sent to {host} by plain http, where everybody on the way can read them; use https"
            ),
        }
    }
}

/// One place where the loader looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySource {
    /// What it is.
    pub kind: SourceKind,
    /// Keys that came from it, duplicates of earlier ones not counted. `None`: it is not there.
    pub keys: Option<usize>,
}

/// What a place where the loader looks can be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceKind {
    /// Environment variables.
    Environment,
    /// A `.env` file.
    DotEnv(PathBuf),
    /// A key file.
    File(PathBuf),
    /// The program itself.
    Code,
}

impl Display for KeySource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            SourceKind::Environment => f.write_str("the environment")?,
            SourceKind::DotEnv(path) | SourceKind::File(path) => write!(f, "{}", path.display())?,
            SourceKind::Code => f.write_str("the program")?,
        }
        match self.keys {
            None => f.write_str(" (does not exist)"),
            Some(1) => f.write_str(" (1 key)"),
            Some(keys) => write!(f, " ({keys} keys)"),
        }
    }
}

/// Why no keys were loaded. Lists every fault at once and never holds a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeysError {
    /// Something is wrong. Never empty.
    Faults(Vec<KeyFault>),
    /// Nothing is wrong, but there is no key.
    NoKeys(NoKeys),
}

impl Error for KeysError {}

impl Display for KeysError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys(none) => Display::fmt(none, f),
            Self::Faults(faults) if faults.len() == 1 => write!(f, "{}", faults[0]),
            Self::Faults(faults) => {
                write!(f, "{} things are wrong with the API keys:", faults.len())?;
                faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
        }
    }
}

/// What was looked for, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKeys {
    /// The names of variables.
    pub looked_for: Vec<String>,
    /// Where they were looked for, and key files.
    pub sources: Vec<KeySource>,
    /// What was seen there instead.
    pub notes: Vec<KeyNote>,
}

impl Display for NoKeys {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "no API key found. Looked for {}", self.looked_for.join(", "))?;
        let mut before = " in";
        for source in &self.sources {
            write!(f, "{before} {source}")?;
            before = ",";
        }
        if self.sources.is_empty() {
            f.write_str(" nowhere: the loader was given no place to look in")?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n  {note}"))
    }
}

/// A name as it may be shown. People have been seen to put the key itself into the name.
pub(super) fn shown(name: &str) -> String {
    scrub::scrub(name, &[]).into()
}
