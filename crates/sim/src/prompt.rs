//! What a request's body asks for, as far as the simulator cares.

mod functions;
mod texts;
mod weight;

use serde_json::Value;

use crate::random;

pub(crate) use functions::{FunctionCall, Functions, sign};
pub(crate) use texts::Text;
pub(crate) use weight::{Weight, count_tokens};

/// A request for text.
#[derive(Debug, Clone)]
pub(crate) struct Prompt {
    /// All text of the request, one part after another.
    pub(crate) text: String,
    /// Input tokens, by the simulator's own count; those of files and caches are added when they are found.
    pub(crate) tokens: u64,
    /// Those of `tokens` that come out of a cache.
    pub(crate) cached_tokens: u64,
    pub(crate) candidates: u64,
    /// Thinking and answer together stay below it, as Google's do.
    pub(crate) max_output: Option<u64>,
    /// Whether the answer is thought about, and whether the thoughts are shown.
    pub(crate) thinks: bool,
    pub(crate) shows_thoughts: bool,
    pub(crate) format: Format,
    /// The files it names.
    pub(crate) files: Vec<String>,
    /// The cached content it names.
    pub(crate) cache: Option<String>,
    /// Whether it sets what stands in a cache: instruction, tools, how they are called.
    pub(crate) repeats_cached_settings: bool,
    /// Where to go on, when it follows a part of an answer.
    pub(crate) continuation: Option<String>,
    pub(crate) functions: Functions,
    /// Whether it uses Google's search or URL tools.
    pub(crate) uses_google_tools: bool,
}

/// The form of the answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Format {
    Text,
    /// JSON, of a schema if there is one.
    Json(Option<Value>),
    /// One word of a schema's `enum`, bare.
    Word(Value),
}

impl Prompt {
    /// Reads the body of `generateContent`, or what `countTokens` was given.
    ///
    /// # Errors
    /// What Google would answer with 400.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let body: Value = serde_json::from_slice(body).map_err(|error| {
            format!("Invalid JSON payload received. Unexpected token. ({error})")
        })?;
        Self::of(&body)
    }

    /// The same, of a body that is read already.
    ///
    /// # Errors
    /// What Google would answer with 400.
    pub(crate) fn of(body: &Value) -> Result<Self, String> {
        let nested = either(body, "generateContentRequest", "generate_content_request");
        let request = nested.unwrap_or(body);
        if request.get("contents").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            return Err("* GenerateContentRequest.contents: contents is not specified\n".into());
        }
        let config = either(request, "generationConfig", "generation_config");
        let setting = |camel, snake| config.and_then(|config| either(config, camel, snake));
        let thinking = setting("thinkingConfig", "thinking_config");
        let thinking = |camel, snake| thinking.and_then(|config| either(config, camel, snake));
        let budget = thinking("thinkingBudget", "thinking_budget").and_then(Value::as_i64);
        let shows = thinking("includeThoughts", "include_thoughts").and_then(Value::as_bool);
        let level = thinking("thinkingLevel", "thinking_level").is_some();
        let Weight { text, tokens, files } = Weight::of(request);
        let tools = request.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let google = ["googleSearch", "google_search", "urlContext", "url_context"];
        let word =
            |camel, snake| either(request, camel, snake).and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            tokens,
            text,
            cached_tokens: 0,
            candidates: setting("candidateCount", "candidate_count")
                .and_then(Value::as_u64)
                .unwrap_or(1)
                .clamp(1, 8),
            max_output: setting("maxOutputTokens", "max_output_tokens").and_then(Value::as_u64),
            thinks: budget.map_or(level || shows == Some(true), |budget| budget != 0),
            shows_thoughts: shows == Some(true),
            format: Format::of(config),
            files,
            cache: word("cachedContent", "cached_content"),
            repeats_cached_settings: !tools.is_empty()
                || either(request, "systemInstruction", "system_instruction").is_some()
                || either(request, "toolConfig", "tool_config").is_some(),
            continuation: word("continuationToken", "continuation_token"),
            functions: Functions::of(request),
            uses_google_tools: tools
                .iter()
                .any(|tool| google.iter().any(|name| tool.get(name).is_some())),
        })
    }

    /// A number that stands for this prompt.
    pub(crate) fn hash(&self) -> u64 {
        let answers = self.functions.answered.iter().map(|it| it.response.to_string());
        let answers: Vec<_> = answers.collect();
        let mut parts = vec![self.text.as_bytes()];
        parts.extend(answers.iter().map(|answer| answer.as_bytes()));
        random::hash(&parts)
    }
}

impl Format {
    fn of(config: Option<&Value>) -> Self {
        let setting = |camel, snake| config.and_then(|config| either(config, camel, snake));
        // The newer form is a list of formats, one for each kind of output.
        let text = setting("responseFormat", "response_format").and_then(|formats| {
            let formats = formats.as_array().map_or(std::slice::from_ref(formats), Vec::as_slice);
            formats.iter().find_map(|format| format.get("text"))
        });
        let mime = text
            .and_then(|text| either(text, "mimeType", "mime_type"))
            .or_else(|| setting("responseMimeType", "response_mime_type"));
        let schema = text
            .and_then(|text| text.get("schema"))
            .or_else(|| setting("responseJsonSchema", "response_json_schema"))
            .or_else(|| setting("responseSchema", "response_schema"))
            .cloned();
        match (mime.and_then(Value::as_str), schema) {
            (Some("text/x.enum"), Some(schema)) => Self::Word(schema),
            (Some("application/json" | "APPLICATION_JSON"), schema) => Self::Json(schema),
            _ => Self::Text,
        }
    }
}

/// Google takes both spellings of a field (proto JSON).
pub(crate) fn either<'a>(value: &'a Value, camel: &str, snake: &str) -> Option<&'a Value> {
    value.get(camel).or_else(|| value.get(snake))
}
