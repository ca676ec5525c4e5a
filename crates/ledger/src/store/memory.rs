//! A ledger in memory: for tests, and for those who accept that a restart forgets it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};

use crate::{
    AccountId, AuditReport, ErrorKind, Freeing, LedgerError, Outcome, Reservation, Row, RowId,
    RowState, Settled, Settlement, StorageInfo, StorageKind, Total, TotalKey,
    audit::Auditor,
    decide::{self, Decision, Settling},
    total::Delta,
};

use super::{BATCH, LedgerStore, Reserving, RowQuery, StoreFuture, StoreInfo};

/// Keeps everything in memory, behind one lock that is never held across an await.
///
/// Its futures do all their work in one poll, so dropping one either did nothing or all of it.
#[derive(Debug)]
pub struct MemoryStore {
    freeing: Freeing,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    freeing: Freeing,
    storage: StorageInfo,
    rows: BTreeMap<u64, Row>,
    totals: HashMap<TotalKey, Total>,
    /// The newest row of an account with this idempotency key.
    keys: HashMap<(AccountId, String), u64>,
    last: u64,
}

impl MemoryStore {
    /// An empty ledger, made at `now`.
    #[must_use]
    pub fn new(now: DateTime<Utc>) -> Self {
        let storage = StorageInfo {
            kind: StorageKind::Memory,
            path: None,
            created_at: now,
            ledger_id: format!("{:032x}", fastrand::u128(..)),
            just_created: true,
            vanishes: true,
        };
        let freeing = Freeing::default();
        let inner = Inner {
            freeing: freeing.clone(),
            storage,
            rows: BTreeMap::new(),
            totals: HashMap::new(),
            keys: HashMap::new(),
            last: 0,
        };
        Self { freeing, inner: Mutex::new(inner) }
    }

    /// Does `work` when the future is polled, not when it is made.
    fn run<T: Send>(
        &self,
        work: impl FnOnce(&mut Inner) -> Result<T, LedgerError> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move { work(&mut self.lock()) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is decided before the first write, so a poisoned lock holds whole data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerStore for MemoryStore {
    fn freeing(&self) -> &Freeing {
        &self.freeing
    }

    fn info(&self) -> StoreFuture<'_, StoreInfo> {
        self.run(|inner| {
            let open = inner.rows.values().filter(|row| row.state == RowState::Reserved).count();
            let storage = inner.storage.clone();
            Ok(StoreInfo { storage, rows: inner.rows.len() as u64, open: open as u64 })
        })
    }

    fn reserve(&self, reservation: Reservation) -> StoreFuture<'_, Reserving> {
        self.run(move |inner| {
            if let Some(replayed) = decide::repeats(inner.same_key(&reservation), &reservation)? {
                return Ok(Reserving::Replayed(replayed));
            }
            let decision = decide::reserve(&reservation, |key| inner.total(key))?;
            Ok(inner.carry_out(decision, &reservation))
        })
    }

    fn settle(&self, settlement: Settlement) -> StoreFuture<'_, Settled> {
        self.run(move |inner| {
            let settling = decide::settle(inner.row(settlement.id)?, &settlement)?;
            Ok(inner.write(settling))
        })
    }

