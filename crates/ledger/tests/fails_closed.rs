//! A store that cannot write permits nothing, and goes on once it can
//! (<https://github.com/BerriAI/litellm/issues/26672>).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::{sync::Arc, time::Duration};

use common::gated::Gated;
use keywheel_core::{Clock, ManualClock};
use keywheel_ledger::{Ask, ErrorKind, Ledger, LedgerError, Limit, Outcome, Period, RowQuery};

fn is_refused<T: std::fmt::Debug>(answer: Result<T, LedgerError>) {
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Store);
}

#[tokio::test]
async fn no_call_succeeds_while_the_store_cannot_write_and_all_do_afterwards() {
    let store = Gated::new();
    let ledger = Ledger::builder()
        .account("a", [Limit::tokens(Period::Day, 1_000)])
        .store(Arc::new(store.clone()))
        .open()
        .await
        .unwrap();
    let reserve = || ledger.reserve("a", Ask::new("m", 400));
    let (one, two) =
        (reserve().await.unwrap().held().unwrap(), reserve().await.unwrap().held().unwrap());
    let (id, other) = (one.id(), two.id());

    store.set_broken(true);
    is_refused(reserve().await);
    is_refused(one.renew().await);
    is_refused(one.settle(100).await);
    is_refused(two.turn_over(Outcome::Refused, Ask::new("m", 1)).await);
    is_refused(ledger.sweep().await);
    is_refused(ledger.prune().await);
    is_refused(ledger.usage("a").await);
    is_refused(ledger.rows(RowQuery::default()).await);
    is_refused(ledger.audit().await);
    is_refused(ledger.info().await);
    is_refused(Ledger::builder().store(Arc::new(store.clone())).open().await);

    store.set_broken(false);
    // What could not be settled then can be settled now.
    ledger.settle(id, 100).await.unwrap();
    ledger.release(other).await.unwrap();
    assert!(ledger.reserve("a", Ask::new("m", 900)).await.unwrap().held().is_some());
    assert!(ledger.audit().await.unwrap().is_balanced());
}

#[tokio::test]
async fn the_sweep_goes_on_after_it_failed() {
    let (store, clock) = (Gated::new(), ManualClock::at("2026-11-30T20:00:00Z".parse().unwrap()));
    let builder = Ledger::builder().account("a", []).store(Arc::new(store.clone()));
    let ledger = builder.clock(Arc::new(clock.clone())).open().await.unwrap();
    drop(ledger.reserve("a", Ask::new("m", 400)).await.unwrap());
    clock.advance(Duration::from_secs(901));
    store.set_broken(true);
    minute(&clock).await;
    store.set_broken(false);
    assert_eq!(ledger.info().await.unwrap().open, 1);
    minute(&clock).await;
    assert_eq!(ledger.info().await.unwrap().open, 0);
}

/// Lets a minute pass, and whatever is due in it happen.
async fn minute(clock: &ManualClock) {
    settle_down().await;
    clock.advance(Duration::from_secs(60));
    settle_down().await;
    assert!(clock.next_wake().is_some_and(|wake| wake > clock.now()), "it sleeps again");
}

async fn settle_down() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
