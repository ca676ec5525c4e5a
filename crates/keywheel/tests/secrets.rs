//! No key leaves the client but in the one header: not in errors, notes, logs, the state file, nor to another host.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{
    error::Error as StdError,
    fmt::{Debug, Display, Write as _},
    sync::Arc,
};

use common::{
    MODEL, NOON, Rig, at,
    bodies::{error, invalid_key, part, reply, suspended},
    label,
    log::Log,
};
use futures_util::FutureExt as _;
use http::{HeaderValue, header::LOCATION};
use keywheel::{
    ApiKey, Error, Gemini, KeySpec, ManualClock, MemoryState, Pool, RetryConfig, StateLocation,
};
use keywheel_provider::{
    Sent, TransportKind,
    testing::{Script, Scripted},
};
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, ProjectState, SimConfig, SimServer};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// Google's two forms, and one that looks like nothing: other providers' keys, and Google's next ones.
fn keys() -> [ApiKey; 3] {
    [
        "AIzaSyEXAMPLE0000000000000000000000000001",
        "AQ.EXAMPLE-key-of-the-newer-form",
        "plain-EXAMPLE-secret-0123456789",
    ]
    .map(|key| ApiKey::new(key).unwrap())
}

/// Fails without repeating the text, which may be printed.
fn assert_clean(what: &str, text: &str, key: &ApiKey) {
    assert!(!text.is_empty(), "{what}: nothing to look at");
    let secret = key.expose();
    assert!(!text.contains(secret), "{what}: the key is in it");
    // Nor most of it: a cut message must not end in half a key.
    assert!(!text.contains(&secret[..secret.len() - 6]), "{what}: most of the key is in it");
    let encoded: String = secret.bytes().fold(String::new(), |mut out, byte| {
        write!(out, "%{byte:02X}").unwrap();
        out
    });
    assert!(!text.contains(&encoded), "{what}: the key is in it, encoded");
}

/// Everything that an error says, its sources included.
fn all_of(error: &(dyn StdError + 'static)) -> String {
    let mut out = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        write!(out, "{error} {error:?} {error:#?} ").unwrap();
        next = error.source();
    }
    out
}

fn printed<T: Debug>(value: &T) -> String {
    format!("{value:?} {value:#?}")
}

/// Replies that repeat the key wherever a reply has room for it.
fn echoes(key: &ApiKey) -> Vec<(&'static str, Scripted)> {
    let secret = key.expose();
    let said = format!("Permission denied: Consumer 'api_key:{secret}' has been suspended.");
    let violation = json!([{
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{
            "quotaId": format!("GenerateRequestsPerDay-{secret}"),
            "quotaMetric": format!("generativelanguage.googleapis.com/{secret}"),
            "quotaDimensions": {"model": secret},
            "quotaValue": "20",
        }],
    }]);
    let consumer = json!([{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "SERVICE_DISABLED",
        "metadata": {"consumer": format!("projects/{secret}")},
    }]);
    let long = format!("{}{secret}{}", "x".repeat(490 - secret.len() / 2), "y".repeat(400));
    let later = secret.replace('E', "%45");
    vec![
        ("suspended", suspended(key)),
        ("a fault", reply(400, &error(400, "INVALID_ARGUMENT", &said, Value::Null))),
        ("a fault at the cut", reply(400, &error(400, "INVALID_ARGUMENT", &long, Value::Null))),
        ("a fault, encoded", reply(400, &error(400, "INVALID_ARGUMENT", &later, Value::Null))),
        ("a missing model", reply(404, &error(404, "NOT_FOUND", &said, Value::Null))),
        ("a quota", reply(429, &error(429, "RESOURCE_EXHAUSTED", &said, violation.clone()))),
        ("a project", reply(403, &error(403, "PERMISSION_DENIED", "no", consumer.clone()))),
        ("a failure", reply(503, &error(503, "UNAVAILABLE", &said, Value::Null))),
        ("a page", Scripted::status(502).piece(format!("<html>{said}</html>"))),
        ("no JSON", Scripted::json(200, format!("{secret} is not JSON"))),
        ("other JSON", reply(200, &json!({"candidates": secret}))),
        ("a text", reply(200, &json!(secret))),
        ("a redirect", {
            let to = HeaderValue::from_str(&format!("http://x.invalid/?key={secret}")).unwrap();
            Scripted::status(307).header(LOCATION, to).piece(said.clone())
        }),
        ("no reply", Scripted::failure(TransportKind::Timeout, Sent::Maybe)),
        (
            "a stream that breaks",
            Scripted::events([
                part("Hel", None, (8, 1)),
                error(403, "PERMISSION_DENIED", &said, Value::Null),
            ]),
        ),
        (
            "a stream that breaks over a quota",
            Scripted::events([
                part("Hel", None, (8, 1)),
                error(429, "RESOURCE_EXHAUSTED", &said, violation.clone()),
            ]),
        ),
        (
            "a stream that breaks over a project",
            Scripted::events([
                part("Hel", None, (8, 1)),
                error(403, "PERMISSION_DENIED", "no", consumer.clone()),
            ]),
        ),
        ("a stream that begins badly", {
            Scripted::events([error(500, "INTERNAL", &said, Value::Null)])
        }),
        ("a stream of another form", Scripted::events([json!({"candidates": secret})])),
    ]
}

