//! Other providers' replies from the corpus, on the way that a client's calls take.
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod support;

use std::sync::Arc;

use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderName};
use keywheel_core::{ApiKey, Dimension};
use keywheel_provider::{
    Asked, Dialect, OpenAiApi, Reply, Verdict, WireResponse,
    classify::{classify, limits_from_headers},
    stream::{GenerateStream, StreamError},
    testing::{Script, Scripted},
    upstream::Upstream,
};
use support::{Case, corpus, now};

const MODEL: &str = "openai/gpt-oss-120b";

fn others() -> Vec<Case> {
    let google = |case: &Case| {
        ["google", "gemini", "vertex", "unknown", ""].contains(&case.text("provider"))
    };
    corpus().into_iter().filter(|case| case.id.starts_with('o') && !google(case)).collect()
}

fn headers(case: &Case) -> HeaderMap {
    let pairs = case.json["headers"].as_object().into_iter().flatten();
    let pair = |(name, value): (&String, &serde_json::Value)| {
        (name.parse::<HeaderName>().unwrap(), value.as_str().unwrap().parse().unwrap())
    };
    pairs.map(pair).collect()
}

fn upstream(script: &Script) -> Upstream {
    Upstream::new("https://api.groq.com/openai/v1", Arc::new(script.clone()))
        .unwrap()
        .with_provider(Arc::new(OpenAiApi::new()))
}

/// Asks for an answer and gets the case's reply.
async fn ask(case: &Case) -> (Upstream, WireResponse) {
    let script = Script::new();
    let status = u16::try_from(case.status()).unwrap();
    let mut reply = Scripted::status(status).piece(case.text("body").to_owned());
    for (name, value) in headers(case) {
        reply = reply.header(name.unwrap(), value);
    }
    script.reply(reply);
    let upstream = upstream(&script);
    let call = upstream.provider().stream(MODEL, &"Say hello".into()).unwrap();
    let response = upstream.call(&ApiKey::new("EXAMPLE-groq-key").unwrap(), &call).await.unwrap();
    let sent = &script.requests()[0];
    assert_eq!(sent.url, "https://api.groq.com/openai/v1/chat/completions");
    assert_eq!(sent.json()["model"], MODEL);
    (upstream, response)
}

fn judge(
    case: &Case,
    upstream: &Upstream,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
) -> Verdict {
    let model = case.expected()["model"].as_str();
    let tokens = case.json.get("asked").and_then(|asked| asked["tokens"].as_u64());
    let asked = Asked { model, tokens, tools: false };
    let at = case.text("now").parse().unwrap_or_else(|_| now());
    classify(upstream.dialect(), &Reply { status, headers, body }, &asked, at)
}

#[tokio::test]
async fn every_refusal_of_another_provider_is_understood() {
    let cases = others();
    assert!(cases.len() >= 19, "{} cases", cases.len());
    for case in cases.iter().filter(|case| case.status() != 200) {
        let (upstream, response) = ask(case).await;
        let (status, headers) = (response.status, response.headers.clone());
        let body = response.bytes(1 << 20).await.unwrap();
        let verdict = judge(case, &upstream, status, &headers, &body);
        assert_eq!(verdict.kind.as_str(), case.kind(), "{}", case.id);
        // None of them is taken for an answer, either.
        let read = upstream.provider().read_answer(&body);
        assert!(read.is_err() || read.unwrap().candidates.is_empty(), "{}", case.id);
    }
}

#[tokio::test]
async fn the_same_refusals_within_a_stream_break_it_off() {
    let begin = r#"{"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#;
    let (mut streamed, mut skipped) = (0, Vec::new());
    for case in others() {
        let body = case.text("body");
        let Ok(event) = serde_json::from_str::<serde_json::Value>(body) else { continue };
        let says_so = event["object"] == "error" || event.get("error").is_some();
        if !says_so {
            // Nothing tells it from a chunk.
            skipped.push(case.id.clone());
            continue;
        }
        let script = Script::new();
        script.reply(Scripted::events([begin.to_owned(), event.to_string()]));
        let upstream = upstream(&script);
        let call = upstream.provider().stream(MODEL, &"Say hello".into()).unwrap();
        let key = ApiKey::new("EXAMPLE-groq-key").unwrap();
        let response = upstream.call(&key, &call).await.unwrap();
        let mut events = GenerateStream::with(upstream.provider(), response);
        assert_eq!(events.next().await.unwrap().unwrap().text(), "Hel");
        let Some(Err(StreamError::Refused(raw))) = events.next().await else {
            panic!("{} is no refusal", case.id)
        };
        let verdict = judge(&case, &upstream, 200, &HeaderMap::new(), raw.bytes());
        assert!(verdict.cause().is_some(), "{} was taken for a success", case.id);
        streamed += 1;
    }
    assert!(streamed >= 14, "{streamed} cases, not {skipped:?}");
}

#[tokio::test]
async fn an_error_event_of_a_stream_with_status_200_is_judged_with_its_headers() {
    let case =
        corpus().into_iter().find(|case| case.id == "o23-azure-200-stream-rate-limit").unwrap();
    let (upstream, response) = ask(&case).await;
    let headers = response.headers.clone();
    let mut events = GenerateStream::with(upstream.provider(), response);
    let Some(Err(StreamError::Refused(raw))) = events.next().await else { panic!("no refusal") };
    let verdict = judge(&case, &upstream, 200, &headers, raw.bytes());
    assert_eq!(verdict.kind.as_str(), case.kind());
}

#[tokio::test]
async fn the_headers_of_a_success_teach_limits() {
    let case = corpus().into_iter().find(|case| case.id == "o04-groq-headers-ok-200").unwrap();
    let (upstream, response) = ask(&case).await;
    let limits = limits_from_headers(upstream.dialect(), &response.headers, now());
    let learned: Vec<_> = limits.iter().map(|limit| (limit.dimension, limit.value)).collect();
    assert_eq!(learned, [(Dimension::Rpd, 1000), (Dimension::Tpm, 8000)]);
    let none = Upstream::google(Arc::new(Script::new())).dialect();
    assert_eq!(limits_from_headers(none, &response.headers, now()), []);
}

#[test]
fn a_limit_of_zero_in_the_headers_of_a_success_teaches_nothing() {
    let mut headers = HeaderMap::new();
    headers.insert("x-ratelimit-limit-tokens", "0".parse().unwrap());
    headers.insert("x-ratelimit-limit-req-minute", "60".parse().unwrap());
    let learned = limits_from_headers(Dialect::OpenAi, &headers, now());
    let learned: Vec<_> = learned.iter().map(|limit| (limit.dimension, limit.value)).collect();
    assert_eq!(learned, [(Dimension::Rpm, 60)]);
}
