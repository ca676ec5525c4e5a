//! The attempt loop: lease a key, reserve what it may cost, send once, read what the reply means, report, settle,
//! decide what is next.
//!
//! The loop is bounded by the deadline and by the pool, not by a number: a key that refused is cooling in the
//! pool and is not handed out again, so every healthy key is reached. One that refused and is held back by nothing
//! all the same is left out by the call itself. Only the provider's own failures are counted.
//!
//! | decision | file |
//! |---|---|
//! | which model and key is next | [`lease`], over the [`chain`] of models |
//! | whether the budget lets it be sent | [`reserve`], with a ledger |
//! | what follows from a refusal or a failure | [`refused`], by the table in [`outcome`] |
//! | whether a failing model may be asked | [`breaker`] |
//! | whether a failure may be retried | [`plan`] for the call, [`budget`] for the client |
//! | what is told of a reply that is read by the caller | [`owed`] |

mod avalanche;
mod breaker;
mod budget;
mod chain;
mod generate;
mod judge;
mod lease;
mod outcome;
mod owed;
mod pace;
mod plan;
mod refused;
mod relay;
mod reserve;
mod size;
mod soonest;
mod stream;
mod unzip;
pub(crate) mod work;

use std::{pin::pin, sync::Arc, time::Duration};

use keywheel_core::{LimitSeen, Tier, Usage};
use keywheel_pool::{Ask, Lease, Refusal};
use keywheel_provider::{
    Sent, TransportKind,
    classify::{Kind, limits_from_headers},
};

pub(crate) use self::{
    breaker::Breakers,
    budget::{Budget, SharedBudget},
    generate::{generate, stream},
    pace::Paces,
    relay::{Expected, Passing, glance, relay},
    size::Facts,
    soonest::{next_available, until_available},
};
use self::{
    breaker::{Outcome, Pass},
    chain::Candidate,
    plan::Plan,
    refused::Failure,
    work::{Brought, Sight, Work},
};
pub use self::{
    chain::{SkipReason, Skipped},
    outcome::refusal,
    plan::RetryConfig,
    relay::RelayBody,
    size::ModelFacts,
    stream::GeminiStream,
};
use crate::{
    Attempt, Error,
    charging::{Slip, Spent, Tab},
    gemini::{CallOptions, Inner},
    observe::{AttemptSpan, CallSpan},
    time::{after_ms, until},
};

/// The most of an error that is read. Real ones have a few kilobytes; a gateway's page may have more.
const MAX_ERROR: usize = 1 << 20;

/// Does `work` for `model` and tells the pool that it was served.
pub(crate) async fn perform<W: Work>(
    inner: &Inner,
    model: Arc<str>,
    work: &W,
    options: &CallOptions,
) -> Result<Done<W::Answer>, Error> {
    inner.counters.called();
    let mut run = Run::new(inner, Arc::clone(&model), work, options);
    let span = CallSpan::new(inner, work::operation(&run.chain[0].ask.model), &model);
    span.is_called(options.payer.request_id());
    match span.enter(run.answer(work)).await {
        Ok((answer, served)) => {
            let quota_project = served.lease.quota_project().into();
            let usage = work.usage(&answer);
            served.tell(inner, run.model(), usage).settle().await;
            span.ended(Ok(usage));
            Ok(Done { answer, quota_project, attempts: run.attempts })
        }
        Err(error) => {
            inner.counters.gave_up();
            span.ended(Err(&error));
            Err(error)
        }
    }
}

/// Work that was done.
#[derive(Debug)]
pub(crate) struct Done<T> {
    pub(crate) answer: T,
    /// Whose quota it drew on: what it made belongs to that project.
    pub(crate) quota_project: Arc<str>,
    pub(crate) attempts: Vec<Attempt>,
}

/// What is still to be told of an attempt that brought an answer: to the pool, the breaker and the ledger.
#[derive(Debug)]
struct Served {
    lease: Lease,
    /// Until it is clear that the model answers.
    pass: Option<Pass>,
    slip: Slip,
    /// Those that the reply's headers tell.
    limits: Vec<LimitSeen>,
}

