use serde_json::{Value, json};

use crate::{
    OpenAiApi, Provider as _,
    api::{Content, FunctionResponse, GenerateRequest, Json},
    upstream::CallError,
};

fn of(request: Value) -> GenerateRequest {
    serde_json::from_value(request).unwrap()
}

fn body(api: &OpenAiApi, request: &GenerateRequest) -> Value {
    serde_json::from_slice(api.generate("m", request).unwrap().body.bytes().unwrap()).unwrap()
}

/// What `request` becomes, without the model's name.
fn chat(request: Value) -> Value {
    let mut body = body(&OpenAiApi::new(), &of(request));
    assert_eq!(body.as_object_mut().unwrap().remove("model"), Some("m".into()));
    body
}

fn messages(contents: Value) -> Value {
    chat(json!({ "contents": contents }))["messages"].take()
}

/// What `field` of the generation config adds to the body.
fn configured(config: Value) -> Value {
    let mut body = chat(json!({"contents": [], "generationConfig": config}));
    body.as_object_mut().unwrap().remove("messages");
    body
}

fn refusal(request: Value) -> String {
    match OpenAiApi::new().generate("m", &of(request)).unwrap_err() {
        CallError::Unsupported(field) => field,
        other => panic!("{other:?}"),
    }
}

// Groq refuses a request that repeats the thoughts: https://github.com/tashfeenahmed/freellmapi/issues/1070
#[test]
fn turns_become_messages_and_thoughts_stay_behind() {
    assert_eq!(
        chat(json!({
            "systemInstruction": {"parts": [{"text": "Be"}, {"text": " brief"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "Hello"}]},
                {"role": "model", "parts": [
                    {"text": "Let me see", "thought": true},
                    {"text": "Hi", "thoughtSignature": "c2ln"},
                    {"text": " there"},
                ]},
                {"parts": [{"text": "What is 2+2?"}]},
            ],
        })),
        json!({"messages": [
            {"role": "system", "content": "Be brief"},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi there"},
            {"role": "user", "content": "What is 2+2?"},
        ]})
    );
}

#[test]
fn turns_that_say_nothing_are_left_out() {
    let contents = json!([
        {"role": "user", "parts": []},
        {"role": "model", "parts": [{"text": "Hm", "thought": true}]},
        {"role": "model", "parts": []},
        {"role": "user", "parts": [{"text": "Hello"}]},
    ]);
    assert_eq!(messages(contents), json!([{"role": "user", "content": "Hello"}]));
}

#[test]
fn media_become_pieces() {
    assert_eq!(
        messages(json!([{"role": "user", "parts": [
            {"text": "What is this?"},
            {"inlineData": {"mimeType": "image/png", "data": "iVBO"}},
            {"inline_data": {"mime_type": "audio/wav", "data": "UklG"}},
            {"inlineData": {"mimeType": "audio/mpeg", "data": "SUQz"}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBE", "displayName": "a.pdf"}},
        ]}])),
        json!([{"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
            {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
        ]}])
    );
}

#[test]
fn calls_keep_their_ids_and_arguments_byte_for_byte() {
    let history = r#"{"contents":[
        {"role":"model","parts":[{"text":"Looking."},{"functionCall":{"id":"call_1","name":"find","args":{"b":1.0,"a":[]}}},
            {"functionCall":{"id":"call_2","name":"now"}}]},
        {"role":"user","parts":[{"text":"And?"},
            {"functionResponse":{"id":"call_2","name":"now","response":{"time":"7:00"}}},
            {"functionResponse":{"id":"call_1","name":"find","response":{"found":0}}}]}]}"#;
    let request: GenerateRequest = serde_json::from_str(history).unwrap();
    assert_eq!(
        body(&OpenAiApi::new(), &request)["messages"],
        json!([
            {"role": "assistant", "content": "Looking.", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{\"b\":1.0,\"a\":[]}"}},
                {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "call_2", "content": "{\"time\":\"7:00\"}"},
            {"role": "tool", "tool_call_id": "call_1", "content": "{\"found\":0}"},
            {"role": "user", "content": "And?"},
        ])
    );
}

