//! One quota project for one model: what was used, what is believed, what holds it back.
//!
//! No locks, no clock: every method is told what time it is.

mod day;
mod setback;

use std::sync::Arc;

use keywheel_core::Fingerprint;

pub(crate) use self::day::{Day, Explored};
use super::{
    boundary::Boundary,
    keys::{Key, Project},
};
use crate::{
    cooldown::{Cooldown, Trouble},
    limits::{Effective, Learned, Limits},
    reset::DaySpan,
    window::{Amount, NOW, Window},
};

/// While the rate limit is unknown: how many calls may be in flight unanswered at first.
pub(crate) const FIRST_CAP: u32 = 2;

/// What an ask needs of a bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need<'a> {
    pub(crate) amount: Amount,
    pub(crate) tools: bool,
    pub(crate) paid: bool,
    pub(crate) exclude: &'a [Fingerprint],
    pub(crate) affinity: Option<&'a Arc<str>>,
}

impl Need<'_> {
    /// The least that anybody asks.
    pub(crate) const LEAST: Self =
        Need { amount: Amount::new(1, 0), tools: false, paid: false, exclude: &[], affinity: None };
}

/// Where a bucket stands in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the ring of those that can serve, as far as is known.
    Ready,
    /// Cannot serve before this moment; `i64::MAX`: before something happens.
    Asleep(i64),
    /// Out of the game: no key, or none alive, or not the one that fail-over uses.
    Out,
}

/// One quota project for one model. Small, since there may be 50,000 of them.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) project: Arc<Project>,
    /// Shared with the buckets of other models.
    pub(crate) keys: Arc<[Arc<Key>]>,
    next_key: u32,
    /// How many of the keys are in use, and until when the quota project is out: as of the last
    /// [`look_at_keys`](Self::look_at_keys), so that a call has no pointers to follow.
    alive: u16,
    pub(crate) project_until_ms: i64,
    /// Which lane it stands in: 0 for free, 1 for paid. Changes only when the roster is taken over.
    pub(crate) lane: u8,
    pub(crate) place: Place,
    pub(crate) in_ring: bool,
    pub(crate) dirty: bool,
    /// As the state file knows it: raised by every clear, whoever cleared.
    pub(crate) generation: u64,
    /// How often it was cleared since this pool began: what was leased before the last clear is old news.
    pub(crate) clears: u32,
    /// A clear was told to the state file, which may count its generation otherwise.
    pub(crate) clear_told: bool,
    pub(crate) in_flight: u32,
    /// Of those in flight, whose answer has begun.
    pub(crate) answering: u32,
    /// How many of the others there may be while the rate limit is unknown.
    pub(crate) cap: u32,
    /// Leased and not yet sent.
    pub(crate) held: Amount,
    pub(crate) window: Window,
    pub(crate) day: Day,
    /// The one before, if it was used: a clock that went ahead comes back to it.
    day_before: Option<Box<Day>>,
    pub(crate) limits: Effective,
    pub(crate) learned: Learned,
    /// At most one per cause; those that ended stay, to know later what was refused before they began.
    pub(crate) cooldowns: Vec<Cooldown>,
    /// The latest end among the cooldowns that concern every request.
    hold_until_ms: i64,
    trouble: Option<Box<Trouble>>,
    rare: Option<Box<Rare>>,
    /// Added to the end of a day that is full by count, so that not everybody wakes at midnight sharp.
    jitter_ms: u16,
}

/// What most buckets never have.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rare {
    boundary: Option<Boundary>,
    /// When it was cleared, if since the state file was last told.
    cleared_ms: Option<i64>,
}

impl Bucket {
    pub(crate) fn new(project: Arc<Project>, set: &Limits, span: DaySpan, jitter_ms: u16) -> Self {
        let learned = Learned::default();
        let limits = Effective::new(set, &learned);
        let (own, others) = (Amount::default(), Amount::default());
        Self {
            project,
            keys: Arc::default(),
            next_key: 0,
            alive: 0,
            project_until_ms: NOW,
            lane: 0,
            place: Place::Out,
            in_ring: false,
            dirty: false,
            generation: 0,
            clears: 0,
            clear_told: false,
            in_flight: 0,
            answering: 0,
            cap: FIRST_CAP,
            held: Amount::default(),
            window: Window::default(),
            day: Day { span, own_span: false, own, others, explored: Explored::No },
            day_before: None,
            limits,
            learned,
            cooldowns: Vec::new(),
            hold_until_ms: NOW,
            trouble: None,
            rare: None,
            jitter_ms,
        }
    }

    /// Takes over which keys are in use, and whether the quota project is.
    pub(crate) fn look_at_keys(&mut self, now_ms: i64) {
        let alive = self.keys.iter().filter(|key| !key.is_quarantined()).count();
        self.alive = u16::try_from(alive).unwrap_or(u16::MAX);
        self.project_until_ms = self.project.until_ms(now_ms);
    }

    pub(crate) const fn is_alive(&self) -> bool {
        self.alive > 0
    }

