//! Counters of a client: atomics inside, a plain struct outside.

use std::{
    array,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use foldhash::HashMap;
use keywheel_core::{Cause, Usage};
use serde::Serialize;

/// More models than anybody uses; what is asked of others is counted in the sums only. A model that answers takes the
/// place of one that never did: those may be names that somebody made up.
const MOST_MODELS: usize = 1_000;

/// What a client and its clones have done since it was built: see [`Gemini::counters`](crate::Gemini::counters).
///
/// Every number only grows. They are read one after the other while calls go on, so a sum may be one ahead of its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Calls that were begun: each is served, given up, degraded, dropped by its caller, or under way. What takes
    /// several requests of different things, such as many texts, an upload or a list, is a call for each of them.
    pub calls: u64,
    /// Requests that were sent.
    pub attempts: u64,
    /// Requests that were answered, those of streams that were whole included.
    pub served: u64,
    /// Requests that were refused, by cause.
    pub refused: BTreeMap<&'static str, u64>,
    /// Requests that brought nothing, or no whole answer: broken connections, empty replies, deadlines. Those that
    /// their caller dropped are not counted as anything but attempts.
    pub failed: u64,
    /// Calls that ended with an error.
    pub gave_up: u64,
    /// Requests that repeated a failed one.
    pub retries: u64,
    /// Calls that another model of the chain served.
    pub fallbacks: u64,
    /// Calls that the degradation callback answered.
    pub degraded: u64,
    /// How long calls waited for keys and between retries, added up, in milliseconds.
    pub waited_ms: u64,
    /// Tokens that were read, tool results included.
    pub input_tokens: u64,
    /// Tokens that were written, thinking included.
    pub output_tokens: u64,
    /// Vectors that came from the embedding cache, or were there already when a call was resumed, and cost no request.
    pub cache_hits: u64,
    /// The same by model, for 1,000 at most. Only those that have answered are sure of their place.
    pub models: BTreeMap<String, ModelCounters>,
}

/// What was asked of one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ModelCounters {
    /// Requests that were sent.
    pub attempts: u64,
    /// Requests that were answered.
    pub served: u64,
    /// Calls that it served in another model's place.
    pub fallbacks: u64,
    /// Tokens that were read.
    pub input_tokens: u64,
    /// Tokens that were written.
    pub output_tokens: u64,
}

/// The atomics behind [`Counters`].
#[derive(Debug)]
pub(crate) struct Counting {
    calls: AtomicU64,
    failed: AtomicU64,
    refused: [AtomicU64; Cause::ALL.len()],
    gave_up: AtomicU64,
    retries: AtomicU64,
    degraded: AtomicU64,
    waited_ms: AtomicU64,
    cache_hits: AtomicU64,
    sums: OfModel,
    models: Mutex<HashMap<Arc<str>, OfModel>>,
}

#[derive(Debug, Default)]
struct OfModel {
    attempts: AtomicU64,
    served: AtomicU64,
    fallbacks: AtomicU64,
    input_tokens: AtomicU64,
    output_tokens: AtomicU64,
}

impl Default for Counting {
    fn default() -> Self {
        Self {
            calls: AtomicU64::default(),
            failed: AtomicU64::default(),
            refused: array::from_fn(|_| AtomicU64::default()),
            gave_up: AtomicU64::default(),
            retries: AtomicU64::default(),
            degraded: AtomicU64::default(),
            waited_ms: AtomicU64::default(),
            cache_hits: AtomicU64::default(),
            sums: OfModel::default(),
            models: Mutex::default(),
        }
    }
}

