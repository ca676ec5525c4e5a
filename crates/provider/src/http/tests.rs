use std::{net::SocketAddr, sync::Arc};

use http::HeaderMap;
use keywheel_core::ApiKey;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

mod proxies;
mod reuse;

use super::*;
use crate::{
    Body,
    upstream::{Call, Upstream},
};

const SECRET: &str = "AIzaSyEXAMPLE0000000000000000000000000001";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn transport() -> HttpTransport {
    HttpTransport::new(&Timeouts::default()).unwrap()
}

const SHORT: Duration = Duration::from_millis(100);

/// Sends one POST with the key to `address`, as the client does.
async fn send(
    transport: &HttpTransport,
    address: SocketAddr,
) -> Result<WireResponse, TransportError> {
    let upstream =
        Upstream::new(&format!("http://{address}"), Arc::new(transport.clone())).unwrap();
    let call = Call::generate("gemini-x", &"hi".into()).unwrap();
    let key = ApiKey::new(SECRET).unwrap();
    upstream.call(&key, &call).await
}

/// A server that gives each connection, after its request was read, to `answer`; and the requests' heads.
async fn server<F, Fut>(answer: F) -> (SocketAddr, mpsc::UnboundedReceiver<String>)
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (heads, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if let Some(head) = read_request(&mut stream).await {
                let _ = heads.send(head);
                tokio::spawn(answer(stream));
            }
        }
    });
    (address, received)
}

/// Reads one request with its body; returns the head. `None` when the client went away.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut seen = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).await.ok().filter(|&length| length > 0)?;
        seen.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let wanted = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= wanted.map_or(0, |length| length.parse().unwrap()) {
            return Some(head.to_owned());
        }
    }
}

/// A server that writes `bytes` and closes.
async fn says(bytes: &'static [u8]) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    server(move |mut stream| async move {
        stream.write_all(bytes).await.unwrap();
        let _ = stream.shutdown().await;
    })
    .await
}

fn drain(received: &mut mpsc::UnboundedReceiver<String>) -> usize {
    std::iter::from_fn(|| received.try_recv().ok()).count()
}

#[tokio::test]
async fn a_request_goes_out_once_with_the_key_in_its_header_only() {
    let (address, mut received) = says(OK).await;
    let reply = send(&transport(), address).await.unwrap();
    assert_eq!((reply.status, reply.headers["content-length"].as_bytes()), (200, &b"2"[..]));
    assert_eq!(reply.bytes(100).await.unwrap(), "ok");

    let head = received.recv().await.unwrap();
    assert!(head.starts_with("post /v1beta/models/gemini-x:generatecontent http/1.1\r\n"));
    assert_eq!(head.matches(&SECRET.to_lowercase()).count(), 1);
    assert!(head.contains("\r\nx-goog-api-key: "));
    assert!(head.contains(concat!("\r\nuser-agent: keywheel/", env!("CARGO_PKG_VERSION"))));
    assert!(head.contains("\r\ncontent-type: application/json"));
    assert!(!head.contains("\r\naccept-encoding"), "bodies have to come as they are");
    assert_eq!(head.lines().count(), 6, "host and content-length are the others: {head}");
    assert_eq!(drain(&mut received), 0, "sent again");
}

#[tokio::test]
async fn a_refused_connection_was_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = send(&transport(), address).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (TransportKind::Connect, Sent::No), "{error}");
}

#[tokio::test]
async fn a_failed_tls_handshake_was_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"this is not TLS\r\n").await;
    });
    let upstream = Upstream::new(&format!("https://{address}"), Arc::new(transport())).unwrap();
    let key = ApiKey::new(SECRET).unwrap();
    let error = upstream.call(&key, &Call::models()).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (TransportKind::Connect, Sent::No), "{error}");
}

