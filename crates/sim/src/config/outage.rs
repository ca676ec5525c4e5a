//! When a model is down.

use chrono::{DateTime, Utc};

/// A time in which every request for a model gets 503 "high demand", and is counted like any other.
///
/// ```
/// use keywheel_sim::{Limits, ModelConfig, Outage, SimConfig};
///
/// let outage = Outage {
///     model: "gemini-x".into(),
///     from: "2026-11-30T07:00:00Z".parse().unwrap(),
///     until: "2026-11-30T07:10:00Z".parse().unwrap(),
/// };
/// let config = SimConfig::new()
///     .with_model("gemini-x", ModelConfig::free(Limits::new()))
///     .with_outage(outage);
/// assert!(config.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// The model.
    pub model: String,
    /// The first moment at which it is down.
    pub from: DateTime<Utc>,
    /// The moment at which it is back.
    pub until: DateTime<Utc>,
}

impl Outage {
    pub(crate) fn covers(&self, model: &str, now: DateTime<Utc>) -> bool {
        self.model == model && self.from <= now && now < self.until
    }
}
