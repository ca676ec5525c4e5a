use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::HeaderMap;
use keywheel_core::Usage;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    OpenAiApi, Provider as _, WireResponse,
    api::{FinishReason, GenerateResponse},
    stream::{First, GenerateStream, StreamError},
};

fn over(pieces: Vec<Bytes>) -> GenerateStream {
    let body = stream::iter(pieces.into_iter().map(Ok)).boxed();
    let response = WireResponse { status: 200, headers: HeaderMap::new(), body };
    GenerateStream::with(&OpenAiApi::new(), response)
}

/// All events, and how it ended.
fn read(text: &str) -> (Vec<GenerateResponse>, Result<(), StreamError>) {
    collect(over(vec![Bytes::copy_from_slice(text.as_bytes())]))
}

fn collect(mut events: GenerateStream) -> (Vec<GenerateResponse>, Result<(), StreamError>) {
    let mut out = Vec::new();
    while let Some(event) = events.next().now_or_never().expect("all of it is there") {
        match event {
            Ok(event) => out.push(event),
            Err(error) => return (out, Err(error)),
        }
    }
    (out, Ok(()))
}

fn chunk(delta: &Value, finish_reason: &Value) -> String {
    let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [
        {"index": 0, "delta": delta, "finish_reason": finish_reason}]});
    format!("data: {chunk}\n\n")
}

fn says(text: &str) -> String {
    chunk(&json!({ "content": text }), &Value::Null)
}

fn ends(reason: &str) -> String {
    chunk(&json!({}), &reason.into())
}

const ROLE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\
    \"finish_reason\":null}],\"usage\":null}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":2,\
    \"total_tokens\":10}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn text(events: &[GenerateResponse]) -> String {
    events.iter().map(|event| event.text()).collect()
}

fn usage(text: &str) -> Option<Usage> {
    let mut events = over(vec![Bytes::copy_from_slice(text.as_bytes())]);
    while events.next().now_or_never().flatten().is_some() {}
    events.usage()
}

#[test]
fn a_stream_is_its_texts_its_reason_and_its_usage() {
    let whole = [ROLE, &says("Hel"), &says("lo"), &ends("stop"), USAGE, DONE].concat();
    let (events, end) = read(&whole);
    assert!(end.is_ok());
    assert_eq!(events.len(), 4, "the chunk with a role alone says nothing");
    assert_eq!(text(&events), "Hello");
    assert_eq!(events[2].finish_reason(), Some(FinishReason::Stop));
    assert_eq!(usage(&whole).unwrap().total, 10);
}

#[test]
fn comments_and_other_line_ends_do_no_harm() {
    let whole =
        [": OPENROUTER PROCESSING\n\n", &says("a"), ": ping\n\n", &ends("stop"), DONE].concat();
    for text in [whole.clone(), whole.replace('\n', "\r\n"), whole.replace("data: ", "data:")] {
        assert!(read(&text).1.is_ok(), "{text:?}");
    }
}

// https://github.com/open-webui/open-webui/issues/29064: running totals were added up.
#[test]
fn the_last_of_several_usages_holds() {
    let with = |total: u32| {
        let usage = json!({"prompt_tokens": 8, "completion_tokens": 1, "total_tokens": total});
        let choice = json!({"index": 0, "delta": {"content": "a"}, "finish_reason": null});
        format!("data: {}\n\n", json!({"choices": [choice], "usage": usage}))
    };
    let google = [with(9), with(20), with(33), ends("stop"), DONE.to_owned()].concat();
    let seen = usage(&google).unwrap();
    assert_eq!((seen.total, seen.thinking), (33, 24));
    let groq = "data: {\"choices\":[],\"x_groq\":{\"usage\":{\"prompt_tokens\":3,\"total_tokens\":5}}}\n\n";
    assert_eq!(usage(&[&says("a"), &ends("stop"), groq].concat()).unwrap().total, 5);
}

