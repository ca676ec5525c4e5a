//! The attempt loop at its edges: keys that leave, clocks that step, chains without measure, hooks that misbehave.

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    time::Duration,
};

use common::{
    MODEL, NOON, OTHER_MODEL, Rig, at,
    bodies::{day_spent, minute_full, overloaded, reply},
    poll_times, secs, spec,
};
use futures_util::future::join;
use keywheel::{Clock as _, Error, RetryConfig};
use keywheel_provider::testing::Scripted;
use serde_json::{Value, json};

fn hop(token: Option<&str>) -> Value {
    let finish = if token.is_some() { "CONTINUATION" } else { "STOP" };
    let mut candidate = json!({
        "content": {"role": "model", "parts": [{"text": "part "}]},
        "finishReason": finish,
    });
    if let Some(token) = token {
        candidate["continuationToken"] = token.into();
    }
    json!({"candidates": [candidate]})
}

#[test]
fn a_hop_whose_key_was_removed_ends_the_call_instead_of_waiting_for_ever() {
    for streams in [false, true] {
        let rig = Rig::new(1);
        let gemini = rig.gemini.clone();
        rig.script.otherwise(move |request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            if body["continuationToken"].is_null() {
                gemini.reload_keys([spec(2)]).unwrap();
                let body = hop(Some("1"));
                return if streams { Scripted::events([body]) } else { reply(200, &body) };
            }
            let body = hop(None);
            if streams { Scripted::events([body]) } else { reply(200, &body) }
        });
        let ended = rig.run(async {
            if streams {
                let mut stream = rig.gemini.stream(MODEL, "hi").no_deadline().await.unwrap();
                stream.text().await.unwrap_err()
            } else {
                rig.gemini.generate(MODEL, "hi").no_deadline().await.unwrap_err()
            }
        });
        assert!(matches!(ended, Error::NoKeys { .. }), "{ended:?}");
        assert_eq!(rig.script.requests().len(), 1);
        rig.assert_balanced();
    }
}

#[test]
fn with_every_breaker_of_a_chain_open_a_call_without_a_deadline_waits_for_the_probes() {
    let rig = Rig::built(2, |pool| pool, |client| client.fallback([OTHER_MODEL]));
    rig.script.otherwise(|_| overloaded());
    for _ in 0..8 {
        let _down = rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(9)));
        let _down =
            rig.run(rig.gemini.generate(OTHER_MODEL, "hi").deadline(Duration::from_secs(9)));
    }
    let before = rig.clock.now();
    let error = rig.run(rig.gemini.generate(MODEL, "hi").no_deadline()).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error:?}");
    let took = rig.clock.now() - before;
    assert!(took > secs(5) && took < secs(3_600), "{took}");
    rig.assert_balanced();
}

#[test]
fn a_chain_of_fifty_models_asks_each_once_by_each_key() {
    let models: Vec<String> = (0..50).map(|number| format!("gemini-{number}")).collect();
    let rig = Rig::built(3, |pool| pool, |client| client.fallback(models.clone()));
    rig.script.otherwise(|_| day_spent(20));
    let error = rig.run(rig.gemini.generate("gemini-7", "hi")).unwrap_err();
    let Error::Exhausted { skipped, attempts, .. } = error else { panic!("{error:?}") };
    assert_eq!((skipped.len(), attempts.len()), (50, 150));
    assert_eq!(rig.clock.now(), at(NOON));
    rig.assert_balanced();
}

#[test]
fn waiting_calls_go_on_with_the_keys_that_a_reload_brings() {
    let rig = Rig::new(1);
    rig.script.reply(day_spent(20));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let call = rig.gemini.generate(MODEL, "hi").no_deadline();
    let reload = async {
        rig.clock.manual_sleep((at(NOON) + secs(60)).timestamp_millis()).unwrap().await;
        rig.gemini.reload_keys([spec(2)]).unwrap();
    };
    let (reply, ()) = rig.run(join(call.into_future(), reload));
    assert_eq!(reply.unwrap().text(), "Hello");
    assert_eq!(rig.clock.now(), at(NOON) + secs(60));
    rig.assert_balanced();
}

#[test]
fn a_wait_hook_that_panics_holds_nothing() {
    let rig = Rig::built(1, |pool| pool, |client| client.on_wait(|_| panic!("the hook")));
    rig.script.reply(minute_full(15, 30));
    rig.script.reply(overloaded());
    rig.script.otherwise(|_| Scripted::text("Hello"));
    for _ in 0..2 {
        let call = AssertUnwindSafe(|| rig.run(rig.gemini.generate(MODEL, "hi")));
        assert!(catch_unwind(call).is_err());
        rig.assert_balanced();
        rig.clock.advance(Duration::from_secs(60));
    }
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    rig.assert_balanced();
}

#[test]
fn a_call_that_is_polled_again_after_its_deadline_sends_nothing() {
    let rig = Rig::new(1);
    rig.script.reply(minute_full(15, 30));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let mut call = pin!(rig.gemini.generate(MODEL, "hi").into_future());
    assert!(poll_times(&rig.clock, call.as_mut(), 1).is_none());
    rig.clock.advance(Duration::from_secs(3 * 86_400));
    rig.run(call).unwrap_err();
    assert_eq!(rig.script.requests().len(), 1);
    rig.assert_balanced();
}

#[test]
fn settings_without_measure_neither_panic_nor_hang() {
    for percent in [0, u32::MAX] {
        let retry = RetryConfig {
            max_retries: 5,
            first_pause: Duration::MAX,
            max_pause: Duration::MAX,
            budget_percent: percent,
            budget_reserve: u32::MAX,
            breaker_after: u32::MAX,
        };
        let rig = Rig::built(
            1,
            |pool| pool,
            |client| {
                let client = client.retry(retry).overflow_after(Duration::MAX);
                client.fallback_after(Duration::MAX).fallback([OTHER_MODEL])
            },
        );
        rig.script.otherwise(|_| overloaded());
        rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap_err();
        rig.assert_balanced();
    }
}
