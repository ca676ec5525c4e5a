//! A refusal that comes when the reply has been handed out: nobody can take over any more.

use futures_util::future::BoxFuture;
use keywheel_core::Usage;
use keywheel_pool::{Lease, Reported};

use super::{
    breaker::{Outcome, Pass},
    judge::Refused,
    outcome::{Next, PoolOutcome, decide},
};
use crate::{
    Error,
    charging::{Slip, Spent},
};

/// Tells the pool, the breaker and the slip. What is returned is what the pool puts on record, to be awaited before the
/// error is handed out; and the error.
///
/// `pass` is there until an answer has begun: after that it was refused too late to cost nothing.
pub(super) fn refused_late(
    lease: Lease,
    pass: Option<Pass>,
    slip: &mut Slip,
    refused: Refused,
    usage: Option<Usage>,
) -> (Option<BoxFuture<'static, Reported>>, Error) {
    let (told, spent, next) = decide(&refused);
    slip.is(if pass.is_some() { spent } else { Spent::CutShort }, usage);
    if let Some(pass) = pass {
        pass.tell(match next {
            Next::Retry { hint } => Outcome::Failed(hint),
            Next::OtherKey | Next::HandBack => Outcome::Unclear,
        });
    }
    let verdict = Box::new(refused.verdict);
    let reason = format!("{} ({})", refused.cause, verdict.message);
    let report: Option<BoxFuture<'static, Reported>> = match told {
        PoolOutcome::Refused(refusal) => Some(Box::pin(lease.refused(&refusal))),
        PoolOutcome::Failed => {
            lease.failed(&verdict.effects);
            None
        }
    };
    (report, Error::StreamBroken { reason, verdict: Some(verdict) })
}