fn call(index: Option<u32>, id: Option<&str>, name: Option<&str>, arguments: &str) -> String {
    let delta = json!({"tool_calls": [
        {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]});
    chunk(&delta, &Value::Null)
}

fn calls(chunks: &[String]) -> Vec<(Option<String>, String, String)> {
    let whole = [chunks.concat(), ends("tool_calls"), DONE.to_owned()].concat();
    let (events, end) = read(&whole);
    assert!(end.is_ok());
    assert_eq!(events.len(), 1, "calls come with the reason for the end, whole");
    assert_eq!(events[0].finish_reason(), Some(FinishReason::Stop));
    let args =
        |args: Option<crate::api::Json>| args.map_or(String::new(), |args| args.get().into());
    events[0]
        .function_calls()
        .into_iter()
        .map(|call| (call.id, call.name, args(call.args)))
        .collect()
}

fn expected(calls: &[(&str, &str, &str)]) -> Vec<(Option<String>, String, String)> {
    let own = |(id, name, args): &(&str, &str, &str)| {
        (
            Some(*id).filter(|id| !id.is_empty()).map(str::to_owned),
            (*name).to_owned(),
            (*args).to_owned(),
        )
    };
    calls.iter().map(own).collect()
}

#[test]
fn calls_are_put_together_by_their_index() {
    let made = calls(&[
        call(Some(0), Some("1"), Some("a"), ""),
        call(Some(0), None, None, "{\"x\":"),
        call(Some(1), Some("2"), Some("b"), "{}"),
        call(Some(0), None, None, " 1.0}"),
    ]);
    assert_eq!(made, expected(&[("1", "a", "{\"x\": 1.0}"), ("2", "b", "{}")]));
}

// https://github.com/InternLM/lmdeploy/issues/3412 shows what two servers send, and
// https://github.com/su-kaka/gcli2api/pull/406 what becomes of it: one call with the arguments of three.
#[test]
fn calls_are_told_apart_where_indexes_do_not_tell() {
    let two = expected(&[("1", "a", "{}"), ("2", "a", "{\"x\":1}")]);
    // Each whole, all numbered 0.
    let zeros = [
        call(Some(0), Some("1"), Some("a"), "{}"),
        call(Some(0), Some("2"), Some("a"), "{\"x\":1}"),
    ];
    assert_eq!(calls(&zeros), two);
    let without =
        [call(None, Some("1"), Some("a"), "{}"), call(None, Some("2"), Some("a"), "{\"x\":1}")];
    assert_eq!(calls(&without), two);
    // No ids at all.
    let bare = [call(None, None, Some("a"), "{}"), call(None, None, Some("b"), "{}")];
    assert_eq!(calls(&bare), expected(&[("", "a", "{}"), ("", "b", "{}")]));
    let numbered = [call(Some(0), None, Some("a"), "{}"), call(Some(0), None, Some("b"), "{}")];
    assert_eq!(calls(&numbered), calls(&bare));
}

// https://github.com/BerriAI/litellm/pull/28223
#[test]
fn ids_and_names_that_are_repeated_make_no_new_calls() {
    let one = expected(&[("1", "a", "{\"x\":1}")]);
    let repeated =
        [call(Some(0), Some("1"), Some("a"), "{\"x\""), call(Some(0), Some("1"), Some("a"), ":1}")];
    assert_eq!(calls(&repeated), one);
    // Some give each piece an id of its own.
    let fresh =
        [call(Some(0), Some("1"), Some("a"), "{\"x\""), call(Some(0), Some("9"), None, ":1}")];
    assert_eq!(calls(&fresh), one);
}

#[test]
fn a_call_that_is_cut_by_the_limit_is_said_to_be_cut() {
    let cut = [call(Some(0), Some("1"), Some("a"), "{\"x\":"), ends("length")].concat();
    let (events, end) = read(&cut);
    assert!(end.is_ok());
    assert_eq!(events[0].finish_reason(), Some(FinishReason::MaxTokens));
    assert_eq!(
        events[0].candidates[0].finish_message.as_deref(),
        Some("Malformed function call: a({\"x\":)")
    );
    assert!(events[0].function_calls().is_empty());
}

#[test]
fn a_refusal_is_put_together() {
    let refuses = |text: &str| chunk(&json!({ "refusal": text }), &Value::Null);
    let (events, _) = read(&[refuses("I can"), refuses("not."), ends("stop")].concat());
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].finish_reason(), Some(FinishReason::Safety));
    assert_eq!(events[0].candidates[0].finish_message.as_deref(), Some("I cannot."));
}

