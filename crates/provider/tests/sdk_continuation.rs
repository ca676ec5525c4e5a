//! Answers in several hops, put together as google-genai puts them together.
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

use keywheel_provider::api::{FinishReason, GenerateRequest, GenerateResponse, Part};
use serde_json::{Value, from_value, json};

fn hop(text: &str, finish: Option<&str>, token: Option<&str>) -> GenerateResponse {
    let mut candidate = json!({"content": {"role": "model", "parts": [{"text": text}]}});
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    if let Some(token) = token {
        candidate["continuationToken"] = token.into();
    }
    from_value(json!({ "candidates": [candidate] })).unwrap()
}

fn token(request: &GenerateRequest) -> Option<&str> {
    request.continuation_token.as_deref()
}

#[test]
fn three_hops_make_the_answer_that_google_genai_makes_of_them() {
    let text = include_str!("fixtures/sdk/shapes/continuation.json");
    let fixture: Value = serde_json::from_str(text).unwrap();
    let mut hops =
        fixture["hops"].as_array().unwrap().iter().map(|hop| from_value(hop.clone()).unwrap());
    let mut whole: GenerateResponse = hops.next().unwrap();
    hops.for_each(|hop| whole.append(hop));

    assert_eq!(whole.text(), "part 0 part 1 part 2 ");
    assert_eq!(whole.usage().unwrap().input, 300, "every hop pays for the whole prompt");
    let written = serde_json::to_value(&whole).unwrap();
    assert_eq!(normal(&written), normal(&fixture["merged"]));
}

/// Numbers by their value: the one writes 0, the other 0.0.
fn normal(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), normal(value))).collect()
        }
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::Number(number) => json!(number.as_f64()),
        other => other.clone(),
    }
}

#[test]
fn the_next_hop_is_the_same_request_with_the_token() {
    let request = GenerateRequest::from("long").with_system("s").with_max_output_tokens(9);
    let next = request.continued(&hop("a", Some("CONTINUATION"), Some("t1"))).unwrap();
    assert_eq!(next, GenerateRequest { continuation_token: Some("t1".into()), ..request.clone() });
    let third = next.continued(&hop("b", Some("CONTINUATION"), Some("t2"))).unwrap();
    assert_eq!(token(&third), Some("t2"));
}

#[test]
fn a_stream_that_was_cut_goes_on_from_its_last_token() {
    let request = GenerateRequest::from("long");
    assert_eq!(token(&request.continued(&hop("a", None, Some("t1"))).unwrap()), Some("t1"));
}

#[test]
fn an_answer_that_is_whole_or_refused_is_not_gone_on_with() {
    let request = GenerateRequest::from("long");
    for finish in ["STOP", "MAX_TOKENS", "SAFETY", "SOMETHING_NEW"] {
        assert_eq!(request.continued(&hop("a", Some(finish), Some("t1"))), None, "{finish}");
    }
    for no_token in [None, Some("")] {
        assert_eq!(request.continued(&hop("a", Some("CONTINUATION"), no_token)), None);
    }
    let mut blocked = hop("a", Some("CONTINUATION"), Some("t1"));
    blocked.append(from_value(json!({"promptFeedback": {"blockReason": "SAFETY"}})).unwrap());
    assert_eq!(request.continued(&blocked), None);
    assert_eq!(request.continued(&GenerateResponse::default()), None);
}

/// Every hop is charged for the whole prompt: one that gets nowhere must not be repeated for ever.
#[test]
fn a_hop_that_gives_back_the_token_it_was_asked_with_is_the_last() {
    let answer = hop("a", Some("CONTINUATION"), Some("t1"));
    let next = GenerateRequest::from("long").continued(&answer).unwrap();
    assert_eq!(next.continued(&answer), None);
}

#[test]
fn how_it_ended_is_what_the_last_hop_says_even_if_that_is_nothing() {
    let mut whole = hop("a", Some("CONTINUATION"), Some("t1"));
    whole.append(hop("b", Some("MAX_TOKENS"), None));
    assert_eq!(whole.finish_reason(), Some(FinishReason::MaxTokens));
    assert_eq!(whole.continuation_token(), None);

    let mut whole = hop("a", Some("CONTINUATION"), Some("t1"));
    whole.append(GenerateResponse::default());
    assert_eq!((whole.finish_reason(), whole.text().as_ref()), (None, "a"));
    assert_eq!(whole.candidates[0].continuation_token, None, "the old token is used up");
}

#[test]
fn parts_of_all_hops_keep_their_bytes_and_their_signatures() {
    let exact = r#"{"z":1.0,"thoughtSignature":"AAH-\u002b","text":"a"}"#;
    let read = |text: &str| serde_json::from_str::<GenerateResponse>(text).unwrap();
    let answer = format!(r#"{{"candidates":[{{"content":{{"parts":[{exact}]}}}}]}}"#);
    let mut whole = read(&answer);
    whole.append(read(&answer));
    let parts: Vec<_> = whole.content().unwrap().parts.iter().map(Part::json).collect();
    assert_eq!(parts.iter().map(|json| json.get()).collect::<Vec<_>>(), [exact, exact]);
}

#[test]
fn nothing_adds_up_to_what_there_is_and_counts_never_overflow() {
    let whole = hop("a", Some("STOP"), None);
    let mut empty = GenerateResponse::default();
    empty.append(whole.clone());
    assert_eq!(empty, whole);

    let usage = |total: Value| -> GenerateResponse {
        from_value(json!({"usageMetadata": {"totalTokenCount": total}})).unwrap()
    };
    let mut sum = usage(json!(u64::MAX));
    sum.append(usage(json!(1)));
    assert_eq!(
        sum.usage_metadata.as_ref().unwrap().get(),
        format!(r#"{{"totalTokenCount":{}}}"#, u64::MAX)
    );
    sum.append(usage(json!("12")));
    sum.append(from_value(json!({"usageMetadata": null})).unwrap());
    assert_eq!(sum.usage().unwrap().total, 12, "what is no number cannot be added to");
}

#[test]
fn two_hops_with_kinds_without_number_are_put_together_without_comparing_all() {
    let details: Vec<_> =
        (0..200).map(|n| json!({"modality": format!("M{n}"), "tokenCount": 1})).collect();
    let hop = json!({"usageMetadata": {"promptTokensDetails": details}});
    let mut sum: GenerateResponse = from_value(hop.clone()).unwrap();
    sum.append(from_value(hop).unwrap());
    let usage: Value = sum.usage_metadata.unwrap().parse().unwrap();
    let details = usage["promptTokensDetails"].as_array().unwrap();
    assert_eq!((&details[99]["tokenCount"], details.len()), (&json!(2), 300));
}
