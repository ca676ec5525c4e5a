use keywheel_core::{ApiKey, ManualClock};

use super::*;
use crate::{
    Dialect,
    api::GenerateResponse,
    stream::GenerateStream,
    upstream::{Call, Upstream},
};

fn key() -> ApiKey {
    ApiKey::new("AIzaSyEXAMPLE0000000000000000000000000001").unwrap()
}

fn upstream(script: &Script) -> Upstream {
    Upstream::google(Arc::new(script.clone()))
}

#[tokio::test]
async fn replies_come_in_their_order_then_from_the_function_then_not_at_all() {
    let script = Script::new();
    script.reply(Scripted::json(429, "{}"));
    script.reply(Scripted::failure(TransportKind::Connect, Sent::No));
    let upstream = upstream(&script);
    let send = || upstream.call(&key(), &Call::models());

    assert_eq!(send().await.unwrap().status, 429);
    assert_eq!(send().await.unwrap_err().kind, TransportKind::Connect);
    assert_eq!(send().await.unwrap_err().kind, TransportKind::Request, "the script is at its end");
    script.otherwise(|request| {
        Scripted::status(if request.url.contains("models") { 204 } else { 500 })
    });
    assert_eq!(send().await.unwrap().status, 204);
    assert_eq!(script.requests().len(), 4);
}

#[tokio::test]
async fn requests_are_recorded_without_their_key() {
    let script = Script::new();
    let call = Call::generate("gemini-x", &"hi".into()).unwrap();
    let _ = upstream(&script).call(&key(), &call).await;
    let _ = upstream(&script).with_dialect(Dialect::OpenAi).call(&key(), &call).await;
    for recorded in script.requests() {
        assert_eq!(recorded.key, Some(key().fingerprint()));
        assert_eq!(recorded.json()["contents"][0]["parts"][0]["text"], "hi");
        let printed = format!("{recorded:?} {:?} {:?} {}", recorded.headers, script, recorded.url);
        assert!(!printed.contains(key().expose()), "the key was recorded");
        assert!(recorded.headers.values().all(|value| !value.as_bytes().ends_with(b"0001")));
    }
}

#[tokio::test]
async fn pauses_pass_on_the_manual_clock() {
    let clock = ManualClock::at("2026-11-30T07:00:00Z".parse().unwrap());
    let script = Script::new().with_clock(Arc::new(clock.clone()));
    let hour = Duration::from_secs(3600);
    script.reply(Scripted::status(200).after(hour).piece("a").pause(hour).piece("b"));

    let mut call = upstream(&script).call(&key(), &Call::models());
    assert!((&mut call).now_or_never().is_none());
    clock.advance(hour);
    let mut body = call.await.unwrap().body;
    assert_eq!(body.next().await.unwrap().unwrap(), "a");
    assert!(body.next().now_or_never().is_none());
    clock.advance(hour);
    assert_eq!(body.next().await.unwrap().unwrap(), "b");
    assert!(body.next().await.is_none());
}

#[tokio::test]
async fn a_request_is_under_way_until_its_body_has_ended_or_was_dropped() {
    let script = Script::new();
    script.reply(Scripted::status(200).piece("a"));
    script.reply(Scripted::status(200).piece("a").hang());
    script.reply(Scripted::status(200).piece("a").fail(TransportKind::Interrupted).piece("never"));
    let upstream = upstream(&script);
    let send = || upstream.call(&key(), &Call::models());

    let first = send();
    assert_eq!(script.open(), 1, "sent at once");
    drop(first);
    assert_eq!(script.open(), 0);

    let mut hanging = send().await.unwrap().body;
    assert_eq!(hanging.next().await.unwrap().unwrap(), "a");
    assert!(hanging.next().now_or_never().is_none());
    assert_eq!(script.open(), 1);
    drop(hanging);
    assert_eq!(script.open(), 0);

    let mut broken = send().await.unwrap().body;
    assert_eq!(broken.next().await.unwrap().unwrap(), "a");
    assert_eq!(broken.next().await.unwrap().unwrap_err().kind, TransportKind::Interrupted);
    assert!(broken.next().await.is_none());
}

#[tokio::test]
async fn scripted_answers_are_answers() {
    let script = Script::new();
    script.reply(Scripted::text("Hello there"));
    script.reply(Scripted::stream(["Hel", "lo"]));
    let upstream = upstream(&script);
    let send = || upstream.call(&key(), &Call::models());

    let body = send().await.unwrap().bytes(1 << 20).await.unwrap();
    let answer: GenerateResponse = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer.text(), "Hello there");
    assert_eq!(answer.usage().unwrap().output, 2);

    let stream = GenerateStream::new(send().await.unwrap());
    let texts: Vec<_> = stream.map(|event| event.unwrap().text().into_owned()).collect().await;
    assert_eq!(texts, ["Hel", "lo"]);
}
