//! The shapes that Google's own SDKs send and read pass through our types, nothing lost and nothing
//! added.
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

use std::{fs, path::PathBuf};

use keywheel_provider::api::{
    BatchEmbedRequest, BatchEmbedResponse, CachedContent, CachedContentList, CountRequest, File,
    FileEnvelope, FileList, GenerateRequest, GenerateResponse, ModelList, TokenCount,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};

/// What an SDK sent.
#[derive(Deserialize)]
struct Sent {
    method: String,
    path: String,
    body: Box<RawValue>,
}

#[test]
fn every_request_of_the_sdks_comes_back_the_same() {
    let mut kinds = [0; 5];
    for (name, text) in fixtures("requests/python").into_iter().chain(fixtures("requests/js")) {
        let Sent { method, path, body } = serde_json::from_str(&text).unwrap();
        if !body.get().starts_with('{') {
            continue;
        }
        let (kind, written) = match path.rsplit([':', '/']).next().unwrap() {
            "generateContent" | "streamGenerateContent?alt=sse" => {
                (0, rewritten::<GenerateRequest>(body.get()))
            }
            "countTokens" => (1, rewritten::<CountRequest>(body.get())),
            "batchEmbedContents" => (2, rewritten::<BatchEmbedRequest>(body.get())),
            "files" => (3, rewritten::<FileEnvelope>(body.get())),
            _ if path.contains("cachedContents") => (4, rewritten::<CachedContent>(body.get())),
            _ => panic!("{name}: nothing here reads {method} {path}"),
        };
        kinds[kind] += 1;
        assert_same(&name, body.get(), &written);
    }
    assert!(kinds.iter().all(|&seen| seen >= 2), "both SDKs, each kind: {kinds:?}");
}

#[test]
fn every_field_that_the_sdk_knows_comes_back_the_same() {
    for style in ["camel", "snake"] {
        survives::<GenerateRequest>("generate-request", style);
        survives::<GenerateResponse>("generate-response", style);
        survives::<TokenCount>("count-response", style);
        survives::<BatchEmbedRequest>("embed-request", style);
        survives::<BatchEmbedResponse>("embed-response", style);
        survives::<CachedContent>("cache", style);
        survives::<CachedContentList>("cache-list", style);
        survives::<File>("file", style);
        survives::<FileList>("file-list", style);
        survives::<ModelList>("model-list", style);
    }
}

/// A field of the wrong spelling would land in `extra`: kept, but not seen by whoever reads the
/// type.
#[test]
fn both_spellings_reach_the_same_fields() {
    fn extra(value: &Value) -> Vec<String> {
        let names = value.as_object().unwrap().keys();
        names.filter(|name| name.contains('_')).cloned().collect()
    }
    let request = rewritten::<GenerateRequest>(&shape("generate-request", "snake"));
    assert_eq!(extra(&request), ["service_tier"], "labels and store are spelled alike");
    assert_eq!(extra(&request["systemInstruction"]), Vec::<String>::new());
    let response = rewritten::<GenerateResponse>(&shape("generate-response", "snake"));
    assert_eq!(extra(&response), ["create_time"]);
    let cache = rewritten::<CachedContent>(&shape("cache", "snake"));
    assert_eq!(extra(&cache), Vec::<String>::new());
    let count = rewritten::<TokenCount>(&shape("count-response", "snake"));
    assert_eq!(extra(&count), Vec::<String>::new());
    let file = rewritten::<File>(&shape("file", "snake"));
    assert_eq!(extra(&file), ["download_uri", "video_metadata"]);
    let embed = rewritten::<BatchEmbedRequest>(&shape("embed-request", "snake"));
    assert_eq!(extra(&embed["requests"][0]), Vec::<String>::new());

    let request: GenerateRequest =
        serde_json::from_str(&shape("generate-request", "snake")).unwrap();
    let part = &request.contents[0].parts[0];
    assert_eq!(part.function_call().unwrap().name, "a name");
    assert_eq!(part.executable_code().unwrap().language, "PYTHON");
    assert_eq!(part.code_execution_result().unwrap().outcome, "OUTCOME_OK");
    assert_eq!(part.thought_signature().as_deref(), Some("AAH-_w=="));
    assert_eq!(part.inline_data().unwrap().bytes(), Some(vec![0, 1, 254, 255]));
}

/// Gemini 3 answers 400 to a conversation whose signature came back changed.
#[test]
fn parts_with_a_signature_go_back_byte_for_byte() {
    #[derive(Deserialize)]
    struct Turns {
        contents: Vec<Parts>,
    }
    #[derive(Deserialize)]
    struct Parts {
        parts: Vec<Box<RawValue>>,
    }
    let mut signed = 0;
    for name in [
        "requests/python/generate-history",
        "requests/js/generate-history",
        "requests/js/chat-turn",
    ] {
        let text = fs::read_to_string(folder(&format!("{name}.json"))).unwrap();
        let sent: Sent = serde_json::from_str(&text).unwrap();
        let request: GenerateRequest = serde_json::from_str(sent.body.get()).unwrap();
        let written = serde_json::to_string(&request).unwrap();
        let turns: Turns = serde_json::from_str(sent.body.get()).unwrap();
        for part in turns.contents.iter().flat_map(|turn| &turn.parts) {
            signed += u32::from(part.get().contains("thoughtSignature"));
            assert!(written.contains(part.get()), "{name} changed {part}");
        }
    }
    assert_eq!(signed, 3);
}

