//! The suite catches the store that everybody writes first: look at the sum, then insert.
//!
//! <https://github.com/BerriAI/litellm/issues/34732>: a session's budget overspent by concurrent
//! calls, each of which saw room that the others took.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use keywheel_ledger::{
    AuditReport, ErrorKind, Freeing, LedgerError, LedgerStore, MemoryStore, Reservation, Reserving,
    Row, RowId, RowQuery, RowState, Settled, Settlement, StoreInfo, Total, TotalKey,
    audit::Auditor,
    conformance::CASES,
    decide::{self, Decision, Settling},
    store::{BATCH, StoreFuture},
};

/// Right in everything but one thing: between what it reads and what it writes, others may write.
#[derive(Debug, Default)]
struct NaiveStore {
    freeing: Freeing,
    rows: Mutex<BTreeMap<u64, Row>>,
    last: AtomicU64,
}

impl NaiveStore {
    /// `SELECT * FROM rows`, from a database that takes a moment.
    async fn select(&self) -> BTreeMap<u64, Row> {
        tokio::task::yield_now().await;
        let rows = self.rows.lock().unwrap().clone();
        tokio::task::yield_now().await;
        rows
    }

    /// `INSERT OR REPLACE`.
    fn insert(&self, row: Row) {
        self.rows.lock().unwrap().insert(row.id.seq, row);
    }

    fn grant(&self, decision: Decision, reservation: &Reservation) -> Reserving {
        match decision {
            Decision::Denied(denied) => Reserving::Denied(denied),
            Decision::Grant(_, fullest) => {
                let seq = self.last.fetch_add(1, Ordering::Relaxed) + 1;
                let row = Row::reserved(RowId::fresh(seq), reservation);
                self.insert(row.clone());
                Reserving::Granted(Box::new(row), fullest)
            }
        }
    }

    fn settled(&self, settling: Settling) -> Settled {
        let settled = settling.settled();
        if let Settling::Write(row, ..) = settling {
            self.insert(*row);
        }
        settled
    }
}

/// `SELECT SUM(COALESCE(actual, estimate))`.
fn total(rows: &BTreeMap<u64, Row>, key: &TotalKey) -> Total {
    let mut total = Total::default();
    for row in rows.values().filter(|row| row.total_keys().contains(key)) {
        match row.charged {
            Some(charged) => {
                total.tokens.settled += charged.tokens;
                total.calls.settled += charged.calls;
            }
            None => {
                total.tokens.reserved += row.amount().tokens;
                total.calls.reserved += row.amount().calls;
            }
        }
    }
    total
}

fn find(rows: &BTreeMap<u64, Row>, id: RowId) -> Result<&Row, LedgerError> {
    let row = rows.get(&id.seq).filter(|row| row.id == id);
    row.ok_or_else(|| LedgerError::new(ErrorKind::UnknownId, "no such row"))
}

impl LedgerStore for NaiveStore {
    fn freeing(&self) -> &Freeing {
        &self.freeing
    }

