//! Gemini's own API: everything goes as it is.

use super::{Auth, EventReader, Provider};
use crate::{
    Dialect,
    api::{GenerateRequest, GenerateResponse, Model, ModelList},
    upstream::{Call, CallError, DEFAULT_VERSION},
};

/// Google's Gemini Developer API.
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

    fn models(&self, page: Option<&str>) -> Call {
        match page {
            Some(token) => Call::models().with_query("pageToken", token),
            None => Call::models(),
        }
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
    fn read(&mut self, data: &[u8]) -> serde_json::Result<GenerateResponse> {
        serde_json::from_slice(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_of_models_is_asked_for_by_its_token() {
        assert_eq!(GeminiApi.models(None).query, []);
        let call = GeminiApi.models(Some("t"));
        assert_eq!(
            (call.path.as_str(), call.query),
            ("models", vec![("pageToken".into(), "t".into())])
        );
    }
}
