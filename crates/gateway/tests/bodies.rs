//! What a body says is what is checked: nothing in it goes past a project's models or its budget.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::{MODEL, Served, Setup, TRIAGE, prompt};

const CHAT: &str = "/v1beta/openai/chat/completions";

async fn status(served: &Served, body: &str) -> u16 {
    let asked = served.client.post(served.url(CHAT)).bearer_auth(TRIAGE);
    let answer = asked.header("content-type", "application/json").body(body.to_owned());
    answer.send().await.unwrap().status().as_u16()
}

/// What reached the provider, whatever it said to it.
fn sent(served: &Served) -> u64 {
    let stats = served.sim.world().stats();
    stats.keys.values().map(|of| of.served + of.refused + of.rejected + of.faulted).sum()
}

async fn served() -> Served {
    let models = format!("models = [\"{MODEL}\"]");
    Setup::with_projects(&models, "").start().await
}

#[tokio::test]
async fn a_model_that_is_named_last_or_in_escapes_is_the_one_that_is_checked() {
    let served = served().await;
    let messages = r#""messages":[{"role":"user","content":"Say hello"}]"#;
    for (body, expected) in [
        (format!(r#"{{"model":"{MODEL}",{messages}}}"#), 200),
        (format!(r#"{{"model":"models/{MODEL}",{messages}}}"#), 200),
        (format!(r#"{{"model":"other",{messages}}}"#), 403),
        (format!(r#"{{"model":"{MODEL}",{messages},"model":"other"}}"#), 403),
        (format!(r#"{{"model":"{MODEL}",{messages},"mo\u0064el":"other"}}"#), 403),
        (format!(r#"{{"stream":"yes","model":"other",{messages}}}"#), 403),
    ] {
        assert_eq!(status(&served, &body).await, expected, "{body}");
    }
    assert_eq!(sent(&served), 2, "what is not allowed was sent");
}

#[tokio::test]
async fn what_is_no_json_is_refused_where_it_should_name_the_model() {
    let served = served().await;
    for body in ["model=other", r#"{odd:1,"model":"other"}"#, r#"{"model":"other""#, "[{]"] {
        assert_eq!(status(&served, body).await, 400, "{body}");
    }
    assert_eq!(sent(&served), 0, "it was sent on");
    assert_eq!(served.balance().await, (0, 0));
}

/// Compressed, or as Protocol Buffers: the provider may take it, and nobody here knows how much is in it.
#[tokio::test]
async fn a_body_that_cannot_be_read_is_reserved_at_all_that_the_model_reads() {
    let served = Setup::with_projects("tokens_per_day = 100_000", "").start().await;
    let url = served.url(&format!("/v1beta/models/{MODEL}:generateContent"));
    let asked = served.client.post(url).header("x-goog-api-key", TRIAGE);
    let asked = asked.header("content-encoding", "gzip").body(&b"\x1f\x8b\x08\0\0\0"[..]);
    assert_eq!(asked.send().await.unwrap().status(), 400, "it fits into no such budget");
    assert_eq!(sent(&served), 0);
    assert_eq!(served.balance().await, (0, 0));
}

/// What a model can read is told in `[model_facts]`, where the provider has not said it yet.
#[tokio::test]
async fn what_a_model_surely_cannot_read_is_not_sent() {
    let facts = format!("[model_facts.\"{MODEL}\"]\ninput_token_limit = 200");
    let served = Setup::with_projects("", "").text(&facts).start().await;
    let path = format!("/v1beta/models/{MODEL}:generateContent");
    let status = async |text: &str| {
        let asked = served.post(&path, &prompt(text)).bearer_auth(TRIAGE);
        asked.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("Say hello").await, 200);
    assert_eq!(status(&"long ".repeat(2_000)).await, 400);
    assert_eq!(sent(&served), 1, "it would have been refused, and counted");
}
