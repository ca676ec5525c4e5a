use proptest::prelude::*;
use serde_json::{Map, json};

use super::{reported::MOST, *};

fn usage(input: u64, cached: u64, output: u64, thinking: u64, tool: u64, total: u64) -> Usage {
    Usage { input, cached, output, thinking, tool, total }
}

#[test]
fn a_usage_made_by_hand_is_charged_whether_or_not_its_total_is_given() {
    assert_eq!(usage(90, 0, 10, 0, 0, 0).charged(), 100);
    assert_eq!(usage(90, 50, 10, 300, 7, 0).charged(), 407, "cached tokens are within the input");
    assert_eq!(usage(0, 0, 0, 0, 0, 120).charged(), 120);
    assert_eq!(usage(90, 0, 10, 0, 0, 130).charged(), 130, "what the total alone knows");
    assert_eq!(usage(u64::MAX, 0, 1, 1, 1, 5).charged(), u64::MAX);
    assert_eq!(Usage::new(90, 10), usage(90, 0, 10, 0, 0, 100));
    assert_eq!(Usage::default().charged(), 0);
}

// https://github.com/librefang/librefang/issues/3479: thoughts were not counted.
#[test]
fn gemini_reports_thoughts_cache_and_tools_in_either_case() {
    let camel = json!({"candidates": [], "usageMetadata": {
        "promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 20, "thoughtsTokenCount": 300,
        "toolUsePromptTokenCount": 7, "totalTokenCount": 427, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}]}});
    let snake = json!({"usage_metadata": {
        "prompt_token_count": 100, "cached_content_token_count": 60, "candidates_token_count": 20,
        "thoughts_token_count": 300, "tool_use_prompt_token_count": 7, "total_token_count": 427}});
    let expected = Some(usage(100, 60, 20, 300, 7, 427));
    assert_eq!(Usage::from_json(&camel), expected);
    assert_eq!(Usage::from_json(&snake), expected);
    assert_eq!(Usage::from_json(&camel["usageMetadata"]), expected, "the block itself");
    assert_eq!(Usage::from_json(&json!({"response": camel})), expected, "wrapped");
}

