//! The pool's state: keys and quota projects in one table, buckets by model.
//!
//! Lock order: the table, then a model. A call takes only its model's lock; what it needs of keys and quota
//! projects (dead or not, out until when) it reads from atomics that the table's owner writes.

pub(crate) mod boundary;
pub(crate) mod bucket;
mod explain;
pub(crate) mod explore;
mod file;
pub(crate) mod host;
pub(crate) mod keys;
pub(crate) mod lane;
pub(crate) mod model;
pub(crate) mod table;

use std::{
    cell::RefCell,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use dashmap::DashMap;
use keywheel_core::Clock;

use crate::Selection;
use host::Host;
use keys::Project;
use model::{Model, ModelPool, Rules};
use table::{Roster, Table};

/// More models than anybody uses.
const MOST_MODELS: usize = 1_000;

/// Everything the pool knows.
#[derive(Debug)]
pub(crate) struct State {
    /// Tells pools of one process apart.
    id: u64,
    pub(crate) rules: Rules,
    pub(crate) clock: Arc<dyn Clock>,
    /// Our name among the writers of the state file.
    pub(crate) writer: Box<str>,
    pub(crate) models: DashMap<Arc<str>, Arc<ModelPool>, BuildHasherDefault<NameHasher>>,
    pub(crate) host: Host,
    table: Mutex<Table>,
    roster: Mutex<Arc<Roster>>,
    /// Counts the rosters, from 1; models that know an older one adopt the newest before their next call.
    version: AtomicU64,
}

impl State {
    pub(crate) fn new(rules: Rules, clock: Arc<dyn Clock>, writer: &str, table: Table) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let roster = Mutex::new(Arc::new(table.roster()));
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            rules,
            clock,
            writer: writer.into(),
            models: DashMap::default(),
            host: Host::default(),
            table: Mutex::new(table),
            roster,
            version: AtomicU64::new(1),
        }
    }

    /// The model called `name`, made if need be. Remembers by thread which one it was last time: most callers
    /// ask for the same model again and again, and a look into the map is a fifth of what a lease costs.
    #[inline]
    pub(crate) fn model_again(&self, name: &Arc<str>) -> Arc<ModelPool> {
        thread_local! {
            static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
        }
        LAST.with_borrow_mut(|last| {
            if let Some(last) = last
                && last.state == self.id
                && (Arc::ptr_eq(&last.name, name) || last.name == *name)
                && let Some(model) = last.model.upgrade()
            {
                return model;
            }
            let model = self.known_model(name).unwrap_or_else(|| {
                let now_ms = self.clock.unix_ms();
                self.model(name, now_ms)
            });
            let (name, weak) = (Arc::clone(name), Arc::downgrade(&model));
            *last = Some(Last { state: self.id, name, model: weak });
            model
        })
    }

    /// The model called `name`, if it was ever asked for.
    pub(crate) fn known_model(&self, name: &str) -> Option<Arc<ModelPool>> {
        self.models.get(name).map(|known| Arc::clone(&known))
    }

    /// The model called `name`, made if need be. Where there are very many, those go of which nothing is known: their
    /// names may be made up.
    pub(crate) fn model(&self, name: &Arc<str>, now_ms: i64) -> Arc<ModelPool> {
        if let Some(known) = self.known_model(name) {
            return known;
        }
        if self.models.len() >= MOST_MODELS {
            // Whoever holds one is about to use it.
            self.models.retain(|_, model| {
                let is_free = Arc::strong_count(model) == 1;
                !(is_free && model.try_lock().is_some_and(|model| model.is_forgettable(now_ms)))
            });
        }
        let entry = self.models.entry(Arc::clone(name));
        let made = || Arc::new(ModelPool::new(Arc::clone(name), &self.rules, now_ms));
        Arc::clone(&entry.or_insert_with(made))
    }

    /// The state of a model, up to date with keys and time.
    pub(crate) fn enter<'a>(&self, model: &'a ModelPool, now_ms: i64) -> MutexGuard<'a, Model> {
        let mut state = model.lock();
        let version = self.version.load(Ordering::Acquire);
        if state.roster != version {
            self.adopt(&mut state, version, now_ms);
        }
        state.advance(now_ms, &self.rules);
        state
    }

    /// The state of a model, up to date with keys, and with time as of the last look at the clock.
    #[inline]
    pub(crate) fn enter_as_of_last_look<'a>(&self, model: &'a ModelPool) -> MutexGuard<'a, Model> {
        let mut state = model.lock();
        let version = self.version.load(Ordering::Acquire);
        if state.roster != version {
            let last_ms = state.last_ms();
            self.adopt(&mut state, version, last_ms);
        }
        state
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keys came, went, died or came back to life: every model takes over the new roster with its next call,
    /// and those who wait look again.
    pub(crate) fn roster_changed(&self, table: &Table) {
        *self.roster.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table.roster());
        self.version.fetch_add(1, Ordering::Release);
        self.ring();
    }

    /// A key of the quota project died, or the project is out for a while: cheaper than a new roster, since
    /// many keys may die one after the other.
    pub(crate) fn project_changed(&self, table: &Table, project: &Project, now_ms: i64) {
        if self.rules.selection == Selection::Failover {
            return self.roster_changed(table);
        }
        for model in &self.models {
            model.lock().project_changed(project, now_ms, &self.rules);
        }
    }

    /// Those who wait look again, whatever they wait for.
    pub(crate) fn ring(&self) {
        for model in &self.models {
            model.lock().line.ring();
        }
    }

    /// All models, without holding on to the map.
    pub(crate) fn all_models(&self) -> Vec<Arc<ModelPool>> {
        self.models.iter().map(|model| Arc::clone(&model)).collect()
    }

    #[cold]
    fn adopt(&self, model: &mut Model, version: u64, now_ms: i64) {
        let roster = Arc::clone(&self.roster.lock().unwrap_or_else(PoisonError::into_inner));
        model.adopt(version, &roster.0, &self.rules, now_ms);
    }
}

