use std::{
    future::{pending, ready},
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::HeaderMap;
use keywheel_core::{Clock as _, ManualClock};

use super::*;
use crate::{Sent, TransportKind};

const HELLO: &str = "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Hello\"}],\"role\": \
    \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 8,\"totalTokenCount\": 9}}\r\n\r\n";
const END: &str = "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \".\"}]},\"finishReason\": \
    \"STOP\",\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 8,\"candidatesTokenCount\": 2,\
    \"totalTokenCount\": 10}}\r\n\r\n";
const OVERLOADED: &str = "data: {\"error\":{\"code\":503,\"message\":\"The model is overloaded. Please try \
    again later.\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n";

type Item = Result<Bytes, TransportError>;

fn of(pieces: impl Stream<Item = Item> + Send + 'static) -> GenerateStream {
    let headers = HeaderMap::new();
    GenerateStream::new(WireResponse { status: 200, headers, body: pieces.boxed() })
}

fn whole(text: impl Into<String>) -> GenerateStream {
    of(stream::iter([Ok(Bytes::from(text.into()))]))
}

fn interrupted() -> TransportError {
    TransportError::new(TransportKind::Interrupted, Sent::Maybe, "cut")
}

/// All texts, and how it ended.
async fn read(mut stream: GenerateStream) -> (String, Result<GenerateStream, StreamError>) {
    let mut text = String::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => text.push_str(&event.text()),
            Err(error) => {
                assert!(stream.next().await.is_none(), "an error is the last item");
                return (text, Err(error));
            }
        }
    }
    (text, Ok(stream))
}

fn name(error: &StreamError) -> &'static str {
    match error {
        StreamError::Refused(_) => "refused",
        StreamError::Malformed(_) => "malformed",
        StreamError::Truncated => "truncated",
        StreamError::TooLarge(_) => "too large",
        StreamError::Transport(_) => "transport",
    }
}

async fn outcome(text: impl Into<String>) -> &'static str {
    let (_, end) = read(whole(text)).await;
    end.as_ref().map_or_else(name, |_| "whole")
}

#[tokio::test]
async fn a_whole_stream_ends_with_the_last_usage() {
    let (text, end) = read(whole([HELLO, END].concat())).await;
    let stream = end.unwrap();
    assert_eq!(text, "Hello.");
    assert!(stream.is_whole());
    assert_eq!(stream.usage().unwrap().total, 10, "running totals are not added up");
}

#[tokio::test]
async fn usage_is_the_last_that_is_not_null() {
    let tail =
        "data: {\"candidates\": [], \"usageMetadata\": null}\n\ndata: {\"candidates\": []}\n\n";
    let (_, end) = read(whole([HELLO, END, tail].concat())).await;
    assert_eq!(end.unwrap().usage().unwrap().total, 10);
}

#[tokio::test]
async fn a_stream_split_at_every_byte_gives_the_same_answer() {
    for (text, expected) in [
        ([HELLO, END].concat(), "whole"),
        ([HELLO, OVERLOADED].concat(), "refused"),
        (HELLO.into(), "truncated"),
    ] {
        for cut in 0..=text.len() {
            let (head, tail) = text.split_at(cut);
            let pieces = [head, tail].map(|piece| Ok(Bytes::from(piece.to_owned())));
            let (said, end) = read(of(stream::iter(pieces))).await;
            assert!(said.starts_with("Hello"), "cut at {cut}");
            assert_eq!(end.as_ref().map_or_else(name, |_| "whole"), expected, "cut at {cut}");
        }
    }
}

#[tokio::test]
async fn a_stream_that_ends_anywhere_early_is_truncated() {
    let text = [HELLO, END].concat();
    // The line ends after the last event are no part of it.
    for length in 0..text.trim_end().len() {
        assert_eq!(outcome(&text[..length]).await, "truncated", "after {length} bytes");
    }
    assert_eq!(outcome(text.trim_end()).await, "whole");
}

// https://github.com/diegosouzapw/OmniRoute/issues/4177 and https://github.com/ankit373/hydra/issues/874
#[tokio::test]
async fn an_error_event_first_is_an_error() {
    let (text, end) = read(whole([OVERLOADED, END].concat())).await;
    assert_eq!(text, "");
    let StreamError::Refused(raw) = end.unwrap_err() else { panic!("not refused") };
    assert!(
        raw.bytes().starts_with(b"{\"error\":{\"code\":503"),
        "the body goes to the classifier"
    );
}

