//! A ledger described in TOML.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use toml::{Table, Value};

use crate::{
    AccountId, AccountRules, Durability, ErrorKind, LedgerError, LedgerRules, Limit, Period, Unit,
};

/// What a TOML text says of a ledger.
///
/// ```
/// use keywheel_ledger::{Ledger, LedgerConfig};
///
/// let config = LedgerConfig::from_toml(r#"
///     [ledger]
///     zone = "America/Los_Angeles"
///
///     [ledger.allowance]
///     tokens_per_month = 10_000_000
///
///     [ledger.accounts.triage]
///     tokens_per_day = 300_000
///     calls_per_day = 500
///
///     [ledger.accounts.triage.models."gemini-3.6-flash"]
///     tokens_per_day = 100_000
/// "#)?;
/// assert_eq!(config.rules.accounts["triage"].limits.len(), 3);
/// # let _ = Ledger::builder().config(config);
/// # Ok::<(), keywheel_ledger::LedgerError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerConfig {
    /// `path`: the file.
    pub path: Option<PathBuf>,
    /// `storage`: `create`, `require_existing`, `init` or `ephemeral_ok`.
    pub durability: Option<Durability>,
    /// `sweep_after_seconds`.
    pub sweep_after: Option<Duration>,
    /// `keep_days`.
    pub keep_rows: Option<Duration>,
    /// `allowance`, `accounts`, `zone`, `any_account`, `charge_timeouts`.
    pub rules: LedgerRules,
}

impl LedgerConfig {
    /// Reads a file, as [`from_toml`](Self::from_toml) reads a text. A relative `path` in it is seen
    /// from the file's folder. Blocks for as long as the disk takes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] with the file's name, also if it cannot be read.
    pub fn from_file(file: impl AsRef<Path>) -> Result<Self, LedgerError> {
        let file = file.as_ref();
        let named = |what: String| {
            LedgerError::new(ErrorKind::Invalid, format!("{}: {what}", file.display()))
        };
        let text = fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
        let config = Self::from_toml(&text).map_err(|error| named(error.to_string()))?;
        let folder = file.parent().unwrap_or(Path::new(""));
        Ok(Self { path: config.path.map(|path| folder.join(path)), ..config })
    }

