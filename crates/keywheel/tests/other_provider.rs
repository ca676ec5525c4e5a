//! Another provider under the same client: its limits are learned from its headers, and Google's keys stay at home.

mod common;

use std::sync::Arc;

use common::{Rig, at, bodies::reply};
use keywheel::{Error, Gemini, Limits, OpenAiApi, StateLocation};
use keywheel_core::Dimension;
use keywheel_provider::testing::{Script, Scripted};
use serde_json::json;

const MODEL: &str = "llama-3.1-8b-instant";

fn answer() -> Scripted {
    let answer = json!({
        "id": "chatcmpl-1",
        "model": MODEL,
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Hello"},
        }],
        "usage": {"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10},
    });
    let header = |reply: Scripted, name: &'static str, value: &'static str| {
        let value = http::HeaderValue::from_static(value);
        reply.header(http::HeaderName::from_static(name), value)
    };
    let limits = [
        ("x-ratelimit-limit-requests", "14400"),
        ("x-ratelimit-remaining-requests", "14370"),
        ("x-ratelimit-reset-requests", "3m"),
        ("x-ratelimit-limit-tokens", "6000"),
        ("x-ratelimit-remaining-tokens", "5990"),
        ("x-ratelimit-reset-tokens", "100ms"),
    ];
    limits.into_iter().fold(reply(200, &answer), |reply, (name, value)| header(reply, name, value))
}

/// Groq's headers: requests are counted per day, tokens per minute.
#[test]
fn limits_in_the_headers_of_an_answer_are_believed() {
    let rig = Rig::built(2, |pool| pool, |client| client.provider(OpenAiApi::new()));
    rig.script.otherwise(|_| answer());
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).expect("an answer");
    assert_eq!(&*reply.text(), "Hello");
    let status = rig.gemini.status();
    let used = status.buckets.iter().find(|bucket| bucket.day.requests == 1).expect("one was used");
    let limit = |dimension| {
        used.limits.iter().find(|limit| limit.dimension == dimension).map(|limit| limit.value)
    };
    assert_eq!(limit(Dimension::Rpd), Some(14_400), "{:?}", used.limits);
    assert_eq!(limit(Dimension::Tpm), Some(6_000), "{:?}", used.limits);
    assert_eq!(status.at, at(common::NOON));
    // So a prompt that no minute has room for is not sent, once every key has answered.
    rig.run(rig.gemini.generate(MODEL, "hi")).expect("an answer");
    let long = "The harbour was quiet when it came in, and nobody saw it. ".repeat(2_000);
    let error = rig.run(rig.gemini.generate(MODEL, long)).expect_err("too large");
    assert!(matches!(error, Error::TooLarge { limit: 6_000, .. }), "{error}");
    assert_eq!(rig.script.requests().len(), 2);
}

/// At Google each text is a request; elsewhere a request is a request.
#[test]
fn a_batch_of_texts_is_one_request_of_another_providers_quota() {
    let rig = Rig::built(
        1,
        |pool| pool.limits("*", Limits { rpd: Some(2), ..Limits::default() }),
        |client| client.provider(OpenAiApi::new()),
    );
    rig.script.otherwise(|_| Scripted::openai_embeddings(&[&[0.5], &[0.25], &[0.125]]));
    for texts in [["a", "b", "c"], ["d", "e", "f"]] {
        let answer = rig.run(rig.gemini.embed("embed-english", texts)).expect("room for it");
        assert_eq!((answer.vectors.len(), answer.requests), (3, 1));
    }
    assert_eq!(rig.counted("embed-english"), 2);
    let error = rig.run(rig.gemini.embed("embed-english", ["g"])).expect_err("a spent day");
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
}

/// The environment holds keys of Gemini's: another provider has no business with them.
#[tokio::test]
async fn keys_of_the_environment_are_not_sent_to_another_provider() {
    let built = Gemini::builder()
        .provider(OpenAiApi::new())
        .base_url("http://other.invalid/v1")
        .transport(Arc::new(Script::new()))
        .state(StateLocation::None)
        .build()
        .await;
    let Err(Error::Setting(fault)) = built else { panic!("{built:?}") };
    assert!(fault.contains("needs keys of its own"), "{fault}");
}