/// What a whole call hands out.
fn whole(rig: &Rig) -> String {
    let fault = match rig.run(rig.gemini.generate(MODEL, "hi")) {
        Ok(reply) => return printed(&reply.attempts()),
        Err(fault) => fault,
    };
    let body = match &fault {
        Error::Rejected { rejected, .. } => rejected.body.as_str(),
        _ => "",
    };
    let attempts: String = fault.attempts().iter().map(ToString::to_string).collect();
    [&all_of(&fault), &printed(&fault.attempts()), &*attempts, body].concat()
}

/// What a streamed call hands out.
fn streamed(rig: &Rig) -> String {
    let mut stream = match rig.run(rig.gemini.stream(MODEL, "hi")) {
        Ok(stream) => stream,
        Err(fault) => return all_of(&fault),
    };
    let mut seen = printed(&stream);
    while let Some(part) = rig.run(stream.next()) {
        if let Err(fault) = part {
            seen += &all_of(&fault);
        }
    }
    seen + &printed(&stream)
}

#[test]
fn no_error_note_log_or_state_repeats_a_key_that_a_reply_repeats() {
    for key in keys() {
        for (what, echo) in echoes(&key) {
            for call in [whole, streamed] {
                check(&key, what, echo.clone(), call);
            }
        }
    }
}

fn check(key: &ApiKey, what: &str, echo: Scripted, call: fn(&Rig) -> String) {
    let (log, _guard) = Log::start(tracing::Level::TRACE);
    let memory = MemoryState::new();
    let none = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let rig = Rig::built(
        0,
        |pool| {
            let spec = KeySpec::new(key.clone(), label(1));
            pool.keys([spec]).state(StateLocation::Memory(memory.clone()))
        },
        |client| client.retry(none),
    );
    rig.script.otherwise(move |_| echo.clone());
    let seen = call(&rig);
    assert_eq!(rig.script.requests().len(), 1, "{what}");
    assert_clean(&format!("{what}, what is handed out"), &seen, key);

    let status = rig.gemini.status();
    let status = printed(&status) + &serde_json::to_string(&status).unwrap();
    assert_clean(&format!("{what}, the status"), &status, key);
    let client = printed(&rig.gemini) + &printed(rig.gemini.pool());
    assert_clean(&format!("{what}, the client itself"), &client, key);
    rig.run(rig.gemini.flush()).unwrap();
    assert_clean(&format!("{what}, the state"), &(memory.json() + &printed(&memory)), key);
    assert_clean(&format!("{what}, the log"), &log.text(), key);
}

#[test]
fn a_key_in_the_place_of_a_model_is_told_nowhere_and_nothing_is_sent() {
    for key in keys().into_iter().take(2) {
        let (log, _guard) = Log::start(tracing::Level::TRACE);
        let memory = MemoryState::new();
        let state = StateLocation::Memory(memory.clone());
        let rig = Rig::built(1, |pool| pool.state(state), |client| client);
        rig.script.otherwise(|_| Scripted::text("Hello"));
        let model = key.expose();
        let faults = [
            rig.run(rig.gemini.generate(model, "hi")).unwrap_err(),
            rig.run(rig.gemini.generate(format!("models/{model}"), "hi")).unwrap_err(),
            rig.run(rig.gemini.stream(model, "hi")).unwrap_err(),
            rig.run(rig.gemini.embed(model, "hi")).unwrap_err(),
            rig.run(rig.gemini.count_tokens(model, "hi")).unwrap_err(),
            rig.run(rig.gemini.files().get(model)).unwrap_err(),
        ];
        assert!(rig.script.requests().is_empty(), "something was sent");
        rig.run(rig.gemini.flush()).unwrap();
        let said: String = faults.iter().map(|fault| all_of(fault)).collect();
        let said = said + &log.text();
        let kept = memory.json() + &printed(&rig.gemini.status()) + &printed(&rig.gemini);
        for (what, text) in [("errors and the log", said), ("the state", kept)] {
            assert_clean(what, &text, &key);
        }
    }
}

