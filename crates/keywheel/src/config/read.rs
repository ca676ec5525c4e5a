//! A client's own file, and the variables that a file names.

use std::path::{Path, PathBuf};

use keywheel_core::ApiKey;
use keywheel_pool::keys::{KeyLoader, KeysError, Place, Problem};
use keywheel_provider::upstream::{GOOGLE, Upstream};

use super::{
    ConfigErrors,
    file::{ConfigFile, Environment},
    settings,
};
use crate::GeminiBuilder;

/// Reads the file at `path`.
pub(crate) fn read(path: &Path, environment: Environment) -> Result<GeminiBuilder, ConfigErrors> {
    let file = ConfigFile::open(path)?.in_environment(environment.clone());
    let read = file.read(&settings::WHOLE, |whole| settings::client(whole, file.source()))?;
    let mut client = read.client;
    client.came_from(file.location().to_owned(), environment);
    if let Some(note) = file.note(read.holds_keys) {
        client.note(note);
    }
    Ok(client)
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
    pub(super) fn new(path: &Path, environment: Environment) -> Self {
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

    /// The secret in the variable `name`, if it is set.
    pub(super) fn secret(&self, name: &str) -> Result<Option<ApiKey>, String> {
        match self.variables().only(name).load() {
            Ok(loaded) => one(loaded.keys).map(Some),
            Err(KeysError::Faults(_)) => self.variable(name).map(Some),
            Err(_) => Ok(None),
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
