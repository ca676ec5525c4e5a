//! OpenAI-style requests, in the native form.

use serde_json::{Map, Value, json};

use crate::shape::Wishes;

/// `POST chat/completions`.
#[derive(Debug)]
pub(crate) struct Chat {
    pub(crate) model: String,
    pub(crate) streams: bool,
    pub(crate) wishes: Wishes,
    /// The body of `generateContent`, or what is wrong with this one.
    pub(crate) body: Result<Value, String>,
}

/// `POST embeddings`.
#[derive(Debug)]
pub(crate) struct Embeddings {
    pub(crate) model: String,
    pub(crate) wishes: Wishes,
    /// The body of `batchEmbedContents`, or what is wrong with this one.
    pub(crate) body: Result<Value, String>,
}

impl Chat {
    /// # Errors
    /// It is no JSON, or names no model.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let (body, model) = read(body)?;
        let usage = body["stream_options"]["include_usage"] == true;
        Ok(Self {
            model,
            streams: body["stream"] == true,
            wishes: Wishes { usage, base64: false },
            body: native(&body),
        })
    }
}

impl Embeddings {
    /// # Errors
    /// It is no JSON, or names no model.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let (body, model) = read(body)?;
        let base64 = body["encoding_format"] == "base64";
        let body = texts(&body["input"]).map(|texts| {
            let request = |text: String| {
                let mut request = json!({"content": {"parts": [{"text": text}]}});
                if let Some(dimensions) = body.get("dimensions") {
                    request["outputDimensionality"] = dimensions.clone();
                }
                request
            };
            json!({"requests": texts.into_iter().map(request).collect::<Vec<_>>()})
        });
        Ok(Self { model, wishes: Wishes { usage: false, base64 }, body })
    }
}

fn read(body: &[u8]) -> Result<(Value, String), String> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| format!("We could not parse the JSON body of your request. ({error})"))?;
    let model = body["model"].as_str().unwrap_or_default();
    if model.is_empty() {
        return Err("you must provide a model parameter".to_owned());
    }
    let model = model.strip_prefix("models/").unwrap_or(model).to_owned();
    Ok((body, model))
}

/// A text, a list of texts, a list of tokens, or a list of such lists.
fn texts(input: &Value) -> Result<Vec<String>, String> {
    let tokens = |list: &[Value]| list.iter().map(Value::to_string).collect::<Vec<_>>().join(" ");
    match input {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(list) if list.first().is_some_and(Value::is_number) => Ok(vec![tokens(list)]),
        Value::Array(list) if !list.is_empty() => list
            .iter()
            .map(|it| match it {
                Value::String(text) => Ok(text.clone()),
                Value::Array(list) => Ok(tokens(list)),
                _ => Err("Invalid type for 'input'.".to_owned()),
            })
            .collect(),
        _ => Err("Missing required parameter: 'input'.".to_owned()),
    }
}