impl Served {
    /// A whole answer, with what it used, as far as that was told. What is returned is to be settled.
    fn tell(mut self, inner: &Inner, model: &Arc<str>, usage: Option<Usage>) -> Slip {
        self.slip.is(Spent::Answered, usage);
        let usage = usage.unwrap_or_default();
        if let Some(pass) = self.pass {
            pass.tell(Outcome::Served);
        }
        self.lease.served_with(&usage, &self.limits);
        inner.counters.served(model, &usage);
        self.slip
    }
}

/// One call on its way.
struct Run<'a> {
    inner: &'a Inner,
    options: &'a CallOptions,
    /// The model that was asked for, and those that may take over.
    chain: Vec<Candidate>,
    /// The model that is asked.
    at: usize,
    deadline_ms: Option<i64>,
    /// Until when a stream may be read.
    stream_end_ms: Option<i64>,
    /// Until when free keys are waited for before a paid one is used.
    overflow_ms: i64,
    plan: Plan,
    /// Whether it may be sent again when nobody knows what became of it.
    repeatable: bool,
    /// A free key met a failure of the provider: no paid key is used for that.
    met_failure: bool,
    /// A paid key met one, so this call pays already.
    pays: bool,
    /// How long the last key was waited for.
    waited_ms: u64,
    /// How much longer keys may be waited for.
    patience: Option<Duration>,
    /// Until when the next key may be waited for.
    key_by_ms: Option<i64>,
    span: AttemptSpan,
    /// What the ledger is told.
    tab: Tab,
    /// What is known of the models that this call does not ask any more.
    passed_over: Vec<Skipped>,
    attempts: Vec<Attempt>,
}

impl<'a> Run<'a> {
    fn new<W: Work>(inner: &'a Inner, model: Arc<str>, work: &W, options: &'a CallOptions) -> Self {
        let now_ms = inner.clock.unix_ms();
        let mut ask = work.ask(&model);
        ask.affinity = ask.affinity.or_else(|| options.owner.clone());
        let fallback = options.fallback.iter().filter(|_| work.may_change_model());
        let mut chain = vec![Candidate::new(model, ask)];
        for other in fallback.flat_map(|models| models.iter()) {
            if chain.iter().all(|known| known.model != *other) {
                let ask = Ask { model: Arc::clone(other), ..chain[0].ask.clone() };
                chain.push(Candidate::new(Arc::clone(other), ask));
            }
        }
        if !options.earned {
            inner.budget.earn();
        }
        Self {
            inner,
            options,
            chain,
            at: 0,
            deadline_ms: options.deadline.map(|span| after_ms(now_ms, span)),
            stream_end_ms: options.stream_end.map(|span| after_ms(now_ms, span)),
            overflow_ms: after_ms(now_ms, inner.defaults.overflow_after),
            plan: Plan::new(&inner.retry),
            repeatable: work.is_repeatable(),
            met_failure: false,
            pays: false,
            waited_ms: 0,
            patience: options.patience,
            key_by_ms: None,
            span: AttemptSpan::none(),
            tab: Tab::open(&inner.purse, &options.payer),
            passed_over: Vec::new(),
            attempts: Vec::new(),
        }
    }

    /// Attempts until somebody serves, or nobody can. What was leased is still to be reported as served.
    async fn answer<W: Work>(&mut self, work: &W) -> Result<(W::Answer, Served), Error> {
        let answered = self.attempts(work).await;
        match &answered {
            Ok(_) => self.say_who_took_over(),
            Err(_) => Box::pin(self.settle()).await,
        }
        answered
    }

