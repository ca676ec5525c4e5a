//! What follows from an attempt that was not served.

use std::time::Duration;

use bytes::Bytes;
use keywheel_core::{Cause, Dimension, LimitSeen, Tier, clock::from_unix_ms, scrub::scrub};
use keywheel_pool::{CheckResult, Lease};

use super::{
    Run,
    breaker::{Gate, Outcome, Pass},
    chain::{self, Candidate, Ending, Miss, SkipReason},
    judge::Refused,
    outcome::{Next, PoolOutcome, decide},
};
use crate::{
    Attempt, Error, Rejected, WaitReason,
    charging::Slip,
    checks::check,
    time::{from_now_ms, sleep, until},
};

/// So many keys may find no room in their minute for a request that is, by our estimate, over the limit of each.
/// Then it is the request.
const OVERSIZE_REFUSALS: usize = 3;

/// A failure that is nobody's quota.
pub(super) struct Failure {
    pub(super) reason: String,
    /// How long the provider asked to wait.
    pub(super) hint: Option<Duration>,
    /// What was asked for may have been done.
    pub(super) in_doubt: bool,
    /// It follows the model; else nobody was reached, and no other model would be.
    pub(super) of_the_model: bool,
}

impl Run<'_> {
    /// Reports a refusal to the pool and does what follows from it. `Ok` means: go on.
    pub(super) async fn refused(
        &mut self,
        lease: Lease,
        pass: Pass,
        mut slip: Slip,
        status: u16,
        body: &Bytes,
        refused: Refused,
    ) -> Result<(), Error> {
        let (told, spent, mut next) = decide(&refused);
        slip.is(spent, None);
        self.tab.owe(slip);
        let Refused { mut cause, verdict, headers } = refused;
        self.note(&lease, Some(status), Some(verdict.kind), &verdict.message);
        self.inner.counters.refused(cause);
        pass.tell(match next {
            Next::Retry { hint } => Outcome::Failed(hint),
            Next::OtherKey | Next::HandBack => Outcome::Unclear,
        });
        if cause == Cause::PerMinuteTokens && self.is_over_the_limit(&verdict.limits) {
            let oversize = &mut self.chain[self.at].oversize;
            oversize.push(lease.quota_project().to_owned());
            if oversize.len() >= OVERSIZE_REFUSALS {
                (cause, next) = (Cause::RequestTooLarge, Next::HandBack);
            }
        }
        if self.asks_for_more_requests(cause, &verdict.limits) {
            // No wait makes room for it; whoever made it of several requests can make it of fewer.
            (cause, next) = (Cause::RequestTooLarge, Next::HandBack);
        }
        let (key, quota_project) = (lease.key().clone(), lease.quota_project().to_owned());
        let is_free = lease.tier() == Tier::Free;
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
        let avalanche = &mut self.candidate().avalanche;
        if avalanche.met(&key, quota_project, status, &verdict) && self.was_the_request(cause).await
        {
            next = Next::HandBack;
        }
        let rejected = || {
            let body = scrub(&String::from_utf8_lossy(body), &[&key]).into_owned();
            Box::new(Rejected { status, cause, verdict, headers, body })
        };
        match next {
            Next::OtherKey if held => Ok(()),
            Next::OtherKey => {
                let riddle = rejected();
                let candidate = self.candidate();
                candidate.ask.exclude.push(key.fingerprint());
                candidate.riddle = Some(riddle);
                Ok(())
            }
            Next::Retry { hint } => {
                let reason = format!("{cause} (HTTP {status})");
                // An overloaded model has not begun.
                let in_doubt = cause != Cause::Overloaded;
                let failure = Failure { reason, hint, in_doubt, of_the_model: true };
                self.failed(failure, is_free).await
            }
            Next::HandBack => {
                for quota_project in std::mem::take(&mut self.candidate().oversize) {
                    // It was the request: others may have the minute that it was refused.
                    self.withdraw(&quota_project, Cause::PerMinuteTokens).await;
                }
                let rejected = rejected();
                let reason = match cause {
                    Cause::ModelNotFound => SkipReason::NotFound,
                    Cause::RequestTooLarge => SkipReason::TooLarge,
                    _ => return Err(self.handed_back(rejected)),
                };
                self.leave(reason, Ending::Rejected(rejected))
            }
        }
    }

    /// A failure of the provider or on the way to it: pauses before a retry, leaves the model, or gives up.
    /// `by_free`: a free key met it.
    pub(super) async fn failed(&mut self, failure: Failure, by_free: bool) -> Result<(), Error> {
        let Failure { reason, hint, in_doubt, of_the_model } = failure;
        self.met_failure |= by_free;
        self.pays |= !by_free;
        let clock = &*self.inner.clock;
        let now_ms = clock.unix_ms();
        let gate = self.inner.breakers.gate(&self.chain[self.at].ask.model, now_ms);
        let next_attempt_at = match gate {
            Gate::ShutUntil(at_ms) => Some(from_unix_ms(at_ms)),
            Gate::Open | Gate::Probing => None,
        };
        let base_url = self.inner.upstream.base_url();
        let down = |why: &str| Ending::Down {
            reason: format!("{reason}{why}, at {base_url}"),
            next_attempt_at,
        };
        if in_doubt && !self.repeatable {
            return self.leave(SkipReason::Failed, down(""));
        }
        let others = of_the_model && self.chain.iter().filter(|other| !other.is_out).count() > 1;
        if others && gate != Gate::Open && self.plan.pause(None).is_some() {
            // The next look at the chain passes it over: no pause is needed.
            return Ok(());
        }
        if others && hint.is_some_and(|hint| hint > self.inner.defaults.fallback_after) {
            return self.leave(SkipReason::Failed, down(""));
        }
        let in_time = |pause: &Duration| {
            let resumes_ms = from_now_ms(clock, *pause);
            self.deadline_ms.is_none_or(|deadline_ms| resumes_ms < deadline_ms)
        };
        let pause = self.plan.pause(hint).filter(in_time);
        let why = match pause {
            Some(_) if self.inner.budget.take(now_ms) => "",
            Some(_) => " (not tried again: too many calls fail, the retry budget is spent)",
            None => "",
        };
        let (Some(pause), "") = (pause, why) else {
            let ending = down(why);
            if !of_the_model {
                return Err(self.end_with(SkipReason::Failed, ending));
            }
            return self.leave(SkipReason::Failed, ending);
        };
        self.inner.counters.retried();
        // Nothing stays reserved while it rests.
        self.settle().await;
        if let Some(on_wait) = &self.inner.on_wait {
            let until = from_unix_ms(from_now_ms(clock, pause));
            on_wait.say(&self.chain[self.at].model, until, WaitReason::Retry);
        }
        sleep(clock, pause).await;
        self.inner.counters.waited(u64::try_from(pause.as_millis()).unwrap_or(0));
        Ok(())
    }

    /// Asks the current model no more. The next one takes over, if there is one.
    pub(super) fn leave(&mut self, reason: SkipReason, ending: Ending) -> Result<(), Error> {
        let candidate = self.candidate();
        (candidate.miss, candidate.is_out) = (Some(Miss { reason, ending }), true);
        if self.chain.iter().all(|candidate| candidate.is_out) {
            let attempts = self.take_attempts();
            return Err(chain::end(&mut self.chain, attempts));
        }
        Ok(())
    }

    /// Ends the call for a reason that is every model's.
    fn end_with(&mut self, reason: SkipReason, ending: Ending) -> Error {
        let attempts = self.take_attempts();
        self.candidate().miss = Some(Miss { reason, ending });
        let at = self.at;
        chain::end(&mut self.chain[at..=at], attempts)
    }

    fn handed_back(&mut self, rejected: Box<Rejected>) -> Error {
        let skipped = self.skipped();
        Error::Rejected { rejected, attempts: self.take_attempts(), skipped }
    }

    /// Whether three quota projects gave the same answer because of the request. If so, takes back what they were
    /// held back for.
    ///
    /// What a key is dead for is asked of the provider, by the free check, before it is believed: three keys may
    /// be dead. Of a quota it tells nothing.
    async fn was_the_request(&mut self, cause: Cause) -> bool {
        let pool = &self.inner.pool;
        let blamed = self.chain[self.at].avalanche.blamed().to_vec();
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
            model = &*self.chain[self.at].model,
            cause = cause.as_str(),
            "several quota projects gave the same answer, so it is the request's: they stay in use"
        );
        true
    }

    /// Takes back what a quota project was held back for by this call.
    async fn withdraw(&mut self, quota_project: &str, cause: Cause) {
        let Candidate { model, ask, .. } = &self.chain[self.at];
        self.inner.pool.withdraw(quota_project, &ask.model, cause).await;
        for attempt in &mut self.attempts {
            if attempt.quota_project == quota_project && *attempt.model == **model {
                attempt.available_at = None;
            }
        }
    }

    fn is_over_the_limit(&self, limits: &[LimitSeen]) -> bool {
        let tokens = self.chain[self.at].ask.tokens;
        limits.iter().any(|seen| seen.dimension == Dimension::Tpm && seen.value < tokens)
    }

    /// True for a call of several requests that has more of them than the quota that refused it allows at all.
    fn asks_for_more_requests(&self, cause: Cause, limits: &[LimitSeen]) -> bool {
        let dimension = match cause {
            Cause::PerMinuteRequests => Dimension::Rpm,
            Cause::PerDayRequests => Dimension::Rpd,
            _ => return false,
        };
        let asked = u64::from(self.chain[self.at].ask.requests);
        asked > 1 && limits.iter().any(|seen| seen.dimension == dimension && seen.value < asked)
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
