use keywheel_core::{ApiKey, Cause, ManualClock, Wait};

use super::*;
use crate::{
    Asked, Dialect, GeminiApi, Kind, OpenAiApi, Provider, Reply,
    api::GenerateResponse,
    classify,
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

/// The reply to `call` with the next scripted reply, as the provider reads it.
async fn asked(
    script: &Script,
    provider: Arc<dyn Provider>,
    call: &Call,
) -> (u16, HeaderMap, Bytes) {
    let upstream = upstream(script).with_provider(provider);
    let reply = upstream.call(&key(), call).await.unwrap();
    let (status, headers) = (reply.status, reply.headers.clone());
    (status, headers, reply.bytes(1 << 20).await.unwrap())
}

#[tokio::test]
async fn scripted_refusals_mean_what_they_are_called() {
    let now = "2026-11-30T07:00:00Z".parse().unwrap();
    let half_a_minute = Duration::from_secs(30);
    for (reply, provider, cause, limits) in [
        (
            Scripted::day_spent(20),
            Arc::new(GeminiApi) as Arc<dyn Provider>,
            Cause::PerDayRequests,
            1,
        ),
        (Scripted::minute_full(5, half_a_minute), Arc::new(GeminiApi), Cause::PerMinuteRequests, 1),
        (Scripted::overloaded(), Arc::new(GeminiApi), Cause::Overloaded, 0),
        (Scripted::invalid_key(), Arc::new(GeminiApi), Cause::InvalidKey, 0),
        (
            Scripted::openai_rate_limited(half_a_minute),
            Arc::new(OpenAiApi::new()),
            Cause::PerMinuteRequests,
            1,
        ),
    ] {
        let script = Script::new();
        script.reply(reply);
        let dialect = provider.dialect();
        let (status, headers, body) = asked(&script, provider, &Call::get("models")).await;
        let reply = Reply { status, headers: &headers, body: &body };
        let verdict = classify(dialect, &reply, &Asked::default(), now);
        assert_eq!(verdict.kind, Kind::Refused(cause));
        assert_eq!(verdict.limits.len(), limits, "{cause}");
        if cause == Cause::PerMinuteRequests {
            let Wait::Stated(wait) = verdict.effects[0].wait else { panic!("no wait is stated") };
            assert!(wait >= half_a_minute && wait < half_a_minute * 2, "{wait:?}");
        }
    }
}

#[tokio::test]
async fn scripted_answers_of_every_provider_are_read_by_it() {
    let providers: [(Arc<dyn Provider>, Scripted, Scripted, Scripted); 2] = [
        (
            Arc::new(GeminiApi),
            Scripted::text("Hello there"),
            Scripted::stream(["Hello", " there"]),
            Scripted::embeddings([[0.5_f32, 1.0], [0.25, 2.0]]),
        ),
        (
            Arc::new(OpenAiApi::new()),
            Scripted::openai_text("Hello there"),
            Scripted::openai_stream(["Hello", " there"]),
            Scripted::openai_embeddings([[0.5_f32, 1.0], [0.25, 2.0]]),
        ),
    ];
    for (provider, text, stream, embeddings) in providers {
        let script = Script::new();
        for reply in [text, embeddings, stream] {
            script.reply(reply);
        }
        let call = provider.generate("m", &"Say hello".into()).unwrap();
        let (_, _, body) = asked(&script, Arc::clone(&provider), &call).await;
        let answer = provider.read_answer(&body).unwrap();
        assert_eq!((&*answer.text(), answer.usage().unwrap().total), ("Hello there", 10));

        let call = provider.embed("m", &["a".into(), "b".into()]).unwrap();
        let (_, _, body) = asked(&script, Arc::clone(&provider), &call).await;
        let vectors = provider.read_embeddings(&body).unwrap().embeddings;
        assert_eq!((vectors.len(), vectors[1].values.as_slice()), (2, &[0.25, 2.0][..]));

        let upstream = upstream(&script).with_provider(Arc::clone(&provider));
        let call = provider.stream("m", &"Say hello".into()).unwrap();
        let mut events =
            GenerateStream::with(&*provider, upstream.call(&key(), &call).await.unwrap());
        let mut said = String::new();
        while let Some(event) = events.next().await {
            said.push_str(&event.unwrap().text());
        }
        assert_eq!((said.as_str(), events.usage().is_some()), ("Hello there", true));
        assert!(script.requests().iter().all(|request| request.model().as_deref() == Some("m")));
    }
}

#[tokio::test]
async fn other_scripted_answers_are_answers() {
    let script = Script::new();
    script.reply(Scripted::function_call("weather", &serde_json::json!({"city": "Oslo"})));
    script.reply(Scripted::token_count(12));
    let gemini: Arc<dyn Provider> = Arc::new(GeminiApi);
    let (_, _, body) = asked(&script, Arc::clone(&gemini), &Call::models()).await;
    let calls = gemini.read_answer(&body).unwrap().function_calls();
    assert_eq!(calls[0].args.as_ref().unwrap().get(), r#"{"city":"Oslo"}"#);
    let (_, _, body) = asked(&script, Arc::clone(&gemini), &Call::models()).await;
    assert_eq!(gemini.read_count(&body).unwrap().total_tokens, 12);
    assert_eq!(script.requests()[0].model(), None, "a list asks no model");
}
