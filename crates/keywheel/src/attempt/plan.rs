//! How often a call may fail before it is given up, and how long it pauses in between.
//!
//! Quota refusals and dead keys are not failures: they move on to the next key at once and cost nothing here.
//! Only the provider's own failures count, since each of them counts against the daily quota as well
//! (<https://ai.google.dev/gemini-api/docs/billing>: a failed request "will still count against your quota").

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// Retries after the provider's own failures, with growing, jittered pauses.
#[derive(Debug)]
pub(crate) struct Plan {
    pauses: ExponentialBackoff,
}

/// How provider failures (5xx, broken connections) are retried.
///
/// Quota refusals and dead keys are none: they move on to the next key at once and cost nothing here.
///
/// ```
/// use keywheel::RetryConfig;
///
/// let patient = RetryConfig { max_retries: 4, ..RetryConfig::default() };
/// assert_eq!((patient.budget_percent, patient.budget_reserve, patient.breaker_after), (10, 10, 5));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RetryConfig {
    /// Retries per call. Defaults to 2: every failed call counts against the daily quota.
    pub max_retries: usize,
    /// The first pause. Defaults to 1 s; each further one is twice as long.
    pub first_pause: Duration,
    /// The longest pause. Defaults to 20 s.
    pub max_pause: Duration,
    /// So many retries, of all calls together, are paid for by a hundred calls. Defaults to 10.
    pub budget_percent: u32,
    /// So many more may be made at once; the reserve refills within a minute. Defaults to 10.
    pub budget_reserve: u32,
    /// After so many failures of a model in a row, whichever keys and calls met them, the model is left alone but for
    /// a probe now and then. Defaults to 5; 0 never leaves it alone.
    pub breaker_after: u32,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_retries: 2,
            first_pause: Duration::from_secs(1),
            max_pause: Duration::from_secs(20),
            budget_percent: 10,
            budget_reserve: 10,
            breaker_after: 5,
        }
    }
}

impl Plan {
    pub(crate) fn new(config: &RetryConfig) -> Self {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(config.first_pause)
            .with_max_delay(config.max_pause)
            .with_factor(2.0)
            .with_max_times(config.max_retries)
            .with_jitter()
            // Without its `std` feature, backon's own seed is a constant: everybody would pause alike.
            .with_jitter_seed(fastrand::u64(..))
            .build();
        Self { pauses }
    }

    /// The pause before the next retry; `None` when the call has failed often enough.
    ///
    /// `hint` is what the provider asked for; the longer of the two is taken, but a hint never stretches a
    /// pause beyond a minute.
    pub(crate) fn pause(&mut self, hint: Option<Duration>) -> Option<Duration> {
        const LONGEST_HINT: Duration = Duration::from_secs(60);
        let pause = self.pauses.next()?;
        Some(pause.max(hint.unwrap_or_default().min(LONGEST_HINT)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_retried_twice_and_no_more() {
        let mut plan = Plan::new(&RetryConfig::default());
        let pauses = [plan.pause(None), plan.pause(None)].map(|pause| pause.expect("two retries"));
        assert!(pauses[0] >= Duration::from_secs(1) && pauses[1] > pauses[0], "{pauses:?}");
        assert_eq!(plan.pause(None), None);
        assert_eq!(
            plan.pause(Some(Duration::from_secs(1))),
            None,
            "a hint grants no further retry"
        );
    }

    #[test]
    fn two_calls_do_not_pause_alike() {
        let first = |_| Plan::new(&RetryConfig::default()).pause(None);
        let pauses: std::collections::BTreeSet<_> = (0..10).map(first).collect();
        assert!(pauses.len() > 5, "{pauses:?}");
    }

    #[test]
    fn pauses_without_measure_do_not_panic() {
        for pause in [Duration::ZERO, Duration::MAX] {
            let config = RetryConfig {
                max_retries: 9,
                first_pause: pause,
                max_pause: pause,
                ..RetryConfig::default()
            };
            let mut plan = Plan::new(&config);
            assert_eq!((0..10).filter_map(|_| plan.pause(None)).count(), 9);
        }
    }

    #[test]
    fn a_hint_lengthens_a_pause_up_to_a_minute() {
        let config = RetryConfig { max_retries: 2, ..RetryConfig::default() };
        let mut plan = Plan::new(&config);
        assert_eq!(plan.pause(Some(Duration::from_secs(30))), Some(Duration::from_secs(30)));
        assert_eq!(plan.pause(Some(Duration::from_secs(7_200))), Some(Duration::from_secs(60)));
    }
}
