//! What keeps the keys right: free checks of those that look dead, and another set of them.

use std::{future::Future, sync::Arc};

use keywheel_core::{ApiKey, Cause, Fingerprint};

use super::Pool;
use crate::{KeySpec, state::keys::Key};

impl Pool {
    /// Quarantined keys whose daily free check (`GET models`, which costs no quota) is due. Each is named once:
    /// whoever asks runs the check and tells [`check_result`](Self::check_result).
    ///
    /// Of several processes on one state file, one has each check: it is claimed in the file first. Without a file
    /// that can be written, each runs its own; rather twice than never.
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use keywheel_core::{Cause, Effect, ManualClock, Scope, Wait};
    /// use keywheel_pool::{ApiKey, Ask, CheckResult, KeySpec, Pool, Refusal, StateLocation};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
    /// let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1");
    /// let pool = Pool::builder().keys([key]).clock(Arc::new(clock.clone()));
    /// let pool = pool.state(StateLocation::None).build().unwrap();
    /// let mut lease = pool.try_lease(&Ask::new("gemma")).unwrap();
    /// lease.sent();
    /// let dead = Effect::new(Scope::Key, Cause::ExpiredKey, Wait::None);
    /// lease.refused(&Refusal::new([dead])).await;
    /// assert!(pool.try_lease(&Ask::new("gemma")).is_err());
    ///
    /// clock.advance(Duration::from_secs(2 * 86_400));
    /// for due in pool.due_checks().await {
    ///     // ... send `GET models` with `due.key`; it works:
    ///     pool.check_result(due.fingerprint, CheckResult::Alive);
    /// }
    /// assert!(pool.try_lease(&Ask::new("gemma")).is_ok());
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropped while the claim is written, the check is due again in an hour.
    pub fn due_checks(&self) -> impl Future<Output = Vec<DueCheck>> + Send + use<> {
        let core = Arc::clone(&self.core);
        let now_ms = core.state.clock.unix_ms();
        let due = core.state.table().due_checks(core.persister.writer(), now_ms);
        let claimed = core.commit(!due.is_empty());
        async move {
            claimed.await;
            let table = core.state.table();
            let check = |key: Arc<Key>| DueCheck {
                fingerprint: key.key.fingerprint(),
                label: key.label.as_ref().into(),
                key: key.key.clone(),
            };
            let ours = |key: &Arc<Key>| table.has_check(key, core.persister.writer());
            due.into_iter().filter(ours).map(check).collect()
        }
    }

    /// What a free check found. Nothing happens for a key that is not quarantined, or unknown.
    pub fn check_result(&self, key: Fingerprint, result: CheckResult) {
        self.core.check_result(key, result);
    }

    /// Replaces the keys. Keys that stay keep all that is known of them; keys that come back find it again.
    ///
    /// ```
    /// # use keywheel_pool::{ApiKey, KeySpec, Pool, StateLocation};
    /// let key = |name: &str| KeySpec::new(ApiKey::new(format!("AQ.EXAMPLE-{name}")).unwrap(), name);
    /// let keys = [key("one"), key("two")];
    /// let pool = Pool::builder().keys(keys).state(StateLocation::None).build().unwrap();
    /// let report = pool.reload([key("two"), key("three")]);
    /// assert_eq!((report.added, report.removed), (vec!["three".into()], vec!["one".into()]));
    /// assert_eq!(report.kept, 1);
    /// ```
    pub fn reload(&self, keys: impl IntoIterator<Item = KeySpec>) -> ReloadReport {
        let mut table = self.core.state.table();
        let report = table.load(keys, self.core.state.clock.unix_ms());
        self.core.state.roster_changed(&table);
        drop(table);
        self.core.persister.mark_dirty();
        report
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
    /// Still refused, for this cause. Checked again tomorrow, if a check can lift that cause.
    StillDead(Cause),
    /// The check itself failed: due again in an hour.
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
