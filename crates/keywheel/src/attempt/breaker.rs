//! The breaker of a model: after failures in a row the model is left alone, but for one probe now and then.
//!
//! An overload follows the model, whichever key asks, and each failed call counts against a daily quota that may be
//! 20 requests (<https://ai.google.dev/gemini-api/docs/billing>: a failed request "will still count against your
//! quota"). Ten minutes of it must not eat the day. The numbers and their reasons are in
//! `docs/decisions/0015-breaker-and-retry-budget.md`.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use foldhash::HashMap;
use keywheel_core::Clock;
use tokio::sync::{Notify, futures::Notified};

use super::work::is_route;

/// A failure that comes later than this after the last one begins a new row.
const ROW_MS: i64 = 120_000;

/// The pauses between probes, from the first on; the last one comes again and again.
const PAUSES_MS: [i64; 5] = [15_000, 30_000, 60_000, 120_000, 300_000];

/// A pause grows by up to a quarter, so that several processes do not probe together.
const MOST_JITTER: i64 = 250;

/// The longest wait that a reply may ask for.
const LONGEST_STATED_MS: i64 = 600_000;

/// More models than anybody uses. If as many fail, the next one is not remembered, and asked like any other.
const MOST_MODELS: usize = 1_000;

/// What is known of one model. Pure: time and jitter come in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Breaker {
    /// Failures in a row.
    failures: u32,
    last_failure_ms: i64,
    open: Option<Open>,
    /// So many probes have been sent: the next one's name.
    probes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    probe_at_ms: i64,
    /// Which pause comes next.
    step: usize,
    probe: Option<u64>,
}

/// Whether a model may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Yes.
    Open,
    /// Not before this moment.
    ShutUntil(i64),
    /// Somebody is trying whether it answers again.
    Probing,
}

/// What became of a request that was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The model answered.
    Served,
    /// The model failed, and perhaps asked for a wait.
    Failed(Option<Duration>),
    /// Somebody else refused: a quota, the key, a fault of the request. It tells nothing of the model.
    Unclear,
    /// Nobody waited for the reply.
    Abandoned,
}

/// Permission to send one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    probe: Option<u64>,
}

impl Breaker {
    /// Whether it may be asked at `now_ms`. A clock that was set back does not keep it shut for longer than it ever
    /// would be: the moment is moved, once.
    pub(crate) fn gate(&mut self, now_ms: i64) -> Gate {
        match &mut self.open {
            None => Gate::Open,
            Some(Open { probe: Some(_), .. }) => Gate::Probing,
            Some(Open { probe_at_ms, .. }) if *probe_at_ms <= now_ms => Gate::Open,
            Some(Open { probe_at_ms, .. }) => {
                *probe_at_ms = (*probe_at_ms).min(now_ms.saturating_add(LONGEST_STATED_MS));
                Gate::ShutUntil(*probe_at_ms)
            }
        }
    }

    /// Lets one request through, or says when one may go.
    pub(crate) fn enter(&mut self, now_ms: i64) -> Result<Entry, Gate> {
        match (self.gate(now_ms), &mut self.open) {
            (Gate::Open, None) => Ok(Entry { probe: None }),
            (Gate::Open, Some(open)) => {
                self.probes += 1;
                open.probe = Some(self.probes);
                Ok(Entry { probe: open.probe })
            }
            (shut, _) => Err(shut),
        }
    }

    /// Takes what became of a request. `jitter` is of a thousand parts, up to [`MOST_JITTER`]; `threshold` failures
    /// in a row open it, and none do if it is zero.
    pub(crate) fn told(
        &mut self,
        entry: Entry,
        outcome: Outcome,
        now_ms: i64,
        (threshold, jitter): (u32, i64),
    ) {
        let is_probe = |open: &Open| open.probe.is_some() && open.probe == entry.probe;
        let pause_ms = |step: usize| {
            let pause_ms = PAUSES_MS[step.min(PAUSES_MS.len() - 1)];
            pause_ms + pause_ms * jitter.clamp(0, MOST_JITTER) / 1_000
        };
        match (outcome, &mut self.open) {
            (Outcome::Served, _) => (self.failures, self.open) = (0, None),
            (Outcome::Failed(stated), open) => {
                let last_ms = std::mem::replace(&mut self.last_failure_ms, now_ms);
                let in_a_row = (0..=ROW_MS).contains(&now_ms.saturating_sub(last_ms));
                self.failures = if in_a_row { self.failures.saturating_add(1) } else { 1 };
                let stated_ms = stated.map_or(0, |stated| {
                    i64::try_from(stated.as_millis()).unwrap_or(i64::MAX).min(LONGEST_STATED_MS)
                });
                match open {
                    Some(open) if is_probe(open) => {
                        let wait_ms = pause_ms(open.step).max(stated_ms);
                        let probe_at_ms = now_ms.saturating_add(wait_ms);
                        *open = Open { probe_at_ms, step: open.step + 1, probe: None };
                    }
                    // It was sent before: nothing new, but for what the provider asks.
                    Some(open) if stated_ms > 0 => {
                        open.probe_at_ms = open.probe_at_ms.max(now_ms.saturating_add(stated_ms));
                    }
                    Some(_) => {}
                    None if threshold > 0 && self.failures >= threshold => {
                        let probe_at_ms = now_ms.saturating_add(pause_ms(0).max(stated_ms));
                        *open = Some(Open { probe_at_ms, step: 1, probe: None });
                    }
                    None => {}
                }
            }
            (Outcome::Unclear, Some(open)) if is_probe(open) => open.probe = None,
            (Outcome::Abandoned, Some(open)) if is_probe(open) => {
                // It was sent and counts: the next one waits as long as this one did.
                let again_ms = now_ms.saturating_add(pause_ms(open.step.saturating_sub(1)));
                (open.probe, open.probe_at_ms) = (None, again_ms);
            }
            (Outcome::Unclear | Outcome::Abandoned, _) => {}
        }
    }

