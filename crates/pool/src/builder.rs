//! Builds a pool.

use std::{path::PathBuf, sync::Arc};

use keywheel_core::{Clock, SystemClock};

use crate::{
    KeySpec, Limits, Pool, PoolError, Selection,
    reset::{LimitKind, ResetStrategy},
};

/// Where the pool keeps what it knows.
#[derive(Debug, Clone, Default)]
pub enum StateLocation {
    /// `KEYWHEEL_STATE`, else the platform's state folder.
    #[default]
    Default,
    /// This file.
    File(PathBuf),
    /// A handle in memory that survives the pool: simulated restarts.
    Memory(MemoryState),
    /// Nowhere.
    None,
}

/// State in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryState;

impl MemoryState {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

/// Builds a [`Pool`].
#[derive(Debug, Default)]
#[must_use]
pub struct PoolBuilder {
    clock: Option<Arc<dyn Clock>>,
}

impl PoolBuilder {
    /// Adds keys.
    pub fn keys(self, keys: impl IntoIterator<Item = KeySpec>) -> Self {
        let _ = keys.into_iter().count();
        self
    }

    /// The clock. Defaults to the machine's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Where state is kept. Defaults to [`StateLocation::Default`].
    pub fn state(self, state: StateLocation) -> Self {
        let _ = state;
        self
    }

    /// Limits for a model: an exact name, `prefix*`, or `*`.
    pub fn limits(self, model: impl Into<String>, limits: Limits) -> Self {
        let _ = (model.into(), limits);
        self
    }

    /// How keys are chosen.
    pub fn selection(self, selection: Selection) -> Self {
        let _ = selection;
        self
    }

    /// When a kind of limit comes back.
    pub fn reset_strategy(self, kind: LimitKind, strategy: impl ResetStrategy + 'static) -> Self {
        let _ = (kind, strategy);
        self
    }

    /// Whether one request per bucket and day may go beyond what is believed. Defaults to true.
    pub fn exploration(self, on: bool) -> Self {
        let _ = on;
        self
    }

    /// Seeds the jitter, for tests.
    pub fn seed(self, seed: u64) -> Self {
        let _ = seed;
        self
    }

    /// Opens the state and builds the pool.
    ///
    /// # Errors
    /// All faults of the configuration. A damaged state file is none: it is kept aside and reported.
    pub fn build(self) -> Result<Pool, PoolError> {
        Ok(Pool { clock: self.clock.unwrap_or_else(|| Arc::new(SystemClock)) })
    }
}
