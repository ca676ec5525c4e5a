use keywheel_core::Usage;
use serde_json::{Value, json};

use super::*;

fn round_trip<T: serde::de::DeserializeOwned + serde::Serialize>(text: &str) -> Value {
    serde_json::to_value(serde_json::from_str::<T>(text).unwrap()).unwrap()
}

#[test]
fn a_request_with_every_field_comes_back_the_same() {
    let text = r#"{
        "contents":[{"role":"user","parts":[{"text":"hi"},{"inlineData":{"mimeType":"image/png","data":"aGk="}},
            {"fileData":{"fileUri":"https://x/files/1","mimeType":"video/mp4"},"videoMetadata":{"fps":0.5}},
            {"functionResponse":{"name":"f","response":{"z":1,"a":2}}}],"newInContent":1}],
        "systemInstruction":{"parts":[{"text":"short"}]},
        "tools":[{"googleSearch":{}},{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT"}}]}],
        "toolConfig":{"functionCallingConfig":{"mode":"ANY"}},
        "safetySettings":[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"BLOCK_NONE","method":"SEVERITY"}],
        "cachedContent":"cachedContents/1",
        "generationConfig":{"maxOutputTokens":100,"candidateCount":2,"stopSequences":["END"],"temperature":0.5,
            "topP":0.9,"topK":40.0,"seed":7,"responseMimeType":"application/json","responseSchema":{"type":"OBJECT"},
            "responseModalities":["TEXT"],"thinkingConfig":{"includeThoughts":true,"thinkingBudget":-1,
            "thinkingLevel":"HIGH","soon":true}},
        "serviceTier":"flex","store":false,"labels":{"app":"a"},"fieldOfNextYear":{"deep":[1,2.5,"x",null]}
    }"#;
    assert_eq!(round_trip::<GenerateRequest>(text), serde_json::from_str::<Value>(text).unwrap());
}

#[test]
fn a_response_with_every_field_comes_back_the_same() {
    let text = r#"{
        "candidates":[{"content":{"role":"model","parts":[{"text":"a","thoughtSignature":"Cg=="}]},
            "finishReason":"STOP","finishMessage":"m","index":0,"safetyRatings":[{"category":"X"}],
            "citationMetadata":{},"groundingMetadata":{"webSearchQueries":["q"]},"tokenCount":3,
            "continuationToken":"t","avgLogprobs":-0.25}],
        "promptFeedback":{"blockReason":"OTHER","safetyRatings":[]},
        "usageMetadata":{"promptTokenCount":4,"totalTokenCount":4,"trafficType":"ON_DEMAND"},
        "modelVersion":"gemini-3.5-flash-lite","responseId":"r1",
        "modelStatus":{"modelStage":"RETIRING","retirementTime":"2027-05-07T00:00:00Z"}
    }"#;
    assert_eq!(round_trip::<GenerateResponse>(text), serde_json::from_str::<Value>(text).unwrap());
}

#[test]
fn snake_case_is_understood_and_camel_case_is_written() {
    let text = r#"{"contents":[],"system_instruction":{"parts":[{"text":"s"}]},"tool_config":{"a":1},
        "safety_settings":[{"category":"C","threshold":"T"}],"cached_content":"c",
        "generation_config":{"max_output_tokens":9,"candidate_count":2,"stop_sequences":["x"],"top_p":0.5,
        "top_k":1.0,"response_mime_type":"m","response_schema":{},"response_json_schema":{},
        "thinking_config":{"include_thoughts":true,"thinking_budget":0,"thinking_level":"LOW"}}}"#;
    let request: GenerateRequest = serde_json::from_str(text).unwrap();
    assert!(request.extra.is_empty(), "left over: {:?}", request.extra);
    let config = request.generation_config.as_ref().unwrap();
    assert!(config.extra.is_empty(), "left over: {:?}", config.extra);
    assert!(config.thinking_config.as_ref().unwrap().extra.is_empty());
    let written = serde_json::to_string(&request).unwrap();
    assert!(!written.contains('_'), "{written}");

    let text = r#"{"candidates":[{"finish_reason":"STOP","finish_message":"m","content":{"parts":[
        {"inline_data":{"mime_type":"image/png","data":"QQ=="}},{"file_data":{"file_uri":"u","mime_type":"t"}},
        {"function_call":{"name":"f"}},{"function_response":{"name":"f","response":{}}},
        {"thought_signature":"Cg=="}]}}],
        "prompt_feedback":{"block_reason":"SAFETY"},"usage_metadata":{"promptTokenCount":1},
        "model_version":"v","response_id":"r"}"#;
    let response: GenerateResponse = serde_json::from_str(text).unwrap();
    assert!(response.extra.is_empty(), "left over: {:?}", response.extra);
    assert_eq!(response.finish_reason(), Some(FinishReason::Stop));
    assert_eq!(response.block_reason(), Some("SAFETY"));
    let parts = &response.content().unwrap().parts;
    assert_eq!(parts[0].inline_data().unwrap().mime_type, "image/png");
    assert_eq!(parts[1].file_data().unwrap().file_uri, "u");
    assert_eq!(parts[2].function_call().unwrap().name, "f");
    assert_eq!(parts[3].function_response().unwrap().response.get(), "{}");
    assert_eq!(parts[4].thought_signature().unwrap(), "Cg==");
}

