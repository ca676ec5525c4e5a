//! What a request's body asks for, as far as the simulator cares.

use serde_json::Value;

use crate::random;

/// A request for text.
#[derive(Debug, Clone)]
pub(crate) struct Prompt {
    /// All text of the request, one part after another.
    pub(crate) text: String,
    /// Input tokens, by the simulator's own count.
    pub(crate) tokens: u64,
    pub(crate) candidates: u64,
    /// Thinking and answer together stay below it, as Google's do.
    pub(crate) max_output: Option<u64>,
    /// Whether the answer is thought about, and whether the thoughts are shown.
    pub(crate) thinks: bool,
    pub(crate) shows_thoughts: bool,
    /// Whether a JSON answer is wanted.
    pub(crate) wants_json: bool,
    /// The files it names, one after another; their tokens are not in `tokens`.
    pub(crate) files: Vec<String>,
    /// Whether it uses Google's search or URL tools.
    pub(crate) uses_google_tools: bool,
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
        let nested = either(&body, "generateContentRequest", "generate_content_request");
        let request = nested.unwrap_or(&body);
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
        let mime = setting("responseMimeType", "response_mime_type").and_then(Value::as_str);
        let mut found = Collected::default();
        found.take(request.get("contents"));
        found.take(either(request, "systemInstruction", "system_instruction"));
        let Collected { text, mut tokens, files } = found;
        let tools = request.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        tokens += tools.iter().map(|tool| count_tokens(&tool.to_string())).sum::<u64>();
        let google = ["googleSearch", "google_search", "urlContext", "url_context"];
        Ok(Self {
            tokens: tokens + count_tokens(&text),
            text,
            candidates: setting("candidateCount", "candidate_count")
                .and_then(Value::as_u64)
                .unwrap_or(1)
                .clamp(1, 8),
            max_output: setting("maxOutputTokens", "max_output_tokens").and_then(Value::as_u64),
            thinks: budget.map_or(level || shows == Some(true), |budget| budget != 0),
            shows_thoughts: shows == Some(true),
            wants_json: mime == Some("application/json"),
            files,
            uses_google_tools: tools
                .iter()
                .any(|tool| google.iter().any(|name| tool.get(name).is_some())),
        })
    }

    /// A number that stands for this prompt.
    pub(crate) fn hash(&self) -> u64 {
        random::hash(&[self.text.as_bytes()])
    }
}

/// The texts of an embedding request, each with its tokens.
///
/// # Errors
/// What Google would answer with 400.
pub(crate) fn texts(body: &[u8], batch: bool) -> Result<Vec<Text>, String> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| format!("Invalid JSON payload received. ({error})"))?;
    if !batch {
        return Ok(vec![Text::read(&body)?]);
    }
    let requests = body.get("requests").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if requests.is_empty() {
        return Err("* BatchEmbedContentsRequest.requests: requests is not specified\n".into());
    }
    if requests.len() > 100 {
        let message = "* BatchEmbedContentsRequest.requests: at most 100 requests can be in one \
                       batch\n";
        return Err(message.into());
    }
    requests.iter().map(Text::read).collect()
}

/// One text to embed.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) tokens: u64,
    pub(crate) dimensions: Option<u64>,
}

impl Text {
    fn read(request: &Value) -> Result<Self, String> {
        let Some(content) = request.get("content") else {
            return Err("* EmbedContentRequest.content: content is not specified\n".into());
        };
        let mut found = Collected::default();
        found.take(Some(content));
        let Collected { text, tokens, .. } = found;
        let dimensions = either(request, "outputDimensionality", "output_dimensionality")
            .and_then(Value::as_u64);
        Ok(Self { tokens: tokens + count_tokens(&text), text, dimensions })
    }
}

/// The simulator's own, simple count: a token for every four bytes.
///
/// Deliberately not keywheel's estimate: what is tested against the simulator must not agree with it by
/// sharing its code.
pub(crate) fn count_tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

/// Google takes both spellings of a field (proto JSON).
pub(crate) fn either<'a>(value: &'a Value, camel: &str, snake: &str) -> Option<&'a Value> {
    value.get(camel).or_else(|| value.get(snake))
}

/// What stands in contents, parts and all that is made of them.
#[derive(Default)]
struct Collected {
    text: String,
    /// Of what is neither text nor a file: 258 for every piece of media that is sent along.
    tokens: u64,
    files: Vec<String>,
}

impl Collected {
    fn take(&mut self, value: Option<&Value>) {
        match value {
            Some(Value::Array(values)) => {
                values.iter().for_each(|value| self.take(Some(value)));
            }
            Some(part @ Value::Object(fields)) => {
                if let Some(Value::String(text)) = fields.get("text") {
                    if !self.text.is_empty() {
                        self.text.push('\n');
                    }
                    self.text.push_str(text);
                }
                if either(part, "inlineData", "inline_data").is_some() {
                    self.tokens += 258;
                }
                if let Some(file) = either(part, "fileData", "file_data") {
                    let uri = either(file, "fileUri", "file_uri").and_then(Value::as_str);
                    self.files.push(uri.unwrap_or_default().to_owned());
                }
                self.take(fields.get("parts"));
            }
            _ => {}
        }
    }
}