/// Sockets, the HTTP client's own logs, and a state file on disk.
#[test]
fn a_suspended_key_that_google_repeats_is_nowhere_on_disk_nor_in_the_log() {
    let (log, _guard) = Log::start(tracing::Level::TRACE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("pool.json");
    let [first, second, _] = keys();
    let all = runtime.block_on(async {
        let clock = Arc::new(ManualClock::at(at(NOON)));
        let config = SimConfig::new()
            .with_model(MODEL, ModelConfig::free(Limits::new().rpd(1)))
            .with_project(
                ProjectConfig::new("alpha")
                    .with_key(first.clone())
                    .with_state(ProjectState::Suspended),
            )
            .with_project(ProjectConfig::new("beta").with_key(second.clone()));
        let sim = SimServer::start(config, Arc::<ManualClock>::clone(&clock)).await.unwrap();
        let gemini = Gemini::builder()
            .keys([KeySpec::new(first.clone(), "a"), KeySpec::new(second.clone(), "b")])
            .state_file(&state)
            .clock(clock)
            .base_url(sim.base_url())
            .build()
            .await
            .unwrap();
        let reply = gemini.generate(MODEL, "hi").await.unwrap();
        assert_eq!(reply.attempts().len(), 2, "the first one is suspended");
        let spent = gemini.generate(MODEL, "hi").await.unwrap_err();
        gemini.flush().await.unwrap();
        printed(&reply.attempts())
            + &all_of(&spent)
            + &printed(&gemini.status())
            + &printed(&gemini)
    });
    let mut files = String::new();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        files += &String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap());
    }
    assert!(files.contains("leaked_or_suspended_key"), "the refusal was saved");
    assert!(files.contains("[REDACTED]"), "with Google's words, but for the key");
    let log = log.text();
    assert!(log.contains("attempt"), "our own events are in the log");
    assert!(log.contains("hyper") || log.contains("reqwest"), "and those of the HTTP client");
    for key in [&first, &second] {
        assert_clean("what is handed out", &all, key);
        assert_clean("the state's folder", &files, key);
        assert_clean("the log", &log, key);
    }
}

/// <https://github.com/constellation-works/orbit/pull/490>: the HTTP client's error printed the URL with the key.
#[test]
fn an_error_of_the_http_client_holds_neither_key_nor_prompt() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let [_, _, key] = keys();
    let error = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let none = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let gemini = Gemini::builder()
            .keys([KeySpec::new(key.clone(), "a")])
            .state(StateLocation::None)
            .base_url(url)
            .retry(none)
            .build()
            .await
            .unwrap();
        gemini.generate(MODEL, "a very private prompt").await.unwrap_err()
    });
    let all = all_of(&error);
    assert_clean("the error", &all, &key);
    assert!(!all.contains("private"), "the prompt is in the error");
}

/// Measured: `x-goog-api-key` survives a redirect to another host, if the HTTP client follows it.
#[test]
fn the_key_does_not_follow_a_redirect_to_another_host() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for status in [301, 302, 303, 307, 308] {
            let here = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let there = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let to = there.local_addr().unwrap();
            let head = format!(
                "HTTP/1.1 {status} Moved\r\nLocation: http://localhost:{}/v1beta/\r\n\
                 Content-Length: 0\r\nConnection: close\r\n\r\n",
                to.port()
            );
            let gemini = Gemini::builder()
                .keys([KeySpec::new(keys()[0].clone(), "a")])
                .state(StateLocation::None)
                .base_url(format!("http://{}", here.local_addr().unwrap()))
                .build()
                .await
                .unwrap();
            let answer = async {
                let (mut socket, _) = here.accept().await.unwrap();
                let mut request = vec![0; 8_192];
                let read = socket.read(&mut request).await.unwrap();
                socket.write_all(head.as_bytes()).await.unwrap();
                socket.shutdown().await.unwrap();
                String::from_utf8_lossy(&request[..read]).contains("x-goog-api-key")
            };
            let call = gemini.generate(MODEL, "hi").into_future();
            let (has_key, error) = futures_util::future::join(answer, call).await;
            assert!(has_key, "the first host is sent the key, in its header");
            let Error::Rejected { rejected, .. } = error.unwrap_err() else {
                panic!("{status} is handed back")
            };
            assert_eq!(rejected.status, status);
            assert!(there.accept().now_or_never().is_none(), "{status} was followed");
        }
    });
}

#[test]
fn the_key_is_sent_in_one_header_and_nowhere_else() {
    let clock = ManualClock::at(at(NOON));
    let script = Script::new().with_clock(Arc::new(clock.clone()));
    script.otherwise(|_| Scripted::text("Hello"));
    let [key, ..] = keys();
    let pool = Pool::builder()
        .keys([KeySpec::new(key.clone(), "a")])
        .clock(Arc::new(clock.clone()))
        .state(StateLocation::None)
        .build()
        .unwrap();
    let gemini = common::over(pool, script.clone(), |client| client);
    common::run(&clock, gemini.generate(MODEL, "hi")).unwrap();
    script.otherwise(|_| Scripted::stream(["Hello"]));
    common::run(&clock, gemini.stream(MODEL, "hi")).unwrap();
    for request in script.requests() {
        // The recorder takes the credential out, by its header's name.
        assert_eq!(request.key, Some(key.fingerprint()));
        let rest = format!("{} {:?} {:?}", request.url, request.headers, request.body);
        assert_clean("the rest of the request", &rest, &key);
    }
}

#[test]
fn errors_print_what_they_are() {
    // The other side: scrubbing must not eat what people need.
    let rig = Rig::new(1);
    rig.script.otherwise(|_| invalid_key());
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(MODEL) && text.contains(&label(1)), "{text}");
    assert!(text.contains("invalid_key"), "{text}");
    let _is_display: &dyn Display = &error;
}