#[tokio::test]
async fn an_error_event_in_the_middle_is_an_error_after_what_came_before() {
    let (text, end) = read(whole([HELLO, OVERLOADED, END].concat())).await;
    assert_eq!((text.as_str(), name(&end.unwrap_err())), ("Hello", "refused"));
}

#[tokio::test]
async fn errors_come_in_many_dresses() {
    let pretty = "{\n  \"error\": {\n    \"code\": 500,\n    \"status\": \"INTERNAL\"\n  }\n}\n";
    for error in [
        pretty.to_owned(),
        format!("[{pretty}]"),
        format!("[{pretty}"),
        pretty[..40].to_owned(),
        "data: [{\"error\":{\"code\":500}}]\n\n".to_owned(),
        "data: {\"error\":{\"code\":50".to_owned(),
        "data: {\"error\":\"quota\"}\n\n".to_owned(),
        "event: error\ndata: {\"message\":\"rate limit\"}\n\n".to_owned(),
        "data: {\"event_type\":\"error\",\"code\":\"quota_exceeded\"}\n\n".to_owned(),
    ] {
        assert_eq!(outcome([HELLO, &error].concat()).await, "refused", "{error}");
    }
}

#[tokio::test]
async fn words_about_errors_are_no_errors() {
    let talk = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\\\"error\\\"\"},\
        {\"functionCall\":{\"name\":\"f\",\"args\":{\"error\":1}}}]}}]}\n\n";
    assert_eq!(outcome([talk, END].concat()).await, "whole");
    assert_eq!(outcome(&talk[..talk.len() - 12]).await, "truncated");
    assert_eq!(outcome(["data: {\"error\":null}\n\n", END].concat()).await, "whole");
}

#[tokio::test]
async fn what_is_no_event_is_malformed_or_truncated() {
    assert_eq!(outcome(["data: <html>\n\n", END].concat()).await, "malformed");
    assert_eq!(outcome(["data: {\"candidates\":[}\n\n", END].concat()).await, "malformed");
    assert_eq!(outcome("<html><body>Bad gateway</body></html>").await, "truncated");
    assert_eq!(outcome("").await, "truncated");
    assert_eq!(outcome(": ping\n\ndata: [DONE]\n\n").await, "truncated");
}

#[tokio::test]
async fn a_blocked_prompt_is_a_whole_answer() {
    assert_eq!(
        outcome("data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\r\n\r\n").await,
        "whole"
    );
}

// In 2024 every event had a reason: https://github.com/songquanpeng/one-api/issues/1477
#[tokio::test]
async fn only_the_end_of_the_body_ends_a_stream() {
    let (text, end) = read(whole([END, END, HELLO].concat())).await;
    assert_eq!(text, "..Hello");
    assert!(end.is_ok());
}

#[tokio::test]
async fn every_candidate_needs_its_reason() {
    let of = |index: u32, reason: &str| {
        format!("data: {{\"candidates\":[{{\"index\":{index}{reason}}}]}}\n\n")
    };
    let stop = ",\"finishReason\":\"STOP\"";
    assert_eq!(outcome([of(0, ""), of(1, ""), of(0, stop)].concat()).await, "truncated");
    assert_eq!(outcome([of(0, ""), of(1, ""), of(0, stop), of(1, stop)].concat()).await, "whole");
}

#[tokio::test]
async fn candidates_without_number_end_the_stream() {
    let of = |index: u32| format!("data: {{\"candidates\":[{{\"index\":{index}}}]}}\n\n");
    let many: String = (0..200).map(|n| of(n * 20_000_000)).collect();
    assert_eq!(outcome(many).await, "malformed");
}

#[tokio::test]
async fn an_array_without_sse_is_read_as_well() {
    let array = "[{\n  \"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Hel\"}]}}]\n}\n,\r\n{\n  \
        \"candidates\": [{\"content\": {\"parts\": [{\"text\": \"lo\"}]}, \"finishReason\": \"STOP\"}]\n}\n]\n";
    let (text, end) = read(whole(array)).await;
    assert_eq!(text, "Hello");
    assert!(end.is_ok());
}

#[tokio::test]
async fn a_broken_connection_is_an_error_even_after_the_last_event() {
    for before in [HELLO.to_owned(), [HELLO, END].concat()] {
        let (text, end) = read(of(stream::iter([Ok(before.into()), Err(interrupted())]))).await;
        assert!(text.starts_with("Hello"));
        assert_eq!(name(&end.unwrap_err()), "transport");
    }
}

