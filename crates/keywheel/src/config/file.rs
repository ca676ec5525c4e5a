//! A file of settings, and the environment that it is read in.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use keywheel_core::ApiKey;
use keywheel_pool::keys::{KeyLoader, KeyNote, Place};
use keywheel_settings::{Fault, Faults, Section, position, without_mark};

use super::{ConfigErrors, ConfigFault, read::Source, settings};
use crate::GeminiBuilder;

/// A configuration is a page of text. More than this is another file.
const LARGEST: u64 = 1024 * 1024;

/// Where variables are read from, besides `.env`.
#[derive(Clone)]
pub(crate) enum Environment {
    /// The environment of the process.
    Process,
    /// These, and nothing of the process.
    Given(Vec<(String, String)>),
}

/// A file of settings of a program that has a client inside, and settings of its own beside the client's.
///
/// The client's are `state`, `selection` and their like, `[upstream]`, `[keys]`, `[[key]]`, `[limits]`, `[reset]`,
/// `[model_facts]`, `[timeouts]` and `[retry]`: those of [`Gemini::from_config`](crate::Gemini::from_config) but for
/// where it is (`[upstream]` with `kind`, `base_url`, `api_version` and `key_prefix`), for `watch_keys`, for the ledger
/// and for `[embed_cache]`.
///
/// ```
/// use keywheel::{ConfigFile, settings::words};
///
/// let text = "title = \"mine\"\nselection = \"failover\"\n[upstream]\nkey_prefix = \"ACME_KEY_\"";
/// let file = ConfigFile::of_text("mine.toml", text).with_variables([("ACME_KEY_1", "AQ.EXAMPLE-1")]);
/// let (title, client) = file.read(&["title", "selection"], |whole| {
///     let title = whole.text("title", "a title", |title| Ok(title.to_owned()));
///     let client = file.client(whole);
///     (title, client)
/// })?;
/// assert_eq!(title.as_deref(), Some("mine"));
/// assert_eq!(client.keys.load()?.keys.len(), 1);
/// assert_eq!(file.secret("ACME_KEY_1").unwrap().unwrap().expose(), "AQ.EXAMPLE-1");
/// assert_eq!(file.variable("PORT"), None);
/// assert_eq!(file.names_with("ACME_"), ["ACME_KEY_1"]);
/// assert!(file.location().ends_with("mine.toml"));
/// assert_eq!(file.path("pool.json"), file.location().with_file_name("pool.json"));
///
/// let faulty = ConfigFile::of_text("mine.toml", "titel = \"mine\"");
/// let read = faulty.read(&["title"], |whole| drop(whole.text("title", "a title", |_| Ok(()))));
/// assert!(read.unwrap_err().to_string().ends_with("did you mean \"title\"?"));
/// # Ok::<(), keywheel::Error>(())
/// ```
#[derive(Clone)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
    is_exposed: bool,
    environment: Environment,
}

/// A client's settings out of a file that holds more.
#[derive(Debug)]
#[non_exhaustive]
pub struct EmbeddedClient {
    /// The client, to be built. It reads its keys again from variables and key files alone; those in the file are given
    /// anew by [`Gemini::reload_keys`](crate::Gemini::reload_keys).
    pub builder: GeminiBuilder,
    /// Where its keys are from.
    pub keys: KeyLoader,
}

