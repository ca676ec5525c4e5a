//! Another provider under the same client: the same calls, limits learned from its headers, what it has not refused
//! before anything is sent, and Google's keys left at home.

mod common;

use std::{sync::Arc, time::Duration};

use common::{Rig, account, at, bodies::reply};
use keywheel::{Error, Gemini, Limits, OpenAiApi, StateLocation, caches::CachedContent};
use keywheel_core::Dimension;
use keywheel_provider::testing::{Script, Scripted};
use serde_json::{Value, json};

const MODEL: &str = "llama-3.1-8b-instant";

fn rig(keys: usize) -> Rig {
    Rig::built(keys, |pool| pool, |client| client.provider(OpenAiApi::new()))
}

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
    rig.script.otherwise(|_| Scripted::openai_embeddings([[0.5], [0.25], [0.125]]));
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

#[test]
fn answers_streams_vectors_and_models_come_from_an_openai_compatible_provider() {
    let rig = rig(1);
    rig.script.reply(Scripted::openai_text("Hello"));
    assert_eq!(rig.run(rig.gemini.generate(MODEL, "hi")).unwrap().text(), "Hello");
    rig.script.reply(Scripted::openai_stream(["Hel", "lo"]));
    let text = rig.run(async { rig.gemini.stream(MODEL, "hi").await.unwrap().text().await });
    assert_eq!(text.unwrap(), "Hello");
    rig.script.reply(Scripted::openai_embeddings([[0.5, 1.0], [2.0, 4.0]]));
    let vectors = rig.run(rig.gemini.embed("e", ["a", "b"])).unwrap().vectors;
    assert_eq!(vectors, [[0.5, 1.0], [2.0, 4.0]]);
    let list = json!({"object": "list", "data": [{"id": MODEL, "object": "model"}]});
    rig.script.reply(Scripted::json(200, list.to_string()));
    assert_eq!(rig.run(rig.gemini.models()).unwrap().len(), 1);
    let mut chat = rig.gemini.chat(MODEL);
    rig.script.reply(Scripted::openai_text("Hello"));
    rig.script.reply(Scripted::openai_text("again"));
    rig.run(chat.send("hi")).unwrap();
    rig.run(chat.send("hi")).unwrap();
    let sent = rig.script.requests();
    let messages = sent.last().unwrap().json()["messages"].clone();
    assert_eq!(messages.as_array().unwrap().len(), 3, "{messages}");
    assert!(sent.iter().all(|request| request.key.is_some()));
    rig.assert_balanced();
}

#[test]
fn typed_json_is_asked_for_by_its_schema() {
    let rig = rig(1);
    rig.script.reply(Scripted::openai_text(r#"{"n":3}"#));
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let call = rig.gemini.generate_with_schema::<Value>(MODEL, "count", schema.clone());
    assert_eq!(rig.run(call).unwrap()["n"], 3);
    let format = &rig.script.requests()[0].json()["response_format"];
    assert_eq!(format["type"], "json_schema", "{format}");
    assert_eq!(format["json_schema"]["schema"], schema);
}

#[test]
fn a_rate_limit_moves_on_to_the_next_key() {
    let rig = rig(2);
    rig.script.reply(Scripted::openai_rate_limited(Duration::from_secs(40)));
    rig.script.reply(Scripted::openai_text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(account(reply.attempts()).len(), 2);
    assert_eq!(reply.served_by(), Some("GEMINI_API_KEY_2"));
}

#[test]
fn what_only_gemini_has_is_refused_by_name_and_nothing_is_sent() {
    let rig = rig(1);
    let errors = [
        rig.run(rig.gemini.count_tokens(MODEL, "hi")).unwrap_err(),
        rig.run(rig.gemini.files().upload(Vec::new(), "text/plain")).unwrap_err(),
        rig.run(rig.gemini.files().get("x")).unwrap_err(),
        rig.run(rig.gemini.files().list()).unwrap_err(),
        rig.run(rig.gemini.caches().create(CachedContent::new("m", ["a"]))).unwrap_err(),
        rig.run(rig.gemini.caches().list()).unwrap_err(),
    ];
    for error in errors {
        assert!(
            matches!(&error, Error::Setting(text) if text.contains("openai has no")),
            "{error}"
        );
    }
    assert!(rig.script.requests().is_empty());
}

#[tokio::test]
async fn another_provider_has_to_say_where_it_is() {
    let transport = Arc::new(Script::new());
    let builder =
        Gemini::builder().provider(OpenAiApi::new()).transport(transport).keys(common::specs(1));
    let error = builder.state(StateLocation::None).build().await.unwrap_err();
    assert!(error.to_string().contains("base URL"), "{error}");
}

/// Unless its replies say otherwise, and unless the user does.
#[test]
fn a_day_ends_at_midnight_utc_elsewhere_and_in_california_for_gemini() {
    use keywheel::{Gemini, LimitKind};

    let day_ends = |set: fn(keywheel::GeminiBuilder) -> keywheel::GeminiBuilder| {
        let builder = Gemini::builder()
            .keys([keywheel::KeySpec::new(common::key(1), "one")])
            .transport(Arc::new(Script::new()))
            .base_url("http://script.invalid/v1")
            .state(StateLocation::None)
            .clock(Arc::new(keywheel::ManualClock::at(at(common::NOON))));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let gemini = runtime.block_on(set(builder).build()).expect("a client");
        gemini.pool().try_lease(&keywheel::Ask::new(MODEL)).expect("a key").sent();
        gemini.status().buckets[0].day_ends_at
    };
    assert_eq!(common::NOON, "2026-11-30T20:00:00Z");
    assert_eq!(day_ends(|client| client), at("2026-12-01T08:00:00Z"));
    assert_eq!(day_ends(|client| client.provider(OpenAiApi::new())), at("2026-12-01T00:00:00Z"));
    let pacific = |client: keywheel::GeminiBuilder| {
        let day = keywheel_pool::reset::gemini_pacific_daily_reset();
        client.reset_strategy(LimitKind::RequestsPerDay, day).provider(OpenAiApi::new())
    };
    assert_eq!(day_ends(pacific), at("2026-12-01T08:00:00Z"));
}
