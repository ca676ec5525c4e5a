//! When the model that was asked for cannot answer, another one of the chain does, and it is said.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::time::Duration;

use common::{
    MIDNIGHT, MODEL, NOON, OTHER_MODEL, Rig, at,
    bodies::{
        bad_request, day_spent, error, minute_full, model_not_found, overloaded, part, reply,
    },
    fingerprint, label, over, secs, spec,
};
use futures_util::future::join;
use keywheel::{
    Clock as _, Error, GenerateRequest, Limits, Pool, RetryConfig, SkipReason, StateLocation,
};
use keywheel_provider::testing::{Script, Scripted};
use serde_json::json;

const THIRD: &str = "gemma-3-27b-it";

/// A client with a chain of three, whose models answer as `reply` says.
fn rig(keys: usize, reply: impl Fn(&str) -> Scripted + Send + Sync + 'static) -> Rig {
    let rig = Rig::built(keys, |pool| pool, |client| client.fallback([OTHER_MODEL, THIRD]));
    rig.script.otherwise(move |request| reply(&request.model().unwrap()));
    rig
}

fn asked(rig: &Rig) -> Vec<String> {
    rig.script.requests().iter().map(|request| request.model().unwrap()).collect()
}

fn no_free_tier() -> Scripted {
    let metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests";
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{
            "quotaMetric": metric,
            "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
            "quotaDimensions": {"location": "global", "model": "gemini-internal"},
        }],
    }]);
    let message = format!(
        "You exceeded your current quota. \n* Quota exceeded for metric: {metric}, limit: 0, model: x"
    );
    reply(429, &error(429, "RESOURCE_EXHAUSTED", &message, details))
}

#[test]
fn a_model_whose_day_is_spent_hands_over_and_that_is_said() {
    let rig = rig(2, |model| match model {
        MODEL => day_spent(500),
        _ => Scripted::text("Hello"),
    });
    let before = rig.clock.now();
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!((&*reply.text(), reply.model()), ("Hello", OTHER_MODEL));
    assert_eq!(asked(&rig), [MODEL, MODEL, OTHER_MODEL]);
    let models: Vec<_> = reply.attempts().iter().map(|attempt| attempt.model.as_str()).collect();
    assert_eq!(models, asked(&rig));
    let [skipped] = reply.skipped() else { panic!("{:?}", reply.skipped()) };
    assert_eq!((skipped.model.as_str(), skipped.reason), (MODEL, SkipReason::OutOfQuota));
    assert!(skipped.available_at.unwrap() >= at(MIDNIGHT));
    assert_eq!(rig.clock.now(), before, "nobody waited");
    // From now on nothing is sent to find that out.
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!((reply.model(), reply.attempts().len()), (OTHER_MODEL, 1));
    rig.assert_balanced();
}

#[test]
fn a_model_that_is_gone_or_has_no_free_tier_is_passed_over() {
    for (fault, reason, sent) in [
        (model_not_found as fn() -> Scripted, SkipReason::NotFound, 1),
        (no_free_tier, SkipReason::NoFreeTier, 2),
    ] {
        let rig =
            rig(2, move |model| if model == MODEL { fault() } else { Scripted::text("Hello") });
        let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        assert_eq!(reply.model(), OTHER_MODEL);
        let [skipped] = reply.skipped() else { panic!("{:?}", reply.skipped()) };
        assert_eq!((skipped.reason, skipped.available_at), (reason, None));
        assert_eq!(reply.attempts().len(), sent + 1, "{reason}");
        rig.assert_balanced();
    }
}

