//! One attempt that is reserved, and what becomes of the reservation.

use std::{future::Future, pin::pin, sync::Arc};

use futures_util::future::{BoxFuture, Either, select};
use keywheel_core::{Clock, Usage};
use keywheel_ledger::{Actual, Hold, Ledger, LimitStanding, Outcome, RowId, Unit};

use super::{Spent, tab::CallTag};
use crate::time::sleep;

/// So often the ledger is told of a long attempt before the sweep would end it: one time may fail.
const RENEWALS: u32 = 3;

/// The reservation of one attempt. Always says what it would be charged if it were dropped now, and is then.
#[derive(Debug)]
pub(crate) struct Slip {
    held: Option<Held>,
    charge: Actual,
}

/// A hold, and where it is from.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) hold: Hold,
    pub(super) ledger: Ledger,
    pub(super) call: Arc<CallTag>,
}

impl Slip {
    /// Of an attempt that costs nothing.
    pub(crate) fn none() -> Self {
        Self { held: None, charge: Actual::released() }
    }

    pub(super) fn new(held: Held) -> Self {
        Self { held: Some(held), charge: Actual::released() }
    }

    /// It is about to be sent: whoever drops it now may have spent the estimate.
    pub(crate) fn sent(&mut self) {
        self.is(Spent::CutShort, None);
    }

    /// What became of it, as far as it is known, and what was used so far.
    pub(crate) fn is(&mut self, spent: Spent, usage: Option<Usage>) {
        self.charge = Actual::from(match spent {
            Spent::NotSent => Outcome::NotSent,
            Spent::Refused => Outcome::Refused,
            Spent::ServerError => Outcome::ServerError,
            Spent::Lost => Outcome::Lost,
            Spent::Answered => Outcome::Answered,
            Spent::CutShort => Outcome::CutShort,
        })
        .usage(usage);
    }

    /// Charges what it is. A failure is logged: what was done is done, and the sweep charges the estimate.
    ///
    /// Dropped at its await, it is settled all the same.
    pub(crate) async fn settle(self) {
        let Some((Held { hold, ledger, call }, charge)) = self.into_parts() else { return };
        let guard = Guard::new(ledger, hold.id(), charge.clone());
        let settled = hold.settle(charge).await;
        guard.done();
        match settled {
            Ok(settled) if settled.charged.calls == 0 && settled.reserved.calls > 0 => {
                call.give_back();
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "an attempt could not be settled; the sweep charges its estimate");
            }
        }
    }

    /// The tightest of the limits that apply. Tokens of this attempt are in it as far as they are known to be `used`:
    /// its estimate would make a short answer look like a spent budget.
    pub(crate) fn standing(&self, used: Option<Usage>) -> Option<LimitStanding> {
        let Held { hold, .. } = self.held.as_ref()?;
        let mut standing = hold.standing()?.clone();
        if standing.limit.unit == Unit::Tokens {
            let sum = &mut standing.sum;
            sum.reserved = sum.reserved.saturating_sub(hold.reserved().tokens);
            sum.settled = sum.settled.saturating_add(used.map_or(0, |used| used.charged()));
        }
        Some(standing)
    }

    /// `future`, with the ledger told now and then that it is under way.
    pub(crate) async fn during<F: Future>(&self, clock: &Arc<dyn Clock>, future: F) -> F::Output {
        let Some(renewing) = self.renewing(clock) else { return future.await };
        match select(pin!(future), renewing).await {
            Either::Left((output, _)) => output,
            Either::Right((never, _)) => match never {},
        }
    }

    /// Tells the ledger now and then that the attempt is under way, without end; `None` if nobody has to be told.
    pub(crate) fn renewing(
        &self,
        clock: &Arc<dyn Clock>,
    ) -> Option<BoxFuture<'static, std::convert::Infallible>> {
        let Held { hold, ledger, .. } = self.held.as_ref()?;
        let (id, ledger, clock) = (hold.id(), ledger.clone(), Arc::clone(clock));
        let every = ledger.sweep_after() / RENEWALS;
        Some(Box::pin(async move {
            loop {
                sleep(&*clock, every).await;
                if let Err(error) = ledger.renew(id).await {
                    tracing::debug!(%error, "the ledger could not be told of a long attempt");
                }
            }
        }))
    }

    pub(super) fn into_parts(mut self) -> Option<(Held, Actual)> {
        let held = self.held.take()?;
        Some((held, self.charge.clone()))
    }
}

impl Drop for Slip {
    fn drop(&mut self) {
        if let Some(Held { hold, .. }) = self.held.take() {
            hold.settle_detached(self.charge.clone());
        }
    }
}

/// Settles a row when it is dropped, for a settlement that its caller may not see to the end. Twice at the same figure
/// is once.
pub(super) struct Guard(Option<(Ledger, RowId, Actual)>);

impl Guard {
    pub(super) const fn new(ledger: Ledger, id: RowId, charge: Actual) -> Self {
        Self(Some((ledger, id, charge)))
    }

    /// The settlement was seen to its end.
    pub(super) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((ledger, id, charge)) = self.0.take() {
            ledger.settle_detached(id, charge);
        }
    }
}
