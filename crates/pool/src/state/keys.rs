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
    /// Out for every model until then; `i64::MIN`: not out.
    until_ms: AtomicI64,
    dead: Dead,
    clears: AtomicU32,
    paid: AtomicBool,
}

impl Project {
    pub(crate) fn new(name: Arc<str>, paid: bool) -> Self {
        let (until_ms, clears) = (AtomicI64::new(i64::MIN), AtomicU32::new(0));
        Self { name, until_ms, dead: Dead::default(), clears, paid: AtomicBool::new(paid) }
    }

    pub(crate) fn until_ms(&self) -> i64 {
        self.until_ms.load(Relaxed)
    }

    pub(crate) fn set_until_ms(&self, until_ms: i64) {
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
