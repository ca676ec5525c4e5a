//! A day without a model: the operator's own words, in the route's form, marked; or a refusal that says when.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::Setup;
use http::StatusCode;
use keywheel::chrono::{DateTime, Utc};
use keywheel_sim::{Limits, ModelConfig};
use serde_json::{Value, json};

/// One key that may be asked once a day, and was.
async fn spent(text: &str) -> common::Served {
    let setup = Setup { keys: 1, ..Setup::default() };
    let limits = Limits::new().rpd(1);
    let served = setup
        .text(text)
        .sim(|_| common::sim(1).with_model(common::MODEL, ModelConfig::free(limits)))
        .start()
        .await;
    served.generate().send().await.unwrap().bytes().await.unwrap();
    served
}

const RESTING: &str =
    "[degraded]\ntext = \"Resting until {next_available_at}.\"\n[queue]\nwait = \"100ms\"\n";

fn is_marked(answer: &reqwest::Response) -> bool {
    answer.status() == StatusCode::OK && answer.headers()["x-keywheel-degraded"] == "true"
}

/// The text says the moment, not the place for it.
fn is_told(text: &Value) -> bool {
    let text = text.as_str().unwrap_or_default();
    let moment = text.strip_prefix("Resting until ").and_then(|rest| rest.strip_suffix('.'));
    moment.is_some_and(|moment| moment.parse::<DateTime<Utc>>().is_ok())
}

#[tokio::test]
async fn generate_stream_and_chat_get_the_operator_s_words_in_their_own_form() {
    let served = spent(RESTING).await;
    let answer = served.generate().send().await.unwrap();
    assert!(is_marked(&answer), "{answer:?}");
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert!(is_told(&body["candidates"][0]["content"]["parts"][0]["text"]), "{body}");

    let answer = served.stream().send().await.unwrap();
    assert!(is_marked(&answer));
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let text = answer.text().await.unwrap();
    let event: Value = serde_json::from_str(text.trim().strip_prefix("data: ").unwrap()).unwrap();
    assert!(is_told(&event["candidates"][0]["content"]["parts"][0]["text"]), "{event}");

    let path = format!("/v1beta/models/{}:streamGenerateContent", common::MODEL);
    let answer = served.post(&path, &common::prompt("hi")).send().await.unwrap();
    assert!(is_marked(&answer));
    let array: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert!(is_told(&array[0]["candidates"][0]["content"]["parts"][0]["text"]), "{array}");

    let body = json!({ "model": common::MODEL, "messages": [{ "role": "user", "content": "hi" }] });
    let answer = served.post("/v1beta/openai/chat/completions", &body).send().await.unwrap();
    assert!(is_marked(&answer));
    let chat: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert!(is_told(&chat["choices"][0]["message"]["content"]), "{chat}");
    assert_eq!(chat["model"], common::MODEL);
}

#[tokio::test]
async fn vectors_are_never_made_up() {
    const VECTORS: &str = "gemini-embedding-001";
    let limits = Limits::new().rpd(1);
    let sim = |_| common::sim(1).with_model(VECTORS, ModelConfig::embedding(limits));
    let setup = Setup { keys: 1, ..Setup::default() };
    let served = setup.text(RESTING).sim(sim).start().await;
    let path = format!("/v1beta/models/{VECTORS}:embedContent");
    let body = json!({ "content": { "parts": [{ "text": "hi" }] } });
    let answer = served.post(&path, &body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let answer = served.post(&path, &body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(!answer.headers().contains_key("x-keywheel-degraded"));
}

/// <https://github.com/PostHog/posthog/pull/82310>
#[tokio::test]
async fn without_such_words_the_refusal_says_when_in_header_and_body() {
    let served = spent("[queue]\nwait = \"100ms\"\n").await;
    let answer = served.generate().send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let seconds: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=25 * 3600).contains(&seconds), "{seconds}");
    assert_eq!(answer.headers()["x-should-retry"], "false");
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let info = &body["error"]["details"][0];
    assert_eq!(info["reason"], "EXHAUSTED", "{body}");
    assert_eq!(info["metadata"]["scope"], "pool");
    assert!(info["metadata"]["reset_at"].is_string());
}

#[tokio::test]
async fn health_says_that_it_rests_and_until_when_and_it_still_takes_requests() {
    let served = spent("exploration = false\n[queue]\nwait = \"100ms\"\n").await;
    let refused = served.generate().send().await.unwrap();
    let body: Value = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
    let reset = body["error"]["details"][0]["metadata"]["reset_at"].as_str().unwrap().to_owned();
    let page = served.client.get(served.url("/health")).send().await.unwrap();
    let page: Value = serde_json::from_str(&page.text().await.unwrap()).unwrap();
    assert_eq!(page["status"], "resting", "{page}");
    assert_eq!(
        (&page["keys"]["ready"], &page["keys"]["cooling"]),
        (&0.into(), &1.into()),
        "{page}"
    );
    let moment = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    let next = moment(page["next_available_at"].as_str().unwrap());
    assert_eq!(next.timestamp(), moment(&reset).timestamp(), "both tell the same moment");
    let ready = served.client.get(served.url("/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), StatusCode::OK, "it says when, which is an answer, too");
}
