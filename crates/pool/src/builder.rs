//! Builds a pool.

use std::sync::{Arc, Weak};

use keywheel_core::{Cause, Clock, Dimension, SystemClock};

use crate::{
    KeySpec, Limits, Pool, PoolError, Selection, StateLocation,
    core::Core,
    limits::LimitRule,
    persist::{Persister, Shared, Waits},
    reset::{LimitKind, ResetStrategy, Strategies},
    state::{State, model::Rules, table::Table},
};

/// Builds a [`Pool`]: setters never fail, [`build`](Self::build) reports what was wrong.
///
/// ```
/// use std::sync::Arc;
/// use keywheel_core::ManualClock;
/// use keywheel_pool::{ApiKey, Ask, KeySpec, LimitKind, Pool, Selection, StateLocation, reset};
///
/// let clock = ManualClock::at("2026-11-30T07:00:00Z".parse().unwrap());
/// let pool = Pool::builder()
///     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1")])
///     .selection(Selection::MostRemaining)
///     .reset_strategy(LimitKind::Tool, reset::hourly())
///     .exploration(false)
///     .clock(Arc::new(clock)) // a test moves it
///     .seed(7) // and repeats
///     .state(StateLocation::None)
///     .build()
///     .unwrap();
/// assert!(pool.try_lease(&Ask::new("gemini-3.5-flash")).is_ok());
/// ```
#[derive(Debug)]
#[must_use]
pub struct PoolBuilder {
    keys: Vec<KeySpec>,
    clock: Arc<dyn Clock>,
    location: StateLocation,
    rules: Rules,
    longest: Waits,
}

impl Default for PoolBuilder {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            clock: Arc::new(SystemClock),
            location: StateLocation::Default,
            rules: Rules {
                strategies: Strategies::default(),
                selection: Selection::RoundRobin,
                exploration: true,
                limits: Vec::new(),
                seed: None,
            },
            longest: Waits::default(),
        }
    }
}

impl PoolBuilder {
    /// Adds keys, to be used in this order. Defaults to none: such a pool answers `NoKeys`.
    pub fn keys(mut self, keys: impl IntoIterator<Item = KeySpec>) -> Self {
        self.keys.extend(keys);
        self
    }

    /// The clock. Defaults to the machine's.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Where state is kept. Defaults to [`StateLocation::Default`]: a file in the platform's state folder.
    pub fn state(self, location: StateLocation) -> Self {
        Self { location, ..self }
    }

    /// Where state will be kept.
    ///
    /// ```
    /// use keywheel_pool::{Pool, StateLocation};
    ///
    /// let builder = Pool::builder().state(StateLocation::None);
    /// assert!(matches!(builder.location(), StateLocation::None));
    /// ```
    #[must_use]
    pub const fn location(&self) -> &StateLocation {
        &self.location
    }

    /// Limits for a model: an exact name, `prefix*`, or `*` for any. The most specific one wins, dimension by
    /// dimension. Defaults to none: limits are learned.
    ///
    /// A pattern is not for buckets that stand for a route and no model (`api:models`), unless it begins with `api:`.
    pub fn limits(mut self, model: impl Into<String>, limits: Limits) -> Self {
        self.rules.limits.push(LimitRule { pattern: model.into(), limits });
        self
    }

    /// How keys are chosen. Defaults to [`Selection::RoundRobin`].
    pub fn selection(mut self, selection: Selection) -> Self {
        self.rules.selection = selection;
        self
    }

    /// When a kind of limit comes back. Defaults: see [`LimitKind`].
    pub fn reset_strategy(
        mut self,
        kind: LimitKind,
        strategy: impl ResetStrategy + 'static,
    ) -> Self {
        const LONGEST_MS: i64 = 31 * 24 * 3_600_000;
        self.rules.strategies.set(kind, Arc::new(strategy));
        // A strategy of the user's own may wait longer than the default would: the state file believes it.
        for cause in Cause::ALL.into_iter().filter(|cause| LimitKind::of(*cause) == kind) {
            self.longest.raise(cause, LONGEST_MS);
        }
        self
    }

    /// Whether one request per free bucket and quota day may go beyond what is believed (a learned limit that
    /// is reached, a long cooldown, a model without a free tier), to find out whether it still holds.
    /// Defaults to true.
    pub fn exploration(mut self, on: bool) -> Self {
        self.rules.exploration = on;
        self
    }

    /// Seeds the jitter, so that tests repeat. Defaults to random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.rules.seed = Some(seed);
        self
    }

    /// Opens the state and builds the pool. A damaged state file is no error: it is kept aside; nor is one that cannot
    /// be written: the pool works, and forgets. Either is logged as a warning, and stays in [`Pool::status`].
    ///
    /// # Errors
    /// A limit of zero, or two specs of one key that contradict each other.
    pub fn build(self) -> Result<Pool, PoolError> {
        let Self { keys, clock, location, rules, mut longest } = self;
        check_limits(&rules.limits)?;
        check_keys(&keys)?;
        longest.raise(Cause::Billing, crate::cooldown::longest_ms(Cause::Billing));
        longest.raise(Cause::ToolQuota, crate::cooldown::longest_ms(Cause::ToolQuota));
        let (persister, file, mut notes) = Persister::open(&location, longest, Arc::clone(&clock));
        let mut table = Table::default();
        let report = table.load(keys, clock.unix_ms());
        // A pool without keys only looks.
        if notes.is_empty() && !table.loaded.is_empty() {
            notes.extend(persister.cannot_write());
        }
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        table.notes.extend(report.notes);
        let state = Arc::new(State::new(rules, clock, persister.writer(), table));
        state.take_over(&file);
        drop(file);
        let shared: Arc<dyn Shared> = Arc::clone(&state) as _;
        let shared: Weak<dyn Shared> = Arc::downgrade(&shared);
        persister.start(shared);
        let has_file = !matches!(location, StateLocation::None);
        Ok(Pool { core: Arc::new(Core { persister, state, has_file, notes }) })
    }
}

fn check_limits(rules: &[LimitRule]) -> Result<(), PoolError> {
    for LimitRule { pattern, limits } in rules {
        for dimension in Dimension::ALL {
            if limits.of(dimension) == Some(0) {
                return Err(PoolError::ZeroLimit { pattern: pattern.clone(), dimension });
            }
        }
    }
    Ok(())
}

fn check_keys(keys: &[KeySpec]) -> Result<(), PoolError> {
    let mut seen = std::collections::HashMap::new();
    for spec in keys {
        let told = (spec.project.as_deref(), spec.tier);
        if *seen.entry(spec.fingerprint()).or_insert(told) != told {
            return Err(PoolError::Contradiction {
                fingerprint: spec.fingerprint(),
                label: spec.label.clone(),
            });
        }
    }
    Ok(())
}