#[test]
fn a_stream_without_a_reason_for_its_end_is_truncated() {
    let no_reason = [says("a"), says("b")].concat();
    for text in ["", DONE, &no_reason, &[&no_reason, DONE].concat(), &says("a")[..60]] {
        assert!(matches!(read(text).1, Err(StreamError::Truncated)), "{text:?}");
    }
}

#[test]
fn what_follows_done_is_not_read() {
    let whole = [&says("a"), &ends("stop"), DONE, "data: <html>\n\n"].concat();
    assert!(read(&whole).1.is_ok());
    let held_open =
        stream::iter([Ok(Bytes::from([says("a"), ends("stop"), DONE.to_owned()].concat()))])
            .chain(stream::pending())
            .boxed();
    let response = WireResponse { status: 200, headers: HeaderMap::new(), body: held_open };
    assert!(collect(GenerateStream::with(&OpenAiApi::new(), response)).1.is_ok());
}

#[test]
fn errors_in_the_middle_are_refusals() {
    for error in [
        r#"data: {"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}"#,
        r#"data: [{"error":{"code":429,"message":"Resource exhausted","status":"RESOURCE_EXHAUSTED"}}]"#,
        r#"data: {"id":"x","choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502,"message":"Provider disconnected"}}"#,
        r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"error","error":{"code":502}}]}"#,
        "event: error\ndata: {\"message\":\"overloaded\"}",
        r#"{"error":{"message":"bare"}}"#,
    ] {
        let (events, end) = read(&format!("{}{error}\n\n{}", says("a"), ends("stop")));
        assert!(matches!(end, Err(StreamError::Refused(_))), "{error}: {end:?}");
        assert_eq!(text(&events), "a");
    }
}

#[test]
fn an_error_after_the_role_alone_can_still_go_to_another_key() {
    let refused = r#"data: {"error":{"message":"Rate limit reached"}}"#;
    let mut events = over(vec![format!("{ROLE}{refused}\n\n").into()]);
    let first = events.first_event(std::future::pending()).now_or_never().unwrap();
    assert!(matches!(first, First::Failed(StreamError::Refused(_))), "{first:?}");
}

#[test]
fn what_is_no_chunk_is_malformed() {
    for bad in ["data: <html>\n\n", "data: 1\n\n", "data: {\"choices\":{}}\n\n"] {
        let (_, end) = read(&[bad, &ends("stop")].concat());
        assert!(matches!(end, Err(StreamError::Malformed(_))), "{bad}: {end:?}");
    }
}

