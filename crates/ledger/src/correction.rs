//! How far input estimates were off, model by model, so that the next one is a bound again.

use std::{collections::VecDeque, sync::Arc};

use foldhash::HashMap;
use keywheel_core::Usage;

/// How many of a model's latest errors are kept.
const KEPT: usize = 512;
/// How many it takes until they are believed.
const BELIEVED: usize = 50;
/// The largest correction: beyond it something else than the estimate is wrong.
const LARGEST_FACTOR: f64 = 8.0;
/// Sorting at each call would cost more than the call; the p99 moves slowly.
const SORTED_EVERY: usize = 16;
/// How many models are told apart.
const MOST_MODELS: usize = 1_000;

/// The observed errors of all models.
#[derive(Debug, Default)]
pub(crate) struct Corrections {
    models: HashMap<Arc<str>, Errors>,
}

/// Actual input divided by the guess, latest last.
#[derive(Debug, Default)]
struct Errors {
    latest: VecDeque<f64>,
    seen: usize,
    p99: f64,
}

impl Corrections {
    /// What the guess has to be multiplied by to hold for 99 of 100 calls: 1 to 8, and 1 until 50
    /// calls to the model were observed.
    pub(crate) fn factor(&self, model: &str) -> f64 {
        let errors = self.models.get(model).filter(|errors| errors.seen >= BELIEVED);
        errors.map_or(1.0, |errors| errors.p99.clamp(1.0, LARGEST_FACTOR))
    }

    /// Learns from an answer to `model` whose input was guessed, and what it really used.
    pub(crate) fn observe(&mut self, model: &Arc<str>, guess: u64, usage: &Usage) {
        let Some(error) = error(guess, usage.input.saturating_add(usage.tool)) else { return };
        if !self.models.contains_key(model) && self.models.len() >= MOST_MODELS {
            return;
        }
        self.models.entry(Arc::clone(model)).or_default().push(error);
    }
}

impl Errors {
    fn push(&mut self, error: f64) {
        if self.latest.len() == KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(error);
        self.seen += 1;
        if self.seen == BELIEVED || self.seen.is_multiple_of(SORTED_EVERY) {
            let mut sorted: Vec<_> = self.latest.iter().copied().collect();
            self.p99 = percentile(&mut sorted, 99).unwrap_or(1.0);
        }
    }
}

/// The actual figure divided by the guess; `None` if there was no guess or nothing to compare.
pub(crate) fn error(guess: u64, actual: u64) -> Option<f64> {
    (guess > 0 && actual > 0).then(|| actual as f64 / guess as f64)
}

/// The smallest of `values` that `percent` in a hundred do not exceed. Sorts them.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(corrections: &mut Corrections, guess: u64, input: u64) {
        let usage = Usage { input, total: input, ..Usage::default() };
        corrections.observe(&"m".into(), guess, &usage);
    }

    #[test]
    fn the_correction_covers_99_of_100_calls() {
        let mut corrections = Corrections::default();
        for i in 0..512 {
            // 1 % are three times as large as guessed, 5 % twice.
            let input = if i % 128 == 0 {
                300
            } else if i % 20 == 0 {
                200
            } else {
                90
            };
            observe(&mut corrections, 100, input);
        }
        assert_eq!(corrections.factor("m"), 2.0);
        assert_eq!(corrections.factor("another"), 1.0);
    }

    #[test]
    fn few_calls_prove_nothing() {
        let mut corrections = Corrections::default();
        (1..BELIEVED).for_each(|_| observe(&mut corrections, 100, 400));
        assert_eq!(corrections.factor("m"), 1.0);
        observe(&mut corrections, 100, 400);
        assert_eq!(corrections.factor("m"), 4.0);
    }

    #[test]
    fn a_correction_never_goes_below_the_guess_nor_through_the_roof() {
        let mut corrections = Corrections::default();
        (0..64).for_each(|_| observe(&mut corrections, 100, 10));
        assert_eq!(corrections.factor("m"), 1.0);
        (0..512).for_each(|_| observe(&mut corrections, 1, u64::MAX));
        assert_eq!(corrections.factor("m"), LARGEST_FACTOR);
    }

    #[test]
    fn what_was_not_estimated_teaches_nothing() {
        let mut corrections = Corrections::default();
        (0..64).for_each(|_| observe(&mut corrections, 0, 500));
        (0..64).for_each(|_| observe(&mut corrections, 500, 0));
        assert_eq!(corrections.factor("m"), 1.0);
    }
}
