//! The pool's public handle.

mod spot;
mod upkeep;

use std::{future::Future, path::Path, pin::Pin, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use keywheel_core::{
    Cause, Clock, Effect, Scope, Wait,
    clock::{from_unix_ms, sleep_until},
};

use self::spot::{OnlyLooks, Spot};
pub use self::upkeep::{CheckResult, DueCheck, ReloadReport};
use crate::{
    Ask, Exhausted, Lease, PoolBuilder, PoolStatus, ProjectLimits, Refusal, Reported, Selector,
    StateError, UnknownKey,
    core::{Core, Mode, Turn},
    report::From,
    state::model::ModelPool,
};

/// A pool of API keys that knows by wall clock when each may be used again. Clones share one pool.
///
/// ```
/// use keywheel_core::{ApiKey, Usage};
/// use keywheel_pool::{Ask, KeySpec, Pool, StateLocation};
///
/// let keys = ["AQ.EXAMPLE-key-1", "AQ.EXAMPLE-key-2"]
///     .map(|key| KeySpec::new(ApiKey::new(key).unwrap(), key));
/// let pool = Pool::builder().keys(keys).state(StateLocation::None).build().unwrap();
///
/// let mut lease = pool.try_lease(&Ask::new("gemini-3.5-flash-lite")).unwrap();
/// lease.sent();
/// // ... send one request with `lease.key()` ...
/// lease.served(&Usage::default());
/// ```
#[derive(Debug, Clone)]
pub struct Pool {
    pub(crate) core: Arc<Core>,
}

impl Pool {
    /// A builder with nothing set.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    /// Waits for a key, first come, first served, until the ask's deadline.
    ///
    /// An ask whose deadline has come already takes a key that can serve now, or ends. So it does not wait; but where
    /// only the day's exploratory request of a bucket is left, it waits for the state file's word on that, half a
    /// second at most.
    ///
    /// A smaller ask may pass a larger one that has to wait for longer than about a minute, or that is served no
    /// later for it.
    ///
    /// With a clock that follows real time this needs a tokio runtime with time enabled.
    ///
    /// # Errors
    /// [`Exhausted`], at once when the deadline cannot be met or nothing will ever serve, else at the deadline.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line; the turn goes to the next. So does the turn of a future that is not
    /// polled within 100 ms when its turn comes; it has its place again when it is. Only if the day's exploratory
    /// request was claimed in the state file and not sent yet is that one spent.
    pub async fn lease(&self, ask: Ask) -> Result<Lease, Exhausted> {
        let model = self.model(&ask.model);
        let model = match self.core.quick(model, &ask) {
            Ok(lease) => return Ok(lease),
            Err((model, _)) => model,
        };
        let spot = Spot::join(&model, &ask, OnlyLooks(false));
        let now_ms = self.clock().unix_ms();
        let waits = ask.deadline_ms().is_none_or(|deadline_ms| now_ms < deadline_ms);
        let mut mode = if waits { Mode::Explores } else { Mode::NowOrNever };
        loop {
            match self.core.turn(&model, &ask, spot.ticket, mode) {
                Turn::Taken(grant) => {
                    let now_ms = self.core.state.clock.unix_ms();
                    return Ok(self.core.lease(Arc::clone(&model), &ask, grant, false, now_ms));
                }
                Turn::Explore(index) => {
                    let explored = tokio::select! {
                        biased;
                        lease = self.core.explore(&model, &ask, index) => lease,
                        () = self.deadline(&ask), if waits => None,
                    };
                    if let Some(lease) = explored {
                        return Ok(lease);
                    }
                    // The state file is slow, or others were faster: one try is what a call pays for.
                    mode = Mode::Takes;
                }
                Turn::Wait(until_ms) => spot.wait(self.clock(), until_ms).await,
                Turn::Out(exhausted) => return Err(exhausted),
                Turn::Seen => unreachable!("only those who look are told"),
            }
        }
    }

    /// A key now, or why not. Never waits, never passes those who wait, never explores.
    ///
    /// # Errors
    /// [`Exhausted`], with the soonest moment and the reasons.
    pub fn try_lease(&self, ask: &Ask) -> Result<Lease, Exhausted> {
        self.core.try_take(self.model(&ask.model), ask)
    }

    /// Waits in the line until `ask` could be served, and takes nothing.
    ///
    /// # Errors
    /// As [`lease`](Self::lease).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line.
    pub async fn available(&self, ask: &Ask) -> Result<(), Exhausted> {
        let model = self.model(&ask.model);
        let spot = Spot::join(&model, ask, OnlyLooks(true));
        loop {
            match self.core.turn(&model, ask, spot.ticket, Mode::OnlyLooks) {
                Turn::Seen => return Ok(()),
                Turn::Wait(until_ms) => spot.wait(self.clock(), until_ms).await,
                Turn::Out(exhausted) => return Err(exhausted),
                Turn::Taken(_) | Turn::Explore(_) => unreachable!("those who look take nothing"),
            }
        }
    }

    /// When a small request to `model` can be served by a free key: now, or a moment in the future; `None`
    /// when no moment can be named.
    #[must_use]
    pub fn next_available(&self, model: &str) -> Option<DateTime<Utc>> {
        self.next_available_for(&Ask::new(model))
    }

    /// When `ask` can be served: now, or a moment in the future; `None` when no moment can be named.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel_core::ManualClock;
    /// # use keywheel_pool::{ApiKey, Ask, KeySpec, Limits, Pool, StateLocation};
    /// # let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1");
    /// # let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
    /// # let pool = Pool::builder().keys([key]).clock(Arc::new(clock)).state(StateLocation::None);
    /// let pool = pool.limits("gemma", Limits { rpm: Some(1), ..Limits::default() }).build().unwrap();
    /// let now = pool.clock().now();
    /// assert_eq!(pool.next_available("gemma"), Some(now));
    /// pool.try_lease(&Ask::new("gemma")).unwrap().sent();
    /// assert!(pool.next_available("gemma").unwrap() > now);
    /// // No key is of this quota project:
    /// assert_eq!(pool.next_available_for(&Ask::new("gemma").with_affinity("another")), None);
    /// ```
    #[must_use]
    pub fn next_available_for(&self, ask: &Ask) -> Option<DateTime<Utc>> {
        let model = self.model(&ask.model);
        match self.core.look(&model, ask) {
            Ok(()) => Some(self.core.state.clock.now()),
            Err(not_now) if not_now.soonest_ms == i64::MAX => None,
            Err(not_now) => Some(from_unix_ms(not_now.soonest_ms)),
        }
    }

    /// The most input tokens a minute that any key has for `ask`: what asks for more can never be served. `None` if
    /// the limit of one that may serve it is not known.
    ///
    /// ```
    /// # use keywheel_core::ApiKey;
    /// # use keywheel_pool::{Ask, KeySpec, Limits, Pool, StateLocation};
    /// let limits = Limits { tpm: Some(250_000), ..Limits::default() };
    /// let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "one");
    /// let pool = Pool::builder().keys([key]).limits("gemini-*", limits).state(StateLocation::None);
    /// let pool = pool.build().unwrap();
    /// assert_eq!(pool.minute_tokens(&Ask::new("gemini-3.5-flash")), Some(250_000));
    /// assert_eq!(pool.minute_tokens(&Ask::new("gemma-3-27b-it")), None);
    /// ```
    #[must_use]
    pub fn minute_tokens(&self, ask: &Ask) -> Option<u64> {
        let model = self.model(&ask.model);
        let now_ms = self.core.state.clock.unix_ms();
        self.core.state.enter(&model, now_ms).minute_tokens(ask)
    }

    /// Marks a key as rate limited for a model: the plain door for people who have no verdict.
    ///
    /// `key` is a label or a fingerprint. Without a `wait` the pool guesses: 1 min, 5 min, 30 min, 2 h, end of
    /// the quota day, one step each time it proves too short.
    ///
    /// ```
    /// # use keywheel_pool::{ApiKey, KeySpec, Pool, StateLocation};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1");
    /// # let pool = Pool::builder().keys([key]).state(StateLocation::None).build().unwrap();
    /// let marked = pool.mark_rate_limited("KEY_1", "gemini-3.5-flash", None).await.unwrap();
    /// assert!(marked.held);
    /// let mistyped = pool.mark_rate_limited("KEY_l", "gemini-3.5-flash", None).await.unwrap_err();
    /// assert_eq!(mistyped.to_string(), "no key has this label or fingerprint; there is KEY_1");
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`UnknownKey`]: nothing was marked. Also when a reload has taken the key away.
    ///
    /// # Cancel safety
    /// Everything is taken when this is called; dropping the future loses nothing.
    pub fn mark_rate_limited(
        &self,
        key: &str,
        model: &str,
        wait: Option<Duration>,
    ) -> impl Future<Output = Result<Reported, UnknownKey>> + Send + use<> {
        let wait = wait.map_or(Wait::Ladder, Wait::Stated);
        let refusal = Refusal::new([Effect::new(Scope::Bucket, Cause::UnspecifiedQuota, wait)]);
        let found = self.core.state.table().known(key);
        let done = found.map(|key| {
            let now_ms = self.core.state.clock.unix_ms();
            let model = self.core.state.model(&model.into(), now_ms);
            let index = self.core.state.enter(&model, now_ms).bucket_of(&key.project);
            let from = From {
                model: &model,
                key: &key,
                index,
                tools: false,
                sent_ms: now_ms,
                bucket_clears: None,
                key_clears: None,
            };
            self.core.report(&from, &refusal, |_| {})
        });
        let durable = self.core.commit(done.as_ref().is_ok_and(|done| done.changed));
        let core = Arc::clone(&self.core);
        async move {
            let done = done?;
            let persisted = durable.await;
            drop(core);
            Ok(Reported { persisted, until: done.until, held: done.held })
        }
    }

    /// Takes cooldowns and quarantines away; returns how many buckets, keys and quota projects were held back.
    ///
    /// Answers to requests that are in flight now cannot bring them back. Counts stay: they are true. A
    /// learned daily limit that is reached is forgotten, or the bucket would stay out.
    ///
    /// ```
    /// # use keywheel_pool::{ApiKey, KeySpec, Pool, Selector, StateLocation};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1");
    /// # let pool = Pool::builder().keys([key]).state(StateLocation::None).build().unwrap();
    /// pool.mark_rate_limited("KEY_1", "gemini-3.5-flash", None).await.unwrap();
    /// assert_eq!(pool.clear(Selector::Label("KEY_1".into())).await, 1);
    /// assert_eq!(pool.clear(Selector::All).await, 0);
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Everything is cleared when this is called; dropping the future loses nothing.
    pub fn clear(&self, selector: Selector) -> impl Future<Output = usize> + Send + use<> {
        let cleared = self.core.clear(&selector);
        let durable = self.core.commit(cleared > 0);
        let core = Arc::clone(&self.core);
        async move {
            durable.await;
            drop(core);
            cleared
        }
    }

    /// Takes one cooldown of one bucket back, as if it had never been reported: for a caller who finds that
    /// several quota projects refused the same request because of the request. True when there was one.
    ///
    /// ```
    /// # use keywheel_pool::{ApiKey, Ask, Cause, KeySpec, Pool, StateLocation};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let spec = |key, label| KeySpec::new(ApiKey::new(key).unwrap(), label);
    /// # let key = spec("AQ.EXAMPLE-key-1", "KEY_1").with_project("mine");
    /// # let pool = Pool::builder().keys([key]).state(StateLocation::None).build().unwrap();
    /// pool.mark_rate_limited("KEY_1", "gemma", None).await.unwrap();
    /// assert!(pool.withdraw("mine", "gemma", Cause::UnspecifiedQuota).await);
    /// assert!(pool.try_lease(&Ask::new("gemma")).is_ok());
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`clear`](Self::clear).
    pub fn withdraw(
        &self,
        quota_project: &str,
        model: &str,
        cause: Cause,
    ) -> impl Future<Output = bool> + Send + use<> {
        let withdrawn = self.core.withdraw(quota_project, model, cause);
        let durable = self.core.commit(withdrawn);
        let core = Arc::clone(&self.core);
        async move {
            durable.await;
            drop(core);
            withdrawn
        }
    }

    /// A snapshot for people and metrics, without secrets.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        self.core.status()
    }

    /// What is believed of `model`'s limits, for every quota project that may serve it: not for those whose keys are
    /// all dead, nor for those that were found to have no quota for it.
    ///
    /// Costs one lock and a few words for each quota project; a model that was never asked for is known as well as
    /// any by what the user set.
    ///
    /// ```
    /// use keywheel_pool::{ApiKey, KeySpec, Limits, Pool, StateLocation};
    ///
    /// let pool = Pool::builder()
    ///     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1")])
    ///     .limits("*", Limits { rpd: Some(500), ..Limits::default() })
    ///     .state(StateLocation::None)
    ///     .build()
    ///     .unwrap();
    /// let limits = pool.limits("gemini-3.5-flash-lite");
    /// assert_eq!(limits[0].believed().rpd, Some(500));
    /// assert_eq!(limits[0].believed().rpm, None); // nobody knows yet
    /// ```
    #[must_use]
    pub fn limits(&self, model: &str) -> Vec<ProjectLimits> {
        self.core.limits(&self.model(&model.into()))
    }

    /// How many requests were counted in the present quota day, all quota projects and processes together, by model.
    /// Models that were never asked are left out.
    ///
    /// Costs one lock for each model and a look at each of its buckets.
    ///
    /// ```
    /// use keywheel_pool::{ApiKey, Ask, KeySpec, Pool, StateLocation};
    ///
    /// let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1");
    /// let pool = Pool::builder().keys([key]).state(StateLocation::None).build().unwrap();
    /// pool.try_lease(&Ask::new("gemini-3.5-flash-lite")).unwrap().sent();
    /// assert_eq!(pool.day_counts(), [("gemini-3.5-flash-lite".into(), 1)]);
    /// ```
    #[must_use]
    pub fn day_counts(&self) -> Vec<(Arc<str>, u64)> {
        self.core.day_counts()
    }

    /// The state file this pool shares with others; `None` for state in memory, or none at all. What else should
    /// outlive the process can be kept beside it.
    ///
    /// ```
    /// use keywheel_pool::{Pool, StateLocation, durable::SharedFile};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().canonicalize().unwrap().join("pool.json");
    /// let pool = Pool::builder().state(StateLocation::File(path.clone())).build().unwrap();
    /// assert_eq!(pool.state_file(), Some(path.as_path()));
    /// let notes = SharedFile::beside(&path, "notes");
    /// assert!(notes.path().ends_with("pool.notes.json"));
    /// ```
    #[must_use]
    pub fn state_file(&self) -> Option<&Path> {
        self.core.persister.path()
    }

    /// Waits until everything that is known now is on disk.
    ///
    /// ```
    /// # use keywheel_pool::{ApiKey, Ask, KeySpec, Pool, StateLocation};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().canonicalize().unwrap().join("pool.json");
    /// # let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1");
    /// # let state = StateLocation::File(path.clone());
    /// # let pool = Pool::builder().keys([key]).state(state).build().unwrap();
    /// pool.try_lease(&Ask::new("gemma")).unwrap().sent();
    /// pool.flush().await.unwrap();
    /// assert!(std::fs::read_to_string(&path).unwrap().contains("gemma"));
    /// # }
    /// ```
    ///
    /// # Errors
    /// It could not be written.
    pub fn flush(&self) -> impl Future<Output = Result<(), StateError>> + Send + use<> {
        let flushed: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(self.core.persister.flush());
        let core = Arc::clone(&self.core);
        async move {
            let result = flushed.await;
            drop(core);
            result
        }
    }

    /// The pool's clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.state.clock
    }

    /// Ends when the ask's deadline comes.
    async fn deadline(&self, ask: &Ask) {
        let Some(deadline_ms) = ask.deadline_ms() else { return std::future::pending().await };
        sleep_until(&**self.clock(), deadline_ms, tokio::time::sleep).await;
    }

    fn model(&self, name: &Arc<str>) -> Arc<ModelPool> {
        self.core.state.model_again(name)
    }
}