#[tokio::test]
async fn a_connection_reset_before_sending_is_sent_once_and_said_to_be_unsent_only_if_it_is() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (accepted, mut count) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_zero_linger().unwrap();
            drop(stream);
            accepted.send(()).unwrap();
        }
    });
    for _ in 0..5 {
        let error = send(&transport(), address).await.unwrap_err();
        // The reset may overtake the connection itself. Else nobody knows how far the request got.
        match error.kind {
            TransportKind::Connect => assert_eq!(error.sent, Sent::No),
            kind => assert_eq!((kind, error.sent), (TransportKind::Interrupted, Sent::Maybe)),
        }
        count.recv().await.unwrap();
        assert!(count.try_recv().is_err(), "a hidden second attempt");
    }
}

#[tokio::test]
async fn a_connection_reset_after_sending_may_have_been_sent_and_is_not_sent_again() {
    let (address, mut received) =
        server(|stream| async move { stream.set_zero_linger().unwrap() }).await;
    let error = send(&transport(), address).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (TransportKind::Interrupted, Sent::Maybe), "{error}");
    assert_eq!(drain(&mut received), 1);
}

#[tokio::test]
async fn a_reply_of_503_is_handed_back_and_not_tried_again() {
    let (address, mut received) =
        says(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n")
            .await;
    assert_eq!(send(&transport(), address).await.unwrap().status, 503);
    assert_eq!(drain(&mut received), 1);
}

#[tokio::test]
async fn a_body_cut_short_is_an_error_after_what_came() {
    for head in ["content-length: 100\r\n\r\nabc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"]
    {
        let reply: &'static str = format!("HTTP/1.1 200 OK\r\n{head}").leak();
        let (address, _received) = says(reply.as_bytes()).await;
        let mut body = send(&transport(), address).await.unwrap().body;
        assert_eq!(body.next().await.unwrap().unwrap(), "abc");
        let error = body.next().await.unwrap().unwrap_err();
        assert_eq!((error.kind, error.sent), (TransportKind::Interrupted, Sent::Maybe), "{error}");
        assert!(body.next().await.is_none());
    }
}

#[tokio::test]
async fn a_reply_that_never_begins_is_a_timeout() {
    let (address, _received) = server(|stream| async move {
        let _stream = stream;
        std::future::pending().await
    })
    .await;
    let impatient = HttpTransport::new(&Timeouts { first_byte: SHORT, ..Timeouts::default() });
    let error = send(&impatient.unwrap(), address).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (TransportKind::Timeout, Sent::Maybe));
    assert_eq!(error.to_string(), "no reply came within 100ms");
}

#[tokio::test]
async fn a_body_that_never_ends_is_a_timeout_between_two_pieces() {
    let (address, _received) = server(|mut stream| async move {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\n";
        stream.write_all(head).await.unwrap();
        std::future::pending().await
    })
    .await;
    let impatient = HttpTransport::new(&Timeouts { idle: SHORT, ..Timeouts::default() });
    let mut body = send(&impatient.unwrap(), address).await.unwrap().body;
    assert_eq!(body.next().await.unwrap().unwrap(), "data: {}\n\n");
    let error = body.next().await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.sent), (TransportKind::Timeout, Sent::Maybe));
    assert_eq!(error.to_string(), "nothing more of the reply came within 100ms");
    assert!(body.next().await.is_none());
}

#[test]
fn a_large_body_gets_more_time() {
    let transport = transport();
    assert_eq!(transport.head_limit(1_000), Duration::from_secs(90));
    assert_eq!(transport.head_limit(100 << 20), Duration::from_secs(90 + 1_600));
}

#[tokio::test]
async fn a_reply_that_is_no_http_says_so() {
    let (address, _received) = says(b"SSH-2.0-OpenSSH_10.0\r\n").await;
    let error = send(&transport(), address).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (TransportKind::Decode, Sent::Maybe), "{error}");
}

