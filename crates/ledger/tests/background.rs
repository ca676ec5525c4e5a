//! What a ledger does by itself, by a clock that is moved by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{Opened, open, rows};
use keywheel_core::ManualClock;
use keywheel_ledger::{Ask, Ledger, LedgerStore, MemoryStore, RowState};

async fn pass(clock: &ManualClock, time: Duration) {
    settle_down().await;
    clock.advance(time);
    settle_down().await;
}

async fn settle_down() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn it_sweeps_every_minute() {
    let Opened { ledger, clock } = open([]).await;
    drop(ledger.reserve("a", Ask::new("m", 10)).await.unwrap());
    for _ in 0..15 {
        pass(&clock, Duration::from_secs(60)).await;
        assert_eq!(rows(&ledger).await[0].state, RowState::Reserved);
    }
    pass(&clock, Duration::from_secs(60)).await;
    assert_eq!(rows(&ledger).await[0].state, RowState::Swept);
}

#[tokio::test]
async fn it_sweeps_on_opening() {
    let clock = ManualClock::at("2026-11-30T20:00:00Z".parse().unwrap());
    let store: Arc<dyn LedgerStore> =
        Arc::new(MemoryStore::new("2026-11-30T20:00:00Z".parse().unwrap()));
    let open = || {
        let builder = Ledger::builder().account("a", []).store(Arc::clone(&store));
        builder.clock(Arc::new(clock.clone())).open()
    };
    drop(open().await.unwrap().reserve("a", Ask::new("m", 10)).await.unwrap());
    clock.advance(Duration::from_secs(901));
    assert_eq!(rows(&open().await.unwrap()).await[0].state, RowState::Swept);
}

#[tokio::test]
async fn it_prunes_an_hour_after_opening_and_then_every_week() {
    let Opened { ledger, clock } = open([]).await;
    let spend = async || {
        let hold = ledger.reserve("a", Ask::new("m", 10)).await.unwrap().held().unwrap();
        hold.settle(10).await.unwrap();
    };
    spend().await;
    // By hand over the 90 days, so that only one pruning is due: the first.
    pass(&clock, Duration::from_hours(90 * 24)).await;
    assert_eq!(rows(&ledger).await.len(), 0);
    spend().await;
    pass(&clock, Duration::from_hours(6 * 24)).await;
    spend().await;
    for day in 0..100 {
        pass(&clock, Duration::from_hours(24)).await;
        let left = rows(&ledger).await.len();
        // Each goes at the first weekly pruning at which it is 90 days old.
        let wanted = if day < 84 { 2 } else { usize::from(day < 91) };
        assert_eq!(left, wanted, "day {day}");
    }
    assert_eq!(ledger.usage("a").await.unwrap().ever.tokens.used(), 30);
}

#[tokio::test]
async fn its_task_ends_with_the_last_handle() {
    let Opened { ledger, clock } = open([]).await;
    settle_down().await;
    assert!(clock.next_wake().is_some(), "the task sleeps");
    let hold = ledger.reserve("a", Ask::new("m", 10)).await.unwrap().held().unwrap();
    drop(ledger);
    settle_down().await;
    assert!(clock.next_wake().is_some(), "a hold keeps the ledger open");
    hold.settle(10).await.unwrap();
    settle_down().await;
    assert_eq!(clock.next_wake(), None);
}

#[test]
fn without_a_runtime_it_opens_and_does_nothing_by_itself() {
    let mut opening = Box::pin(Ledger::builder().account("a", []).in_memory().open());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Ok(ledger)) = opening.as_mut().poll(&mut cx) else {
        panic!("memory does not wait");
    };
    assert_eq!(ledger.rules().accounts.len(), 1);
}