    fn turn_over(
        &self,
        settlement: Settlement,
        next: Reservation,
    ) -> StoreFuture<'_, (Settled, Reserving)> {
        self.run(move |inner| {
            let row = inner.row(settlement.id)?;
            let (settling, decision) =
                decide::turn_over(row, &settlement, &next, |key| inner.total(key))?;
            Ok((inner.write(settling), inner.carry_out(decision, &next)))
        })
    }

    fn renew(&self, id: RowId, now: DateTime<Utc>) -> StoreFuture<'_, RowState> {
        self.run(move |inner| {
            let row = inner.row(id)?;
            let state = row.state;
            if let Some(renewed) = decide::renew(row, now) {
                inner.rows.insert(id.seq, renewed);
            }
            Ok(state)
        })
    }

    fn sweep(&self, now: DateTime<Utc>, age: Duration) -> StoreFuture<'_, Vec<Row>> {
        self.run(move |inner| {
            let silent = inner.rows.values().filter_map(|row| decide::sweep(row, now, age));
            let swept: Vec<_> = silent.take(BATCH).collect();
            for (row, delta) in &swept {
                inner.replace(row.clone(), *delta);
            }
            Ok(swept.into_iter().map(|(row, _)| row).collect())
        })
    }

    fn prune(&self, now: DateTime<Utc>, keep: Duration) -> StoreFuture<'_, usize> {
        self.run(move |inner| {
            let old = inner.rows.values();
            let old = old.filter_map(|row| Some((row.id, decide::prune(row, now, keep)?)));
            let old: Vec<_> = old.take(BATCH).collect();
            for (id, delta) in &old {
                let Some(row) = inner.rows.remove(&id.seq) else { continue };
                inner.add(&row, *delta);
                inner.forget_key(row);
            }
            Ok(old.len())
        })
    }

    fn totals(&self, keys: Vec<TotalKey>) -> StoreFuture<'_, Vec<Total>> {
        self.run(move |inner| Ok(keys.iter().map(|key| inner.total(key)).collect()))
    }

    fn rows(&self, query: RowQuery) -> StoreFuture<'_, Vec<Row>> {
        self.run(move |inner| {
            let after = inner.rows.range(query.after.saturating_add(1)..);
            let found = after.map(|(_, row)| row).filter(|row| query.matches(row));
            Ok(found.take(query.limit).cloned().collect())
        })
    }

    fn recent(&self, count: usize) -> StoreFuture<'_, Vec<Row>> {
        self.run(move |inner| {
            let answered =
                |row: &&Row| row.outcome == Some(Outcome::Answered) && row.usage.is_some();
            Ok(inner.rows.values().rev().filter(answered).take(count).cloned().collect())
        })
    }

    fn audit(&self) -> StoreFuture<'_, AuditReport> {
        self.run(|inner| {
            let mut auditor = Auditor::default();
            inner.rows.values().for_each(|row| auditor.row(row));
            inner.totals.iter().for_each(|(key, total)| auditor.total(key.clone(), *total));
            Ok(auditor.finish())
        })
    }
}

impl Inner {
    fn total(&self, key: &TotalKey) -> Total {
        self.totals.get(key).copied().unwrap_or_default()
    }

    fn row(&self, id: RowId) -> Result<&Row, LedgerError> {
        let found = self.rows.get(&id.seq).filter(|row| row.id == id);
        found.ok_or_else(|| LedgerError::new(ErrorKind::UnknownId, format!("there is no row {id}")))
    }

    fn same_key(&self, reservation: &Reservation) -> Option<&Row> {
        let key = &reservation.ask.idempotency.as_ref()?.key;
        self.rows.get(self.keys.get(&(reservation.account.clone(), key.clone()))?)
    }

    /// Forgets the idempotency key of a row that is gone, unless a newer one has it.
    fn forget_key(&mut self, row: Row) {
        let Some(idempotency) = row.idempotency else { return };
        let key = (row.account, idempotency.key);
        if self.keys.get(&key) == Some(&row.id.seq) {
            self.keys.remove(&key);
        }
    }

    fn carry_out(&mut self, decision: Decision, reservation: &Reservation) -> Reserving {
        let (delta, fullest) = match decision {
            Decision::Denied(denied) => return Reserving::Denied(denied),
            Decision::Grant(delta, fullest) => (delta, fullest),
        };
        self.last += 1;
        let row = Row::reserved(RowId::fresh(self.last), reservation);
        if let Some(idempotency) = &row.idempotency {
            self.keys.insert((row.account.clone(), idempotency.key.clone()), self.last);
        }
        self.replace(row.clone(), delta);
        Reserving::Granted(Box::new(row), fullest)
    }

    fn write(&mut self, settling: Settling) -> Settled {
        match settling {
            Settling::Write(row, delta, settled) => {
                self.replace(*row, delta);
                settled
            }
            Settling::Nothing(settled) => settled,
        }
    }

    fn replace(&mut self, row: Row, delta: Delta) {
        self.add(&row, delta);
        self.rows.insert(row.id.seq, row);
        if delta.frees() {
            self.freeing.tell();
        }
    }

    fn add(&mut self, row: &Row, delta: Delta) {
        for key in row.total_keys() {
            let total = self.totals.entry(key).or_default();
            *total = total.after(delta);
        }
    }
}
