//! Clients that are slow: with their head, their body, or the answer.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::time::Duration;

use common::{
    Setup,
    upstream::{Step, Upstream},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

fn impatient() -> Setup {
    Setup::default().text("[serve]\nhead_time = \"200ms\"\nidle_time = \"300ms\"\n")
}

async fn all(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await;
    let _reset_or_closed = read.expect("the gateway ends it");
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_ends_the_connection() {
    let served = impatient().start().await;
    let mut client = TcpStream::connect(served.running.address()).await.unwrap();
    let head = b"POST /v1beta/models/x:generateContent HTTP/1.1\r\nhost: localhost\r\n";
    for byte in head.iter().cycle() {
        if client.write_all(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    all(&mut client).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_with_408() {
    let served = impatient().start().await;
    let mut client = TcpStream::connect(served.running.address()).await.unwrap();
    let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{");
    client.write_all(head.as_bytes()).await.unwrap();
    let answer = all(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("\"reason\":\"BAD_BODY\""), "{answer}");
    assert_eq!(served.balance().await, (0, 0));
}

/// The provider is not read faster than the client reads, and given up when the client reads nothing.
#[tokio::test]
async fn a_reader_that_stands_still_slows_the_provider_and_is_given_up() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 100000000000\r\n\r\n";
    let steps = [Step::Send(head.as_bytes().to_vec()), Step::Flood];
    let upstream = Upstream::that(steps).await;
    let served = impatient().start_before(&upstream.url()).await;
    let mut client = TcpStream::connect(served.running.address()).await.unwrap();
    let ask = "GET /v1beta/files/x:download?alt=media HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.write_all(ask.as_bytes()).await.unwrap();
    upstream.left_alone().await;
    // What the kernel's buffers on both ways take, and nothing near the endless flood.
    assert!(upstream.sent() < 40 << 20, "{} bytes were taken from the provider", upstream.sent());
    drop(client);
}

/// In HTTP/2 a client's window is full while its connection is not, so the socket tells nothing.
#[tokio::test]
async fn a_reader_of_http_2_that_stands_still_is_given_up_too() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 100000000000\r\n\r\n";
    let steps = [Step::Send(head.as_bytes().to_vec()), Step::Flood];
    let upstream = Upstream::that(steps).await;
    let served = impatient().start_before(&upstream.url()).await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let url = served.url("/v1beta/files/x:download?alt=media");
    // Held and not read.
    let answer = client.get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    upstream.left_alone().await;
    assert!(upstream.sent() < 40 << 20, "{} bytes were taken from the provider", upstream.sent());
    assert!(answer.bytes().await.is_err(), "it cannot be taken for a whole answer");
}