#[tokio::test]
async fn a_redirect_to_another_host_is_handed_back_and_the_key_does_not_follow() {
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        elsewhere.set_nonblocking(true).unwrap();
        let reply: &'static str = format!(
            "HTTP/1.1 {status} Moved\r\nlocation: http://localhost:{}/v1beta/models\r\ncontent-length: 0\r\n\r\n",
            elsewhere.local_addr().unwrap().port()
        )
        .leak();
        let (address, mut received) = says(reply.as_bytes()).await;
        let reply = send(&transport(), address).await.unwrap();
        assert_eq!(reply.status, status);
        assert!(
            reply.headers.contains_key("location"),
            "the caller sees where it should have gone"
        );
        assert_eq!(drain(&mut received), 1);
        assert!(elsewhere.accept().is_err(), "somebody came, with or without the key");
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_replaced_without_an_error() {
    let (address, mut received) = server(|mut stream| async move {
        stream.write_all(OK).await.unwrap();
        // Announces nothing, then closes: as load balancers do.
        let _ = stream.shutdown().await;
    })
    .await;
    let transport = transport();
    for _ in 0..20 {
        assert_eq!(send(&transport, address).await.unwrap().bytes(9).await.unwrap(), "ok");
    }
    assert_eq!(drain(&mut received), 20);
}

/// Waits until the other side has closed; true if it sent nothing more.
async fn closed(mut stream: TcpStream) -> bool {
    matches!(stream.read(&mut [0; 1]).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn dropping_the_call_ends_the_request() {
    let (gone, mut ended) = mpsc::unbounded_channel();
    let (address, mut received) = server(move |stream| {
        let gone = gone.clone();
        async move { gone.send(closed(stream).await).unwrap() }
    })
    .await;
    let transport = transport();
    let mut call = Box::pin(send(&transport, address));
    tokio::select! {
        _ = &mut call => panic!("nobody answers"),
        head = received.recv() => assert!(head.is_some()),
    }
    drop(call);
    assert_eq!(ended.recv().await, Some(true));
}

#[tokio::test]
async fn dropping_the_body_ends_the_request() {
    let (gone, mut ended) = mpsc::unbounded_channel();
    let (address, _received) = server(move |mut stream| {
        let gone = gone.clone();
        async move {
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\npart";
            stream.write_all(head).await.unwrap();
            gone.send(closed(stream).await).unwrap();
        }
    })
    .await;
    let mut reply = send(&transport(), address).await.unwrap();
    assert_eq!(reply.body.next().await.unwrap().unwrap(), "part");
    drop(reply);
    assert_eq!(ended.recv().await, Some(true));
}

// https://github.com/constellation-works/orbit/pull/490 and https://github.com/nyroway/nyro/issues/68: reqwest's
// errors print the URL, and it reached the proxy's user.
#[tokio::test]
async fn no_error_prints_the_url_or_the_key() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (garbage, _received) = says(b"garbage\r\n").await;
    for url in [
        format!("http://{address}/hidden-path?q=hidden-query"),
        format!("http://{garbage}/hidden-path?q=hidden-query"),
        "http://hidden-path.invalid/".to_owned(),
        "hidden-path hidden-query".to_owned(),
        "ftp://hidden-path/".to_owned(),
    ] {
        let mut key = HeaderValue::from_static(SECRET);
        key.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert("x-goog-api-key", key);
        let request = WireRequest { method: Method::GET, url, headers, body: Body::empty() };
        let transport = transport();
        let error = transport.send(request).await.unwrap_err();
        let mut printed = format!("{error} {error:?} {transport:?}");
        let mut cause = Error::source(&error);
        while let Some(inner) = cause {
            printed += &format!(" {inner} {inner:?}");
            cause = inner.source();
        }
        assert!(!printed.contains(SECRET), "the key was printed");
        assert!(!printed.contains("hidden-query"), "{printed}");
        assert!(!printed.contains("/hidden-path"), "{printed}");
    }
}

#[tokio::test]
async fn a_caller_s_own_user_agent_is_kept() {
    let (address, mut received) = says(OK).await;
    let upstream = Upstream::new(&format!("http://{address}"), Arc::new(transport())).unwrap();
    let call = Call::models().with_header(header::USER_AGENT, HeaderValue::from_static("theirs/1"));
    upstream.call(&ApiKey::new(SECRET).unwrap(), &call).await.unwrap();
    let head = received.recv().await.unwrap();
    assert!(head.contains("\r\nuser-agent: theirs/1"), "{head}");
    assert_eq!(head.matches("user-agent").count(), 1);
}

/// RFC 9110, section 8.6.
#[tokio::test]
async fn that_there_is_no_body_is_said_where_there_could_be_one() {
    let (address, mut received) = says(OK).await;
    let transport = transport();
    for (method, times) in [
        (Method::POST, 1),
        (Method::PUT, 1),
        (Method::PATCH, 1),
        (Method::GET, 0),
        (Method::DELETE, 0),
    ] {
        let url = format!("http://{address}/");
        let request = WireRequest { method, url, headers: HeaderMap::new(), body: Body::empty() };
        assert_eq!(transport.send(request).await.unwrap().bytes(9).await.unwrap(), "ok");
        let head = received.recv().await.unwrap();
        assert_eq!(head.matches("\r\ncontent-length: 0").count(), times, "{head}");
        assert!(!head.contains("transfer-encoding"), "{head}");
    }
}

#[test]
fn a_url_that_would_lead_elsewhere_than_it_says_is_not_used() {
    for url in [
        "https://generativelanguage.googleapis.com/v1beta/models?pageSize=9",
        "http://10.0.0.1:8080",
        "http://[::1]:80/",
        "https://[::1]/",
    ] {
        assert!(usable(url.to_owned()).is_some(), "{url}");
    }
    for url in [
        "https://example.com:99999/",
        "https://example.com:/",
        "https://example.com:8o/",
        "https://user@example.com/",
        "https://user:7@example.com:80/",
        "https://:443/",
        "https:///path",
        "ftp://example.com/",
        "//example.com/",
        "/path",
        "example.com:443",
        "https://example.com/a b",
        "",
    ] {
        assert!(usable(url.to_owned()).is_none(), "{url}");
    }
}

#[test]
fn both_kinds_of_runtime_can_send() {
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    for mut builder in
        [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()]
    {
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async {
            let (address, _received) = says(OK).await;
            let transport = transport();
            let reply = assert_send(send(&transport, address)).await.unwrap();
            assert_eq!(assert_send(reply).bytes(9).await.unwrap(), "ok");
        });
    }
}

