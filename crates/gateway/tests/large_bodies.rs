//! Bodies of 100 MB pass through in little memory. A program of its own, whose allocator counts: the client, the gateway
//! and the provider are all in it.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::net::SocketAddr;

use common::{MODEL, Served, Setup};
use peak_alloc::PeakAlloc;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MB: usize = 1 << 20;
const PIECE: usize = 60_000;

/// What the provider got of one request.
#[derive(Debug, Default)]
struct Received {
    head: String,
    first: Vec<u8>,
    last: Vec<u8>,
    length: usize,
}

/// A provider that keeps the ends of what it gets, and answers.
async fn provider() -> (SocketAddr, mpsc::UnboundedReceiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (say, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer_all(stream, say.clone()));
        }
    });
    (address, heard)
}

async fn answer_all(mut stream: TcpStream, say: mpsc::UnboundedSender<Received>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let mut received = Received::default();
        let mut head = Vec::new();
        let end = loop {
            let length = stream.read(&mut buffer).await.unwrap_or(0);
            if length == 0 {
                return;
            }
            head.extend_from_slice(&buffer[..length]);
            if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let mut piece = head.split_off(end);
        received.head = String::from_utf8(head).unwrap().to_lowercase();
        let announced = received.head.split("content-length: ").nth(1).unwrap();
        let announced: usize = announced.lines().next().unwrap().parse().unwrap();
        loop {
            received.length += piece.len();
            let room = 200_usize.saturating_sub(received.first.len()).min(piece.len());
            received.first.extend_from_slice(&piece[..room]);
            received.last.extend_from_slice(&piece[piece.len().saturating_sub(200)..]);
            let spare = received.last.len().saturating_sub(200);
            received.last.drain(..spare);
            if received.length >= announced {
                break;
            }
            let length = stream.read(&mut buffer).await.unwrap();
            assert!(length > 0, "it ended after {} of {announced} bytes", received.length);
            piece.clear();
            piece.extend_from_slice(&buffer[..length]);
        }
        say.send(received).unwrap();
        let body =
            r#"{"candidates":[{"content":{"parts":[{"text":"seen"}]},"finishReason":"STOP"}]}"#;
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// Sends `before`, so many bytes of base64, and `after`; returns the status, and whatever was said until then.
async fn send(
    served: &Served,
    path: &str,
    [before, after]: [&str; 2],
    base64: usize,
    is_announced: bool,
) -> u16 {
    let mut stream = TcpStream::connect(served.running.address()).await.unwrap();
    let pieces = base64 / PIECE;
    let length = before.len() + pieces * PIECE + after.len();
    let framing = if is_announced {
        format!("content-length: {length}")
    } else {
        "transfer-encoding: chunked".to_owned()
    };
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let (before, after) = (before.to_owned(), after.to_owned());
    // The gateway may answer, and close, before it has all.
    let writing = tokio::spawn(async move {
        let piece = "QUJD".repeat(PIECE / 4);
        let middle = std::iter::repeat_n(piece.as_str(), pieces);
        for piece in [before.as_str()].into_iter().chain(middle).chain([after.as_str()]) {
            let framed = [format!("{:x}\r\n", piece.len()), "\r\n".to_owned()];
            if !is_announced {
                writer.write_all(framed[0].as_bytes()).await?;
            }
            writer.write_all(piece.as_bytes()).await?;
            if !is_announced {
                writer.write_all(framed[1].as_bytes()).await?;
            }
        }
        if !is_announced {
            writer.write_all(b"0\r\n\r\n").await?;
        }
        Ok::<_, std::io::Error>(writer)
    });
    let mut answer = Vec::new();
    while !answer.windows(2).any(|bytes| bytes == b"\r\n") {
        assert!(reader.read_buf(&mut answer).await.unwrap() > 0, "no answer");
    }
    writing.abort();
    String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap().parse().unwrap()
}

/// By how much the memory grew.
async fn grown<T>(doing: impl Future<Output = T>) -> (T, usize) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let done = doing.await;
    (done, MEMORY.peak_usage().saturating_sub(before))
}

#[tokio::test]
async fn bodies_of_100_mb_pass_whole_and_the_memory_grows_by_less_than_four() {
    let (address, mut heard) = provider().await;
    let served = Setup::default().start_before(&format!("http://{address}")).await;
    let native = format!("/v1beta/models/{MODEL}:generateContent");
    let picture = [
        r#"{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":""#,
        r#""}}]}],"safetySettings":[]}"#,
    ];
    let model = format!(
        r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,"#
    );
    let chat = [model.as_str(), r#""}}]}],"n":1}"#];
    // What is made once.
    assert_eq!(send(&served, &native, picture, 2 * MB, true).await, 200);
    heard.recv().await.unwrap();

    for (path, ends, is_announced) in [
        (native.as_str(), picture, true),
        (&native, picture, false),
        ("/v1beta/openai/chat/completions", chat, true),
    ] {
        let (status, grown) = grown(send(&served, path, ends, 99 * MB, is_announced)).await;
        let received = heard.recv().await.unwrap();
        assert_eq!(status, 200, "{path}");
        assert!(grown < 4 * MB, "{path}: {grown} bytes");
        // Only the limit of the answer may be set into it.
        let added = received.length - (ends[0].len() + 99 * MB / PIECE * PIECE + ends[1].len());
        assert!(added < 60, "{added} bytes more");
        let last = String::from_utf8(received.last).unwrap();
        assert!(last.ends_with(ends[1]), "{last}");
        let first = String::from_utf8(received.first).unwrap();
        assert!(first.contains(ends[0].strip_prefix('{').unwrap()), "{first}");
        assert!(!received.head.contains("transfer-encoding"), "{}", received.head);
    }

    for is_announced in [true, false] {
        let (status, grown) = grown(send(&served, &native, picture, 130 * MB, is_announced)).await;
        assert_eq!(status, 413);
        assert!(grown < 4 * MB, "{grown} bytes");
    }
    assert!(heard.try_recv().is_err(), "what is too large was sent on");
}
