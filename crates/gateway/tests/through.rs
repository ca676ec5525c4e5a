//! The way through: a request in, the provider's answer out.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::Setup;
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
