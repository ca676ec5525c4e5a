//! A provider that stalls, resets, talks garbage, or says "200" and means an error.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::{
    Setup,
    upstream::{Step, Upstream, answer, chunk, end, head},
};
use http::StatusCode;
use keywheel_sim::Fault;
use serde_json::Value;

/// The status, and the error object that a native client reads.
async fn refused(answer: reqwest::Response) -> (StatusCode, Value) {
    let status = answer.status();
    let text = answer.text().await.unwrap();
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"));
    (status, body["error"].clone())
}

/// Few retries, fast: what is tested is what the client is told in the end.
fn hasty() -> Setup {
    Setup::default().text(
        "deadline = \"3s\"\n[retry]\nmax_retries = 1\nfirst_pause = \"1ms\"\nmax_pause = \"2ms\"\n\
         [timeouts]\nfirst_byte = \"300ms\"\nidle = \"300ms\"\n",
    )
}

#[tokio::test]
async fn what_the_provider_breaks_once_is_answered_all_the_same() {
    for fault in [Fault::Overloaded, Fault::Internal, Fault::Deadline] {
        let served = hasty().start().await;
        served.sim.world().with(|world| world.force(fault, 1));
        let answer = served.generate().send().await.unwrap();
        let status = answer.status();
        assert_eq!(status, StatusCode::OK, "{fault:?}: {}", answer.text().await.unwrap());
        assert_eq!(served.balance().await.1, 0);
    }
}

#[tokio::test]
async fn a_provider_that_stays_broken_is_told_in_the_client_s_words() {
    for fault in [Fault::Overloaded, Fault::Html, Fault::Reset, Fault::EmptyBody] {
        let served = hasty().start().await;
        served.sim.world().with(|world| world.force(fault, 100));
        let (status, error) = refused(served.generate().send().await.unwrap()).await;
        assert!(status.is_server_error(), "{fault:?}: {status} {error}");
        assert_eq!(error["code"], status.as_u16(), "{fault:?}");
        assert!(error["details"][0]["reason"].is_string(), "{fault:?}: {error}");
        assert_eq!(served.balance().await.1, 0, "{fault:?}: nothing stays reserved");
    }
}

#[tokio::test]
async fn a_provider_that_stalls_is_given_up_on_in_time() {
    for steps in [vec![Step::Wait], vec![head("application/json"), Step::Wait]] {
        let upstream = Upstream::that(steps).await;
        let served = hasty().start_before(&upstream.url()).await;
        let answer = served.generate().send().await.unwrap();
        let (status, error) = refused(answer).await;
        assert!(status.is_server_error(), "{status} {error}");
        upstream.left_alone().await;
        assert_eq!(served.balance().await.1, 0);
    }
}

#[tokio::test]
async fn garbage_in_place_of_http_is_no_answer() {
    for garbage in ["\u{16}\u{3}\u{1} hello", "HTTP/1.1 abc\r\n\r\n", "SSH-2.0-OpenSSH_9.6\r\n"] {
        let steps = [Step::Send(garbage.as_bytes().to_vec()), Step::Reset];
        let upstream = Upstream::that(steps).await;
        let served = hasty().start_before(&upstream.url()).await;
        let (status, error) = refused(served.generate().send().await.unwrap()).await;
        assert!(status.is_server_error(), "{garbage:?}: {status} {error}");
    }
}

#[tokio::test]
async fn a_200_with_an_error_in_it_is_an_error() {
    let body =
        r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#;
    let upstream = Upstream::that([Step::Send(answer("application/json", body))]).await;
    let served = hasty().start_before(&upstream.url()).await;
    let (status, error) = refused(served.generate().send().await.unwrap()).await;
    assert!(status.is_server_error(), "{status} {error}");
    assert_eq!(served.balance().await, (0, 0));
}

/// No client looks for an error in a 200.
#[tokio::test]
async fn an_error_in_a_200_that_is_handed_back_has_its_own_status() {
    let body = r#"{"error":{"code":400,"message":"Invalid value","status":"INVALID_ARGUMENT"}}"#;
    let model = format!("/v1beta/models/{}", common::MODEL);
    let chat = "/v1beta/openai/chat/completions".to_owned();
    for (path, kind, sent) in [
        (format!("{model}:generateContent"), "application/json", body.to_owned()),
        (
            format!("{model}:streamGenerateContent?alt=sse"),
            "text/event-stream",
            format!("data: {body}\n\n"),
        ),
        (format!("{model}:streamGenerateContent"), "application/json", format!("[{body}]")),
        (chat.clone(), "application/json", body.to_owned()),
        (chat.clone(), "application/json", format!("[{body}]")),
        (chat, "text/event-stream", format!("data: {body}\n\n")),
    ] {
        let upstream = Upstream::answering(kind, &sent).await;
        let served = hasty().start_before(&upstream.url()).await;
        let mut ask = common::prompt("hi");
        if path.ends_with("completions") {
            let is_stream = kind == "text/event-stream";
            ask = serde_json::json!({ "model": common::MODEL, "stream": is_stream,
                "messages": [{ "role": "user", "content": "hi" }] });
        }
        let answer = served.post(&path, &ask).send().await.unwrap();
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path} {sent}: {text}");
        assert!(
            text.contains("Invalid value") && kind.starts_with("application/json"),
            "{kind}: {text}"
        );
        assert_eq!(served.balance().await, (0, 0), "{path}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_taken_for_whole() {
    let text = "x".repeat(200_000);
    let beginning = format!("{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}");
    let steps = [head("application/json"), chunk(&beginning), Step::Reset];
    let upstream = Upstream::that(steps).await;
    let served = hasty().start_before(&upstream.url()).await;
    let answer = served.generate().send().await.unwrap();
    // More than what is looked at was handed on as a success, so the connection is all that can tell.
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.bytes().await.is_err(), "the client cannot tell it from a whole one");
    assert_eq!(served.balance().await.1, 0);
}

#[tokio::test]
async fn what_the_provider_says_of_a_faulty_request_comes_back_as_it_came() {
    let body = r#"{"error": {"code": 400, "message": "Invalid JSON payload received.",
        "status": "INVALID_ARGUMENT", "details": [{"unknown": ["to", "us"]}]}}"#;
    let said = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json; charset=UTF-8\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let upstream = Upstream::that([Step::Send(said.into_bytes())]).await;
    let served = hasty().start_before(&upstream.url()).await;
    let answer = served.generate().send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(answer.headers()["content-type"], "application/json; charset=UTF-8");
    assert_eq!(answer.text().await.unwrap(), body);
    assert_eq!(served.balance().await, (0, 0));
    assert_eq!(upstream.requests().len(), 1, "it is nobody's fault but the request's");
}

#[tokio::test]
async fn an_empty_stream_is_no_answer() {
    let upstream = Upstream::that([head("text/event-stream"), end()]).await;
    let served = hasty().start_before(&upstream.url()).await;
    let (status, error) = refused(served.stream().send().await.unwrap()).await;
    assert!(status.is_server_error(), "{status} {error}");
}
