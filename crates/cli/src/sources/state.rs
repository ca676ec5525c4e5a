//! The pool's state file as it stands, for commands that only look.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use chrono::{DateTime, NaiveDate, Utc};
use keywheel::{Error, Gemini, MemoryState, PoolStatus, StateLocation};
use serde::Deserialize;
use tempfile::TempDir;

use crate::{exit::Exit, fault::Fault, settings::Settings};

/// What is read of a state file: `docs/state-file.md` has all of it. Whatever cannot be read is passed over, so that a
/// newer file shows what an older program knows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StateFile {
    pub(crate) saved_at: Option<DateTime<Utc>>,
    pub(crate) keys: BTreeMap<String, KeyEntry>,
    pub(crate) buckets: BTreeMap<String, BucketEntry>,
}

/// One key, by its fingerprint.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeyEntry {
    pub(crate) label: String,
    pub(crate) project: String,
    pub(crate) available_at: Option<DateTime<Utc>>,
    pub(crate) quarantine: Option<QuarantineEntry>,
    pub(crate) seen_at: Option<DateTime<Utc>>,
}

/// Why a key is out of use.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct QuarantineEntry {
    pub(crate) cause: String,
    pub(crate) since: Option<DateTime<Utc>>,
    pub(crate) detail: Option<String>,
}

/// What is known of a quota project for one model.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BucketEntry {
    pub(crate) cooldowns: BTreeMap<String, CooldownEntry>,
    pub(crate) day: Option<DayEntry>,
    pub(crate) limits: BTreeMap<String, LimitEntry>,
}

/// What holds a bucket back.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CooldownEntry {
    pub(crate) available_at: Option<DateTime<Utc>>,
    pub(crate) source: String,
    pub(crate) since: Option<DateTime<Utc>>,
}

/// What was used in a quota day.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DayEntry {
    pub(crate) date: Option<NaiveDate>,
    pub(crate) by: BTreeMap<String, CountEntry>,
}

/// What one process used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CountEntry {
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
}

/// A limit that a reply named.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LimitEntry {
    pub(crate) value: Option<u64>,
    pub(crate) source: String,
    pub(crate) at: Option<DateTime<Utc>>,
}

/// A state file at one moment. Nothing of it is locked, and nothing is written.
#[derive(Debug)]
pub(crate) struct Snapshot {
    path: Option<PathBuf>,
    json: Option<Vec<u8>>,
    pub(crate) file: StateFile,
}

impl Snapshot {
    /// Reads the file that the settings name. One that is not there knows nothing.
    ///
    /// # Errors
    /// It cannot be read, or is no state file.
    pub(crate) fn take(settings: &Settings) -> Result<Self, Fault> {
        let Some(path) = settings.client()?.state_path() else {
            return Ok(Self { path: None, json: None, file: StateFile::default() });
        };
        let json = match fs::read(&path) {
            Ok(json) => json,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: Some(path), json: None, file: StateFile::default() });
            }
            Err(error) => return Err(unusable(&path, &error.to_string())),
        };
        // The pool's own reader says what is wrong, and quotes nothing.
        MemoryState::from_json(&json).map_err(|error| unusable(&path, &error.to_string()))?;
        let file = serde_json::from_slice(&json).map_err(|error| {
            unusable(&path, &format!("has another form ({:?})", error.classify()))
        })?;
        Ok(Self { path: Some(path), json: Some(json), file })
    }

    /// Where it was read.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// True when there was a file.
    pub(crate) const fn exists(&self) -> bool {
        self.json.is_some()
    }

    /// What a pool with the keys of the settings makes of it; `None` when there are no keys here.
    ///
    /// # Errors
    /// Keys or settings are at fault.
    pub(crate) async fn pool(&self, settings: &Settings) -> Result<Option<PoolStatus>, Fault> {
        let state = match &self.json {
            Some(json) => MemoryState::from_json(json)
                .map_err(|error| Fault::new(Exit::Fault, error.to_string()))?,
            None => MemoryState::new(),
        };
        let client = settings.client()?.state(StateLocation::Memory(state));
        match client.build().await {
            Ok(gemini) => Ok(Some(gemini.status())),
            Err(Error::Keys(keywheel::KeysError::NoKeys(_))) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A client over a copy of the file and of what is kept beside it. The copy goes with the folder.
    ///
    /// # Errors
    /// It cannot be copied; keys or settings are at fault.
    pub(crate) async fn client(&self, settings: &Settings) -> Result<(Gemini, TempDir), Fault> {
        let folder = tempfile::tempdir()?;
        let copy = folder.path().join("pool.json");
        if let Some(json) = &self.json {
            fs::write(&copy, json)?;
        }
        let turns = self.path.as_ref().map(|path| path.with_extension("turns.json"));
        if let Some(turns) = turns.filter(|turns| turns.is_file()) {
            fs::copy(turns, folder.path().join("pool.turns.json"))?;
        }
        let client = settings.client()?.state_file(&copy).build().await?;
        Ok((client, folder))
    }
}

fn unusable(path: &Path, why: &str) -> Fault {
    let what = format!("the state file {}: {why}", path.display());
    Fault::new(Exit::Fault, what).hint("KEYWHEEL_STATE or `state` in the configuration name it")
}
