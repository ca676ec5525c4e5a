//! A request that no key can ever serve is handed back, and does not take the pool out on its way.

mod common;

use common::{
    MODEL, OTHER_MODEL, Rig, account,
    bodies::{error, reply, tokens_full},
};
use keywheel::{Cause, Clock as _, Error, Limits, ModelFacts, SkipReason};
use keywheel_provider::testing::Scripted;

/// Some 1,300 tokens by any count.
fn long() -> String {
    "The harbour was quiet when it came in, and nobody saw it. ".repeat(100)
}

fn assert_handed_back(rig: &Rig, error: &Error, attempts: usize) {
    let Error::Rejected { rejected, attempts: tried, .. } = error else { panic!("{error}") };
    assert_eq!(rejected.cause, Cause::RequestTooLarge);
    assert_eq!(tried.len(), attempts);
    assert_eq!(rig.script.requests().len(), attempts);
    for bucket in rig.gemini.status().buckets {
        assert!(bucket.ready, "{} was held back for it", bucket.quota_project);
    }
    rig.assert_balanced();
}

#[test]
fn a_request_far_over_the_limit_is_handed_back_by_the_first_key() {
    let rig = Rig::new(5);
    rig.script.otherwise(|_| tokens_full(250, 1));
    let before = rig.clock.now();
    let error = rig.run(rig.gemini.generate(MODEL, long())).unwrap_err();
    assert_handed_back(&rig, &error, 1);
    assert_eq!(rig.clock.now(), before);
}

#[test]
fn a_request_that_the_provider_calls_too_large_is_handed_back() {
    for fault in [
        Scripted::status(413),
        reply(
            400,
            &error(
                400,
                "INVALID_ARGUMENT",
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                serde_json::json!([]),
            ),
        ),
    ] {
        let rig = Rig::new(5);
        rig.script.reply(fault);
        let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
        assert_handed_back(&rig, &error, 1);
    }
}

/// By our estimate over the limit, but an estimate leans upwards: three keys are asked, then it is the request.
/// What they were held back for is taken back.
#[test]
fn a_request_about_as_large_as_the_limit_is_handed_back_by_the_third_key() {
    let rig = Rig::new(8);
    rig.script.otherwise(|_| tokens_full(1_200, 1));
    let error = rig.run(rig.gemini.generate(MODEL, long())).unwrap_err();
    assert_handed_back(&rig, &error, 3);
}

/// A minute that is full of others' tokens is no fault of this request.
#[test]
fn a_request_that_fits_is_never_called_too_large() {
    let rig = Rig::new(5);
    for _ in 0..5 {
        rig.script.reply(tokens_full(250_000, 30));
    }
    rig.script.reply(Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, long())).unwrap();
    let kinds: Vec<_> = account(reply.attempts()).into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds[..5], ["per_minute_tokens"; 5]);
    assert_eq!(kinds[5], "served");
}

fn assert_never_sent(rig: &Rig, error: &Error, limit: u64) {
    let Error::TooLarge { estimated, limit: told, .. } = error else { panic!("{error}") };
    assert_eq!(*told, limit);
    assert!(*estimated > limit, "{error}");
    assert!(rig.script.requests().is_empty(), "it was sent");
    rig.assert_balanced();
}

/// A 400 for its size is counted, and so may be the minute's tokens:
/// <https://ai.google.dev/gemini-api/docs/billing>.
#[test]
fn a_request_that_surely_cannot_fit_is_never_sent() {
    // By the minute's tokens, set beforehand.
    let limits = Limits { tpm: Some(500), ..Limits::default() };
    let rig = Rig::built(3, |pool| pool.limits("*", limits), |client| client);
    assert_never_sent(&rig, &rig.run(rig.gemini.generate(MODEL, long())).unwrap_err(), 500);
    // By what the model can read.
    let facts = ModelFacts { input_token_limit: Some(600), ..ModelFacts::default() };
    let rig = Rig::built(3, |pool| pool, |client| client.model_facts(MODEL, facts));
    assert_never_sent(&rig, &rig.run(rig.gemini.generate(MODEL, long())).unwrap_err(), 600);
    // Other models are not concerned.
    rig.script.reply(Scripted::text("Hello"));
    rig.run(rig.gemini.generate(OTHER_MODEL, long())).unwrap();
}

/// Once every key has named its limit, the next request of that size is not sent.
#[test]
fn learned_limits_are_enough_and_one_unknown_is_not() {
    let rig = Rig::new(2);
    rig.script.reply(tokens_full(250, 1));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    // The first key has named its limit, the second has not: it may have more.
    rig.run(rig.gemini.generate(MODEL, long())).unwrap();
    let keys = rig.keys_used();
    assert_eq!(keys[1], keys[2], "{keys:?}");
    rig.clock.advance(std::time::Duration::from_secs(120));
    rig.script.reply(tokens_full(250, 1));
    rig.script.reply(tokens_full(250, 1));
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    let sent = rig.script.requests().len();
    let error = rig.run(rig.gemini.generate(MODEL, long())).unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: 250, .. }), "{error}");
    assert_eq!(rig.script.requests().len(), sent);
}

/// Estimates lean upwards: what may fit is tried.
#[test]
fn a_request_that_may_fit_is_sent() {
    let facts = ModelFacts { input_token_limit: Some(1_200), ..ModelFacts::default() };
    let rig = Rig::built(1, |pool| pool, |client| client.model_facts(MODEL, facts));
    rig.script.reply(Scripted::text("Hello"));
    rig.run(rig.gemini.generate(MODEL, long())).unwrap();
}

#[test]
fn a_model_that_can_read_more_takes_over() {
    let facts = ModelFacts { input_token_limit: Some(600), ..ModelFacts::default() };
    let rig = Rig::built(
        1,
        |pool| pool,
        |client| client.model_facts(MODEL, facts).fallback([OTHER_MODEL]),
    );
    rig.script.reply(Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, long())).unwrap();
    assert_eq!(reply.model(), OTHER_MODEL);
    assert_eq!(reply.skipped()[0].reason, SkipReason::TooLarge);
}
