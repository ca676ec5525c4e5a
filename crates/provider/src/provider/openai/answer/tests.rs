use serde_json::json;

use super::*;
use crate::{OpenAiApi, Provider as _, api::GenerateRequest};

fn read(reply: &Value) -> GenerateResponse {
    read_answer(reply.to_string().as_bytes()).unwrap()
}

/// The answer whose only choice has this message and this reason.
fn of(message: &Value, finish_reason: &str) -> GenerateResponse {
    read(&json!({"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}))
}

#[test]
fn a_completion_is_an_answer_with_nothing_lost() {
    let response = read(&json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_760_000_000, "model": "gpt-5-nano-2025-08-07",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": null,
                "annotations": [{"type": "url_citation"}]},
            "logprobs": {"content": []}, "finish_reason": "stop",
        }],
        "usage": {"prompt_tokens": 19, "completion_tokens": 30, "total_tokens": 49, "cost": 0.5,
            "prompt_tokens_details": {"cached_tokens": 16},
            "completion_tokens_details": {"reasoning_tokens": 20}},
        "service_tier": "default", "system_fingerprint": null,
    }));
    assert_eq!(
        serde_json::to_value(&response).unwrap(),
        json!({
            "candidates": [{
                "content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP", "index": 0,
                "logprobs": {"content": []}, "annotations": [{"type": "url_citation"}],
            }],
            "usageMetadata": {"promptTokenCount": 19, "cachedContentTokenCount": 16,
                "candidatesTokenCount": 10, "thoughtsTokenCount": 20, "totalTokenCount": 49},
            "modelVersion": "gpt-5-nano-2025-08-07", "responseId": "chatcmpl-1",
            "object": "chat.completion", "created": 1_760_000_000, "service_tier": "default",
            "system_fingerprint": null,
            "usage": {"prompt_tokens": 19, "completion_tokens": 30, "total_tokens": 49, "cost": 0.5,
                "prompt_tokens_details": {"cached_tokens": 16},
                "completion_tokens_details": {"reasoning_tokens": 20}},
        })
    );
}

