//! What the budget says before an attempt is sent, and what it is told after.

use std::{pin::pin, sync::Arc};

use futures_util::{FutureExt as _, future::join};
use keywheel_pool::Lease;

use super::{Run, breaker::Pass, chain::Candidate, work::Work};
use crate::{
    Error,
    charging::{Refusal, Slip},
    time::until,
};

impl Run<'_> {
    /// A key for the next attempt. What is owed for the last one is settled together with its reservation; or now, if
    /// the key is not to be had at once: nothing stays reserved while a call waits.
    pub(super) async fn lease_and_settle(&mut self) -> Result<(Lease, Pass), Error> {
        match self.tab.take_owed() {
            None => self.lease().await,
            // Rare, and large: apart from what every call needs.
            Some(owed) => Box::pin(self.lease_while_settling(owed)).await,
        }
    }

    async fn lease_while_settling(&mut self, owed: Slip) -> Result<(Lease, Pass), Error> {
        let (leased, owed) = {
            let mut leasing = pin!(self.lease());
            match leasing.as_mut().now_or_never() {
                Some(leased) => (leased, Some(owed)),
                None => (join(leasing, owed.settle()).await.0, None),
            }
        };
        if let Some(owed) = owed {
            self.tab.owe(owed);
        }
        leased
    }

    /// Reserves what an attempt may cost. `None`: the budget for this model is spent, and another may take over.
    ///
    /// # Errors
    /// What ends the call: the budget for all models is spent, the ledger fails, the deadline comes.
    pub(super) async fn reserve<W: Work>(
        &mut self,
        work: &W,
        lease: &Lease,
    ) -> Result<Option<Slip>, Error> {
        let Candidate { model, ask, .. } = &self.chain[self.at];
        let (model, bill) = (Arc::clone(model), work.bill(ask));
        let facts = self.inner.facts.of(&model);
        let reserved = {
            let reserving = pin!(self.tab.reserve(&model, lease.fingerprint(), bill, facts));
            until(&*self.inner.clock, self.deadline_ms, reserving).await
        };
        match reserved {
            Some(Ok(slip)) => Ok(Some(slip)),
            Some(Err(refusal)) => self.not_let_through(refusal).map(|()| None),
            None => Err(Error::DeadlineReached { attempts: self.take_attempts() }),
        }
    }

    /// Settles what is owed without reserving anything.
    pub(super) async fn settle(&mut self) {
        if let Some(owed) = self.tab.take_owed() {
            owed.settle().await;
        }
    }

    /// A limit on one model leaves the others of the chain; one on all of them ends the call.
    #[cfg(feature = "ledger")]
    fn not_let_through(&mut self, refusal: Refusal) -> Result<(), Error> {
        use super::{SkipReason, chain::Ending};
        match refusal {
            Refusal::OverBudget(denied) if denied.limit.model.is_some() => {
                self.leave(SkipReason::OverBudget, Ending::OverBudget(denied))
            }
            Refusal::OverBudget(denied) => {
                let skipped = self.skipped();
                Err(Error::OverBudget { denied, attempts: self.take_attempts(), skipped })
            }
            Refusal::Failed(source) => {
                Err(Error::Ledger { source, attempts: self.take_attempts() })
            }
        }
    }

    #[cfg(not(feature = "ledger"))]
    fn not_let_through(&mut self, refusal: Refusal) -> Result<(), Error> {
        match refusal {}
    }
}
