//! Keys thought separate that meet the same quota together: probably one quota project.
//!
//! Two keys of one project share its quota, so each is refused while our count for it is far below the limit
//! that the refusal names, and both within seconds. Separate projects that take turns also meet their limits
//! together, but each at its own full count, and that is no hint.

use std::collections::{HashMap, VecDeque};

use keywheel_core::{Cause, Dimension, LimitSeen};

use crate::window::Amount;

const TOGETHER_MS: i64 = 5_000;
/// One meeting is counted once, however many calls were in flight.
const ONE_MEETING_MS: i64 = 30_000;
const AGAIN_AND_AGAIN: u32 = 3;
/// More pairs than anybody looks at: the memory of suspicions is bounded.
const MOST_PAIRS: usize = 1_024;
const MOST_RECENT: usize = 32;

/// What was seen among the buckets of one model.
#[derive(Debug, Default)]
pub(crate) struct Suspicions {
    recent: VecDeque<Met>,
    pairs: HashMap<(u32, u32), Pair>,
}

#[derive(Debug, Clone, Copy)]
struct Met {
    index: u32,
    cause: Cause,
    at_ms: i64,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    meetings: u32,
    last_ms: i64,
}

impl Suspicions {
    /// Bucket `index` was refused for `cause` well before its own count reached the limit.
    pub(crate) fn met_early(&mut self, index: u32, cause: Cause, now_ms: i64) {
        self.recent
            .retain(|met| now_ms.saturating_sub(met.at_ms).unsigned_abs() <= TOGETHER_MS as u64);
        for met in self.recent.iter().filter(|met| met.cause == cause && met.index != index) {
            let pair = (met.index.min(index), met.index.max(index));
            if self.pairs.len() >= MOST_PAIRS && !self.pairs.contains_key(&pair) {
                continue;
            }
            let seen = self.pairs.entry(pair).or_insert(Pair { meetings: 0, last_ms: i64::MIN });
            if now_ms.saturating_sub(seen.last_ms) > ONE_MEETING_MS {
                *seen = Pair { meetings: seen.meetings + 1, last_ms: now_ms };
            }
        }
        if self.recent.len() == MOST_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Met { index, cause, at_ms: now_ms });
    }

    /// Pairs of buckets that met the same quota again and again, and how often.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = ((u32, u32), u32)> {
        let often = self.pairs.iter().filter(|(_, pair)| pair.meetings >= AGAIN_AND_AGAIN);
        often.map(|(indices, pair)| (*indices, pair.meetings))
    }
}

/// The cause, if a refusal that named `limits` came although our counts are below three quarters of them.
pub(crate) fn early(limits: &[LimitSeen], minute: Amount, day: Amount) -> Option<Cause> {
    let named = limits.iter().filter(|seen| seen.value > 0);
    let judged = named.filter_map(|seen| match seen.dimension {
        Dimension::Rpm => Some((Cause::PerMinuteRequests, minute.requests, seen.value)),
        Dimension::Rpd => Some((Cause::PerDayRequests, day.requests, seen.value)),
        _ => None,
    });
    let mut judged = judged
        .map(|(cause, used, limit)| (cause, used.saturating_mul(4) < limit.saturating_mul(3)));
    let (cause, early) = judged.next()?;
    // A reply may name several limits, of which one is reached: then nothing is strange about it.
    (early && judged.all(|(_, early)| early)).then_some(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_meetings_make_a_suspicion_and_one_burst_is_one_meeting() {
        let mut seen = Suspicions::default();
        for minute in 0..3 {
            assert_eq!(seen.pairs().count(), 0);
            for call in 0..10 {
                seen.met_early(0, Cause::PerMinuteRequests, minute * 60_000 + call);
                seen.met_early(1, Cause::PerMinuteRequests, minute * 60_000 + call + 1);
            }
        }
        assert_eq!(seen.pairs().collect::<Vec<_>>(), [((0, 1), 3)]);
    }

    #[test]
    fn refusals_far_apart_or_for_another_quota_are_no_meeting() {
        let mut seen = Suspicions::default();
        for minute in 0..10 {
            seen.met_early(0, Cause::PerMinuteRequests, minute * 60_000);
            seen.met_early(1, Cause::PerMinuteRequests, minute * 60_000 + 6_000);
            seen.met_early(2, Cause::PerDayRequests, minute * 60_000 + 1);
        }
        assert_eq!(seen.pairs().count(), 0);
    }

    #[test]
    fn a_refusal_at_the_full_count_is_not_early() {
        let limits = [LimitSeen::new(Dimension::Rpm, 15)];
        let used = |requests| Amount::new(requests, 0);
        assert_eq!(early(&limits, used(7), used(7)), Some(Cause::PerMinuteRequests));
        assert_eq!(early(&limits, used(15), used(15)), None);
        let both = [LimitSeen::new(Dimension::Rpm, 15), LimitSeen::new(Dimension::Rpd, 100)];
        assert_eq!(early(&both, used(3), used(100)), None);
        assert_eq!(early(&[], used(0), used(0)), None);
    }
}