    async fn attempts<W: Work>(&mut self, work: &W) -> Result<(W::Answer, Served), Error> {
        self.prepare(work)?;
        self.leave_out_the_small()?;
        loop {
            let (mut lease, pass) = self.lease_and_settle().await?;
            if let Err(error) = self.prepare(work) {
                pass.tell(Outcome::Unclear);
                return Err(error);
            }
            let reserved = self.reserve(work, &lease).await;
            let Ok(Some(mut slip)) = reserved else {
                // The key goes back unused.
                pass.tell(Outcome::Unclear);
                reserved?;
                continue;
            };
            // From here on the attempt counts, also when this future is dropped.
            lease.sent();
            slip.sent();
            if let Some(on_sent) = &self.options.on_sent {
                (on_sent.0)();
            }
            let sent_ms = self.inner.clock.unix_ms();
            self.count(&lease);
            let clock = &self.inner.clock;
            let brought = {
                // In its place once: each future that it were moved into would be larger by its size.
                let attempt = pin!(self.span.enter(self.attempt(work, &lease)));
                until(&**clock, self.deadline_ms, slip.during(clock, attempt)).await
            };
            let Some((limits, brought)) = brought else {
                self.note(&lease, None, None, "the deadline came first");
                self.inner.counters.failed();
                slip.is(Spent::Lost, None);
                self.tab.owe(slip);
                return Err(Error::DeadlineReached { attempts: self.take_attempts() });
            };
            let is_free = lease.tier() == Tier::Free;
            match brought {
                Brought::Answer(answer) => {
                    let took_ms = self.inner.clock.unix_ms().saturating_sub(sent_ms);
                    self.inner.paces.observe(&self.chain[self.at].ask.model, took_ms);
                    self.note(&lease, Some(200), Some(Kind::Served), "");
                    return Ok((answer, Served { lease, pass: Some(pass), slip, limits }));
                }
                Brought::Refused { status, body, refused } => {
                    // Rare, and large: apart from what every call needs.
                    Box::pin(self.refused(lease, pass, slip, status, &body, *refused)).await?;
                }
                Brought::Nothing { sent, status, reason } => {
                    self.note(&lease, status, None, &reason);
                    self.inner.counters.failed();
                    slip.is(outcome::of_nothing(sent, status), None);
                    self.tab.owe(slip);
                    let arrived = sent == Sent::Maybe;
                    // Who was never reached says nothing of the model.
                    pass.tell(if arrived { Outcome::Failed(None) } else { Outcome::Unclear });
                    match sent {
                        Sent::No => give_back(lease).await,
                        Sent::Maybe => lease.failed(&[]),
                    }
                    let of_the_model = arrived;
                    let failure = Failure { reason, hint: None, in_doubt: arrived, of_the_model };
                    Box::pin(self.failed(failure, is_free)).await?;
                }
                Brought::Unreadable { status, reason } => {
                    self.note(&lease, Some(status), None, &reason);
                    self.inner.counters.failed();
                    // It was served, and what it cost cannot be read either.
                    slip.is(Spent::Answered, None);
                    self.tab.owe(slip);
                    pass.tell(Outcome::Unclear);
                    lease.failed(&[]);
                    return Err(Error::Unreadable { reason, attempts: self.take_attempts() });
                }
                Brought::Unsendable(reason) => {
                    slip.is(Spent::NotSent, None);
                    self.tab.owe(slip);
                    pass.tell(Outcome::Unclear);
                    give_back(lease).await;
                    return Err(Error::Setting(reason));
                }
            }
        }
    }

    /// Makes what is sent to ask the current model.
    fn prepare<W: Work>(&mut self, work: &W) -> Result<(), Error> {
        let upstream = &self.inner.upstream;
        let Candidate { model, call, .. } = &mut self.chain[self.at];
        if call.is_none() {
            let made = work.call(upstream, model);
            *call = Some(made.map_err(|fault| Error::Setting(format!("{model}: {fault}")))?);
        }
        Ok(())
    }

    fn count(&mut self, lease: &Lease) {
        let Candidate { model, ask, .. } = &self.chain[self.at];
        self.inner.counters.attempted(model);
        if let Some(recorder) = &self.options.recorder {
            recorder.sent(&ask.model, ask.requests, !self.attempts.is_empty());
        }
        self.span = AttemptSpan::new(lease, model, self.waited_ms);
    }

