//! What was counted, as plain numbers that can be added up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was asked of one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ModelUse {
    /// HTTP requests that were sent, whatever came of them: each may have been counted by the provider.
    pub attempts: u64,
    /// Those among them that asked again what had been asked before, for the same call.
    pub retries: u64,
    /// What the attempts weigh in the provider's count: a batch of embeddings weighs its texts, all else one.
    pub requests: u64,
}

/// What was done in one step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StepUse {
    /// Calls the app made.
    pub calls: u64,
    /// Texts that the provider turned into vectors.
    pub embedded: u64,
    /// Vectors that came from the cache.
    pub cache_hits: u64,
    /// By model. Calls that draw on no model's quota stand under their route: `api:countTokens`.
    pub models: BTreeMap<String, ModelUse>,
}

impl StepUse {
    /// All models together.
    #[must_use]
    pub fn total(&self) -> ModelUse {
        let mut total = ModelUse::default();
        self.models.values().for_each(|of_model| total.add(of_model));
        total
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.embedded = self.embedded.saturating_add(other.embedded);
        self.cache_hits = self.cache_hits.saturating_add(other.cache_hits);
        for (model, of_model) in &other.models {
            self.models.entry(model.clone()).or_default().add(of_model);
        }
    }

    /// This without what stands in `earlier`, which was read before.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let models = self.models.iter().map(|(model, of_model)| {
            let before = earlier.models.get(model).copied().unwrap_or_default();
            (model.clone(), of_model.since(&before))
        });
        Self {
            calls: self.calls.saturating_sub(earlier.calls),
            embedded: self.embedded.saturating_sub(earlier.embedded),
            cache_hits: self.cache_hits.saturating_sub(earlier.cache_hits),
            models: models.collect(),
        }
    }
}

impl ModelUse {
    pub(super) fn add(&mut self, other: &Self) {
        self.attempts = self.attempts.saturating_add(other.attempts);
        self.retries = self.retries.saturating_add(other.retries);
        self.requests = self.requests.saturating_add(other.requests);
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            attempts: self.attempts.saturating_sub(earlier.attempts),
            retries: self.retries.saturating_sub(earlier.retries),
            requests: self.requests.saturating_sub(earlier.requests),
        }
    }
}
