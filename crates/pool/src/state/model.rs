//! All buckets of one model, and where each belongs now.

mod serve;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
};

use super::{
    bucket::{Bucket, Need, Place, Sent},
    keys::{Key, Project},
    lane::{Lane, Ring},
    table::Member,
};
use crate::{
    Ask, Selection,
    limits::Limits,
    reset::{DaySpan, Strategies},
    wait::Line,
    window::{Amount, NOW},
};

/// How far back the clock may seem to go before it is taken for a step: threads read it one after the other
/// and lock in another order.
const STEP_MS: i64 = 2_000;

/// What the pool was built with, and a model needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) strategies: Strategies,
    pub(crate) selection: Selection,
    pub(crate) exploration: bool,
    pub(crate) limits: Vec<crate::limits::LimitRule>,
    pub(crate) seed: Option<u64>,
}

/// One model: its name, and its state behind one lock.
#[derive(Debug)]
pub(crate) struct ModelPool {
    pub(crate) name: Arc<str>,
    state: Mutex<Model>,
}

impl ModelPool {
    pub(crate) fn new(name: Arc<str>, rules: &Rules, now_ms: i64) -> Self {
        let state = Mutex::new(Model::new(&name, rules, now_ms));
        Self { name, state }
    }

    /// `None` while somebody has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Model>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Model> {
        // A panic under this lock is a bug in this crate; refusing all later calls would not mend it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of one model.
#[derive(Debug)]
pub(crate) struct Model {
    /// Which version of the roster of keys this knows; 0: none yet.
    pub(crate) roster: u64,
    pub(crate) buckets: Vec<Bucket>,
    places: HashMap<Arc<str>, u32>,
    lanes: [Lane; 2],
    /// Limits set by the user.
    pub(crate) set: Limits,
    day: DaySpan,
    last_ms: i64,
    /// It has answered, so that its name is nobody's invention.
    pub(crate) has_served: bool,
    /// Buckets that the state file has to be told about.
    pub(crate) dirty: Vec<u32>,
    /// Buckets of which the state file was told last, and has not answered yet.
    pub(crate) told: Vec<u32>,
    pub(crate) line: Line,
    rng: fastrand::Rng,
    pub(crate) explore: super::explore::Cursor,
    pub(crate) hints: crate::hint::Suspicions,
}

/// A key that serves, and where it was found.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) index: u32,
    pub(crate) key: Arc<Key>,
    pub(crate) clears: u32,
}

/// Nothing serves now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotNow {
    /// When something might; `i64::MAX`: no moment is known.
    pub(crate) soonest_ms: i64,
    /// Something serves, and somebody goes before: when to look whether they still do.
    pub(crate) again_ms: i64,
    /// Those cannot be served yet, and keep what they wait for.
    pub(crate) held: bool,
}

impl NotNow {
    pub(crate) const NEVER: Self = Self::until(i64::MAX);

    pub(crate) const fn until(soonest_ms: i64) -> Self {
        Self { soonest_ms, again_ms: i64::MAX, held: false }
    }
}