// Mistral takes ids of nine letters and digits alone: https://github.com/nearai/ironclaw/issues/1241
#[test]
fn calls_without_ids_get_the_same_ones_in_every_turn() {
    let call = |name: &str| json!({"functionCall": {"name": name, "args": {}}});
    let result =
        |name: &str, n: u32| json!({"functionResponse": {"name": name, "response": {"n": n}}});
    let mut contents = vec![
        json!({"role": "model", "parts": [call("a"), call("b"), call("a")]}),
        json!({"role": "user", "parts": [result("b", 1), result("a", 2), result("a", 3)]}),
    ];
    let first = messages(json!(contents));
    let ids = |messages: &Value| -> Vec<String> {
        let tools = messages.as_array().unwrap().iter().filter(|m| m["role"] == "tool");
        tools.map(|m| m["tool_call_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&first), ["call00002", "call00001", "call00003"]);
    let made: Vec<_> =
        first[0]["tool_calls"].as_array().unwrap().iter().map(|c| &c["id"]).collect();
    assert_eq!(made, ["call00001", "call00002", "call00003"]);

    contents.push(json!({"role": "model", "parts": [call("a")]}));
    contents.push(json!({"role": "user", "parts": [result("a", 4)]}));
    let second = messages(json!(contents));
    assert_eq!(ids(&second), ["call00002", "call00001", "call00003", "call00004"]);
    assert_eq!(&second.as_array().unwrap()[..4], first.as_array().unwrap(), "history stays");
}

#[test]
fn a_result_finds_a_call_whose_id_was_made_up_by_name() {
    let sent = messages(json!([
        {"role": "model", "parts": [{"functionCall": {"name": "a"}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "x", "name": "a", "response": {}}}]},
    ]));
    assert_eq!(sent[1]["tool_call_id"], sent[0]["tool_calls"][0]["id"]);
}

#[test]
fn a_result_of_nothing_is_refused() {
    let result =
        FunctionResponse { id: None, name: "a".to_owned(), response: Json::from(json!({})) };
    let request = GenerateRequest::from(crate::api::Part::from_function_response(&result));
    let error = OpenAiApi::new().generate("m", &request).unwrap_err();
    assert!(error.to_string().contains("contents[0].parts[0]"), "{error}");
}

#[test]
fn what_came_with_an_answer_goes_back_with_it() {
    assert_eq!(
        messages(
            json!([{"role": "model", "reasoning_details": [{"type": "reasoning.text"}], "parts": [
                {"functionCall": {"id": "1", "name": "a"}, "extra_content": {"google": {"thought_signature": "s"}}},
            ]}])
        ),
        json!([{"role": "assistant", "reasoning_details": [{"type": "reasoning.text"}], "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "a", "arguments": "{}"},
                "extra_content": {"google": {"thought_signature": "s"}}},
        ]}])
    );
}

#[test]
fn functions_become_tools_in_the_order_of_their_properties() {
    let request = GenerateRequest::from("x").with_tool(
        serde_json::from_str::<Json>(
            r#"{"functionDeclarations":[{"name":"find","description":"Finds","parameters":
                {"type":"OBJECT","properties":{"z":{"type":"STRING"},"a":{"type":"INTEGER"}}}},
                {"name":"now","parametersJsonSchema":{"type":"object"},"strict":true}]}"#,
        )
        .unwrap(),
    );
    let call = OpenAiApi::new().generate("m", &request).unwrap();
    let sent = str::from_utf8(call.body.bytes().unwrap()).unwrap();
    let expected = r#""tools":[{"type":"function","function":{"name":"find","description":"Finds","parameters":{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer"}}}}},{"type":"function","function":{"name":"now","parameters":{"type":"object"},"strict":true}}]"#;
    assert!(sent.contains(expected), "{sent}");
}

#[test]
fn the_choice_of_tools_is_kept() {
    let with = |config: Value| {
        let mut body = chat(json!({
            "contents": [],
            "tools": [{"functionDeclarations": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}],
            "toolConfig": {"functionCallingConfig": config},
        }));
        let offered: Vec<_> = body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|t| t["function"]["name"].clone())
            .collect();
        (body["tool_choice"].take(), Value::from(offered))
    };
    let all = json!(["a", "b", "c"]);
    assert_eq!(with(json!({"mode": "AUTO"})), (json!("auto"), all.clone()));
    assert_eq!(with(json!({"mode": "NONE"})), (json!("none"), all.clone()));
    assert_eq!(with(json!({"mode": "ANY"})), (json!("required"), all));
    assert_eq!(
        with(json!({"mode": "ANY", "allowedFunctionNames": ["b"]})),
        (json!({"type": "function", "function": {"name": "b"}}), json!(["b"]))
    );
    assert_eq!(
        with(json!({"mode": "ANY", "allowed_function_names": ["c", "a"]})),
        (json!("required"), json!(["a", "c"]))
    );
}

