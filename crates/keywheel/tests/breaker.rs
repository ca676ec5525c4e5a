//! A model that fails again and again is left alone: an outage must not eat a day's quota, and nobody's fault is
//! paid for.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use common::{
    MODEL, NOON, OTHER_MODEL, Rig, at,
    bodies::{day_spent, error, internal, overloaded, reply},
    fingerprint, poll_times, secs, spec,
};
use futures_util::future::join_all;
use keywheel::{Clock as _, Error, Limits, RetryConfig, SkipReason};
use keywheel_provider::{Sent, TransportKind, testing::Scripted};
use serde_json::json;

/// Five failures and no retry in between: the model is left alone from now on.
fn open(rig: &Rig, failure: fn() -> Scripted) {
    for _ in 0..5 {
        rig.script.reply(failure());
    }
    while rig.script.requests().len() < 5 {
        rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(7))).unwrap_err();
    }
    assert_eq!(rig.script.requests().len(), 5);
}

/// Answers by `answer`, and tells when each request came.
fn answering(
    rig: &Rig,
    answer: impl Fn(DateTime<Utc>) -> Scripted + Send + Sync + 'static,
) -> Arc<Mutex<Vec<DateTime<Utc>>>> {
    let (times, clock) = (Arc::new(Mutex::new(Vec::new())), rig.clock.clone());
    let log = Arc::clone(&times);
    rig.script.otherwise(move |_| {
        log.lock().unwrap().push(clock.now());
        answer(clock.now())
    });
    times
}

fn sent(rig: &Rig) -> usize {
    rig.script.requests().len()
}

/// Each failed call counts against the daily quota: <https://ai.google.dev/gemini-api/docs/billing>.
#[test]
fn an_overload_of_ten_minutes_does_not_eat_a_quota_of_twenty_a_day() {
    let limits = Limits { rpd: Some(20), ..Limits::default() };
    let rig = Rig::built(3, |pool| pool.limits("*", limits), |client| client);
    let ends = at(NOON) + secs(600);
    let times =
        answering(&rig, move |now| if now < ends { overloaded() } else { Scripted::text("Hello") });
    // A call every five seconds, each with a patience of twenty.
    let call = |number: i64| {
        let (gemini, clock) = (rig.gemini.clone(), rig.clock.clone());
        async move {
            let begins = at(NOON) + secs(5 * number);
            if let Some(sleep) = clock.manual_sleep(begins.timestamp_millis()) {
                sleep.await;
            }
            let served = gemini.generate(MODEL, "hi").deadline(Duration::from_secs(20)).await;
            served.map(|_| clock.now()).map_err(|error| (begins, error))
        }
    };
    let outcomes = rig.run(join_all((0..240).map(call)));
    let into_the_outage = times.lock().unwrap().iter().filter(|at| **at < ends).count();
    // Five to find out, and a probe after 15 s, 30 s, 1 min, 2 min and 5 min.
    assert!((6..=10).contains(&into_the_outage), "{into_the_outage} requests into the outage");
    let back = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).min().unwrap();
    assert!(*back - ends <= secs(375), "the first answer came at {back}, one pause after the end");
    for (begins, error) in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(matches!(error, Error::UpstreamDown { .. } | Error::Exhausted { .. }), "{error}");
        assert!(*begins < *back || matches!(error, Error::Exhausted { .. }), "{begins}: {error}");
    }
    rig.assert_balanced();
}

#[test]
fn a_call_that_the_next_probe_comes_too_late_for_is_told_when_it_comes() {
    let rig = Rig::new(2);
    open(&rig, overloaded);
    let before = rig.clock.now();
    let call = rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(5));
    let error = rig.run(call).unwrap_err();
    let Error::UpstreamDown { next_attempt_at: Some(next), .. } = &error else { panic!("{error}") };
    assert!(*next - before <= secs(19) && *next > before, "{next}");
    assert_eq!(error.next_available_at(), Some(*next));
    assert_eq!((sent(&rig), rig.clock.now()), (5, before), "nothing was sent, nobody waited");
    assert_eq!(rig.gemini.next_available(MODEL), Some(*next));
}

