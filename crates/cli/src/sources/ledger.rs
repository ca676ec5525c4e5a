//! The ledger as a reading command opens it: nothing is swept, nothing is made.

use std::{path::PathBuf, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use keywheel::ledger::{
    AuditReport, Durability, ErrorKind, Freeing, Ledger, LedgerConfig, LedgerError, LedgerStore,
    Reservation, Reserving, Row, RowId, RowQuery, RowState, SWEEP_AFTER, Settled, Settlement,
    SqliteStore, StoreInfo, Total, TotalKey, store::StoreFuture,
};

use crate::{exit::Exit, fault::Fault, moment, settings};

/// Where the ledger lies, and by which rules.
#[derive(Debug)]
pub(crate) struct LedgerPlace {
    config: LedgerConfig,
    path: PathBuf,
}

impl LedgerPlace {
    /// The place that `config` or the environment names.
    ///
    /// # Errors
    /// There can be none, or no ledger is there: a command that only looks makes none, since a fresh one has fresh
    /// caps.
    pub(crate) fn find(config: LedgerConfig) -> Result<Self, Fault> {
        let path = SqliteStore::path(config.path.as_deref())?;
        if path.is_file() {
            return Ok(Self { config, path });
        }
        let what = format!("there is no ledger at {}", path.display());
        let hint = "name its configuration with --config, or its file in KEYWHEEL_LEDGER; the gateway makes it";
        Err(Fault::new(Exit::NewLedger, what).hint(hint))
    }

    /// How long a holder may be silent until the sweep ends its row.
    pub(crate) fn sweep_after(&self) -> Duration {
        self.config.sweep_after.unwrap_or(SWEEP_AFTER)
    }

    /// The store itself, for `sweep`: a ledger that is opened has swept already.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) async fn store(&self) -> Result<SqliteStore, LedgerError> {
        // Where it lies is the business of whoever spends; this only looks after it.
        let durability = Durability::EphemeralOk;
        SqliteStore::open(Some(&self.path), durability, moment::now()).await
    }

    /// The store, for what only reads. Opening it for writing comes first, since it checks what was not closed in order;
    /// but who looks because the disk is full, or because somebody keeps the ledger, is to see it all the same.
    async fn store_to_look(&self) -> Result<SqliteStore, LedgerError> {
        match self.store().await {
            Err(error) if error.kind() == ErrorKind::Store => {
                SqliteStore::open_to_look(Some(&self.path)).await.map_err(|_| error)
            }
            opened => opened,
        }
    }

    /// The ledger, to be changed: opening it sweeps.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) async fn open(self) -> Result<Ledger, Fault> {
        let store = Arc::new(self.store().await?);
        Ok(settings::describe(self.config).store(store).open().await?)
    }
}

/// The ledger, to be looked at. Rows of a gateway that allows long silence are not swept because somebody looks from
/// a shell without its configuration.
///
/// # Errors
/// As [`LedgerPlace::find`], and whatever keeps it from being opened.
pub(crate) async fn looking(config: LedgerConfig) -> Result<Ledger, Fault> {
    let place = LedgerPlace::find(config)?;
    let store = Arc::new(Looking(place.store_to_look().await?));
    Ok(settings::describe(place.config).store(store).open().await?)
}

/// A store that reads, and writes nothing on its own account.
#[derive(Debug)]
struct Looking(SqliteStore);

impl LedgerStore for Looking {
    fn freeing(&self) -> &Freeing {
        self.0.freeing()
    }

    fn info(&self) -> StoreFuture<'_, StoreInfo> {
        self.0.info()
    }

    fn reserve(&self, reservation: Reservation) -> StoreFuture<'_, Reserving> {
        self.0.reserve(reservation)
    }

    fn settle(&self, settlement: Settlement) -> StoreFuture<'_, Settled> {
        self.0.settle(settlement)
    }

    fn turn_over(
        &self,
        settlement: Settlement,
        next: Reservation,
    ) -> StoreFuture<'_, (Settled, Reserving)> {
        self.0.turn_over(settlement, next)
    }

    fn renew(&self, id: RowId, now: DateTime<Utc>) -> StoreFuture<'_, RowState> {
        self.0.renew(id, now)
    }

    /// Nothing: whoever spends sweeps, by its own settings.
    fn sweep(&self, _: DateTime<Utc>, _: Duration) -> StoreFuture<'_, Vec<Row>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// As [`sweep`](Self::sweep).
    fn prune(&self, _: DateTime<Utc>, _: Duration) -> StoreFuture<'_, usize> {
        Box::pin(async { Ok(0) })
    }

    fn totals(&self, keys: Vec<TotalKey>) -> StoreFuture<'_, Vec<Total>> {
        self.0.totals(keys)
    }

    fn rows(&self, query: RowQuery) -> StoreFuture<'_, Vec<Row>> {
        self.0.rows(query)
    }

    fn recent(&self, count: usize) -> StoreFuture<'_, Vec<Row>> {
        self.0.recent(count)
    }

    fn audit(&self) -> StoreFuture<'_, AuditReport> {
        self.0.audit()
    }
}
