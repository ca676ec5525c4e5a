//! Requests as clients write them.

use proptest::prelude::*;
use serde_json::{Value, json};

/// A request with any of what weighs something, in both spellings.
pub(super) fn request() -> impl Strategy<Value = Value> {
    let config = (
        either("generationConfig", "generation_config"),
        either("maxOutputTokens", "max_output_tokens"),
        prop::option::of(0..70_000_u32),
        prop::option::of(1..9_u32),
        prop::option::of((either("responseSchema", "response_json_schema"), text())),
    );
    (
        prop::collection::vec(content(), 0..4),
        prop::option::of((either("systemInstruction", "system_instruction"), content())),
        prop::option::of(config),
        prop::collection::vec(tool(), 0..3),
        prop::option::of(either("cachedContent", "cached_content")),
    )
        .prop_map(|(contents, system, config, tools, cached)| {
            let mut request = json!({"contents": contents, "labels": {"contents": [{"parts": [{"text": "no"}]}]}});
            if let Some((name, content)) = system {
                request[name] = content;
            }
            if let Some((name, limit, tokens, candidates, schema)) = config {
                request[name] = json!({"temperature": 0.5});
                if let Some(tokens) = tokens {
                    request[name][limit] = tokens.into();
                }
                if let Some((schema, text)) = schema {
                    request[name][schema] = json!({"type": "OBJECT", "description": text});
                }
                if let Some(candidates) = candidates {
                    request[name]["candidateCount"] = candidates.into();
                }
            }
            if !tools.is_empty() {
                request["tools"] = tools.into();
            }
            if let Some(name) = cached {
                request[name] = "cachedContents/c-1".into();
            }
            request
        })
}

/// The same JSON, written otherwise: with white space, and with escapes for what is not ASCII and for slashes.
pub(super) fn written(value: &Value, spaces: bool, escapes: bool) -> String {
    let text =
        if spaces { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    let text = text.unwrap();
    if !escapes {
        return text;
    }
    let mut out = String::new();
    for c in text.chars() {
        if !c.is_ascii() {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out += &format!("\\u{unit:04X}");
            }
        } else if c == '/' {
            out += "\\/";
        } else {
            out.push(c);
        }
    }
    out
}

/// A text with what is hard to count and to escape.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9 ,.\"\\\\/\n\t{}\\[\\]:]{0,40}",
        "\\PC{0,20}",
        Just("汉字 и слова 😀👍🏽 é\u{301}".to_owned()),
    ]
}

/// One of two spellings.
fn either(camel: &'static str, snake: &'static str) -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(camel), Just(snake)]
}

fn part() -> impl Strategy<Value = Value> {
    let mime = prop_oneof![
        Just("image/png"),
        Just("audio/ogg"),
        Just("video/mp4"),
        Just("application/pdf"),
        Just("text/plain; charset=utf-8"),
        Just("application/x-unknown"),
    ];
    let blob = (either("inlineData", "inline_data"), either("mimeType", "mime_type"), mime, 0..9_000_usize)
        .prop_map(|(name, mime_name, mime, length)| {
            json!({name: {mime_name: mime, "data": "Ab+/".repeat(length)}})
        });
    let file = (either("fileData", "file_data"), either("fileUri", "file_uri"), "[a-z0-9]{1,8}")
        .prop_map(
            |(name, uri, id)| json!({name: {uri: format!("https://host/v1beta/files/{id}")}}),
        );
    prop_oneof![
        3 => text().prop_map(|text| json!({"text": text})),
        1 => text().prop_map(|text| json!({"text": text, "thought": true, "thoughtSignature": "c2ln"})),
        1 => blob,
        1 => file,
        1 => (text(), any::<i32>()).prop_map(|(text, n)| {
            json!({"functionCall": {"name": "f", "args": {"a": [text, n, null, 1.5e-9, {}]}}})
        }),
        1 => Just(json!({"text": null, "fileData": 7})),
        1 => text().prop_map(|text| {
            let blob = json!({"mimeType": "image/png", "data": "AAAA".repeat(9_000)});
            json!({"inlineData": blob, "text": text})
        }),
        1 => Just(json!({})),
    ]
}

fn content() -> impl Strategy<Value = Value> {
    (prop::option::of(either("user", "model")), prop::collection::vec(part(), 0..4)).prop_map(
        |(role, parts)| match role {
            Some(role) => json!({"role": role, "parts": parts, "later": {"parts": ["not said"]}}),
            None => json!({"parts": parts}),
        },
    )
}

fn tool() -> impl Strategy<Value = Value> {
    prop_oneof![
        text()
            .prop_map(|text| json!({"functionDeclarations": [{"name": "f", "description": text}]})),
        Just(json!({"google_search": {}})),
        Just(json!({"urlContext": {}})),
        Just(json!({"functionDeclarations": [], "codeExecution": {}})),
    ]
}