    /// When `need` can be served, as far as the bucket is concerned: [`NOW`], a moment after `now_ms`, or
    /// `i64::MAX` when no moment is known. Call [`advance`](Self::advance) first.
    #[inline]
    pub(crate) fn free_at(&self, need: &Need<'_>, now_ms: i64) -> i64 {
        let mut at = self.hold_until_ms.max(self.project_until_ms);
        if need.tools {
            at = at.max(self.tools_until_ms());
        }
        if self.day_is_full(need.amount) {
            at = at.max(self.day.span.end_ms.saturating_add(i64::from(self.jitter_ms)));
        }
        if at == i64::MAX {
            return at;
        }
        let minute = self.window.free_at(need.amount, self.held, self.limits.rpm, self.limits.tpm);
        let at = at.max(minute);
        if at > now_ms {
            return at;
        }
        // Only calls in flight stand in the way, and nobody knows when they are answered.
        let trying = self.in_flight.saturating_sub(self.answering);
        let at_the_cap = self.limits.rate_is_unknown() && trying >= self.cap;
        if at_the_cap { i64::MAX } else { NOW }
    }

    /// The next live key that is not excluded, one after the other.
    #[inline]
    pub(crate) fn next_key(&mut self, exclude: &[Fingerprint]) -> Option<Arc<Key>> {
        if let [key] = &*self.keys
            && exclude.is_empty()
        {
            return (self.alive > 0).then(|| Arc::clone(key));
        }
        let count = self.keys.len();
        let first = self.next_key as usize;
        let place = (first..count).chain(0..first.min(count)).find(|place| {
            let key = &self.keys[*place];
            !key.is_quarantined() && is_welcome(key, exclude)
        })?;
        self.next_key = u32::try_from(place + 1).unwrap_or(0);
        Some(Arc::clone(&self.keys[place]))
    }

    /// True when a key would be found: [`next_key`](Self::next_key) without taking a turn.
    #[inline]
    pub(crate) fn has_key(&self, exclude: &[Fingerprint]) -> bool {
        if exclude.is_empty() {
            return self.alive > 0;
        }
        self.keys.iter().any(|key| !key.is_quarantined() && is_welcome(key, exclude))
    }

    /// How much of the day is left, in thousandths; what is unknown counts as untouched.
    pub(crate) fn remaining(&self) -> u64 {
        let used = self.day.used().plus(self.held);
        let left = |used: u64, limit: u64| match limit {
            Effective::UNKNOWN | 0 => 1_000,
            _ => limit.saturating_sub(used).saturating_mul(1_000) / limit,
        };
        left(used.requests, self.limits.rpd).min(left(used.tokens, self.limits.tpd))
    }

    /// Takes its share for a call that is about to be sent.
    pub(crate) fn hold(&mut self, amount: Amount) {
        self.in_flight += 1;
        self.held.add(amount);
    }

    /// A held call is not sent after all.
    pub(crate) fn unhold(&mut self, amount: Amount) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.held.take(amount);
    }

    /// A held call leaves now.
    pub(crate) fn sent(&mut self, amount: Amount, now_ms: i64) -> Sent {
        self.held.take(amount);
        self.day.own.add(amount);
        let number = self.window.push(amount, now_ms);
        Sent { number, day_from_ms: self.day.span.from_ms, answers: false }
    }

    /// A call came to its end; what was counted for it becomes `actual`.
    pub(crate) fn settle(&mut self, sent: Sent, counted: Amount, actual: Amount) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.answering = self.answering.saturating_sub(u32::from(sent.answers));
        if counted == actual {
            return;
        }
        self.window.correct(sent.number, counted, actual);
        if sent.day_from_ms == self.day.span.from_ms {
            self.day.own.add(actual);
            self.day.own.take(counted);
        }
    }

    /// The answer to a call that was sent has begun.
    pub(crate) fn answers(&mut self, sent: &mut Sent) {
        sent.answers = true;
        self.answering += 1;
    }

    /// There was room for a call: its answer is whole, or has begun.
    pub(crate) fn answered(&mut self) {
        if self.limits.rate_is_unknown() {
            self.cap = self.cap.saturating_add(1);
        }
    }

    /// A call that was sent at `sent_ms` was served.
    pub(crate) fn served(&mut self, sent_ms: i64) {
        if let Some(trouble) = &mut self.trouble {
            trouble.served(sent_ms);
        }
    }

    /// True if nothing is known of it but counts, and troubles that are over.
    pub(crate) fn is_plain(&self, now_ms: i64) -> bool {
        let was_cleared = self.generation > 0 || self.clears > 0;
        let is_idle = self.in_flight == 0 && !self.dirty;
        let is_out = self.cooldowns.iter().any(|known| known.is_active(now_ms));
        let knows = is_out || self.learned.iter().next().is_some();
        is_idle && !was_cleared && !knows && self.rare.is_none()
    }

    /// It could not serve when last looked at.
    pub(crate) fn has_stopped(&self) -> bool {
        self.place != Place::Ready
    }

    /// When it was cleared, if nobody took that to the state file yet.
    pub(crate) fn take_cleared(&mut self) -> Option<i64> {
        self.rare.as_ref()?;
        self.change_rare(|rare| rare.cleared_ms.take())
    }

    /// Brings what is derived up to date after limits or cooldowns changed.
    pub(crate) fn refresh(&mut self, set: &Limits) {
        self.limits = Effective::new(set, &self.learned);
        self.refresh_hold();
    }

    fn change_rare<T>(&mut self, change: impl FnOnce(&mut Rare) -> T) -> T {
        let mut rare = self.rare.take().unwrap_or_default();
        let changed = change(&mut rare);
        self.rare = (*rare != Rare::default()).then_some(rare);
        changed
    }
}

/// Where a call that was sent is counted: its entry in the window, its day, and whether it is among the answering.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) day_from_ms: i64,
    pub(crate) answers: bool,
}

fn is_welcome(key: &Key, exclude: &[Fingerprint]) -> bool {
    exclude.is_empty() || !exclude.contains(&key.key.fingerprint())
}
