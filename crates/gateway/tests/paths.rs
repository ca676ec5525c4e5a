//! Paths that mean one thing to us and another to somebody on the way.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::{Setup, upstream::Upstream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The status of a request written by hand, so that no client tidies its target.
async fn status(served: &common::Served, target: &str) -> u16 {
    let mut stream = TcpStream::connect(served.running.address()).await.unwrap();
    let head = format!(
        "POST {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: 2\r\n\r\n{{}}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn a_path_that_leads_elsewhere_is_refused_and_nothing_is_sent() {
    let upstream = Upstream::answering("application/json", "{}").await;
    let served = Setup::default().start_before(&upstream.url()).await;
    for target in [
        "/v1beta/models/../files",
        "/v1beta/models/%2e%2e/files",
        "/v1beta/models/./x:generateContent",
        "/v1beta/models/x%2fy:generateContent",
        "/v1beta/models/x%252fy:generateContent",
        "/v1beta/models/x\\y:generateContent",
        "/v1beta/models/x%5cy:generateContent",
        "//v1beta/models/x:generateContent",
        "/v1beta//models/x:generateContent",
        "/@evil.example/v1beta/models/x:generateContent",
        "/v1beta/models/x@evil.example:generateContent",
        "/v1beta/models/x%00:generateContent",
        "/v1beta/models/x%0d%0ahost:%20evil:generateContent",
        "http://evil.example/v1beta/models/x:generateContent",
        "https://generativelanguage.googleapis.com/v1beta/models/x:generateContent",
        "/",
        "*",
    ] {
        let status = status(&served, target).await;
        assert!((400..500).contains(&status), "{target}: {status}");
    }
    assert!(upstream.requests().is_empty(), "{:?}", upstream.requests());
}

/// Some HTTP clients escape the colon.
#[tokio::test]
async fn an_escaped_colon_is_a_colon() {
    let upstream = Upstream::answering("application/json", r#"{"candidates":[{}]}"#).await;
    let served = Setup::default().start_before(&upstream.url()).await;
    for target in [
        "/v1beta/models/x:generateContent",
        "/v1beta/models/x%3AgenerateContent",
        "/v1beta/models/x%3agenerateContent/",
        "/models/x:generateContent",
    ] {
        assert_eq!(status(&served, target).await, 200, "{target}");
    }
    for request in upstream.requests() {
        assert!(request.starts_with("POST /v1beta/models/x:generateContent HTTP/1.1"), "{request}");
    }
}

#[tokio::test]
async fn each_version_of_the_api_keeps_its_own() {
    let upstream = Upstream::answering("application/json", r#"{"candidates":[{}]}"#).await;
    let served = Setup::default().start_before(&upstream.url()).await;
    for version in ["v1", "v1beta", "v1alpha"] {
        let target = format!("/{version}/models/x:generateContent?alt=json&x=a%20b");
        assert_eq!(status(&served, &target).await, 200);
        let seen = upstream.requests().pop().unwrap();
        let line = seen.lines().next().unwrap().to_owned();
        assert!(line.starts_with(&format!("POST /{version}/models/x:generateContent?")), "{line}");
        assert!(line.contains("alt=json") && (line.contains("x=a%20b") || line.contains("x=a+b")));
    }
}

/// In the form that the client reads, whose base URL it is.
#[tokio::test]
async fn a_wrong_base_url_is_told_the_right_one_in_each_dialect() {
    let upstream = Upstream::answering("application/json", "{}").await;
    let served = Setup::default().start_before(&upstream.url()).await;
    let here = served.url("");
    for (path, told) in [
        (
            "/v1beta/v1beta/models/x:generateContent",
            format!("the base URL has a version too many: use {here}"),
        ),
        (
            "/v1beta/openai/v1/chat/completions",
            format!("the base URL has a version too many: use {here}/v1beta/openai/"),
        ),
        (
            "/v1/responses",
            "/responses is not part of Google's OpenAI layer; use chat/completions".to_owned(),
        ),
    ] {
        let answer = served.post(path, &serde_json::json!({})).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
        let body: serde_json::Value =
            serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert_eq!(body["error"]["message"], told, "{path}");
        let is_native = body["error"]["status"] == "NOT_FOUND";
        let is_openai = body["error"]["code"] == "unknown_route";
        assert_eq!((is_native, is_openai), (path.ends_with("Content"), !path.ends_with("Content")));
    }
    assert!(upstream.requests().is_empty(), "{:?}", upstream.requests());
}
