//! The attempt loop: lease a key, send once, read what the reply means, report, decide what is next.
//!
//! The loop is bounded by the deadline and by the pool, not by a number: a key that refused is cooling in the
//! pool and is not handed out again, so every healthy key is reached. One that refused and is held back by nothing
//! all the same is left out by the call itself. Only the provider's own failures are counted (see [`plan`]).

mod avalanche;
mod generate;
mod judge;
mod outcome;
mod pace;
mod plan;
mod stream;
pub(crate) mod work;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use keywheel_core::{Cause, Dimension, LimitSeen, clock::from_unix_ms, scrub::scrub};
use keywheel_pool::{Ask, CheckResult, Exhausted, ExhaustedKind, Lease, Refusal};
use keywheel_provider::{Sent, TransportKind, classify::Kind, upstream::Call};

use self::{
    avalanche::Avalanche,
    judge::Refused,
    outcome::{Next, PoolOutcome, decide},
    plan::Plan,
    work::{Brought, Sight, Work},
};
pub(crate) use self::{
    generate::{generate, stream},
    pace::Paces,
};
pub use self::{outcome::refusal, plan::RetryConfig, stream::GeminiStream};
use crate::{
    Attempt, Error, Rejected,
    checks::check,
    gemini::{CallOptions, Inner},
    time::{from_now_ms, sleep, until},
};

/// The most of an error that is read. Real ones have a few kilobytes; a gateway's page may have more.
const MAX_ERROR: usize = 1 << 20;

/// So many keys may find no room in their minute for a request that is, by our estimate, over the limit of each.
/// Then it is the request.
const OVERSIZE_REFUSALS: usize = 3;

/// Does `work` for `model` and tells the pool that it was served.
pub(crate) async fn perform<W: Work>(
    inner: &Inner,
    model: Arc<str>,
    work: &W,
    options: &CallOptions,
) -> Result<Done<W::Answer>, Error> {
    let mut run = Run::new(inner, model, work, options);
    let (answer, lease) = run.answer(work).await?;
    let quota_project = lease.quota_project().into();
    lease.served(&work.usage(&answer).unwrap_or_default());
    Ok(Done { answer, model: run.model, quota_project, attempts: run.attempts })
}

/// Work that was done.
#[derive(Debug)]
pub(crate) struct Done<T> {
    pub(crate) answer: T,
    /// The model that was asked.
    pub(crate) model: Arc<str>,
    /// Whose quota it drew on: what it made belongs to that project.
    pub(crate) quota_project: Arc<str>,
    pub(crate) attempts: Vec<Attempt>,
}

/// One call on its way.
struct Run<'a> {
    inner: &'a Inner,
    /// The model that is asked.
    model: Arc<str>,
    /// The bucket that is drawn on: the model's, or a route's.
    ask: Ask,
    deadline_ms: Option<i64>,
    /// Until when a stream may be read.
    stream_end_ms: Option<i64>,
    /// Until when free keys are waited for before a paid one is used.
    overflow_at: DateTime<Utc>,
    plan: Plan,
    /// Whether it may be sent again when nobody knows what became of it.
    repeatable: bool,
    /// The quota projects that found the request too large for their minute.
    oversize: Vec<String>,
    avalanche: Avalanche,
    /// The last refusal that holds nothing back: the call's answer if nobody else is left to ask.
    riddle: Option<Box<Rejected>>,
    attempts: Vec<Attempt>,
}

impl<'a> Run<'a> {
    fn new<W: Work>(inner: &'a Inner, model: Arc<str>, work: &W, options: &CallOptions) -> Self {
        let now = inner.clock.now();
        let deadline = options.deadline.map(|deadline| after(now, deadline));
        let mut ask = work.ask(&model);
        ask.allow_paid = options.allow_paid;
        ask.affinity = ask.affinity.or_else(|| options.owner.clone());
        ask.deadline = deadline;
        Self {
            inner,
            model,
            ask,
            deadline_ms: deadline.map(|at| at.timestamp_millis()),
            stream_end_ms: options.stream_end.map(|span| after(now, span).timestamp_millis()),
            overflow_at: after(now, inner.defaults.overflow_after),
            plan: Plan::new(&inner.retry),
            repeatable: work.is_repeatable(),
            oversize: Vec::new(),
            avalanche: Avalanche::default(),
            riddle: None,
            attempts: Vec::new(),
        }
    }

