//! The rolling minute of one bucket: what was sent in the last sixty seconds.
//!
//! An entry counts for a minute and a margin after it was sent: the provider stamps the arrival, which is
//! later than the sending, so a window that is exact by our clock would be early by the provider's.
//! Entries of the same 128 ms are kept as one, stamped with their end.

use std::collections::VecDeque;

/// "Now" among moments at which something can serve: before every clock.
pub(crate) const NOW: i64 = i64::MIN;

/// How long an entry counts after it was sent.
pub(crate) const SPAN_MS: i64 = 60_500;

/// A power of two, so that the end of a slot is one operation away.
const SLOT_MS: i64 = 128;

/// What was used in one slot of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at_ms: i64,
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
}

/// How much of something: requests and input tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
}

impl Amount {
    pub(crate) const fn new(requests: u64, tokens: u64) -> Self {
        Self { requests, tokens }
    }

    pub(crate) const fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }

    pub(crate) const fn take(&mut self, other: Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.tokens = self.tokens.saturating_sub(other.tokens);
    }

    pub(crate) const fn plus(mut self, other: Self) -> Self {
        self.add(other);
        self
    }
}

/// True when `need` goes on top of `used`. What is more than the limit by itself goes alone: on top of nothing.
pub(crate) const fn fits(used: u64, need: u64, limit: u64) -> bool {
    used.saturating_add(need) <= limit || (need > limit && used == 0)
}

/// What was used in the last minute, by this pool and by others on the same state file.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Before this nothing leaves the window: saves every call a look at the lists.
    next_exit_ms: i64,
    log: VecDeque<Entry>,
    /// The number of the entry at the front of `log`; entries are numbered for ever.
    first: u64,
    own: Amount,
    /// What others on the same state file used, oldest first. Mostly there is nobody else.
    others: Option<Box<Others>>,
}

#[derive(Debug, Clone, Default)]
struct Others {
    log: Vec<Entry>,
    sum: Amount,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            next_exit_ms: i64::MAX,
            log: VecDeque::new(),
            first: 0,
            own: Amount::default(),
            others: None,
        }
    }
}

impl Window {
    /// Drops what has left the window.
    #[inline]
    pub(crate) fn expire(&mut self, now_ms: i64) {
        if now_ms >= self.next_exit_ms {
            self.drop_expired(now_ms);
        }
    }

    fn drop_expired(&mut self, now_ms: i64) {
        while let Some(entry) = self.log.front() {
            if entry.at_ms.saturating_add(SPAN_MS) > now_ms {
                break;
            }
            self.own.take(Amount::new(entry.requests, entry.tokens));
            self.log.pop_front();
            self.first += 1;
        }
        if let Some(others) = &mut self.others {
            let gone =
                others.log.partition_point(|entry| entry.at_ms.saturating_add(SPAN_MS) <= now_ms);
            for entry in others.log.drain(..gone) {
                others.sum.take(Amount::new(entry.requests, entry.tokens));
            }
        }
        self.look_ahead();
    }

    fn theirs(&self) -> &[Entry] {
        self.others.as_deref().map_or(&[], |others| &others.log)
    }

    fn look_ahead(&mut self) {
        let ours = self.log.front().map_or(i64::MAX, |entry| entry.at_ms);
        let theirs = self.theirs().first().map_or(i64::MAX, |entry| entry.at_ms);
        self.next_exit_ms = ours.min(theirs).saturating_add(SPAN_MS);
    }

    /// Counts what is sent now. The number finds it again.
    pub(crate) fn push(&mut self, amount: Amount, now_ms: i64) -> u64 {
        self.own.add(amount);
        let slot = slot_end(now_ms);
        if let Some(last) = self.log.back_mut()
            && last.at_ms >= slot
        {
            last.requests += amount.requests;
            last.tokens = last.tokens.saturating_add(amount.tokens);
        } else {
            let Amount { requests, tokens } = amount;
            self.log.push_back(Entry { at_ms: slot, requests, tokens });
            self.next_exit_ms = self.next_exit_ms.min(slot.saturating_add(SPAN_MS));
        }
        self.first + self.log.len() as u64 - 1
    }

