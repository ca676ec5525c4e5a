//! How long a model takes to answer, so that no call takes a key when its deadline is too near for an answer.
//!
//! Calls that wait for quota are served first come, first served. When more are waiting than can be served, each
//! one's turn comes just before its deadline: sent then, its answer comes too late, and the quota is gone for
//! nothing, for it and for all behind it. So a call stops waiting while there is still time to answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;

/// What half of the free tier's answers take, as reported in October 2026 (median of 14 calls: about 5 s).
const USUAL_MS: i64 = 5_000;

/// More models than anybody uses; of others little is assumed.
const MOST_MODELS: usize = 1_000;

/// The answer times of every model that was asked.
#[derive(Debug, Default)]
pub(crate) struct Paces(Mutex<HashMap<Arc<str>, Pace>>);

impl Paces {
    /// Takes note of an answer that took `took_ms`.
    pub(crate) fn observe(&self, model: &Arc<str>, took_ms: i64) {
        let took_ms = took_ms.max(0);
        let mut models = self.lock();
        if let Some(pace) = models.get_mut(model) {
            pace.observe(took_ms);
        } else if models.len() < MOST_MODELS {
            models.insert(Arc::clone(model), Pace::first(took_ms));
        }
    }

    /// Until when a call of `model` may wait for a key, if it is to be answered by `deadline_ms`.
    ///
    /// At least half of the time that is left, however slow the model is: a short deadline is a reason to try,
    /// not to give up. Of a model that has not answered yet little is assumed, and at most a twelfth of the time.
    pub(crate) fn latest_start_ms(&self, model: &str, now_ms: i64, deadline_ms: i64) -> i64 {
        let left_ms = deadline_ms.saturating_sub(now_ms).max(0);
        let allowance_ms = match self.lock().get(model) {
            Some(pace) => pace.allowance_ms().min(left_ms / 2),
            None => USUAL_MS.min(left_ms / 12),
        };
        deadline_ms.saturating_sub(allowance_ms)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Pace>> {
        // Numbers only: a panic elsewhere leaves them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A smoothed answer time and its deviation, by the formula of TCP's retransmission timer (RFC 6298).
#[derive(Debug, Clone, Copy)]
struct Pace {
    mean_ms: i64,
    deviation_ms: i64,
}

impl Pace {
    const fn first(took_ms: i64) -> Self {
        Self { mean_ms: took_ms, deviation_ms: took_ms / 2 }
    }

    const fn observe(&mut self, took_ms: i64) {
        let off_ms = (took_ms - self.mean_ms).abs();
        self.deviation_ms += (off_ms - self.deviation_ms) / 4;
        self.mean_ms += (took_ms - self.mean_ms) / 8;
    }

    /// What nearly every answer stays within.
    const fn allowance_ms(&self) -> i64 {
        self.mean_ms.saturating_add(self.deviation_ms.saturating_mul(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paces(answers_ms: &[i64]) -> (Paces, Arc<str>) {
        let (paces, model) = (Paces::default(), Arc::from("m"));
        answers_ms.iter().for_each(|&took| paces.observe(&model, took));
        (paces, model)
    }

    #[test]
    fn of_an_unknown_model_little_is_assumed() {
        let (paces, _) = paces(&[]);
        assert_eq!(paces.latest_start_ms("m", 1_000, 61_000), 56_000);
        assert_eq!(paces.latest_start_ms("m", 0, 600_000), 595_000);
        assert_eq!(paces.latest_start_ms("m", 0, 1_200), 1_100);
    }

    #[test]
    fn a_call_stops_waiting_while_there_is_time_to_answer() {
        let (paces, model) = paces(&[2_000; 40]);
        let latest = paces.latest_start_ms(&model, 0, 60_000);
        assert!((57_000..=58_000).contains(&latest), "steady answers of 2 s: {latest}");
        assert_eq!(
            paces.latest_start_ms("other", 0, 60_000),
            55_000,
            "each model has its own pace"
        );
    }

    #[test]
    fn unsteady_answers_get_more_room() {
        let (steady, model) = paces(&[3_000; 40]);
        let (unsteady, _) = paces(&[1_000, 5_000].repeat(20));
        let latest = |paces: &Paces| paces.latest_start_ms(&model, 0, 60_000);
        assert!(latest(&unsteady) + 4_000 < latest(&steady));
    }

    #[test]
    fn at_least_half_of_the_time_left_may_be_spent_waiting() {
        let (paces, model) = paces(&[90_000; 10]);
        assert_eq!(paces.latest_start_ms(&model, 0, 10_000), 5_000);
        assert_eq!(paces.latest_start_ms(&model, 10_000, 10_000), 10_000);
    }

    #[test]
    fn names_without_end_do_not_fill_the_memory() {
        let paces = Paces::default();
        (0..2_000).for_each(|number| paces.observe(&format!("m{number}").into(), 1_000));
        assert_eq!(paces.lock().len(), MOST_MODELS);
        paces.observe(&"m0".into(), 90_000);
        assert!(paces.lock()["m0"].mean_ms > 1_000, "those that are known go on learning");
    }

    #[test]
    fn absurd_times_do_not_overflow() {
        let (paces, model) = paces(&[i64::MAX, -5, i64::MAX, 0]);
        assert_eq!(paces.latest_start_ms(&model, i64::MIN, i64::MAX), i64::MAX - i64::MAX / 2);
    }
}
