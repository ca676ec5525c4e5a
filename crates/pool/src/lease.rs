//! Permission for one attempt with one key.

use std::{fmt, future::Future, sync::Arc};

use keywheel_core::{ApiKey, Effect, Fingerprint, LimitSeen, Tier, Usage};

use crate::{
    Refusal, Reported,
    core::Core,
    report::{From, is_counted},
    state::{
        bucket::Sent,
        keys::Key,
        model::{MOST_TOKENS, ModelPool},
    },
    window::Amount,
};

/// Permission for one attempt with one key; holds its share of the bucket's windows.
///
/// Call [`sent`](Self::sent) when the request leaves, then one of [`served`](Self::served),
/// [`refused`](Self::refused) and [`failed`](Self::failed).
///
/// ```
/// use keywheel_core::{Cause, Effect, Scope, Tier, Usage, Wait, Window};
/// use keywheel_pool::{ApiKey, Ask, KeySpec, Pool, Refusal, StateLocation};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1").with_project("mine");
/// let pool = Pool::builder().keys([key]).state(StateLocation::None).build().unwrap();
/// let ask = Ask::new("gemini-3.5-flash").with_tokens(900);
///
/// let mut lease = pool.try_lease(&ask).unwrap();
/// assert_eq!((lease.label(), lease.quota_project()), ("KEY_1", "mine"));
/// assert_eq!((lease.tier(), lease.is_exploration()), (Tier::Free, false));
/// assert_eq!(lease.fingerprint(), lease.key().fingerprint());
/// lease.sent();
/// // ... it was served, and the reply named no limits:
/// lease.served_with(&Usage { input: 850, ..Usage::default() }, &[]);
///
/// let mut lease = pool.try_lease(&ask).unwrap();
/// lease.sent();
/// // ... the reply says that the day is spent:
/// let effect = Effect::new(Scope::Bucket, Cause::PerDayRequests, Wait::Reset(Window::Day));
/// let reported = lease.refused(&Refusal::new([effect])).await;
/// assert!(reported.held);
/// assert!(pool.try_lease(&ask).is_err());
/// # }
/// ```
///
/// # Cancel safety
/// Dropped before `sent`, its share is given back; dropped after, it stays counted, since the provider may
/// have seen the request.
#[must_use = "a lease that is dropped gives its share back"]
pub struct Lease {
    core: Arc<Core>,
    model: Arc<ModelPool>,
    key: Arc<Key>,
    held: Held,
    /// When the request was sent; [`NOT_SENT`] before.
    sent_ms: i64,
    sent: Sent,
    /// The outcome was told: nothing is held any more.
    settled: bool,
}

/// What a lease holds of its bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) index: u32,
    /// How often the bucket and the key had been cleared when this was leased.
    pub(crate) bucket_clears: u32,
    pub(crate) key_clears: u32,
    pub(crate) tools: bool,
    pub(crate) exploration: bool,
    pub(crate) amount: Amount,
    pub(crate) leased_ms: i64,
}

const NOT_SENT: i64 = i64::MIN;

impl Lease {
    #[inline]
    pub(crate) fn new(core: Arc<Core>, model: Arc<ModelPool>, key: Arc<Key>, held: Held) -> Self {
        Self { core, model, key, held, sent_ms: NOT_SENT, sent: Sent::default(), settled: false }
    }

    /// The key to send with.
    #[must_use]
    pub fn key(&self) -> &ApiKey {
        &self.key.key
    }