#[test]
fn parts_tools_and_schemas_survive_byte_for_byte() {
    // Order, spelling of numbers, escapes and duplicates: all would be lost in a map.
    let exact = r#"{"z":1.0,"a":1E2,"big":123456789012345678901234567890,"e":"\u00e9\/","z":2}"#;
    let text = format!(
        r#"{{"contents":[{{"role":"user","parts":[{exact}]}}],"tools":[{exact}],"toolConfig":{exact}}}"#
    );
    let request: GenerateRequest = serde_json::from_str(&text).unwrap();
    let written = serde_json::to_string(&request).unwrap();
    assert_eq!(written.matches(exact).count(), 3, "{written}");
}

#[test]
fn an_answer_goes_back_into_the_conversation_unchanged() {
    let part =
        r#"{"functionCall":{"name":"f","args":{"b":1,"a":2}},"thoughtSignature":"CpQ=\u002b"}"#;
    let answer: GenerateResponse = serde_json::from_str(&format!(
        r#"{{"candidates":[{{"content":{{"parts":[{part}],"role":"model"}}}}]}}"#
    ))
    .unwrap();
    let next = GenerateRequest::from("go").with_content(answer.content().unwrap().clone());
    assert!(serde_json::to_string(&next).unwrap().contains(part));
}

#[test]
fn text_leaves_thoughts_out_and_joins_the_rest() {
    let response: GenerateResponse = serde_json::from_value(json!({"candidates": [{"content": {"parts": [
        {"text": "let me see", "thought": true}, {"text": "Hel"}, {"executableCode": {"code": "1"}}, {"text": "lo"},
        {"text": ", well", "thought": true},
    ]}}]}))
    .unwrap();
    assert_eq!(response.text(), "Hello");
    assert_eq!(response.thoughts(), "let me see, well");
}

#[test]
fn answers_without_text_are_no_errors() {
    for text in [
        r#"{}"#,
        r#"{"candidates":null}"#,
        r#"{"candidates":[]}"#,
        r#"{"candidates":[{}]}"#,
        r#"{"candidates":[{"content":null,"finishReason":"MAX_TOKENS"}]}"#,
        r#"{"candidates":[{"content":{}}]}"#,
        r#"{"candidates":[{"content":{"role":"model","parts":null}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{}, 1, "x", null, {"text":5}]}}]}"#,
    ] {
        let response: GenerateResponse = serde_json::from_str(text).unwrap();
        assert_eq!(response.text(), "", "{text}");
        assert!(response.function_calls().is_empty(), "{text}");
    }
}

#[test]
fn a_finish_reason_of_the_future_is_kept() {
    for name in ["STOP", "PUP_LIMITED_DISABLED", "SOME_NEW_REASON"] {
        let reason: FinishReason = serde_json::from_value(json!(name)).unwrap();
        assert_eq!(reason.as_str(), name);
        assert_eq!(serde_json::to_value(&reason).unwrap(), json!(name));
        assert_eq!(matches!(reason, FinishReason::Other(_)), name == "SOME_NEW_REASON");
    }
}

#[test]
fn every_finish_reason_of_google_genai_has_a_name_here_but_other() {
    for name in [
        "STOP",
        "MAX_TOKENS",
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MALFORMED_FUNCTION_CALL",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_OTHER",
        "NO_IMAGE",
        "IMAGE_RECITATION",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE",
        "ESCALATION",
        "PUP_LIMITED_DISABLED",
        "CONTINUATION",
        "MODEL_ARMOR",
    ] {
        let reason = FinishReason::from(name);
        assert!(!matches!(reason, FinishReason::Other(_)), "{name}");
        assert_eq!(reason.to_string(), name);
    }
    assert_eq!(FinishReason::from("OTHER"), FinishReason::Other("OTHER".into()));
}