#[tokio::test]
async fn a_body_in_a_file_goes_out_whole_with_its_length_said_and_no_chunks() {
    let text: String = (0..30_000).map(|i| format!("{i:x},")).collect();
    let mut file = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    let body = Body::from_file(Arc::new(file), text.len() as u64).splice(0..2, "[first]");
    let expected = format!("[first]{}", &text[2..]);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"752f,") {
            let before = seen.len();
            stream.read_buf(&mut seen).await.unwrap();
            assert!(seen.len() > before, "it ended early");
        }
        stream.write_all(OK).await.unwrap();
        String::from_utf8(seen).unwrap()
    });
    let upstream = Upstream::new(&format!("http://{address}"), Arc::new(transport())).unwrap();
    let key = ApiKey::new(SECRET).unwrap();
    // What a caller says of the length is not believed.
    let call = Call::post("files", body).with_header(CONTENT_LENGTH, 3.into());
    assert_eq!(upstream.call(&key, &call).await.unwrap().status, 200);
    let seen = served.await.unwrap();
    let (head, sent) = seen.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("\r\ncontent-length: {}", expected.len())), "{head}");
    assert_eq!(head.matches("content-length").count(), 1);
    assert!(!head.contains("transfer-encoding"));
    assert!(sent == expected, "another body");
}

#[tokio::test]
async fn a_file_that_was_cut_ends_the_request_instead_of_sending_half_of_it_as_whole() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(100).unwrap();
    let (address, mut received) = says(OK).await;
    let upstream = Upstream::new(&format!("http://{address}"), Arc::new(transport())).unwrap();
    let call = Call::post("files", Body::from_file(Arc::new(file), 200));
    let key = ApiKey::new(SECRET).unwrap();
    let error = upstream.call(&key, &call).await.unwrap_err();
    assert_eq!(error.kind, TransportKind::Interrupted, "{error}");
    assert_eq!(drain(&mut received), 0, "the server had a whole request");
}
