use std::collections::BTreeSet;

use proptest::{prelude::*, sample::select};
use serde_json::{Map, Value, json};

use super::*;
use crate::api::{Blob, Content, FunctionResponse, Json, Part};

/// A part that a chat completion has a place for.
fn part(role: &'static str) -> BoxedStrategy<Part> {
    let text = "\\PC{0,8}".prop_map(Part::from_text);
    let thought = "[a-z]{0,4}"
        .prop_map(|text| Part::from_json(json!({"text": text, "thought": true}).into()));
    if role == "model" {
        let call = (select(NAMES.as_slice()), proptest::option::of("[a-z]{1,6}"), any::<i64>())
            .prop_map(|(name, id, n)| {
                Part::from_json(
                    json!({"functionCall": {"id": id, "name": name, "args": {"n": n}}}).into(),
                )
            });
        return prop_oneof![text, thought, call].boxed();
    }
    let media = (select(KINDS.as_slice()), "[A-Za-z0-9+/]{0,12}").prop_map(|(mime_type, data)| {
        Part::from_blob(&Blob { mime_type: mime_type.to_owned(), data })
    });
    let result = (select(NAMES.as_slice()), "[a-z]{1,6}").prop_map(|(name, id)| {
        let response = Json::from(json!({"ok": true}));
        let name = name.to_owned();
        Part::from_function_response(&FunctionResponse { id: Some(id), name, response })
    });
    prop_oneof![text, thought, media, result].boxed()
}

const KINDS: [&str; 5] = ["image/png", "image/webp", "audio/wav", "audio/mp3", "application/pdf"];
const NAMES: [&str; 3] = ["find", "now", "go"];

fn content() -> impl Strategy<Value = Content> {
    select(["user", "model"].as_slice()).prop_flat_map(|role| {
        proptest::collection::vec(part(role), 0..5).prop_map(move |parts| match role {
            "user" => Content::user(parts),
            _ => Content::model(parts),
        })
    })
}

fn texts(request: &GenerateRequest) -> String {
    request.contents.iter().map(Content::text).collect()
}

fn said(messages: &[Value]) -> String {
    let mut out = String::new();
    for message in messages.iter().filter(|message| message["role"] != "tool") {
        match &message["content"] {
            Value::String(text) => out.push_str(text),
            Value::Array(pieces) => {
                out.extend(pieces.iter().filter_map(|piece| piece.get("text")?.as_str()));
            }
            _ => {}
        }
    }
    out
}

proptest! {
    #[test]
    fn whatever_can_be_said_becomes_a_chat_that_says_it(
        contents in proptest::collection::vec(content(), 0..6),
        limit in proptest::option::of(1_u32..9999),
        stream in any::<bool>(),
    ) {
        let mut request = GenerateRequest::new(contents);
        request.config().max_output_tokens = limit;
        let api = OpenAiApi::new();
        let call = if stream { api.stream("m", &request) } else { api.generate("m", &request) }.unwrap();
        let body: Map<String, Value> = serde_json::from_slice(call.body.bytes().unwrap()).unwrap();
        prop_assert_eq!(body.get("stream").is_some(), stream);
        prop_assert_eq!(body.get("max_tokens").cloned(), limit.map(Value::from));

        let messages = body["messages"].as_array().unwrap();
        prop_assert_eq!(said(messages), texts(&request), "every text, in its order");
        let mut called = BTreeSet::new();
        let (mut calls, mut results) = (0, 0);
        for message in messages {
            match message["role"].as_str().unwrap() {
                "user" => prop_assert!(!message["content"].is_null()),
                "assistant" => {
                    let made = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
                    prop_assert!(!message["content"].is_null() || !made.is_empty());
                    for call in made {
                        calls += 1;
                        called.insert(call["id"].as_str().unwrap());
                        let arguments = call["function"]["arguments"].as_str().unwrap();
                        let arguments: Value = serde_json::from_str(arguments).unwrap();
                        prop_assert!(arguments["n"].is_i64());
                    }
                }
                "tool" => {
                    results += 1;
                    prop_assert!(message["tool_call_id"].is_string());
                }
                other => prop_assert!(false, "{}", other),
            }
        }
        let parts = || request.contents.iter().flat_map(|content| &content.parts);
        prop_assert_eq!(calls, parts().filter(|part| part.function_call().is_some()).count());
        prop_assert_eq!(results, parts().filter(|part| part.function_response().is_some()).count());
        prop_assert!(!called.contains(""));
    }

    #[test]
    fn no_bytes_make_the_readers_panic(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let api = OpenAiApi::new();
        let _ = api.read_answer(&body);
        let _ = api.read_embeddings(&body);
        let _ = api.read_models(&body);
        let _ = api.event_reader().read(&body);
    }
}
