//! Which texts go into the next request.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use keywheel_core::{Tier, estimate};

use crate::gemini::Inner;

/// The most that one request may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) texts: usize,
    /// By our estimate. A text that has more of them goes alone.
    pub(super) tokens: u64,
}

impl Most {
    /// What the provider takes at once, and no more than the smallest limit that is known of those who may serve:
    /// whoever's turn it is, the request fits.
    pub(super) fn now(inner: &Inner, model: &str, allow_paid: bool) -> Self {
        let most = inner.upstream.provider().max_embed_batch();
        let mut most = Self { texts: most.max(1), tokens: u64::MAX };
        // Elsewhere than at Google a request is a request, however many texts it holds.
        let each_counts = inner.upstream.provider().embed_weight(most.texts) >= most.texts;
        for project in inner.pool.limits(model) {
            if project.tier == Tier::Paid && !allow_paid {
                continue;
            }
            let limits = project.believed();
            for requests in [limits.rpm, limits.rpd].into_iter().flatten().filter(|_| each_counts) {
                let requests = usize::try_from(requests).unwrap_or(usize::MAX);
                most.texts = most.texts.min(requests.max(1));
            }
            for tokens in [limits.tpm, limits.tpd].into_iter().flatten() {
                most.tokens = most.tokens.min(tokens);
            }
        }
        most
    }
}

/// The texts that are still to be asked for.
#[derive(Debug)]
pub(super) struct Batches {
    left: VecDeque<Arc<str>>,
    different: usize,
    /// The most texts that experience allows: halved by every request that found no room, doubled by one that did.
    room: usize,
}

impl Batches {
    /// The different ones of `texts`, in their order, without those that are known.
    pub(super) fn new(texts: &[Arc<str>], is_known: impl Fn(&str) -> bool) -> Self {
        let mut seen = HashSet::new();
        let different = texts.iter().filter(|text| seen.insert(&***text));
        let left = different.filter(|text| !is_known(text)).cloned().collect();
        Self { left, different: seen.len(), room: usize::MAX }
    }

    /// Of texts that are all different, and none of them known.
    pub(super) fn of(texts: impl Iterator<Item = Arc<str>>) -> Self {
        let left: VecDeque<_> = texts.collect();
        Self { different: left.len(), left, room: usize::MAX }
    }

    /// How many different texts there are, known ones included.
    pub(super) const fn different(&self) -> usize {
        self.different
    }

    /// How many are still to be asked for.
    pub(super) fn left(&self) -> usize {
        self.left.len()
    }

    /// All that is left, which is left no more.
    pub(super) fn take_all(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.left).into()
    }

    /// A text that is to be asked for after all.
    pub(super) fn put_back_one(&mut self, text: Arc<str>) {
        self.left.push_back(text);
    }

    /// The texts of the next request; `None` if none is left.
    pub(super) fn next(&mut self, most: &Most) -> Option<Vec<Arc<str>>> {
        let first = self.left.pop_front()?;
        let mut tokens = estimate::tokens(&first);
        let mut batch = vec![first];
        while batch.len() < most.texts.min(self.room)
            && let Some(text) = self.left.front()
        {
            tokens = tokens.saturating_add(estimate::tokens(text));
            if tokens > most.tokens {
                break;
            }
            batch.extend(self.left.pop_front());
        }
        Some(batch)
    }

    /// A request of so many texts was served.
    pub(super) fn went_well(&mut self, texts: usize) {
        if texts >= self.room {
            self.room = self.room.saturating_mul(2);
        }
    }

    /// A request found no room, or failed: its texts are the next again, fewer at a time.
    pub(super) fn put_back(&mut self, texts: Vec<Arc<str>>) {
        self.room = self.room.min((texts.len() / 2).max(1));
        for text in texts.into_iter().rev() {
            self.left.push_front(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Most = Most { texts: 100, tokens: u64::MAX };

    fn texts(count: usize) -> Vec<Arc<str>> {
        (0..count).map(|number| format!("text {number}").into()).collect()
    }

    fn sizes(batches: &mut Batches, most: &Most) -> Vec<usize> {
        std::iter::from_fn(|| batches.next(most)).map(|batch| batch.len()).collect()
    }

    #[test]
    fn texts_are_asked_for_a_hundred_at_a_time() {
        let mut batches = Batches::new(&texts(250), |_| false);
        assert_eq!(sizes(&mut batches, &MOST), [100, 100, 50]);
    }

    #[test]
    fn a_text_that_comes_twice_or_is_known_is_not_asked_for_again() {
        let all = [texts(3), texts(3)].concat();
        let mut batches = Batches::new(&all, |text| text == "text 1");
        assert_eq!((batches.different(), batches.left()), (3, 2));
        let batch = batches.next(&MOST).unwrap();
        assert_eq!(batch, ["text 0".into(), "text 2".into()]);
    }

    #[test]
    fn a_request_holds_no_more_tokens_than_a_limit_allows() {
        let long: Vec<Arc<str>> =
            (0..4).map(|n| format!("{n} {}", "word ".repeat(60)).into()).collect();
        let each = estimate::tokens(&long[0]);
        let most = Most { texts: 100, tokens: each * 2 };
        assert_eq!(sizes(&mut Batches::new(&long, |_| false), &most), [2, 2]);
        let most = Most { texts: 100, tokens: each / 2 };
        assert_eq!(sizes(&mut Batches::new(&long, |_| false), &most), [1; 4], "alone if it must");
    }

    #[test]
    fn what_finds_no_room_is_tried_in_smaller_parts_until_one_text_is_left() {
        let mut batches = Batches::new(&texts(100), |_| false);
        let mut tried = Vec::new();
        for _ in 0..8 {
            let batch = batches.next(&MOST).unwrap();
            tried.push(batch.len());
            batches.put_back(batch);
        }
        assert_eq!(tried, [100, 50, 25, 12, 6, 3, 1, 1]);
        assert_eq!(batches.left(), 100, "none is lost");
        assert_eq!(&*batches.next(&MOST).unwrap()[0], "text 0");
        batches.went_well(1);
        assert_eq!(batches.next(&MOST).unwrap().len(), 2, "and grows again");
    }
}
