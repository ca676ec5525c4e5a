//! A simulator for one example, and a client builder that talks to it.
//!
//! In a program of your own, `Gemini::from_env()` takes the place of all this.

use std::sync::Arc;

use keywheel::{Gemini, GeminiBuilder, KeySpec, StateLocation, SystemClock};
use keywheel_core::ApiKey;
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimServer};

use crate::demo::Failure;

/// The model that the examples ask for.
pub const LITE: &str = "gemini-3.5-flash-lite";

/// One with a smaller quota.
pub const FLASH: &str = "gemini-3.6-flash";

/// The model for embeddings.
pub const EMBEDDING: &str = "gemini-embedding-001";

/// A running simulator and the keys that it knows.
#[derive(Debug)]
pub struct Stand {
    server: SimServer,
    keys: Vec<KeySpec>,
}

impl Stand {
    /// Starts a simulator with `projects` quota projects of one key each. Every model there has the limits that
    /// `limits` gives for its name.
    ///
    /// # Errors
    /// No port is to be had.
    pub async fn start(projects: usize, limits: impl Fn(&str) -> Limits) -> Result<Self, Failure> {
        let config = SimConfig::new()
            .with_model(LITE, ModelConfig::free(limits(LITE)))
            .with_model(FLASH, ModelConfig::free(limits(FLASH)))
            .with_model(EMBEDDING, ModelConfig::embedding(limits(EMBEDDING)));
        let mut keys = Vec::new();
        for number in 1..=projects {
            let key = ApiKey::new(format!("AQ.EXAMPLE-stand-{number}"))?;
            keys.push(KeySpec::new(key, format!("GEMINI_API_KEY_{number}")));
        }
        Self::with(config, keys).await
    }

    /// Starts a simulator of `config`, to which a quota project is added for each of `keys`.
    ///
    /// # Errors
    /// No port is to be had, or `config` is at fault.
    pub async fn with(mut config: SimConfig, keys: Vec<KeySpec>) -> Result<Self, Failure> {
        for key in &keys {
            let project = ProjectConfig::new(key.label.clone()).with_key(key.key.clone());
            let paid = key.tier == keywheel_core::Tier::Paid;
            config = config.with_project(if paid { project.paid() } else { project });
        }
        Ok(Self { server: SimServer::start(config, Arc::new(SystemClock)).await?, keys })
    }

    /// A client of the simulator that keeps nothing on disk.
    pub fn client(&self) -> GeminiBuilder {
        self.without_keys().keys(self.keys.iter().cloned())
    }

    /// The same, but that its keys come from elsewhere.
    pub fn without_keys(&self) -> GeminiBuilder {
        Gemini::builder().base_url(self.server.base_url()).state(StateLocation::None)
    }

    /// The simulator, for its statistics.
    #[must_use]
    pub const fn server(&self) -> &SimServer {
        &self.server
    }
}
