//! The way through: a request in, the provider's answer out.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::{Setup, TRIAGE};
use keywheel_sim::{Limits, ModelConfig};
use serde_json::Value;

#[tokio::test]
async fn an_answer_comes_through_with_who_gave_it() {
    let served = Setup::default().start().await;
    let answer = served.generate().send().await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    let headers = answer.headers().clone();
    assert_eq!(headers["x-keywheel-key"], "GEMINI_API_KEY_1");
    assert_eq!(headers["x-keywheel-model"], common::MODEL);
    assert!(headers["x-keywheel-request-id"].to_str().unwrap().starts_with("call-"));
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert!(body["candidates"][0]["content"]["parts"][0]["text"].is_string(), "{body}");
    let (charged, reserved) = served.balance().await;
    assert_eq!(Some(charged), body["usageMetadata"]["totalTokenCount"].as_u64());
    assert_eq!(reserved, 0);
}

#[tokio::test]
async fn an_answer_that_was_bounded_for_the_budget_says_so() {
    let served = Setup::with_projects("tokens_per_day = 100_000", "").start().await;
    let answer = served.generate().header("x-goog-api-key", TRIAGE).send().await.unwrap();
    assert_eq!(answer.headers()["x-keywheel-max-output"], "8192");
    let mut body = common::prompt("Say hello");
    body["generationConfig"] = serde_json::json!({ "maxOutputTokens": 50 });
    let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let ask = served.post(&path, &body).header("x-goog-api-key", TRIAGE);
    let answer = ask.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(!answer.headers().contains_key("x-keywheel-max-output"), "it was the client's own");
}

#[tokio::test]
async fn a_model_of_the_project_s_list_takes_over_and_is_named() {
    const SPENT: &str = "gemini-3.6-flash";
    let models = format!("models = [\"{SPENT}\", \"{}\"]", common::MODEL);
    let setup = Setup::with_projects(&models, "");
    let spent = ModelConfig::free(Limits::new().rpd(1));
    let served = setup.sim(|sim| sim.with_model(SPENT, spent)).start().await;
    let path = format!("/v1beta/models/{SPENT}:generateContent");
    let mut answered = Vec::new();
    for _ in 0..4 {
        let ask = served.post(&path, &common::prompt("hi")).header("x-goog-api-key", TRIAGE);
        let answer = ask.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answered.push(answer.headers()["x-keywheel-model"].to_str().unwrap().to_owned());
        answer.bytes().await.unwrap();
    }
    // Two keys, once a day each.
    assert_eq!(answered, [SPENT, SPENT, common::MODEL, common::MODEL]);
}
