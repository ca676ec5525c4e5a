//! The order in which buckets serve: a ring of those that can, and an alarm for those that cannot yet.

use std::collections::{BTreeSet, VecDeque};

use super::bucket::{Bucket, Place};

/// Free buckets stand in one lane, paid ones in another.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Whose turn it is. May hold buckets that fell asleep since; they are dropped when met.
    pub(crate) ring: VecDeque<u32>,
    /// Who cannot serve before when.
    pub(crate) sleepers: BTreeSet<(i64, u32)>,
    /// When the first sleeper wakes; saves a look into the tree.
    pub(crate) next_wake_ms: i64,
}

impl Lane {
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.sleepers.is_empty()
    }

    /// Puts the bucket numbered `index` where it belongs; `place` says where that is.
    pub(crate) fn put(&mut self, bucket: &mut Bucket, index: u32, place: Place) {
        if let Place::Asleep(until_ms) = bucket.place
            && bucket.place != place
        {
            self.sleepers.remove(&(until_ms, index));
        }
        match place {
            Place::Asleep(until_ms) if bucket.place != place => {
                self.sleepers.insert((until_ms, index));
            }
            Place::Ready if !bucket.in_ring => {
                bucket.in_ring = true;
                self.ring.push_back(index);
            }
            _ => {}
        }
        bucket.place = place;
        self.next_wake_ms = self.sleepers.first().map_or(i64::MAX, |(at, _)| *at);
    }

    /// The bucket at `position` of the ring leaves it: it fell asleep, or has no key.
    pub(crate) fn drop_from_ring(&mut self, position: usize, bucket: &mut Bucket) {
        bucket.in_ring = false;
        if position == 0 {
            self.ring.pop_front();
        } else {
            self.ring.remove(position);
        }
    }

    /// The bucket at `position` of the ring had its turn.
    pub(crate) fn had_its_turn(&mut self, position: usize) {
        let index = match position {
            0 => self.ring.pop_front(),
            _ => self.ring.remove(position),
        };
        if let Some(index) = index {
            self.ring.push_back(index);
        }
    }
}
