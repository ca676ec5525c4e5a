//! The retry budget: how much of a client's traffic may be retries.
//!
//! Two retries a call are harmless while few calls fail. When most do, they triple the load on a provider that
//! cannot bear it, and each counts against the daily quota. So retries are paid for by calls: a share of them, and a
//! reserve that refills with time, so that a client with little traffic may retry, too.

use std::sync::{Mutex, PoisonError};

use super::RetryConfig;

/// A retry costs so much; a call brings [`RetryConfig::budget_percent`] hundredths of it.
const RETRY: u64 = 60_000 * 100;

/// How long an empty reserve takes to be full again.
const REFILL_MS: u64 = 60_000;

/// What is left. Pure: time comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    left: u64,
    most: u64,
    per_call: u64,
    per_ms: u64,
    last_ms: i64,
}

impl Budget {
    /// A full one.
    pub(crate) fn new(config: &RetryConfig, now_ms: i64) -> Self {
        let reserve = u64::from(config.budget_reserve);
        let percent = u64::from(config.budget_percent);
        // What calls bring has to fit in, also without a reserve.
        let most = reserve.max(u64::from(percent > 0)) * RETRY;
        let (per_call, per_ms) = (percent * (RETRY / 100), reserve * RETRY / REFILL_MS);
        Self { left: reserve * RETRY, most, per_call, per_ms, last_ms: now_ms }
    }

    /// A call was made.
    pub(crate) fn earn(&mut self) {
        self.left = self.left.saturating_add(self.per_call).min(self.most);
    }

    /// Takes one retry; false when none is left.
    pub(crate) fn take(&mut self, now_ms: i64) -> bool {
        // A clock that was set back brings nothing, and costs nothing.
        let passed_ms = u64::try_from(now_ms.saturating_sub(self.last_ms)).unwrap_or(0);
        self.last_ms = now_ms;
        self.left = self.left.saturating_add(passed_ms.saturating_mul(self.per_ms)).min(self.most);
        match self.left.checked_sub(RETRY) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// The one budget of a client and its clones.
#[derive(Debug)]
pub(crate) struct SharedBudget(Mutex<Budget>);

impl SharedBudget {
    pub(crate) const fn new(budget: Budget) -> Self {
        Self(Mutex::new(budget))
    }

    pub(crate) fn earn(&self) {
        self.with(Budget::earn);
    }

    pub(crate) fn take(&self, now_ms: i64) -> bool {
        self.with(|budget| budget.take(now_ms))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Budget) -> T) -> T {
        // Numbers only: a panic elsewhere leaves them whole.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(percent: u32, reserve: u32) -> RetryConfig {
        RetryConfig { budget_percent: percent, budget_reserve: reserve, ..RetryConfig::default() }
    }

    fn retries_at(budget: &mut Budget, now_ms: i64) -> usize {
        std::iter::repeat_with(|| budget.take(now_ms)).take_while(|&taken| taken).count()
    }

    #[test]
    fn at_once_there_are_as_many_as_the_reserve_and_a_minute_brings_them_back() {
        let mut budget = Budget::new(&RetryConfig::default(), 0);
        assert_eq!(retries_at(&mut budget, 0), 10);
        assert_eq!(retries_at(&mut budget, 5_999), 0);
        assert_eq!(retries_at(&mut budget, 6_000), 1);
        assert_eq!(retries_at(&mut budget, 66_000), 10);
        assert_eq!(retries_at(&mut budget, 86_400_000), 10, "an idle day saves up no more");
    }

    #[test]
    fn ten_calls_pay_for_one_retry() {
        let mut budget = Budget::new(&RetryConfig::default(), 0);
        retries_at(&mut budget, 0);
        (0..9).for_each(|_| budget.earn());
        assert!(!budget.take(0));
        budget.earn();
        assert!(budget.take(0));
        assert!(!budget.take(0));
    }

    #[test]
    fn without_a_reserve_only_calls_pay_and_without_either_nothing_is_retried() {
        let mut budget = Budget::new(&config(50, 0), 0);
        assert!(!budget.take(86_400_000));
        budget.earn();
        budget.earn();
        assert!(budget.take(86_400_000));
        let mut none = Budget::new(&config(0, 0), 0);
        (0..1_000).for_each(|_| none.earn());
        assert!(!none.take(i64::MAX));
    }

    proptest! {
        #[test]
        fn retries_never_exceed_the_share_and_the_reserve(
            gaps_ms in prop::collection::vec(-5_000_i64..5_000, 1..500),
            percent in 0_u32..=100,
            reserve in 0_u32..=50,
        ) {
            let mut budget = Budget::new(&config(percent, reserve), 0);
            let (mut now_ms, mut forward_ms, mut calls, mut retries) = (0_i64, 0_i64, 0_u64, 0_u64);
            for gap_ms in gaps_ms {
                now_ms += gap_ms;
                forward_ms += gap_ms.max(0);
                budget.earn();
                calls += 1;
                retries += u64::from(budget.take(now_ms)) + u64::from(budget.take(now_ms));
            }
            let refilled = u64::try_from(forward_ms).unwrap() * u64::from(reserve) / 60_000;
            let earned = calls * u64::from(percent) / 100;
            prop_assert!(retries <= u64::from(reserve) + refilled + earned + 1);
        }
    }
}