    /// The key's identity in logs and in [`Ask::exclude`](crate::Ask::exclude).
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.key.key.fingerprint()
    }

    /// What the owner calls the key.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.key.label
    }

    /// The quota project that is charged; `key:<fingerprint>` when the owner told none.
    #[must_use]
    pub fn quota_project(&self) -> &str {
        &self.key.project.name
    }

    /// The model that was asked for.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model.name
    }

    /// The key's tier, as believed now.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.key.tier()
    }

    /// This attempt goes beyond what is believed and may well be refused: see
    /// [`PoolBuilder::exploration`](crate::PoolBuilder::exploration).
    #[must_use]
    pub const fn is_exploration(&self) -> bool {
        self.held.exploration
    }

    /// Says that the request leaves now: from here on it counts. A second call does nothing.
    pub fn sent(&mut self) {
        if self.sent_ms != NOT_SENT {
            return;
        }
        let now_ms = self.core.state.clock.unix_ms();
        let mut model = self.model.lock();
        let rules = &self.core.state.rules;
        model.advance(now_ms, rules);
        self.sent = model.sent(self.held.index, self.held.amount, now_ms, rules);
        self.sent_ms = now_ms;
        let news = model.mark(self.held.index);
        drop(model);
        if news {
            self.core.persister.mark_dirty();
        }
    }

    /// Says that the provider has begun to answer, and may take long to end. A second call does nothing.
    ///
    /// While a rate limit is unknown, few calls of a bucket may be tried at a time, and more with each that is served.
    /// An answer that has begun counts as served for that, whenever it ends.
    ///
    /// ```
    /// # use keywheel_pool::{ApiKey, Ask, KeySpec, Pool, StateLocation};
    /// # let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1");
    /// # let pool = Pool::builder().keys([key]).state(StateLocation::None).build().unwrap();
    /// let ask = Ask::new("gemini-3.5-flash");
    /// let [mut long, _another] = [(); 2].map(|()| pool.try_lease(&ask).unwrap());
    /// assert!(pool.try_lease(&ask).is_err(), "two are in flight, and nobody knows how many may be");
    /// long.sent();
    /// // ... the first part of a stream is there:
    /// long.answers();
    /// assert!(pool.try_lease(&ask).is_ok());
    /// ```
    pub fn answers(&mut self) {
        self.sent();
        if self.sent.answers {
            return;
        }
        let Held { index, bucket_clears, .. } = self.held;
        let mut model = self.model.lock();
        let bucket = &mut model.buckets[index as usize];
        bucket.answers(&mut self.sent);
        if bucket_clears == bucket.clears {
            bucket.answered();
        }
        if bucket.has_stopped() || !model.line.is_empty() {
            let now_ms = self.core.state.clock.unix_ms();
            model.gave_back(index, now_ms, &self.core.state.rules);
        }
    }

    /// The request was served; `usage` replaces the estimate of its input tokens.
    pub fn served(self, usage: &Usage) {
        self.served_with(usage, &[]);
    }

    /// The request was served, and the reply named limits.
    pub fn served_with(mut self, usage: &Usage, limits: &[LimitSeen]) {
        self.settle();
        let Held { index, amount, bucket_clears, exploration, .. } = self.held;
        let sent_ms = self.sent_ms;
        let mut guard = self.model.lock();
        let model = &mut *guard;
        model.has_served = true;
        let bucket = &mut model.buckets[index as usize];
        let input = usage.input.saturating_add(usage.tool).min(MOST_TOKENS);
        // Zero is no count but the absence of one: the estimate stays.
        let tokens = if input == 0 { amount.tokens } else { input };
        bucket.settle(self.sent, amount, Amount { tokens, ..amount });
        let current = bucket_clears == bucket.clears;
        let mut again = bucket.has_stopped();
        if current {
            if !self.sent.answers {
                bucket.answered();
            }
            bucket.served(sent_ms);
            if !limits.is_empty() {
                bucket.learn(limits, &model.set, sent_ms);
                again = true;
            }
            if exploration {
                bucket.disprove(&model.set, sent_ms);
                model.explore_anew();
                again = true;
            }
        }
        if again || !model.line.is_empty() {
            let now_ms = self.core.state.clock.unix_ms();
            model.gave_back(index, now_ms, &self.core.state.rules);
        }
        let news = model.mark(index);
        drop(guard);
        self.core.state.host.answered(sent_ms);
        if news {
            self.core.persister.mark_dirty();
        }
    }

    /// The request was refused: gives its share back if the provider did not count it, and takes every effect.
    ///
    /// Everything is taken when this is called, not when the future is polled; the future tells when it is
    /// on disk.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the state is written in the background.
    pub fn refused(mut self, refusal: &Refusal) -> impl Future<Output = Reported> + Send + use<> {
        self.settle();
        let from = From {
            model: &self.model,
            key: &self.key,
            index: self.held.index,
            tools: self.held.tools,
            sent_ms: self.sent_ms,
            bucket_clears: Some(self.held.bucket_clears),
            key_clears: Some(self.held.key_clears),
        };
        let amount = self.held.amount;
        let actual = if is_counted(refusal) { amount } else { Amount::default() };
        let done =
            self.core.report(&from, refusal, |bucket| bucket.settle(self.sent, amount, actual));
        let durable = self.core.commit(done.changed);
        let core = Arc::clone(&self.core);
        async move {
            let persisted = durable.await;
            // Kept until here, or the last handle's end could overtake the write.
            drop(core);
            Reported { persisted, until: done.until, held: done.held }
        }
    }

    /// The request failed and no key is to blame (5xx, time-out, a fault of the request): it stays counted,
    /// as Google counts failed requests too. Effects on the host are taken.
    pub fn failed(mut self, effects: &[Effect]) {
        self.settle();
        let now_ms = self.core.state.clock.unix_ms();
        self.core.take_host_effects(effects, self.sent_ms, now_ms);
        self.end_counted(now_ms);
    }

    /// From here on the outcome is told. Whoever did not say when it was sent has it counted from now on, and
    /// told apart from other calls by when it was leased.
    fn settle(&mut self) {
        if self.sent_ms == NOT_SENT {
            self.sent();
            self.sent_ms = self.held.leased_ms;
        }
        self.settled = true;
    }

    fn end_counted(&self, now_ms: i64) {
        let Held { index, amount, .. } = self.held;
        let mut model = self.model.lock();
        model.buckets[index as usize].settle(self.sent, amount, amount);
        model.gave_back(index, now_ms, &self.core.state.rules);
        let news = model.mark(index);
        drop(model);
        if news {
            self.core.persister.mark_dirty();
        }
    }

    #[cold]
    fn abandon(&self) {
        let now_ms = self.core.state.clock.unix_ms();
        if self.sent_ms != NOT_SENT {
            return self.end_counted(now_ms);
        }
        let mut model = self.model.lock();
        model.buckets[self.held.index as usize].unhold(self.held.amount);
        model.gave_back(self.held.index, now_ms, &self.core.state.rules);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.settled {
            self.abandon();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key.key)
            .field("label", &self.key.label)
            .field("model", &self.model.name)
            .field("exploration", &self.held.exploration)
            .finish_non_exhaustive()
    }
}
