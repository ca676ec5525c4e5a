//! The models of one call: the one that was asked for, and those that may take over.

use std::{fmt, sync::Arc};

use chrono::{DateTime, Utc};
use keywheel_core::{Cause, clock::from_unix_ms};
use keywheel_pool::{Ask, Exhausted, ExhaustedKind};
use keywheel_provider::upstream::Call;
use serde::Serialize;

use super::{avalanche::Avalanche, breaker::Gate};
use crate::{Error, Rejected};

/// A model of a [fallback chain](crate::GeminiBuilder::fallback) that did not answer, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Skipped {
    /// The model.
    pub model: String,
    /// Why it did not answer.
    pub reason: SkipReason,
    /// When it can be asked again; `None`: now, or no moment can be named.
    pub available_at: Option<DateTime<Utc>>,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.model, self.reason)?;
        if let Some(at) = self.available_at {
            write!(f, " until {}", at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))?;
        }
        f.write_str(")")
    }
}

/// Why a model of a fallback chain did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipReason {
    /// No key could serve it, or none soon enough.
    OutOfQuota,
    /// Every key is out of use, or there is none that the call may use.
    NoKeys,
    /// No quota project has a free quota for it.
    NoFreeTier,
    /// The provider does not have it, or not any more.
    NotFound,
    /// It failed, as often as the call may try.
    Failed,
    /// It has failed so often that nothing is sent to it for a while.
    BreakerOpen,
    /// The request is larger than it can read.
    TooLarge,
    /// The account's budget for it is spent.
    OverBudget,
}

impl SkipReason {
    /// The name in JSON and in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutOfQuota => "out_of_quota",
            Self::NoKeys => "no_keys",
            Self::NoFreeTier => "no_free_tier",
            Self::NotFound => "not_found",
            Self::Failed => "failed",
            Self::BreakerOpen => "breaker_open",
            Self::TooLarge => "too_large",
            Self::OverBudget => "over_budget",
        }
    }

    /// The provider's own failure, and nobody's quota.
    pub(super) const fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::BreakerOpen)
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfQuota => "out of quota",
            Self::NoKeys => "no key for it",
            Self::NoFreeTier => "no free tier",
            Self::NotFound => "not found",
            Self::Failed => "it failed",
            Self::BreakerOpen => "its breaker is open after failures",
            Self::TooLarge => "too small for the request",
            Self::OverBudget => "over the budget for it",
        })
    }
}

/// One model of a call, and how the call stands with it.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) model: Arc<str>,
    /// The bucket that is drawn on: the model's, or a route's.
    pub(super) ask: Ask,
    /// What is sent; made when it is first needed.
    pub(super) call: Option<Call>,
    /// The quota projects that found the request too large for their minute.
    pub(super) oversize: Vec<String>,
    pub(super) avalanche: Avalanche,
    /// The last refusal that holds nothing back: the call's answer if nobody else is left to ask.
    pub(super) riddle: Option<Box<Rejected>>,
    /// Why it did not serve when it was last its turn.
    pub(super) miss: Option<Miss>,
    /// It is not asked again by this call.
    pub(super) is_out: bool,
}

impl Candidate {
    pub(super) fn new(model: Arc<str>, ask: Ask) -> Self {
        Self {
            model,
            ask,
            call: None,
            oversize: Vec::new(),
            avalanche: Avalanche::default(),
            riddle: None,
            miss: None,
            is_out: false,
        }
    }

    /// No key could be had for it.
    pub(super) fn missed(&mut self, exhausted: Exhausted) {
        let nothing_holds = exhausted.kind == ExhaustedKind::Busy && exhausted.soonest.is_none();
        let miss = match &self.riddle {
            // Nothing stands in the way but that this call has asked everybody.
            Some(rejected) if nothing_holds => {
                Miss { reason: SkipReason::OutOfQuota, ending: Ending::Rejected(rejected.clone()) }
            }
            _ => Miss { reason: reason(&exhausted), ending: Ending::Nobody(exhausted) },
        };
        self.miss = Some(miss);
    }

    /// The breaker keeps it from being asked.
    pub(super) fn breaker_open(&mut self, gate: Gate) {
        let next_attempt_at = match gate {
            Gate::ShutUntil(at_ms) => Some(from_unix_ms(at_ms)),
            Gate::Open | Gate::Probing => None,
        };
        let reason = format!("{} failed again and again, so it is left alone for now", self.model);
        let ending = Ending::Down { reason, next_attempt_at };
        self.miss = Some(Miss { reason: SkipReason::BreakerOpen, ending });
    }

