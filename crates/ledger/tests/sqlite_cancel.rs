//! Hazards of callers who go away: dropped at any await, a reservation is not left over, and a
//! settlement is not lost.
//!
//! <https://github.com/SatcherInstitute/health-equity-tracker/issues/5170>: a reservation was not
//! released when its call failed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod processes;

use std::{
    fs::{self, File},
    future::Future,
    path::Path,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use keywheel_ledger::{
    Durability, LedgerStore, Reserving, RowState, SqliteStore, store::StoreFuture,
};
use processes::*;

const CAP: u64 = 1_000_000;

/// Polls once, as a runtime does before it drops a task.
fn poll<T>(future: &mut Pin<Box<impl Future<Output = T> + ?Sized>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Everybody else's turn: nothing is written until it is dropped.
fn hold(file: &Path) -> File {
    let turn = File::options().write(true).open(file.with_file_name("ledger.db.turn")).unwrap();
    turn.lock().unwrap();
    turn
}

fn reserved(store: &SqliteStore) -> u64 {
    block_on(all(store)).tokens.reserved
}

fn ask(store: &SqliteStore, tokens: u64) -> StoreFuture<'_, Reserving> {
    store.reserve(reservation(&rules(CAP), tokens))
}

#[test]
fn a_reservation_dropped_before_its_turn_is_never_written() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    let turn = hold(&file);
    // More than fit into the queue: some wait to get in, some are in it.
    let mut asked: Vec<_> = (0..1_200).map(|_| ask(&store, 5)).collect();
    asked.iter_mut().for_each(|future| assert!(poll(future).is_pending()));
    drop(asked);
    drop(turn);
    let row = block_on(reserve(&store, &rules(CAP), 7)).unwrap().unwrap();
    assert_eq!(reserved(&store), 7);
    assert_eq!(row.id.seq, 1, "nothing was written before it");
}

#[test]
fn a_reservation_dropped_after_the_commit_is_given_back() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    for _ in 0..20 {
        let turn = hold(&file);
        let mut asked = ask(&store, 5);
        assert!(poll(&mut asked).is_pending());
        drop(turn);
        eventually("committed", || reserved(&store) == 5);
        // The answer has come, or comes in a moment; nobody takes it.
        drop(asked);
        // Although nobody else writes.
        eventually("given back", || reserved(&store) == 0);
    }
    let rows = block_on(rows(&store));
    assert!(rows.iter().all(|row| row.state == RowState::Released), "{rows:?}");
    assert!(block_on(store.audit()).unwrap().is_balanced());
}

#[test]
fn reservations_dropped_at_any_moment_leave_nothing_behind() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    for round in 0..300_u64 {
        let mut asked: Vec<_> = (0..4).map(|_| ask(&store, 5)).collect();
        for future in &mut asked {
            // Hardly ever, but a commit may be quick.
            if let Poll::Ready(Ok(Reserving::Granted(row, _))) = poll(future) {
                block_on(settle(&store, row.id, 0)).unwrap();
            }
        }
        // Somewhere between the queue and the answer.
        (0..round * 20).for_each(|_| std::hint::spin_loop());
    }
    eventually("given back", || reserved(&store) == 0);
    assert!(block_on(reserve(&store, &rules(CAP), CAP)).unwrap().is_some(), "all of it is usable");
    assert!(block_on(store.audit()).unwrap().is_balanced());
}

#[test]
fn what_is_given_back_when_the_ledger_closes_is_written_before_it_does() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    let row = block_on(reserve(&store, &rules(CAP), 600)).unwrap().unwrap();
    let turn = hold(&file);
    let next = reservation(&rules(CAP), 300);
    let mut turning = store.turn_over(settlement(row.id, 100), next);
    assert!(poll(&mut turning).is_pending());
    drop(turning);
    // The turnover is written while the store is being dropped already, and its next row with it.
    let (dropping, is_dropping) = std::sync::mpsc::channel();
    let closing = std::thread::spawn(move || {
        dropping.send(()).unwrap();
        drop(store);
    });
    is_dropping.recv().unwrap();
    assert!(!closing.is_finished(), "it has to wait for its turn");
    drop(turn);
    closing.join().unwrap();
    let total = block_on(async { all(&open(&file).await).await }).tokens;
    assert_eq!((total.settled, total.reserved), (100, 0));
}

#[test]
fn a_settlement_that_was_handed_over_is_booked_although_nobody_waits() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    let row = block_on(reserve(&store, &rules(CAP), 600)).unwrap().unwrap();
    let turn = hold(&file);
    let mut settling = store.settle(settlement(row.id, 120));
    assert!(poll(&mut settling).is_pending());
    drop(settling);
    drop(turn);
    eventually("booked", || block_on(all(&store)).tokens.settled == 120);
    assert_eq!(reserved(&store), 0);
}

#[test]
fn a_turnover_that_is_dropped_settles_and_gives_the_next_row_back() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    for round in 0..20_u64 {
        let row = block_on(reserve(&store, &rules(CAP), 600)).unwrap().unwrap();
        let turn = hold(&file);
        let next = reservation(&rules(CAP), 300);
        let mut turning = store.turn_over(settlement(row.id, 100), next);
        assert!(poll(&mut turning).is_pending());
        if round % 2 == 0 {
            drop((turning, turn));
        } else {
            drop(turn);
            eventually("committed", || reserved(&store) == 300);
            drop(turning);
        }
        eventually("settled, and given back", || {
            let total = block_on(all(&store)).tokens;
            (total.settled, total.reserved) == (100 * (round + 1), 0)
        });
        // The call had moved on to the next attempt, which was never made.
        assert_eq!(block_on(all(&store)).calls.used(), round + 1);
    }
    assert!(block_on(store.audit()).unwrap().is_balanced());
}

#[test]
fn opening_that_is_dropped_halfway_closes_the_file_again() {
    let (_folder, file) = folder();
    for _ in 0..20 {
        let mut opening = Box::pin(SqliteStore::open(Some(&file), Durability::Create, now()));
        assert!(poll(&mut opening).is_pending());
        drop(opening);
    }
    let closed = || {
        let db = rusqlite::Connection::open(&file).ok()?;
        let closed = "SELECT value FROM meta WHERE name = 'closed_in_order'";
        db.query_row(closed, [], |row| row.get::<_, i64>(0)).ok()
    };
    eventually("closed", || closed() == Some(1));
    assert!(block_on(reserve(&block_on(open(&file)), &rules(CAP), 1)).unwrap().is_some());
}

#[test]
fn dropping_the_store_finishes_what_was_handed_over() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    let row = block_on(reserve(&store, &rules(CAP), 600)).unwrap().unwrap();
    let turn = hold(&file);
    let mut settling = store.settle(settlement(row.id, 120));
    assert!(poll(&mut settling).is_pending());
    drop((settling, turn));
    drop(store);
    assert!(!fs::exists(file.with_file_name("ledger.db-wal")).unwrap(), "closed in order");
    assert_eq!(block_on(all(&block_on(open(&file)))).tokens.settled, 120);
}
