//! Hazards of sharing a commit: everybody gets his own answer, and nobody's trouble is another's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod processes;

use std::{
    fs::File,
    path::Path,
    task::{Context, Waker},
    time::Duration,
};

use futures_util::future::join_all;
use keywheel_ledger::{
    Ask, ErrorKind, LedgerError, LedgerStore, Reservation, Reserving, RowId, RowQuery, RowState,
    SqliteStore, store::StoreFuture,
};
use processes::*;
use rusqlite::Connection;

const CAP: u64 = 1_000;

/// Makes all of `asked` wait together, so that they share a commit, and returns their answers.
fn together<T>(file: &Path, mut asked: Vec<StoreFuture<'_, T>>) -> Vec<Result<T, LedgerError>> {
    let turn = File::options().write(true).open(file.with_file_name("ledger.db.turn")).unwrap();
    turn.lock().unwrap();
    for future in &mut asked {
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(turn);
    block_on(join_all(asked))
}

fn ask<'a>(store: &'a SqliteStore, tokens: u64, note: &str) -> StoreFuture<'a, Reserving> {
    let ask = Ask::new(MODEL, tokens).note(note);
    let asked = Reservation::new(ACCOUNT.parse().unwrap(), ask, rules(CAP), now()).unwrap();
    store.reserve(asked)
}

fn granted(answer: &Result<Reserving, LedgerError>) -> bool {
    matches!(answer, Ok(Reserving::Granted(..)))
}

#[test]
fn a_denial_in_a_commit_spoils_nobody_elses_reservation() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    // 600 fit, 600 more do not, 300 do, 101 do not, 100 do: each as if it had come alone.
    let asked = [600, 600, 300, 101, 100].map(|tokens| ask(&store, tokens, ""));
    let answers = together(&file, asked.into());
    let granted: Vec<_> = answers.iter().map(granted).collect();
    assert_eq!(granted, [true, false, true, false, true]);
    let Ok(Reserving::Denied(denied)) = &answers[3] else { panic!("{:?}", answers[3]) };
    assert_eq!((denied.used(), denied.left(), denied.asked), (900, 100, 101));
    assert_eq!(block_on(all(&store)).tokens.reserved, CAP);
}

#[test]
fn an_error_in_a_commit_is_its_callers_alone() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    let row = block_on(reserve(&store, &rules(CAP), 600)).unwrap().unwrap();
    let unknown = RowId::fresh(row.id.seq);
    let settling = [(row.id, 120), (unknown, 1), (row.id, 120), (row.id, 121)];
    let settling = settling.map(|(id, tokens)| store.settle(settlement(id, tokens)));
    let answers = together(&file, settling.into());
    let kinds: Vec<_> = answers.iter().map(|it| it.as_ref().err().map(LedgerError::kind)).collect();
    let (unknown, otherwise) = (Some(ErrorKind::UnknownId), Some(ErrorKind::SettledOtherwise));
    assert_eq!(kinds, [None, unknown, None, otherwise]);
    assert_eq!(block_on(all(&store)).tokens.settled, 120);
}

#[test]
fn a_row_that_cannot_be_written_fails_alone() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    let shell = Connection::open(&file).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON rows WHEN NEW.note = 'poison' \
        BEGIN SELECT RAISE(ABORT, 'not this one'); END";
    shell.execute_batch(refuse).unwrap();
    drop(shell);
    let asked = (0..20).map(|n| ask(&store, 10, if n == 7 { "poison" } else { "" }));
    let answers = together(&file, asked.collect());
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(granted(answer), n != 7, "{n}: {answer:?}");
    }
    assert_eq!(answers[7].as_ref().unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(block_on(all(&store)).tokens.reserved, 190);
    assert!(block_on(store.audit()).unwrap().is_balanced());
}

#[test]
fn reports_and_audits_wait_for_no_writer() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    block_on(reserve(&store, &rules(CAP), 600)).unwrap();
    // In the middle of somebody's transaction, which is in the middle of somebody's turn.
    let turn = File::options().write(true).open(file.with_file_name("ledger.db.turn")).unwrap();
    turn.lock().unwrap();
    let shell = Connection::open(&file).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE; UPDATE rows SET note = 'half done'").unwrap();
    block_on(async {
        assert_eq!(store.info().await.unwrap().open, 1);
        assert_eq!(all(&store).await.tokens.reserved, 600);
        let open = RowQuery { state: Some(RowState::Reserved), ..RowQuery::default() };
        assert_eq!(store.rows(open).await.unwrap()[0].note, "");
        assert!(store.recent(10).await.unwrap().is_empty());
        assert!(store.audit().await.unwrap().is_balanced());
    });
}

#[test]
fn the_longest_report_does_not_keep_the_ledger_from_closing() {
    let (_folder, file) = folder();
    let store = block_on(open(&file));
    for _ in 0..40 {
        let rows: Vec<_> = (0..50).map(|_| ask(&store, 0, "")).collect();
        block_on(join_all(rows));
    }
    let mut audits: Vec<_> = (0..50).map(|_| store.audit()).collect();
    for audit in &mut audits {
        assert!(audit.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(audits);
    let (dropped, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(store);
        dropped.send(()).unwrap();
    });
    done.recv_timeout(Duration::from_secs(4)).expect("it closes before its patience ends");
}