    pub(super) fn is_failing(&self) -> bool {
        self.miss.as_ref().is_some_and(|miss| miss.reason.is_failure())
    }

    pub(super) fn skipped(&self) -> Option<Skipped> {
        let miss = self.miss.as_ref()?;
        let (model, reason) = (self.model.as_ref().to_owned(), miss.reason);
        Some(Skipped { model, reason, available_at: miss.ending.at() })
    }
}

/// Why a model did not serve.
#[derive(Debug)]
pub(super) struct Miss {
    pub(super) reason: SkipReason,
    pub(super) ending: Ending,
}

/// What the call would end with, were this model the only one.
#[derive(Debug)]
pub(super) enum Ending {
    Nobody(Exhausted),
    Rejected(Box<Rejected>),
    Down {
        reason: String,
        next_attempt_at: Option<DateTime<Utc>>,
    },
    TooLarge {
        estimated: u64,
        limit: u64,
    },
    #[cfg(feature = "ledger")]
    OverBudget(Box<keywheel_ledger::Denied>),
}

impl Ending {
    /// When the model can be asked again, if there is a moment to wait for.
    fn at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Nobody(exhausted) => exhausted.soonest,
            Self::Down { next_attempt_at, .. } => *next_attempt_at,
            #[cfg(feature = "ledger")]
            Self::OverBudget(denied) => denied.retry_at,
            Self::Rejected(_) | Self::TooLarge { .. } => None,
        }
    }

    /// The same for a comparison: what can be asked now comes first, and what never can comes last.
    fn order(&self) -> DateTime<Utc> {
        match self {
            Self::Down { next_attempt_at: None, .. } => DateTime::<Utc>::MIN_UTC,
            ending => ending.at().unwrap_or(DateTime::<Utc>::MAX_UTC),
        }
    }
}

/// What a call ends with when none of its models serves: the model's that can be asked again first. For models that
/// nothing is known of, the one that was asked for.
pub(super) fn end(chain: &mut [Candidate], attempts: Vec<crate::Attempt>) -> Error {
    let skipped = match &*chain {
        [_] => Vec::new(),
        several => several.iter().filter_map(Candidate::skipped).collect(),
    };
    let missed = chain.iter_mut().filter_map(|candidate| candidate.miss.take());
    let first = missed.map(|miss| miss.ending).min_by_key(Ending::order);
    match first {
        None => Error::DeadlineReached { attempts },
        Some(Ending::Rejected(rejected)) => Error::Rejected { rejected, attempts, skipped },
        Some(Ending::Down { reason, next_attempt_at }) => {
            Error::UpstreamDown { reason, next_attempt_at, attempts, skipped }
        }
        Some(Ending::TooLarge { estimated, limit }) => {
            Error::TooLarge { estimated, limit, skipped }
        }
        #[cfg(feature = "ledger")]
        Some(Ending::OverBudget(denied)) => Error::OverBudget { denied, attempts, skipped },
        Some(Ending::Nobody(exhausted)) => {
            let exhausted = Box::new(exhausted);
            match exhausted.kind {
                ExhaustedKind::NoKeys => Error::NoKeys { exhausted, attempts, skipped },
                ExhaustedKind::AllDead => Error::AllKeysDead { exhausted, attempts, skipped },
                ExhaustedKind::Cooling | ExhaustedKind::Busy => {
                    Error::Exhausted { exhausted, attempts, skipped }
                }
            }
        }
    }
}

fn reason(exhausted: &Exhausted) -> SkipReason {
    let all = |cause| {
        let of_that_cause = |reason: &keywheel_pool::Reason| reason.cause == Some(cause);
        !exhausted.reasons.is_empty() && exhausted.reasons.iter().all(of_that_cause)
    };
    match exhausted.kind {
        ExhaustedKind::NoKeys | ExhaustedKind::AllDead => SkipReason::NoKeys,
        _ if all(Cause::FreeTierNotAvailable) => SkipReason::NoFreeTier,
        _ if all(Cause::ModelNotFound) => SkipReason::NotFound,
        ExhaustedKind::Cooling | ExhaustedKind::Busy => SkipReason::OutOfQuota,
    }
}
