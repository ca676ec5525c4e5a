//! OpenAI's API, and that of everybody who copied it: chat completions, embeddings, models.
//!
//! | to know | look in |
//! |---|---|
//! | what a request becomes | `request.rs`, `messages.rs` and `part.rs`, `tools.rs` and `schema.rs` |
//! | how an answer is read, whole and streamed | `answer.rs`, `stream.rs` |
//! | embeddings, models | `embed.rs`, `models.rs` |
//!
//! The shapes: <https://platform.openai.com/docs/api-reference/chat>.

mod answer;
mod embed;
mod fields;
mod messages;
mod models;
mod part;
mod request;
mod schema;
mod stream;
mod tools;

use std::borrow::Cow;

use super::{Auth, EventReader, Provider};
use crate::{
    Dialect,
    api::{
        BatchEmbedResponse, EmbedRequest, GenerateRequest, GenerateResponse, Model, ModelList,
        TokenCount,
    },
    upstream::{Call, CallError, refuse_key},
};

/// An OpenAI-compatible provider: OpenAI, Groq, OpenRouter, Mistral, Ollama, Google's `/openai`, ….
///
/// What a request can hold, and what becomes of it:
///
/// | request | chat completion |
/// |---|---|
/// | system instruction | a message of role `system` |
/// | texts; inline pictures, sound (WAV, MP3) and PDF | `content`; `image_url`, `input_audio` and `file` |
/// | function calls and results | `tool_calls`, messages of role `tool`; ids are made up where there are none |
/// | function declarations, `toolConfig` | `tools`, `tool_choice` |
/// | `maxOutputTokens`, `candidateCount`, `stopSequences` | `max_tokens`, `n`, `stop` |
/// | `temperature`, `topP`, `topK`, `seed` | the same in snake case |
/// | JSON, with or without a schema | `response_format` |
/// | thinking level or budget | `reasoning_effort` |
/// | any other field | the same field: the way to what only this provider has |
///
/// Files by address, caches, safety settings, Google's own tools, tasks of embeddings: these have no place there
/// and are refused by name ([`CallError::Unsupported`]). Thoughts and their signatures stay behind.
///
/// | at | base URL | made by |
/// |---|---|---|
/// | OpenAI | `https://api.openai.com/v1` | [`new`](Self::new), [`with_max_completion_tokens`](Self::with_max_completion_tokens) |
/// | Groq | `https://api.groq.com/openai/v1` | `new` |
/// | OpenRouter | `https://openrouter.ai/api/v1` | `new` |
/// | Ollama on this machine | `http://127.0.0.1:11434/v1` | `new` |
/// | Google | `https://generativelanguage.googleapis.com/v1beta/openai` | [`google`](Self::google) |
///
/// ```
/// use keywheel_provider::{OpenAiApi, Provider, api::GenerateRequest};
///
/// let request = GenerateRequest::from("Say hello").with_system("Be brief").with_max_output_tokens(100);
/// let call = OpenAiApi::new().generate("openai/gpt-oss-120b", &request)?;
/// assert_eq!(
///     call.body,
///     r#"{"max_tokens":100,"messages":[{"role":"system","content":"Be brief"},"#.to_owned()
///         + r#"{"role":"user","content":"Say hello"}],"model":"openai/gpt-oss-120b"}"#,
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What comes back is read into Gemini's words:
///
/// ```
/// use keywheel_provider::{OpenAiApi, Provider};
///
/// let api = OpenAiApi::new();
/// let vectors = br#"{"data": [{"index": 0, "embedding": [0.6, 0.8]}]}"#;
/// assert_eq!(api.read_embeddings(vectors)?.embeddings[0].values, [0.6, 0.8]);
/// let model = br#"{"id": "llama-3.1-8b-instant", "context_window": 131072}"#;
/// assert_eq!(api.read_model(model)?.input_token_limit, Some(131_072));
/// let models = br#"{"data": [{"id": "llama-3.1-8b-instant"}]}"#;
/// assert_eq!(api.read_models(models)?.models[0].name, "llama-3.1-8b-instant");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiApi {
    name: Cow<'static, str>,
    dialect: Dialect,
    max_tokens_field: &'static str,
    system_role: &'static str,
    stream_usage: bool,
    max_embed_batch: usize,
}