    fn info(&self) -> StoreFuture<'_, StoreInfo> {
        Box::pin(async move {
            let rows = self.select().await;
            let open = rows.values().filter(|row| row.state == RowState::Reserved).count() as u64;
            let storage = MemoryStore::new(DateTime::UNIX_EPOCH).info().await?.storage;
            let storage = keywheel_ledger::StorageInfo { ledger_id: "naive".into(), ..storage };
            Ok(StoreInfo { storage, rows: rows.len() as u64, open })
        })
    }

    fn reserve(&self, reservation: Reservation) -> StoreFuture<'_, Reserving> {
        Box::pin(async move {
            let rows = self.select().await;
            let same = rows.values().rev().find(|row| {
                let key = |row: &Row| row.idempotency.as_ref().map(|one| one.key.clone());
                let asked = reservation.ask.idempotency.as_ref().map(|one| one.key.clone());
                asked.is_some() && key(row) == asked && row.account == reservation.account
            });
            if let Some(replayed) = decide::repeats(same, &reservation)? {
                return Ok(Reserving::Replayed(replayed));
            }
            let decision = decide::reserve(&reservation, |key| total(&rows, key))?;
            Ok(self.grant(decision, &reservation))
        })
    }

    fn settle(&self, settlement: Settlement) -> StoreFuture<'_, Settled> {
        Box::pin(async move {
            let rows = self.select().await;
            let settling = decide::settle(find(&rows, settlement.id)?, &settlement)?;
            Ok(self.settled(settling))
        })
    }

    fn turn_over(
        &self,
        settlement: Settlement,
        next: Reservation,
    ) -> StoreFuture<'_, (Settled, Reserving)> {
        Box::pin(async move {
            let rows = self.select().await;
            let row = find(&rows, settlement.id)?;
            let (settling, decision) =
                decide::turn_over(row, &settlement, &next, |key| total(&rows, key))?;
            Ok((self.settled(settling), self.grant(decision, &next)))
        })
    }

    fn renew(&self, id: RowId, now: DateTime<Utc>) -> StoreFuture<'_, RowState> {
        Box::pin(async move {
            let rows = self.select().await;
            let row = find(&rows, id)?;
            decide::renew(row, now).into_iter().for_each(|row| self.insert(row));
            Ok(row.state)
        })
    }

    fn sweep(&self, now: DateTime<Utc>, age: Duration) -> StoreFuture<'_, Vec<Row>> {
        Box::pin(async move {
            let rows = self.select().await;
            let silent = rows.values().filter_map(|row| decide::sweep(row, now, age));
            let swept: Vec<_> = silent.take(BATCH).map(|(row, _)| row).collect();
            swept.iter().for_each(|row| self.insert(row.clone()));
            Ok(swept)
        })
    }

    fn prune(&self, now: DateTime<Utc>, keep: Duration) -> StoreFuture<'_, usize> {
        Box::pin(async move {
            let rows = self.select().await;
            let old = rows.values().filter(|row| decide::prune(row, now, keep).is_some());
            let mut kept = self.rows.lock().unwrap();
            Ok(old.filter_map(|row| kept.remove(&row.id.seq)).count())
        })
    }

    fn totals(&self, keys: Vec<TotalKey>) -> StoreFuture<'_, Vec<Total>> {
        Box::pin(async move {
            let rows = self.select().await;
            Ok(keys.iter().map(|key| total(&rows, key)).collect())
        })
    }

    fn rows(&self, query: RowQuery) -> StoreFuture<'_, Vec<Row>> {
        Box::pin(async move {
            let rows = self.select().await.into_values();
            Ok(rows.filter(|row| query.matches(row)).take(query.limit).collect())
        })
    }

    fn recent(&self, count: usize) -> StoreFuture<'_, Vec<Row>> {
        Box::pin(async move {
            let rows = self.select().await.into_values().rev();
            let answered = rows.filter(|row| {
                row.usage.is_some() && row.outcome == Some(keywheel_ledger::Outcome::Answered)
            });
            Ok(answered.take(count).collect())
        })
    }

    fn audit(&self) -> StoreFuture<'_, AuditReport> {
        Box::pin(async move {
            let rows = self.select().await;
            let mut auditor = Auditor::default();
            let keys =
                rows.values().flat_map(Row::total_keys).collect::<std::collections::HashSet<_>>();
            rows.values().for_each(|row| auditor.row(row));
            keys.into_iter().for_each(|key| auditor.total(key.clone(), total(&rows, &key)));
            Ok(auditor.finish())
        })
    }
}

/// Which cases it does not pass.
async fn failures() -> Vec<&'static str> {
    let mut failed = Vec::new();
    for case in CASES {
        let run = tokio::spawn(case.run(Arc::new(NaiveStore::default())));
        if run.await.is_err() {
            failed.push(case.name());
        }
    }
    failed
}

// On one thread, so that it always goes wrong: each task comes so far as to its next await in turn.
#[tokio::test]
async fn the_suite_fails_on_a_store_that_selects_and_then_inserts() {
    let failed = failures().await;
    for name in [
        "ten_callers_of_300_get_exactly_three",
        "sixty_four_tasks_never_pass_a_cap_and_leave_no_unit_unusable",
        "every_limit_holds_at_once_under_load",
        "of_many_repeats_at_once_one_is_granted",
        "two_sweepers_end_each_row_once",
        "a_sweep_racing_settlements_leaves_the_true_figures",
    ] {
        assert!(failed.contains(&name), "{name} passes; only these fail: {failed:?}");
    }
    // It is wrong in nothing that one caller alone can see, but for the totals of pruned rows. What
    // fails besides is the fault that the suite is there to find, and not that the store is poor.
    for name in ["a_cap_of_1000_takes_600_once", "a_random_history_agrees_with_the_model"] {
        assert!(!failed.contains(&name), "{name} fails: {failed:?}");
    }
}