#[test]
fn an_overloaded_model_is_retried_and_then_passed_over() {
    let rig = rig(3, |model| match model {
        MODEL => overloaded(),
        _ => Scripted::text("Hello"),
    });
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(asked(&rig), [MODEL, MODEL, MODEL, OTHER_MODEL]);
    assert_eq!(reply.skipped()[0].reason, SkipReason::Failed);
    let counters = rig.gemini.counters();
    assert_eq!((counters.calls, counters.attempts, counters.retries), (1, 4, 2));
    assert_eq!((counters.fallbacks, counters.models[OTHER_MODEL].fallbacks), (1, 1));
    // The retries are the call's: a second model that fails, too, is asked once.
    let rig =
        self::rig(3, |model| if model == THIRD { Scripted::text("Hi") } else { overloaded() });
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(asked(&rig), [MODEL, MODEL, MODEL, OTHER_MODEL, THIRD]);
    assert_eq!((reply.model(), reply.skipped().len()), (THIRD, 2));
}

/// A minute that is full for a second is no reason to change the model; one that is full for a minute is.
#[test]
fn a_pause_within_the_patience_does_not_change_the_model() {
    for (wait, model) in [(1, MODEL), (30, OTHER_MODEL)] {
        let rig = rig(1, |_| Scripted::text("Hello"));
        rig.script.reply(minute_full(15, wait));
        let before = rig.clock.now();
        let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        assert_eq!(reply.model(), model, "{wait} s");
        assert!(rig.clock.now() - before <= secs(2));
    }
    let rig = Rig::built(
        1,
        |pool| pool,
        |client| client.fallback([OTHER_MODEL]).fallback_after(Duration::from_secs(60)),
    );
    rig.script.reply(minute_full(15, 30));
    rig.script.reply(Scripted::text("Hello"));
    assert_eq!(rig.run(rig.gemini.generate(MODEL, "hi")).unwrap().model(), MODEL);
}

#[test]
fn when_none_can_serve_now_the_soonest_of_them_all_is_waited_for() {
    let rig = rig(1, |_| Scripted::text("Hello"));
    // The preferred model in 50 s, the second in 20 s, the third in 40 s.
    for wait in [50, 20, 40] {
        rig.script.reply(minute_full(15, wait));
    }
    let before = rig.clock.now();
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(asked(&rig), [MODEL, OTHER_MODEL, THIRD, OTHER_MODEL]);
    assert_eq!(reply.model(), OTHER_MODEL);
    assert_eq!((rig.clock.now() - before).num_seconds(), 20);
    assert_eq!(reply.skipped().len(), 2, "{:?}", reply.skipped());
    rig.assert_balanced();
}

#[test]
fn an_exhausted_chain_ends_with_the_soonest_moment_over_all_models() {
    let rig = rig(1, |model| match model {
        OTHER_MODEL => minute_full(15, 300),
        _ => day_spent(20),
    });
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    let soonest = error.next_available_at().unwrap();
    assert!((at(NOON) + secs(300)..at(NOON) + secs(302)).contains(&soonest), "{soonest}");
    let said: Vec<_> = error.skipped().iter().map(|skipped| skipped.model.as_str()).collect();
    assert_eq!(said, [MODEL, OTHER_MODEL, THIRD]);
    let text = error.to_string();
    assert!(
        text.contains("passed over: gemini-3.5-flash-lite (out of quota until 2026-12-01T"),
        "{text}"
    );
    assert_eq!(error.attempts().len(), 3);
    rig.assert_balanced();
}

#[test]
fn the_callback_is_asked_once_no_model_of_the_chain_can_serve() {
    let rig = Rig::built(
        1,
        |pool| pool,
        |client| {
            client.fallback([OTHER_MODEL]).on_exhausted(|context| async move {
                format!("{} back at {:?}", context.model, context.next_available_at().is_some())
            })
        },
    );
    rig.script.otherwise(|_| day_spent(20));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert!(reply.degraded().is_some());
    assert_eq!(reply.text(), format!("{MODEL} back at true"));
    assert_eq!((reply.model(), reply.skipped().len()), (MODEL, 2));
    let counters = rig.gemini.counters();
    assert_eq!((counters.degraded, counters.gave_up, counters.served), (1, 0, 0));
}

