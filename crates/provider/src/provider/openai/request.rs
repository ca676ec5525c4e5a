//! A request for an answer as a chat completion.
//!
//! Each field is taken out of its struct by name, so that one which is new there cannot be forgotten here.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    OpenAiApi,
    messages::messages,
    schema::json_schema,
    shorten,
    tools::{Tools, tools},
    unsupported,
};
use crate::{
    api::{GenerateRequest, GenerationConfig, Json, ThinkingConfig},
    upstream::CallError,
};

/// The body of a chat completion.
pub(super) fn chat(
    api: &OpenAiApi,
    model: &str,
    request: &GenerateRequest,
    stream: bool,
) -> Result<Vec<u8>, CallError> {
    let GenerateRequest {
        contents,
        system_instruction,
        generation_config,
        tools: offered,
        tool_config,
        safety_settings,
        cached_content,
        continuation_token,
        extra,
    } = request;
    if continuation_token.is_some() {
        return Err(unsupported("continuationToken"));
    }
    if !safety_settings.is_empty() {
        return Err(unsupported("safetySettings"));
    }
    let mut body = Body::default();
    body.set("messages", &messages(api, system_instruction.as_ref(), contents)?)?;
    let Tools { functions, choice } = tools(offered, tool_config.as_ref())?;
    if !functions.is_empty() {
        body.set("tools", &functions)?;
    }
    if let Some(choice) = choice {
        body.set("tool_choice", &choice)?;
    }
    if let Some(config) = generation_config {
        configure(&mut body, api, config)?;
    }
    if let Some(cache) = cached_content {
        if !api.is_google() {
            return Err(unsupported("cachedContent"));
        }
        body.google.insert("cached_content".to_owned(), cache.as_str().into());
    }
    if !body.google.is_empty() {
        let google = json!({ "google": body.google });
        body.set("extra_body", &google)?;
    }
    if stream {
        body.set("stream", &true)?;
        if api.stream_usage {
            body.set("stream_options", &json!({ "include_usage": true }))?;
        }
    }
    body.set("model", model)?;
    body.add(extra)?;
    body.into_json()
}

/// The fields of a body, and those of Google's own that go into one of them.
#[derive(Default)]
pub(super) struct Body {
    fields: BTreeMap<String, Json>,
    google: Map<String, Value>,
}

impl Body {
    pub(super) fn set<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
    ) -> Result<(), CallError> {
        self.fields.insert(name.to_owned(), Json::new(value).map_err(no_json)?);
        Ok(())
    }

    fn set_some<T: Serialize>(&mut self, name: &str, value: Option<&T>) -> Result<(), CallError> {
        value.map_or(Ok(()), |value| self.set(name, value))
    }

    /// Adds fields that only this provider knows. They win over those that were made, but for what decides
    /// how the answer is read.
    pub(super) fn add(&mut self, extra: &Map<String, Value>) -> Result<(), CallError> {
        for (name, value) in extra {
            match name.as_str() {
                // Gemini's own.
                "labels" | "serviceTier"
                // What the call itself sets.
                | "model" | "messages" | "input" | "stream" => return Err(unsupported(name)),
                _ => self.set(name, value)?,
            }
        }
        Ok(())
    }

    pub(super) fn into_json(self) -> Result<Vec<u8>, CallError> {
        serde_json::to_vec(&self.fields).map_err(no_json)
    }
}

fn configure(body: &mut Body, api: &OpenAiApi, config: &GenerationConfig) -> Result<(), CallError> {
    let GenerationConfig {
        max_output_tokens,
        candidate_count,
        stop_sequences,
        temperature,
        top_p,
        top_k,
        seed,
        response_mime_type,
        response_schema,
        response_json_schema,
        thinking_config,
        extra,
    } = config;
    body.set_some(api.max_tokens_field, max_output_tokens.as_ref())?;
    body.set_some("n", candidate_count.as_ref())?;
    if !stop_sequences.is_empty() {
        body.set("stop", stop_sequences)?;
    }
    body.set_some("temperature", temperature.as_ref())?;
    body.set_some("top_p", top_p.as_ref())?;
    body.set_some("top_k", top_k.as_ref())?;
    body.set_some("seed", seed.as_ref())?;
    if let Some(thinking) = thinking_config {
        think(body, api, thinking)?;
    }
    let schema = match (response_json_schema, response_schema) {
        (Some(schema), _) => Some(schema.clone()),
        (None, Some(schema)) => Some(json_schema(schema).map_err(no_json)?),
        (None, None) => None,
    };
    match (response_mime_type.as_deref(), schema) {
        (None | Some("application/json"), Some(schema)) => {
            body.set("response_format", &ResponseFormat::of(schema))?;
        }
        (Some("application/json"), None) => {
            body.set("response_format", &json!({ "type": "json_object" }))?;
        }
        (None | Some("text/plain"), None) => {}
        (Some(kind), _) => {
            return Err(unsupported(format!("generationConfig.responseMimeType {kind:?}")));
        }
    }
    for (name, value) in extra.iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "presencePenalty" | "presence_penalty" => body.set("presence_penalty", value)?,
            "frequencyPenalty" | "frequency_penalty" => body.set("frequency_penalty", value)?,
            "responseLogprobs" | "response_logprobs" => body.set("logprobs", value)?,
            "logprobs" => body.set("top_logprobs", value)?,
            "responseModalities" | "response_modalities" if *value == json!(["TEXT"]) => {}
            _ => return Err(unsupported(format!("generationConfig.{name}"))),
        }
    }
    Ok(())
}

/// Whether summaries of the thinking come along is up to the provider: most send them unasked.
fn think(body: &mut Body, api: &OpenAiApi, thinking: &ThinkingConfig) -> Result<(), CallError> {
    let ThinkingConfig { include_thoughts, thinking_budget, thinking_level, extra } = thinking;
    if let Some(name) = extra.keys().next() {
        return Err(unsupported(format!("generationConfig.thinkingConfig.{name}")));
    }
    if api.is_google() {
        let mut config = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            value.and_then(|value| config.insert(name.to_owned(), value));
        };
        put("include_thoughts", include_thoughts.map(Value::from));
        put("thinking_budget", thinking_budget.map(Value::from));
        put("thinking_level", thinking_level.as_ref().map(|level| level.as_str().into()));
        body.google.insert("thinking_config".to_owned(), config.into());
        return Ok(());
    }
    let effort = match (thinking_level, thinking_budget) {
        (Some(level), _) => level.as_str().to_ascii_lowercase(),
        (None, None | Some(i32::MIN..=-1)) => return Ok(()),
        (None, Some(tokens)) => effort(*tokens).to_owned(),
    };
    body.set("reasoning_effort", &effort)
}

/// The budgets that Google's own compatibility layer gives to the efforts, read backwards:
/// <https://ai.google.dev/gemini-api/docs/openai#thinking>.
const fn effort(tokens: i32) -> &'static str {
    match tokens {
        ..=0 => "none",
        1..=1_024 => "low",
        1_025..=8_192 => "medium",
        _ => "high",
    }
}

#[derive(Serialize)]
struct ResponseFormat {
    r#type: &'static str,
    json_schema: NamedSchema,
}

#[derive(Serialize)]
struct NamedSchema {
    name: &'static str,
    schema: Json,
}

impl ResponseFormat {
    fn of(schema: Json) -> Self {
        Self { r#type: "json_schema", json_schema: NamedSchema { name: "answer", schema } }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
pub(super) fn no_json(error: serde_json::Error) -> CallError {
    CallError::Body(shorten(&error.to_string()))
}

#[cfg(test)]
mod tests;
