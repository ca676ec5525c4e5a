//! Keys and quota projects as calls see them: facts that never change, and a few atomics.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, Ordering::Relaxed},
};

use keywheel_core::{ApiKey, Cause, Tier};

use super::table::Quarantined;
use crate::{Source, cooldown::Cooldown};

/// The sources by number, to keep one in an atomic.
const SOURCES: [Source; 4] = [Source::Guessed, Source::Stated, Source::Derived, Source::Counted];

/// A quota project: whoever shares one shares its quota.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) name: Arc<str>,
    /// Out for every model since and until then; `i64::MIN`: not out.
    since_ms: AtomicI64,
    until_ms: AtomicI64,
    /// What it is out for, and how the end is known.
    out_for: Reason,
    out_source: AtomicU8,
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
            out_for: Reason::default(),
            out_source: AtomicU8::new(0),
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

    /// What it is out for, if it is, and how the end is known.
    pub(crate) fn out_for(&self) -> Option<(Cause, Source)> {
        let source = SOURCES.get(usize::from(self.out_source.load(Relaxed))).copied();
        Some((self.out_for.cause()?, source.unwrap_or(Source::Guessed)))
    }

    /// Sets what keeps it out, if anything does.
    pub(crate) fn set_out(&self, out: Option<&Cooldown>) {
        let (since_ms, until_ms) =
            out.map_or((i64::MIN, i64::MIN), |out| (out.since_ms, out.until_ms));
        let place = SOURCES.iter().position(|source| out.is_some_and(|out| out.source == *source));
        self.out_for.set(out.map(|out| out.cause));
        self.out_source
            .store(place.and_then(|place| u8::try_from(place).ok()).unwrap_or(0), Relaxed);
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
        self.dead.cause.is_set() || self.project.dead.cause.is_set()
    }

    /// Why it is quarantined, alone or with its quota project.
    pub(crate) fn quarantined(&self) -> Option<Cause> {
        self.dead.cause.cause().or_else(|| self.project.dead.cause.cause())
    }

    /// What its owner can do about that, and what the reply said.
    pub(crate) fn why_quarantined(&self) -> String {
        let dead = if self.dead.cause.is_set() { &self.dead } else { &self.project.dead };
        dead.detail.lock().unwrap_or_else(PoisonError::into_inner).as_ref().into()
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

/// A quarantine, or none.
#[derive(Debug, Default)]
pub(crate) struct Dead {
    cause: Reason,
    detail: Mutex<Box<str>>,
}

impl Dead {
    pub(crate) fn set(&self, quarantine: Option<&Quarantined>) {
        let detail = quarantine.map_or("", |known| &known.detail);
        *self.detail.lock().unwrap_or_else(PoisonError::into_inner) = detail.into();
        self.cause.set(quarantine.map(|known| known.cause));
    }
}

/// A cause, or none, readable without a lock.
#[derive(Debug, Default)]
struct Reason(AtomicU8);

impl Reason {
    fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    fn cause(&self) -> Option<Cause> {
        let place = self.0.load(Relaxed).checked_sub(1)?;
        Cause::ALL.get(usize::from(place)).copied()
    }

    fn set(&self, cause: Option<Cause>) {
        let place = cause.and_then(|cause| Cause::ALL.iter().position(|other| *other == cause));
        let number = place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0);
        self.0.store(number, Relaxed);
    }
}
