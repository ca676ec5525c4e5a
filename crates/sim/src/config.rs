//! What a simulated Google looks like: models, quota projects, keys, faults.

mod check;
mod faults;
mod files;
mod model;
mod outage;
mod project;
mod read;

use std::{collections::BTreeMap, time::Duration};

pub use faults::Faults;
pub use files::FilesConfig;
pub use model::{ModelConfig, Signatures};
pub use outage::Outage;
pub use project::{KeyConfig, KeyState, ProjectConfig, ProjectState};
pub use read::ConfigErrors;

/// Everything a [`World`](crate::World) is made of. Built in code or read from TOML.
///
/// ```
/// use keywheel_core::ApiKey;
/// use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig};
///
/// let config = SimConfig::new()
///     .with_model("gemini-3.5-flash-lite", ModelConfig::free(Limits::new().rpm(15).rpd(500)))
///     .with_project(ProjectConfig::new("alpha").with_key(ApiKey::new("AQ.EXAMPLE-1").unwrap()));
/// assert!(config.check().is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Whose API it looks like. Default Gemini's.
    pub face: Face,
    /// Seeds every random choice: the same seed gives the same faults. Default 1.
    pub seed: u64,
    /// How minutes are counted. Default rolling.
    pub windows: Windows,
    /// What a refusal for the day says about its end. Default [`DayHint::Short`].
    pub day_hint: DayHint,
    /// How long an answer takes, drawn evenly between the two. Errors take a tenth of it. Default none.
    pub latency: (Duration, Duration),
    /// The pause between two chunks of a stream. Default none.
    pub chunk_pause: Duration,
    /// What becomes of a key that no project has. Default [`UnknownKeys::Invalid`].
    pub unknown_keys: UnknownKeys,
    /// The models, by the name they are asked for.
    pub models: BTreeMap<String, ModelConfig>,
    /// The quota projects.
    pub projects: Vec<ProjectConfig>,
    /// What goes wrong, and how often. Default nothing.
    pub faults: Faults,
    /// When models are down. Default never.
    pub outages: Vec<Outage>,
    /// How uploaded files are kept.
    pub files: FilesConfig,
    /// The smallest prompt that can be cached, in tokens. Default 1,024.
    pub cache_min_tokens: u64,
    /// Whether bodies are compressed for those who accept it, streams event by event. Default false.
    pub gzip: bool,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            face: Face::default(),
            seed: 1,
            windows: Windows::default(),
            day_hint: DayHint::default(),
            latency: (Duration::ZERO, Duration::ZERO),
            chunk_pause: Duration::ZERO,
            unknown_keys: UnknownKeys::default(),
            models: BTreeMap::new(),
            projects: Vec::new(),
            faults: Faults::default(),
            outages: Vec::new(),
            files: FilesConfig::default(),
            cache_min_tokens: 1_024,
            gzip: false,
        }
    }
}

impl SimConfig {
    /// A world without models and without keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model, or replaces the one of that name.
    #[must_use]
    pub fn with_model(mut self, name: impl Into<String>, model: ModelConfig) -> Self {
        self.models.insert(name.into(), model);
        self
    }

    /// Adds a quota project.
    #[must_use]
    pub fn with_project(mut self, project: ProjectConfig) -> Self {
        self.projects.push(project);
        self
    }

    /// Sets what goes wrong, and how often.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keywheel_sim::{Faults, Limits, ModelConfig, SimConfig};
    ///
    /// let faults = Faults { overloaded: 0.01, reset: 0.001, ..Faults::default() };
    /// let config = SimConfig::new()
    ///     .with_model("gemini-x", ModelConfig::free(Limits::new()))
    ///     .with_faults(faults)
    ///     .with_seed(7) // other requests meet them than with the default of 1
    ///     .with_latency(Duration::from_secs(1), Duration::from_secs(5));
    /// assert!(config.check().is_ok());
    ///
    /// let impossible = Faults { html: 1.5, ..Faults::default() };
    /// assert!(config.with_faults(impossible).check().is_err());
    /// ```
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Sets whose API it looks like.
    #[must_use]
    pub const fn with_face(mut self, face: Face) -> Self {
        self.face = face;
        self
    }

    /// Adds a time in which a model is down.
    #[must_use]
    pub fn with_outage(mut self, outage: Outage) -> Self {
        self.outages.push(outage);
        self
    }

