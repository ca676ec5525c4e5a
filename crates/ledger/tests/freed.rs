//! Whoever waits for room hears of all that may make some, and of nothing else.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use keywheel_ledger::{
    Ask, Durability, Freed, Hold, Ledger, Limit, ManualClock, Outcome, Period, Usage,
};
use tempfile::TempDir;

/// Longer than anything here takes, on whatever machine.
const LONG: Duration = Duration::from_secs(20);

async fn hold(ledger: &Ledger, tokens: u64) -> Hold {
    ledger.reserve("a", Ask::new("m", tokens)).await.unwrap().held().unwrap()
}

async fn hears(freed: &mut Freed) {
    tokio::time::timeout(LONG, freed.changed()).await.expect("nobody told");
    assert!(freed.changed().now_or_never().is_none(), "told once, heard twice");
}

/// Runs `case` with a ledger in memory and with one in a file.
async fn in_both<F: Future<Output = ()>>(case: impl Fn(Ledger, ManualClock) -> F) {
    let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
    let day = Limit::tokens(Period::Day, 1_000);
    let ledger = || Ledger::builder().account("a", [day.clone()]).clock(Arc::new(clock.clone()));
    case(ledger().in_memory().open().await.unwrap(), clock.clone()).await;
    let folder = TempDir::new().unwrap();
    let file = ledger().path(folder.path().join("ledger.db")).durability(Durability::EphemeralOk);
    case(file.open().await.unwrap(), clock.clone()).await;
}

#[tokio::test]
async fn all_that_leaves_less_used_is_told_once_it_is_written() {
    in_both(async |ledger, clock| {
        let mut freed = ledger.freed();
        hold(&ledger, 100).await.settle(Usage::new(10, 10)).await.unwrap();
        hears(&mut freed).await;
        hold(&ledger, 100).await.release().await.unwrap();
        hears(&mut freed).await;
        hold(&ledger, 100).await.settle_detached(Outcome::Refused);
        hears(&mut freed).await;
        assert_eq!(ledger.usage("a").await.unwrap().day.tokens.used(), 20, "written when told");

        // The true figure of a row that was swept.
        let late = hold(&ledger, 100).await.id();
        clock.advance(ledger.sweep_after() + Duration::from_secs(1));
        ledger.sweep().await.unwrap();
        ledger.settle(late, 7).await.unwrap();
        hears(&mut freed).await;

        let rules = ledger.rules().as_ref().clone();
        ledger.set_rules(rules.account("a", [Limit::tokens(Period::Day, 2_000)]).unwrap());
        hears(&mut freed).await;
    })
    .await;
}

#[tokio::test]
async fn what_makes_no_room_wakes_nobody() {
    in_both(async |ledger, clock| {
        let mut freed = ledger.freed();
        let (exact, lost) = (hold(&ledger, 100).await, hold(&ledger, 100).await.id());
        let row = exact.id();
        exact.settle(100).await.unwrap();
        ledger.settle(row, 100).await.unwrap();
        assert!(ledger.reserve("a", Ask::new("m", 900)).await.unwrap().denied().is_some());
        ledger.renew(lost).await.unwrap();
        clock.advance(ledger.sweep_after() + Duration::from_secs(1));
        assert_eq!(ledger.sweep().await.unwrap().rows, 1);
        assert!(freed.changed().now_or_never().is_none());
    })
    .await;
}

#[tokio::test]
async fn what_is_freed_before_anybody_waits_is_not_missed() {
    in_both(async |ledger, _| {
        let mut freed = ledger.freed();
        let mut other = ledger.freed();
        let (one, two) = (hold(&ledger, 100).await, hold(&ledger, 100).await);
        one.release().await.unwrap();
        two.release().await.unwrap();
        hears(&mut freed).await;
        // Each who listens hears for himself; one who begins now hears of nothing before.
        hears(&mut other).await;
        assert!(ledger.freed().changed().now_or_never().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_settlement_whose_caller_went_away_is_told_all_the_same() {
    in_both(async |ledger, _| {
        let mut freed = ledger.freed();
        let hold = hold(&ledger, 100).await;
        {
            let settling = pin!(hold.settle(10));
            // Once: it is handed over, and nobody hears of it.
            let _ = settling.now_or_never();
        }
        hears(&mut freed).await;
    })
    .await;
}
