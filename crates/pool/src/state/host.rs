//! The provider refuses this machine: nobody sends for a while, whichever key and model.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use crate::Source;

const FIRST_MS: i64 = 60_000;
const LONGEST_MS: i64 = 30 * 60_000;

/// No block: before every clock.
const NONE: i64 = i64::MIN;

/// A block of the whole host: a minute at first, doubling to half an hour.
#[derive(Debug)]
pub(crate) struct Host {
    until_ms: AtomicI64,
    block: Mutex<Block>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    since_ms: i64,
    length_ms: i64,
    /// The reply said how long.
    stated: bool,
}

impl Default for Host {
    fn default() -> Self {
        Self { until_ms: AtomicI64::new(NONE), block: Mutex::default() }
    }
}

impl Host {
    /// Until when nobody sends; not after `now_ms` when nothing is known.
    pub(crate) fn until_ms(&self) -> i64 {
        self.until_ms.load(Relaxed)
    }

    /// A request sent at `sent_ms` was met by a block. `stated_ms` is the wait that came with it, if any.
    pub(crate) fn block(&self, sent_ms: i64, stated_ms: Option<i64>, now_ms: i64) {
        let mut block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        // One of several that were in flight when the block began.
        if block.length_ms > 0 && sent_ms <= block.since_ms && block.since_ms <= now_ms {
            return;
        }
        let doubled = (block.length_ms * 2).clamp(FIRST_MS, LONGEST_MS);
        let length_ms = stated_ms.unwrap_or(doubled).clamp(1_000, LONGEST_MS);
        *block = Block { since_ms: now_ms, length_ms: doubled, stated: stated_ms.is_some() };
        self.until_ms.store(now_ms.saturating_add(length_ms), Relaxed);
    }

    /// A request sent at `sent_ms` was answered: the next block starts at a minute again.
    pub(crate) fn answered(&self, sent_ms: i64) {
        if self.until_ms() == NONE {
            return;
        }
        let mut block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        if sent_ms > block.since_ms {
            *block = Block::default();
            self.until_ms.store(NONE, Relaxed);
        }
    }

    /// Forgets a block.
    pub(crate) fn clear(&self) {
        *self.block.lock().unwrap_or_else(PoisonError::into_inner) = Block::default();
        self.until_ms.store(NONE, Relaxed);
    }

    /// When the block ends, if it holds now, and how that is known.
    pub(crate) fn blocked(&self, now_ms: i64) -> Option<(i64, Source)> {
        let until_ms = self.blocked_until_ms(now_ms)?;
        let stated = self.block.lock().unwrap_or_else(PoisonError::into_inner).stated;
        Some((until_ms, if stated { Source::Stated } else { Source::Guessed }))
    }

    /// When the block ends, if it holds now. One that the clock left behind by going back is cut.
    pub(crate) fn blocked_until_ms(&self, now_ms: i64) -> Option<i64> {
        let until_ms = self.until_ms();
        if until_ms <= now_ms {
            return None;
        }
        let latest_ms = now_ms.saturating_add(LONGEST_MS);
        if until_ms > latest_ms {
            self.until_ms.store(latest_ms, Relaxed);
        }
        Some(until_ms.min(latest_ms))
    }
}