    /// Sets how uploaded files are kept.
    #[must_use]
    pub const fn with_files(mut self, files: FilesConfig) -> Self {
        self.files = files;
        self
    }

    /// Sets the seed.
    #[must_use]
    pub const fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets how long answers take: evenly drawn from `from` to `to`.
    #[must_use]
    pub const fn with_latency(mut self, from: Duration, to: Duration) -> Self {
        self.latency = (from, to);
        self
    }

    /// Reads the format of `examples/sim.toml`.
    ///
    /// # Errors
    /// All that is wrong with it, at once, each fault with its place.
    pub fn from_toml(text: &str) -> Result<Self, ConfigErrors> {
        read::from_toml(text)
    }

    /// The faults of the models that have rates of their own.
    pub(crate) fn faults_of_models(&self) -> BTreeMap<String, Faults> {
        let own =
            |(name, model): (&String, &ModelConfig)| Some((name.clone(), model.faults.clone()?));
        self.models.iter().filter_map(own).collect()
    }

    /// Checks what types cannot: rates within 0 to 1, no key twice, names that exist.
    ///
    /// # Errors
    /// All that is wrong, at once. [`World::new`](crate::World::new) checks too.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        let faults = check::faults(self);
        if faults.is_empty() { Ok(()) } else { Err(ConfigErrors(faults)) }
    }
}

/// Whose API a world looks like. Quotas, faults and answers are the same.
///
/// ```
/// use keywheel_sim::{Face, Limits, ModelConfig, SimConfig};
///
/// let config = SimConfig::new()
///     .with_face(Face::OpenAi)
///     .with_model("example-large", ModelConfig::free(Limits::new().rpm(3).tpm(10_000)));
/// assert!(config.check().is_ok());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Face {
    /// The Gemini API, with its OpenAI-style layer under `/v1beta/openai`.
    #[default]
    Gemini,
    /// An OpenAI-style provider under `/v1` and `/openai/v1`: `x-ratelimit-*` headers on every call,
    /// `Retry-After` on refusals, and errors that are objects.
    #[serde(rename = "openai")]
    OpenAi,
}

/// How minutes are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Windows {
    /// The last 60 seconds, whenever they began.
    #[default]
    Rolling,
    /// From one full minute of the clock to the next.
    Fixed,
}

/// What a refusal for a spent day says about its end.
///
/// Both forms are real: free keys got a few seconds, counting down to the end of the minute, until
/// about September 2026, and hours since (corpus cases 003 and 004).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DayHint {
    /// The seconds to the end of the minute: useless, and the common form.
    #[default]
    Short,
    /// The true time to the reset.
    Hours,
    /// No delay at all.
    None,
}

/// What becomes of a key that no project of the configuration has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownKeys {
    /// "API key not valid".
    #[default]
    Invalid,
    /// A free quota project of its own.
    OwnProject,
}

/// What a quota project may spend on a model. `None` is no limit, 0 is no quota at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Requests per minute.
    pub rpm: Option<u64>,
    /// Input tokens per minute.
    pub tpm: Option<u64>,
    /// Requests per quota day.
    pub rpd: Option<u64>,
    /// Input tokens per quota day.
    pub tpd: Option<u64>,
}

impl Limits {
    /// No limit at all.
    #[must_use]
    pub const fn new() -> Self {
        Self { rpm: None, tpm: None, rpd: None, tpd: None }
    }

    /// No quota at all: what free keys get for the large models.
    #[must_use]
    pub const fn nothing() -> Self {
        Self { rpm: Some(0), tpm: Some(0), rpd: Some(0), tpd: Some(0) }
    }

    /// Limits the requests per minute.
    #[must_use]
    pub const fn rpm(self, limit: u64) -> Self {
        Self { rpm: Some(limit), ..self }
    }

    /// Limits the input tokens per minute.
    #[must_use]
    pub const fn tpm(self, limit: u64) -> Self {
        Self { tpm: Some(limit), ..self }
    }

    /// Limits the requests per quota day.
    #[must_use]
    pub const fn rpd(self, limit: u64) -> Self {
        Self { rpd: Some(limit), ..self }
    }

    /// Limits the input tokens per quota day.
    #[must_use]
    pub const fn tpd(self, limit: u64) -> Self {
        Self { tpd: Some(limit), ..self }
    }
}
