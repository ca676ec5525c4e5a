//! When a bucket may spend its one request a day beyond what is believed.
//!
//! Beliefs grow old: a limit is raised, an account topped up, a model gets a free tier. One request per free
//! bucket and quota day asks again, only when somebody wants the bucket and nothing else can serve. What was
//! learned today is not asked again today: the refusal that taught it was the answer.

use super::{
    bucket::{Bucket, Explored, Place},
    model::Model,
};
use crate::{
    Source,
    cooldown::FOREVER,
    limits::Limits,
    window::{Amount, fits},
};
use keywheel_core::Dimension;

const MINUTE_MS: i64 = 60_000;

/// A cooldown that ends within this is waited for.
const WORTH_WAITING_MS: i64 = 10 * MINUTE_MS;

/// A guess, or a long stated wait, is doubted after this.
const BELIEVED_MS: i64 = 60 * MINUTE_MS;

/// A bucket that serves now may be full in a moment.
const LOOK_AGAIN_MS: i64 = 1_000;

/// Where the search for a bucket to explore goes on. Searches are rare, or they would walk keys that cannot
/// serve with every call.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    next: u32,
    nothing_before_ms: i64,
}

impl Model {
    /// A bucket whose exploratory request may be spent now.
    pub(crate) fn explorable(&mut self, now_ms: i64) -> Option<u32> {
        if now_ms < self.explore.nothing_before_ms {
            return None;
        }
        let count = u32::try_from(self.buckets.len()).unwrap_or(u32::MAX);
        let mut soonest_ms = i64::MAX;
        for step in 0..count {
            let index = (self.explore.next % count + step) % count;
            match self.may_explore(index, now_ms) {
                Ok(()) => {
                    self.explore.next = index + 1;
                    return Some(index);
                }
                Err(not_before_ms) => soonest_ms = soonest_ms.min(not_before_ms),
            }
        }
        self.explore.nothing_before_ms = soonest_ms;
        None
    }

    /// Whether one bucket's exploratory request may be spent now; if not, not before which moment.
    pub(crate) fn may_explore(&mut self, index: u32, now_ms: i64) -> Result<(), i64> {
        let (set, day) = (self.set, *self.day());
        let bucket = &mut self.buckets[index as usize];
        if bucket.lane != 0 || bucket.place == Place::Out {
            return Err(now_ms.saturating_add(MINUTE_MS));
        }
        bucket.advance(now_ms, &day);
        may_explore(bucket, &set, now_ms)
    }

    /// Looks again at everything with the next search.
    pub(crate) fn explore_anew(&mut self) {
        self.explore.nothing_before_ms = 0;
    }
}

fn may_explore(bucket: &Bucket, set: &Limits, now_ms: i64) -> Result<(), i64> {
    if bucket.day.explored != Explored::No {
        return Err(bucket.day.span.end_ms);
    }
    if bucket.project_until_ms > now_ms {
        return Err(bucket.project_until_ms);
    }
    let mut blocked = false;
    for known in bucket.cooldowns.iter().filter(|known| !known.only_tools()) {
        if !known.is_active(now_ms) {
            continue;
        }
        blocked = true;
        if known.until_ms != FOREVER && known.until_ms.saturating_sub(now_ms) < WORTH_WAITING_MS {
            return Err(known.until_ms);
        }
        let of_earlier_day = known.since_ms < bucket.day.span.from_ms;
        let doubtful_from = known.since_ms.saturating_add(BELIEVED_MS);
        if !of_earlier_day && known.source == Source::Derived {
            return Err(bucket.day.span.end_ms);
        }
        if !of_earlier_day && now_ms < doubtful_from {
            return Err(doubtful_from);
        }
    }
    for dimension in [Dimension::Rpd, Dimension::Tpd, Dimension::Rpm, Dimension::Tpm] {
        if !is_full(bucket, dimension) {
            continue;
        }
        blocked = true;
        // What the user set is believed for good.
        let known = bucket.learned.iter().find(|limit| limit.dimension == dimension);
        let (None, Some(known)) = (set.of(dimension), known) else {
            return Err(full_until(bucket, dimension, now_ms));
        };
        let learned_today = known.at_ms >= bucket.day.span.from_ms;
        if learned_today || is_minute(dimension) && !is_minutes_turn(bucket) {
            return Err(full_until(bucket, dimension, now_ms));
        }
    }
    if blocked { Ok(()) } else { Err(now_ms.saturating_add(LOOK_AGAIN_MS)) }
}

fn is_full(bucket: &Bucket, dimension: Dimension) -> bool {
    let day = bucket.day.used().plus(bucket.held);
    let minute = bucket.window.used().plus(bucket.held);
    let Amount { requests, tokens } = if is_minute(dimension) { minute } else { day };
    let limits = &bucket.limits;
    match dimension {
        Dimension::Rpd => !fits(requests, 1, limits.rpd),
        Dimension::Rpm => !fits(requests, 1, limits.rpm),
        Dimension::Tpd => !fits(tokens, 1, limits.tpd),
        Dimension::Tpm => !fits(tokens, 1, limits.tpm),
        Dimension::Ipm => false,
    }
}

fn full_until(bucket: &Bucket, dimension: Dimension, now_ms: i64) -> i64 {
    if is_minute(dimension) { now_ms.saturating_add(MINUTE_MS) } else { bucket.day.span.end_ms }
}

const fn is_minute(dimension: Dimension) -> bool {
    matches!(dimension, Dimension::Rpm | Dimension::Tpm | Dimension::Ipm)
}

/// Minutes are full long before days are, and would have every day's exploration. They have every other's, so
/// that a raised limit of either kind is found within two days.
fn is_minutes_turn(bucket: &Bucket) -> bool {
    use chrono::Datelike as _;
    bucket.day.span.date.num_days_from_ce() % 2 == 0
}
