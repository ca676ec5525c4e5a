//! Why a request was not let through, and what its client is told.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::HeaderMap;
use keywheel::{
    Error, ExhaustedKind,
    ledger::{LimitStanding, Sum},
};

use super::{
    MinuteStanding,
    line::{Limit, Met},
};
use crate::{
    budget,
    refusal::{Reason, Refusal},
};

/// Why a request was not let through.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The project made as many requests in the last minute as it may.
    PerMinute { cap: u32, reset_ms: i64 },
    /// So many of the project wait already.
    QueueFull { depth: usize, met: Option<Met> },
    /// It waited for one of its project to end, until its time was over.
    InFlight { waited: Duration },
    /// It waited behind others until its time was over. What they wait for, if that is known.
    Behind { met: Option<Met>, waited: Duration },
    /// The gateway stops.
    Stopping,
    /// What the last attempt ended with: a limit that nothing mends in time, or no limit at all.
    Ended(Error),
}

impl Refused {
    /// Says in a refusal's headers which limit it met.
    pub(crate) fn mark(&self, headers: &mut HeaderMap, now: DateTime<Utc>) {
        match self {
            Self::PerMinute { cap, reset_ms } => {
                let minute = MinuteStanding { cap: *cap, used: *cap, reset_ms: *reset_ms };
                budget::mark(headers, None, Some(minute), now);
            }
            Self::Ended(Error::OverBudget { denied, .. }) => {
                let standing = LimitStanding {
                    scope: denied.scope.clone(),
                    limit: denied.limit.clone(),
                    sum: Sum { settled: denied.settled, reserved: denied.reserved, pruned: 0 },
                    begins_anew: denied.retry_at,
                };
                budget::mark(headers, Some(&standing), None, now);
            }
            _ => {}
        }
    }

    /// What a client of `project` is told at `now`.
    pub(crate) fn refusal(&self, project: &str, now: DateTime<Utc>) -> Refusal {
        let scope = format!("project {project}");
        match self {
            Self::PerMinute { cap, reset_ms } => {
                let told = format!("project {project} may make {cap} requests a minute");
                Refusal::new(Reason::RequestsPerMinute, told)
                    .scope(scope)
                    .reset_at(DateTime::from_timestamp_millis(*reset_ms))
            }
            Self::QueueFull { depth, met } => {
                let told = format!("{depth} requests of project {project} wait already");
                let refusal = Refusal::new(Reason::QueueFull, told).scope(scope);
                soonest(refusal, *met)
            }
            Self::InFlight { waited } => {
                let told = format!(
                    "as many requests of project {project} are under way as may be, and none ended \
                     within {} s",
                    waited.as_secs()
                );
                let refusal = Refusal::new(Reason::InFlight, told).scope(scope);
                refusal.retry_after(A_WHILE)
            }
            Self::Behind { met, waited } => {
                let seconds = waited.as_secs();
                let (reason, scope, what) = match met.map(|met| met.limit) {
                    Some(Limit::Own) => (Reason::OverBudget, scope, "its budget has no room"),
                    Some(Limit::Allowance) => {
                        (Reason::OverBudget, "allowance".to_owned(), "the allowance has no room")
                    }
                    Some(Limit::Keys) => (Reason::Exhausted, "pool".to_owned(), "no key is free"),
                    None => (Reason::QueueFull, scope, "others go first"),
                };
                let told = format!(
                    "the request waited {seconds} s behind others of project {project}: {what}"
                );
                let refusal = soonest(Refusal::new(reason, told).scope(scope), *met);
                if reason == Reason::OverBudget { refusal.should_retry(false) } else { refusal }
            }
            Self::Stopping => Refusal::new(Reason::Stopping, "the gateway stops")
                .scope("gateway")
                .retry_after(A_WHILE),
            Self::Ended(error) => {
                let refusal = Refusal::of(error, project, now);
                match error {
                    // Nothing but answers under way stood in its way, and they come to an end.
                    Error::Exhausted { exhausted, .. }
                        if exhausted.kind == ExhaustedKind::Busy && exhausted.soonest.is_none() =>
                    {
                        Refusal { should_retry: None, ..refusal }
                    }
                    _ => refusal,
                }
            }
        }
    }
}

/// What is told where nobody knows how long it takes.
const A_WHILE: Duration = Duration::from_secs(5);

/// With the moment that the limit named.
fn soonest(refusal: Refusal, met: Option<Met>) -> Refusal {
    match met.and_then(|met| met.until_ms).and_then(DateTime::from_timestamp_millis) {
        Some(moment) => refusal.reset_at(Some(moment)),
        None => refusal.retry_after(A_WHILE),
    }
}

#[cfg(test)]
mod tests;
