//! OpenAI's API, and that of everybody who copied it: chat completions, embeddings, models.

use super::{Auth, EventReader, Provider};
use crate::{
    Dialect,
    api::{
        BatchEmbedResponse, EmbedRequest, GenerateRequest, GenerateResponse, Model, ModelList,
        TokenCount,
    },
    upstream::{Call, CallError},
};

/// An OpenAI-compatible provider: OpenAI, Groq, OpenRouter, Mistral, Ollama, Google's `/openai`, ….
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiApi {
    dialect: Dialect,
}

impl OpenAiApi {
    /// What nearly all of them accept.
    #[must_use]
    pub const fn new() -> Self {
        Self { dialect: Dialect::OpenAi }
    }
}

impl Default for OpenAiApi {
    fn default() -> Self {
        Self::new()
    }
}

impl Provider for OpenAiApi {
    fn name(&self) -> &str {
        "openai"
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

    fn generate(&self, _model: &str, _request: &GenerateRequest) -> Result<Call, CallError> {
        Err(unfinished())
    }

    fn stream(&self, _model: &str, _request: &GenerateRequest) -> Result<Call, CallError> {
        Err(unfinished())
    }

    fn embed(&self, _model: &str, _requests: &[EmbedRequest]) -> Result<Call, CallError> {
        Err(unfinished())
    }

    fn max_embed_batch(&self) -> usize {
        100
    }

    fn count_tokens(
        &self,
        _model: &str,
        _request: &GenerateRequest,
    ) -> Result<Option<Call>, CallError> {
        Ok(None)
    }

    fn models(&self, _page: Option<&str>) -> Call {
        Call::get("models")
    }

    fn model(&self, _model: &str) -> Result<Call, CallError> {
        Err(unfinished())
    }

    fn read_answer(&self, body: &[u8]) -> serde_json::Result<GenerateResponse> {
        serde_json::from_slice(body)
    }

    fn event_reader(&self) -> Box<dyn EventReader> {
        super::GeminiApi.event_reader()
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

fn unfinished() -> CallError {
    CallError::Body("this provider's chat completions are not made yet".to_owned())
}
