//! Our calls are the calls that google-genai makes.
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

use std::{fs, sync::Arc, time::Duration};

use http::Method;
use keywheel_provider::{
    api::{
        BlockThreshold, CacheExpiry, CachedContent, Content, EmbedRequest, FileData, FunctionCall,
        FunctionCalling, FunctionDeclaration, GenerateRequest, HarmCategory, Part, SafetySetting,
        TaskType, ThinkingConfig, ThinkingLevel, Tool,
    },
    testing::Script,
    upstream::{Call, CallError, Upstream},
};
use serde_json::{Value, json};

const MODEL: &str = "gemini-3.5-flash-lite";

#[test]
fn every_call_has_method_path_query_and_body_of_googles_own_client() {
    let abc = "cachedContents/abc";
    let text = GenerateRequest::from("Say hello");
    let titled = EmbedRequest::from("a")
        .with_task(TaskType::RetrievalDocument)
        .with_title("A")
        .with_dimensions(768);
    let alike = ["a", "b", "c"]
        .map(|text| EmbedRequest::from(text).with_task(TaskType::SemanticSimilarity));
    let minute = CacheExpiry::After(Duration::from_secs(60));
    for (fixture, call) in [
        ("generate-text", Call::generate(MODEL, &text)),
        ("stream-text", Call::stream(MODEL, &text)),
        ("embed-one", Call::embed_batch("models/gemini-embedding-001", &[titled])),
        ("embed-three", Call::embed_batch("gemini-embedding-001", &alike)),
        ("models-list", Ok(Call::models_page(None, Some(5)))),
        ("model-get", Call::model(MODEL)),
        ("file-list", Ok(Call::files_page(None, Some(5)))),
        ("file-get", Call::file("abc")),
        ("file-delete", Call::delete_file("files/abc")),
        ("cache-list", Ok(Call::caches_page(None, Some(5)))),
        ("cache-get", Call::cache("abc")),
        ("cache-delete", Call::delete_cache(abc)),
        ("cache-update-ttl", Call::update_cache(abc, minute)),
        ("generate-everything", Call::generate(MODEL, &everything())),
        ("generate-history", Call::generate(MODEL, &history())),
    ] {
        same_as(fixture, &call.unwrap());
    }
}

/// The request of `capture.py`'s `generate-everything`, by our own means.
fn everything() -> GenerateRequest {
    let weather = FunctionDeclaration {
        response: Some(json!({"type": "OBJECT", "properties": {"rain": {"type": "BOOLEAN"}}}).into()),
        ..FunctionDeclaration::new("weather", "The weather of a city").with_parameters(json!({
            "type": "OBJECT", "required": ["city"], "propertyOrdering": ["city", "days"],
            "properties": {"city": {"type": "STRING"}, "days": {"type": "INTEGER", "minimum": 1, "maximum": 7}},
        }))
    };
    let rates = FunctionDeclaration {
        response_json_schema: Some(json!({"type": "number"}).into()),
        ..FunctionDeclaration::new("rates", "Exchange rates").with_json_schema(json!({
            "type": "object", "properties": {"of": {"type": "string"}}, "additionalProperties": false,
        }))
    };
    let mut request = GenerateRequest::from("Hi")
        .with_tool(Tool::google_search())
        .with_tool(Tool::url_context())
        .with_tool(Tool::code_execution())
        .with_functions([weather, rates])
        .with_safety([
            SafetySetting::new(HarmCategory::Harassment, BlockThreshold::OnlyHigh),
            SafetySetting::new("HARM_CATEGORY_HATE_SPEECH", "OFF"),
        ])
        .with_thinking(ThinkingConfig::level(ThinkingLevel::High).with_thoughts())
        .with_candidate_count(1)
        .with_max_output_tokens(2048)
        .with_stop_sequences(["END", "STOP"])
        .with_temperature(0.7)
        .with_top_p(0.95)
        .with_top_k(40.0)
        .with_seed(7)
        .with_cached_content("cachedContents/abc");
    // The SDK gives the system instruction a role, which means nothing.
    request.system_instruction = Some(Content::user(["Be brief"]));
    let place = json!({"latLng": {"latitude": 18.52, "longitude": 73.86}, "languageCode": "mr"});
    let others = json!({"includeServerSideToolInvocations": true, "retrievalConfig": place});
    request.tool_config = Some(others.into());
    request.extra.insert("serviceTier".into(), json!("flex"));
    let more = json!({
        "presencePenalty": 0.1, "frequencyPenalty": 0.2, "responseLogprobs": true, "logprobs": 3,
        "responseModalities": ["TEXT", "IMAGE"], "mediaResolution": "MEDIA_RESOLUTION_LOW",
        "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}},
        "imageConfig": {"aspectRatio": "16:9"},
    });
    request.config().extra = more.as_object().unwrap().clone();
    request.with_function_calling(FunctionCalling::any().only(["weather"]))
}

