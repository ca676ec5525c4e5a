//! Pages about the gateway itself: whether it lives, whether it can take requests, and how it fares.
//!
//! None of them asks the provider anything, let alone a model: a probe every few seconds would be a day's quota. None
//! holds a secret or names a project.

use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, SecondsFormat, Utc};
use keywheel::{
    PoolStatus,
    ledger::{Ledger, LedgerError},
};
use serde_json::{Value, json};

use crate::server::Phase;

/// The keys at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    /// Those that can serve some model now.
    pub(crate) ready: usize,
    /// Those that can serve no model that was asked for so far, and will again.
    pub(crate) cooling: usize,
    /// Those that are out of use until somebody acts or a check finds them well.
    pub(crate) quarantined: usize,
    /// When the next one can serve. `None`: one can now, or no moment is known.
    pub(crate) next_available_at: Option<DateTime<Utc>>,
}

impl Keys {
    pub(crate) fn of(status: &PoolStatus) -> Self {
        let mut keys = Self::default();
        let mut soonest: Option<DateTime<Utc>> = None;
        let mut note = |moment: Option<DateTime<Utc>>| {
            soonest = [soonest, moment].into_iter().flatten().min();
        };
        for key in &status.keys {
            if key.quarantine.is_some() {
                keys.quarantined += 1;
                continue;
            }
            if let Some(until) = key.cooling_until.filter(|until| *until > status.at) {
                keys.cooling += 1;
                note(Some(until));
                continue;
            }
            let mut buckets = status
                .buckets
                .iter()
                .filter(|own| own.quota_project == key.quota_project)
                .peekable();
            if buckets.peek().is_none() || buckets.any(|bucket| bucket.ready) {
                keys.ready += 1;
                continue;
            }
            keys.cooling += 1;
            let own = status.buckets.iter().filter(|own| own.quota_project == key.quota_project);
            note(own.filter_map(|bucket| bucket.available_at).min());
        }
        keys.next_available_at = soonest.filter(|_| keys.ready == 0);
        keys
    }
}

/// When the ledger last kept a request from being sent, since it could not be written.
#[derive(Debug, Default)]
pub(crate) struct LedgerFailure(AtomicI64);

impl LedgerFailure {
    /// How long requests are not welcome after one. Nobody can tell whether it can be written but by writing, so then
    /// one of them may try.
    const LASTS_MS: i64 = 10_000;

    pub(crate) fn note(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::Relaxed);
    }

    /// True if that was a moment ago.
    pub(crate) fn is_recent(&self, now_ms: i64) -> bool {
        let failed_ms = self.0.load(Ordering::Relaxed);
        failed_ms != 0 && now_ms.saturating_sub(failed_ms) < Self::LASTS_MS
    }
}

/// How the gateway fares at one moment, but for what the ledger says itself.
#[derive(Debug)]
pub(crate) struct Situation {
    pub(crate) phase: Phase,
    pub(crate) status: PoolStatus,
    /// The ledger could not be written a moment ago.
    pub(crate) ledger_fails: bool,
}

/// `/readyz`: why no request should be sent here; `None`: requests are welcome.
pub(crate) async fn unready(now: &Situation, ledger: &Ledger) -> Option<String> {
    if now.phase != Phase::Serving {
        return Some("stopping".to_owned());
    }
    let keys = Keys::of(&now.status);
    if keys.ready + keys.cooling == 0 {
        return Some("no key can be used; `keywheel check` says why".to_owned());
    }
    if now.ledger_fails {
        return Some("the ledger could not be written a moment ago; the log says why".to_owned());
    }
    let read = ledger.usage_of_all().await;
    read.err().map(|error| format!("the ledger cannot be read: {error}"))
}

/// `/health`: the whole picture, for people, for `keywheel smoke` and for alarms.
///
/// # Errors
/// The ledger cannot be read.
pub(crate) async fn report(now: &Situation, ledger: &Ledger) -> Result<Value, LedgerError> {
    let keys = Keys::of(&now.status);
    let word = match now.phase {
        Phase::Serving if now.ledger_fails => "ledger_down",
        Phase::Serving if keys.ready + keys.cooling == 0 => "no_keys",
        Phase::Serving if keys.ready == 0 => "resting",
        Phase::Serving => "ok",
        _ => "stopping",
    };
    let info = ledger.info().await?;
    let all = ledger.usage_of_all().await?;
    let storage = &info.storage;
    Ok(json!({
        "status": word,
        "version": env!("CARGO_PKG_VERSION"),
        "keys": {
            "ready": keys.ready, "cooling": keys.cooling, "quarantined": keys.quarantined,
        },
        "next_available_at": keys.next_available_at.map(shown),
        "pool_state_ok": now.status.state.ok,
        "ledger_id": storage.ledger_id,
        "created_at": shown(storage.created_at),
        "ledger_rows": info.rows,
        "open_rows": info.open,
        "charged": all.ever.tokens.settled,
        "storage": { "kind": storage.kind.to_string(), "vanishes": storage.vanishes },
    }))
}

fn shown(moment: DateTime<Utc>) -> String {
    moment.to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests;
