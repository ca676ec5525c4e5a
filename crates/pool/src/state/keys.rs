//! Keys and quota projects as calls see them: facts that never change, and a few atomics.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, Ordering::Relaxed},
};

use keywheel_core::{ApiKey, Cause, Tier};

/// A quota project: whoever shares one shares its quota.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) name: Arc<str>,
    /// Out for every model since and until then; `i64::MIN`: not out.
    since_ms: AtomicI64,
    until_ms: AtomicI64,
    dead: Dead,
    clears: AtomicU32,
    paid: AtomicBool,
}

impl Project {
    pub(crate) fn new(name: Arc<str>, paid: bool) -> Self {
        Self {
            name,
            since_ms: AtomicI64::new(i64::MIN),
            until_ms: AtomicI64::new(i64::MIN),
            dead: Dead::default(),
            clears: AtomicU32::new(0),
            paid: AtomicBool::new(paid),
        }
    }

    /// Until when it is out for every model, seen from `now_ms`: if the clock went back behind the beginning,
    /// it lasts as long as it was meant to.
    pub(crate) fn until_ms(&self, now_ms: i64) -> i64 {
        let (since_ms, until_ms) = (self.since_ms.load(Relaxed), self.until_ms.load(Relaxed));
        if since_ms <= now_ms {
            return until_ms;
        }
        until_ms.min(now_ms.saturating_add(until_ms.saturating_sub(since_ms)))
    }

    /// Sets since when and until when it is out.
    pub(crate) fn set_out(&self, out: Option<(i64, i64)>) {
        let (since_ms, until_ms) = out.unwrap_or((i64::MIN, i64::MIN));
        self.since_ms.store(since_ms, Relaxed);
        self.until_ms.store(until_ms, Relaxed);
    }

    pub(crate) const fn dead(&self) -> &Dead {
        &self.dead
    }

    /// It was cleared: what is in flight now is old news.
    pub(crate) fn was_cleared(&self) {
        self.clears.fetch_add(1, Relaxed);
    }

    pub(crate) fn is_paid(&self) -> bool {
        self.paid.load(Relaxed)
    }

    pub(crate) fn set_paid(&self, paid: bool) {
        self.paid.store(paid, Relaxed);
    }
}

/// A key that was loaded.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) key: ApiKey,
    pub(crate) label: Arc<str>,
    pub(crate) project: Arc<Project>,
    dead: Dead,
    clears: AtomicU32,
}

impl Key {
    pub(crate) fn new(key: ApiKey, label: Arc<str>, project: Arc<Project>) -> Self {
        Self { key, label, project, dead: Dead::default(), clears: AtomicU32::new(0) }
    }

    /// It is quarantined, alone or with its quota project.
    pub(crate) fn is_quarantined(&self) -> bool {
        self.dead.is_set() || self.project.dead.is_set()
    }

    /// Why it is quarantined, alone or with its quota project.
    pub(crate) fn quarantined(&self) -> Option<Cause> {
        self.dead.cause().or_else(|| self.project.dead.cause())
    }

    pub(crate) const fn dead(&self) -> &Dead {
        &self.dead
    }

    /// It was cleared: what is in flight now is old news.
    pub(crate) fn was_cleared(&self) {
        self.clears.fetch_add(1, Relaxed);
    }

    /// How often it, or its quota project, was cleared.
    pub(crate) fn clears(&self) -> u32 {
        self.clears.load(Relaxed).wrapping_add(self.project.clears.load(Relaxed))
    }

    pub(crate) fn tier(&self) -> Tier {
        if self.project.is_paid() { Tier::Paid } else { Tier::Free }
    }
}

/// The cause of a quarantine, or none, readable without a lock.
#[derive(Debug, Default)]
pub(crate) struct Dead(AtomicU8);

impl Dead {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        let place = self.0.load(Relaxed).checked_sub(1)?;
        Cause::ALL.get(usize::from(place)).copied()
    }

    pub(crate) fn set(&self, cause: Option<Cause>) {
        let place = cause.and_then(|cause| Cause::ALL.iter().position(|other| *other == cause));
        let number = place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0);
        self.0.store(number, Relaxed);
    }
}
