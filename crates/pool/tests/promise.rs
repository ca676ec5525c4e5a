//! The promise: at the moment told an ask can be served, and a millisecond earlier it cannot. And what many
//! threads do at once adds up.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod common;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use common::*;
use keywheel_core::{Clock, Usage};
use keywheel_pool::{Ask, Limits, Pool, Selection, StateLocation};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Serve { tokens: u64 },
    Refuse { what: usize },
    Hold,
    Release,
    Wait { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..400).prop_map(|tokens| Step::Serve { tokens }),
        1 => (0usize..4).prop_map(|what| Step::Refuse { what }),
        1 => Just(Step::Hold),
        1 => Just(Step::Release),
        1 => (0u64..90).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn at_the_moment_told_it_is_served_and_a_millisecond_earlier_it_is_not(
        count in 1usize..5,
        rpm in prop::option::of(1u64..6),
        tpm in prop::option::of(300u64..1_000),
        rpd in prop::option::of(3u64..30),
        most_remaining: bool,
        steps in prop::collection::vec(step(), 1..60),
        need in 0u64..1_200,
    ) {
        let limits = Limits { rpm, tpm, rpd, tpd: None };
        let selection = if most_remaining { Selection::MostRemaining } else { Selection::RoundRobin };
        let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
            builder.keys(keys(count)).limits("*", limits).selection(selection)
        });
        let mut held = Vec::new();
        for step in steps {
            let ask = match step {
                Step::Serve { tokens } => Ask::new(MODEL).with_tokens(tokens),
                _ => Ask::new(MODEL),
            };
            match step {
                Step::Wait { seconds: count } => fixture.advance(seconds(count)),
                Step::Release => drop(held.pop()),
                Step::Serve { .. } | Step::Refuse { .. } | Step::Hold => {
                    let Ok(mut lease) = fixture.pool.try_lease(&ask) else { continue };
                    match step {
                        Step::Hold => {
                            held.push(lease);
                            continue;
                        }
                        Step::Refuse { what } => {
                            lease.sent();
                            let refusals =
                                [minute_spent(20, None), bare(), day_spent(None), minute_spent(9, Some(3))];
                            drop(lease.refused(&refusals[what]));
                        }
                        _ => {
                            lease.sent();
                            lease.served(&Usage { input: ask.tokens, ..Usage::default() });
                        }
                    }
                }
            }
        }
        drop(held);
        let ask = Ask::new(MODEL).with_tokens(need);
        let Err(exhausted) = fixture.pool.try_lease(&ask) else { return Ok(()) };
        let soonest = exhausted.soonest.expect("all that holds it back has an end");
        prop_assert!(soonest > fixture.now());
        fixture.clock.set(soonest - chrono::TimeDelta::milliseconds(1));
        prop_assert!(fixture.pool.try_lease(&ask).is_err());
        fixture.clock.set(soonest);
        prop_assert!(fixture.pool.try_lease(&ask).is_ok());
    }
}

#[test]
fn threads_that_call_at_once_never_pass_a_limit_and_lose_no_count() {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        let limits = Limits { rpd: Some(100), ..Limits::default() };
        builder.keys(keys(8)).limits("*", limits)
    });
    let served: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let fixture = &fixture;
                scope.spawn(move || {
                    let mut served = 0;
                    for call in 0..400 {
                        let Ok(mut lease) = fixture.lease() else { continue };
                        match (call + worker) % 4 {
                            0 => drop(lease),
                            1 => {
                                lease.sent();
                                lease.failed(&[]);
                                served += 1;
                            }
                            _ => {
                                lease.sent();
                                lease.served(&Usage::default());
                                served += 1;
                            }
                        }
                    }
                    served
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let buckets = fixture.pool.status().buckets;
    let counted: u64 = buckets.iter().map(|bucket| bucket.day.requests).sum();
    assert_eq!(counted, served as u64);
    assert!(buckets.iter().all(|bucket| bucket.day.requests <= 100 && bucket.in_flight == 0));
}

/// Follows the runtime's time, which a test may pause, and counts how often it is read.
#[derive(Debug)]
struct RuntimeClock {
    began: tokio::time::Instant,
    reads: AtomicU64,
}

impl RuntimeClock {
    fn begin() -> Arc<Self> {
        Arc::new(Self { began: tokio::time::Instant::now(), reads: AtomicU64::new(0) })
    }
}

impl Clock for RuntimeClock {
    fn unix_ms(&self) -> i64 {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let since = i64::try_from(self.began.elapsed().as_millis()).unwrap();
        at("2026-11-29T12:00:00Z").timestamp_millis() + since
    }
}

fn pool_on(clock: Arc<RuntimeClock>) -> Pool {
    let builder = Pool::builder().keys(keys(1)).clock(clock);
    builder.state(StateLocation::None).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn waiters_on_a_clock_that_follows_real_time_are_woken_by_it() {
    let pool = pool_on(RuntimeClock::begin());
    let reported = pool.mark_rate_limited("KEY_1", MODEL, Some(seconds(3))).await.unwrap();
    let until = reported.until.unwrap();
    let lease = pool.lease(Ask::new(MODEL)).await.unwrap();
    let late = pool.clock().now() - until;
    assert!(late.num_milliseconds() >= 0 && late.num_milliseconds() < 10, "{late}");
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_need_not_wait_reads_the_clock_once() {
    let clock = RuntimeClock::begin();
    let pool = pool_on(Arc::clone(&clock));
    let mut counts = Vec::new();
    for _ in 0..5 {
        let before = clock.reads.load(Ordering::Relaxed);
        let mut lease = pool.lease(Ask::new(MODEL)).await.unwrap();
        lease.sent();
        lease.served(&Usage::default());
        counts.push(clock.reads.load(Ordering::Relaxed) - before);
    }
    // The first call makes the model's state.
    assert_eq!(counts[1..], [1; 4]);
}