    /// Attempts until somebody serves, or nobody can. What was leased is still to be reported as served.
    async fn answer<W: Work>(&mut self, work: &W) -> Result<(W::Answer, Lease), Error> {
        let call = work
            .call(&self.inner.upstream, &self.model)
            .map_err(|fault| Error::Setting(fault.to_string()))?;
        loop {
            let mut lease = match self.lease().await {
                Ok(lease) => lease,
                Err(exhausted) => return Err(self.nobody(exhausted)),
            };
            if self.is_late() {
                // Nobody would wait for the answer: the key goes back unused.
                return Err(Error::DeadlineReached { attempts: self.take_attempts() });
            }
            // From here on the attempt counts, also when this future is dropped.
            lease.sent();
            let sent_ms = self.inner.clock.unix_ms();
            let attempt = self.attempt(work, &lease, &call);
            let Some(brought) = until(&*self.inner.clock, self.deadline_ms, attempt).await else {
                self.note(&lease, None, None, "the deadline came first");
                return Err(Error::DeadlineReached { attempts: self.take_attempts() });
            };
            match brought {
                Brought::Answer(answer) => {
                    let took_ms = self.inner.clock.unix_ms().saturating_sub(sent_ms);
                    self.inner.paces.observe(&self.ask.model, took_ms);
                    self.note(&lease, Some(200), Some(Kind::Served), "");
                    return Ok((answer, lease));
                }
                Brought::Refused { status, body, refused } => {
                    self.refused(lease, status, &body, *refused).await?;
                }
                Brought::Nothing { sent, status, reason } => {
                    self.note(&lease, status, None, &reason);
                    match sent {
                        Sent::No => give_back(lease).await,
                        Sent::Maybe => lease.failed(&[]),
                    }
                    let in_doubt = sent == Sent::Maybe;
                    self.pause(None, in_doubt, reason).await?;
                }
                Brought::Unreadable { status, reason } => {
                    self.note(&lease, Some(status), None, &reason);
                    lease.failed(&[]);
                    return Err(Error::Unreadable { reason, attempts: self.take_attempts() });
                }
                Brought::Unsendable(reason) => {
                    give_back(lease).await;
                    return Err(Error::Setting(reason));
                }
            }
        }
    }

