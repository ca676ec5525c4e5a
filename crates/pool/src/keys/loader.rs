//! Where keys are looked for: in the environment, in `.env`, in key files, in code.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{
    KeySpec, LoadedKeys,
    load::Load,
    names::{DEFAULT_PREFIX, Names},
    report::KeysError,
};

/// Reads keys from the places it is told about, and from nowhere else.
///
/// | variable | holds |
/// |---|---|
/// | `GEMINI_API_KEY_<SUFFIX>` | one key; read in natural order of the suffix: `_2` before `_10`, numbers before words |
/// | `GEMINI_API_KEY` | one key |
/// | `GEMINI_API_KEYS` | several, separated by commas, semicolons or line ends |
/// | `GOOGLE_API_KEY` | one key |
/// | `GEMINI_PAID_API_KEY_<SUFFIX>`, `GEMINI_PAID_API_KEY` | one paid key |
/// | `GEMINI_PROJECT_<SUFFIX>`, `GEMINI_PROJECT` | the quota project of the keys with the same suffix, or without one |
///
/// Keys are ordered as in this table; then come key files, then keys given in code. Names are
/// matched exactly, upper and lower case included; near misses are reported.
///
/// A variable of the environment wins over the same one in a `.env` file, also when it is set to
/// nothing: `GEMINI_API_KEY_3= ./app` leaves that key out. A variable set to nothing is reported
/// and passed over.
///
/// ```
/// use keywheel_pool::keys::KeyLoader;
///
/// let variables = [("GEMINI_API_KEY_10", "AQ.EXAMPLE-b"), ("GEMINI_API_KEY_2", "AQ.EXAMPLE-a")];
/// let loaded = KeyLoader::new().environment(variables).load().unwrap();
/// assert_eq!(loaded.keys[0].label, "GEMINI_API_KEY_2");
///
/// let error = KeyLoader::new().environment([("GEMINI_API_KEY_1", "your-key-here")]).load().unwrap_err();
/// assert_eq!(error.to_string(), "GEMINI_API_KEY_1: is a placeholder, not a key");
/// ```
#[derive(Clone)]
#[must_use = "nothing is read before `load`"]
pub struct KeyLoader {
    prefix: String,
    /// `prefix` is the whole name of the only variable.
    alone: bool,
    process: bool,
    variables: Vec<(String, String)>,
    dotenv: Vec<PathBuf>,
    files: Vec<PathBuf>,
    code: Vec<KeySpec>,
}

impl KeyLoader {
    /// A loader with the prefix `GEMINI_API_KEY` and no place to look in.
    pub const fn new() -> Self {
        Self {
            prefix: String::new(),
            alone: false,
            process: false,
            variables: Vec::new(),
            dotenv: Vec::new(),
            files: Vec::new(),
            code: Vec::new(),
        }
    }

    /// Looks for `<prefix>_<SUFFIX>`, `<prefix>` and `<prefix>S` instead. A last underscore is
    /// ignored.
    ///
    /// `ACME_API_KEY` also gives `ACME_PAID_API_KEY` and `ACME_PROJECT`. `GOOGLE_API_KEY` is read
    /// only with the default, `GEMINI_API_KEY`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self.alone = false;
        self
    }

    /// Looks for one key in the variable of exactly this name, and for no other variable.
    pub fn only(mut self, name: impl Into<String>) -> Self {
        self.prefix = name.into();
        self.alone = true;
        self
    }

    /// Takes these variables as the environment, before any of the process.
    pub fn environment<N, V>(mut self, variables: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<String>,
        V: Into<String>,
    {
        self.variables
            .extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Reads the environment of the process, anew at each [`load`](Self::load).
    pub const fn process_environment(mut self) -> Self {
        self.process = true;
        self
    }

    /// Reads a `.env` file if it is there. Of several, the first one given wins.
    ///
    /// The process environment is not touched, and references to other variables (`$NAME`) are
    /// refused instead of followed.
    ///
    /// ```
    /// use keywheel_pool::keys::KeyLoader;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join(".env");
    /// std::fs::write(&path, "GEMINI_API_KEY_1=AQ.EXAMPLE-a\nGEMINI_API_KEY_2=AQ.EXAMPLE-b\n").unwrap();
    /// let loaded = KeyLoader::new().dotenv(&path).load().unwrap();
    /// assert_eq!(loaded.keys.len(), 2);
    /// ```
    pub fn dotenv(mut self, path: impl Into<PathBuf>) -> Self {
        self.dotenv.push(path.into());
        self
    }

    /// Reads a key file: one key a line, `#` begins a comment. It must exist.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Adds keys given in code.
    pub fn keys(mut self, keys: impl IntoIterator<Item = KeySpec>) -> Self {
        self.code.extend(keys);
        self
    }

    /// Reads everything.
    ///
    /// # Errors
    /// [`KeysError::Faults`] with all that is wrong: one fault is enough, since a key left out in
    /// silence is missed only when the quota runs out. [`KeysError::NoKeys`] if there is no key.
    pub fn load(&self) -> Result<LoadedKeys, KeysError> {
        let mut load = Load::new(match self.prefix.as_str() {
            name if self.alone => Names::only(name),
            "" => Names::new(DEFAULT_PREFIX),
            prefix => Names::new(prefix),
        });
        if self.process || !self.variables.is_empty() {
            load.environment(&self.variables, self.process);
        }
        for path in &self.dotenv {
            load.dotenv(&absolute(path));
        }
        load.assign();
        for path in &self.files {
            load.file(&absolute(path));
        }
        load.code(&self.code);
        load.finish()
    }
}

impl Default for KeyLoader {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for KeyLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the values of the variables: they are what this is all about.
        f.debug_struct("KeyLoader")
            .field("prefix", &self.prefix)
            .field("alone", &self.alone)
            .field("process", &self.process)
            .field("variables", &self.variables.len())
            .field("dotenv", &self.dotenv)
            .field("files", &self.files)
            .field("code", &self.code)
            .finish()
    }
}

/// So that an error names a file the reader can find.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}