#[test]
fn what_all_models_fail_at_is_said_for_each() {
    let rig = rig(1, |_| overloaded());
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    assert_eq!(asked(&rig), [MODEL, MODEL, MODEL, OTHER_MODEL, THIRD]);
    let reasons: Vec<_> = error.skipped().iter().map(|skipped| skipped.reason).collect();
    assert_eq!(reasons, [SkipReason::Failed; 3]);
}

/// Another model would say the same.
#[test]
fn a_fault_of_the_request_changes_no_model() {
    let rig = rig(3, |_| bad_request());
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error}");
    assert_eq!(asked(&rig), [MODEL]);
}

#[test]
fn a_call_sets_its_own_chain_or_none() {
    let rig = rig(1, |model| if model == THIRD { Scripted::text("Hello") } else { day_spent(20) });
    let own = rig.gemini.generate(MODEL, "hi").fallback([format!("models/{THIRD}")]);
    assert_eq!(rig.run(own).unwrap().model(), THIRD);
    assert_eq!(asked(&rig), [MODEL, THIRD]);
    let error = rig.run(rig.gemini.generate(MODEL, "hi").without_fallback()).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert!(error.skipped().is_empty());
}

/// A cache is one model's.
#[test]
fn a_request_with_a_cache_stays_with_its_model() {
    let rig = rig(1, |_| day_spent(20));
    let request = GenerateRequest {
        cached_content: Some("cachedContents/x".to_owned()),
        ..GenerateRequest::from("hi")
    };
    let error = rig.run(rig.gemini.generate(MODEL, request)).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert_eq!(asked(&rig), [MODEL]);
}

/// The vectors of two models cannot be compared.
#[test]
fn embeddings_never_change_the_model() {
    let rig = rig(1, |_| day_spent(20));
    let error = rig.run(rig.gemini.embed("gemini-embedding-2", ["hi"])).unwrap_err();
    assert!(error.next_available_at().unwrap() >= at(MIDNIGHT), "{error}");
    assert_eq!(asked(&rig), ["gemini-embedding-2"]);
}

#[test]
fn a_stream_falls_back_too_until_its_first_part() {
    let rig = rig(1, |model| match model {
        MODEL => overloaded(),
        _ => Scripted::events([part("Hello", Some("STOP"), (8, 1))]),
    });
    let (text, model, skipped) = rig.run(async {
        let mut stream = rig.gemini.stream(MODEL, "hi").await.unwrap();
        let text = stream.text().await.unwrap();
        (text, stream.model().to_owned(), stream.skipped().to_vec())
    });
    assert_eq!((text.as_str(), model.as_str()), ("Hello", OTHER_MODEL));
    assert_eq!(skipped[0].reason, SkipReason::Failed);
    rig.assert_balanced();
}

/// Whoever waits in the lines of several models holds nobody else's place when served by one of them.
#[test]
fn waiting_for_several_models_leaves_every_line() {
    let limits = Limits { rpm: Some(10), ..Limits::default() };
    let rig =
        Rig::built(1, |pool| pool.limits("*", limits), |client| client.fallback([OTHER_MODEL]));
    rig.script.otherwise(|_| Scripted::text("Hello").after(Duration::from_millis(300)));
    let call = || rig.gemini.generate(MODEL, "hi").into_future();
    let replies = rig.run(futures_util::future::join_all((0..40).map(|_| call())));
    let models: Vec<_> = replies.iter().map(|reply| reply.as_ref().unwrap().model()).collect();
    let by = |model| models.iter().filter(|answered| **answered == model).count();
    assert_eq!((by(MODEL), by(OTHER_MODEL)), (20, 20), "ten a minute each, for two minutes");
    assert!(rig.clock.now() - at(NOON) < secs(65), "nobody was left standing");
    rig.assert_balanced();
}

