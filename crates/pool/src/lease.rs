//! Permission for one attempt with one key.

use std::{fmt, future::Future, sync::Arc};

use keywheel_core::{ApiKey, Effect, Fingerprint, LimitSeen, Tier, Usage};

use crate::{
    Refusal, Reported,
    core::Core,
    state::{bucket::Sent, keys::Key, model::ModelPool},
    window::Amount,
};

/// Permission for one attempt with one key; holds its share of the bucket's windows.
///
/// Call [`sent`](Self::sent) when the request leaves, then one of [`served`](Self::served),
/// [`refused`](Self::refused) and [`failed`](Self::failed).
///
/// # Cancel safety
/// Dropped before `sent`, its share is given back; dropped after, it stays counted, since the provider may
/// have seen the request.
#[must_use = "a lease that is dropped gives its share back"]
pub struct Lease {
    core: Arc<Core>,
    model: Arc<ModelPool>,
    key: Arc<Key>,
    key_clears: u32,
    /// `None` once the outcome was told.
    held: Option<Held>,
    exploration: bool,
}

/// What a lease holds of its bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) index: u32,
    /// How often the bucket had been cleared when this was leased.
    pub(crate) clears: u32,
    pub(crate) amount: Amount,
    pub(crate) tools: bool,
    pub(crate) exploration: bool,
    pub(crate) leased_ms: i64,
    pub(crate) sent: Option<Sent>,
}

impl Lease {
    pub(crate) fn new(core: Arc<Core>, model: Arc<ModelPool>, key: Arc<Key>, held: Held) -> Self {
        let (key_clears, exploration) = (key.clears(), held.exploration);
        Self { core, model, key, key_clears, held: Some(held), exploration }
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
        self.exploration
    }

    /// Says that the request leaves now: from here on it counts. A second call does nothing.
    pub fn sent(&mut self) {
        let now_ms = self.core.state.clock.unix_ms();
        self.stamp(now_ms);
    }

    /// The request was served; `usage` replaces the estimate of its input tokens.
    pub fn served(self, usage: &Usage) {
        self.served_with(usage, &[]);
    }

    /// The request was served, and the reply named limits.
    pub fn served_with(mut self, usage: &Usage, limits: &[LimitSeen]) {
        let Some((held, sent)) = self.finish() else { return };
        let rules = &self.core.state.rules;
        let mut model = self.model.lock();
        let set = model.set;
        let bucket = &mut model.buckets[held.index as usize];
        let input = usage.input.saturating_add(usage.tool);
        // Zero is no count but the absence of one: the estimate stays.
        let tokens = if input == 0 { held.amount.tokens } else { input };
        let actual = Amount { tokens, ..held.amount };
        bucket.settle(&sent, held.amount, actual);
        let current = held.clears == bucket.clears;
        if current {
            bucket.served(sent.at_ms);
        }
        let mut again = bucket.has_stopped();
        if !limits.is_empty() && current {
            bucket.learn(limits, &set, sent.at_ms);
            again = true;
        }
        if held.exploration && current {
            bucket.disprove(&set, sent.at_ms);
            model.explore_anew();
            again = true;
        }
        if again || !model.line.is_empty() {
            let now_ms = self.core.state.clock.unix_ms();
            model.gave_back(held.index, now_ms, rules);
        }
        let news = model.mark(held.index);
        drop(model);
        self.core.state.host.answered(sent.at_ms);
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
        let done = self.finish().map(|(held, sent)| {
            let from = crate::report::From {
                model: &self.model,
                key: &self.key,
                index: held.index,
                tools: held.tools,
                sent_ms: sent.at_ms,
                stale_bucket: Some(held.clears),
                stale_key: Some(self.key_clears),
            };
            self.core.report(&from, refusal, |bucket| {
                let counted = crate::report::is_counted(refusal);
                let actual = if counted { held.amount } else { Amount::default() };
                bucket.settle(&sent, held.amount, actual);
            })
        });
        let done = done.unwrap_or_default();
        let durable = self.core.commit(done.changed);
        let core = Arc::clone(&self.core);
        async move {
            let persisted = durable.await;
            drop(core);
            Reported { persisted, until: done.until }
        }
    }

    /// The request failed and no key is to blame (5xx, time-out, a fault of the request): it stays counted,
    /// as Google counts failed requests too. Effects on the host are taken.
    pub fn failed(mut self, effects: &[Effect]) {
        let Some((held, sent)) = self.finish() else { return };
        let now_ms = self.core.state.clock.unix_ms();
        self.core.take_host_effects(effects, sent.at_ms, now_ms);
        self.end_counted(&held, &sent, now_ms);
    }

    fn end_counted(&self, held: &Held, sent: &Sent, now_ms: i64) {
        let mut model = self.model.lock();
        model.buckets[held.index as usize].settle(sent, held.amount, held.amount);
        model.gave_back(held.index, now_ms, &self.core.state.rules);
        let news = model.mark(held.index);
        drop(model);
        if news {
            self.core.persister.mark_dirty();
        }
    }

    fn stamp(&mut self, now_ms: i64) {
        let Some(held) = self.held.as_mut().filter(|held| held.sent.is_none()) else { return };
        let mut model = self.model.lock();
        let day = *model.day();
        let bucket = &mut model.buckets[held.index as usize];
        bucket.advance(now_ms, &day);
        let number = bucket.sent(held.amount, now_ms);
        let day_from_ms = bucket.day.span.from_ms;
        held.sent = Some(Sent { at_ms: now_ms, number, day_from_ms });
        let news = model.mark(held.index);
        drop(model);
        if news {
            self.core.persister.mark_dirty();
        }
    }

    /// Takes what is held, stamped as sent when it was leased if nobody said when.
    fn finish(&mut self) -> Option<(Held, Sent)> {
        if let Some(leased_ms) = self.held.as_ref().map(|held| held.leased_ms) {
            self.stamp(leased_ms);
        }
        let held = self.held.take()?;
        let sent = held.sent?;
        Some((held, sent))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let now_ms = self.core.state.clock.unix_ms();
        if let Some(sent) = held.sent {
            return self.end_counted(&held, &sent, now_ms);
        }
        let mut model = self.model.lock();
        model.buckets[held.index as usize].unhold(held.amount);
        model.gave_back(held.index, now_ms, &self.core.state.rules);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key.key)
            .field("label", &self.key.label)
            .field("model", &self.model.name)
            .field("exploration", &self.exploration)
            .finish_non_exhaustive()
    }
}
