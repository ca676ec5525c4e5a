//! Gemini's own API: everything goes as it is.

use super::{Auth, EventReader, Provider};
use crate::{
    Dialect,
    api::{
        BatchEmbedResponse, EmbedRequest, GenerateRequest, GenerateResponse, Model, ModelList,
        TokenCount,
    },
    upstream::{Call, CallError, DEFAULT_VERSION},
};

/// <https://ai.google.dev/api/embeddings>
const MAX_EMBED_BATCH: usize = 100;

/// Google's Gemini Developer API.
///
/// ```
/// use keywheel_provider::{GeminiApi, Provider};
///
/// let vectors = GeminiApi.read_embeddings(br#"{"embeddings": [{"values": [0.6, 0.8]}]}"#)?;
/// assert_eq!(vectors.embeddings[0].values, [0.6, 0.8]);
/// assert_eq!(GeminiApi.read_count(br#"{"totalTokens": 31}"#)?.total_tokens, 31);
///
/// let page = br#"{"models": [{"name": "models/gemini-3.5-flash"}], "nextPageToken": "t"}"#;
/// let page = GeminiApi.read_models(page)?;
/// assert_eq!(page.next_page_token.as_deref(), Some("t"));
/// let model = br#"{"name": "models/gemini-3.5-flash", "inputTokenLimit": 1048576}"#;
/// assert_eq!(GeminiApi.read_model(model)?.name, page.models[0].name);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GeminiApi;

impl Provider for GeminiApi {
    fn name(&self) -> &str {
        "gcp.gemini"
    }

    fn dialect(&self) -> Dialect {
        Dialect::Gemini
    }

    fn auth(&self) -> Auth {
        Auth::GoogleKey
    }

    fn default_version(&self) -> Option<&str> {
        Some(DEFAULT_VERSION)
    }

    fn generate(&self, model: &str, request: &GenerateRequest) -> Result<Call, CallError> {
        Call::generate(model, request)
    }

    fn stream(&self, model: &str, request: &GenerateRequest) -> Result<Call, CallError> {
        Call::stream(model, request)
    }

    fn embed(&self, model: &str, requests: &[EmbedRequest]) -> Result<Call, CallError> {
        Call::embed_batch(model, requests)
    }

    fn max_embed_batch(&self) -> usize {
        MAX_EMBED_BATCH
    }

    /// Each text is a request: <https://github.com/garrytan/gbrain/issues/1922>.
    fn embed_weight(&self, texts: usize) -> usize {
        texts
    }

    fn count_tokens(
        &self,
        model: &str,
        request: &GenerateRequest,
    ) -> Result<Option<Call>, CallError> {
        Call::count_tokens(model, request).map(Some)
    }

    fn models(&self, page: Option<&str>) -> Call {
        Call::models_page(page, None)
    }

    fn model(&self, model: &str) -> Result<Call, CallError> {
        Call::model(model)
    }

    fn read_answer(&self, body: &[u8]) -> serde_json::Result<GenerateResponse> {
        serde_json::from_slice(body)
    }

    fn event_reader(&self) -> Box<dyn EventReader> {
        Box::new(Events)
    }

    fn read_embeddings(&self, body: &[u8]) -> serde_json::Result<BatchEmbedResponse> {
        serde_json::from_slice(body)
    }

    fn read_count(&self, body: &[u8]) -> serde_json::Result<TokenCount> {
        serde_json::from_slice(body)
    }

    fn read_models(&self, body: &[u8]) -> serde_json::Result<ModelList> {
        serde_json::from_slice(body)
    }

    fn read_model(&self, body: &[u8]) -> serde_json::Result<Model> {
        serde_json::from_slice(body)
    }
}

/// Every event is an answer of its own.
#[derive(Debug)]
struct Events;

impl EventReader for Events {
    fn read(&mut self, data: &[u8]) -> serde_json::Result<Option<GenerateResponse>> {
        serde_json::from_slice(data).map(Some)
    }
}
