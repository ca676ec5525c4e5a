//! What a virtual day is made of.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use keywheel_core::ApiKey;

use crate::{
    config::{Faults, Limits, ModelConfig, ProjectConfig, SimConfig},
    random,
};

/// The traffic, the quotas and the faults of a virtual day.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Keys, each of a quota project of its own. Default 21.
    pub keys: usize,
    /// Requests a key may make on a quota day. Default 500.
    pub per_day: u64,
    /// Requests a key may make in any minute. Default 15.
    pub per_minute: u64,
    /// Calls a second, on average. Default 0.5: twice what the keys can serve in a day.
    pub rate: f64,
    /// When it begins. Default 08:00 Pacific on 2026-11-29: sixteen hours of one quota day, ten of the next.
    pub starts_at: DateTime<Utc>,
    /// How long it takes. Default 26 hours.
    pub length: Duration,
    /// The share of counted requests that fail with 503. Default 1 %.
    pub overloaded: f64,
    /// The share of refusals for a quota that come without details. Default 5 %.
    pub bare_429: f64,
    /// The share of requests that get a 429 without details though no limit was met. Default none.
    pub spurious_429: f64,
    /// How long an answer takes. Default 1 to 5 seconds.
    pub latency: (Duration, Duration),
    /// How long a call may take. Default one minute.
    pub deadline: Duration,
    /// Seeds arrivals and faults. Default 1.
    pub seed: u64,
    /// The model. Default gemini-3.5-flash-lite.
    pub model: String,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            keys: 21,
            per_day: 500,
            per_minute: 15,
            rate: 0.5,
            starts_at: DateTime::from_timestamp_millis(1_795_968_000_000)
                .expect("a moment in range"),
            length: Duration::from_secs(26 * 3_600),
            overloaded: 0.01,
            bare_429: 0.05,
            spurious_429: 0.0,
            latency: (Duration::from_secs(1), Duration::from_secs(5)),
            deadline: Duration::from_secs(60),
            seed: 1,
            model: "gemini-3.5-flash-lite".into(),
        }
    }
}

impl Plan {
    /// When it ends.
    #[must_use]
    pub fn ends_at(&self) -> DateTime<Utc> {
        self.starts_at + delta(self.length)
    }

    /// When the app is restarted: in the middle.
    #[must_use]
    pub fn restarts_at(&self) -> DateTime<Utc> {
        self.starts_at + delta(self.length / 2)
    }

    /// The moments at which calls arrive, in order.
    #[must_use]
    pub fn arrivals(&self) -> Vec<DateTime<Utc>> {
        let mut rng = random::generator(self.seed, &[b"arrivals"]);
        let end_s = self.length.as_secs_f64();
        let mut out = Vec::new();
        let mut at_s = 0.0;
        loop {
            // The gaps of a Poisson process are exponential.
            at_s += -(1.0 - rng.f64()).ln() / self.rate;
            if at_s >= end_s {
                return out;
            }
            out.push(self.starts_at + TimeDelta::milliseconds((at_s * 1_000.0) as i64));
        }
    }

    /// The simulated provider.
    #[must_use]
    pub fn world(&self) -> SimConfig {
        let limits = Limits::new().rpm(self.per_minute).rpd(self.per_day);
        let faults = Faults {
            overloaded: self.overloaded,
            bare_429: self.bare_429,
            spurious_429: self.spurious_429,
            ..Faults::default()
        };
        let config = SimConfig::new()
            .with_seed(self.seed)
            .with_latency(self.latency.0, self.latency.1)
            .with_faults(faults)
            .with_model(self.model.as_str(), ModelConfig::free(limits));
        (1..=self.keys).fold(config, |config, i| {
            let key = ApiKey::new(format!("AQ.EXAMPLE-day-{i:05}")).expect("a well-formed key");
            config.with_project(ProjectConfig::new(format!("project-{i:02}")).with_key(key))
        })
    }
}

fn delta(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}