fn history() -> GenerateRequest {
    let call = FunctionCall {
        id: Some("c1".into()),
        name: "weather".into(),
        args: Some(json!({"city": "Pune", "days": 2}).into()),
    };
    let signed = json!({"functionCall": &call, "thoughtSignature": "AAH-c2lnbmF0dXJl_w=="});
    let result = json!({"functionResponse": {
        "id": "c1", "name": "weather", "response": {"rain": true, "mm": 2.5},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}],
    }});
    let from_json = |json: Value| Part::from_json(json.into());
    GenerateRequest::new([
        Content::user(["Rain in Pune?"]),
        Content::model([
            from_json(json!({"text": "I should look", "thought": true})),
            from_json(signed),
            from_json(json!({"executableCode": {"code": "print(1)", "language": "PYTHON"}})),
            from_json(json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}})),
        ]),
        Content::user([from_json(result)]),
    ])
}

#[test]
fn a_cache_is_made_as_googles_own_client_makes_it() {
    let fixture = fixture("cache-create");
    let mut cache: CachedContent = serde_json::from_value(fixture["body"].clone()).unwrap();
    cache.model = Some(MODEL.into());
    same_as("cache-create", &Call::create_cache(&cache).unwrap());

    let nameless = Call::create_cache(&CachedContent::default());
    assert_eq!(nameless.unwrap_err(), CallError::Model(String::new()));
}