    /// Sends once and reads what comes, up to the first part of a stream.
    async fn attempt<W: Work>(&self, work: &W, lease: &Lease, call: &Call) -> Brought<W::Answer> {
        let response = match self.inner.upstream.call(lease.key(), call).await {
            Ok(response) => response,
            Err(error) if error.kind == TransportKind::Request => {
                return Brought::Unsendable(error.to_string());
            }
            Err(error) => {
                let (sent, reason) = (error.sent, error.to_string());
                return Brought::Nothing { sent, status: None, reason };
            }
        };
        let Inner { upstream, clock, .. } = self.inner;
        let sight = Sight { lease, ask: &self.ask, upstream, clock: &**clock };
        if (200..300).contains(&response.status) {
            return work.read(&sight, response).await;
        }
        let (status, headers) = (response.status, response.headers.clone());
        // An error that was torn off is still judged by what is there: the status.
        let body = response.bytes(MAX_ERROR).await.unwrap_or_default();
        match sight.refused(status, &headers, &body) {
            Some(refused) => Brought::Refused { status, body, refused },
            None => {
                let reason = format!("a reply with status {status} and no meaning");
                Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason }
            }
        }
    }

    /// A free key; or a paid one, where the call allows it and free ones would take too long.
    async fn lease(&self) -> Result<Lease, Exhausted> {
        let pool = &self.inner.pool;
        let mut ask = self.ask.clone();
        ask.deadline = self.deadline_ms.map(|deadline_ms| {
            let now_ms = self.inner.clock.unix_ms();
            from_unix_ms(self.inner.paces.latest_start_ms(&ask.model, now_ms, deadline_ms))
        });
        if ask.allow_paid {
            let patience = ask.deadline.map_or(self.overflow_at, |at| at.min(self.overflow_at));
            let mut free = ask.clone().by(patience);
            free.allow_paid = false;
            if let Ok(lease) = pool.lease(free).await {
                return Ok(lease);
            }
        }
        pool.lease(ask).await
    }

    fn is_late(&self) -> bool {
        self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.inner.clock.unix_ms())
    }

    /// Reports a refusal to the pool and does what follows from it. `Ok` means: go on.
    async fn refused(
        &mut self,
        lease: Lease,
        status: u16,
        body: &Bytes,
        refused: Refused,
    ) -> Result<(), Error> {
        let (told, mut next) = decide(&refused);
        let Refused { mut cause, verdict } = refused;
        self.note(&lease, Some(status), Some(verdict.kind), &verdict.message);
        if cause == Cause::PerMinuteTokens && self.is_over_the_limit(&verdict.limits) {
            self.oversize.push(lease.quota_project().to_owned());
            if self.oversize.len() >= OVERSIZE_REFUSALS {
                (cause, next) = (Cause::RequestTooLarge, Next::HandBack);
            }
        }
        if self.asks_for_more_requests(cause, &verdict.limits) {
            // No wait makes room for it; whoever made it of several requests can make it of fewer.
            (cause, next) = (Cause::RequestTooLarge, Next::HandBack);
        }
        let (key, quota_project) = (lease.key().clone(), lease.quota_project().to_owned());
        let mut held = true;
        match told {
            PoolOutcome::Refused(refusal) => {
                let reported = lease.refused(&refusal).await;
                held = reported.held;
                if let Some(attempt) = self.attempts.last_mut() {
                    attempt.available_at = reported.until;
                    attempt.persisted = Some(reported.persisted);
                    attempt.fix = verdict.fix;
                    warn_of_quarantine(attempt, cause);
                }
            }
            PoolOutcome::Failed => lease.failed(&verdict.effects),
        }
        if self.avalanche.met(&key, quota_project, status, &verdict)
            && self.was_the_request(cause).await
        {
            next = Next::HandBack;
        }
        let rejected = || {
            let body = scrub(&String::from_utf8_lossy(body), &[&key]).into_owned();
            Box::new(Rejected { status, cause, verdict, body })
        };
        match next {
            Next::OtherKey if held => Ok(()),
            Next::OtherKey => {
                self.ask.exclude.push(key.fingerprint());
                self.riddle = Some(rejected());
                Ok(())
            }
            Next::Retry { hint } => {
                // An overloaded model has not begun.
                let in_doubt = cause != Cause::Overloaded;
                self.pause(hint, in_doubt, format!("{cause} (HTTP {status})")).await
            }
            Next::HandBack => {
                for quota_project in std::mem::take(&mut self.oversize) {
                    // It was the request: others may have the minute that it was refused.
                    self.withdraw(&quota_project, Cause::PerMinuteTokens).await;
                }
                let rejected = rejected();
                Err(Error::Rejected { rejected, attempts: self.take_attempts() })
            }
        }
    }

    /// Whether three quota projects gave the same answer because of the request. If so, takes back what they were
    /// held back for.
    ///
    /// What a key is dead for is asked of the provider, by the free check, before it is believed: three keys may
    /// be dead. Of a quota it tells nothing.
    async fn was_the_request(&mut self, cause: Cause) -> bool {
        let pool = &self.inner.pool;
        let blamed = self.avalanche.blamed().to_vec();
        if cause.release().is_none() {
            for (_, quota_project) in &blamed {
                self.withdraw(quota_project, cause).await;
            }
        } else {
            // The last one first: if that key is dead, the others are believed to be.
            for (tried, (key, _)) in blamed.iter().rev().enumerate() {
                let check = check(self.inner, key);
                let found = until(&*self.inner.clock, self.deadline_ms, check).await;
                if found == Some(CheckResult::Alive) {
                    pool.check_result(key.fingerprint(), CheckResult::Alive);
                } else if tried == 0 {
                    return false;
                }
            }
        }
        tracing::info!(
            model = &*self.ask.model,
            cause = cause.as_str(),
            "several quota projects gave the same answer, so it is the request's: they stay in use"
        );
        true
    }

    /// Takes back what a quota project was held back for by this call.
    async fn withdraw(&mut self, quota_project: &str, cause: Cause) {
        self.inner.pool.withdraw(quota_project, &self.ask.model, cause).await;
        for attempt in &mut self.attempts {
            if attempt.quota_project == quota_project {
                attempt.available_at = None;
            }
        }
    }

    fn is_over_the_limit(&self, limits: &[LimitSeen]) -> bool {
        limits.iter().any(|seen| seen.dimension == Dimension::Tpm && seen.value < self.ask.tokens)
    }

    /// True for a call of several requests that has more of them than the quota that refused it allows at all.
    fn asks_for_more_requests(&self, cause: Cause, limits: &[LimitSeen]) -> bool {
        let dimension = match cause {
            Cause::PerMinuteRequests => Dimension::Rpm,
            Cause::PerDayRequests => Dimension::Rpd,
            _ => return false,
        };
        let asked = u64::from(self.ask.requests);
        asked > 1 && limits.iter().any(|seen| seen.dimension == dimension && seen.value < asked)
    }

    /// Pauses before a retry, or gives up. `in_doubt`: what was asked for may have been done.
    async fn pause(
        &mut self,
        hint: Option<Duration>,
        in_doubt: bool,
        reason: String,
    ) -> Result<(), Error> {
        let clock = &*self.inner.clock;
        let pause = if in_doubt && !self.repeatable { None } else { self.plan.pause(hint) };
        let pause = pause.filter(|pause| {
            let resumes_ms = from_now_ms(clock, *pause);
            self.deadline_ms.is_none_or(|deadline_ms| resumes_ms < deadline_ms)
        });
        let Some(pause) = pause else {
            let reason = format!("{reason}, at {}", self.inner.upstream.base_url());
            return Err(Error::UpstreamDown { reason, attempts: self.take_attempts() });
        };
        sleep(clock, pause).await;
        Ok(())
    }

    fn nobody(&mut self, exhausted: Exhausted) -> Error {
        let attempts = self.take_attempts();
        let kind = exhausted.kind;
        if let Some(rejected) = self.riddle.take()
            && kind == ExhaustedKind::Busy
            && exhausted.soonest.is_none()
        {
            // Nothing stands in the way but that this call has asked everybody.
            return Error::Rejected { rejected, attempts };
        }
        let exhausted = Box::new(exhausted);
        match kind {
            ExhaustedKind::NoKeys => Error::NoKeys { exhausted, attempts },
            ExhaustedKind::AllDead => Error::AllKeysDead { exhausted, attempts },
            ExhaustedKind::Cooling | ExhaustedKind::Busy => {
                Error::Exhausted { exhausted, attempts }
            }
        }
    }

    fn note(&mut self, lease: &Lease, status: Option<u16>, kind: Option<Kind>, message: &str) {
        self.attempts.push(Attempt {
            label: lease.label().to_owned(),
            fingerprint: lease.fingerprint(),
            quota_project: lease.quota_project().to_owned(),
            status,
            kind,
            available_at: None,
            persisted: None,
            fix: None,
            message: message.to_owned(),
        });
        tracing::debug!(
            key = %lease.fingerprint(),
            label = lease.label(),
            model = &*self.ask.model,
            status,
            kind = kind.map_or("none", Kind::as_str),
            "attempt"
        );
    }

    fn take_attempts(&mut self) -> Vec<Attempt> {
        std::mem::take(&mut self.attempts)
    }
}

/// A key that is out of use until somebody acts is said aloud, once: it is not handed out again.
fn warn_of_quarantine(attempt: &Attempt, cause: Cause) {
    if cause.release().is_some() {
        tracing::warn!(
            key = %attempt.fingerprint,
            label = attempt.label,
            cause = cause.as_str(),
            fix = attempt.fix,
            "a key is out of use"
        );
    }
}

/// Returns what a request that never left took: a refusal without effects.
async fn give_back(lease: Lease) {
    let _nothing_to_wait_for = lease.refused(&Refusal::default()).await;
}

/// `now` and `span`; what lies beyond the calendar is its end.
fn after(now: DateTime<Utc>, span: Duration) -> DateTime<Utc> {
    let span = chrono::Duration::from_std(span).unwrap_or(chrono::Duration::MAX);
    now.checked_add_signed(span).unwrap_or(DateTime::<Utc>::MAX_UTC)
}
