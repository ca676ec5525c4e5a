//! Hazard: a caller goes away, at any await, and something stays taken.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod common;

use std::{
    fs::File,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Waker},
};

use common::*;
use keywheel_core::{Cause, ManualClock, Usage, Wait};
use keywheel_pool::{Ask, Exhausted, Lease, Limits, Pool, Refusal, StateLocation};
use tempfile::TempDir;

/// Polls a future so many times, then drops it.
fn poll_and_drop<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..times {
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let std::task::Poll::Ready(value) = polled {
            return Some(value);
        }
    }
    None
}

fn one_at_a_time() -> Fixture {
    Fixture::with("2026-11-29T12:00:00Z", |builder| {
        builder.keys(keys(1)).limits("*", Limits { rpm: Some(1), ..Limits::default() })
    })
}

#[track_caller]
fn assert_untouched(fixture: &Fixture, requests: u64) {
    let status = fixture.pool.status();
    assert_eq!(status.buckets[0].in_flight, 0);
    assert_eq!(status.buckets[0].minute.requests, requests);
    assert!(status.waiting.is_empty(), "nobody is left in the line");
}

#[test]
fn dropping_lease_at_every_await_leaves_nothing_behind() {
    // Before the first poll, in the line as head, in the line behind, after being woken.
    for times in 0..3 {
        let fixture = one_at_a_time();
        fixture.serve();
        let head = fixture.pool.lease(Ask::new(MODEL));
        let mut head = pin!(head);
        assert!(head.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(poll_and_drop(times, fixture.pool.lease(Ask::new(MODEL))).is_none());
        fixture.clock.set(at("2026-11-29T12:01:01Z"));
        let polled = head.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready(), "the head is served all the same");
        drop(polled);
        assert_untouched(&fixture, 0);
        fixture.serve();
    }
    for times in 0..3 {
        let fixture = one_at_a_time();
        fixture.serve();
        let lease = fixture.pool.lease(Ask::new(MODEL));
        assert!(poll_and_drop(times, lease).is_none());
        assert_untouched(&fixture, 1);
        fixture.clock.set(at("2026-11-29T12:01:01Z"));
        fixture.serve();
    }
}

/// A pool with three keys that were told yesterday that the model has no free tier: each may ask once more today.
/// The state file's lock is held, as by a process that was stopped, until `lock` is dropped.
struct Stuck {
    pool: Pool,
    clock: ManualClock,
    lock: File,
    _folder: TempDir,
}

type Leasing = Pin<Box<dyn Future<Output = Result<Lease, Exhausted>> + Send>>;

impl Stuck {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pool.json");
        let clock = ManualClock::at(at("2026-11-29T12:00:00Z"));
        let builder = Pool::builder().keys(keys(3)).clock(Arc::new(clock.clone()));
        let pool = builder.state(StateLocation::File(file)).build().unwrap();
        let no_free_tier = Refusal::new([bucket(Cause::FreeTierNotAvailable, Wait::None)]);
        for _ in 0..3 {
            let mut lease = pool.try_lease(&Ask::new(MODEL)).unwrap();
            lease.sent();
            let _ = lease.refused(&no_free_tier).await;
        }
        clock.set(at("2026-11-30T12:00:00Z"));
        assert!(pool.try_lease(&Ask::new(MODEL)).is_err());
        pool.flush().await.unwrap();
        let lock = folder.path().join("pool.json.lock");
        let lock = File::options().write(true).create(true).truncate(false).open(lock).unwrap();
        lock.lock().unwrap();
        Self { pool, clock, lock, _folder: folder }
    }

    fn explored(&self) -> usize {
        self.pool.status().buckets.iter().filter(|bucket| bucket.explored).count()
    }

    /// Somebody asks, and waits for the file's word on an exploratory request.
    fn explore(&self, ask: Ask) -> Leasing {
        let pool = self.pool.clone();
        let mut leasing: Leasing = Box::pin(async move { pool.lease(ask).await });
        assert!(leasing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(self.explored(), 1, "claimed");
        leasing
    }

    /// Once the lock is free each bucket still has its request.
    async fn assert_nothing_is_spent(self) {
        let Self { pool, lock, .. } = self;
        // Whatever the writer had in its hands by now it gives up with this: half a second.
        assert!(!pool.mark_rate_limited("KEY_1", "other", None).await.unwrap().persisted);
        drop(lock);
        // The writer takes its time after a failure.
        pool.flush().await.unwrap();
        for _ in 0..3 {
            let lease = pool.lease(Ask::new(MODEL)).await.unwrap();
            assert!(lease.is_exploration());
        }
    }
}

