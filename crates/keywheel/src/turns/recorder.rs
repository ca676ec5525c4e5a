//! Counts what one step of a turn does. Atomics only: it is called for every request that is sent.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    summary::{MOST_NAMES, OTHER},
    tally::{ModelUse, StepUse},
    turn::TurnState,
};

/// Counts for one step; what [`Turn::step`](super::Turn::step) hands out carries one.
///
/// Each method counts something that has happened, so that a future that is dropped leaves nothing to take back.
/// What is counted after the turn ended is told apart when the last recorder is gone.
pub(crate) struct StepRecorder {
    /// Lives on until everybody who may still count for the turn is gone.
    _turn: Arc<TurnState>,
    counts: Arc<StepCounts>,
}

impl StepRecorder {
    pub(super) fn new(turn: Arc<TurnState>, counts: Arc<StepCounts>) -> Self {
        Self { _turn: turn, counts }
    }

    /// A request to `model` (or to the bucket of a route) was sent. It weighs `requests`: the texts of a batch of
    /// embeddings, else one. `retry`: the same was asked before, for this call.
    pub(crate) fn sent(&self, model: &str, requests: u32, retry: bool) {
        self.counts.model(model).sent(requests, retry);
    }

    /// The app asked for something: one call, whatever it takes to serve it.
    pub(crate) fn call(&self) {
        self.counts.calls.fetch_add(1, Relaxed);
    }

    /// So many texts were turned into vectors by the provider.
    pub(crate) fn embedded(&self, texts: u64) {
        self.counts.embedded.fetch_add(texts, Relaxed);
    }

    /// So many vectors came from the cache, and cost no request.
    pub(crate) fn cache_hits(&self, texts: u64) {
        self.counts.cache_hits.fetch_add(texts, Relaxed);
    }
}

impl fmt::Debug for StepRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepRecorder").field("step", &self.counts.step).finish_non_exhaustive()
    }
}

/// The counters of one step.
#[derive(Debug)]
pub(super) struct StepCounts {
    step: Box<str>,
    calls: AtomicU64,
    embedded: AtomicU64,
    cache_hits: AtomicU64,
    /// A chain that only ever grows at its end: a step asks one or two models.
    models: OnceLock<Box<ModelCounts>>,
}

impl StepCounts {
    pub(super) fn new(step: &str) -> Self {
        Self {
            step: step.into(),
            calls: AtomicU64::new(0),
            embedded: AtomicU64::new(0),
            cache_hits: AtomicU64::new(0),
            models: OnceLock::new(),
        }
    }

    /// The step's name.
    pub(super) fn step(&self) -> &str {
        &self.step
    }

    /// What was counted up to now.
    pub(super) fn read(&self) -> StepUse {
        let mut models = std::collections::BTreeMap::new();
        let mut at = self.models.get();
        while let Some(counts) = at {
            models.insert(counts.model.as_ref().to_owned(), counts.read());
            at = counts.next.get();
        }
        StepUse {
            calls: self.calls.load(Relaxed),
            embedded: self.embedded.load(Relaxed),
            cache_hits: self.cache_hits.load(Relaxed),
            models,
        }
    }

    fn model(&self, model: &str) -> &ModelCounts {
        let mut place = &self.models;
        for _ in 0..MOST_NAMES {
            // Whoever comes second at an empty place finds the first one's model there, and looks on.
            let counts = place.get_or_init(|| Box::new(ModelCounts::new(model)));
            if &*counts.model == model {
                return counts;
            }
            place = &counts.next;
        }
        place.get_or_init(|| Box::new(ModelCounts::new(OTHER)))
    }
}

#[derive(Debug)]
struct ModelCounts {
    model: Box<str>,
    attempts: AtomicU64,
    retries: AtomicU64,
    requests: AtomicU64,
    next: OnceLock<Box<Self>>,
}

impl ModelCounts {
    fn new(model: &str) -> Self {
        Self {
            model: model.into(),
            attempts: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            next: OnceLock::new(),
        }
    }

    fn sent(&self, requests: u32, retry: bool) {
        self.attempts.fetch_add(1, Relaxed);
        self.retries.fetch_add(u64::from(retry), Relaxed);
        self.requests.fetch_add(u64::from(requests), Relaxed);
    }

    fn read(&self) -> ModelUse {
        ModelUse {
            attempts: self.attempts.load(Relaxed),
            retries: self.retries.load(Relaxed),
            requests: self.requests.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_without_number_are_counted_as_others() {
        let counts = StepCounts::new("recall");
        (0..1_000).for_each(|number| counts.model(&format!("model-{number}")).sent(1, false));
        counts.model("model-3").sent(1, false);
        let read = counts.read();
        assert_eq!(read.models.len(), MOST_NAMES + 1);
        assert_eq!(read.models["model-3"].attempts, 2);
        assert_eq!(read.total().attempts, 1_001);
    }

    #[test]
    fn threads_that_count_at_once_lose_nothing_and_keep_models_apart() {
        let counts = StepCounts::new("recall");
        std::thread::scope(|scope| {
            for thread in 0..8_u32 {
                let counts = &counts;
                scope.spawn(move || {
                    for turn in 0..1_000_u32 {
                        let model = format!("model-{}", (turn + thread) % 5);
                        counts.model(&model).sent(3, turn % 4 == 0);
                    }
                });
            }
        });
        let read = counts.read();
        assert_eq!(read.models.len(), 5);
        for (model, of_model) in &read.models {
            assert_eq!((of_model.attempts, of_model.requests), (1_600, 4_800), "{model}");
        }
        assert_eq!(read.total().retries, 2_000);
    }
}
