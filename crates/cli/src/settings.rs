//! Which settings hold: a file, or the environment alone.

use std::path::{Path, PathBuf};

use keywheel::{
    Error, GeminiBuilder,
    ledger::{Ledger, LedgerBuilder, LedgerConfig},
};
use keywheel_gateway::Config;

use crate::fault::Fault;

/// The file that is used when it is there and no other is named.
pub(crate) const HERE: &str = "keywheel.toml";

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
            Some(file) if file.is_dir() => {
                Err(Fault::usage(format!("{} is a folder; a file is wanted", file.display())))
            }
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

    /// All that is set.
    ///
    /// # Errors
    /// All that is wrong, each with its line and column.
    pub(crate) fn config(&self) -> Result<Config, Fault> {
        let read = match &self.file {
            Some(file) => Config::from_file(file),
            None => Config::from_env(),
        };
        read.map_err(|errors| Error::from(errors).into())
    }

    /// A client by these settings, without a ledger, and without anything that runs by itself.
    ///
    /// # Errors
    /// As [`config`](Self::config).
    pub(crate) fn client(&self) -> Result<GeminiBuilder, Fault> {
        Ok(self.config()?.client.without_daily_checks())
    }

    /// How the ledger is kept: its file, accounts and limits.
    ///
    /// # Errors
    /// As [`config`](Self::config).
    pub(crate) fn ledger(&self) -> Result<LedgerConfig, Fault> {
        Ok(self.config()?.ledger)
    }
}

/// A ledger as `config` describes it.
pub(crate) fn describe(config: LedgerConfig) -> LedgerBuilder {
    Ledger::builder().config(config)
}