#[test]
fn every_choice_needs_its_reason() {
    let of = |index: u32, reason: &Value| {
        let choice = json!({"index": index, "delta": {"content": "a"}, "finish_reason": reason});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let half = [of(0, &Value::Null), of(1, &Value::Null), of(0, &"stop".into())].concat();
    assert!(matches!(read(&half).1, Err(StreamError::Truncated)));
    assert!(read(&[half, of(1, &"stop".into())].concat()).1.is_ok());
}

#[test]
fn a_whole_completion_in_place_of_a_stream_is_an_answer() {
    let completion = json!({"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]});
    let (events, end) = read(&completion.to_string());
    assert!(end.is_ok());
    assert_eq!(text(&events), "Hello");
}

#[test]
fn memory_is_bounded() {
    let long = "x".repeat(1 << 20);
    let piece = |call: &Value| chunk(&json!({ "tool_calls": [call] }), &Value::Null);
    let many: Vec<_> = (0..5_000).map(|n| json!({"index": n * 200_000})).collect();
    let (arguments, name, many) = (
        piece(&json!({"index": 0, "function": {"arguments": long}})),
        piece(&json!({"index": 0, "function": {"name": long}})),
        chunk(&json!({ "tool_calls": many }), &Value::Null),
    );
    let another = move |n: u32| piece(&json!({"index": n * 1_000_000, "id": n.to_string()}));
    let field = move |n: u32| piece(&json!({"index": 0, n.to_string(): long}));
    let endless: [Box<dyn Fn(u32) -> String + Send>; 5] = [
        Box::new(move |_| arguments.clone()),
        Box::new(move |_| name.clone()),
        Box::new(move |_| many.clone()),
        Box::new(another),
        Box::new(field),
    ];
    for (at, chunk_of) in endless.into_iter().enumerate() {
        let body = stream::iter((0..1_000).map(move |n| Ok(chunk_of(n).into()))).boxed();
        let response = WireResponse { status: 200, headers: HeaderMap::new(), body };
        let (_, end) = collect(GenerateStream::with(&OpenAiApi::new(), response));
        assert!(matches!(end, Err(StreamError::Malformed(_))), "{at}: {end:?}");
    }
}

#[test]
fn a_call_that_comes_after_the_end_is_not_lost() {
    let late = call(Some(0), Some("1"), Some("a"), "{}");
    let (events, end) = read(&[&says("Hi"), &ends("stop"), &late, DONE].concat());
    assert!(end.is_ok());
    let made: Vec<_> = events.iter().flat_map(GenerateResponse::function_calls).collect();
    assert_eq!(made.len(), 1, "{events:?}");
    let late = call(Some(0), Some("1"), Some("a"), "{\"cut");
    let (events, _) = read(&[&ends("stop"), &late, DONE].concat());
    let last = &events.last().unwrap().candidates[0];
    assert_eq!(last.finish_reason, Some(FinishReason::MalformedFunctionCall));
}

#[test]
fn half_a_character_costs_no_text_around_it() {
    let halves = [r"Hello \ud83d", r"\ude00 there"].map(|text| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    });
    let (events, end) = read(&(halves.concat() + &ends("stop")));
    assert!(end.is_ok());
    assert_eq!(text(&events), "Hello \u{FFFD}\u{FFFD} there");
}

#[test]
fn what_waits_is_not_printed() {
    let mut reader = OpenAiApi::new().event_reader();
    let secret = "AIzaSyEXAMPLE0000000000000000000000000001";
    let piece = call(Some(0), Some("1"), Some("a"), secret);
    let data = piece.trim().strip_prefix("data: ").unwrap();
    assert_eq!(reader.read(data.as_bytes()).unwrap(), None, "it waits");
    assert!(!format!("{reader:?}").contains(secret), "the conversation was printed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_events(
        texts in proptest::collection::vec("\\PC{0,6}", 0..4),
        arguments in "[a-z\"{}:\\\\ ]{0,12}",
        end in prop_oneof![Just(ends("stop")), Just(ends("length")), Just(String::new()),
            Just("data: {\"error\":{\"code\":429}}\n\n".to_owned())],
        usage in any::<bool>(),
    ) {
        let mut whole = ROLE.to_owned();
        for text in &texts {
            whole.push_str(&says(text));
        }
        let (half, rest) = arguments.split_at(arguments.len() / 2);
        whole.push_str(&call(Some(0), Some("1"), Some("a"), half));
        whole.push_str(&call(Some(0), None, None, rest));
        whole.push_str(&end);
        if usage {
            whole.push_str(USAGE);
        }
        whole.push_str(DONE);
        let (events, outcome) = read(&whole);
        prop_assert_eq!(text(&events), texts.concat());
        for cut in 0..=whole.len() {
            let (head, tail) = whole.as_bytes().split_at(cut);
            let (cut_events, cut_outcome) = collect(over(vec![head.to_vec().into(), tail.to_vec().into()]));
            prop_assert_eq!(&cut_events, &events, "cut at {}", cut);
            prop_assert_eq!(format!("{cut_outcome:?}"), format!("{outcome:?}"));
        }
    }
}
