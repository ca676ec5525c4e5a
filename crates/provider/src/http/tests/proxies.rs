//! Proxies as the environment names them. Here they are all on this machine, and what lies behind them is nowhere.

use std::ffi::OsString;

use super::*;

const BEHIND: &str = "provider.invalid";

/// A transport that sends everything but `direct` through `proxy`.
fn behind(proxy: &str, direct: &str) -> HttpTransport {
    let proxies = Matcher::builder().all(proxy).no(direct).build();
    HttpTransport::through(proxies, &Timeouts::default()).unwrap()
}

async fn post(transport: &HttpTransport, base: &str) -> Result<WireResponse, TransportError> {
    let upstream = Upstream::new(base, Arc::new(transport.clone())).unwrap();
    let call = Call::generate("gemini-x", &"hi".into()).unwrap();
    upstream.call(&ApiKey::new(SECRET).unwrap(), &call).await
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Everything that anybody may print of `error`.
fn printed(error: &TransportError) -> String {
    let chain = causes(error).map(|error| format!("{error} {error:?} "));
    chain.collect()
}

fn is_unsent(error: &TransportError) -> bool {
    (error.kind, error.sent) == (TransportKind::Connect, Sent::No)
}

#[tokio::test]
async fn plain_http_goes_to_a_proxy_by_its_whole_url_and_with_the_credentials() {
    let (proxy, mut received) = says(OK).await;
    let transport = behind(&format!("http://me:se%40cret@{proxy}"), "");
    let reply = post(&transport, "http://provider.invalid:8080/prefix").await.unwrap();
    assert_eq!(reply.bytes(9).await.unwrap(), "ok");

    let head = received.recv().await.unwrap();
    let line =
        "post http://provider.invalid:8080/prefix/v1beta/models/gemini-x:generatecontent http/1.1";
    assert_eq!(head.lines().next(), Some(line));
    assert!(head.contains("\r\nhost: provider.invalid:8080"), "{head}");
    // me:se@cret
    assert!(head.contains(&"\r\nproxy-authorization: Basic bWU6c2VAY3JldA==".to_lowercase()));
    assert!(head.contains("\r\nx-goog-api-key: "));
    assert!(!format!("{transport:?}").contains("cret"), "the password was printed");
}

#[tokio::test]
async fn https_is_tunnelled_and_the_proxy_sees_no_key() {
    for established in [
        &b"HTTP/1.1 200 Connection established\r\n\r\n"[..],
        b"HTTP/1.0 200 OK\r\nproxy-agent: old\r\n\r\n",
    ] {
        is_tunnelled(established).await;
    }
}

async fn is_tunnelled(established: &'static [u8]) {
    let (seen, mut after) = mpsc::unbounded_channel();
    let (proxy, mut received) = server(move |mut stream| {
        let seen = seen.clone();
        async move {
            stream.write_all(established).await.unwrap();
            let mut hello = vec![0; 4096];
            let length = stream.read(&mut hello).await.unwrap();
            hello.truncate(length);
            seen.send(hello).unwrap();
        }
    })
    .await;
    let transport = behind(&format!("http://me:secret@{proxy}"), "");
    let error = post(&transport, "https://provider.invalid").await.unwrap_err();
    assert!(is_unsent(&error), "{error}");
    // A proxy that reads what goes through it shows a certificate of its own.
    let way = format!("no connection: through the proxy {proxy}: ");
    assert!(error.to_string().starts_with(&way), "{error}");

    let head = received.recv().await.unwrap();
    assert_eq!(head.lines().next(), Some("connect provider.invalid:443 http/1.1"));
    assert!(head.contains(&"\r\nproxy-authorization: Basic bWU6c2VjcmV0".to_lowercase()));
    assert!(head.contains("\r\nuser-agent: keywheel/"));
    assert!(!head.contains("x-goog-api-key"));
    let hello = after.recv().await.unwrap();
    let holds = |text: &str| hello.windows(text.len()).any(|part| part == text.as_bytes());
    assert_eq!(hello[0], 22, "no TLS handshake");
    assert!(holds(BEHIND), "TLS is with another than it should be");
    // The names of protocols stand behind their lengths.
    assert!(holds("\x08http/1.1") && !holds("\x02h2"), "requests would share a connection");
}

#[test]
fn the_provider_is_not_told_the_proxy_s_password() {
    let transport = behind("http://me:secret@10.0.0.1:3128", "");
    for (base, told) in [("http://provider.invalid", true), ("https://provider.invalid", false)] {
        let upstream = Upstream::new(base, Arc::new(transport.clone())).unwrap();
        let wire = upstream.request(&ApiKey::new(SECRET).unwrap(), &Call::models()).unwrap();
        let headers = transport.request(wire).unwrap().0.headers().clone();
        assert_eq!(headers.contains_key(PROXY_AUTHORIZATION), told, "{base}");
    }
}

#[tokio::test]
async fn a_tunnel_that_is_refused_was_no_connection_and_the_proxy_s_answer_is_told() {
    for (refusal, told) in [
        (
            &b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n"[..],
            "it answered 502 Bad Gateway",
        ),
        (b"HTTP/1.0 403 No\r\n\r\nNot for you.", "it answered 403 Forbidden"),
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n",
            "it answered 407 Proxy Authentication Required",
        ),
        (b"SSH-2.0-OpenSSH_10.0\r\n", ""),
        (b"", ""),
    ] {
        let (proxy, mut received) = says(refusal).await;
        let transport = behind(&format!("http://{proxy}"), "");
        let error = post(&transport, "https://provider.invalid").await.unwrap_err();
        assert!(is_unsent(&error), "{error}");
        let wanted = format!("no connection: through the proxy {proxy}: {told}");
        assert!(error.to_string().starts_with(&wanted), "{error}");
        let head = received.recv().await.unwrap();
        assert!(head.starts_with("connect ") && !head.contains("proxy-authorization"), "{head}");
        assert_eq!(drain(&mut received), 0, "asked again");
    }
}