#[test]
fn one_caller_probes_and_the_others_go_on_with_its_answer() {
    let rig = Rig::new(2);
    open(&rig, internal);
    let times = answering(&rig, |_| Scripted::text("Hello").after(Duration::from_secs(3)));
    let began = rig.clock.now();
    let calls = (0..20).map(|_| rig.gemini.generate(MODEL, "hi").into_future());
    let replies = rig.run(join_all(calls));
    assert!(replies.iter().all(|reply| reply.is_ok()), "{replies:?}");
    // All waited for the probe, and only one was on its way before it had an answer.
    let times = times.lock().unwrap();
    let (first, second) = (times[0], times[1]);
    assert!(first - began >= secs(8) && second - first >= secs(3), "{first} {second}");
    rig.assert_balanced();
}

#[test]
fn a_probe_that_fails_ends_those_who_cannot_wait_for_the_next() {
    let rig = Rig::new(2);
    open(&rig, overloaded);
    rig.script.otherwise(|_| overloaded());
    let calls = (0..20).map(|_| rig.gemini.generate(MODEL, "hi").into_future());
    let replies = rig.run(join_all(calls));
    assert!(replies.iter().all(|reply| matches!(reply, Err(Error::UpstreamDown { .. }))));
    // Within two minutes: the probes after 15 s and 30 s, and perhaps the one after another 60 s.
    let probes = sent(&rig) - 5;
    assert!((2..=3).contains(&probes), "{probes}");
}

#[test]
fn with_a_chain_the_next_model_answers_at_once() {
    let rig = Rig::built(1, |pool| pool, |client| client.fallback([OTHER_MODEL]));
    rig.script.otherwise(|request| match request.model().as_deref() {
        Some(MODEL) => overloaded(),
        _ => Scripted::text("Hello"),
    });
    for _ in 0..2 {
        rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    }
    let (before, requests) = (rig.clock.now(), sent(&rig));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!((reply.model(), reply.attempts().len()), (OTHER_MODEL, 1));
    assert_eq!(reply.skipped()[0].reason, SkipReason::BreakerOpen);
    assert!(reply.skipped()[0].available_at.unwrap() > before);
    assert_eq!((rig.clock.now(), sent(&rig)), (before, requests + 1));
}

/// Nor does the breaker of one model touch another.
#[test]
fn other_models_and_calls_without_a_model_go_on() {
    let rig = Rig::new(1);
    open(&rig, overloaded);
    rig.script.otherwise(|request| {
        if request.url.contains("countTokens") {
            return Scripted::json(200, r#"{"totalTokens": 2}"#);
        }
        Scripted::text("Hello")
    });
    let before = rig.clock.now();
    rig.run(rig.gemini.generate(OTHER_MODEL, "hi")).unwrap();
    rig.run(rig.gemini.count_tokens(MODEL, "hi")).unwrap();
    assert_eq!(rig.clock.now(), before);
}

#[test]
fn failures_of_every_kind_count_and_refusals_do_not() {
    let timeout = || Scripted::failure(TransportKind::Timeout, Sent::Maybe);
    let empty = || Scripted::json(200, "{}");
    for failure in [overloaded as fn() -> Scripted, internal, timeout, empty] {
        let rig = Rig::new(1);
        open(&rig, failure);
        let error = rig.run(rig.gemini.generate(MODEL, "hi").deadline(secs_std(5))).unwrap_err();
        assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
        assert_eq!(sent(&rig), 5);
    }
    let rig = Rig::new(6);
    for _ in 0..6 {
        rig.script.reply(day_spent(20));
    }
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert_eq!(sent(&rig), 6, "six spent keys are no failing model");
    let rig = Rig::new(1);
    rig.script.otherwise(|_| Scripted::failure(TransportKind::Connect, Sent::No));
    for _ in 0..4 {
        let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
        let Error::UpstreamDown { next_attempt_at, .. } = error else { panic!("{error}") };
        assert_eq!(next_attempt_at, None, "no connection says nothing of the model");
    }
}

fn secs_std(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Whoever goes away while they probe must not keep the model from everybody.
#[test]
fn a_probe_that_is_dropped_at_any_await_does_not_lock_the_model() {
    let mut ended = false;
    for polls in 0..30 {
        let rig = Rig::new(1);
        open(&rig, overloaded);
        rig.script.otherwise(|_| Scripted::text("Hello").after(Duration::from_millis(100)));
        let served = {
            let call = pin!(rig.gemini.generate(MODEL, "hi").into_future());
            poll_times(&rig.clock, call, polls)
        };
        rig.assert_balanced();
        let before = rig.clock.now();
        rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        assert!(rig.clock.now() - before <= secs(20), "after {polls} polls");
        ended |= served.is_some();
    }
    assert!(ended, "the probe never came to its end");
}

#[test]
fn a_failing_model_never_touches_a_paid_key() {
    let rig = Rig::built(1, |pool| pool.keys([spec(1), spec(2).paid()]), |client| client);
    rig.script.otherwise(|_| overloaded());
    for _ in 0..10 {
        rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap_err();
    }
    assert!(!rig.keys_used().contains(&fingerprint(2)));
    // Nor when the failures have eaten the free quota.
    let limits = Limits { rpd: Some(1), ..Limits::default() };
    let rig = Rig::built(
        1,
        |pool| pool.keys([spec(1), spec(2).paid()]).limits("*", limits),
        |client| client,
    );
    rig.script.otherwise(|_| overloaded());
    rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap_err();
    assert_eq!(rig.keys_used(), [fingerprint(1)]);
}

#[test]
fn a_stated_wait_keeps_it_shut_for_as_long() {
    let rig = Rig::new(1);
    let retry = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "90s"}]);
    rig.script
        .otherwise(move |_| reply(503, &error(503, "UNAVAILABLE", "high demand", retry.clone())));
    for _ in 0..5 {
        rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(9))).unwrap_err();
    }
    let next = rig.gemini.next_available(MODEL).unwrap();
    assert_eq!((next - rig.clock.now()).num_seconds(), 90);
}

