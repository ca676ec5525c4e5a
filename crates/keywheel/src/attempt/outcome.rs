//! The one place where classifier, pool and ledger meet: from a verdict to what the pool is told, what the ledger
//! charges, and what happens next.
//!
//! A table, deliberately exhaustive: a new [`Cause`] does not compile until somebody has decided here.

use std::time::Duration;

use keywheel_core::{Cause, Scope, Wait};
use keywheel_pool::Refusal;
use keywheel_provider::{Sent, classify::Verdict};

use super::judge::Refused;
use crate::charging::Spent;

/// What the pool is told of an attempt that was not served.
#[derive(Debug)]
pub(crate) enum PoolOutcome {
    /// It was refused: given back, and the effects take hold.
    Refused(Refusal),
    /// It failed without a refusal: it counts, and no key is blamed.
    Failed,
}

/// What the call does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another key, at once. Costs no retry.
    OtherKey,
    /// The same again after a pause, if retries are left.
    Retry {
        /// How long the provider asked to wait.
        hint: Option<Duration>,
    },
    /// Hand the reply back: nobody else would answer otherwise.
    HandBack,
}

/// What follows from a reply that is no answer.
pub(crate) fn decide(refused: &Refused) -> (PoolOutcome, Spent, Next) {
    let verdict = &refused.verdict;
    match refused.cause {
        // The key, its project or its quota: somebody else can serve.
        Cause::InvalidKey
        | Cause::ExpiredKey
        | Cause::LeakedOrSuspendedKey
        | Cause::PermissionOrServiceDisabled
        | Cause::Billing
        | Cause::FreeTierNotAvailable
        | Cause::ToolQuota
        | Cause::PerDayRequests
        | Cause::PerDayTokens
        | Cause::PerMinuteTokens
        | Cause::PerMinuteRequests
        | Cause::UnspecifiedQuota => {
            (PoolOutcome::Refused(refusal(verdict)), Spent::Refused, Next::OtherKey)
        }
        // Every key suffers the same, and the pool knows it: the next lease comes when the block ends.
        Cause::IpBlock => (PoolOutcome::Refused(refusal(verdict)), Spent::Refused, Next::OtherKey),
        // Bound to the project's country: dead for us, fine elsewhere. Bound to our address: nobody's key.
        Cause::LocationUnsupported if verdict.key_is_dead => {
            (PoolOutcome::Refused(refusal(verdict)), Spent::Refused, Next::OtherKey)
        }
        // "No longer available to new users" is said per quota project: another one may still have the model.
        Cause::ModelNotFound if concerns(verdict, Scope::Bucket) => {
            (PoolOutcome::Refused(refusal(verdict)), Spent::Refused, Next::OtherKey)
        }
        Cause::LocationUnsupported
        | Cause::CredentialFault
        | Cause::ModelNotFound
        | Cause::RequestTooLarge
        | Cause::BadRequest => (PoolOutcome::Failed, Spent::Refused, Next::HandBack),
        Cause::Overloaded | Cause::ServerError | Cause::Deadline | Cause::Cancelled => {
            (PoolOutcome::Failed, Spent::ServerError, Next::Retry { hint: stated_wait(verdict) })
        }
    }
}

/// What an attempt is charged that brought neither an answer nor a verdict.
pub(crate) const fn of_nothing(sent: Sent, status: Option<u16>) -> Spent {
    match (sent, status) {
        (Sent::No, _) => Spent::NotSent,
        (Sent::Maybe, None) => Spent::Lost,
        // It began, or ended without a word of what it used.
        (Sent::Maybe, Some(200..=299)) => Spent::CutShort,
        (Sent::Maybe, Some(500..=599)) => Spent::ServerError,
        (Sent::Maybe, Some(_)) => Spent::Refused,
    }
}

/// What a pool is told of a refusal: for a [`Pool`](crate::Pool) under another HTTP client, with
/// [`classify`](keywheel_provider::classify()) as the reader of replies.
///
/// The detail is what the provider said and what the key's owner can do about it.
///
/// ```
/// use keywheel::{Lease, Verdict, refusal};
///
/// /// A reply was read; true if its effects are on disk.
/// async fn refused(lease: Lease, verdict: &Verdict) -> bool {
///     lease.refused(&refusal(verdict)).await.persisted
/// }
/// ```
#[must_use]
pub fn refusal(verdict: &Verdict) -> Refusal {
    let detail = match verdict.fix {
        Some(fix) if verdict.message.is_empty() => fix.to_owned(),
        Some(fix) => format!("{fix}; the provider said: {}", verdict.message),
        None => verdict.message.clone(),
    };
    Refusal {
        effects: verdict.effects.clone(),
        limits: verdict.limits.clone(),
        named_quota: verdict.named_quota,
        project_number: verdict.project_number.clone(),
        detail,
    }
}

fn concerns(verdict: &Verdict, scope: Scope) -> bool {
    verdict.effects.iter().any(|effect| effect.scope == scope)
}

fn stated_wait(verdict: &Verdict) -> Option<Duration> {
    verdict.effects.iter().find_map(|effect| match effect.wait {
        Wait::Stated(wait) => Some(wait),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
