//! Where the day of one bucket turns, when a reply says that it does not turn with the pool's.

use crate::reset::DaySpan;

/// A day boundary of the bucket's own: its days turn every 24 hours before and after `turns_at_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// [`NO_BOUNDARY`]: the day turns with the pool's after all, for other processes to know.
    pub(crate) turns_at_ms: i64,
    pub(crate) stated_ms: i64,
}

/// Where the day of a bucket turns whose boundary was given up: never, since 1970.
pub(crate) const NO_BOUNDARY: i64 = 0;

/// The longest day, in milliseconds: a boundary further away is not believed.
pub(crate) const LONGEST_DAY_MS: i64 = 25 * 3_600_000;

impl Boundary {
    pub(crate) const fn is_given_up(&self) -> bool {
        self.turns_at_ms <= NO_BOUNDARY
    }

    /// The day that `now_ms` belongs to.
    pub(crate) fn day(&self, now_ms: i64) -> DaySpan {
        const DAY_MS: i64 = 24 * 3_600_000;
        let past = now_ms.saturating_sub(self.turns_at_ms).div_euclid(DAY_MS) + 1;
        let end_ms = self.turns_at_ms.saturating_add(past.saturating_mul(DAY_MS));
        DaySpan::ending_at(end_ms, now_ms)
    }
}