    /// Sends once and reads what comes, up to the first part of a stream. Also, what limits a success tells of.
    async fn attempt<W: Work>(
        &self,
        work: &W,
        lease: &Lease,
    ) -> (Vec<LimitSeen>, Brought<W::Answer>) {
        let Inner { upstream, clock, .. } = self.inner;
        let Candidate { ask, call, .. } = &self.chain[self.at];
        let call = call.as_ref().expect("it was prepared before a key was leased");
        let response = match upstream.call(lease.key(), call).await {
            Ok(response) => response,
            Err(error) if error.kind == TransportKind::Request => {
                return (Vec::new(), Brought::Unsendable(error.to_string()));
            }
            Err(error) => {
                let (sent, reason) = (error.sent, error.to_string());
                return (Vec::new(), Brought::Nothing { sent, status: None, reason });
            }
        };
        let sight = Sight { lease, ask, upstream, clock: &**clock };
        if (200..300).contains(&response.status) {
            let dialect = upstream.dialect();
            let limits = limits_from_headers(dialect, &response.headers, clock.now());
            return (limits, work.read(&sight, response).await);
        }
        let (status, headers) = (response.status, response.headers.clone());
        // An error that was torn off is still judged by what is there: the status.
        let body = response.bytes(MAX_ERROR).await.unwrap_or_default();
        let body = unzip::whole(&headers, body, MAX_ERROR);
        let brought = match sight.refused(status, &headers, &body) {
            Some(refused) => Brought::Refused { status, body, refused },
            None => {
                let reason = format!("a reply with status {status} and no meaning");
                Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason }
            }
        };
        (Vec::new(), brought)
    }

    /// One line for each call that another model served.
    fn say_who_took_over(&self) {
        if self.at == 0 {
            return;
        }
        self.inner.counters.fell_back(self.model());
        let skipped: Vec<_> = self.skipped().iter().map(Skipped::to_string).collect();
        let (asked, answered) = (&*self.chain[0].model, &**self.model());
        tracing::info!(asked, answered, skipped = skipped.join(", "), "another model took over");
    }

    fn is_late(&self) -> bool {
        self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.inner.clock.unix_ms())
    }

    /// The model that is asked.
    fn model(&self) -> &Arc<str> {
        &self.chain[self.at].model
    }

    fn candidate(&mut self) -> &mut Candidate {
        &mut self.chain[self.at]
    }

    /// The models that did not answer, in the order of the chain. Nothing is told of those that were not asked.
    fn skipped(&self) -> Vec<Skipped> {
        let others = self.chain.iter().enumerate().filter(|(i, _)| *i != self.at);
        let skipped = others.filter_map(|(_, candidate)| candidate.skipped());
        self.passed_over.iter().cloned().chain(skipped).collect()
    }

    /// Binds what is still to be asked to the model that answered, and to the quota project that was charged.
    fn go_on(&mut self, quota_project: Arc<str>) {
        self.passed_over = self.skipped();
        let mut candidate = self.chain.swap_remove(self.at);
        candidate.ask.affinity = Some(quota_project);
        (candidate.call, candidate.miss) = (None, None);
        (self.chain, self.at) = (vec![candidate], 0);
    }

    fn note(&mut self, lease: &Lease, status: Option<u16>, kind: Option<Kind>, message: &str) {
        let what = kind.map_or("none", Kind::as_str);
        self.span.replied(status, what);
        self.attempts.push(Attempt {
            model: self.model().as_ref().to_owned(),
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
            model = &**self.model(),
            status,
            kind = what,
            "attempt"
        );
    }

    fn take_attempts(&mut self) -> Vec<Attempt> {
        std::mem::take(&mut self.attempts)
    }
}

/// Returns what a request that never left took: a refusal without effects.
async fn give_back(lease: Lease) {
    let _nothing_to_wait_for = lease.refused(&Refusal::default()).await;
}