#[test]
fn the_generation_config_is_kept() {
    assert_eq!(
        configured(json!({
            "maxOutputTokens": 100, "candidateCount": 2, "stopSequences": ["END"], "temperature": 0.5,
            "topP": 0.9, "topK": 40, "seed": 7, "presencePenalty": 0.1, "frequencyPenalty": -0.1,
            "responseLogprobs": true, "logprobs": 3, "responseModalities": ["TEXT"],
        })),
        json!({
            "max_tokens": 100, "n": 2, "stop": ["END"], "temperature": 0.5, "top_p": 0.9, "top_k": 40.0,
            "seed": 7, "presence_penalty": 0.1, "frequency_penalty": -0.1, "logprobs": true, "top_logprobs": 3,
        })
    );
    let newer = OpenAiApi::new().with_max_completion_tokens().with_developer_role();
    let request = GenerateRequest::from("x").with_system("y").with_max_output_tokens(5);
    let sent = body(&newer, &request);
    assert_eq!((&sent["max_completion_tokens"], &sent["max_tokens"]), (&json!(5), &Value::Null));
    assert_eq!(sent["messages"][0]["role"], "developer");
}

#[test]
fn json_is_asked_for_with_and_without_a_schema() {
    assert_eq!(configured(json!({"responseMimeType": "text/plain"})), json!({}));
    assert_eq!(
        configured(json!({"responseMimeType": "application/json"})),
        json!({"response_format": {"type": "json_object"}})
    );
    let named = |schema: Value| {
        let json_schema = json!({"name": "answer", "schema": schema});
        json!({"response_format": {"type": "json_schema", "json_schema": json_schema}})
    };
    assert_eq!(
        configured(json!({"responseMimeType": "application/json",
            "responseSchema": {"type": "ARRAY", "items": {"type": "STRING"}}})),
        named(json!({"type": "array", "items": {"type": "string"}}))
    );
    assert_eq!(
        configured(
            json!({"responseMimeType": "application/json", "responseJsonSchema": {"const": "X"}})
        ),
        named(json!({"const": "X"}))
    );
}

#[test]
fn thinking_becomes_an_effort() {
    for (thinking, expected) in [
        (json!({"thinkingLevel": "MINIMAL"}), json!("minimal")),
        (json!({"thinkingLevel": "XHIGH"}), json!("xhigh")),
        (json!({"thinkingBudget": 0}), json!("none")),
        (json!({"thinkingBudget": 1024}), json!("low")),
        (json!({"thinkingBudget": 1025}), json!("medium")),
        (json!({"thinkingBudget": 24576, "includeThoughts": true}), json!("high")),
        (json!({"thinkingBudget": -1}), Value::Null),
        (json!({"includeThoughts": true}), Value::Null),
    ] {
        let sent = configured(json!({"thinkingConfig": thinking}));
        assert_eq!(sent["reasoning_effort"], expected, "{thinking}");
    }
}

#[test]
fn google_gets_its_own_settings_as_they_are() {
    let request = of(json!({
        "contents": [{"role": "model", "parts": [{"functionCall": {"id": "1", "name": "a"}, "thoughtSignature": "s"}]}],
        "cachedContent": "cachedContents/x",
        "generationConfig": {"thinkingConfig": {"thinkingBudget": 99, "includeThoughts": true}},
    }));
    let sent = body(&OpenAiApi::google(), &request);
    assert_eq!(
        sent["extra_body"],
        json!({"google": {"cached_content": "cachedContents/x",
            "thinking_config": {"thinking_budget": 99, "include_thoughts": true}}})
    );
    assert_eq!(
        sent["messages"][0]["tool_calls"][0]["extra_content"],
        json!({"google": {"thought_signature": "s"}})
    );
    assert_eq!(sent["reasoning_effort"], Value::Null, "Google refuses both");
}

#[test]
fn fields_of_the_providers_own_are_passed_on_and_win() {
    let mut request = of(json!({"contents": [], "generationConfig": {"temperature": 1.0},
        "provider": {"order": ["groq"]}, "temperature": 0.25}));
    assert_eq!(
        body(&OpenAiApi::new(), &request),
        json!({"model": "m", "messages": [], "temperature": 0.25, "provider": {"order": ["groq"]}})
    );
    request.extra.insert("stream".to_owned(), true.into());
    assert_eq!(
        OpenAiApi::new().generate("m", &request).unwrap_err(),
        CallError::Unsupported("stream".to_owned()),
        "an answer that comes in another form could not be read"
    );
    let user = Content::user(["x"]);
    let extra = json!({"name": "ada"}).as_object().unwrap().clone();
    let sent = body(&OpenAiApi::new(), &Content { extra, ..user }.into());
    assert_eq!(sent["messages"], json!([{"role": "user", "content": "x", "name": "ada"}]));
}