#[tokio::test]
async fn a_forward_proxy_s_407_is_its_own_and_nothing_of_what_it_repeats_is_told() {
    const REFUSAL: &[u8] =
        b"HTTP/1.1 407 somebody:hidden\r\nproxy-authenticate: Basic realm=\"hidden\"\r\n\
        content-length: 38\r\n\r\nc29tZWJvZHk6aGlkZGVu is somebody:hidden";
    let (proxy, mut received) = says(REFUSAL).await;
    let transport = behind(&format!("http://somebody:hidden@{proxy}"), "");
    let error = post(&transport, "http://provider.invalid").await.unwrap_err();
    assert!(is_unsent(&error), "{error}");
    let wanted = format!(
        "no connection: through the proxy {proxy}: it answered 407 Proxy Authentication Required"
    );
    assert_eq!(error.to_string(), wanted);
    let printed = printed(&error);
    let tells = ["somebody", "hidden", "c29t"].iter().any(|part| printed.contains(part));
    assert!(!tells, "{printed}");
    assert_eq!(drain(&mut received), 1, "asked again");

    // Where no proxy was handed the request, it is whoever it went to that answers so.
    let reply = post(&transport, &format!("http://{proxy}")).await.unwrap();
    assert_eq!(reply.status, 407);
    let there = Uri::from_static("http://provider.invalid");
    assert!(behind("socks5://proxy.invalid", "").forwarder(&there).is_none());
    assert!(transport.forwarder(&Uri::from_static("https://provider.invalid")).is_none());
}

#[tokio::test]
async fn a_proxy_that_is_not_reached_is_told_from_the_provider_by_its_place_alone() {
    let gone = nobody().to_string();
    for scheme in ["http", "https", "socks4", "socks5", "socks5h"] {
        for place in [&gone, "proxy.invalid:3128"] {
            let transport = behind(&format!("{scheme}://somebody:hid@den@{place}"), "");
            for base in ["http://provider.invalid", "https://provider.invalid"] {
                let error = post(&transport, base).await.unwrap_err();
                assert!(is_unsent(&error), "{error}");
                let wanted =
                    format!("no connection: through the proxy {place}: it is not reached: ");
                assert!(error.to_string().starts_with(&wanted), "{error}");
                let printed = printed(&error);
                let tells = ["somebody", "hid", "den@"].iter().any(|part| printed.contains(part));
                assert!(!tells, "{printed}");
            }
        }
    }
    let direct = behind(&format!("http://{gone}"), "provider.invalid");
    let error = post(&direct, "http://provider.invalid").await.unwrap_err();
    assert!(!printed(&error).contains("proxy"), "no proxy lies on that way: {error}");
}

#[tokio::test]
async fn a_proxy_spoken_to_over_tls_is_offered_no_protocol() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = vec![0; 4096];
        let length = stream.read(&mut hello).await.unwrap();
        hello.truncate(length);
        hello
    });
    let transport = behind(&format!("https://localhost:{}", proxy.port()), "");
    let error = post(&transport, "https://provider.invalid").await.unwrap_err();
    assert!(is_unsent(&error), "{error}");
    let hello = served.await.unwrap();
    let holds = |text: &str| hello.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(hello[0] == 22 && holds("localhost"), "no TLS with the proxy");
    assert!(!holds("http/1.1") && !holds(BEHIND), "it is told what only the provider is");
}

#[tokio::test]
async fn a_proxy_that_never_answers_is_no_connection_in_time() {
    let (gone, mut ended) = mpsc::unbounded_channel();
    let (proxy, _received) = server(move |stream| {
        let gone = gone.clone();
        async move { gone.send(closed(stream).await).unwrap() }
    })
    .await;
    let proxies = Matcher::builder().all(format!("http://{proxy}")).build();
    let timeouts = Timeouts { connect: SHORT, first_byte: SHORT * 10, ..Timeouts::default() };
    let impatient = HttpTransport::through(proxies, &timeouts).unwrap();
    let error = post(&impatient, "https://provider.invalid").await.unwrap_err();
    assert!(is_unsent(&error), "{error}");
    let wanted = format!("no connection in time: through the proxy {proxy}: ");
    assert!(error.to_string().starts_with(&wanted), "{error}");
    assert_eq!(ended.recv().await, Some(true), "it is still asked");
}

