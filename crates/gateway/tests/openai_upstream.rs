//! A provider that speaks OpenAI's dialect alone, behind the same tokens, budgets and answers.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::{Setup, TRIAGE, upstream::Upstream};
use http::StatusCode;
use keywheel_gateway::{Config, Gateway, TokenHash};
use serde_json::{Value, json};

const COMPLETION: &str = r#"{"id":"1","object":"chat.completion","created":1,"model":"m","choices":
  [{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],
  "usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}"#;

#[tokio::test]
async fn budgets_and_tokens_hold_for_any_provider_of_that_dialect() {
    let upstream = Upstream::answering("application/json", COMPLETION).await;
    let setup = Setup::default();
    let folder = setup.folder.path().display();
    let text = format!(
        "state = \"{folder}/pool.json\"\n[upstream]\nkind = \"openai\"\nbase_url = \"{}/v1\"\n\
         [ledger]\npath = \"{folder}/ledger.db\"\n[keys]\nprefix = \"OTHER_KEY\"\n\
         [projects.triage]\ntoken_sha256 = \"{}\"\ntokens_per_day = 1_000\n",
        upstream.url(),
        TokenHash::of(TRIAGE)
    );
    let mut config =
        Config::parse("keywheel.toml", &text, [("OTHER_KEY_1", "sk-EXAMPLE-key-1")]).unwrap();
    config.settings.listen = ([127, 0, 0, 1], 0).into();
    let running = Gateway::start(config).await.unwrap();
    let client = reqwest::Client::new();
    let ask = |path: &str, tokens: u64| {
        let body = json!({
            "model": "m", "max_tokens": tokens, "messages": [{ "role": "user", "content": "hi" }],
        });
        let url = format!("http://{}{path}", running.address());
        client.post(url).bearer_auth(TRIAGE).body(body.to_string()).send()
    };
    for path in ["/v1/chat/completions", "/v1beta/openai/chat/completions"] {
        let answer = ask(path, 100).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{path}: {}", answer.text().await.unwrap());
        assert_eq!(answer.headers()["x-keywheel-model"], "m");
        assert_eq!(answer.text().await.unwrap(), COMPLETION);
    }
    for request in upstream.requests() {
        assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1"), "{request}");
        assert!(request.to_lowercase().contains("authorization: bearer sk-example-key-1"));
        assert!(!request.contains(TRIAGE), "the gateway's token went upstream");
    }
    let answer = ask("/v1/chat/completions", 2_000).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(body["error"]["code"], "never_fits", "{body}");
    running.stop(std::time::Duration::from_secs(5)).await;
    assert_eq!(running.ledger().usage_of_all().await.unwrap().ever.tokens.settled, 12);
}
