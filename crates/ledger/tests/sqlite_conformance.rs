//! The SQLite store keeps the contract: through one handle, and through three handles on one file
//! that take turns, so that none of them may trust what it remembers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use keywheel_ledger::{
    AuditReport, Durability, Freeing, LedgerError, LedgerStore, Reservation, Reserving, Row, RowId,
    RowQuery, RowState, Settled, Settlement, SqliteStore, StoreInfo, Total, TotalKey,
    store::StoreFuture,
};
use tempfile::TempDir;

mod one_handle {
    async fn new() -> super::Opened {
        super::handles(1).await
    }

    keywheel_ledger::conformance_tests!(new);
}

mod three_handles_on_one_file {
    async fn new() -> super::Opened {
        super::handles(3).await
    }

    keywheel_ledger::conformance_tests!(new);
}

type Opened = Result<Arc<dyn LedgerStore>, LedgerError>;

async fn handles(count: usize) -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let now = "2026-11-30T12:00:00Z".parse().unwrap();
    let mut handles = Vec::new();
    for _ in 0..count {
        handles.push(SqliteStore::open(Some(&path), Durability::Create, now).await?);
    }
    Ok(Arc::new(Handles { handles, turn: AtomicUsize::new(0), _folder: folder }))
}

/// Handles on one file; every operation goes through the next.
#[derive(Debug)]
struct Handles {
    handles: Vec<SqliteStore>,
    turn: AtomicUsize,
    /// Removed after the handles are closed.
    _folder: TempDir,
}

impl Handles {
    fn next(&self) -> &SqliteStore {
        &self.handles[self.turn.fetch_add(1, Ordering::Relaxed) % self.handles.len()]
    }
}

impl LedgerStore for Handles {
    fn freeing(&self) -> &Freeing {
        // Each tells of what it wrote itself; nothing here listens.
        self.handles[0].freeing()
    }

    fn info(&self) -> StoreFuture<'_, StoreInfo> {
        // Which of them made the file, each says for itself.
        self.handles[0].info()
    }

    fn reserve(&self, reservation: Reservation) -> StoreFuture<'_, Reserving> {
        self.next().reserve(reservation)
    }

    fn settle(&self, settlement: Settlement) -> StoreFuture<'_, Settled> {
        self.next().settle(settlement)
    }

    fn turn_over(
        &self,
        settlement: Settlement,
        next: Reservation,
    ) -> StoreFuture<'_, (Settled, Reserving)> {
        self.next().turn_over(settlement, next)
    }

    fn renew(&self, id: RowId, now: DateTime<Utc>) -> StoreFuture<'_, RowState> {
        self.next().renew(id, now)
    }

    fn sweep(&self, now: DateTime<Utc>, age: Duration) -> StoreFuture<'_, Vec<Row>> {
        self.next().sweep(now, age)
    }

    fn prune(&self, now: DateTime<Utc>, keep: Duration) -> StoreFuture<'_, usize> {
        self.next().prune(now, keep)
    }

    fn totals(&self, keys: Vec<TotalKey>) -> StoreFuture<'_, Vec<Total>> {
        self.next().totals(keys)
    }

    fn rows(&self, query: RowQuery) -> StoreFuture<'_, Vec<Row>> {
        self.next().rows(query)
    }

    fn recent(&self, count: usize) -> StoreFuture<'_, Vec<Row>> {
        self.next().recent(count)
    }

    fn audit(&self) -> StoreFuture<'_, AuditReport> {
        self.next().audit()
    }
}