#[tokio::test]
async fn a_host_that_no_proxy_names_is_not_asked_for_at_the_proxy() {
    let (proxy, mut received) = says(OK).await;
    let transport =
        behind(&format!("http://me:secret@{proxy}"), "elsewhere.invalid, provider.invalid");
    for base in ["http://provider.invalid", "https://sub.provider.invalid"] {
        let error = post(&transport, base).await.unwrap_err();
        assert!(is_unsent(&error), "there is no such host: {error}");
    }
    assert_eq!(drain(&mut received), 0);
    post(&transport, "http://another.invalid").await.unwrap();
    assert_eq!(drain(&mut received), 1);
}

#[tokio::test]
async fn this_machine_is_never_behind_a_proxy() {
    let (proxy, mut asked) = says(OK).await;
    let (address, mut received) = says(OK).await;
    let transport = behind(&format!("http://me:secret@{proxy}"), "");
    for host in ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1"] {
        let base = format!("http://{host}:{}", address.port());
        post(&transport, &base).await.unwrap();
        let head = received.try_recv().expect("it went elsewhere");
        assert!(head.starts_with("post /v1beta/"), "{head}");
        assert!(!head.contains("proxy-authorization"), "{head}");
    }
    let error = post(&transport, &format!("https://{}", nobody())).await.unwrap_err();
    assert!(is_unsent(&error), "{error}");
    assert_eq!(drain(&mut asked), 0);
}

#[tokio::test]
async fn socks_is_spoken_with_its_credentials_and_told_the_name_and_the_port() {
    for scheme in ["socks5", "socks5h"] {
        is_told_the_name(scheme).await;
    }
}

async fn is_told_the_name(scheme: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // RFC 1928 and 1929: methods, user name and password, a host by its name.
        for (expected, answer) in [
            (&b"\x05\x01\x02"[..], &b"\x05\x02"[..]),
            (b"\x01\x02me\x06secret", b"\x01\x00"),
            (b"\x05\x01\x00\x03\x10provider.invalid\x00\x50", b"\x05\x00\x00\x01\0\0\0\0\0\0"),
        ] {
            let mut seen = vec![0; expected.len()];
            stream.read_exact(&mut seen).await.unwrap();
            assert_eq!(seen, expected);
            stream.write_all(answer).await.unwrap();
        }
        let head = read_request(&mut stream).await.unwrap();
        stream.write_all(OK).await.unwrap();
        head
    });
    let transport = behind(&format!("{scheme}://me:secret@{proxy}"), "");
    assert_eq!(post(&transport, "http://provider.invalid").await.unwrap().status, 200);
    let head = served.await.unwrap();
    assert!(
        head.starts_with("post /v1beta/models/gemini-x:generatecontent http/1.1\r\n"),
        "{head}"
    );
    assert!(!head.contains("proxy-authorization"), "{head}");
}

#[tokio::test]
async fn a_socks_proxy_that_is_not_there_or_refuses_was_no_connection() {
    let gone = nobody();
    for scheme in ["socks4", "socks4a", "socks5", "socks5h"] {
        let refuses = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = refuses.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = refuses.accept().await.unwrap();
            // No method will do; of version 4, the request was rejected.
            let refusal =
                if scheme.starts_with("socks5") { &b"\x05\xff"[..] } else { b"\0\x5b\0\0\0\0\0\0" };
            stream.write_all(refusal).await.unwrap();
            let _ = stream.read(&mut [0; 64]).await;
        });
        for proxy in [there, gone] {
            let transport = behind(&format!("{scheme}://{proxy}"), "");
            let error = post(&transport, "https://provider.invalid").await.unwrap_err();
            assert!(is_unsent(&error), "{error}");
            let wanted = format!("no connection: through the proxy {proxy}: ");
            assert!(error.to_string().starts_with(&wanted), "{error}");
        }
    }
}

#[test]
fn no_transport_is_made_while_the_environment_names_a_proxy_that_cannot_be_used() {
    const CHILD: &str = "KEYWHEEL_TEST_CHILD";
    if let Ok(variable) = std::env::var(CHILD) {
        let error = HttpTransport::new(&Timeouts::default()).unwrap_err();
        let wanted = format!("{variable} cannot be used: ");
        assert!(error.to_string().starts_with(&wanted), "{error}");
        return;
    }
    let mut values = vec![("https_proxy", OsString::from("ftp://me:secret@host"))];
    #[cfg(unix)]
    for variable in ["HTTPS_PROXY", "NO_PROXY"] {
        let value = b"http://me:secret\xff@127.0.0.1:1".to_vec();
        values.push((variable, std::os::unix::ffi::OsStringExt::from_vec(value)));
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = "no_transport_is_made_while_the_environment_names_a_proxy_that_cannot_be_used";
    for (variable, value) in values {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::{name}"), "--nocapture"])
            .env_clear()
            .env(CHILD, variable)
            .env(variable, value)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("1 passed"), "{said}");
    }
}