/// A paid key is no cheaper than another free model.
#[test]
fn a_paid_key_is_used_only_when_no_free_model_can_serve_in_time() {
    let built = || {
        Rig::built(
            1,
            |pool| pool.keys([spec(1), spec(2).paid()]),
            |client| client.fallback([OTHER_MODEL]),
        )
    };
    let rig = built();
    rig.script.reply(day_spent(20));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap();
    assert_eq!((reply.model(), reply.served_by()), (OTHER_MODEL, Some(&*label(1))));

    // Both models are spent for the free key: the preferred one is paid for.
    let rig = built();
    let paid = fingerprint(2);
    rig.script.otherwise(move |request| {
        if request.key == Some(paid) { Scripted::text("Hello") } else { day_spent(20) }
    });
    let reply = rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap();
    assert_eq!((reply.model(), reply.served_by()), (MODEL, Some(&*label(2))));
    assert_eq!(asked(&rig), [MODEL, OTHER_MODEL, MODEL]);

    // One is spent and the other one fails: that is no reason to pay.
    let rig = built();
    rig.script.otherwise(|request| match request.model().as_deref() {
        Some(MODEL) => day_spent(20),
        _ => overloaded(),
    });
    rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap_err();
    assert!(!rig.keys_used().contains(&paid));
}

/// A provider that asks for a long wait is not waited for while another model can answer.
#[test]
fn a_long_wait_that_a_failing_model_asks_for_is_not_waited_for() {
    let retry = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "30s"}]);
    let busy = move || reply(503, &error(503, "UNAVAILABLE", "high demand", retry.clone()));
    let rig = rig(1, move |model| if model == MODEL { busy() } else { Scripted::text("Hello") });
    let before = rig.clock.now();
    assert_eq!(rig.run(rig.gemini.generate(MODEL, "hi")).unwrap().model(), OTHER_MODEL);
    assert_eq!((rig.clock.now(), asked(&rig).len()), (before, 2));
}

/// No other model could be reached either.
#[test]
fn a_connection_that_cannot_be_made_changes_no_model() {
    use keywheel_provider::{Sent, TransportKind};
    let rig = rig(1, |_| Scripted::failure(TransportKind::Connect, Sent::No));
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    assert_eq!(asked(&rig), [MODEL; 3]);
}

/// What a call learned of a model is every call's: two at once do not both find out.
#[test]
fn two_calls_at_once_fall_back_together() {
    let rig = rig(1, |model| match model {
        MODEL => day_spent(20).after(Duration::from_millis(100)),
        _ => Scripted::text("Hello"),
    });
    let call = || rig.gemini.generate(MODEL, "hi").into_future();
    let (a, b) = rig.run(join(call(), call()));
    assert_eq!((a.unwrap().model(), b.unwrap().model()), (OTHER_MODEL, OTHER_MODEL));
    assert!(asked(&rig).iter().filter(|model| *model == MODEL).count() <= 2);
    rig.assert_balanced();
}

/// A program that waits for a model waits for whichever of the chain would answer its call.
#[test]
fn waiting_for_a_model_takes_the_chain_into_account() {
    let rig = rig(1, |model| if model == MODEL { day_spent(20) } else { minute_full(15, 50) });
    rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(5))).unwrap_err();
    let next = rig.gemini.next_available(MODEL).unwrap();
    assert!((at(NOON) + secs(50)..at(NOON) + secs(52)).contains(&next), "{next}");
    rig.run(rig.gemini.until_available(MODEL)).unwrap();
    assert_eq!(rig.clock.now(), next);
    // The pool itself knows of no chain.
    assert!(rig.gemini.pool().next_available(MODEL).unwrap() >= at(MIDNIGHT));
}

#[test]
fn without_keys_every_model_of_a_chain_says_so_once() {
    let pool = Pool::builder().state(StateLocation::None).build().unwrap();
    let gemini = over(pool, Script::new(), |client| {
        client.fallback([OTHER_MODEL]).retry(RetryConfig::default())
    });
    let error = futures_executor::block_on(gemini.generate(MODEL, "hi").into_future()).unwrap_err();
    assert!(matches!(error, Error::NoKeys { .. }), "{error}");
}
