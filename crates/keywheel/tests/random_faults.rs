//! Whatever the provider does to calls of every patience, they end, and what is told of them adds up.

mod common;

use std::time::Duration;

use common::{
    MODEL, OTHER_MODEL, Rig,
    bodies::{
        bad_gateway, bad_request, bare_429, day_spent, internal, invalid_key, minute_full,
        model_not_found, overloaded, part, reply, tokens_full,
    },
};
use futures_util::future::join_all;
use keywheel::Gemini;
use keywheel_provider::{
    Sent, TransportKind,
    testing::{Recorded, Scripted},
};
use proptest::prelude::*;
use serde_json::json;

const THIRD: &str = "gemma-3-27b-it";

/// One of the things that a provider does.
fn outcome(kind: u8, streams: bool) -> Scripted {
    match kind % 18 {
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
        14 if streams => Scripted::events([part("Hel", None, (8, 1)), json!({"odd": true})]),
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
}

fn made() -> impl Strategy<Value = Made> {
    let deadline = prop::option::of(prop_oneof![Just(0_u64), Just(1), 5..200_u64, Just(u64::MAX)]);
    (any::<bool>(), any::<bool>(), deadline, 0_usize..4)
        .prop_map(|(streams, pays, deadline, chain)| Made { streams, pays, deadline, chain })
}

/// True if it was answered to its end.
async fn call(gemini: Gemini, made: Made) -> bool {
    // The preferred model, one of them twice, and by its other name.
    let chain = [MODEL, OTHER_MODEL, "models/gemini-3.5-flash", THIRD].into_iter().take(made.chain);
    let chain: Vec<_> = chain.collect();
    if made.streams {
        let mut call = gemini.stream(MODEL, "hi").fallback(chain);
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
    let mut call = gemini.generate(MODEL, "hi").fallback(chain);
    call = if made.pays { call.allow_paid() } else { call };
    call = match made.deadline {
        Some(secs) => call.deadline(Duration::from_secs(secs)),
        None => call.no_deadline(),
    };
    call.await.is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn calls_end_and_their_counters_add_up(
        kinds in prop::collection::vec(any::<u8>(), 0..60),
        slow in prop::collection::vec(0_u64..30, 1..8),
        calls in prop::collection::vec(made(), 1..9),
    ) {
        let rig = Rig::built(3, |pool| pool, |client| client);
        let at = std::sync::atomic::AtomicUsize::new(0);
        rig.script.otherwise(move |request| {
            let at = at.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let kind = kinds.get(at).copied().unwrap_or(17);
            let after = Duration::from_secs(slow[at % slow.len()]);
            outcome(kind, is_stream(request)).after(after)
        });
        let run = join_all(calls.iter().map(|made| call(rig.gemini.clone(), *made)));
        let whole = rig.run(run).into_iter().filter(|whole| *whole).count() as u64;
        rig.assert_balanced();
        let counters = rig.gemini.counters();
        prop_assert_eq!(counters.calls, calls.len() as u64);
        prop_assert_eq!(counters.served, whole);
        prop_assert_eq!(counters.calls, whole + counters.gave_up + counters.degraded);
        let refused: u64 = counters.refused.values().sum();
        let told = counters.served + refused + counters.failed;
        prop_assert_eq!(counters.attempts, told);
        prop_assert!(counters.retries <= counters.attempts && counters.fallbacks <= counters.calls);
        prop_assert!(counters.attempts <= rig.script.requests().len() as u64);
    }
}
