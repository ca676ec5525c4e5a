//! How a ledger is described and opened.

use std::{path::PathBuf, sync::Arc, time::Duration};

use keywheel_core::{Clock, SystemClock};

use crate::{
    Durability, ErrorKind, Ledger, LedgerConfig, LedgerError, LedgerRules, LedgerStore, Limit,
    MemoryStore, SqliteStore,
    ledger::{Settings, warn_of_overcommitments},
};

/// How long a holder may be silent until the sweep ends its row: 900 seconds.
pub const SWEEP_AFTER: Duration = Duration::from_secs(900);
/// How often the ledger sweeps by itself: every 60 seconds.
pub const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How long rows are kept: 90 days.
pub const KEEP_ROWS: Duration = Duration::from_hours(90 * 24);

/// Describes a ledger. Bad values are reported by [`open`](Self::open), all setters take anything.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use keywheel_core::{Clock, ManualClock};
/// use keywheel_ledger::{Durability, Ledger, LedgerRules, Limit, MemoryStore, Period};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), keywheel_ledger::LedgerError> {
/// let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().expect("a moment"));
/// let rules = LedgerRules::new().account("triage", [Limit::calls(Period::Day, 500)])?;
/// let ledger = Ledger::builder()
///     .rules(rules)
///     .zone(chrono_tz::UTC)
///     .clock(Arc::new(clock.clone()))
///     .sweep_after(Duration::from_secs(120))
///     .sweep_every(Duration::from_secs(30))
///     .keep_rows(Duration::from_secs(30 * 86_400))
///     .store(Arc::new(MemoryStore::new(clock.now()))) // or `path`, or `in_memory`
///     .open()
///     .await?;
/// assert_eq!(ledger.sweep_after(), Duration::from_secs(120));
///
/// // In a file that has to be there: a cap must not start anew because a disk was not mounted.
/// # let folder = tempfile::tempdir().expect("a folder");
/// let file = folder.path().join("ledger.db");
/// let demanding = Ledger::builder().path(file).durability(Durability::RequireExisting);
/// assert!(demanding.open().await.is_err());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct LedgerBuilder {
    rules: LedgerRules,
    place: Place,
    durability: Durability,
    clock: Arc<dyn Clock>,
    settings: Settings,
    fault: Option<LedgerError>,
}

/// Where the rows are kept.
#[derive(Debug, Clone)]
enum Place {
    /// This file, else the one that the environment or the platform names.
    File(Option<PathBuf>),
    Memory,
    Store(Arc<dyn LedgerStore>),
}

impl LedgerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            rules: LedgerRules::new(),
            place: Place::File(None),
            durability: Durability::default(),
            clock: Arc::new(SystemClock),
            settings: Settings {
                sweep_after: SWEEP_AFTER,
                sweep_every: SWEEP_EVERY,
                keep_rows: KEEP_ROWS,
            },
            fault: None,
        }
    }

    /// With an account of this name and these limits. None of its own: the allowance alone limits
    /// it.
    pub fn account(mut self, name: &str, limits: impl IntoIterator<Item = Limit>) -> Self {
        match self.rules.clone().account(name, limits) {
            Ok(rules) => self.rules = rules,
            Err(fault) => self.fault = self.fault.or(Some(fault)),
        }
        self
    }

    /// With these limits on all accounts together. Defaults to none.
    pub fn allowance(mut self, limits: impl IntoIterator<Item = Limit>) -> Self {
        self.rules = self.rules.allowance(limits);
        self
    }

    /// With days and months that turn in `zone`. Defaults to Pacific, where Google's do.
    pub fn zone(mut self, zone: chrono_tz::Tz) -> Self {
        self.rules = self.rules.zone(zone);
        self
    }

    /// With these rules in the place of all that was said so far of accounts, allowance and zone.
    pub fn rules(mut self, rules: LedgerRules) -> Self {
        self.rules = rules;
        self
    }

    /// With everything that a configuration says.
    pub fn config(mut self, config: LedgerConfig) -> Self {
        if let Some(path) = config.path {
            self.place = Place::File(Some(path));
        }
        self.durability = config.durability.unwrap_or(self.durability);
        self.settings.sweep_after = config.sweep_after.unwrap_or(self.settings.sweep_after);
        self.settings.keep_rows = config.keep_rows.unwrap_or(self.settings.keep_rows);
        self.rules(config.rules)
    }

    /// In this file. Defaults to what `KEYWHEEL_LEDGER` or `LEDGER_DB` name, else
    /// `keywheel/ledger.db` in the platform's state folder.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.place = Place::File(Some(path.into()));
        self
    }

    /// In memory: for tests, and for caps that may start anew with the process.
    pub fn in_memory(mut self) -> Self {
        self.place = Place::Memory;
        self
    }

    /// In a store of your own.
    pub fn store(mut self, store: Arc<dyn LedgerStore>) -> Self {
        self.place = Place::Store(store);
        self
    }

    /// With these demands on the file's storage. Defaults to [`Durability::Create`].
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// By this clock. Defaults to the machine's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// With rows swept once their holders have been silent for so long. Defaults to 900 seconds;
    /// longer than any call that does not renew. 0 is refused: it would end every row at once.
    pub const fn sweep_after(mut self, age: Duration) -> Self {
        self.settings.sweep_after = age;
        self
    }

    /// With a sweep so often. Defaults to 60 seconds; at least one.
    pub const fn sweep_every(mut self, pause: Duration) -> Self {
        self.settings.sweep_every = pause;
        self
    }

    /// With rows kept for so long. Defaults to 90 days.
    pub const fn keep_rows(mut self, age: Duration) -> Self {
        self.settings.keep_rows = age;
        self
    }

    /// Opens the ledger: sweeps what crashed, learns how far estimates were off, and starts the
    /// task that sweeps from there on, if there is a tokio runtime. The task ends with the last
    /// clone of the ledger.
    ///
    /// # Errors
    /// Bad values, and whatever keeps the store from being opened and written.
    ///
    /// # Cancel safety
    /// Dropped at an await, nothing is left running; what was swept stays swept.
    pub async fn open(mut self) -> Result<Ledger, LedgerError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.settings.sweep_after.is_zero() {
            return Err(LedgerError::new(ErrorKind::Invalid, "rows cannot be swept after 0 s"));
        }
        self.settings.sweep_every = self.settings.sweep_every.max(Duration::from_secs(1));
        warn_of_overcommitments(&self.rules);
        let store: Arc<dyn LedgerStore> = match self.place {
            Place::Memory => Arc::new(MemoryStore::new(self.clock.now())),
            Place::Store(store) => store,
            Place::File(path) => {
                let (path, now) = (path.as_deref(), self.clock.now());
                Arc::new(SqliteStore::open(path, self.durability, now).await?)
            }
        };
        let ledger = Ledger::new(store, self.clock, self.rules, self.settings);
        ledger.begin().await?;
        Ok(ledger)
    }
}
