//! A request that no key can ever serve is handed back, and does not take the pool out on its way.

mod common;

use common::{
    MODEL, Rig, account,
    bodies::{error, reply, tokens_full},
};
use keywheel::{Cause, Clock as _, Error};
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
