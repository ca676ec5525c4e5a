//! The handle over a file: what outlives it, and who shares it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{path::Path, time::Duration};

use keywheel_ledger::{
    Ask, Durability, ErrorKind, Ledger, LedgerBuilder, LedgerConfig, Limit, Period,
};

fn ledger_in(folder: &Path) -> LedgerBuilder {
    let limits = [Limit::tokens(Period::Total, 1_000)];
    Ledger::builder().account("a", limits).path(folder.join("ledger.db"))
}

#[tokio::test]
async fn what_is_used_outlives_the_ledger_and_is_shared_by_all_who_open_it() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger_in(folder.path()).open().await.unwrap();
    let other = ledger_in(folder.path()).open().await.unwrap();
    let hold = ledger.reserve("a", Ask::new("m", 600)).await.unwrap().held().unwrap();
    let denied = other.reserve("a", Ask::new("m", 600)).await.unwrap().denied().unwrap();
    assert_eq!((denied.reserved, denied.retry_at), (600, None));
    // Whoever knows the id can settle.
    other.settle(hold.id(), 550).await.unwrap();
    drop((hold, ledger, other));

    let again = ledger_in(folder.path()).durability(Durability::RequireExisting);
    match again.open().await {
        Ok(ledger) => assert_eq!(ledger.usage("a").await.unwrap().ever.tokens.settled, 550),
        // Where tests run on storage that vanishes.
        Err(error) => assert_eq!(error.kind(), ErrorKind::Vanishing),
    }
    let again = ledger_in(folder.path()).open().await.unwrap();
    assert!(again.reserve("a", Ask::new("m", 451)).await.unwrap().denied().is_some());
    assert!(again.reserve("a", Ask::new("m", 450)).await.unwrap().held().is_some());
    assert!(!again.info().await.unwrap().storage.just_created);
    assert!(again.audit().await.unwrap().is_balanced());
}

#[tokio::test]
async fn a_cap_that_has_to_be_there_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("path = {:?}\nstorage = \"require_existing\"", folder.path().join("no.db"));
    let config = LedgerConfig::from_toml(&text).unwrap();
    let error = Ledger::builder().config(config).open().await.unwrap_err();
    assert!([ErrorKind::Missing, ErrorKind::Vanishing].contains(&error.kind()), "{error}");
    assert!(!folder.path().join("no.db").exists());
}

/// A destructor cannot wait, and what it hands over is booked all the same.
#[tokio::test]
async fn what_is_settled_without_waiting_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger_in(folder.path()).open().await.unwrap();
    for _ in 0..50 {
        let hold = ledger.reserve("a", Ask::new("m", 500)).await.unwrap().held().unwrap();
        hold.settle_detached(7);
    }
    drop(ledger);
    let ledger = ledger_in(folder.path()).open().await.unwrap();
    let used = ledger.usage("a").await.unwrap().ever.tokens;
    assert_eq!((used.settled, used.reserved), (350, 0));
}

#[tokio::test]
async fn a_reservation_cancelled_while_it_waits_for_the_disk_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger_in(folder.path()).open().await.unwrap();
    for _ in 0..100 {
        let asking = ledger.reserve("a", Ask::new("m", 900));
        // Usually before the commit; sometimes it is granted, and dropped then.
        let hold = tokio::time::timeout(Duration::ZERO, asking).await;
        if let Ok(Ok(reserved)) = hold
            && let Some(hold) = reserved.held()
        {
            hold.release().await.unwrap();
        }
    }
    // Were one of them left behind, this would not fit.
    let hold = ledger.reserve("a", Ask::new("m", 1_000)).await.unwrap().held().unwrap();
    hold.release().await.unwrap();
    assert!(ledger.audit().await.unwrap().is_balanced());
}
