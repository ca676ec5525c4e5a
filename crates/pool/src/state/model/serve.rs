//! Which bucket serves an ask, and who goes before.

use super::{Grant, Model, NotNow, Rules, amount_of, need_of};
use crate::{
    Ask, Selection,
    state::bucket::{Need, Place},
    wait::{Held, InTheWay, Judge, Ticket},
    window::{Amount, NOW},
};

/// How many buckets that are kept for others an ask steps over.
const MOST_KEPT: usize = 3;

impl Model {
    /// The short way for nearly every call: whose turn it is can serve, and nobody waits.
    #[inline]
    pub(crate) fn take_first(&mut self, ask: &Ask, now_ms: i64, rules: &Rules) -> Option<Grant> {
        let need = need_of(ask);
        if need.affinity.is_some() || rules.selection == Selection::MostRemaining {
            return None;
        }
        let lane = &mut self.lanes[0];
        let index = lane.ring.first()?;
        let bucket = &mut self.buckets[index as usize];
        if bucket.place != Place::Ready {
            return None;
        }
        bucket.advance(now_ms, &self.day);
        if bucket.free_at(&need, now_ms) != NOW {
            return None;
        }
        let key = bucket.next_key(need.exclude)?;
        bucket.hold(need.amount);
        lane.ring.had_its_turn(0);
        Some(Grant { index, key, clears: bucket.clears })
    }

    /// Finds a bucket for `ask` and holds its share, all dimensions or none; `ticket` is the caller's place
    /// in the line, `None` for a newcomer. Call [`advance`](Self::advance) first.
    #[inline]
    pub(crate) fn take(
        &mut self,
        ask: &Ask,
        ticket: Option<Ticket>,
        now_ms: i64,
        rules: &Rules,
    ) -> Result<Grant, NotNow> {
        let need = need_of(ask);
        let mut found = self.find(&need, now_ms, rules)?;
        if !self.line.is_empty() {
            let mut kept = 0;
            while let Some(other) = self.someone_before(ask, ticket, &found, now_ms) {
                let first = found.index;
                // What one who is not served yet waits for is mostly one bucket: another may do.
                if other.holds
                    && kept < MOST_KEPT
                    && let Some(position) = found.position
                {
                    kept += 1;
                    self.lanes[found.lane].ring.had_its_turn(position);
                    found = self.find(&need, now_ms, rules)?;
                    if found.index != first {
                        continue;
                    }
                }
                let InTheWay { again_ms, holds } = other;
                return Err(NotNow { soonest_ms: i64::MAX, again_ms, held: holds });
            }
        }
        let bucket = &mut self.buckets[found.index as usize];
        let Some(key) = bucket.next_key(need.exclude) else { return Err(NotNow::NEVER) };
        bucket.hold(need.amount);
        if let Some(position) = found.position {
            self.lanes[found.lane].ring.had_its_turn(position);
        }
        Ok(Grant { index: found.index, key, clears: self.buckets[found.index as usize].clears })
    }

    /// Whoever in the line goes before `ask` and is in the way of its taking `found`.
    fn someone_before(
        &mut self,
        ask: &Ask,
        ticket: Option<Ticket>,
        found: &Found,
        now_ms: i64,
    ) -> Option<InTheWay> {
        let (amount, lane) = (amount_of(ask), found.lane);
        let bucket = &mut self.buckets[found.index as usize];
        self.line.someone_before(ask, ticket, now_ms, |other, judge| {
            let is_of_use = (lane == 0 || other.paid)
                && other.affinity.is_none_or(|name| *name == bucket.project.name)
                && bucket.has_key(other.exclude);
            let at_ms = bucket.free_at(other, now_ms);
            match judge {
                Judge::Suits => is_of_use && at_ms == NOW,
                Judge::Delays(_) if !is_of_use => false,
                Judge::Delays(Held { soonest_ms: i64::MAX, end_ms }) => {
                    // They wait for calls in flight to end: will these be enough?
                    let held = std::mem::take(&mut bucket.held);
                    let least_ms = bucket.free_at(other, now_ms);
                    bucket.held = held;
                    least_ms <= end_ms
                }
                Judge::Delays(Held { soonest_ms, .. }) if at_ms > soonest_ms => false,
                Judge::Delays(_) => {
                    let held = bucket.held;
                    bucket.held.add(amount);
                    let later_ms = bucket.free_at(other, now_ms);
                    bucket.held = held;
                    later_ms > at_ms
                }
            }
        })
    }