#[tokio::test]
async fn the_first_event_is_looked_at_and_kept() {
    let mut stream = whole([HELLO, END].concat());
    assert!(matches!(stream.first_event(pending()).await, First::Arrived));
    assert!(matches!(stream.first_event(pending()).await, First::Arrived), "twice is no harm");
    assert_eq!(read(stream).await.0, "Hello.");
}

#[tokio::test]
async fn a_stream_that_begins_with_an_error_fails_before_it_is_handed_out() {
    for (stream, expected) in [
        (whole(OVERLOADED), "refused"),
        (whole(""), "truncated"),
        (of(stream::iter([Err(interrupted())])), "transport"),
    ] {
        let mut stream = stream;
        let First::Failed(error) = stream.first_event(pending()).await else {
            panic!("no failure")
        };
        assert_eq!(name(&error), expected);
        assert!(stream.next().await.is_none());
    }
}

#[tokio::test]
async fn the_look_at_the_first_event_ends_after_its_time() {
    let clock = ManualClock::at("2026-11-30T07:00:00Z".parse().unwrap());
    let (half, rest) = HELLO.split_at(20);
    let pause = clock.manual_sleep(clock.unix_ms() + 5_000).unwrap();
    let late = stream::once(async move {
        pause.await;
        Ok(Bytes::from([rest, END].concat()))
    });
    let mut stream = of(stream::iter([Ok(half.into())]).chain(late));

    let patience = clock.manual_sleep(clock.unix_ms() + 2_000).unwrap();
    let mut first = Box::pin(stream.first_event(patience));
    assert!((&mut first).now_or_never().is_none());
    clock.advance(Duration::from_secs(2));
    assert!(matches!(first.await, First::Undecided));

    clock.advance(Duration::from_secs(3));
    assert_eq!(read(stream).await.0, "Hello.", "nothing was lost");
}

#[tokio::test]
async fn the_look_at_the_first_event_ends_after_64_kilobytes() {
    let comment = Bytes::from(format!(": {}\n", "x".repeat(1021)));
    let endless = stream::repeat_with(move || Ok(comment.clone()));
    let mut stream = of(endless);
    assert!(matches!(stream.first_event(pending()).await, First::Undecided));
    assert_eq!(stream.received, FIRST_EVENT_BYTES);
}

#[tokio::test]
async fn dropping_the_look_loses_nothing() {
    let (half, rest) = HELLO.split_at(20);
    let pieces = stream::iter([Ok(Bytes::from(half))]).chain(stream::once(async move {
        tokio::task::yield_now().await;
        Ok(Bytes::from([rest, END].concat()))
    }));
    let mut stream = of(pieces);
    {
        let mut look = Box::pin(stream.first_event(pending()));
        assert!((&mut look).now_or_never().is_none());
    }
    assert!(matches!(stream.first_event(ready(())).await, First::Arrived | First::Undecided));
    assert_eq!(read(stream).await.0, "Hello.");
}

#[tokio::test]
async fn an_error_ends_the_upstream_request() {
    let (guard, dropped) = tokio::sync::oneshot::channel::<()>();
    let pieces = stream::iter([Ok(Bytes::from(OVERLOADED))]).chain(stream::once(async move {
        let _guard = guard;
        pending::<Item>().await
    }));
    let mut stream = of(pieces);
    assert!(stream.next().await.unwrap().is_err());
    assert!(dropped.await.is_err(), "the body was dropped with the stream still alive");
    assert!(stream.next().await.is_none());
}

// The suspended reply repeats the key; https://github.com/nyroway/nyro/issues/68 shows where that ends.
#[tokio::test]
async fn no_text_of_an_error_holds_what_the_provider_said() {
    let secret = "AIzaSyEXAMPLE0000000000000000000000000001";
    for text in [
        format!(
            "data: {{\"error\":{{\"message\":\"Consumer 'api_key:{secret}' has been suspended.\"}}}}\n\n"
        ),
        format!("data: <b>{secret}</b>\n\n"),
        format!("data: {{\"x\":\"{secret}\""),
    ] {
        let mut stream = whole(text);
        let error = stream.next().await.unwrap().unwrap_err();
        let printed = format!("{error} {error:?} {stream:?}");
        assert!(!printed.contains(secret), "a key in the text of {}", name(&error));
    }
}
