//! Every call is dropped after each of its polls. Nothing is charged twice, nothing is lost, and
//! nothing stays reserved past the sweep.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use common::{Opened, gated::Gated};
use keywheel_core::ManualClock;
use keywheel_ledger::{
    Ask, ExportFormat, GroupBy, Hold, Ledger, Limit, Outcome, Period, RowQuery, RowState,
};

const CAP: u64 = 1_000;

/// More polls than any call takes.
const MOST_POLLS: usize = 40;

async fn open() -> Opened {
    let clock = ManualClock::at("2026-11-30T20:00:00Z".parse().unwrap());
    let builder = Ledger::builder().account("a", [Limit::tokens(Period::Day, CAP)]);
    let builder = builder.store(Arc::new(Gated::new())).clock(Arc::new(clock.clone()));
    // Nothing but the call under test runs.
    let ledger = builder.sweep_every(Duration::from_hours(9_999)).open().await.unwrap();
    Opened { ledger, clock }
}

/// Polls `future` `polls` times and drops it. True if it was finished.
fn dropped_after<F: Future>(future: F, polls: usize) -> bool {
    let mut future = pin!(future);
    (0..polls).any(|_| {
        let mut cx = Context::from_waker(Waker::noop());
        matches!(future.as_mut().poll(&mut cx), Poll::Ready(_))
    })
}

/// Runs `case` with a call dropped after 0, 1, 2 … polls, until it was finished once; then the
/// ledger must add up, and nothing may be open after the sweep.
async fn at_each_await(case: impl AsyncFn(&Opened, usize) -> bool) {
    let mut finished = false;
    for polls in 0..MOST_POLLS {
        let opened = open().await;
        finished = case(&opened, polls).await;
        let Opened { ledger, clock } = &opened;
        assert!(ledger.audit().await.unwrap().is_balanced(), "{polls} polls");
        clock.advance(Duration::from_secs(901));
        ledger.sweep().await.unwrap();
        let open = RowQuery { state: Some(RowState::Reserved), ..RowQuery::default() };
        assert_eq!(ledger.rows(open).await.unwrap(), [], "{polls} polls");
        let used = ledger.usage("a").await.unwrap().day.tokens;
        assert_eq!(used.reserved, 0, "{polls} polls");
        assert!(ledger.audit().await.unwrap().is_balanced(), "{polls} polls");
        if finished {
            assert!(polls > 2, "the call waits at least twice");
            break;
        }
    }
    assert!(finished, "{MOST_POLLS} polls did not finish the call");
}

async fn held(ledger: &Ledger, tokens: u64) -> Hold {
    ledger.reserve("a", Ask::new("m", tokens)).await.unwrap().held().unwrap()
}

async fn used(ledger: &Ledger) -> (u64, u64) {
    let sum = ledger.usage("a").await.unwrap().day.tokens;
    (sum.settled, sum.reserved)
}

#[tokio::test]
async fn a_reservation_is_dropped_at_each_await() {
    at_each_await(async |Opened { ledger, .. }, polls| {
        let finished = dropped_after(ledger.reserve("a", Ask::new("m", 600)), polls);
        // All of it or nothing.
        assert!([(0, 0), (0, 600)].contains(&used(ledger).await));
        finished
    })
    .await;
}

#[tokio::test]
async fn a_settlement_is_dropped_at_each_await_and_can_be_repeated() {
    at_each_await(async |Opened { ledger, .. }, polls| {
        let hold = held(ledger, 600).await;
        let id = hold.id();
        let finished = dropped_after(hold.settle(120), polls);
        assert!([(0, 600), (120, 0)].contains(&used(ledger).await));
        ledger.settle(id, 120).await.unwrap();
        assert_eq!(used(ledger).await, (120, 0));
        finished
    })
    .await;
}

#[tokio::test]
async fn a_release_is_dropped_at_each_await() {
    at_each_await(async |Opened { ledger, .. }, polls| {
        let finished = dropped_after(held(ledger, 600).await.release(), polls);
        assert!([(0, 600), (0, 0)].contains(&used(ledger).await));
        finished
    })
    .await;
}

#[tokio::test]
async fn a_turnover_is_dropped_at_each_await() {
    at_each_await(async |Opened { ledger, .. }, polls| {
        let hold = held(ledger, 600).await;
        let call = hold.turn_over(Outcome::ServerError, Ask::new("m", 900));
        let finished = dropped_after(call, polls);
        // Both, or neither.
        assert!([(0, 600), (0, 900)].contains(&used(ledger).await));
        finished
    })
    .await;
}

#[tokio::test]
async fn a_renewal_is_dropped_at_each_await() {
    at_each_await(async |Opened { ledger, .. }, polls| {
        let hold = held(ledger, 600).await;
        let finished = dropped_after(hold.renew(), polls);
        hold.renew().await.unwrap();
        assert_eq!(used(ledger).await, (0, 600));
        finished
    })
    .await;
}

#[tokio::test]
async fn a_sweep_is_dropped_at_each_await() {
    at_each_await(async |Opened { ledger, clock }, polls| {
        drop((held(ledger, 300).await, held(ledger, 300).await));
        clock.advance(Duration::from_secs(901));
        let finished = dropped_after(ledger.sweep(), polls);
        assert!([(0, 600), (600, 0)].contains(&used(ledger).await));
        finished
    })
    .await;
}

#[tokio::test]
async fn a_pruning_is_dropped_at_each_await() {
    at_each_await(async |Opened { ledger, clock }, polls| {
        held(ledger, 300).await.settle(300).await.unwrap();
        clock.advance(Duration::from_hours(91 * 24));
        let finished = dropped_after(ledger.prune(), polls);
        assert_eq!(ledger.usage("a").await.unwrap().ever.tokens.used(), 300);
        finished
    })
    .await;
}

#[tokio::test]
async fn what_only_reads_is_dropped_at_each_await() {
    at_each_await(async |Opened { ledger, .. }, polls| {
        let hold = held(ledger, 300).await;
        let mut export = ledger.export(ExportFormat::JsonLines, RowQuery::default());
        let mut finished = dropped_after(export.next(), polls);
        // What was dropped can be asked for again, and nothing is missing.
        let text = export.next().await.unwrap();
        assert_eq!(text.is_some(), !finished);
        finished &= dropped_after(ledger.usage("a"), polls);
        finished &= dropped_after(ledger.usage_of_all(), polls);
        finished &= dropped_after(ledger.rows(RowQuery::default()), polls);
        finished &= dropped_after(ledger.report(GroupBy::Model, RowQuery::default()), polls);
        finished &= dropped_after(ledger.audit(), polls);
        finished &= dropped_after(ledger.info(), polls);
        assert_eq!(used(ledger).await, (0, 300));
        drop(hold);
        finished
    })
    .await;
}

#[tokio::test]
async fn an_opening_is_dropped_at_each_await() {
    for polls in 0..MOST_POLLS {
        let store = Gated::new();
        let builder = || Ledger::builder().account("a", []).store(Arc::new(store.clone()));
        if dropped_after(builder().open(), polls) {
            assert!(polls > 4, "it sweeps and reads");
            return;
        }
        builder().open().await.unwrap();
    }
    panic!("{MOST_POLLS} polls did not open it");
}
