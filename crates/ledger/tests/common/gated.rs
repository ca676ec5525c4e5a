//! A store that waits before and after its work, and can be told to fail.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use keywheel_ledger::{
    AuditReport, ErrorKind, Freeing, LedgerError, LedgerStore, MemoryStore, Reservation, Reserving,
    Row, RowId, RowQuery, RowState, Settled, Settlement, StoreInfo, Total, TotalKey,
    store::StoreFuture,
};

/// Every operation is pending twice: before it works, and after it. While `broken`, it fails.
#[derive(Debug, Clone)]
pub(crate) struct Gated {
    store: Arc<MemoryStore>,
    broken: Arc<AtomicBool>,
}

impl Gated {
    pub(crate) fn new() -> Self {
        let store = Arc::new(MemoryStore::new(DateTime::UNIX_EPOCH));
        Self { store, broken: Arc::default() }
    }

    pub(crate) fn set_broken(&self, broken: bool) {
        self.broken.store(broken, Ordering::Relaxed);
    }

    fn around<'a, T: Send + 'a>(&'a self, work: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.broken.load(Ordering::Relaxed) {
                return Err(LedgerError::new(ErrorKind::Store, "the disk is full"));
            }
            let answer = work.await;
            tokio::task::yield_now().await;
            answer
        })
    }
}

impl LedgerStore for Gated {
    fn freeing(&self) -> &Freeing {
        self.store.freeing()
    }

    fn info(&self) -> StoreFuture<'_, StoreInfo> {
        self.around(self.store.info())
    }

    fn reserve(&self, reservation: Reservation) -> StoreFuture<'_, Reserving> {
        self.around(self.store.reserve(reservation))
    }

    fn settle(&self, settlement: Settlement) -> StoreFuture<'_, Settled> {
        self.around(self.store.settle(settlement))
    }

    fn turn_over(
        &self,
        settlement: Settlement,
        next: Reservation,
    ) -> StoreFuture<'_, (Settled, Reserving)> {
        self.around(self.store.turn_over(settlement, next))
    }

    fn renew(&self, id: RowId, now: DateTime<Utc>) -> StoreFuture<'_, RowState> {
        self.around(self.store.renew(id, now))
    }

    fn sweep(&self, now: DateTime<Utc>, age: Duration) -> StoreFuture<'_, Vec<Row>> {
        self.around(self.store.sweep(now, age))
    }

    fn prune(&self, now: DateTime<Utc>, keep: Duration) -> StoreFuture<'_, usize> {
        self.around(self.store.prune(now, keep))
    }

    fn totals(&self, keys: Vec<TotalKey>) -> StoreFuture<'_, Vec<Total>> {
        self.around(self.store.totals(keys))
    }

    fn rows(&self, query: RowQuery) -> StoreFuture<'_, Vec<Row>> {
        self.around(self.store.rows(query))
    }

    fn recent(&self, count: usize) -> StoreFuture<'_, Vec<Row>> {
        self.around(self.store.recent(count))
    }

    fn audit(&self) -> StoreFuture<'_, AuditReport> {
        self.around(self.store.audit())
    }
}
