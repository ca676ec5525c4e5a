//! Whatever the provider does to calls of every patience, they end, and what is told of them adds up.

#![cfg(feature = "ledger")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use common::{
    MODEL, NOON, OTHER_MODEL, at,
    bodies::{
        bad_gateway, bad_request, bare_429, day_spent, internal, invalid_key, minute_full,
        model_not_found, overloaded, part, reply, tokens_full,
    },
    ledger::{Charged, request},
    secs, spec,
};
use futures_util::future::{Either, join, join_all, select};
use keywheel::{
    Clock as _, Gemini, KeySpec, ManualClock,
    ledger::{Limit, Period},
};
use keywheel_provider::{
    Sent, TransportKind,
    testing::{Recorded, Scripted},
};
use proptest::prelude::*;
use serde_json::json;

const THIRD: &str = "gemma-3-27b-it";

/// One of the things that a provider does.
fn outcome(kind: u8, streams: bool) -> Scripted {
    match kind % 21 {
        0 => overloaded(),
        1 => internal(),
        2 => bad_gateway(),
        3 => minute_full(15, 30),
        4 => day_spent(20),
        5 => bare_429(),
        6 => invalid_key(),
        7 => model_not_found(),
        8 => bad_request(),
        9 => tokens_full(250_000, 20),
        10 => Scripted::failure(TransportKind::Connect, Sent::No),
        11 => Scripted::failure(TransportKind::Interrupted, Sent::Maybe),
        12 => reply(200, &json!({})),
        13 => reply(503, &json!("not an error that anybody knows")),
        14..=16 => {
            let mut hop = part("Hello ", Some("CONTINUATION"), (8, 1));
            hop["candidates"][0]["continuationToken"] = format!("token {kind}").into();
            if streams { Scripted::events([hop]) } else { reply(200, &hop) }
        }
        17 if streams => Scripted::events([part("Hel", None, (8, 1)), json!({"odd": true})]),
        _ if streams => Scripted::events([part("Hello", Some("STOP"), (8, 2))]),
        _ => Scripted::text("Hello"),
    }
}

fn is_stream(request: &Recorded) -> bool {
    request.url.to_string().contains("streamGenerateContent")
}

#[derive(Debug, Clone, Copy)]
struct Made {
    streams: bool,
    pays: bool,
    /// In seconds; `None`: as long as it takes.
    deadline: Option<u64>,
    chain: usize,
    /// Its caller goes away after so many seconds.
    dropped: Option<u64>,
}

fn made() -> impl Strategy<Value = Made> {
    let deadline = prop::option::of(prop_oneof![Just(0_u64), Just(1), 5..200_u64, Just(u64::MAX)]);
    let dropped = prop::option::weighted(0.2, 0_u64..40);
    (any::<bool>(), any::<bool>(), deadline, 0_usize..4, dropped).prop_map(
        |(streams, pays, deadline, chain, dropped)| Made {
            streams,
            pays,
            deadline,
            chain,
            dropped,
        },
    )
}

/// True if it was answered to its end.
async fn call(gemini: Gemini, made: Made) -> bool {
    // The preferred model, one of them twice, and by its other name.
    let chain = [MODEL, OTHER_MODEL, "models/gemini-3.5-flash", THIRD].into_iter().take(made.chain);
    let chain: Vec<_> = chain.collect();
    if made.streams {
        let mut call = gemini.stream(MODEL, request()).fallback(chain);
        call = if made.pays { call.allow_paid() } else { call };
        call = match made.deadline {
            Some(secs) => call.deadline(Duration::from_secs(secs)),
            None => call.no_deadline(),
        };
        let Ok(mut stream) = call.await else { return false };
        let whole = stream.text().await.is_ok();
        assert!(stream.next().await.is_none(), "polled after its end");
        return whole;
    }
    let mut call = gemini.generate(MODEL, request()).fallback(chain);
    call = if made.pays { call.allow_paid() } else { call };
    call = match made.deadline {
        Some(secs) => call.deadline(Duration::from_secs(secs)),
        None => call.no_deadline(),
    };
    call.await.is_ok()
}

/// Whether it was answered to its end; `None` if its caller went away.
async fn call_or_drop(gemini: Gemini, clock: ManualClock, made: Made) -> Option<bool> {
    let Some(after) = made.dropped else { return Some(call(gemini, made).await) };
    let gone_at = clock.now() + secs(i64::try_from(after).unwrap());
    let gone = clock.manual_sleep(gone_at.timestamp_millis()).unwrap();
    match select(pin!(call(gemini, made)), pin!(gone)).await {
        Either::Left((whole, _)) => Some(whole),
        Either::Right(_) => None,
    }
}

/// Free up to the third.
fn free_or_paid(number: usize) -> KeySpec {
    if number > 3 { spec(number).paid() } else { spec(number) }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn calls_end_and_their_counters_add_up(
        kinds in prop::collection::vec(any::<u8>(), 0..60),
        slow in prop::collection::vec(0_u64..30, 1..8),
        calls in prop::collection::vec(made(), 1..9),
        reloads in prop::collection::vec((0_i64..60, 1_usize..6, 1_usize..4), 0..4),
        budget in prop::option::of(100_u64..3_000),
        degrades in any::<bool>(),
    ) {
        let limits = budget.map(|tokens| Limit::tokens(Period::Day, tokens));
        let it = Charged::built(3, limits, |client| match degrades {
            true => client.on_exhausted(|_| async { "resting" }),
            false => client,
        });
        let (rig, next) = (&it.rig, AtomicUsize::new(0));
        rig.script.otherwise(move |request| {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let kind = kinds.get(at).copied().unwrap_or(20);
            outcome(kind, is_stream(request)).after(Duration::from_secs(slow[at % slow.len()]))
        });
        let reload = |&(after, first, keys): &(i64, usize, usize)| {
            let (gemini, clock) = (rig.gemini.clone(), rig.clock.clone());
            async move {
                let moment = at(NOON) + secs(after);
                clock.manual_sleep(moment.timestamp_millis()).unwrap().await;
                gemini.reload_keys((first..first + keys).map(free_or_paid)).unwrap();
            }
        };
        let begin = |made: &Made| call_or_drop(rig.gemini.clone(), rig.clock.clone(), *made);
        let reloading = join_all(reloads.iter().map(reload));
        let (ended, _) = rig.run(join(join_all(calls.iter().map(begin)), reloading));
        it.assert_balanced();
        let count = |what| ended.iter().filter(|ended| **ended == what).count() as u64;
        let (whole, dropped) = (count(Some(true)), count(None));
        let counters = rig.gemini.counters();
        prop_assert_eq!(counters.calls, calls.len() as u64);
        prop_assert_eq!(count(Some(false)), counters.gave_up);
        prop_assert!(counters.degraded <= whole + dropped);
        let refused: u64 = counters.refused.values().sum();
        let told = counters.served + refused + counters.failed;
        prop_assert!(told <= counters.attempts && counters.attempts <= told + dropped);
        prop_assert!(whole <= counters.served + counters.degraded);
        prop_assert!(counters.retries <= counters.attempts && counters.fallbacks <= counters.calls);
        // The free check of keys that look dead is no attempt.
        let sent = rig.script.requests().iter().filter(|request| request.model().is_some()).count();
        prop_assert_eq!(counters.attempts, sent as u64);
        prop_assert_eq!(it.rows().len() as u64, counters.attempts);
        if let Some(tokens) = budget {
            prop_assert!(it.used() <= tokens, "{} of {tokens}", it.used());
        }
    }
}
