//! Hazard: several processes run the daily check of one key, or none does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::{fs::File, path::Path};

use common::*;
use keywheel_core::{Clock as _, ManualClock};
use keywheel_pool::{CheckResult, Pool, StateLocation};

fn pool(clock: &ManualClock, location: StateLocation) -> Pool {
    let clock = std::sync::Arc::new(clock.clone());
    Pool::builder().keys(keys(1)).clock(clock).state(location).build().unwrap()
}

/// A pool whose only key was found dead a day ago.
async fn with_a_dead_key(location: StateLocation) -> (ManualClock, Pool) {
    let clock = ManualClock::at(at("2026-11-29T12:00:00Z"));
    let pool = pool(&clock, location);
    let mut lease = pool.try_lease(&keywheel_pool::Ask::new(MODEL)).unwrap();
    lease.sent();
    let _ = lease.refused(&dead()).await;
    clock.advance(seconds(86_400));
    (clock, pool)
}

fn lock(file: &Path) -> File {
    let path = file.with_file_name("pool.json.lock");
    let lock = File::options().write(true).create(true).truncate(false).open(path).unwrap();
    lock.lock().unwrap();
    lock
}

#[tokio::test]
async fn of_two_processes_that_ask_at_once_one_runs_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.json");
    let (clock, one) = with_a_dead_key(StateLocation::File(file.clone())).await;
    let two = pool(&clock, StateLocation::File(file.clone()));
    for _ in 0..5 {
        one.flush().await.unwrap();
        two.flush().await.unwrap();
        // Neither can hear of the other before both have asked.
        let lock = lock(&file);
        let asked = (one.due_checks(), two.due_checks());
        drop(lock);
        let (mine, theirs) = (asked.0.await, asked.1.await);
        assert_eq!(mine.len() + theirs.len(), 1, "at {}", clock.now());
        // It tells nothing: due again in an hour, for whoever is first then.
        clock.advance(seconds(3_600));
    }
    let due = one.due_checks().await;
    one.check_result(due[0].fingerprint, CheckResult::Alive);
    one.flush().await.unwrap();
    clock.advance(seconds(86_400));
    two.flush().await.unwrap();
    assert!(two.due_checks().await.is_empty());
}

#[tokio::test]
async fn without_a_file_that_can_be_written_a_check_is_run_all_the_same() {
    let (_, pool) = with_a_dead_key(StateLocation::None).await;
    assert_eq!(pool.due_checks().await.len(), 1);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.json");
    let (_, pool) = with_a_dead_key(StateLocation::File(file.clone())).await;
    let _held = lock(&file);
    assert_eq!(pool.due_checks().await.len(), 1);
    assert!(pool.due_checks().await.is_empty(), "and once");
}

#[tokio::test]
async fn a_check_that_is_dropped_while_it_is_claimed_is_due_again_in_an_hour() {
    let (clock, pool) = with_a_dead_key(StateLocation::None).await;
    drop(pool.due_checks());
    assert!(pool.due_checks().await.is_empty());
    clock.advance(seconds(3_600));
    assert_eq!(pool.due_checks().await.len(), 1);
}
