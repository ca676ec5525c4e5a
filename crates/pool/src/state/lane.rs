//! The order in which buckets serve: a ring of those that can, and an alarm for those that cannot yet.

use std::collections::BTreeSet;

use super::bucket::{Bucket, Place};

/// Free buckets stand in one lane, paid ones in another.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Whose turn it is. May hold buckets that fell asleep since; they are dropped when met.
    pub(crate) ring: Ring,
    /// Who cannot serve before when.
    pub(crate) sleepers: BTreeSet<(i64, u32)>,
    /// When the first sleeper wakes; saves a look into the tree.
    pub(crate) next_wake_ms: i64,
    /// How many in the ring fell asleep since.
    stale: usize,
}

impl Default for Lane {
    fn default() -> Self {
        Self { ring: Ring::default(), sleepers: BTreeSet::new(), next_wake_ms: i64::MAX, stale: 0 }
    }
}

impl Lane {
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.items.is_empty() && self.sleepers.is_empty()
    }

    /// Puts the bucket numbered `index` where it belongs; `place` says where that is.
    pub(crate) fn put(&mut self, bucket: &mut Bucket, index: u32, place: Place) {
        if let Place::Asleep(until_ms) = bucket.place
            && bucket.place != place
        {
            self.sleepers.remove(&(until_ms, index));
        }
        if bucket.in_ring {
            self.stale -= usize::from(bucket.place != Place::Ready);
            self.stale += usize::from(place != Place::Ready);
        }
        match place {
            Place::Asleep(until_ms) if bucket.place != place => {
                self.sleepers.insert((until_ms, index));
            }
            Place::Ready if !bucket.in_ring => {
                bucket.in_ring = true;
                self.ring.push(index);
            }
            _ => {}
        }
        bucket.place = place;
        self.next_wake_ms = self.sleepers.first().map_or(i64::MAX, |(at, _)| *at);
    }

    /// The bucket at `position` of the ring leaves it: it fell asleep, or has no key.
    pub(crate) fn drop_from_ring(&mut self, position: usize, bucket: &mut Bucket) {
        bucket.in_ring = false;
        self.stale -= usize::from(bucket.place != Place::Ready);
        self.ring.remove(position);
    }

    /// Takes those who fell asleep out of the ring if they are many: one by one that would be slow.
    pub(crate) fn sweep(&mut self, buckets: &mut [Bucket]) {
        if self.stale < 16 || self.stale < self.ring.items.len() / 2 {
            return;
        }
        self.ring.items.rotate_left(self.ring.turn);
        self.ring.turn = 0;
        self.ring.items.retain(|index| {
            let bucket = &mut buckets[*index as usize];
            bucket.in_ring = bucket.place == Place::Ready;
            bucket.in_ring
        });
        self.stale = 0;
    }
}

/// A ring of bucket numbers: a list, and whose turn it is. A turn that is taken moves nothing.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    items: Vec<u32>,
    /// Less than the length, unless the ring is empty.
    turn: usize,
}

impl Ring {
    /// Whose turn it is.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.items.get(self.turn).copied()
    }

    /// The one who is `position` turns away.
    pub(crate) fn get(&self, position: usize) -> Option<u32> {
        (position < self.items.len()).then(|| self.items[self.place(position)])
    }

    /// In the order of turns.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let (later, sooner) = self.items.split_at(self.turn);
        sooner.iter().chain(later).copied()
    }

    /// The one at `position` had its turn, and goes to the back.
    #[inline]
    pub(crate) fn had_its_turn(&mut self, position: usize) {
        if position == 0 {
            self.turn += 1;
            if self.turn >= self.items.len() {
                self.turn = 0;
            }
        } else if let Some(index) = self.remove(position) {
            self.push(index);
        }
    }

    /// Joins at the back: just before the one whose turn it is.
    fn push(&mut self, index: u32) {
        if self.turn == 0 {
            return self.items.push(index);
        }
        self.items.insert(self.turn, index);
        self.turn += 1;
    }

    fn remove(&mut self, position: usize) -> Option<u32> {
        if position >= self.items.len() {
            return None;
        }
        let place = self.place(position);
        let index = self.items.remove(place);
        if place < self.turn {
            self.turn -= 1;
        }
        if self.turn >= self.items.len() {
            self.turn = 0;
        }
        Some(index)
    }

    fn place(&self, position: usize) -> usize {
        let place = self.turn + position;
        if place < self.items.len() { place } else { place - self.items.len() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// It does what a queue does whose front goes to the back.
        #[test]
        fn the_ring_turns_as_a_queue_does(
            steps in prop::collection::vec((0usize..3, 0usize..8), 0..60),
        ) {
            let (mut ring, mut queue) = (Ring::default(), VecDeque::new());
            for (next, (what, position)) in steps.into_iter().enumerate() {
                match what {
                    0 => {
                        let index = u32::try_from(next).unwrap();
                        ring.push(index);
                        queue.push_back(index);
                    }
                    1 => prop_assert_eq!(ring.remove(position), queue.remove(position)),
                    _ => {
                        ring.had_its_turn(position);
                        if let Some(index) = queue.remove(position) {
                            queue.push_back(index);
                        }
                    }
                }
                prop_assert!(ring.iter().eq(queue.iter().copied()));
                prop_assert_eq!(ring.first(), queue.front().copied());
                prop_assert_eq!(ring.get(position), queue.get(position).copied());
            }
        }
    }
}