impl Counting {
    pub(crate) fn called(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    pub(crate) fn attempted(&self, model: &Arc<str>) {
        self.of(model, |counts| &counts.attempts, 1);
    }

    pub(crate) fn served(&self, model: &Arc<str>, usage: &Usage) {
        self.of(model, |counts| &counts.served, 1);
        self.of(model, |counts| &counts.input_tokens, usage.input.saturating_add(usage.tool));
        self.of(model, |counts| &counts.output_tokens, usage.output.saturating_add(usage.thinking));
    }

    pub(crate) fn fell_back(&self, model: &Arc<str>) {
        self.of(model, |counts| &counts.fallbacks, 1);
    }

    pub(crate) fn refused(&self, cause: Cause) {
        if let Some(place) = Cause::ALL.iter().position(|known| *known == cause) {
            self.refused[place].fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn gave_up(&self) {
        self.gave_up.fetch_add(1, Relaxed);
    }

    pub(crate) fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    pub(crate) fn degraded(&self) {
        self.degraded.fetch_add(1, Relaxed);
    }

    pub(crate) fn waited(&self, ms: u64) {
        self.waited_ms.fetch_add(ms, Relaxed);
    }

    pub(crate) fn cache_hits(&self, texts: u64) {
        self.cache_hits.fetch_add(texts, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let refused = Cause::ALL.iter().zip(&self.refused);
        let refused = refused.map(|(cause, count)| (cause.as_str(), read(count)));
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let by_model = models.iter().map(|(model, counts)| {
            let counters = ModelCounters {
                attempts: read(&counts.attempts),
                served: read(&counts.served),
                fallbacks: read(&counts.fallbacks),
                input_tokens: read(&counts.input_tokens),
                output_tokens: read(&counts.output_tokens),
            };
            (model.as_ref().to_owned(), counters)
        });
        let by_model = by_model.collect();
        drop(models);
        Counters {
            calls: read(&self.calls),
            attempts: read(&self.sums.attempts),
            served: read(&self.sums.served),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            failed: read(&self.failed),
            gave_up: read(&self.gave_up),
            retries: read(&self.retries),
            fallbacks: read(&self.sums.fallbacks),
            degraded: read(&self.degraded),
            waited_ms: read(&self.waited_ms),
            input_tokens: read(&self.sums.input_tokens),
            output_tokens: read(&self.sums.output_tokens),
            cache_hits: read(&self.cache_hits),
            models: by_model,
        }
    }

    fn of(&self, model: &Arc<str>, which: impl Fn(&OfModel) -> &AtomicU64, by: u64) {
        if by == 0 {
            return;
        }
        which(&self.sums).fetch_add(by, Relaxed);
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = models.get(model) {
            which(counts).fetch_add(by, Relaxed);
            return;
        }
        if models.len() >= MOST_MODELS {
            let never_served = |counts: &OfModel| counts.served.load(Relaxed) == 0;
            let Some(idle) = models.iter().find(|(_, counts)| never_served(counts)) else { return };
            let idle = Arc::clone(idle.0);
            models.remove(&idle);
        }
        let counts = OfModel::default();
        which(&counts).fetch_add(by, Relaxed);
        models.insert(Arc::clone(model), counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_says_what_was_counted_and_is_json() {
        let counting = Counting::default();
        let model: Arc<str> = "m".into();
        counting.called();
        counting.attempted(&model);
        counting.attempted(&model);
        counting.refused(Cause::PerDayRequests);
        counting.cache_hits(3);
        let usage = Usage { input: 8, tool: 1, output: 2, thinking: 4, ..Usage::default() };
        counting.served(&model, &usage);
        let counters = counting.snapshot();
        assert_eq!((counters.calls, counters.attempts, counters.served), (1, 2, 1));
        assert_eq!((counters.input_tokens, counters.output_tokens, counters.cache_hits), (9, 6, 3));
        assert_eq!(counters.models["m"].attempts, 2);
        let json = serde_json::to_value(&counters).unwrap();
        assert_eq!(json["refused"], serde_json::json!({"per_day_requests": 1}));
    }

    #[test]
    fn names_without_end_do_not_fill_the_memory() {
        let counting = Counting::default();
        for number in 0..3_000 {
            counting.attempted(&format!("m{number}").into());
        }
        let real: Arc<str> = "gemini-3.6-flash".into();
        counting.attempted(&real);
        counting.served(&real, &Usage { input: 8, ..Usage::default() });
        for number in 0..3_000 {
            counting.attempted(&format!("other{number}").into());
        }
        let counters = counting.snapshot();
        assert_eq!((counters.attempts, counters.models.len()), (6_001, MOST_MODELS));
        assert_eq!(counters.models[&*real].input_tokens, 8, "it came late, and stays");
    }
}