    /// Reads the `[ledger]` section of `text` if there is one, else the whole text.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], with the place, for what is no TOML, a word that is not known (a
    /// mistyped limit must not be no limit), and a value out of range.
    pub fn from_toml(text: &str) -> Result<Self, LedgerError> {
        #[derive(Deserialize)]
        struct Around {
            ledger: Option<Value>,
        }
        let around: Around = toml::from_str(text).map_err(invalid)?;
        let section: Result<Section, _> = match around.ledger {
            Some(section) => section.try_into(),
            None => toml::from_str(text),
        };
        section.map_err(invalid).and_then(Section::read)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    path: Option<PathBuf>,
    storage: Option<Storage>,
    sweep_after_seconds: Option<u64>,
    keep_days: Option<u64>,
    zone: Option<String>,
    any_account: Option<bool>,
    charge_timeouts: Option<bool>,
    #[serde(default)]
    allowance: Table,
    #[serde(default)]
    accounts: BTreeMap<AccountId, Table>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Storage {
    Create,
    RequireExisting,
    Init,
    EphemeralOk,
}

/// The words for limits.
const LIMITS: [(&str, Unit, Period); 6] = [
    ("tokens_per_day", Unit::Tokens, Period::Day),
    ("tokens_per_month", Unit::Tokens, Period::Month),
    ("tokens_total", Unit::Tokens, Period::Total),
    ("calls_per_day", Unit::Calls, Period::Day),
    ("calls_per_month", Unit::Calls, Period::Month),
    ("calls_total", Unit::Calls, Period::Total),
];

impl Section {
    fn read(self) -> Result<LedgerConfig, LedgerError> {
        let mut rules = LedgerRules::new().allowance(limits("allowance", self.allowance)?);
        if let Some(zone) = self.zone {
            rules.zone =
                zone.parse().map_err(|_| invalid(format!("there is no time zone {zone:?}")))?;
        }
        rules.any_account = self.any_account.unwrap_or(rules.any_account);
        rules.charge_timeouts = self.charge_timeouts.unwrap_or(rules.charge_timeouts);
        for (name, mut table) in self.accounts {
            let at = format!("accounts.{name}");
            let output = table.remove("default_max_output");
            let output =
                output.map(|value| number(&at, "default_max_output", &value)).transpose()?;
            let account = AccountRules { limits: limits(&at, table)?, default_max_output: output };
            rules.accounts.insert(name, account);
        }
        Ok(LedgerConfig {
            path: self.path,
            durability: self.storage.map(Storage::read),
            sweep_after: self.sweep_after_seconds.map(Duration::from_secs),
            keep_rows: self.keep_days.map(|days| Duration::from_secs(days.saturating_mul(86_400))),
            rules,
        })
    }
}

impl Storage {
    const fn read(self) -> Durability {
        match self {
            Self::Create => Durability::Create,
            Self::RequireExisting => Durability::RequireExisting,
            Self::Init => Durability::Init,
            Self::EphemeralOk => Durability::EphemeralOk,
        }
    }
}

/// The limits in `table`, which stands `at` a place, and in its tables by model.
fn limits(at: &str, mut table: Table) -> Result<Vec<Limit>, LedgerError> {
    let models = table.remove("models");
    let mut found = caps(at, &table)?;
    let models = match models {
        None => Table::new(),
        Some(Value::Table(models)) => models,
        Some(_) => return Err(invalid(format!("{at}.models is no table"))),
    };
    for (model, value) in &models {
        let at = format!("{at}.models.{model:?}");
        let own = value.as_table().ok_or_else(|| invalid(format!("{at} is no table")))?;
        found.extend(caps(&at, own)?.into_iter().map(|limit| limit.for_model(model)));
    }
    Ok(found)
}

fn caps(at: &str, table: &Table) -> Result<Vec<Limit>, LedgerError> {
    let cap = |(word, value): (&String, &Value)| {
        let known = LIMITS.iter().find(|(name, ..)| name == word);
        let (_, unit, period) = known.ok_or_else(|| invalid(format!("{at} knows no {word:?}")))?;
        Ok(Limit::new(*unit, *period, number(at, word, value)?))
    };
    table.iter().map(cap).collect()
}

fn number(at: &str, word: &str, value: &Value) -> Result<u64, LedgerError> {
    let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| invalid(format!("{at}.{word} is {value}, not a number from 0")))
}

fn invalid(what: impl fmt::Display) -> LedgerError {
    LedgerError::new(ErrorKind::Invalid, format!("the ledger's configuration: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        let fault = LedgerConfig::from_toml(text).unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::Invalid);
        fault.to_string()
    }

    #[test]
    fn every_word_is_read() {
        let config = LedgerConfig::from_toml(
            r#"
            path = "budget.db"
            storage = "require_existing"
            sweep_after_seconds = 60
            keep_days = 30
            zone = "Europe/Berlin"
            any_account = true
            charge_timeouts = false
            allowance = { tokens_total = 5, calls_total = 6 }
            [accounts.a]
            default_max_output = 100
            tokens_per_day = 1
            tokens_per_month = 2
            calls_per_day = 3
            calls_per_month = 4
            [accounts.a.models."m.1"]
            calls_per_day = 0
            "#,
        )
        .unwrap();
        assert_eq!(config.path, Some("budget.db".into()));
        assert_eq!(config.durability, Some(Durability::RequireExisting));
        assert_eq!(config.sweep_after, Some(Duration::from_secs(60)));
        assert_eq!(config.keep_rows, Some(Duration::from_hours(30 * 24)));
        let rules = config.rules;
        assert_eq!(rules.zone, chrono_tz::Europe::Berlin);
        assert!(rules.any_account && !rules.charge_timeouts);
        let whole = [Limit::calls(Period::Total, 6), Limit::tokens(Period::Total, 5)];
        assert_eq!(rules.allowance, whole);
        assert_eq!(rules.default_max_output("a"), 100);
        let own: Vec<_> = rules.accounts["a"].limits.iter().map(Limit::to_string).collect();
        let wanted = [
            "3 calls a day",
            "4 calls a month",
            "1 tokens a day",
            "2 tokens a month",
            "0 calls a day for m.1",
        ];
        assert_eq!(own, wanted);
    }

    #[test]
    fn an_empty_section_is_the_default() {
        assert_eq!(LedgerConfig::from_toml("").unwrap(), LedgerConfig::default());
        let other = "[ledger]\n[listen]\nport = 1";
        assert_eq!(LedgerConfig::from_toml(other).unwrap(), LedgerConfig::default());
    }

    #[test]
    fn a_file_is_named_in_its_faults_and_paths_are_seen_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("budget.toml");
        let read = |text: &str| {
            fs::write(&file, text).unwrap();
            LedgerConfig::from_file(&file)
        };
        let config = read("[ledger]\npath = \"data/ledger.db\"").unwrap();
        assert_eq!(config.path, Some(folder.path().join("data/ledger.db")));
        assert_eq!(read("path = \"/var/l.db\"").unwrap().path, Some("/var/l.db".into()));
        assert_eq!(read("").unwrap().path, None);
        for fault in [read("zone = 1"), LedgerConfig::from_file(folder.path().join("no.toml"))] {
            assert!(fault.unwrap_err().to_string().contains(".toml: "));
        }
    }

    #[test]
    fn a_mistyped_limit_is_not_no_limit() {
        assert!(fault("[allowance]\ntokens_a_day = 1").contains("tokens_a_day"));
        assert!(fault("[accounts.a]\ntoken_per_day = 1").contains("accounts.a knows no"));
        assert!(fault("[accounts.a.models.m]\ndefault_max_output = 1").contains("models.\"m\""));
        assert!(fault("[account.a]\ntokens_per_day = 1").contains("account"));
        assert!(fault("[ledger]\n[ledger.acounts.a]\n").contains("acounts"));
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        assert!(fault("[allowance]\ntokens_per_day = -1").contains("allowance.tokens_per_day"));
        assert!(fault("[allowance]\ntokens_per_day = \"1M\"").contains("1M"));
        assert!(fault("zone = \"Mars\"").contains("Mars"));
        assert!(fault("storage = \"disk\"").contains("disk"));
        assert!(fault("[accounts.\"\"]").contains("empty"));
        assert!(fault("[accounts.a]\nmodels = 1").contains("accounts.a.models"));
        assert!(fault("no toml").contains("no toml"));
    }
}