#[test]
fn interactions_openai_and_their_relatives_are_read() {
    for (name, reply, expected) in [
        (
            "interaction",
            json!({"usage": {"total_input_tokens": 10, "total_output_tokens": 5, "total_thought_tokens": 30,
                "total_cached_tokens": 4, "total_tool_use_tokens": 2, "total_tokens": 47, "initial_input_tokens": 10}}),
            usage(10, 4, 5, 30, 2, 47),
        ),
        (
            "the last event of an interaction",
            json!({"event_type": "interaction.complete", "interaction": {"usage": {"total_input_tokens": 3, "total_output_tokens": 4}}}),
            usage(3, 0, 4, 0, 0, 7),
        ),
        (
            "chat completion",
            json!({"usage": {"prompt_tokens": 50, "completion_tokens": 40, "total_tokens": 90,
                "prompt_tokens_details": {"cached_tokens": 20}, "completion_tokens_details": {"reasoning_tokens": 30}}}),
            usage(50, 20, 10, 30, 0, 90),
        ),
        (
            "Gemini's compatibility layer does not itemise thinking",
            json!({"usage": {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 360}}),
            usage(50, 0, 10, 300, 0, 360),
        ),
        (
            "itemised, and not within the completion",
            json!({"usage": {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 360,
                "completion_tokens_details": {"reasoning_tokens": 300}}}),
            usage(50, 0, 10, 300, 0, 360),
        ),
        (
            "response",
            json!({"type": "response.completed", "response": {"usage": {"input_tokens": 5, "output_tokens": 9, "total_tokens": 14,
                "input_tokens_details": {"cached_tokens": 1}, "output_tokens_details": {"reasoning_tokens": 4}}}}),
            usage(5, 1, 5, 4, 0, 14),
        ),
        (
            "Anthropic",
            json!({"type": "message", "usage": {"input_tokens": 5, "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20, "output_tokens": 9}}),
            usage(125, 100, 9, 0, 0, 134),
        ),
        (
            "Groq's stream",
            json!({"choices": [], "x_groq": {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}}),
            usage(1, 0, 2, 0, 0, 3),
        ),
        (
            "embedding",
            json!({"embedding": {"values": [0.1]}, "usageMetadata": {"promptTokenCount": 6}}),
            usage(6, 0, 0, 0, 0, 6),
        ),
        (
            "OpenAI embedding",
            json!({"usage": {"prompt_tokens": 8, "total_tokens": 8}}),
            usage(8, 0, 0, 0, 0, 8),
        ),
    ] {
        assert_eq!(Usage::from_json(&reply), Some(expected), "{name}");
    }
}

#[test]
fn zero_is_not_missing() {
    for present in [
        json!({"usageMetadata": {}}),
        json!({"usageMetadata": {"promptTokenCount": 0, "totalTokenCount": 0}}),
        json!({"usageMetadata": {"trafficType": "ON_DEMAND"}}),
        json!({"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}),
    ] {
        assert_eq!(Usage::from_json(&present), Some(Usage::default()), "{present}");
    }
    for missing in [
        json!({"candidates": [{"content": {"parts": [{"text": "usageMetadata"}]}}]}),
        json!({"usageMetadata": null}),
        json!({"usage": null, "choices": []}),
        json!({}),
        json!([]),
        json!(null),
        json!("usage"),
        json!({"embedding": {"values": []}}),
    ] {
        assert_eq!(Usage::from_json(&missing), None, "{missing}");
    }
}

#[test]
fn a_missing_total_is_summed_up_and_a_larger_one_is_believed() {
    let block = |total: Option<u64>| {
        let mut block = json!({"promptTokenCount": 10, "candidatesTokenCount": 2, "thoughtsTokenCount": 3, "toolUsePromptTokenCount": 4, "cachedContentTokenCount": 9});
        if let Some(total) = total {
            block["totalTokenCount"] = total.into();
        }
        Usage::from_json(&json!({"usageMetadata": block})).map(|usage| usage.total)
    };
    assert_eq!(block(None), Some(19), "cached tokens are part of the input");
    assert_eq!(block(Some(0)), Some(19));
    assert_eq!(block(Some(18)), Some(19));
    assert_eq!(block(Some(25)), Some(25));
}

#[test]
fn odd_numbers_are_bounded() {
    for (number, expected) in [
        (json!("17"), 17),
        (json!(" 17 "), 17),
        (json!(17.0), 17),
        (json!(16.2), 17),
        (json!(-5), 0),
        (json!("-5"), 0),
        (json!(-1e300), 0),
        (json!(1e300), MOST),
        (json!(u64::MAX), MOST),
        (json!("99999999999999999999999999"), MOST),
        (json!("inf"), MOST),
        (json!("NaN"), 0),
        (json!("many"), 0),
        (json!(null), 0),
        (json!([1]), 0),
        (json!(true), 0),
    ] {
        let found = Usage::from_json(&json!({"usageMetadata": {"promptTokenCount": number}}));
        assert_eq!(found, Some(usage(expected, 0, 0, 0, 0, expected)), "{number}");
    }
    let huge = json!({"usageMetadata": {"promptTokenCount": u64::MAX, "candidatesTokenCount": u64::MAX, "thoughtsTokenCount": u64::MAX}});
    assert_eq!(Usage::from_json(&huge).map(|usage| usage.total), Some(MOST));
}

// https://github.com/BerriAI/litellm/issues/14457, /17364, /33736, /36008: streamed usage was
// missing or doubled.
#[test]
fn the_last_usage_of_a_stream_wins_and_is_never_added_up() {
    let events = [
        json!({"candidates": [{}], "usageMetadata": {"promptTokenCount": 0}}),
        json!({"candidates": [{}], "usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 2, "totalTokenCount": 10}}),
        json!({"candidates": [{}]}),
        json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 5, "totalTokenCount": 13}}),
        json!({"candidates": [{}], "usageMetadata": {}}),
        json!({"responseId": "x"}),
    ];
    let mut seen = None;
    for event in &events {
        Usage::take_last(&mut seen, Usage::from_json(event));
    }
    assert_eq!(seen, Some(usage(8, 0, 5, 0, 0, 13)));
    assert_eq!(Usage::from_json(&Value::Array(events.into())), seen, "a stream as one array");

    let mut zero = None;
    Usage::take_last(&mut zero, Some(Usage::default()));
    assert_eq!(zero, Some(Usage::default()), "zero is not missing");
}

fn any_number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[0-9.eE+-]{0,8}".prop_map(Value::from),
        Just(Value::Null),
    ]
}

proptest! {
    #[test]
    fn any_figures_give_bounded_ones(numbers in proptest::collection::vec(any_number(), 6), form in 0..3usize) {
        let names = [
            ["promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount", "totalTokenCount"],
            ["total_input_tokens", "total_cached_tokens", "total_output_tokens", "total_thought_tokens", "total_tool_use_tokens", "total_tokens"],
            ["prompt_tokens", "cache_read_input_tokens", "completion_tokens", "cache_creation_input_tokens", "x", "total_tokens"],
        ][form];
        let block: Map<String, Value> = names.iter().map(|name| (*name).into()).zip(numbers).collect();
        let text = serde_json::to_string(&block).unwrap();
        let usage = Usage::from_json(&json!({"usage": block}));
        prop_assert!(usage.is_some());
        let Reported(read) = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, usage, "straight from the text");
        let Usage { input, cached, output, thinking, tool, total } = usage.unwrap_or_default();
        prop_assert!([input, cached, output, thinking, tool, total].iter().all(|n| *n <= MOST));
    }
}
