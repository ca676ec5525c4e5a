//! From a path to a client that can be built.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use keywheel_core::ApiKey;
use keywheel_pool::keys::{KeyLoader, KeyNote, KeysError, Place, Problem};
use keywheel_provider::upstream::{GOOGLE, Upstream};
use toml::de::DeTable;

use super::{
    ConfigErrors, ConfigFault,
    section::{Faults, Section, position},
    settings,
};
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

/// Reads the file at `path`.
pub(crate) fn read(path: &Path, environment: Environment) -> Result<GeminiBuilder, ConfigErrors> {
    // A later change of the working directory must not move what the file names.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let whole = |position, what: String| ConfigErrors {
        path: path.clone(),
        faults: vec![ConfigFault { position, what }],
    };
    let (bytes, exposed) = load(&path).map_err(|what| whole(None, what))?;
    let text = match std::str::from_utf8(&bytes) {
        // What Windows editors put before the first line.
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let end = position(&before, before.len());
            return Err(whole(Some(end), "is not UTF-8 text".to_owned()));
        }
    };
    let faults = Faults::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        // Not the error's own Display: it quotes the line, which may hold a key.
        let at = error.span().map_or(0, |span| span.start);
        faults.add(at, error.message().trim_end().replace('\n', ", "));
        errors(&path, &faults)
    })?;
    let source = Source::new(&path, environment.clone());
    let read = settings::client(Section::whole(table.into_inner(), &faults), source);
    if !faults.are_none() {
        return Err(errors(&path, &faults));
    }
    let mut client = read.client;
    client.came_from(path.clone(), environment);
    if read.holds_keys && exposed {
        client.note(KeyNote::ReadableByOthers(Place::File(path)));
    }
    Ok(client)
}

fn errors(path: &Path, faults: &Faults<'_>) -> ConfigErrors {
    ConfigErrors { path: path.into(), faults: faults.take() }
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

/// Where the file is, and where the variables are that it names.
pub(super) struct Source {
    folder: PathBuf,
    /// What people call the file.
    pub(super) name: String,
    environment: Environment,
    dotenv: PathBuf,
}

impl Source {
    fn new(path: &Path, environment: Environment) -> Self {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { dotenv: folder.join(".env"), folder, name, environment }
    }

    /// `path` as seen from the file.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// The `.env` file, if not the one beside the file.
    pub(super) fn set_dotenv(&mut self, path: PathBuf) {
        self.dotenv = path;
    }

    /// A loader that looks into the environment and `.env`.
    pub(super) fn variables(&self) -> KeyLoader {
        let loader = match &self.environment {
            Environment::Process => KeyLoader::new().process_environment(),
            Environment::Given(variables) => KeyLoader::new().environment(variables.clone()),
        };
        loader.dotenv(&self.dotenv)
    }

    /// The key in the variable `name`. What is wrong with it does not repeat the name: it may be a key.
    pub(super) fn variable(&self, name: &str) -> Result<ApiKey, String> {
        let dotenv = self.dotenv.display();
        match self.variables().only(name).load() {
            Ok(loaded) => one(loaded.keys),
            Err(KeysError::Faults(faults)) => {
                Err(faults.first().map_or_else(String::new, |fault| {
                    let problem = problem(&fault.problem);
                    match &fault.place {
                        Place::DotEnv { path, line, .. } => {
                            format!("the variable (line {line} of {}) {problem}", path.display())
                        }
                        Place::File(path) => format!("{} {problem}", path.display()),
                        _ => format!("the variable {problem}"),
                    }
                }))
            }
            Err(_) => Err(format!("is not set, neither in the environment nor in {dotenv}")),
        }
    }

    /// What the environment says about the base URL, where the builder itself would not ask it.
    pub(super) fn base_url(&self) -> Option<String> {
        let Environment::Given(_) = &self.environment else { return None };
        Some(Upstream::base_url_from(|name| self.given(name)).unwrap_or_else(|| GOOGLE.to_owned()))
    }

    /// The same about the state file.
    pub(super) fn state(&self) -> Option<PathBuf> {
        self.given("KEYWHEEL_STATE").filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    fn given(&self, name: &str) -> Option<String> {
        let Environment::Given(variables) = &self.environment else { return None };
        variables.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone())
    }
}

/// A key that stands in the file itself, by the rules for those in variables.
pub(super) fn literal(text: &str) -> Result<ApiKey, String> {
    const NAME: &str = "KEY";
    match KeyLoader::new().only(NAME).environment([(NAME, text)]).load() {
        Ok(loaded) => one(loaded.keys),
        Err(KeysError::Faults(faults)) => {
            Err(faults.first().map_or_else(String::new, |fault| problem(&fault.problem)))
        }
        Err(_) => Err("is empty".to_owned()),
    }
}

fn one(keys: Vec<keywheel_pool::KeySpec>) -> Result<ApiKey, String> {
    keys.into_iter().next().map(|spec| spec.key).ok_or_else(|| "holds no key".to_owned())
}

fn problem(problem: &Problem) -> String {
    match problem {
        Problem::SeveralKeys { .. } => {
            "seems to hold several keys; write a [[key]] for each".to_owned()
        }
        other => other.to_string(),
    }
}