fn native(body: &Value) -> Result<Value, String> {
    let Some(messages) = body["messages"].as_array().filter(|messages| !messages.is_empty()) else {
        return Err("Missing required parameter: 'messages'.".to_owned());
    };
    let mut contents: Vec<Value> = Vec::new();
    let mut instructions = Vec::new();
    // Names of functions by the ids of their calls.
    let mut called = Map::new();
    for message in messages {
        match message["role"].as_str() {
            Some("system" | "developer") => instructions.extend(parts(&message["content"])),
            Some("user") => {
                contents.push(json!({"role": "user", "parts": parts(&message["content"])}));
            }
            Some("assistant") => {
                let mut parts = parts(&message["content"]);
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    if let Some(id) = call["id"].as_str() {
                        called.insert(id.to_owned(), call["function"]["name"].clone());
                    }
                    parts.push(function_call(call));
                }
                contents.push(json!({"role": "model", "parts": parts}));
            }
            Some("tool") => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let name = called.get(id).unwrap_or(&message["name"]).clone();
                let response = &message["content"];
                let response = response
                    .as_str()
                    .and_then(|text| serde_json::from_str(text).ok())
                    .filter(Value::is_object)
                    .unwrap_or_else(|| json!({"result": response}));
                let part = json!({"functionResponse": {"name": name, "response": response}});
                // The answers to calls of one message are one turn.
                match contents.last_mut() {
                    Some(last) if last["parts"][0].get("functionResponse").is_some() => {
                        last["parts"]
                            .as_array_mut()
                            .into_iter()
                            .for_each(|it| it.push(part.clone()));
                    }
                    _ => contents.push(json!({"role": "user", "parts": [part]})),
                }
            }
            other => return Err(format!("Invalid value for a message's role: {other:?}.")),
        }
    }
    let mut out = json!({"contents": contents, "generationConfig": settings(body)});
    if !instructions.is_empty() {
        out["systemInstruction"] = json!({"parts": instructions});
    }
    if let Some(tools) = body["tools"].as_array().filter(|tools| !tools.is_empty()) {
        let functions: Vec<_> = tools.iter().map(|tool| tool["function"].clone()).collect();
        out["tools"] = json!([{"functionDeclarations": functions}]);
    }
    if let Some(mode) = tool_choice(&body["tool_choice"]) {
        out["toolConfig"] = json!({"functionCallingConfig": mode});
    }
    // The Python SDK's `extra_body` is merged into the body; written by hand it may be nested.
    let google =
        [&body["google"], &body["extra_body"]["google"]].into_iter().find(|it| it.is_object());
    if let Some(google) = google {
        if let Some(cache) = google.get("cached_content") {
            out["cachedContent"] = cache.clone();
        }
        if let Some(thinking) = google.get("thinking_config") {
            out["generationConfig"]["thinkingConfig"] = thinking.clone();
        }
    }
    Ok(out)
}

fn settings(body: &Value) -> Value {
    let mut out = json!({});
    let limit = body.get("max_completion_tokens").or_else(|| body.get("max_tokens"));
    let names = [("maxOutputTokens", limit), ("candidateCount", body.get("n"))];
    for (name, value) in names {
        if let Some(value) = value.filter(|value| value.is_u64()) {
            out[name] = value.clone();
        }
    }
    match body["response_format"]["type"].as_str() {
        Some("json_object") => out["responseMimeType"] = "application/json".into(),
        Some("json_schema") => {
            out["responseMimeType"] = "application/json".into();
            out["responseJsonSchema"] = body["response_format"]["json_schema"]["schema"].clone();
        }
        _ => {}
    }
    match body["reasoning_effort"].as_str() {
        None => {}
        Some("none") => out["thinkingConfig"] = json!({"thinkingBudget": 0}),
        Some(effort) => out["thinkingConfig"] = json!({"thinkingLevel": effort.to_uppercase()}),
    }
    out
}

fn tool_choice(choice: &Value) -> Option<Value> {
    match choice {
        Value::String(word) if word == "none" => Some(json!({"mode": "NONE"})),
        Value::String(word) if word == "required" => Some(json!({"mode": "ANY"})),
        Value::Object(one) => {
            let name = one.get("function")?.get("name")?;
            Some(json!({"mode": "ANY", "allowedFunctionNames": [name]}))
        }
        _ => None,
    }
}

/// A message's content: a text, or parts of text and pictures.
fn parts(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![json!({"text": text})],
        Value::Array(parts) => parts
            .iter()
            .map(|part| match part["text"].as_str() {
                Some(text) => json!({"text": text}),
                None => json!({"inlineData": part.clone()}),
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn function_call(call: &Value) -> Value {
    let args = call["function"]["arguments"].as_str().unwrap_or("{}");
    let args: Value = serde_json::from_str(args).unwrap_or_else(|_| json!({}));
    let mut part = json!({"functionCall": {"name": call["function"]["name"], "args": args}});
    if let Some(signature) = call["extra_content"]["google"].get("thought_signature") {
        part["thoughtSignature"] = signature.clone();
    }
    part
}