impl OpenAiApi {
    /// The form that nearly all of them accept.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            name: Cow::Borrowed("openai"),
            dialect: Dialect::OpenAi,
            max_tokens_field: "max_tokens",
            system_role: "system",
            stream_usage: true,
            max_embed_batch: 100,
        }
    }

    /// Google's compatibility layer, at `https://generativelanguage.googleapis.com/v1beta/openai`. Its errors are
    /// Gemini's; thinking settings and caches go as they are, and thought signatures come back.
    ///
    /// ```
    /// use keywheel_provider::{Dialect, OpenAiApi, Provider};
    ///
    /// assert_eq!(OpenAiApi::google().dialect(), Dialect::Gemini);
    /// ```
    #[must_use]
    pub fn google() -> Self {
        Self { dialect: Dialect::Gemini, ..Self::new().with_name("gcp.gemini") }
    }

    /// Sets the name in traces: `groq`, `mistral_ai`, `x_ai`, …. Defaults to `openai`.
    /// OpenTelemetry lists the names as `gen_ai.provider.name`.
    ///
    /// ```
    /// use keywheel_provider::{OpenAiApi, Provider};
    ///
    /// assert_eq!(OpenAiApi::new().with_name("groq").name(), "groq");
    /// ```
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sends the most tokens of an answer as `max_completion_tokens`: OpenAI's own reasoning models refuse
    /// `max_tokens`, which is the default because Groq, OpenRouter, Ollama and Google know it.
    ///
    /// ```
    /// use keywheel_provider::{OpenAiApi, Provider, api::GenerateRequest};
    ///
    /// let api = OpenAiApi::new().with_max_completion_tokens();
    /// let call = api.generate("gpt-5-nano", &GenerateRequest::from("Hi").with_max_output_tokens(9))?;
    /// assert!(call.body.bytes().unwrap().starts_with(b"{\"max_completion_tokens\":9,"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn with_max_completion_tokens(mut self) -> Self {
        self.max_tokens_field = "max_completion_tokens";
        self
    }

    /// Sends system instructions as messages of role `developer`, as OpenAI's newer models have it. They take
    /// `system`, the default, for the same; others know only that.
    ///
    /// ```
    /// use keywheel_provider::{OpenAiApi, Provider, api::GenerateRequest};
    ///
    /// let request = GenerateRequest::from("Say hello").with_system("Be brief");
    /// let call = OpenAiApi::new().with_developer_role().generate("gpt-5-nano", &request)?;
    /// let body: serde_json::Value = serde_json::from_slice(call.body.bytes().unwrap())?;
    /// assert_eq!(body["messages"][0]["role"], "developer");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn with_developer_role(mut self) -> Self {
        self.system_role = "developer";
        self
    }

    /// Does not ask for the usage of streams, for servers that refuse `stream_options`. Their streams are then
    /// charged at their estimate.
    ///
    /// ```
    /// use keywheel_provider::{OpenAiApi, Provider};
    ///
    /// let asks = |api: OpenAiApi| -> Result<bool, Box<dyn std::error::Error>> {
    ///     let call = api.stream("llama-3.1-8b-instant", &"Say hello".into())?;
    ///     let body: serde_json::Value = serde_json::from_slice(call.body.bytes().unwrap())?;
    ///     Ok(body.get("stream_options").is_some())
    /// };
    /// assert!(asks(OpenAiApi::new())?);
    /// assert!(!asks(OpenAiApi::new().without_stream_usage())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn without_stream_usage(mut self) -> Self {
        self.stream_usage = false;
        self
    }

    /// Sets how many texts one call for embeddings may have. Defaults to 100, which Google's layer takes, too;
    /// OpenAI takes 2,048. At least one.
    ///
    /// ```
    /// use keywheel_provider::{OpenAiApi, Provider};
    ///
    /// assert_eq!(OpenAiApi::new().with_max_embed_batch(2_048).max_embed_batch(), 2_048);
    /// ```
    #[must_use]
    pub const fn with_max_embed_batch(mut self, texts: usize) -> Self {
        self.max_embed_batch = if texts == 0 { 1 } else { texts };
        self
    }

    fn is_google(&self) -> bool {
        self.dialect == Dialect::Gemini
    }
}

