//! Relayed calls over real sockets: bytes as they are on the wire, and a client that goes away.

#![cfg(feature = "ledger")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{io::Write as _, net::SocketAddr, sync::Arc, time::Duration};

use common::{
    MODEL, assert_balanced,
    bodies::part,
    ledger::APP,
    relay::{BODY, event, streamed, whole},
    sim::world,
    specs,
};
use keywheel::{
    Gemini, StateLocation, SystemClock,
    ledger::{Ledger, Outcome, RowQuery},
    raw::{Call, RelayBody},
};
use keywheel_sim::SimServer;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Long enough for any machine; only a hang meets it.
const HANG: Duration = Duration::from_secs(60);

struct Rig {
    gemini: Gemini,
    ledger: Ledger,
}

async fn rig(base_url: &str) -> Rig {
    common::follow_rust_log();
    let ledger = Ledger::builder().account(APP, []).in_memory().open().await.unwrap();
    let gemini = Gemini::builder()
        .keys(specs(1))
        .state(StateLocation::None)
        .base_url(base_url)
        .ledger(ledger.clone(), APP)
        .without_daily_checks()
        .build()
        .await
        .unwrap();
    Rig { gemini, ledger }
}

async fn read(mut body: RelayBody) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    bytes
}

/// Takes one request off the wire.
async fn request(stream: &mut TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).await.unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
}

async fn chunk(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
    stream.write_all(bytes).await?;
    stream.write_all(b"\r\n").await?;
    stream.flush().await
}

/// A server of one reply in chunks of `size`.
async fn serving(headers: &'static str, body: Vec<u8>, size: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        let head = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n{headers}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        for piece in body.chunks(size) {
            chunk(&mut stream, piece).await.unwrap();
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
    });
    address
}

fn two_events() -> Vec<u8> {
    let last = json_with_every_character();
    (event(&part("Hel", None, (8, 1))) + &event(&part(&last, Some("STOP"), (8, 2)))).into_bytes()
}

fn json_with_every_character() -> String {
    (0..=0x2100_u32).filter_map(char::from_u32).collect()
}

#[tokio::test]
async fn the_bytes_of_a_reply_are_those_on_the_wire() {
    let zipped = {
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        zip.write_all(&two_events()).unwrap();
        zip.finish().unwrap()
    };
    let array = format!("[{}]\n", part("Hello", Some("STOP"), (8, 2))).into_bytes();
    for (headers, body) in [
        ("content-type: text/event-stream", two_events()),
        ("content-type: text/event-stream\r\ncontent-encoding: gzip", zipped),
        ("content-type: application/json; charset=UTF-8", array),
    ] {
        for size in [1, 100, 100_000] {
            let address = serving(headers, body.clone(), size).await;
            let rig = rig(&format!("http://{address}")).await;
            let reply = timeout(HANG, streamed(&rig.gemini)).await.unwrap().unwrap();
            assert!(timeout(HANG, read(reply.body)).await.unwrap() == body, "{headers} {size}");
            assert_balanced(&rig.gemini);
            let row = rig.ledger.rows(RowQuery::default()).await.unwrap().remove(0);
            assert_eq!(row.usage.unwrap().total, 10, "{headers} {size}");
        }
    }
}

#[tokio::test]
async fn a_reader_who_goes_away_closes_the_connection_to_the_provider() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let closed = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        chunk(&mut stream, event(&part("Hel", None, (8, 1))).as_bytes()).await.unwrap();
        // Nothing more is said until the other side is gone.
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    });
    let rig = rig(&format!("http://{address}")).await;
    let mut reply = timeout(HANG, streamed(&rig.gemini)).await.unwrap().unwrap();
    timeout(HANG, reply.body.next()).await.unwrap().unwrap().unwrap();
    drop(reply);
    timeout(HANG, closed).await.unwrap().unwrap();
    assert_balanced(&rig.gemini);
    let row = rig.ledger.rows(RowQuery::default()).await.unwrap().remove(0);
    assert_eq!((row.outcome, row.usage.unwrap().total), (Some(Outcome::CutShort), 9));
}

#[tokio::test]
async fn every_form_of_a_call_is_relayed_over_a_socket() {
    let sim = SimServer::start(world(1), Arc::new(SystemClock)).await.unwrap();
    let rig = rig(&sim.base_url()).await;
    let chat = format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"hi"}}]}}"#);
    let openai =
        |body: String| rig.gemini.relay(Call::post("/v1beta/openai/chat/completions", body));
    for (call, says_usage) in [
        (whole(&rig.gemini), true),
        (streamed(&rig.gemini), true),
        (openai(chat.clone()), true),
        (rig.gemini.relay(Call::post(format!("models/{MODEL}:countTokens"), BODY)), false),
        (rig.gemini.relay(Call::get("models")), false),
    ] {
        let mut reply = timeout(HANG, call).await.unwrap().unwrap();
        let mut bytes = 0;
        while let Some(piece) = timeout(HANG, reply.body.next()).await.unwrap() {
            bytes += piece.unwrap().len();
        }
        assert!(bytes > 0);
        assert_eq!(reply.body.usage().is_some(), says_usage);
    }
    assert_balanced(&rig.gemini);
    let rows = rig.ledger.rows(RowQuery::default()).await.unwrap();
    assert_eq!(rows.len(), 3, "what asks no model costs nothing");
    assert!(rows.iter().all(|row| row.outcome == Some(Outcome::Answered) && row.usage.is_some()));
}
