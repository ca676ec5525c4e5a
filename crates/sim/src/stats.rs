//! What the simulator counted: the truth that clients are measured against.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use keywheel_core::{Dimension, Fingerprint};

use crate::reply::Outcome;

/// Everything counted since the world began.
///
/// ```
/// # use http::{HeaderMap, Method};
/// # use keywheel_core::ApiKey;
/// # use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimRequest, World};
/// # let key = ApiKey::new("AQ.EXAMPLE-1").unwrap();
/// let config = SimConfig::new()
///     .with_model("gemini-x", ModelConfig::free(Limits::new().rpm(1)))
///     .with_project(ProjectConfig::new("alpha").with_key(key.clone()));
/// let mut world = World::new(config).unwrap();
/// # let mut headers = HeaderMap::new();
/// # headers.insert("x-goog-api-key", key.expose().parse().unwrap());
/// # let target = "/v1beta/models/gemini-x:generateContent";
/// # let body = r#"{"contents":[{"parts":[{"text":"Hello"}]}]}"#;
/// # let request = SimRequest::new(Method::POST, target, headers, body);
/// # let now = "2026-11-30T12:00:00Z".parse().unwrap();
/// for _ in 0..3 {
///     world.handle(&request, now);
/// }
/// let stats = world.stats();
/// let tally = stats.bucket("alpha", "gemini-x");
/// assert_eq!((tally.served, tally.refused, tally.over_minute, tally.counted), (1, 2, 2, 1));
/// assert_eq!((stats.served(), stats.refused(), stats.faulted()), (1, 2, 0));
/// assert_eq!(stats.refused_per_bucket()[&("alpha", "gemini-x")], 2);
/// assert_eq!(stats.refused_per_bucket_max(), 2);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// By quota project, model and quota day.
    pub buckets: BTreeMap<BucketDay, Tally>,
    /// By key, over all models.
    pub keys: BTreeMap<Fingerprint, Tally>,
    /// Requests whose key no project has, or that had none.
    pub strangers: u64,
}

/// One quota project and model on one quota day.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct BucketDay {
    /// The quota project's name.
    pub project: String,
    /// The model that was asked for.
    pub model: String,
    /// The quota day, in the project's zone.
    pub date: NaiveDate,
}

/// What became of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Answered whole.
    pub served: u64,
    /// Answered with 429, whatever for.
    pub refused: u64,
    /// Those of `refused` that went over a limit per minute.
    pub over_minute: u64,
    /// Those of `refused` that went over a limit per day.
    pub over_day: u64,
    /// Met a fault: a 5xx, half an answer, no answer.
    pub faulted: u64,
    /// Answered with another error.
    pub rejected: u64,
    /// Counted against the quota, in requests: a batch of texts counts as many.
    pub counted: u64,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome, status: Option<u16>, counted: u64) {
        self.counted += counted;
        if status == Some(429) {
            self.refused += 1;
        }
        match outcome {
            Outcome::Served => self.served += 1,
            Outcome::OverLimit { dimensions, .. } => {
                let per_day = |d: &Dimension| matches!(d, Dimension::Rpd | Dimension::Tpd);
                self.over_day += u64::from(dimensions.iter().any(per_day));
                self.over_minute += u64::from(!dimensions.iter().all(per_day));
            }
            Outcome::Faulted(_) => self.faulted += u64::from(status != Some(429)),
            Outcome::Refused(_) | Outcome::NoSuchPath => {
                self.rejected += u64::from(status != Some(429));
            }
        }
    }
}

impl Stats {
    /// Requests answered whole.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.buckets.values().map(|tally| tally.served).sum()
    }

    /// Requests answered with 429.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.buckets.values().map(|tally| tally.refused).sum()
    }

    /// Requests that met a fault.
    #[must_use]
    pub fn faulted(&self) -> u64 {
        self.buckets.values().map(|tally| tally.faulted).sum()
    }

    /// The 429s of every quota project and model, over all days.
    #[must_use]
    pub fn refused_per_bucket(&self) -> BTreeMap<(&str, &str), u64> {
        let mut out = BTreeMap::new();
        for (bucket, tally) in &self.buckets {
            let key = (bucket.project.as_str(), bucket.model.as_str());
            *out.entry(key).or_default() += tally.refused;
        }
        out
    }

    /// The most 429s that one quota project and model gave.
    #[must_use]
    pub fn refused_per_bucket_max(&self) -> u64 {
        self.refused_per_bucket().into_values().max().unwrap_or(0)
    }

    /// The counts of one project and model on all days together.
    #[must_use]
    pub fn bucket(&self, project: &str, model: &str) -> Tally {
        let mine = |bucket: &BucketDay| bucket.project == project && bucket.model == model;
        let mut sum = Tally::default();
        for (_, tally) in self.buckets.iter().filter(|(bucket, _)| mine(bucket)) {
            let Tally { served, refused, over_minute, over_day, faulted, rejected, counted } =
                *tally;
            sum.served += served;
            sum.refused += refused;
            sum.over_minute += over_minute;
            sum.over_day += over_day;
            sum.faulted += faulted;
            sum.rejected += rejected;
            sum.counted += counted;
        }
        sum
    }

    /// All of it but the keys, for those who ask over HTTP.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        #[derive(serde::Serialize)]
        struct Entry<'a> {
            #[serde(flatten)]
            bucket: &'a BucketDay,
            #[serde(flatten)]
            tally: &'a Tally,
        }
        let buckets = self.buckets.iter().map(|(bucket, tally)| Entry { bucket, tally });
        serde_json::json!({
            "served": self.served(),
            "refused": self.refused(),
            "faulted": self.faulted(),
            "strangers": self.strangers,
            "buckets": buckets.collect::<Vec<_>>(),
        })
    }

    pub(crate) fn note(
        &mut self,
        bucket: Option<BucketDay>,
        key: Option<Fingerprint>,
        outcome: &Outcome,
        status: Option<u16>,
        counted: u64,
    ) {
        match key {
            Some(key) => self.keys.entry(key).or_default().add(outcome, status, counted),
            None => self.strangers += 1,
        }
        if let Some(bucket) = bucket {
            self.buckets.entry(bucket).or_default().add(outcome, status, counted);
        }
    }
}
