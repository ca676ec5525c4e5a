//! A ledger described in TOML.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub use keywheel_settings::Fault as ConfigFault;
use keywheel_settings::{Section, read as read_settings, words};

use crate::{
    AccountId, AccountRules, Durability, ErrorKind, LedgerError, LedgerRules, Limit, Period, Unit,
    rules::check_model,
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
    /// ```
    /// use keywheel_ledger::LedgerConfig;
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// let file = folder.path().join("keywheel.toml");
    /// std::fs::write(&file, "[ledger]\npath = \"ledger.db\"").expect("it can be written");
    /// let config = LedgerConfig::from_file(&file)?;
    /// assert_eq!(config.path, Some(folder.path().join("ledger.db")));
    /// # Ok::<(), keywheel_ledger::LedgerError>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] with the file's name, also if it cannot be read.
    pub fn from_file(file: impl AsRef<Path>) -> Result<Self, LedgerError> {
        let file = file.as_ref();
        let text = fs::read_to_string(file).map_err(|error| {
            LedgerError::new(ErrorKind::Invalid, format!("{}: {error}", file.display()))
        })?;
        let config = read(&text, &file.display().to_string())?;
        let folder = file.parent().unwrap_or(Path::new(""));
        Ok(Self { path: config.path.map(|path| folder.join(path)), ..config })
    }

    /// Reads the `[ledger]` section of `text` if there is one, else the whole text.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what is no TOML, a word that is not known (a mistyped limit must
    /// not be no limit), and a value out of range: all of them at once, each with its line and
    /// column. No line of the text is repeated: it may hold a key.
    pub fn from_toml(text: &str) -> Result<Self, LedgerError> {
        read(text, "the ledger's configuration")
    }

    /// The same, for those who tell the faults in their own way.
    ///
    /// ```
    /// use keywheel_ledger::LedgerConfig;
    ///
    /// let faults = LedgerConfig::parse("[ledger]\nzone = 3\ncap = 5").unwrap_err();
    /// assert_eq!((faults[0].line, faults[0].column), (2, 8));
    /// assert!(faults[1].what.starts_with("ledger.cap: is not a setting"));
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the text; never empty.
    pub fn parse(text: &str) -> Result<Self, Vec<ConfigFault>> {
        read_settings(text, |mut whole| {
            let own = if whole.has("ledger") { whole.table("ledger") } else { Some(whole) };
            own.map(Self::from_section).unwrap_or_default()
        })
    }

    /// The same of one section of a larger file, in which accounts and allowance may stand elsewhere.
    ///
    /// ```
    /// use keywheel_ledger::{LedgerConfig, Limit};
    /// use keywheel_settings::read;
    ///
    /// let text = "[budget]\nkeep_days = 30\n[team]\ncalls_per_day = 500";
    /// let (ledger, limits) = read(text, |mut whole| {
    ///     let ledger = whole.table("budget").map(LedgerConfig::from_section);
    ///     let mut team = whole.table("team").unwrap();
    ///     let limits = Limit::all_in(&mut team, "models");
    ///     team.end();
    ///     (ledger.unwrap(), limits)
    /// })
    /// .unwrap();
    /// assert_eq!(ledger.keep_rows.unwrap().as_secs(), 30 * 86_400);
    /// assert_eq!(limits[0].to_string(), "500 calls a day");
    /// ```
    #[must_use]
    pub fn from_section(section: Section<'_>) -> Self {
        ledger(section)
    }
}

impl Limit {
    /// The limits that stand in `section`, and in those by model in its section `by_model` (`models."m"`). What is
    /// wrong is noted there.
    #[must_use]
    pub fn all_in(section: &mut Section<'_>, by_model: &'static str) -> Vec<Self> {
        let mut found = caps(section);
        let models = section.table(by_model).map(|models| models.named("model"));
        for (model, mut own) in models.into_iter().flatten() {
            if let Err(fault) = check_model(&model) {
                own.own_fault(&fault.to_string());
            }
            found.extend(caps(&mut own).into_iter().map(|limit| limit.for_model(&model)));
            own.end();
        }
        found
    }
}

/// Reads `text`, which is called `name` in faults: a line each, in the form that editors follow.
fn read(text: &str, name: &str) -> Result<LedgerConfig, LedgerError> {
    LedgerConfig::parse(text).map_err(|faults| {
        let told = match faults.as_slice() {
            [fault] => format!("{name}:{fault}"),
            faults => {
                let lines = faults.iter().map(|fault| format!("\n  {name}:{fault}"));
                format!("{} things are wrong:{}", faults.len(), lines.collect::<String>())
            }
        };
        LedgerError::new(ErrorKind::Invalid, told)
    })
}

const STORAGE: [(&str, Durability); 4] = [
    ("create", Durability::Create),
    ("require_existing", Durability::RequireExisting),
    ("init", Durability::Init),
    ("ephemeral_ok", Durability::EphemeralOk),
];

/// The words for limits.
const LIMITS: [(&str, Unit, Period); 6] = [
    ("tokens_per_day", Unit::Tokens, Period::Day),
    ("tokens_per_month", Unit::Tokens, Period::Month),
    ("tokens_total", Unit::Tokens, Period::Total),
    ("calls_per_day", Unit::Calls, Period::Day),
    ("calls_per_month", Unit::Calls, Period::Month),
    ("calls_total", Unit::Calls, Period::Total),
];

/// What the section says; what is wrong with it is among its faults.
fn ledger(mut section: Section<'_>) -> LedgerConfig {
    let mut rules = LedgerRules::new();
    let config = LedgerConfig {
        path: section.text("path", "the name of a file", words::path).map(PathBuf::from),
        durability: section.choice("storage", &STORAGE),
        sweep_after: section.number("sweep_after_seconds", 1).map(Duration::from_secs),
        keep_rows: section
            .number("keep_days", 0)
            .map(|days| Duration::from_secs(days.saturating_mul(86_400))),
        rules: LedgerRules::new(),
    };
    let zone = section.text("zone", "a time zone such as America/Los_Angeles", |text| {
        text.parse().map_err(|_| "must be a time zone such as UTC or America/Los_Angeles".into())
    });
    rules.zone = zone.unwrap_or(rules.zone);
    rules.any_account = section.boolean("any_account").unwrap_or(rules.any_account);
    rules.charge_timeouts = section.boolean("charge_timeouts").unwrap_or(rules.charge_timeouts);
    if let Some(mut allowance) = section.table("allowance") {
        rules.allowance = Limit::all_in(&mut allowance, "models");
        allowance.end();
    }
    if let Some(accounts) = section.table("accounts") {
        for (name, mut own) in accounts.named("account") {
            let limits = Limit::all_in(&mut own, "models");
            let default_max_output = own.number("default_max_output", 0);
            match AccountId::new(&name) {
                Ok(account) => {
                    let own = AccountRules { limits, default_max_output };
                    rules.accounts.insert(account, own);
                }
                Err(fault) => own.own_fault(&fault.to_string()),
            }
            own.end();
        }
    }
    section.end();
    LedgerConfig { rules, ..config }
}

fn caps(section: &mut Section<'_>) -> Vec<Limit> {
    let cap = |(word, unit, period)| Some(Limit::new(unit, period, section.number(word, 0)?));
    LIMITS.into_iter().filter_map(cap).collect()
}

#[cfg(test)]
mod tests;
