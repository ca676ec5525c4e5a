//! Streams: byte for byte, with failover before the first of them only, and an end that clients notice.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::{
    Setup,
    upstream::{Upstream, chunk, end, head},
};
use http::StatusCode;
use keywheel_sim::Fault;
use serde_json::Value;

const EVENTS: &str = "text/event-stream";
const PIECE: &str = r#"{"candidates":[{"content":{"parts":[{"text":"Hel"}],"role":"model"}}]}"#;
const LAST: &str = r#"{"candidates":[{"content":{"parts":[{"text":"lo"}]},"finishReason":"STOP"}],
  "usageMetadata":{"promptTokenCount":2,"candidatesTokenCount":3,"totalTokenCount":5}}"#;

fn stream_path(query: &str) -> String {
    format!("/v1beta/models/{}:streamGenerateContent{query}", common::MODEL)
}

#[tokio::test]
async fn a_stream_is_handed_on_byte_for_byte_in_either_form() {
    for (kind, query, pieces) in [
        (
            EVENTS,
            "?alt=sse",
            [format!("data: {PIECE}\r\n\r\n"), format!("data:{}\n\n", LAST.replace('\n', ""))],
        ),
        ("application/json", "", [format!("[{PIECE}\r\n,\r\n"), format!("{LAST}\r\n]\r\n")]),
    ] {
        let upstream =
            Upstream::that([head(kind), chunk(&pieces[0]), chunk(&pieces[1]), end()]).await;
        let served = Setup::default().start_before(&upstream.url()).await;
        let prompt = common::prompt("Say hello");
        let answer = served.post(&stream_path(query), &prompt).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], kind);
        assert_eq!(answer.text().await.unwrap(), pieces.concat());
        assert_eq!(served.balance().await, (5, 0), "the usage of the last event");
    }
}

/// <https://github.com/maximhq/bifrost/issues/5395>
#[tokio::test]
async fn an_error_in_place_of_the_first_event_is_another_key_s_answer() {
    let served = Setup::default().start().await;
    served.sim.world().with(|world| world.force(Fault::ErrorFirst, 1));
    let answer = served.stream().send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let body = answer.text().await.unwrap();
    assert!(body.starts_with("data: {") && !body.contains("\"error\""), "{body}");
    assert!(body.contains("finishReason"), "{body}");
}

/// <https://github.com/diegosouzapw/OmniRoute/issues/4177>
#[tokio::test]
async fn an_error_after_the_first_event_ends_a_native_stream_with_a_raw_block() {
    let served = Setup::default().start().await;
    served.sim.world().with(|world| world.force(Fault::ErrorMidway, 1));
    let body = served.stream().send().await.unwrap().text().await.unwrap();
    let (events, block) = body.rsplit_once("\r\n\r\n").unwrap();
    assert!(events.starts_with("data: {"), "{body}");
    assert!(!events.contains("\"error\""), "the provider's own words are not handed on: {body}");
    assert!(block.starts_with("{\"error\":{"), "{body}");
    let error: Value = serde_json::from_str(block).unwrap();
    assert!(error["error"]["code"].is_u64(), "{error}");
}

#[tokio::test]
async fn an_array_that_breaks_ends_as_an_array_with_the_error_as_its_last_element() {
    let broken = r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}]"#;
    let pieces = [format!("[{PIECE}"), format!(",\r\n{broken}")];
    let steps = [head("application/json"), chunk(&pieces[0]), chunk(&pieces[1]), end()];
    let upstream = Upstream::that(steps).await;
    let served = Setup::default().start_before(&upstream.url()).await;
    let prompt = common::prompt("Say hello");
    let answer = served.post(&stream_path(""), &prompt).send().await.unwrap();
    let array: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let elements = array.as_array().unwrap();
    assert_eq!(elements.len(), 2, "{array}");
    assert_eq!(elements[0], serde_json::from_str::<Value>(PIECE).unwrap());
    assert!(elements[1]["error"]["message"].is_string(), "{array}");
}

#[tokio::test]
async fn an_openai_stream_that_is_cut_ends_with_an_error_event_and_no_done() {
    let event = r#"data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#;
    let upstream = Upstream::that([head(EVENTS), chunk(&format!("{event}\n\n")), end()]).await;
    let served = Setup::default().start_before(&upstream.url()).await;
    let body = serde_json::json!({
        "model": common::MODEL, "stream": true, "messages": [{ "role": "user", "content": "hi" }],
    });
    let answer = served.post("/v1beta/openai/chat/completions", &body).send().await.unwrap();
    let text = answer.text().await.unwrap();
    let events: Vec<_> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
    assert_eq!(events.len(), 2, "{text}");
    assert_eq!(events[0], event);
    let error: Value = serde_json::from_str(events[1].strip_prefix("data: ").unwrap()).unwrap();
    assert!(error["error"]["message"].is_string() && error["error"]["code"].is_string(), "{text}");
}

/// <https://github.com/ankit373/hydra/issues/874>
#[tokio::test]
async fn a_stream_without_a_reason_for_its_end_is_told_to_the_client() {
    let served = Setup::default().start().await;
    served.sim.world().with(|world| world.force(Fault::Cut, 1));
    let body = served.stream().send().await.unwrap().text().await.unwrap();
    let (_, block) = body.rsplit_once("\r\n\r\n").unwrap();
    assert!(block.starts_with("{\"error\":{"), "{body}");
}

#[tokio::test]
async fn events_come_as_they_come_and_not_at_the_end() {
    use common::upstream::Step;
    let first = format!("data: {PIECE}\r\n\r\n");
    let last = format!("data: {}\r\n\r\n", LAST.replace('\n', ""));
    let steps = [head(EVENTS), chunk(&first), Step::Wait, chunk(&last), end()];
    let upstream = Upstream::that(steps).await;
    let served = Setup::default().start_before(&upstream.url()).await;
    let mut answer = served.stream().send().await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), first, "while the rest is not there yet");
    upstream.go_on();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), last);
    assert_eq!(answer.chunk().await.unwrap(), None);
}