/// The model that a thread asked for last.
struct Last {
    state: u64,
    name: Arc<str>,
    model: Weak<ModelPool>,
}

/// Hashes model names. There are few of them and every call hashes one, so speed is what counts; a name that
/// collides costs a comparison.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        // The first eight bytes, the last eight and the length tell any two of a provider's models apart.
        let word =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let (first, last) = match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => (word(bytes), 0),
        };
        self.mix(first);
        self.mix(last ^ bytes.len() as u64);
    }

    fn write_u8(&mut self, _end_of_str: u8) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

impl NameHasher {
    fn mix(&mut self, word: u64) {
        let product = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keywheel_core::{ApiKey, ManualClock, Usage};

    use super::*;
    use crate::{Ask, KeySpec, MemoryState, Pool, StateLocation};

    #[tokio::test]
    async fn names_without_end_do_not_fill_the_memory_and_models_that_answer_stay() {
        let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1");
        let state = StateLocation::Memory(MemoryState::new());
        let pool = Pool::builder().keys([key]).state(state).build().unwrap();
        let lease = |model: &str| {
            let mut lease = pool.try_lease(&Ask::new(model)).unwrap();
            lease.sent();
            lease
        };
        lease("gemini-3.6-flash").served(&Usage::default());
        let held = lease("held");
        for number in 0..3_500 {
            lease(&format!("made-up-{number}")).failed(&[]);
            if number % 100 == 0 {
                pool.flush().await.unwrap();
            }
        }
        let state = &pool.core.state;
        assert!(state.models.len() <= MOST_MODELS + 100, "{}", state.models.len());
        assert!(state.known_model("gemini-3.6-flash").is_some(), "it has answered");
        assert!(state.known_model("held").is_some(), "somebody uses it");
        drop(held);
    }
    /// An upstream that has no time to look for the model says 429, whatever the name.
    #[tokio::test]
    async fn names_that_were_refused_fill_the_memory_no_longer_than_they_are_out() {
        let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1");
        let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
        let state = StateLocation::Memory(MemoryState::new());
        let pool = Pool::builder().keys([key]).state(state).clock(Arc::new(clock.clone()));
        let pool = pool.build().unwrap();
        for hundred in 0..30 {
            for number in 0..100 {
                let name = format!("made-up-{hundred}-{number}");
                // Told, and not waited for.
                drop(pool.mark_rate_limited("KEY_1", &name, Some(Duration::from_secs(40))));
            }
            pool.flush().await.unwrap();
            clock.advance(Duration::from_secs(60));
        }
        let models = pool.core.state.models.len();
        assert!(models <= MOST_MODELS + 100, "{models}");
    }
}
