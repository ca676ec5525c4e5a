//! What a client is told of each way in which a call can end without an answer.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode};
use keywheel::{
    Error, Rejected,
    ledger::{Denied, Scope},
};

use super::{AsItCame, Reason, Refusal};

/// A pause that a client's own retries may well span.
const SOON: Duration = Duration::from_secs(60);

/// What is told where nobody knows how long it takes.
const A_WHILE: Duration = Duration::from_secs(30);

impl Refusal {
    /// For `error`, with which a call for `project` ended at `now`.
    #[must_use]
    pub fn of(error: &Error, project: &str, now: DateTime<Utc>) -> Self {
        let told = error.to_string();
        match error {
            Error::Rejected { rejected, .. } => Self::handed_back(rejected),
            Error::OverBudget { denied, .. } => Self::denied(denied, project, now),
            Error::Exhausted { exhausted, .. } => {
                let refusal = Self::new(Reason::Exhausted, told).scope("pool");
                match exhausted.soonest {
                    Some(soonest) => {
                        let soon = (soonest - now).to_std().unwrap_or_default() <= SOON;
                        refusal.reset_at(Some(soonest)).should_retry(soon)
                    }
                    None => refusal.should_retry(false),
                }
            }
            Error::NoKeys { .. } | Error::Keys(_) => {
                Self::new(Reason::NoKeys, told).scope("pool").should_retry(false)
            }
            Error::AllKeysDead { exhausted, .. } => Self::new(Reason::AllKeysDead, told)
                .scope("pool")
                .reset_at(exhausted.soonest)
                .should_retry(false),
            Error::Ledger { .. } => {
                Self::new(Reason::LedgerDown, told).scope("gateway").retry_after(A_WHILE)
            }
            Error::TooLarge { .. } => Self::new(Reason::TooLarge, told).should_retry(false),
            Error::MixedOwners { .. } => Self::new(Reason::MixedOwners, told).should_retry(false),
            Error::FileFailed { .. } => Self::new(Reason::Rejected, told).should_retry(false),
            Error::UpstreamDown { next_attempt_at, .. } => {
                let refusal = Self::new(Reason::UpstreamDown, told).scope("provider");
                // It was tried several times already, and whoever tries again tries as often.
                match next_attempt_at {
                    Some(moment) => refusal.reset_at(Some(*moment)),
                    None => refusal.retry_after(Duration::from_secs(5)),
                }
            }
            Error::DeadlineReached { .. } => {
                Self::new(Reason::DeadlineReached, told).scope("gateway")
            }
            Error::StreamBroken { .. } | Error::WrongShape { .. } | Error::Unreadable { .. } => {
                Self::new(Reason::BadAnswer, told).scope("provider")
            }
            Error::Incomplete { source, .. } => Self::of(source, project, now),
            Error::Setting(_) => Self::new(Reason::BadPath, told).should_retry(false),
            _ => Self::new(Reason::Internal, "the gateway is at fault; its log says how")
                .scope("gateway"),
        }
    }

    /// For a limit of the ledger's that has no room.
    #[must_use]
    pub fn denied(denied: &Denied, project: &str, now: DateTime<Utc>) -> Self {
        let scope = match &denied.scope {
            Scope::Whole => "allowance".to_owned(),
            _ => format!("project {project}"),
        };
        if denied.never_fits() {
            return Self::new(Reason::NeverFits, denied.to_string())
                .scope(scope)
                .should_retry(false);
        }
        let refusal = Self::new(Reason::OverBudget, denied.to_string())
            .scope(scope)
            .reset_at(denied.retry_at);
        let soon = denied.may_fit_once_others_settle()
            || denied.retry_at.is_some_and(|at| (at - now).to_std().unwrap_or_default() <= SOON);
        refusal.should_retry(soon)
    }

    fn handed_back(rejected: &Rejected) -> Self {
        let mut refusal = Self::new(Reason::Rejected, rejected.to_string()).scope("provider");
        if let Ok(status) = StatusCode::from_u16(rejected.status) {
            refusal.status = status;
        }
        refusal.as_it_came = Some(Box::new(AsItCame {
            headers: HeaderMap::new(),
            body: Bytes::from(rejected.body.clone()),
        }));
        refusal
    }
}