    /// Replaces what `push` counted under `number` by `actual`; nothing happens once it has left the window.
    pub(crate) fn correct(&mut self, number: u64, counted: Amount, actual: Amount) {
        let Some(entry) = number
            .checked_sub(self.first)
            .and_then(|place| usize::try_from(place).ok())
            .and_then(|place| self.log.get_mut(place))
        else {
            return;
        };
        entry.requests = (entry.requests + actual.requests).saturating_sub(counted.requests);
        entry.tokens = (entry.tokens.saturating_add(actual.tokens)).saturating_sub(counted.tokens);
        self.own.add(actual);
        self.own.take(counted);
    }

    /// What others on the same state file used, oldest first or not.
    pub(crate) fn set_others(&mut self, entries: impl Iterator<Item = Entry>, now_ms: i64) {
        let live = |entry: &Entry| entry.at_ms.saturating_add(SPAN_MS) > now_ms;
        // A stamp of the future is another machine's clock, or a damaged file: it counts from now.
        let bounded = |entry: Entry| Entry { at_ms: entry.at_ms.min(slot_end(now_ms)), ..entry };
        let mut log: Vec<_> = entries.filter(live).map(bounded).collect();
        log.sort_unstable_by_key(|entry| entry.at_ms);
        let mut sum = Amount::default();
        for entry in &log {
            sum.add(Amount::new(entry.requests, entry.tokens));
        }
        self.others = (!log.is_empty()).then(|| Box::new(Others { log, sum }));
        self.look_ahead();
    }

    /// The clock went back: nothing counts for longer than a window from now.
    pub(crate) fn rewind(&mut self, now_ms: i64) {
        let latest = slot_end(now_ms);
        self.log.iter_mut().for_each(|entry| entry.at_ms = entry.at_ms.min(latest));
        if let Some(others) = &mut self.others {
            others.log.iter_mut().for_each(|entry| entry.at_ms = entry.at_ms.min(latest));
        }
        self.look_ahead();
    }

    /// What is used, all together. Call [`expire`](Self::expire) first.
    pub(crate) fn used(&self) -> Amount {
        let theirs = self.others.as_deref().map_or(Amount::default(), |others| others.sum);
        self.own.plus(theirs)
    }

    /// What this pool used, oldest first.
    pub(crate) fn own(&self) -> impl Iterator<Item = &Entry> {
        self.log.iter()
    }

    /// When `need` fits beside `held` (leased and not yet sent): [`NOW`], or a moment, or `i64::MAX` when it never will while
    /// `held` is held. Call [`expire`](Self::expire) first.
    #[inline]
    pub(crate) fn free_at(&self, need: Amount, held: Amount, rpm: u64, tpm: u64) -> i64 {
        if rpm == u64::MAX && tpm == u64::MAX {
            return NOW;
        }
        self.free_under(need, held, rpm, tpm)
    }

    fn free_under(&self, need: Amount, held: Amount, rpm: u64, tpm: u64) -> i64 {
        let mut used = self.used().plus(held);
        // An ask of unknown size needs some room for tokens, too.
        let tokens = need.tokens.max(1);
        let fit = |used: &Amount| {
            fits(used.requests, need.requests, rpm) && fits(used.tokens, tokens, tpm)
        };
        if fit(&used) {
            return NOW;
        }
        // Both lists are in order of time: walk them as one until enough has left.
        let (mut ours, mut theirs) = (self.log.iter().peekable(), self.theirs().iter().peekable());
        loop {
            let from_ours = match (ours.peek(), theirs.peek()) {
                (Some(a), Some(b)) => a.at_ms <= b.at_ms,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return i64::MAX,
            };
            let next = if from_ours { ours.next() } else { theirs.next() };
            let Some(entry) = next else { return i64::MAX };
            used.take(Amount::new(entry.requests, entry.tokens));
            if fit(&used) {
                return entry.at_ms.saturating_add(SPAN_MS);
            }
        }
    }
}