#[test]
fn usage_counts_thinking_and_tools_and_knows_zero_from_missing() {
    let of = |usage: Value| {
        serde_json::from_value::<GenerateResponse>(json!({ "usageMetadata": usage }))
            .unwrap()
            .usage()
    };
    assert_eq!(
        of(json!({"promptTokenCount": 10, "cachedContentTokenCount": 4, "candidatesTokenCount": 3,
            "thoughtsTokenCount": 5, "toolUsePromptTokenCount": 2, "totalTokenCount": 20})),
        Some(Usage { input: 10, cached: 4, output: 3, thinking: 5, tool: 2, total: 20 })
    );
    assert_eq!(of(json!({})).map(|u| u.total), Some(0), "zero fields are left out by the API");
    assert_eq!(of(Value::Null), None);
    assert_eq!(GenerateResponse::default().usage(), None);
}

#[test]
fn only_tools_of_the_provider_count_as_tools() {
    let functions = json!({"functionDeclarations": [{"name": "f"}]});
    let request = GenerateRequest::from("x").with_tool(functions);
    assert!(!request.uses_tools());
    assert!(request.with_tool(json!({"googleSearch": {}})).uses_tools());
}

#[test]
fn debug_does_not_print_whole_pictures() {
    let blob = Blob { mime_type: "image/png".into(), data: "QUJD".repeat(100_000) };
    let printed = format!("{:?}", GenerateRequest::from(Part::from_blob(&blob)));
    assert!(printed.len() < 1_000, "{} characters", printed.len());
}

#[test]
fn a_part_can_be_made_of_each_kind() {
    let blob = Blob { mime_type: "image/png".into(), data: "QQ==".into() };
    assert_eq!(Part::from_blob(&blob).inline_data(), Some(blob));
    let file = FileData { mime_type: None, file_uri: "u".into() };
    assert_eq!(Part::from_file(&file).file_data(), Some(file));
    let result = FunctionResponse { id: None, name: "f".into(), response: json!({"b": 1}).into() };
    assert_eq!(Part::from_function_response(&result).function_response(), Some(result));
    let call = FunctionCall { id: Some("1".into()), name: "f".into(), args: None };
    assert_eq!(Part::from_function_call(&call).function_call(), Some(call.clone()));
    let answer = call.respond(json!({"b": 1})).function_response().unwrap();
    assert_eq!((answer.id.as_deref(), answer.name.as_str()), (Some("1"), "f"));
    let bytes = Part::from_bytes("image/png", &[0, 255, 62]).inline_data().unwrap();
    assert_eq!(bytes.bytes(), Some(vec![0, 255, 62]));
    assert_eq!(Blob { data: "no base64!".into(), ..bytes }.bytes(), None);
    assert_eq!(Part::from("a \"quoted\" text").text(), Some("a \"quoted\" text"));
}

#[test]
fn a_list_of_models_comes_back_the_same() {
    let text = r#"{"models":[{"name":"models/x","displayName":"X","inputTokenLimit":1048576,
        "outputTokenLimit":65536,"supportedGenerationMethods":["generateContent"],"thinking":true}],
        "nextPageToken":"p"}"#;
    assert_eq!(round_trip::<ModelList>(text), serde_json::from_str::<Value>(text).unwrap());
}

#[test]
fn half_a_character_costs_no_text_around_it() {
    let text = r#"{"text":"a smile \ud83d\n\u20ac","thoughtSignature":"s"}"#;
    let part: Part = serde_json::from_str(text).unwrap();
    assert_eq!(part.text(), Some("a smile \u{FFFD}\n\u{20ac}"));
    assert_eq!(part.json().get(), text, "and goes back as it came");
}

#[test]
fn a_vector_with_a_number_that_is_none_is_refused() {
    for bad in ["1e39", "-1e39", "1e999", "NaN"] {
        let body = format!(r#"{{"embeddings":[{{"values":[0.5,{bad}]}}]}}"#);
        assert!(serde_json::from_str::<BatchEmbedResponse>(&body).is_err(), "{bad}");
    }
}