impl Model {
    fn new(name: &str, rules: &Rules, now_ms: i64) -> Self {
        let rng = match rules.seed {
            Some(seed) => fastrand::Rng::with_seed(
                name.bytes()
                    .fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))),
            ),
            None => fastrand::Rng::new(),
        };
        Self {
            roster: 0,
            buckets: Vec::new(),
            places: HashMap::new(),
            lanes: Default::default(),
            set: crate::limits::set_by_user(&rules.limits, name),
            day: rules.strategies.day(now_ms),
            last_ms: now_ms,
            has_served: false,
            dirty: Vec::new(),
            told: Vec::new(),
            line: Line::default(),
            rng,
            explore: super::explore::Cursor::default(),
            hints: crate::hint::Suspicions::default(),
        }
    }

    /// Takes over the roster of keys: which quota projects there are, with which keys, in which order.
    pub(crate) fn adopt(&mut self, roster: u64, members: &[Member], rules: &Rules, now_ms: i64) {
        self.roster = roster;
        let none: Arc<[Arc<Key>]> = Arc::default();
        for bucket in &mut self.buckets {
            bucket.keys = Arc::clone(&none);
            bucket.look_at_keys(now_ms);
        }
        self.buckets.reserve_exact(members.len().saturating_sub(self.buckets.len()));
        for Member { project, keys } in members {
            let index = self.bucket_of(project);
            let bucket = &mut self.buckets[index as usize];
            bucket.project = Arc::clone(project);
            bucket.keys = Arc::clone(keys);
            bucket.lane = u8::from(project.is_paid());
            bucket.look_at_keys(now_ms);
        }
        let turns = std::mem::take(&mut self.lanes).map(|lane| lane.ring);
        for bucket in &mut self.buckets {
            (bucket.place, bucket.in_ring) = (Place::Out, false);
        }
        if rules.selection != Selection::Failover {
            // Whose turn it was stays whose turn it is: a key that dies does not send the ring to its start.
            for index in turns.iter().flat_map(Ring::iter) {
                self.place(index, now_ms, rules);
            }
        }
        // The others in the order of loading, so that the ring turns the way the owner wrote the keys down.
        let mut chosen = [false; 2];
        for Member { project, .. } in members {
            let index = self.places[&project.name];
            let bucket = &self.buckets[index as usize];
            let lane = usize::from(bucket.lane);
            if rules.selection == Selection::Failover && (chosen[lane] || !bucket.is_alive()) {
                continue;
            }
            chosen[lane] = true;
            self.place(index, now_ms, rules);
        }
    }

    /// The number of the quota project's bucket, which is made if need be.
    pub(crate) fn bucket_of(&mut self, project: &Arc<Project>) -> u32 {
        if let Some(index) = self.places.get(&project.name) {
            return *index;
        }
        let index = u32::try_from(self.buckets.len()).expect("fewer than four billion keys");
        let jitter_ms = self.rng.u16(1_000..5_000);
        let bucket = Bucket::new(Arc::clone(project), &self.set, self.day, jitter_ms);
        self.buckets.push(bucket);
        self.places.insert(Arc::clone(&project.name), index);
        index
    }

    /// The number of the bucket of the quota project called `name`, if it has one.
    pub(crate) fn find_bucket(&self, name: &str) -> Option<u32> {
        self.places.get(name).copied()
    }

    /// True if nothing would be lost with it but how often it was asked for in vain.
    pub(crate) fn is_forgettable(&self, now_ms: i64) -> bool {
        let is_at_rest = self.line.is_empty() && self.dirty.is_empty() && self.told.is_empty();
        let is_plain = |bucket: &Bucket| bucket.is_plain(now_ms);
        !self.has_served && is_at_rest && self.buckets.iter().all(is_plain)
    }

    /// When the clock was last looked at.
    pub(crate) const fn last_ms(&self) -> i64 {
        self.last_ms
    }

    /// Lets time pass: call first, once per call.
    #[inline]
    pub(crate) fn advance(&mut self, now_ms: i64, rules: &Rules) {
        let [free, paid] = &self.lanes;
        let nothing_to_do = now_ms >= self.last_ms.saturating_sub(STEP_MS)
            && now_ms < free.next_wake_ms.min(paid.next_wake_ms)
            && self.day.contains(now_ms);
        if !nothing_to_do {
            self.catch_up(now_ms, rules);
        }
        self.last_ms = now_ms;
    }

    #[cold]
    fn catch_up(&mut self, now_ms: i64, rules: &Rules) {
        if now_ms < self.last_ms.saturating_sub(STEP_MS) {
            self.rewind(now_ms, rules);
        }
        if !self.day.contains(now_ms) {
            self.day = rules.strategies.day(now_ms);
        }
        for lane in 0..self.lanes.len() {
            while self.lanes[lane].next_wake_ms <= now_ms {
                let Some((_, index)) = self.lanes[lane].sleepers.first().copied() else { break };
                self.place(index, now_ms, rules);
            }
        }
    }

    /// A held call of bucket `index` leaves now.
    pub(crate) fn sent(&mut self, index: u32, amount: Amount, now_ms: i64, rules: &Rules) -> Sent {
        let bucket = &mut self.buckets[index as usize];
        bucket.advance(now_ms, &self.day);
        let sent = bucket.sent(amount, now_ms);
        // What was held until nobody knew when now leaves the window at a moment that can be told.
        if bucket.has_stopped() || !self.line.is_empty() {
            self.gave_back(index, now_ms, rules);
        }
        sent
    }

    /// The keys or the standing of a quota project changed.
    pub(crate) fn project_changed(&mut self, project: &Project, now_ms: i64, rules: &Rules) {
        if let Some(index) = self.find_bucket(&project.name) {
            let took_part = self.takes_part(index);
            self.buckets[index as usize].look_at_keys(now_ms);
            if took_part || rules.selection != Selection::Failover {
                self.place(index, now_ms, rules);
            }
        }
        self.line.ring();
    }

    /// Something about the bucket changed: puts it where it now belongs, and lets those who wait look again.
    pub(crate) fn changed(&mut self, index: u32, now_ms: i64, rules: &Rules) {
        self.place(index, now_ms, rules);
        self.line.ring();
    }

    /// A call of the bucket ended: it may have room again.
    pub(crate) fn gave_back(&mut self, index: u32, now_ms: i64, rules: &Rules) {
        if self.buckets[index as usize].place != Place::Ready {
            self.place(index, now_ms, rules);
        }
        if !self.line.is_empty() {
            self.line.ring();
        }
    }

    /// Notes that the state file has to be told. True when it was not noted before.
    pub(crate) fn mark(&mut self, index: u32) -> bool {
        let bucket = &mut self.buckets[index as usize];
        if bucket.dirty {
            return false;
        }
        bucket.dirty = true;
        self.dirty.push(index);
        true
    }

    /// 1–5 s, so that replicas which wait for the same reset do not wake together.
    pub(crate) fn jitter_ms(&mut self) -> i64 {
        self.rng.i64(1_000..=5_000)
    }

    pub(crate) const fn lanes(&self) -> &[Lane; 2] {
        &self.lanes
    }

    pub(crate) const fn day(&self) -> &DaySpan {
        &self.day
    }

    /// True for buckets that take part: fail-over uses one, the others stand by.
    pub(crate) fn takes_part(&self, index: u32) -> bool {
        self.buckets[index as usize].place != Place::Out
    }

    /// Puts the bucket where it belongs now.
    pub(crate) fn place(&mut self, index: u32, now_ms: i64, rules: &Rules) {
        let bucket = &mut self.buckets[index as usize];
        let lane = &mut self.lanes[usize::from(bucket.lane)];
        if !bucket.is_alive() {
            return lane.put(bucket, index, Place::Out);
        }
        if bucket.place == Place::Out && rules.selection == Selection::Failover && !lane.is_empty()
        {
            return;
        }
        bucket.advance(now_ms, &self.day);
        let place = match bucket.free_at(&Need::LEAST, now_ms) {
            NOW => Place::Ready,
            at => Place::Asleep(at),
        };
        lane.put(bucket, index, place);
    }

    /// The clock went back. Rare, so everything is looked at.
    fn rewind(&mut self, now_ms: i64, rules: &Rules) {
        self.day = rules.strategies.day(now_ms);
        for index in 0..self.buckets.len() {
            self.buckets[index].rewind(now_ms, &rules.strategies, &self.set);
            let index = u32::try_from(index).expect("fewer than four billion keys");
            if self.takes_part(index) {
                self.place(index, now_ms, rules);
            }
            self.mark(index);
        }
        self.explore = super::explore::Cursor::default();
        self.line.ring();
    }
}

/// More tokens than any model takes: sums of asks stay far from overflowing.
pub(crate) const MOST_TOKENS: u64 = 1 << 40;

/// How much of each window `ask` takes.
pub(crate) fn amount_of(ask: &Ask) -> Amount {
    Amount::new(u64::from(ask.requests.max(1)), ask.tokens.min(MOST_TOKENS))
}

pub(crate) fn need_of(ask: &Ask) -> Need<'_> {
    Need {
        amount: amount_of(ask),
        tools: ask.tools,
        paid: ask.allow_paid,
        exclude: &ask.exclude,
        affinity: ask.affinity.as_ref(),
    }
}