    /// Holds a share of one bucket although it is believed to be out: the day's exploratory request.
    pub(crate) fn take_exploring(&mut self, index: u32, amount: Amount) -> Option<Grant> {
        let bucket = self.buckets.get_mut(index as usize)?;
        let key = bucket.next_key(&[])?;
        bucket.hold(amount);
        Some(Grant { index, key, clears: bucket.clears })
    }

    /// When `ask` could be served; now is `Ok`. Takes nothing.
    pub(crate) fn look(&mut self, ask: &Ask, now_ms: i64, rules: &Rules) -> Result<(), NotNow> {
        self.find(&need_of(ask), now_ms, rules).map(|_| ())
    }

    #[inline]
    fn find(&mut self, need: &Need<'_>, now_ms: i64, rules: &Rules) -> Result<Found, NotNow> {
        if let Some(name) = need.affinity {
            return self.find_owner(name, need, now_ms);
        }
        let free = match self.find_in(0, need, now_ms, rules) {
            Ok(found) => return Ok(found),
            Err(not_now) => not_now,
        };
        if !need.paid {
            return Err(free);
        }
        self.find_in(1, need, now_ms, rules).map_err(|paid| paid.or(free))
    }

    /// The one quota project that will do.
    fn find_owner(&mut self, name: &str, need: &Need<'_>, now_ms: i64) -> Result<Found, NotNow> {
        let Some(index) = self.find_bucket(name) else { return Err(NotNow::NEVER) };
        let bucket = &mut self.buckets[index as usize];
        let lane = usize::from(bucket.lane);
        if lane == 1 && !need.paid || !bucket.has_key(need.exclude) {
            return Err(NotNow::NEVER);
        }
        bucket.advance(now_ms, &self.day);
        match bucket.free_at(need, now_ms) {
            NOW => Ok(Found { lane, position: None, index }),
            soonest_ms => Err(NotNow::until(soonest_ms)),
        }
    }

    #[inline]
    fn find_in(
        &mut self,
        lane: usize,
        need: &Need<'_>,
        now_ms: i64,
        rules: &Rules,
    ) -> Result<Found, NotNow> {
        let mut best: Option<(u64, usize, u32)> = None;
        let mut soonest_ms = i64::MAX;
        let mut position = 0;
        let ring = &mut self.lanes[lane];
        ring.sweep(&mut self.buckets);
        while let Some(index) = ring.ring.get(position) {
            let bucket = &mut self.buckets[index as usize];
            if bucket.place != Place::Ready {
                ring.drop_from_ring(position, bucket);
                continue;
            }
            bucket.advance(now_ms, &self.day);
            let at = bucket.free_at(need, now_ms);
            if at == NOW && bucket.has_key(need.exclude) {
                if rules.selection != Selection::MostRemaining {
                    return Ok(Found { lane, position: Some(position), index });
                }
                let left = bucket.remaining();
                if best.is_none_or(|(most, ..)| left > most) {
                    best = Some((left, position, index));
                }
                position += 1;
                continue;
            }
            let least_at = bucket.free_at(&Need::LEAST, now_ms);
            if !bucket.is_alive() {
                ring.drop_from_ring(position, bucket);
                ring.put(bucket, index, Place::Out);
                continue;
            }
            if bucket.has_key(need.exclude) {
                soonest_ms = soonest_ms.min(at);
            }
            if least_at != NOW {
                ring.drop_from_ring(position, bucket);
                ring.put(bucket, index, Place::Asleep(least_at));
            } else {
                position += 1;
            }
        }
        if let Some((_, position, index)) = best {
            return Ok(Found { lane, position: Some(position), index });
        }
        // The first to wake is nearly always the answer; a larger ask may have to look on.
        let mut dead = Vec::new();
        for &(wake_ms, index) in &ring.sleepers {
            if wake_ms >= soonest_ms {
                break;
            }
            let bucket = &mut self.buckets[index as usize];
            if !bucket.is_alive() {
                dead.push(index);
            } else if bucket.has_key(need.exclude) {
                bucket.advance(now_ms, &self.day);
                soonest_ms = soonest_ms.min(bucket.free_at(need, now_ms).max(wake_ms));
            }
        }
        for index in dead {
            ring.put(&mut self.buckets[index as usize], index, Place::Out);
        }
        Err(NotNow::until(soonest_ms))
    }
}

impl NotNow {
    fn or(self, other: Self) -> Self {
        Self::until(self.soonest_ms.min(other.soonest_ms))
    }
}

/// A bucket that can serve: its lane, its position in the ring if it was met there, its number.
struct Found {
    lane: usize,
    position: Option<usize>,
    index: u32,
}