#[test]
fn streams_ask_for_their_usage_unless_told_not_to() {
    let body = |api: OpenAiApi| -> Value {
        serde_json::from_slice(api.stream("m", &"x".into()).unwrap().body.bytes().unwrap()).unwrap()
    };
    let sent = body(OpenAiApi::new());
    assert_eq!(
        (&sent["stream"], &sent["stream_options"]["include_usage"]),
        (&true.into(), &true.into())
    );
    let sent = body(OpenAiApi::new().without_stream_usage());
    assert_eq!((&sent["stream"], &sent["stream_options"]), (&true.into(), &Value::Null));
}

#[test]
fn what_has_no_place_is_refused_by_name() {
    let part =
        |part: Value| json!({"contents": [{"role": "user", "parts": [{"text": "x"}, part]}]});
    let config = |config: Value| json!({"contents": [], "generationConfig": config});
    let tool = |tool: Value| json!({"contents": [], "tools": [tool]});
    for (request, field) in [
        (json!({"contents": [], "cachedContent": "cachedContents/x"}), "cachedContent"),
        (
            json!({"contents": [], "safetySettings": [{"category": "a", "threshold": "b"}]}),
            "safetySettings",
        ),
        (json!({"contents": [], "labels": {}}), "labels"),
        (json!({"contents": [], "continuationToken": "x"}), "continuationToken"),
        (json!({"contents": [{"role": "system", "parts": []}]}), "contents[0].role \"system\""),
        (
            part(json!({"fileData": {"fileUri": "https://x/files/1"}})),
            "contents[0].parts[1].fileData",
        ),
        (part(json!({"executableCode": {"code": "1"}})), "contents[0].parts[1].executableCode"),
        (
            part(json!({"functionCall": {"name": "a"}})),
            "contents[0].parts[1].functionCall in this turn",
        ),
        (
            part(
                json!({"inlineData": {"mimeType": "video/mp4", "data": "AA=="}, "videoMetadata": {"fps": 1}}),
            ),
            "contents[0].parts[1].videoMetadata",
        ),
        (
            part(json!({"inlineData": {"mimeType": "video/mp4", "data": "AA=="}})),
            "contents[0].parts[1].inlineData of type \"video/mp4\"",
        ),
        (
            part(json!({"functionResponse": {"name": "a", "response": {}, "parts": []}})),
            "contents[0].parts[1].functionResponse.parts",
        ),
        (
            json!({"contents": [], "systemInstruction": {"parts": [{"inlineData": {"mimeType": "image/png", "data": ""}}]}}),
            "systemInstruction.parts[0].inlineData in this turn",
        ),
        (config(json!({"speechConfig": {}})), "generationConfig.speechConfig"),
        (config(json!({"responseModalities": ["IMAGE"]})), "generationConfig.responseModalities"),
        (
            config(json!({"responseMimeType": "text/x.enum"})),
            "generationConfig.responseMimeType \"text/x.enum\"",
        ),
        (config(json!({"thinkingConfig": {"x": 1}})), "generationConfig.thinkingConfig.x"),
        (tool(json!({"googleSearch": {}})), "tools[0].googleSearch"),
        (
            tool(json!({"functionDeclarations": [{"name": "a", "response": {}}]})),
            "tools[0].functionDeclarations[0].response",
        ),
        (
            json!({"contents": [], "toolConfig": {"retrievalConfig": {"languageCode": "de"}}}),
            "toolConfig.retrievalConfig",
        ),
        (
            json!({"contents": [], "tools": [{"functionDeclarations": [{"name": "a"}]}],
                "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}}}),
            "toolConfig.functionCallingConfig.mode \"VALIDATED\"",
        ),
    ] {
        assert_eq!(refusal(request), field);
    }
}

#[test]
fn names_of_models_may_hold_what_they_hold_elsewhere() {
    let api = OpenAiApi::new();
    for name in [
        "meta-llama/llama-3.3-70b-instruct:free",
        "llama3.2:latest",
        "@cf/meta/llama-3-8b",
        "gpt-5",
    ] {
        let sent: Value =
            serde_json::from_slice(api.generate(name, &"x".into()).unwrap().body.bytes().unwrap())
                .unwrap();
        assert_eq!(sent["model"], name);
    }
    let listed: Value = serde_json::from_slice(
        api.generate("models/gemini-x", &"x".into()).unwrap().body.bytes().unwrap(),
    )
    .unwrap();
    assert_eq!(listed["model"], "gemini-x");
    for bad in ["", "models/", "a b", "a\n", "caf\u{e9}", &"x".repeat(201)] {
        let error = api.generate(bad, &"x".into()).unwrap_err();
        assert!(matches!(error, CallError::Model(_)), "{bad:?}: {error}");
    }
    assert_eq!(api.model("openai/gpt-oss-120b").unwrap().path, "models/openai/gpt-oss-120b");
    assert!(matches!(api.model("x?key=1"), Err(CallError::Credential)));
}
