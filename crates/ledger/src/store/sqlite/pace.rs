//! How many jobs a commit waits for.
//!
//! A commit costs the same whether it holds one row or a hundred. Where many callers write, it is worth a moment to let
//! them come: half the processor time of a busy gateway went into commits that held a few rows each. Where few do,
//! nobody is made to wait. How many will come within the moment is not known beforehand, so it is what came the last
//! time that one was waited out; and if as many come early again and again, one is waited out anew, since more may.

use std::time::Duration;

use super::queue::{Gathered, MOST};

/// From one commit's beginning to the next one's, where many write. Nothing against what a model takes to answer.
pub(super) const PERIOD: Duration = Duration::from_millis(2);
/// With more than this in one commit, many write.
const FEW: usize = 8;
/// After so many commits that were full early, a period is waited out.
const EARLY: u32 = 128;

/// What is known of the callers.
#[derive(Debug)]
pub(super) struct Pace {
    /// How many jobs the last commit held.
    last: usize,
    /// How many came when a period was last waited out.
    expected: usize,
    /// How many commits have been full early since.
    early: u32,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self { last: 0, expected: MOST, early: 0 }
    }

    /// How many jobs the next commit waits for.
    pub(super) const fn enough(&self) -> usize {
        match self.last {
            0..=FEW => 1,
            _ if self.early >= EARLY => MOST,
            _ => self.expected,
        }
    }

    /// A commit begins with `count` jobs, which were gathered in that way.
    pub(super) const fn begins(&mut self, count: usize, gathered: Gathered) {
        let waited_out = matches!(gathered, Gathered::Late);
        self.early = if waited_out { 0 } else { self.early.saturating_add(1) };
        if waited_out {
            // What is there may be nothing but rows to give back.
            self.expected = if count == 0 { 1 } else { count };
        }
        self.last = count;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many callers there are, and that all of them come back at once.
    fn crowd(pace: &mut Pace, callers: usize) -> Gathered {
        let gathered = if callers >= pace.enough() { Gathered::Enough } else { Gathered::Late };
        pace.begins(callers, gathered);
        gathered
    }

    #[test]
    fn few_callers_never_wait_for_others() {
        let mut pace = Pace::new();
        for callers in 1..=FEW {
            assert_eq!(crowd(&mut pace, callers), Gathered::Enough);
            assert_eq!(pace.enough(), 1);
        }
    }

    #[test]
    fn a_crowd_that_comes_back_at_once_is_not_waited_for_but_now_and_then() {
        let mut pace = Pace::new();
        let waited = (0..660).filter(|_| crowd(&mut pace, 64) == Gathered::Late).count();
        assert!((4..=8).contains(&waited), "{waited} of 660");
    }

    #[test]
    fn more_callers_are_noticed_soon() {
        let mut pace = Pace::new();
        for _ in 0..100 {
            crowd(&mut pace, 20);
        }
        assert!(pace.enough() == 20 || pace.enough() == MOST);
        // As many as would have come are there early; so it is looked how many more there are.
        let most = (0..=EARLY).map(|_| {
            pace.begins(pace.enough().min(90), Gathered::Enough);
            pace.enough()
        });
        assert_eq!(most.max(), Some(MOST));
    }

    #[test]
    fn after_a_crowd_has_gone_nobody_waits() {
        let mut pace = Pace::new();
        crowd(&mut pace, 64);
        crowd(&mut pace, 3);
        assert_eq!(pace.enough(), 1);
    }

    proptest! {
        #[test]
        fn what_is_waited_for_is_something_and_fits_into_a_commit(
            counts in prop::collection::vec((0..=MOST, any::<bool>()), 0..80),
        ) {
            let mut pace = Pace::new();
            for (count, late) in counts {
                pace.begins(count, if late { Gathered::Late } else { Gathered::Enough });
                prop_assert!((1..=MOST).contains(&pace.enough()));
                prop_assert!(pace.last > FEW || pace.enough() == 1);
            }
        }
    }
}