    fn is_forgettable(&self, now_ms: i64) -> bool {
        self.open.is_none() && now_ms.saturating_sub(self.last_failure_ms) > ROW_MS
    }
}

/// The breakers of every model that failed lately.
#[derive(Debug)]
pub(crate) struct Breakers {
    clock: Arc<dyn Clock>,
    /// So many failures in a row open one; none if zero.
    threshold: u32,
    models: Mutex<HashMap<Arc<str>, Breaker>>,
    bell: Notify,
}

impl Breakers {
    pub(crate) fn new(clock: Arc<dyn Clock>, threshold: u32) -> Arc<Self> {
        Arc::new(Self { clock, threshold, models: Mutex::default(), bell: Notify::new() })
    }

    pub(crate) fn gate(&self, model: &str, now_ms: i64) -> Gate {
        self.lock().get_mut(model).map_or(Gate::Open, |breaker| breaker.gate(now_ms))
    }

    /// Lets one request to `model` through. To be asked when it is sent, and not before: what is dropped without an
    /// outcome counts as sent.
    pub(crate) fn enter(self: &Arc<Self>, model: &Arc<str>) -> Result<Pass, Gate> {
        let now_ms = self.clock.unix_ms();
        let entered = match self.lock().get_mut(model) {
            Some(breaker) => breaker.enter(now_ms)?,
            None => Entry { probe: None },
        };
        Ok(Pass { breakers: Arc::clone(self), model: Arc::clone(model), entry: Some(entered) })
    }

    /// Ends when some breaker has changed. To be enabled before the gates are looked at.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.bell.notified()
    }

    fn told(&self, model: &Arc<str>, entry: Entry, outcome: Outcome) {
        // Routes are no models: what fails there is not told by the model.
        if is_route(model) {
            return;
        }
        let jitter = fastrand::i64(0..=MOST_JITTER);
        let now_ms = self.clock.unix_ms();
        let mut models = self.lock();
        let (before, after) = match outcome {
            Outcome::Served => (models.remove(model), None),
            Outcome::Failed(_) => {
                if models.len() >= MOST_MODELS && !models.contains_key(model) {
                    models.retain(|_, breaker| !breaker.is_forgettable(now_ms));
                    if models.len() >= MOST_MODELS {
                        return;
                    }
                }
                let breaker = models.entry(Arc::clone(model)).or_default();
                let before = breaker.clone();
                breaker.told(entry, outcome, now_ms, (self.threshold, jitter));
                (Some(before), Some(breaker.clone()))
            }
            Outcome::Unclear | Outcome::Abandoned => {
                let Some(breaker) = models.get_mut(model) else { return };
                let before = breaker.clone();
                breaker.told(entry, outcome, now_ms, (self.threshold, jitter));
                (Some(before), Some(breaker.clone()))
            }
        };
        drop(models);
        let open = |breaker: &Option<Breaker>| breaker.as_ref().and_then(|breaker| breaker.open);
        if open(&before) == open(&after) {
            return;
        }
        match (open(&before), open(&after)) {
            (None, Some(_)) => {
                tracing::warn!(
                    model = &**model,
                    "the model fails again and again: it is left alone"
                );
            }
            (Some(_), None) => tracing::info!(model = &**model, "the model answers again"),
            _ => {}
        }
        self.bell.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Breaker>> {
        // Every change is whole before the lock is let go.
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request on its way through the breaker. Dropped without an outcome, nobody waited for the reply.
#[derive(Debug)]
pub(crate) struct Pass {
    breakers: Arc<Breakers>,
    model: Arc<str>,
    entry: Option<Entry>,
}

impl Pass {
    pub(crate) fn tell(mut self, outcome: Outcome) {
        if let Some(entry) = self.entry.take() {
            self.breakers.told(&self.model, entry, outcome);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.breakers.told(&self.model, entry, Outcome::Abandoned);
        }
    }
}

#[cfg(test)]
mod tests;
