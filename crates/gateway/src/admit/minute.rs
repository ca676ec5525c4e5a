//! How many requests a project made within the last minute.

use std::collections::VecDeque;

const MINUTE_MS: i64 = 60_000;

/// The requests of the last 60 seconds: a minute that rolls, so that no two calendar minutes side by side take twice the
/// cap.
#[derive(Debug, Default)]
pub(crate) struct Minute {
    /// When each came, oldest first.
    came_ms: VecDeque<i64>,
}

impl Minute {
    /// Counts a request at `now_ms`, if fewer than `cap` came in the minute before.
    ///
    /// # Errors
    /// When the next one may come. What is refused is not counted.
    pub(crate) fn count(&mut self, cap: u32, now_ms: i64) -> Result<(), i64> {
        self.forget(now_ms);
        let cap = usize::try_from(cap).unwrap_or(usize::MAX);
        if self.came_ms.len() >= cap {
            // Those beyond a cap that was lowered have to go first. Into a cap of 0 nothing ever fits.
            let last_to_go = self.came_ms.get(self.came_ms.len() - cap);
            return Err(last_to_go.copied().unwrap_or(now_ms) + MINUTE_MS);
        }
        self.came_ms.push_back(now_ms);
        Ok(())
    }

    /// Takes a request back that was counted at `at_ms` and went nowhere.
    pub(crate) fn take_back(&mut self, at_ms: i64) {
        if let Some(place) = self.came_ms.iter().rposition(|came| *came == at_ms) {
            self.came_ms.remove(place);
        }
    }

    /// How many came within the minute before `now_ms`, and when the oldest of them is a minute old.
    pub(crate) fn used(&mut self, now_ms: i64) -> (usize, i64) {
        self.forget(now_ms);
        let oldest = self.came_ms.front().copied().unwrap_or(now_ms);
        (self.came_ms.len(), oldest.saturating_add(MINUTE_MS))
    }

    fn forget(&mut self, now_ms: i64) {
        while self.came_ms.front().is_some_and(|came| now_ms - came >= MINUTE_MS) {
            self.came_ms.pop_front();
        }
        // After a clock was set back they would count for as long as it was ahead.
        for came in self.came_ms.iter_mut().rev().take_while(|came| **came > now_ms) {
            *came = now_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T: i64 = 1_796_000_000_000;

    #[test]
    fn the_cap_rolls_and_names_the_moment_at_which_the_next_one_fits() {
        let mut minute = Minute::default();
        for at in [T, T + 10_000, T + 10_000] {
            assert_eq!(minute.count(3, at), Ok(()));
        }
        assert_eq!(minute.count(3, T + 30_000), Err(T + 60_000));
        assert_eq!(minute.count(3, T + 59_999), Err(T + 60_000), "a refusal does not count");
        assert_eq!(minute.count(3, T + 60_000), Ok(()));
        assert_eq!(minute.count(3, T + 60_000), Err(T + 70_000));
        assert_eq!(minute.used(T + 60_000), (3, T + 70_000));
    }

    #[test]
    fn a_lowered_cap_waits_for_as_many_as_are_too_many() {
        let mut minute = Minute::default();
        for n in 0..5 {
            minute.count(5, T + n * 1_000).unwrap();
        }
        assert_eq!(minute.count(2, T + 5_000), Err(T + 63_000));
        assert_eq!(minute.count(2, T + 62_999), Err(T + 63_000));
        assert_eq!(minute.count(2, T + 63_000), Ok(()));
        assert_eq!(minute.count(0, T + 63_000), Err(T + 123_000), "nothing ever fits into 0");
        assert_eq!(Minute::default().count(0, T), Err(T + 60_000));
    }

    #[test]
    fn what_went_nowhere_is_taken_back_once() {
        let mut minute = Minute::default();
        minute.count(2, T).unwrap();
        minute.count(2, T + 1).unwrap();
        minute.take_back(T);
        minute.take_back(T);
        assert_eq!(minute.used(T + 1), (1, T + 60_001));
        assert_eq!(minute.count(2, T + 2), Ok(()));
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_nobody_out_for_longer_than_a_minute() {
        let mut minute = Minute::default();
        minute.count(1, T + 86_400_000).unwrap();
        assert_eq!(minute.count(1, T), Err(T + 60_000));
        assert_eq!(minute.count(1, T + 60_000), Ok(()));
    }

    proptest! {
        /// No minute, wherever it begins, holds more than the cap; and at the moment named one fits.
        #[test]
        fn no_minute_holds_more_than_the_cap(
            cap in 1_u32..6,
            pauses in prop::collection::vec(0_i64..40_000, 1..60),
        ) {
            let mut minute = Minute::default();
            let (mut now, mut came) = (T, Vec::new());
            for pause in pauses {
                now += pause;
                match minute.count(cap, now) {
                    Ok(()) => came.push(now),
                    Err(next) => {
                        prop_assert!(next > now && next <= now + MINUTE_MS);
                        prop_assert!(minute.count(cap, next - 1).is_err());
                        now = next;
                        prop_assert_eq!(minute.count(cap, now), Ok(()));
                        came.push(now);
                    }
                }
            }
            for first in &came {
                let within = came.iter().filter(|at| (first..&(first + MINUTE_MS)).contains(at));
                prop_assert!(within.count() <= cap as usize);
            }
        }
    }
}