impl ConfigFile {
    /// Reads the file at `path`.
    ///
    /// ```
    /// let fault = keywheel::ConfigFile::open("/nowhere/mine.toml").unwrap_err();
    /// assert_eq!(fault.to_string(), "/nowhere/mine.toml: there is no such file");
    /// ```
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        let path = absolute(path.as_ref());
        let whole = |position, what: String| ConfigErrors {
            path: path.clone(),
            faults: vec![ConfigFault { position, what }],
        };
        let (bytes, is_exposed) = load(&path).map_err(|what| whole(None, what))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let before = String::from_utf8_lossy(&error.as_bytes()[..valid]);
            whole(Some(position(&before, before.len())), "is not UTF-8 text".to_owned())
        })?;
        Ok(Self { is_exposed, ..Self::of_text(path, text) })
    }

    /// One with this text, as if it stood at `path`.
    #[must_use]
    pub fn of_text(path: impl AsRef<Path>, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if without_mark(&text).len() < text.len() {
            text = without_mark(&text).to_owned();
        }
        Self {
            path: absolute(path.as_ref()),
            text,
            is_exposed: false,
            environment: Environment::Process,
        }
    }

    /// With `variables` in place of the environment of the process.
    #[must_use]
    pub fn with_variables<N, V>(self, variables: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<String>,
        V: Into<String>,
    {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        self.in_environment(Environment::Given(variables.collect()))
    }

    /// Takes the settings out of it. `whole` names those in no section; what `read` leaves is unknown.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the file.
    pub fn read<T>(
        &self,
        whole: &'static [&'static str],
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> Result<T, ConfigErrors> {
        let faults = Faults::new(&self.text).of_the_whole(whole);
        let value = Section::parse(&faults).map(|mut section| {
            let value = read(&mut section);
            section.end();
            value
        });
        let found = faults.take();
        value.filter(|_| found.is_empty()).ok_or_else(|| ConfigErrors {
            path: self.path.clone(),
            faults: found.into_iter().map(ConfigFault::from).collect(),
        })
    }

    /// Takes the client's settings out of `whole`.
    #[must_use]
    pub fn client(&self, whole: &mut Section<'_>) -> EmbeddedClient {
        let (mut builder, keys) = settings::embedded(whole, self.source());
        if let Some(note) = self.note(keys.in_the_file) {
            builder.note(note);
        }
        EmbeddedClient { builder, keys: keys.loader }
    }

    /// Where the file is.
    #[must_use]
    pub fn location(&self) -> &Path {
        &self.path
    }

    /// `path` as seen from the file.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.source().path(path)
    }

    /// The variable `name`, unless it is empty.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<String> {
        let value = match &self.environment {
            Environment::Process => std::env::var(name).ok(),
            Environment::Given(variables) => {
                variables.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone())
            }
        };
        value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The names of the variables that begin with `prefix`, sorted.
    #[must_use]
    pub fn names_with(&self, prefix: &str) -> Vec<String> {
        let mut names: Vec<String> = match &self.environment {
            Environment::Process => {
                std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
            }
            Environment::Given(variables) => {
                variables.iter().map(|(name, _)| name.clone()).collect()
            }
        };
        names.retain(|name| name.starts_with(prefix));
        names.sort_unstable();
        names
    }

    /// The secret in the variable `name`, of the environment or of `.env`.
    ///
    /// # Errors
    /// What is wrong with it, never what it is. The name is left to the caller.
    pub fn secret(&self, name: &str) -> Result<Option<ApiKey>, String> {
        self.source().secret(name)
    }

    pub(crate) fn in_environment(self, environment: Environment) -> Self {
        Self { environment, ..self }
    }

    pub(super) fn source(&self) -> Source {
        Source::new(&self.path, self.environment.clone())
    }

    /// What is to be said of a file with keys.
    pub(super) fn note(&self, holds_keys: bool) -> Option<KeyNote> {
        let is_told = holds_keys && self.is_exposed;
        is_told.then(|| KeyNote::ReadableByOthers(Place::File(self.path.clone())))
    }
}

/// Neither text nor variables, which may be keys.
impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl From<Fault> for ConfigFault {
    fn from(fault: Fault) -> Self {
        Self { position: Some((fault.line, fault.column)), what: fault.what }
    }
}

/// A later change of the working directory must not move what the file names.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// The file's bytes, and whether other users of the machine can read them.
fn load(path: &Path) -> Result<(Vec<u8>, bool), String> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        kind => format!("cannot be read: {kind}"),
    };
    let file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if about.is_dir() {
        return Err("is a folder; a file is wanted".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST {
        return Err("is larger than 1 MiB, so it is no configuration".to_owned());
    }
    Ok((bytes, readable_by_others(&about)))
}

#[cfg(unix)]
fn readable_by_others(about: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    about.permissions().mode() & 0o077 != 0
}

/// Elsewhere permissions are lists that the standard library does not read.
#[cfg(not(unix))]
fn readable_by_others(_: &std::fs::Metadata) -> bool {
    false
}