/// A field that Google adds tomorrow is in nobody's list.
#[test]
fn an_unknown_field_survives_in_every_object_of_every_shape() {
    proptest!(ProptestConfig::with_cases(16), |(value in json_value(), name in "next[A-Z][a-z]{0,8}")| {
        with_field::<GenerateRequest>("generate-request", &name, &value);
        with_field::<GenerateResponse>("generate-response", &name, &value);
        with_field::<TokenCount>("count-response", &name, &value);
        with_field::<BatchEmbedRequest>("embed-request", &name, &value);
        with_field::<BatchEmbedResponse>("embed-response", &name, &value);
        with_field::<CachedContent>("cache", &name, &value);
        with_field::<CachedContentList>("cache-list", &name, &value);
        with_field::<FileList>("file-list", &name, &value);
        with_field::<ModelList>("model-list", &name, &value);
    });
}

/// What people rely on when they change from an SDK: our call is the call that it makes.
#[test]
fn our_follow_up_to_a_continuation_is_that_of_the_sdks() {
    for sdk in ["python", "js"] {
        let read = |name: &str| {
            let text = fs::read_to_string(folder(&format!("requests/{sdk}/{name}.json"))).unwrap();
            serde_json::from_str::<Sent>(&text).unwrap().body
        };
        let first = read("generate-continuation");
        let request: GenerateRequest = serde_json::from_str(first.get()).unwrap();
        let answer = serde_json::from_value(json!({"candidates": [{
            "finishReason": "CONTINUATION", "continuationToken": "dG9rZW4tMQ==",
        }]}))
        .unwrap();
        let next = serde_json::to_value(request.continued(&answer).unwrap()).unwrap();
        assert_same(sdk, read("generate-continuation-2").get(), &next);
    }
}

fn with_field<T: Serialize + DeserializeOwned>(shape_name: &str, name: &str, value: &Value) {
    fn put(target: &mut Value, name: &str, value: &Value) -> u32 {
        match target {
            Value::Object(fields) => {
                let inner: u32 = fields.values_mut().map(|inner| put(inner, name, value)).sum();
                fields.insert(name.to_owned(), value.clone());
                inner + 1
            }
            Value::Array(items) => items.iter_mut().map(|item| put(item, name, value)).sum(),
            _ => 0,
        }
    }
    let mut document: Value = serde_json::from_str(&shape(shape_name, "camel")).unwrap();
    assert!(put(&mut document, name, value) > 0);
    let text = document.to_string();
    assert_same(shape_name, &text, &rewritten::<T>(&text));
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

fn survives<T: Serialize + DeserializeOwned>(name: &str, style: &str) {
    let text = shape(name, style);
    assert_same(&format!("{name}-{style}"), &text, &rewritten::<T>(&text));
}

fn rewritten<T: Serialize + DeserializeOwned>(text: &str) -> Value {
    let value: T = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"));
    serde_json::from_str(&serde_json::to_string(&value).unwrap()).unwrap()
}

#[track_caller]
fn assert_same(name: &str, before: &str, after: &Value) {
    let before = normal("", serde_json::from_str(before).unwrap());
    let after = normal("", after.clone());
    let show = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let (before, after) = (show(&before), show(&after));
    let first = before.lines().zip(after.lines()).find(|(a, b)| a != b);
    assert!(before == after, "{name} changed: {first:?}");
}

/// One spelling for what means the same: camelCase, numbers by their value, 64-bit integers as
/// strings.
fn normal(name: &str, value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let name = camel(&name);
                let value = normal(&name, value);
                (name, value)
            });
            fields.collect()
        }
        Value::Array(items) => items.into_iter().map(|item| normal(name, item)).collect(),
        Value::Number(number) if name == "sizeBytes" => Value::String(number.to_string()),
        // 40.0 is 40; but no digit of an integer may be lost.
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
                json!(float as i64)
            }
            _ => Value::Number(number),
        },
        other => other,
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut name, word| {
        let mut letters = word.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name + letters.as_str()
    })
}

fn shape(name: &str, style: &str) -> String {
    fs::read_to_string(folder(&format!("shapes/{name}-{style}.json"))).unwrap()
}

fn fixtures(name: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> =
        fs::read_dir(folder(name)).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "{name} has {} files", files.len());
    let read = |path: PathBuf| (path.display().to_string(), fs::read_to_string(&path).unwrap());
    files.into_iter().map(read).collect()
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sdk").join(name)
}
