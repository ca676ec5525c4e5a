//! Functions and answers of a given form.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use common::{MODEL, at, json, key, post, status};
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, Signatures, SimConfig, SimReply, World};
use serde_json::{Value, json};

const NOW: &str = "2026-11-30T07:00:00Z";

fn world(signatures: Signatures) -> World {
    let model = ModelConfig::free(Limits::new()).with_signatures(signatures);
    let config = SimConfig::new()
        .with_model(MODEL, model)
        .with_project(ProjectConfig::new("alpha").with_key(key(1)));
    World::new(config).unwrap()
}

fn tools() -> Value {
    let weather = json!({"name": "weather", "parameters": {
        "type": "OBJECT",
        "properties": {"city": {"type": "STRING"}, "days": {"type": "INTEGER"}},
        "required": ["city"],
    }});
    json!([{"functionDeclarations": [weather, {"name": "clock"}]}])
}

fn ask(world: &mut World, body: &Value) -> SimReply {
    let target = format!("/v1beta/models/{MODEL}:generateContent");
    world.handle(&post(&target, &key(1), &body.to_string()), at(NOW))
}

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}]})
}

#[test]
fn a_function_is_called_when_the_last_text_names_it() {
    let mut world = world(Signatures::Never);
    let parts = |world: &mut World, text: &str, mode: Option<&str>| {
        let mut body = json!({"contents": [user(text)], "tools": tools()});
        if let Some(mode) = mode {
            body["toolConfig"] = json!({"functionCallingConfig": {"mode": mode}});
        }
        json(&ask(world, &body))["candidates"][0]["content"]["parts"].clone()
    };
    let called = |parts: &Value| -> Vec<String> {
        let calls = parts.as_array().unwrap().iter();
        calls.filter_map(|part| Some(part["functionCall"]["name"].as_str()?.to_owned())).collect()
    };
    let weather = parts(&mut world, "What is the weather?", None);
    assert_eq!(called(&weather), ["weather"]);
    assert_eq!(weather[0]["functionCall"]["args"], json!({"city": "simulated city"}));
    assert!(weather[0].get("thoughtSignature").is_none());
    assert_eq!(called(&parts(&mut world, "weather and clock", None)), ["weather", "clock"]);
    assert!(called(&parts(&mut world, "Hello", None)).is_empty());
    assert_eq!(called(&parts(&mut world, "Hello", Some("ANY"))), ["weather"]);
    assert!(called(&parts(&mut world, "What is the weather?", Some("NONE"))).is_empty());
}

#[test]
fn what_a_function_answered_is_quoted() {
    let mut world = world(Signatures::Required);
    let mut contents = vec![user("What is the weather?")];
    let first = json(&ask(&mut world, &json!({"contents": contents, "tools": tools()})));
    contents.push(first["candidates"][0]["content"].clone());
    contents.push(json!({"role": "user", "parts": [
        {"functionResponse": {"name": "weather", "response": {"sky": "blue"}}},
    ]}));
    let second = json(&ask(&mut world, &json!({"contents": contents, "tools": tools()})));
    let said = second["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap();
    assert!(said.ends_with(r#"weather said {"sky":"blue"}"#), "{said}");
    let used = |reply: &Value| reply["usageMetadata"]["promptTokenCount"].as_u64().unwrap();
    assert!(used(&second) > used(&first) + 10);
}

/// Signatures have to come back byte for byte (<https://github.com/askimo-ai/askimo/issues/543>).
#[test]
fn a_call_that_comes_back_unsigned_or_changed_is_refused() {
    let call = |signature: Option<&str>| {
        let mut part = json!({"functionCall": {"name": "weather", "args": {}}});
        if let Some(signature) = signature {
            part["thoughtSignature"] = signature.into();
        }
        let response = json!({"functionResponse": {"name": "weather", "response": {}}});
        json!([
            user("What is the weather?"),
            {"role": "model", "parts": [part]},
            {"role": "user", "parts": [response]},
        ])
    };
    let reply = |signatures, contents: &Value| {
        ask(&mut world(signatures), &json!({"contents": contents, "tools": tools()}))
    };
    let first = reply(Signatures::Required, &json!([user("What is the weather?")]));
    let signature = json(&first)["candidates"][0]["content"]["parts"][0]["thoughtSignature"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(status(&reply(Signatures::Required, &call(Some(&signature)))), 200);
    let unsigned = json(&reply(Signatures::Required, &call(None)));
    assert_eq!(
        unsigned["error"]["message"],
        "Function call is missing a thought_signature in functionCall parts. This is required for \
         tools to work correctly, and missing thought_signature may lead to degraded model \
         performance. Additional data, function call `default_api:weather` , position 2. Please \
         refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
    );
    let changed = signature.replacen(&signature[..1], "b", 1);
    assert_eq!(status(&reply(Signatures::Required, &call(Some(&changed)))), 400);
    assert_eq!(status(&reply(Signatures::Given, &call(None))), 200);
    let skipped = call(Some("skip_thought_signature_validator"));
    assert_eq!(status(&reply(Signatures::Required, &skipped)), 200);
    // Turns that are over are not looked at.
    let mut over = call(None);
    over.as_array_mut().unwrap().push(user("And now?"));
    assert_eq!(status(&reply(Signatures::Required, &over)), 200);
}

#[test]
fn an_answer_has_the_form_that_was_asked_for() {
    let mut world = world(Signatures::Never);
    let schema = json!({
        "type": "object",
        "properties": {"title": {"type": "string"}, "pages": {"type": "integer"}},
        "required": ["title", "pages"],
    });
    let mut said = |config: Value| {
        let body = json!({"contents": [user("Hello")], "generationConfig": config});
        let reply = json(&ask(&mut world, &body));
        reply["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap().to_owned()
    };
    let expected = json!({"title": "simulated title", "pages": 1});
    for config in [
        json!({"responseMimeType": "application/json", "responseJsonSchema": schema}),
        json!({"response_mime_type": "application/json", "response_schema": schema}),
        json!({"responseFormat": [{"text": {"mimeType": "APPLICATION_JSON", "schema": schema}}]}),
    ] {
        assert_eq!(serde_json::from_str::<Value>(&said(config)).unwrap(), expected);
    }
    let word = json!({
        "responseMimeType": "text/x.enum",
        "responseSchema": {"type": "STRING", "enum": ["yes", "no"]},
    });
    assert_eq!(said(word), "yes");
    let free = said(json!({"responseMimeType": "application/json"}));
    assert!(serde_json::from_str::<Value>(&free).unwrap().get("simulated_answer").is_some());
}
