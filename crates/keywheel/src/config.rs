//! The client's configuration file: what is wrong with one, and how it is read.
//!
//! Every fault is listed at once, each with its line and column. No fault repeats a value: any of them may be a key
//! that somebody put in the wrong place.

mod embed_cache;
mod file;
mod keys;
mod ledger;
mod read;
mod settings;
mod words;

use std::{
    fmt,
    path::{Path, PathBuf},
};

pub use self::file::{ConfigFile, EmbeddedClient};
pub(crate) use self::{file::Environment, read::read};

/// All that is wrong with a configuration file. Never holds a key.
///
/// ```
/// use keywheel::{Error, GeminiBuilder};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("keywheel.toml");
/// std::fs::write(&path, "dedline = \"30s\"\nexploration = \"no\"\n").unwrap();
/// let error = GeminiBuilder::from_config(&path).unwrap_err();
/// let Error::Config(errors) = error else { unreachable!() };
/// assert_eq!(errors.path(), path);
/// let lines: Vec<_> = errors.faults().iter().filter_map(|fault| fault.position).collect();
/// assert_eq!(lines.len(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    path: PathBuf,
    faults: Vec<ConfigFault>,
}

impl ConfigErrors {
    /// These `faults` of the file at `path`, of which there is one at least.
    ///
    /// ```
    /// use keywheel::{ConfigErrors, ConfigFault};
    ///
    /// let errors = ConfigErrors::new("mine.toml", [ConfigFault::new(Some((1, 5)), "listen: is taken")]);
    /// assert_eq!(errors.to_string(), "mine.toml:1:5: listen: is taken");
    /// ```
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, faults: impl IntoIterator<Item = ConfigFault>) -> Self {
        Self { path: path.into(), faults: faults.into_iter().collect() }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every fault, in the order of the file. Never empty.
    #[must_use]
    pub fn faults(&self) -> &[ConfigFault] {
        &self.faults
    }
}

impl std::error::Error for ConfigErrors {}

/// One line for each fault, in the form that editors follow: `path:line:column: what`.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [fault] = self.faults.as_slice() {
            return fault.show(&self.path, f);
        }
        write!(f, "{} things are wrong in the configuration:", self.faults.len())?;
        self.faults.iter().try_for_each(|fault| {
            f.write_str("\n  ")?;
            fault.show(&self.path, f)
        })
    }
}

/// One thing that is wrong with a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigFault {
    /// Line and column, counted from 1, the column in characters. `None`: the whole file.
    pub position: Option<(usize, usize)>,
    /// What is wrong, beginning with the setting's name where it is about one.
    pub what: String,
}

impl ConfigFault {
    /// `what` is wrong at this line and column; `None` for the whole file.
    #[must_use]
    pub fn new(position: Option<(usize, usize)>, what: impl Into<String>) -> Self {
        Self { position, what: what.into() }
    }

    fn show(&self, path: &Path, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", path.display())?;
        if let Some((line, column)) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", self.what)
    }
}
