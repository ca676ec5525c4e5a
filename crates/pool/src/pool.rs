//! The pool's public handle.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use keywheel_core::{ApiKey, Cause, Clock, Fingerprint};

use crate::{
    Ask, Exhausted, ExhaustedKind, KeySpec, Lease, PoolBuilder, PoolStatus, Reported, Selector,
};

/// A pool of API keys. Clones share one pool.
#[derive(Debug, Clone)]
pub struct Pool {
    pub(crate) clock: Arc<dyn Clock>,
}

fn stub(ask: &Ask) -> Exhausted {
    Exhausted {
        model: ask.model.as_ref().to_owned(),
        kind: ExhaustedKind::NoKeys,
        soonest: None,
        reasons: Vec::new(),
        omitted: 0,
    }
}

impl Pool {
    /// A builder with nothing set.
    #[must_use]
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    /// Waits for a key.
    pub async fn lease(&self, ask: Ask) -> Result<Lease, Exhausted> {
        Err(stub(&ask))
    }

    /// A key now, or why not.
    pub fn try_lease(&self, ask: &Ask) -> Result<Lease, Exhausted> {
        Err(stub(ask))
    }

    /// Waits until `ask` could be served, and takes nothing.
    pub async fn available(&self, ask: &Ask) -> Result<(), Exhausted> {
        Err(stub(ask))
    }

    /// When `model` can be served next; now is answered as now.
    #[must_use]
    pub fn next_available(&self, model: &str) -> Option<DateTime<Utc>> {
        let _ = model;
        None
    }

    /// The plain door for people without a verdict.
    pub async fn mark_rate_limited(
        &self,
        key: &str,
        model: &str,
        wait: Option<Duration>,
    ) -> Reported {
        let _ = (key, model, wait);
        Reported { persisted: false, until: None }
    }

    /// Takes cooldowns and quarantines away.
    pub async fn clear(&self, selector: Selector) -> usize {
        let _ = selector;
        0
    }

    /// Keys whose daily free check is due.
    #[must_use]
    pub fn due_checks(&self) -> Vec<DueCheck> {
        Vec::new()
    }

    /// What a check found.
    pub fn check_result(&self, key: Fingerprint, result: CheckResult) {
        let _ = (key, result);
    }

    /// Replaces the keys.
    pub fn reload(&self, keys: impl IntoIterator<Item = KeySpec>) -> ReloadReport {
        let _ = keys.into_iter().count();
        ReloadReport::default()
    }

    /// A snapshot.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        unreachable!("stub")
    }

    /// Waits until everything is on disk.
    pub async fn flush(&self) -> Result<(), StateError> {
        Ok(())
    }

    /// The pool's clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }
}

/// A quarantined key whose free check (`GET models`) is due.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DueCheck {
    /// The key's identity.
    pub fingerprint: Fingerprint,
    /// What its owner calls it.
    pub label: String,
    /// The key to check with.
    pub key: ApiKey,
}

/// What a free check of a quarantined key found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckResult {
    /// It works: back into use.
    Alive,
    /// Still refused, for this cause.
    StillDead(Cause),
    /// The check itself failed: tried again in an hour.
    Unknown,
}

/// What a reload changed, by label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReloadReport {
    /// New keys.
    pub added: Vec<String>,
    /// Keys that are gone.
    pub removed: Vec<String>,
    /// Keys that stayed, with all their state.
    pub kept: usize,
    /// What the owner should know.
    pub notes: Vec<String>,
}

/// The state could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StateError(String);
