//! Which settings hold: a file, or the environment alone.

use std::path::{Path, PathBuf};

use keywheel::{
    Gemini, GeminiBuilder,
    ledger::{Ledger, LedgerConfig},
};

use crate::fault::Fault;

/// The file that is used when it is there and no other is named.
const HERE: &str = "keywheel.toml";

/// The settings of a command.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    file: Option<PathBuf>,
}

impl Settings {
    /// Those of the file that was named (`--config`, `KEYWHEEL_CONFIG`), else of `keywheel.toml` in the working
    /// directory if it is there, else those of the environment alone.
    ///
    /// # Errors
    /// A file was named that is not there.
    pub(crate) fn find(named: Option<PathBuf>) -> Result<Self, Fault> {
        match named {
            Some(file) if file.is_file() => Ok(Self { file: Some(file) }),
            Some(file) => {
                let what = format!("there is no configuration at {}", file.display());
                Err(Fault::usage(what).hint("`keywheel init` writes one"))
            }
            None => {
                let here = PathBuf::from(HERE);
                Ok(Self { file: here.is_file().then_some(here) })
            }
        }
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// A client by these settings, without a ledger, and without anything that runs by itself.
    ///
    /// # Errors
    /// All that is wrong with the file.
    pub(crate) fn client(&self) -> Result<GeminiBuilder, Fault> {
        let builder = match &self.file {
            Some(file) => GeminiBuilder::from_config(file)?,
            None => Gemini::builder(),
        };
        Ok(builder.without_daily_checks())
    }

    /// How the ledger is kept: its file, accounts and limits.
    ///
    /// # Errors
    /// All that is wrong with the file.
    pub(crate) fn ledger(&self) -> Result<LedgerConfig, Fault> {
        match &self.file {
            Some(file) => Ok(LedgerConfig::from_file(file)?),
            None => Ok(LedgerConfig::default()),
        }
    }
}

/// A ledger as `config` describes it.
pub(crate) fn describe(config: LedgerConfig) -> keywheel::ledger::LedgerBuilder {
    Ledger::builder().config(config)
}