#[tokio::test]
async fn dropping_lease_while_an_exploration_is_claimed_gives_the_claim_back() {
    let stuck = Stuck::new().await;
    drop(stuck.explore(Ask::new(MODEL)));
    assert_eq!(stuck.explored(), 0);
    assert!(stuck.pool.status().waiting.is_empty());
    stuck.assert_nothing_is_spent().await;
}

#[tokio::test]
async fn a_claim_that_is_given_back_while_it_is_written_is_not_spent() {
    let stuck = Stuck::new().await;
    let leasing = stuck.explore(Ask::new(MODEL));
    // For the writer to have the claim in its hands, and no patience yet to lose. If it has not, this proves nothing.
    std::thread::sleep(seconds(1) / 20);
    drop(leasing);
    let Stuck { pool, clock, lock, _folder: folder } = stuck;
    drop(lock);
    pool.flush().await.unwrap();
    pool.flush().await.unwrap();
    // Nor for others.
    let state = StateLocation::File(folder.path().join("pool.json"));
    let builder = Pool::builder().keys(keys(3)).clock(Arc::new(clock)).state(state);
    let other = builder.build().unwrap();
    for _ in 0..3 {
        assert!(other.lease(Ask::new(MODEL)).await.unwrap().is_exploration());
    }
}

#[tokio::test]
async fn a_deadline_is_kept_while_an_exploration_is_claimed() {
    let stuck = Stuck::new().await;
    let deadline = at("2026-11-30T12:00:00.050Z");
    let mut leasing = stuck.explore(Ask::new(MODEL).by(deadline));
    stuck.clock.set(deadline);
    let polled = leasing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, std::task::Poll::Ready(Err(_))));
    assert_eq!(stuck.explored(), 0);
    stuck.assert_nothing_is_spent().await;
}

#[tokio::test]
async fn a_claim_that_the_state_file_does_not_answer_is_one_per_call_and_given_back() {
    let stuck = Stuck::new().await;
    // The pool's own patience with the file ends this: half a second.
    let answer = stuck.explore(Ask::new(MODEL)).await;
    assert!(answer.is_err(), "nothing else can ever serve");
    assert_eq!(stuck.explored(), 0);
    stuck.assert_nothing_is_spent().await;
}

#[test]
fn dropping_available_at_every_await_leaves_nothing_behind() {
    for times in 0..3 {
        let fixture = one_at_a_time();
        fixture.serve();
        assert!(poll_and_drop(times, fixture.pool.available(&Ask::new(MODEL))).is_none());
        assert_untouched(&fixture, 1);
    }
}

#[test]
fn dropping_a_lease_before_sent_gives_its_share_back() {
    let fixture = one_at_a_time();
    drop(fixture.lease().unwrap());
    assert_untouched(&fixture, 0);
    fixture.serve();
}

#[test]
fn dropping_a_lease_after_sent_keeps_it_counted() {
    let fixture = one_at_a_time();
    let mut lease = fixture.lease().unwrap();
    lease.sent();
    drop(lease);
    assert_untouched(&fixture, 1);
    assert!(fixture.lease().is_err());
}

#[test]
fn dropping_the_report_of_a_refusal_loses_nothing() {
    for times in 0..2 {
        let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
        let mut lease = fixture.lease().unwrap();
        lease.sent();
        let _ = poll_and_drop(times, lease.refused(&day_spent(Some(20))));
        assert_untouched(&fixture, 0);
        let soonest = fixture.soonest();
        let fixture = fixture.restart(|builder| builder.keys(keys(1)));
        assert_eq!(fixture.soonest(), soonest);
    }
}

#[test]
fn dropping_a_lease_in_the_middle_of_a_panic_gives_it_back() {
    let fixture = one_at_a_time();
    let pool = fixture.pool.clone();
    let panicked = std::thread::spawn(move || {
        let _lease = pool.try_lease(&Ask::new(MODEL)).unwrap();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(panicked.join().is_err());
    assert_untouched(&fixture, 0);
    fixture.serve();
}

#[test]
fn a_lease_outlives_its_pool() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let Fixture { clock, state, pool } = fixture;
    let mut lease = pool.try_lease(&Ask::new(MODEL)).unwrap();
    drop(pool);
    lease.sent();
    lease.served(&Usage::default());
    let pool = open(&clock, &state, |builder| builder.keys(keys(1)));
    assert_eq!(pool.status().buckets[0].day.requests, 1);
}

#[test]
fn without_sent_an_outcome_still_counts() {
    let fixture = one_at_a_time();
    fixture.lease().unwrap().served(&Usage::default());
    assert_untouched(&fixture, 1);
}
