//! Which model is asked next, and by whose key: the first of the chain that can serve now, or the soonest.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use chrono::{DateTime, Utc};
use futures_util::{FutureExt as _, future::BoxFuture};
use keywheel_core::clock::from_unix_ms;
use keywheel_pool::{Ask, Exhausted, Lease};

use super::{
    Run,
    breaker::{Gate, Pass},
    chain::{self, Candidate},
};
use crate::{
    Error, WaitReason,
    time::{after_ms, sleep_until},
};

impl Run<'_> {
    /// A key for one of the models, and the breaker's leave to send. What is returned is to be sent at once.
    pub(super) async fn lease(&mut self) -> Result<(Lease, Pass), Error> {
        let begun_ms = self.inner.clock.unix_ms();
        self.key_by_ms = self.patience.map(|patience| after_ms(begun_ms, patience));
        let leased = self.lease_by_any().await;
        let waited_ms = self.inner.clock.unix_ms().saturating_sub(begun_ms);
        self.waited_ms = u64::try_from(waited_ms).unwrap_or(0);
        let waited = Duration::from_millis(self.waited_ms);
        self.patience = self.patience.map(|patience| patience.saturating_sub(waited));
        self.inner.counters.waited(self.waited_ms);
        leased
    }

    async fn lease_by_any(&mut self) -> Result<(Lease, Pass), Error> {
        loop {
            let Some((index, lease)) = self.choose().await else {
                return Err(chain::end(&mut self.chain, std::mem::take(&mut self.attempts)));
            };
            if self.is_late() {
                // Nobody would wait for the answer: the key goes back unused.
                return Err(Error::DeadlineReached { attempts: self.take_attempts() });
            }
            // Others may have found out in the meantime that the model fails: then the key goes back unused.
            if let Ok(pass) = self.inner.breakers.enter(&self.chain[index].ask.model) {
                self.at = index;
                return Ok((lease, pass));
            }
        }
    }

    /// A free key; or a paid one, where the call allows it and free ones would take too long, whichever model.
    async fn choose(&mut self) -> Option<(usize, Lease)> {
        if self.options.allow_paid && !self.is_failing() {
            let patience_ms = self.overflow_ms.min(self.deadline_ms.unwrap_or(i64::MAX));
            if let Some(found) = self.find(false, Some(patience_ms)).await {
                return Some(found);
            }
            // A model that fails is no reason to pay.
            if !self.is_failing() {
                return self.find(true, self.deadline_ms).await;
            }
        }
        self.find(self.pays, self.deadline_ms).await
    }

    /// True while some model is kept out by its own failures, or this call has met one with a free key.
    fn is_failing(&self) -> bool {
        let now_ms = self.inner.clock.unix_ms();
        let fails = |(i, candidate): (usize, &Candidate)| match candidate.is_out {
            true => candidate.is_failing(),
            false => self.gate(i, now_ms) != Gate::Open,
        };
        self.met_failure || self.chain.iter().enumerate().any(fails)
    }

    /// The first of the models that can serve now, or whichever can first until `until_ms`. `None`: none can, and
    /// each one's miss says why.
    async fn find(&mut self, pay: bool, until_ms: Option<i64>) -> Option<(usize, Lease)> {
        let inner = self.inner;
        let pool = &inner.pool;
        let now_ms = inner.clock.unix_ms();
        let models = 0..self.chain.len();
        let mut shut: Vec<usize> = models.filter(|&i| !self.chain[i].is_out).collect();
        let alone = shut.len() == 1;
        let preferred = *shut.first()?;
        let mut ready = Vec::new();
        shut.retain(|&i| match self.gate(i, now_ms) {
            Gate::Open => {
                self.chain[i].miss = None;
                ready.push(i);
                false
            }
            gate => {
                self.chain[i].breaker_open(gate);
                true
            }
        });
        let hears = inner.on_wait.is_some();
        for &i in &ready {
            let ask = self.ask(i, pay, until_ms);
            let leased = if alone && !hears {
                pool.lease(ask).await
            } else if i == preferred && !alone {
                // A pause within the minute is no reason to change the model.
                let patience = from_unix_ms(after_ms(now_ms, inner.defaults.fallback_after));
                let by = ask.deadline.map_or(patience, |at| at.min(patience));
                pool.lease(ask.by(by)).await
            } else {
                pool.try_lease(&ask)
            };
            match leased {
                Ok(lease) => return Some((i, lease)),
                Err(exhausted) => self.chain[i].missed(exhausted),
            }
        }
        if alone && !ready.is_empty() && !hears {
            return None;
        }
        self.say_waiting(until_ms);
        Box::pin(self.race(ready, shut, pay, until_ms)).await
    }

    /// Waits in the lines of all `ready` models at once, and for the moments at which those that are `shut` may be
    /// asked again.
    async fn race(
        &mut self,
        ready: Vec<usize>,
        mut shut: Vec<usize>,
        pay: bool,
        until_ms: Option<i64>,
    ) -> Option<(usize, Lease)> {
        type Waiting<'p> = BoxFuture<'p, Result<Lease, Exhausted>>;
        let inner = self.inner;
        let clock = &*inner.clock;
        let mut racers: Vec<(usize, Waiting<'_>)> = Vec::new();
        let mut new = ready;
        loop {
            // Before the gates are looked at, so that no change is missed.
            let mut changed = pin!(inner.breakers.changed());
            changed.as_mut().enable();
            let now_ms = clock.unix_ms();
            let mut wake_ms = None;
            shut.retain(|&i| {
                let gate = self.gate(i, now_ms);
                let end_ms = self.latest_ms(i, until_ms).unwrap_or(i64::MAX);
                let at_ms = match gate {
                    Gate::Open => {
                        new.push(i);
                        return false;
                    }
                    Gate::ShutUntil(at_ms) => at_ms,
                    Gate::Probing => end_ms,
                };
                self.chain[i].breaker_open(gate);
                if now_ms < end_ms && at_ms <= end_ms {
                    wake_ms = Some(wake_ms.map_or(at_ms, |soonest: i64| soonest.min(at_ms)));
                }
                true
            });
            racers.extend(new.drain(..).map(|i| {
                let ask = self.ask(i, pay, until_ms);
                (i, inner.pool.lease(ask).boxed())
            }));
            racers.sort_by_key(|(i, _)| *i);
            if racers.is_empty() && wake_ms.is_none() {
                return None;
            }
            let mut alarm = pin!(async {
                match wake_ms {
                    Some(at_ms) => sleep_until(clock, at_ms).await,
                    None => std::future::pending().await,
                }
            });
            let arrived = poll_fn(|cx| {
                for (place, (_, racer)) in racers.iter_mut().enumerate() {
                    if let Poll::Ready(leased) = racer.poll_unpin(cx) {
                        return Poll::Ready(Some((place, leased)));
                    }
                }
                let rung = changed.as_mut().poll(cx).is_ready();
                if rung || alarm.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                Poll::Pending
            });
            let Some((place, leased)) = arrived.await else { continue };
            let (i, _) = racers.remove(place);
            match leased {
                Ok(lease) => return Some((i, lease)),
                Err(exhausted) => self.chain[i].missed(exhausted),
            }
        }
    }

    fn gate(&self, index: usize, now_ms: i64) -> Gate {
        self.inner.breakers.gate(&self.chain[index].ask.model, now_ms)
    }

    fn ask(&self, index: usize, pay: bool, until_ms: Option<i64>) -> Ask {
        let mut ask = self.chain[index].ask.clone();
        ask.allow_paid = pay;
        ask.deadline = self.latest_ms(index, until_ms).map(from_unix_ms);
        ask
    }

    /// Until when a key for the model is of use, if it is to answer by the deadline, and no later than `until_ms`.
    fn latest_ms(&self, index: usize, until_ms: Option<i64>) -> Option<i64> {
        let now_ms = self.inner.clock.unix_ms();
        let latest_ms = self.deadline_ms.map(|deadline_ms| {
            self.inner.paces.latest_start_ms(&self.chain[index].ask.model, now_ms, deadline_ms)
        });
        [latest_ms, until_ms, self.key_by_ms].into_iter().flatten().min()
    }

    /// Tells whoever wants to know that this call waits, if there is a moment within its time.
    fn say_waiting(&self, until_ms: Option<i64>) {
        let Some(on_wait) = &self.inner.on_wait else { return };
        let in_time = |(i, at): &(usize, DateTime<Utc>)| {
            self.latest_ms(*i, until_ms).is_none_or(|end_ms| at.timestamp_millis() <= end_ms)
        };
        let skipped = self.chain.iter().enumerate().filter(|(_, candidate)| !candidate.is_out);
        let moments =
            skipped.filter_map(|(i, candidate)| Some((i, candidate.skipped()?.available_at?)));
        let Some((i, until)) = moments.filter(in_time).min_by_key(|(_, at)| *at) else { return };
        let failing = self.chain[i].is_failing();
        let why = if failing { WaitReason::BreakerOpen } else { WaitReason::Quota };
        on_wait.say(&self.chain[i].model, until, why);
    }
}