#[test]
fn tokens_are_counted_of_the_whole_request_and_for_its_own_model() {
    let mut request = everything();
    request.extra.insert("model".into(), json!("models/another"));
    let call = Call::count_tokens(MODEL, &request).unwrap();
    assert_eq!(
        (call.method, call.path.as_str()),
        (Method::POST, "models/gemini-3.5-flash-lite:countTokens")
    );
    let text = String::from_utf8(call.body.bytes().unwrap().to_vec()).unwrap();
    assert_eq!(text.matches(r#""model":"#).count(), 1, "{text}");

    let mut expected = serde_json::to_value(&request).unwrap();
    expected["model"] = json!("models/gemini-3.5-flash-lite");
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(body, json!({ "generateContentRequest": expected }));
}

/// With `gemini-embedding-2` texts in one content become one vector:
/// <https://github.com/getzep/graphiti/issues/1848>
#[test]
fn each_text_is_embedded_on_its_own_whatever_model_it_named() {
    let mut other = EmbedRequest::from("b");
    other.model = Some("models/another".into());
    let call = Call::embed_batch("gemini-embedding-2", &["a".into(), other]).unwrap();
    let body: Value = serde_json::from_slice(call.body.bytes().unwrap()).unwrap();
    let requests = body["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request["model"], "models/gemini-embedding-2");
        assert_eq!(request["content"]["parts"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_name_cannot_lead_to_another_path() {
    for name in [
        "",
        "files/",
        "a/b",
        "../models",
        "a?page=b",
        "a b",
        "ä",
        "a:download",
        "x.y",
        "files/../x",
    ] {
        assert!(matches!(Call::file(name), Err(CallError::Name(_))), "{name:?}");
        assert!(matches!(Call::delete_file(name), Err(CallError::Name(_))), "{name:?}");
        assert!(matches!(Call::cache(name), Err(CallError::Name(_))), "{name:?}");
        assert!(matches!(Call::delete_cache(name), Err(CallError::Name(_))), "{name:?}");
    }
    let call = Call::file(
        "https://generativelanguage.googleapis.com/v1beta/files/abc-1:download?alt=media",
    );
    assert_eq!(call.unwrap().path, "files/abc-1");
    for model in ["", "a/b", "models/../files", "gemini?x"] {
        assert!(matches!(Call::embed_batch(model, &[]), Err(CallError::Model(_))), "{model:?}");
        let counted = Call::count_tokens(model, &GenerateRequest::default());
        assert!(matches!(counted, Err(CallError::Model(_))), "{model:?}");
    }
}

#[test]
fn pages_follow_each_other_by_their_token() {
    let call = Call::models_page(Some("a+b/c="), Some(1_000));
    let upstream = Upstream::google(Arc::new(Script::new()));
    assert!(
        upstream
            .url(&call)
            .unwrap()
            .ends_with("/v1beta/models?pageSize=1000&pageToken=a%2Bb%2Fc%3D")
    );
    assert_eq!(Call::models_page(None, None).query, []);
}

#[test]
fn a_schema_a_level_or_an_expiry_takes_the_place_of_what_it_excludes() {
    let schema = GenerateRequest::from("x").with_response_schema(json!({"type": "OBJECT"}));
    let schema = schema.with_json_schema(json!({"type": "object"})).generation_config.unwrap();
    assert_eq!((schema.response_schema, schema.response_json_schema.is_some()), (None, true));
    let google = GenerateRequest::from("x").with_json_schema(json!({"type": "object"}));
    let google = google.with_response_schema(json!({"type": "OBJECT"})).generation_config.unwrap();
    assert_eq!((google.response_json_schema, google.response_schema.is_some()), (None, true));

    let level = GenerateRequest::from("x").with_thinking(ThinkingConfig::budget(9).with_thoughts());
    let level = level.with_thinking_level(ThinkingLevel::Low).generation_config.unwrap();
    let thinking = serde_json::to_value(level.thinking_config).unwrap();
    assert_eq!(thinking, json!({"includeThoughts": true, "thinkingLevel": "LOW"}));

    let cache =
        CachedContent::new(MODEL, ["x"]).with_expiry(CacheExpiry::After(Duration::from_secs(1)));
    let moment = "2026-12-01T00:00:00Z".parse().unwrap();
    let cache = cache.with_expiry(CacheExpiry::At(moment));
    assert_eq!(
        (cache.ttl.as_deref(), cache.expire_time.as_deref()),
        (None, Some("2026-12-01T00:00:00Z"))
    );
    assert_eq!(cache.expires_at(), Some(moment));
}

#[test]
fn an_uploaded_file_becomes_a_part_of_a_request() {
    let file: keywheel_provider::api::File = serde_json::from_value(json!({
        "name": "files/abc", "uri": "https://x/v1beta/files/abc", "mimeType": "video/mp4",
        "sizeBytes": "5", "expirationTime": "2026-12-01T00:00:00.123456789Z",
    }))
    .unwrap();
    let part = file.to_part().unwrap();
    let expected =
        FileData { mime_type: file.mime_type.clone(), file_uri: file.uri.clone().unwrap() };
    assert_eq!(part.file_data(), Some(expected));
    assert_eq!(file.expires_at().unwrap().timestamp_subsec_nanos(), 123_456_789);
}

#[track_caller]
fn same_as(name: &str, call: &Call) {
    let fixture = fixture(name);
    let upstream = Upstream::new("http://x", Arc::new(Script::new())).unwrap();
    let url = upstream.with_version("v1").unwrap().url(call).unwrap();
    assert_eq!(call.method.as_str(), fixture["method"], "{name}");
    assert_eq!(url.strip_prefix("http://x"), fixture["path"].as_str(), "{name}");
    if fixture["body"] == "" {
        assert!(call.body.is_empty(), "{name}");
        return;
    }
    let body: Value = serde_json::from_slice(call.body.bytes().unwrap()).unwrap();
    assert_eq!(normal(body), normal(fixture["body"].clone()), "{name}");
}

/// The SDK writes some names in snake_case, and whole numbers as 40.0.
fn normal(value: Value) -> Value {
    let camel = |name: &str| {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
    };
    match value {
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (camel(&name), normal(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(normal).collect(),
        Value::Number(number) => json!(number.as_f64()),
        other => other,
    }
}

fn fixture(name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sdk/requests/python");
    serde_json::from_str(&fs::read_to_string(format!("{folder}/{name}.json")).unwrap()).unwrap()
}