#[test]
fn the_usage_is_that_of_the_reply_itself() {
    for reply in [
        json!({"usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}),
        // Google's compatibility layer: thinking is in the total alone.
        json!({"usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 40}}),
        json!({"usage": {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14,
            "completion_tokens_details": {"reasoning_tokens": 4}}}),
        json!({"x_groq": {"id": "r", "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}}),
        json!({"usage": {}}),
        json!({"usage": null}),
        json!({"x_groq": {"id": "r"}}),
        json!({}),
    ] {
        assert_eq!(read(&reply).usage(), Usage::from_json(&reply), "{reply}");
    }
    let google =
        read(&json!({"usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 40}}));
    assert_eq!(google.usage().unwrap().thinking, 33);
}

#[test]
fn reasons_for_the_end_are_translated_or_kept() {
    for (reason, expected) in [
        ("stop", FinishReason::Stop),
        ("length", FinishReason::MaxTokens),
        ("tool_calls", FinishReason::Stop),
        ("function_call", FinishReason::Stop),
        ("content_filter", FinishReason::Safety),
        (
            "insufficient_system_resource",
            FinishReason::Other("insufficient_system_resource".into()),
        ),
    ] {
        assert_eq!(of(&json!({"content": "x"}), reason).finish_reason(), Some(expected));
    }
    assert_eq!(of(&json!({"content": "x"}), "").finish_reason(), None);
}

#[test]
fn calls_keep_ids_and_the_spelling_of_their_arguments() {
    let response = of(
        &json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{\"b\": 1.0, \"a\": 1e2}"}},
            {"id": "", "type": "function", "function": {"name": "now", "arguments": ""}},
            {"id": "call_3", "type": "function", "function": {"name": "go", "arguments": {"to": "x"}},
                "extra_content": {"google": {"thought_signature": "s"}}},
        ]}),
        "tool_calls",
    );
    let parts: Vec<_> = response.content().unwrap().parts.iter().map(|p| p.json().get()).collect();
    assert_eq!(
        parts,
        [
            r#"{"functionCall":{"id":"call_1","name":"find","args":{"b": 1.0, "a": 1e2}}}"#,
            r#"{"functionCall":{"name":"now"}}"#,
            r#"{"functionCall":{"id":"call_3","name":"go","args":{"to":"x"}},"extra_content":{"google":{"thought_signature":"s"}}}"#,
        ]
    );
    assert_eq!(response.finish_reason(), Some(FinishReason::Stop));
}

#[test]
fn an_answer_with_calls_goes_back_as_it_came() {
    let message = json!({"role": "assistant", "content": "Hm", "reasoning_details": [{"id": "r"}], "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "a", "arguments": "{\"x\": 1}"},
            "extra_content": {"google": {}}},
    ]});
    let content = of(&message, "tool_calls").content().unwrap().clone();
    let call = OpenAiApi::new().generate("m", &GenerateRequest::new([content])).unwrap();
    let sent: Value = serde_json::from_slice(call.body.bytes().unwrap()).unwrap();
    assert_eq!(sent["messages"], json!([message]));
}

#[test]
fn calls_in_the_old_form_are_calls() {
    let message =
        json!({"content": null, "function_call": {"name": "a", "arguments": "{\"x\":1}"}});
    let calls = of(&message, "function_call").function_calls();
    assert_eq!((calls[0].name.as_str(), calls[0].args.as_ref().unwrap().get()), ("a", "{\"x\":1}"));
}

#[test]
fn arguments_that_cannot_be_read_are_kept_in_words() {
    for arguments in ["{\"x\": ", "[1]", "x", "\"x\""] {
        let message = json!({"content": null, "tool_calls": [
            {"id": "1", "function": {"name": "a", "arguments": arguments}},
            {"id": "2", "function": {"name": "b", "arguments": "{}"}},
        ]});
        let response = of(&message, "tool_calls");
        assert_eq!(response.finish_reason(), Some(FinishReason::MalformedFunctionCall));
        let said = response.candidates[0].finish_message.as_deref();
        assert_eq!(
            said,
            Some(&*format!(
                "Malformed function call: a({arguments})",
                arguments = arguments.trim()
            ))
        );
        assert_eq!(response.function_calls().len(), 1, "the other call is good");
        // Cut at the limit: that is the reason.
        assert_eq!(of(&message, "length").finish_reason(), Some(FinishReason::MaxTokens));
    }
}

#[test]
fn a_refusal_is_no_text() {
    let response = of(&json!({"content": null, "refusal": "I cannot."}), "stop");
    assert_eq!((&*response.text(), response.finish_reason()), ("", Some(FinishReason::Safety)));
    assert_eq!(response.candidates[0].finish_message.as_deref(), Some("I cannot."));
}

#[test]
fn reasoning_is_a_thought_whatever_it_is_called() {
    for message in [
        json!({"reasoning_content": "Hm", "content": "Yes"}),
        json!({"reasoning": "Hm", "content": "Yes"}),
        json!({"content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "H"}, {"type": "text", "text": "m"}]},
            {"type": "text", "text": "Yes"},
        ]}),
    ] {
        let response = of(&message, "stop");
        assert_eq!((&*response.thoughts(), &*response.text()), ("Hm", "Yes"), "{message}");
    }
}

#[test]
fn several_choices_are_several_candidates() {
    let choice = |n: u32| json!({"index": n, "message": {"content": n.to_string()}, "finish_reason": "stop"});
    let response = read(&json!({"choices": [choice(0), choice(1)]}));
    let texts: Vec<_> =
        response.candidates.iter().map(|c| (c.index, c.content.as_ref().unwrap().text())).collect();
    assert_eq!(texts, [(Some(0), "0".to_owned()), (Some(1), "1".to_owned())]);
}

#[test]
fn an_empty_message_is_a_candidate_without_content() {
    let response = of(&json!({"content": null}), "length");
    assert_eq!(response.candidates[0].content, None);
    assert_eq!(response.finish_reason(), Some(FinishReason::MaxTokens));
}

#[test]
fn an_error_with_status_200_is_no_answer() {
    let object = read(&json!({"error": {"message": "Rate limit", "code": 429}}));
    assert!(object.candidates.is_empty() && object.extra.contains_key("error"));
    // OpenRouter says it in the choice.
    let choice = read(&json!({"choices": [{"message": {"content": ""}, "finish_reason": "error",
        "error": {"code": 502, "message": "Provider returned error"}}]}));
    assert_eq!(choice.extra["error"]["code"], 502);
    let mistral =
        read(&json!({"object": "error", "message": "Rate limit exceeded", "type": "rate_limited"}));
    assert_eq!(mistral.extra["error"], "Rate limit exceeded");
    // Google's compatibility layer sends a list.
    assert!(read_answer(br#"[{"error":{"code":400}}]"#).unwrap_err().is_data());
    assert!(read_answer(b"<html>").unwrap_err().is_syntax());
    assert!(read_answer(br#"{"choices":[{"mess"#).unwrap_err().is_eof());
}