#[test]
fn it_can_be_switched_off() {
    let never = RetryConfig { breaker_after: 0, budget_reserve: 100, ..RetryConfig::default() };
    let rig = Rig::built(1, |pool| pool, |client| client.retry(never));
    rig.script.otherwise(|_| overloaded());
    for _ in 0..10 {
        rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    }
    assert_eq!(sent(&rig), 30);
}

/// Most calls fail: retries would only triple the load. <https://github.com/JerryZLiu/Dayflow/issues/57>: a hundred calls
/// an hour where eight were needed.
#[test]
fn when_the_retry_budget_is_spent_a_failure_ends_the_call_and_says_so() {
    let config = RetryConfig { breaker_after: 0, budget_reserve: 3, ..RetryConfig::default() };
    let rig = Rig::built(1, |pool| pool, |client| client.retry(config));
    rig.script.otherwise(|_| overloaded());
    let calls = (0..20).map(|_| rig.gemini.generate(MODEL, "hi").into_future());
    let errors = rig.run(join_all(calls));
    let spent = errors.iter().filter(|error| {
        error.as_ref().is_err_and(|error| error.to_string().contains("retry budget is spent"))
    });
    assert!(spent.count() >= 16, "{errors:?}");
    // Three of the reserve, two for twenty calls, and what the seconds bring.
    let retries = rig.gemini.counters().retries;
    assert!((3..=6).contains(&retries), "{retries}");
    // A call for many vectors is one call, however many requests it takes.
    let rig = Rig::built(
        1,
        |pool| pool.limits("*", Limits { rpm: Some(10_000), ..Limits::default() }),
        |client| client.retry(RetryConfig { budget_percent: 20, budget_reserve: 0, ..config }),
    );
    rig.script.otherwise(|request| {
        let texts = request.json()["requests"].as_array().map_or(0, Vec::len);
        if texts == 1 { overloaded() } else { Scripted::embeddings(vec![[1.0_f32]; texts]) }
    });
    let texts: Vec<_> = (0..1_001).map(|number| format!("text {number}")).collect();
    rig.run(rig.gemini.embed("gemini-embedding-001", texts)).unwrap_err();
    assert_eq!(rig.gemini.counters().retries, 0);
    // Spent and dead keys cost nothing of it.
    let rig = Rig::built(
        12,
        |pool| pool,
        |client| client.retry(RetryConfig { budget_percent: 0, budget_reserve: 0, ..config }),
    );
    (0..11).for_each(|_| rig.script.reply(day_spent(20)));
    rig.script.reply(Scripted::text("Hello"));
    assert_eq!(rig.run(rig.gemini.generate(MODEL, "hi")).unwrap().attempts().len(), 12);
}
