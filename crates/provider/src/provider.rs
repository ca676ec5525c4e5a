//! What a provider speaks: how a call becomes an HTTP request, and how what comes back is read.
//!
//! The words are Gemini's throughout ([`api`](crate::api)): a provider that speaks otherwise translates, both
//! ways. [`GeminiApi`] sends them as they are; [`OpenAiApi`] makes chat completions of them, for OpenAI and
//! everybody who copied its API. What a provider cannot express is refused by name, never left out.
//!
//! ```
//! use keywheel_provider::{OpenAiApi, Provider, api::GenerateRequest};
//!
//! let provider: Box<dyn Provider> = Box::new(OpenAiApi::new());
//! let call = provider.generate("llama-3.3-70b-versatile", &GenerateRequest::from("Say hello"))?;
//! assert_eq!(call.path, "chat/completions");
//!
//! let body = br#"{"choices": [{"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}"#;
//! assert_eq!(provider.read_answer(body)?.text(), "Hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod gemini;
mod openai;

use std::fmt;

pub use self::{gemini::GeminiApi, openai::OpenAiApi};
use crate::{
    Dialect,
    api::{
        BatchEmbedResponse, EmbedRequest, GenerateRequest, GenerateResponse, Model, ModelList,
        TokenCount,
    },
    upstream::{Call, CallError},
};

/// A provider's API: how it is asked, and how its answers are read.
///
/// Pure: it neither sends nor waits. [`Upstream`](crate::upstream::Upstream) holds one, and adds place and key.
/// Errors of the provider are not read here but by [`classify`](crate::classify()), which is told the
/// [`dialect`](Self::dialect). A `200` that holds an error in place of an answer is read as an answer without
/// candidates whose `extra` holds `error`.
///
/// What differs between two of them:
///
/// ```
/// use keywheel_provider::{GeminiApi, OpenAiApi, Provider, provider::Auth};
///
/// let (google, openai) = (GeminiApi, OpenAiApi::new());
/// assert_eq!((google.name(), openai.name()), ("gcp.gemini", "openai"));
/// assert_eq!((google.auth(), openai.auth()), (Auth::GoogleKey, Auth::Bearer));
/// assert_eq!((google.default_version(), openai.default_version()), (Some("v1beta"), None));
/// assert_eq!((google.max_embed_batch(), openai.max_embed_batch()), (100, 100));
/// // Google counts every text of a batch as a request, OpenAI the batch as one.
/// assert_eq!((google.embed_weight(5), openai.embed_weight(5)), (5, 1));
/// ```
pub trait Provider: fmt::Debug + Send + Sync {
    /// The name in traces: OpenTelemetry's `gen_ai.provider.name`, such as `gcp.gemini` or `openai`.
    fn name(&self) -> &str;

    /// Whose errors they are.
    fn dialect(&self) -> Dialect;

    /// How the key is sent.
    fn auth(&self) -> Auth;

    /// The API version that belongs between base URL and path, where neither setting nor base URL has one.
    /// `None`: the base URL is used as it is.
    fn default_version(&self) -> Option<&str>;

    /// Asks `model` for one whole answer.
    ///
    /// # Errors
    /// `model` is no name of a model, or the request holds what this provider cannot express.
    fn generate(&self, model: &str, request: &GenerateRequest) -> Result<Call, CallError>;

    /// Asks `model` for an answer as a stream of server-sent events.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    fn stream(&self, model: &str, request: &GenerateRequest) -> Result<Call, CallError>;

    /// Asks `model` for the vectors of `requests`, one for each, in one call: at most
    /// [`max_embed_batch`](Self::max_embed_batch).
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    fn embed(&self, model: &str, requests: &[EmbedRequest]) -> Result<Call, CallError>;

    /// The most requests that one [`embed`](Self::embed) takes.
    fn max_embed_batch(&self) -> usize;

    /// As how many requests one [`embed`](Self::embed) of so many texts counts against the quota.
    fn embed_weight(&self, texts: usize) -> usize;

    /// Asks how many tokens `request` has. `None`: this provider does not say.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    fn count_tokens(
        &self,
        model: &str,
        request: &GenerateRequest,
    ) -> Result<Option<Call>, CallError>;

    /// Asks for a page of the list of models, the first without `page`. Also the free way to see whether a key
    /// works.
    fn models(&self, page: Option<&str>) -> Call;

    /// Asks what is known of one model.
    ///
    /// # Errors
    /// `model` is no name of a model.
    fn model(&self, model: &str) -> Result<Call, CallError>;

    /// Reads the body of a reply to [`generate`](Self::generate).
    ///
    /// # Errors
    /// It is no JSON, or JSON of another form.
    fn read_answer(&self, body: &[u8]) -> serde_json::Result<GenerateResponse>;

    /// A reader of the events of one reply to [`stream`](Self::stream).
    fn event_reader(&self) -> Box<dyn EventReader>;

    /// Reads the body of a reply to [`embed`](Self::embed).
    ///
    /// # Errors
    /// As [`read_answer`](Self::read_answer).
    fn read_embeddings(&self, body: &[u8]) -> serde_json::Result<BatchEmbedResponse>;

    /// Reads the body of a reply to [`count_tokens`](Self::count_tokens).
    ///
    /// # Errors
    /// As [`read_answer`](Self::read_answer).
    fn read_count(&self, body: &[u8]) -> serde_json::Result<TokenCount>;

    /// Reads the body of a reply to [`models`](Self::models).
    ///
    /// # Errors
    /// As [`read_answer`](Self::read_answer).
    fn read_models(&self, body: &[u8]) -> serde_json::Result<ModelList>;

    /// Reads the body of a reply to [`model`](Self::model).
    ///
    /// # Errors
    /// As [`read_answer`](Self::read_answer).
    fn read_model(&self, body: &[u8]) -> serde_json::Result<Model>;
}

/// Reads the events of one stream, in their order. Keeps what has to be put together from several.
///
/// ```
/// use keywheel_provider::{OpenAiApi, Provider};
///
/// let mut reader = OpenAiApi::new().event_reader();
/// let event = reader.read(br#"{"choices": [{"delta": {"content": "Hello"}}]}"#)?;
/// assert_eq!(event.unwrap().text(), "Hello");
/// assert!(reader.read(b"no JSON").is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
pub trait EventReader: fmt::Debug + Send {
    /// What the data of one event says; `None` where it says nothing of its own. Never asked about an empty
    /// event or `[DONE]`.
    ///
    /// # Errors
    /// It is no JSON, or JSON of another form.
    fn read(&mut self, data: &[u8]) -> serde_json::Result<Option<GenerateResponse>>;
}

/// How a key is sent. Always in a header, and always exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Auth {
    /// `x-goog-api-key`.
    GoogleKey,
    /// `Authorization: Bearer …`.
    Bearer,
}
