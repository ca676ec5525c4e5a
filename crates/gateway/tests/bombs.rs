//! Bodies far larger than memory should be: spooled, weighed, and sent on, piece by piece. One test, alone in its
//! process: it measures that process.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]
#![cfg(target_os = "linux")]

mod common;

use std::{fs, io, time::Duration};

use bytes::Bytes;
use common::{Setup, TRIAGE};
use futures_util::stream;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;

const MB: usize = 1 << 20;

/// The most memory that this process had since the last call, in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    fs::write("/proc/self/clear_refs", "5").unwrap();
    kilobytes << 10
}

/// A provider that takes whatever comes, keeps none of it, and counts it.
async fn swallowing() -> (String, tokio::sync::watch::Receiver<usize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (told, heard) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let told = told.clone();
            let service = hyper::service::service_fn(
                move |request: http::Request<hyper::body::Incoming>| {
                    let told = told.clone();
                    async move {
                        let (mut body, mut length) = (request.into_body(), 0);
                        while let Some(frame) = body.frame().await {
                            length += frame.unwrap().into_data().map_or(0, |data| data.len());
                        }
                        told.send_replace(length);
                        let answer = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"totalTokenCount":7}}"#;
                        let answer =
                            http_body_util::Full::new(Bytes::from_static(answer.as_bytes()));
                        let mut answer = http::Response::new(answer);
                        let kind = http::HeaderValue::from_static("application/json");
                        answer.headers_mut().insert("content-type", kind);
                        Ok::<_, io::Error>(answer)
                    }
                },
            );
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    (url, heard)
}

/// An image of `size` bytes in a request, made while it is sent.
fn image(size: usize) -> impl stream::Stream<Item = io::Result<Bytes>> {
    let head =
        r#"{"contents":[{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":""#;
    let tail = r#""}}]}]}"#;
    let piece = Bytes::from(vec![b'A'; 64 << 10]);
    let pieces = std::iter::repeat_n(piece, size / (64 << 10));
    let all = std::iter::once(Bytes::from_static(head.as_bytes()))
        .chain(pieces)
        .chain([Bytes::from_static(tail.as_bytes())]);
    stream::iter(all.map(Ok))
}

#[tokio::test]
async fn a_body_of_100_mb_grows_the_process_by_less_than_4_mb_and_arrives_whole() {
    let (url, heard) = swallowing().await;
    let served = Setup::with_projects("", "").start_before(&url).await;
    let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let ask = async |size: usize| {
        let body = reqwest::Body::wrap_stream(image(size));
        let ask = served.client.post(served.url(&path)).header("x-goog-api-key", TRIAGE);
        let answer =
            ask.header("content-type", "application/json").body(body).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    // What a body that is spooled takes in any case: buffers, threads, a file.
    for _ in 0..3 {
        assert_eq!(ask(3 * MB).await.0, StatusCode::OK);
    }
    let before = peak();
    let before = before.min({
        tokio::time::sleep(Duration::from_millis(10)).await;
        peak()
    });
    let (status, text) = ask(100 * MB).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let grown = peak().saturating_sub(before);
    assert!(*heard.borrow() > 100 * MB, "{} bytes arrived", *heard.borrow());
    assert!(grown < 4 * MB, "grown by {} KB", grown >> 10);
    assert_eq!(served.balance().await, (4 * 7, 0));

    let (status, text) = ask(200 * MB).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{text}");
    assert!(peak().saturating_sub(before) < 4 * MB, "what is refused is not kept either");
}