const fn slot_end(now_ms: i64) -> i64 {
    now_ms | (SLOT_MS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NO_LIMIT: u64 = u64::MAX;

    fn one(tokens: u64) -> Amount {
        Amount::new(1, tokens)
    }

    #[test]
    fn an_entry_counts_for_a_minute_and_a_margin() {
        let mut window = Window::default();
        window.push(one(10), 1_000);
        let back = window.free_at(one(0), Amount::default(), 1, NO_LIMIT);
        assert_eq!(back, 1_023 + SPAN_MS);
        window.expire(back - 1);
        assert_eq!(window.used(), one(10));
        window.expire(back);
        assert_eq!(window.used(), Amount::default());
    }

    #[test]
    fn what_is_more_than_the_limit_goes_alone() {
        let mut window = Window::default();
        assert_eq!(window.free_at(one(5_000), Amount::default(), 15, 1_000), NOW);
        window.push(one(1), 0);
        assert_eq!(window.free_at(one(5_000), Amount::default(), 15, 1_000), 127 + SPAN_MS);
        // While something is held and may still be sent, nobody can say when.
        assert_eq!(window.free_at(one(5_000), one(1), 15, 1_000), i64::MAX);
    }

    #[test]
    fn a_correction_after_the_entry_has_left_changes_nothing() {
        let mut window = Window::default();
        let first = window.push(one(100), 0);
        window.expire(SPAN_MS + 127);
        let second = window.push(one(100), SPAN_MS + 127);
        window.correct(first, one(100), Amount::default());
        assert_eq!(window.used(), one(100));
        window.correct(second, one(100), Amount::default());
        assert_eq!(window.used(), Amount::default());
    }

    #[test]
    fn stamps_of_the_future_count_from_now() {
        let mut window = Window::default();
        let far = Entry { at_ms: i64::MAX, requests: 9, tokens: 9 };
        window.set_others([far].into_iter(), 5_000);
        assert_eq!(window.free_at(one(0), Amount::default(), 9, NO_LIMIT), 5_119 + SPAN_MS);
        window.push(one(1), 3_600_000);
        window.rewind(0);
        window.expire(127 + SPAN_MS);
        assert_eq!(window.used(), Amount::default());
    }

    proptest! {
        /// The promise: at the moment told it fits, and a millisecond earlier it does not.
        #[test]
        fn it_fits_exactly_at_the_moment_told(
            sent in prop::collection::vec((0i64..50_000, 1u64..4, 0u64..500), 1..40),
            others in prop::collection::vec((0i64..50_000, 1u64..4, 0u64..500), 0..10),
            rpm in 1u64..20,
            tpm in 1u64..2_000,
            need in (1u64..5, 0u64..1_000),
        ) {
            let mut sent = sent;
            sent.sort_unstable();
            let mut window = Window::default();
            for &(at, requests, tokens) in &sent {
                window.push(Amount::new(requests, tokens), at);
            }
            let others = others.iter().map(|&(at_ms, requests, tokens)| Entry { at_ms, requests, tokens });
            window.set_others(others, 50_000);
            let need = Amount::new(need.0, need.1);
            let at = window.free_at(need, Amount::default(), rpm, tpm);
            prop_assert!(at != i64::MAX);
            if at != NOW {
                let mut early = window.clone();
                early.expire(at - 1);
                prop_assert!(early.free_at(need, Amount::default(), rpm, tpm) != NOW);
                window.expire(at);
                prop_assert_eq!(window.free_at(need, Amount::default(), rpm, tpm), NOW);
            }
        }

        /// However it is corrected, the sums are those of the entries.
        #[test]
        fn the_sums_stay_those_of_the_entries(
            steps in prop::collection::vec((0i64..3_000, 1u64..4, 0u64..500, any::<bool>()), 1..100),
        ) {
            let mut window = Window::default();
            let mut now = 0;
            for (wait, requests, tokens, give_back) in steps {
                now += wait;
                window.expire(now);
                let amount = Amount::new(requests, tokens);
                let number = window.push(amount, now);
                if give_back {
                    window.correct(number, amount, Amount::default());
                }
                let sum = window.own().fold(Amount::default(), |sum, entry| {
                    sum.plus(Amount::new(entry.requests, entry.tokens))
                });
                prop_assert_eq!(window.used(), sum);
            }
        }
    }
}
