//! Clients that go away: before the answer's head, in the middle of it. (In the queue: `queue.rs`.)

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::time::Duration;

use common::{
    Setup,
    upstream::{Step, Upstream, chunk, head},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Sends a request by hand and returns its connection.
async fn ask(served: &common::Served, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(served.running.address()).await.unwrap();
    let body = common::prompt("Say hello").to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_client_gone_before_the_head_ends_the_provider_s_request_and_is_settled() {
    let upstream = Upstream::that([Step::Wait]).await;
    let served = Setup::default().start_before(&upstream.url()).await;
    let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let client = ask(&served, &path).await;
    upstream.asked().await;
    assert_eq!(served.running.ledger().info().await.unwrap().open, 1);
    drop(client);
    upstream.left_alone().await;
    let (charged, reserved) = served.balance().await;
    assert_eq!(reserved, 0, "nothing stays reserved");
    assert!(charged > 0, "it was sent, so it may have cost what was estimated");
}

#[tokio::test]
async fn a_client_gone_in_the_middle_of_a_stream_ends_the_provider_s_and_is_settled() {
    let piece = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hel\"}]}}]}\r\n\r\n";
    let upstream = Upstream::that([head("text/event-stream"), chunk(piece), Step::Wait]).await;
    let served = Setup::default().start_before(&upstream.url()).await;
    let path = format!("/v1beta/models/{}:streamGenerateContent?alt=sse", common::MODEL);
    let mut client = ask(&served, &path).await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("Hel") {
        let read = timeout(Duration::from_secs(20), client.read_buf(&mut seen)).await;
        assert_ne!(read.unwrap().unwrap(), 0);
    }
    drop(client);
    upstream.left_alone().await;
    let (charged, reserved) = served.balance().await;
    assert_eq!(reserved, 0, "nothing stays reserved");
    assert!(charged > 0, "what was streamed was spent");
}

/// Many clients close there and wait for no end.
#[tokio::test]
async fn a_client_gone_once_the_answer_is_whole_has_it() {
    let native = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]},\"finishReason\":\"STOP\"}],\
        \"usageMetadata\":{\"promptTokenCount\":2,\"candidatesTokenCount\":3,\"totalTokenCount\":5}}\r\n\r\n";
    let chat = "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
        \"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}],\
        \"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3,\"total_tokens\":5}}\n\ndata: [DONE]\n\n";
    let generate = format!("/v1beta/models/{}:streamGenerateContent?alt=sse", common::MODEL);
    let messages = [serde_json::json!({ "role": "user", "content": "hi" })];
    let asked = serde_json::json!({ "model": common::MODEL, "stream": true, "messages": messages });
    for (path, body, answer, last, route) in [
        (&*generate, common::prompt("hi"), native, "STOP", "stream"),
        ("/v1/chat/completions", asked, chat, "[DONE]", "chat"),
    ] {
        let upstream = Upstream::that([head("text/event-stream"), chunk(answer), Step::Wait]).await;
        let served = Setup::default().start_before(&upstream.url()).await;
        let mut reply = served.post(path, &body).send().await.unwrap();
        let first = reply.chunk().await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&first).contains(last), "{first:?}");
        drop(reply);
        assert_eq!(served.balance().await, (5, 0), "what the answer says");
        // The end is counted a moment after the ledger was told of it.
        let line = format!("project=\"default\",route=\"{route}\",outcome=\"ok\"}} 1");
        let mut metrics = String::new();
        for _ in 0..2_000 {
            let page = served.client.get(served.url("/metrics")).send().await.unwrap();
            metrics = page.text().await.unwrap();
            if !metrics.contains("keywheel_requests_in_flight 1") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn a_client_gone_with_half_its_body_costs_nothing() {
    let upstream = Upstream::that([Step::Wait]).await;
    let served = Setup::default().start_before(&upstream.url()).await;
    let mut client = TcpStream::connect(served.running.address()).await.unwrap();
    let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{");
    client.write_all(head.as_bytes()).await.unwrap();
    drop(client);
    let answer = served.client.get(served.url("/healthz")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(served.balance().await, (0, 0));
    assert!(upstream.requests().is_empty(), "nothing was sent");
}
