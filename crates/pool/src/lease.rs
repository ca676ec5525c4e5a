//! Permission for one attempt with one key.

use std::{future::Future, sync::Arc};

use keywheel_core::{ApiKey, Effect, Fingerprint, LimitSeen, Tier, Usage};

use crate::{Refusal, Reported};

/// Permission for one attempt with one key; holds its share of the bucket's windows.
#[derive(Debug)]
#[must_use = "a lease that is dropped gives its share back"]
pub struct Lease {
    key: ApiKey,
    label: Arc<str>,
    project: Arc<str>,
    model: Arc<str>,
}

impl Lease {
    /// The key to send with.
    #[must_use]
    pub fn key(&self) -> &ApiKey {
        &self.key
    }

    /// The key's identity in logs and in [`Ask::exclude`](crate::Ask::exclude).
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.key.fingerprint()
    }

    /// What the owner calls the key.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The quota project that is charged.
    #[must_use]
    pub fn quota_project(&self) -> &str {
        &self.project
    }

    /// The model that was asked for.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The key's tier, as believed when it was leased.
    #[must_use]
    pub fn tier(&self) -> Tier {
        Tier::Free
    }

    /// This attempt goes beyond what is believed: it may well be refused.
    #[must_use]
    pub fn is_exploration(&self) -> bool {
        false
    }

    /// Says that the request leaves now.
    pub fn sent(&mut self) {}

    /// The request was served.
    pub fn served(self, usage: &Usage) {
        self.served_with(usage, &[]);
    }

    /// The request was served, and the reply named limits.
    pub fn served_with(self, usage: &Usage, limits: &[LimitSeen]) {
        let _ = (usage, limits);
    }

    /// The request was refused.
    pub fn refused(self, refusal: &Refusal) -> impl Future<Output = Reported> + Send + use<> {
        let _ = refusal;
        std::future::ready(Reported { persisted: false, until: None })
    }

    /// The request failed and no key is to blame: counted.
    pub fn failed(self, effects: &[Effect]) {
        let _ = effects;
    }
}