impl Default for OpenAiApi {
    fn default() -> Self {
        Self::new()
    }
}

impl Provider for OpenAiApi {
    fn name(&self) -> &str {
        &self.name
    }

    fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn auth(&self) -> Auth {
        Auth::Bearer
    }

    fn default_version(&self) -> Option<&str> {
        None
    }

    fn generate(&self, model: &str, request: &GenerateRequest) -> Result<Call, CallError> {
        Ok(Call::post(CHAT, request::chat(self, checked(model)?, request, false)?))
    }

    fn stream(&self, model: &str, request: &GenerateRequest) -> Result<Call, CallError> {
        Ok(Call::post(CHAT, request::chat(self, checked(model)?, request, true)?))
    }

    fn embed(&self, model: &str, requests: &[EmbedRequest]) -> Result<Call, CallError> {
        Ok(Call::post("embeddings", embed::embed(checked(model)?, requests)?))
    }

    fn max_embed_batch(&self) -> usize {
        self.max_embed_batch
    }

    /// One, whatever it holds; at Google each text.
    fn embed_weight(&self, texts: usize) -> usize {
        if self.is_google() { texts } else { 1 }
    }

    fn count_tokens(
        &self,
        _model: &str,
        _request: &GenerateRequest,
    ) -> Result<Option<Call>, CallError> {
        Ok(None)
    }

    fn models(&self, _page: Option<&str>) -> Call {
        // There is but one page.
        Call::get("models")
    }

    fn model(&self, model: &str) -> Result<Call, CallError> {
        let model = checked(model)?;
        let in_path = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/".contains(&b);
        if !model.bytes().all(in_path) {
            return Err(CallError::Model(shorten(model)));
        }
        Ok(Call::get(format!("models/{model}")))
    }

    fn read_answer(&self, body: &[u8]) -> serde_json::Result<GenerateResponse> {
        answer::read_answer(body)
    }

    fn event_reader(&self) -> Box<dyn EventReader> {
        Box::<stream::Chunks>::default()
    }

    fn read_embeddings(&self, body: &[u8]) -> serde_json::Result<BatchEmbedResponse> {
        embed::read_embeddings(body)
    }

    fn read_count(&self, body: &[u8]) -> serde_json::Result<TokenCount> {
        serde_json::from_slice(body)
    }

    fn read_models(&self, body: &[u8]) -> serde_json::Result<ModelList> {
        models::read_models(body)
    }

    fn read_model(&self, body: &[u8]) -> serde_json::Result<Model> {
        models::read_model(body)
    }
}

const CHAT: &str = "chat/completions";

/// The name as it goes into the body: `llama3.2:latest`, `meta-llama/llama-3.3-70b-instruct:free`,
/// `@cf/meta/llama-3`. `models/x` is `x`, as in the list of models.
fn checked(model: &str) -> Result<&str, CallError> {
    refuse_key(model)?;
    let name = model.strip_prefix("models/").unwrap_or(model);
    if name.is_empty() || name.len() > 200 || !name.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(CallError::Model(shorten(model)));
    }
    Ok(name)
}

/// `field` has no place in these APIs.
fn unsupported(field: impl Into<String>) -> CallError {
    CallError::Unsupported(shorten(&field.into()))
}

fn shorten(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests;
