//! The ledger of a client, and what one call has to do with it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use keywheel_core::Fingerprint;
use keywheel_ledger::{
    Actual, Ask, Denied, ErrorKind, Estimate, Hold, Ledger, LedgerError, Reserved, TurnedOver,
};

use super::{
    Bill, Slip,
    bill::LONGEST_OUTPUT,
    slip::{Guard, Held},
};
use crate::attempt::ModelFacts;

/// The ledger that a client charges its calls to, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Purse(Option<Arc<Joined>>);

#[derive(Debug)]
struct Joined {
    ledger: Ledger,
    account: Arc<str>,
    caps_output: bool,
}

impl Purse {
    pub(crate) fn new(ledger: Ledger, account: Arc<str>, caps_output: bool) -> Self {
        Self(Some(Arc::new(Joined { ledger, account, caps_output })))
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        self.0.as_ref().map(|joined| &joined.ledger)
    }

    /// `payer` with an id for its call, unless it has one.
    pub(crate) fn begin(&self, payer: &mut Payer) {
        if self.is_there() && payer.call.is_none() {
            payer.call = Some(Arc::new(CallTag::new()));
        }
    }

    /// The longest answer of a request that says nothing of it, if it is to be set.
    pub(crate) fn output_cap(&self, payer: &Payer) -> Option<u64> {
        let joined = self.0.as_ref().filter(|joined| joined.caps_output)?;
        let account = payer.account.as_ref().unwrap_or(&joined.account);
        Some(joined.ledger.rules().default_max_output(account))
    }
}

/// Who pays for a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Payer {
    /// In place of the client's account.
    pub(crate) account: Option<Arc<str>>,
    call: Option<Arc<CallTag>>,
}

impl Payer {
    /// The call's name in the ledger.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self.call.as_ref().map(|call| call.id.as_str())
    }
}

/// One call of the user's, however many requests it takes.
#[derive(Debug)]
pub(super) struct CallTag {
    id: String,
    /// Some row has it as its logical call.
    counted: AtomicBool,
}

impl CallTag {
    fn new() -> Self {
        Self { id: format!("call-{:016x}", fastrand::u64(..)), counted: AtomicBool::new(false) }
    }

    /// The logical call for a row, unless another has it.
    fn take(&self) -> Taken<'_> {
        let calls = u64::from(!self.counted.swap(true, Ordering::AcqRel));
        Taken { tag: self, calls }
    }

    /// The row that had the logical call was charged none: the next one takes it.
    pub(super) fn give_back(&self) {
        self.counted.store(false, Ordering::Release);
    }
}

/// A logical call on its way into a row; given back unless it gets there.
struct Taken<'a> {
    tag: &'a CallTag,
    calls: u64,
}

impl Taken<'_> {
    fn stays(mut self) {
        self.calls = 0;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.calls > 0 {
            self.tag.give_back();
        }
    }
}

/// Why nothing may be sent.
#[derive(Debug)]
pub(crate) enum Refusal {
    OverBudget(Box<Denied>),
    Failed(LedgerError),
}

/// What one run of the attempt loop has reserved and still owes.
#[derive(Debug)]
pub(crate) struct Tab {
    payer: Option<(Arc<Joined>, Arc<CallTag>, Arc<str>)>,
    /// An attempt that is over. It is settled together with the next reservation, or before anything takes long.
    owed: Option<Slip>,
}

impl Tab {
    pub(crate) fn open(purse: &Purse, payer: &Payer) -> Self {
        let payer = purse.0.as_ref().map(|joined| {
            let call = payer.call.clone().unwrap_or_else(|| Arc::new(CallTag::new()));
            let account = payer.account.as_ref().unwrap_or(&joined.account);
            (Arc::clone(joined), call, Arc::clone(account))
        });
        Self { payer, owed: None }
    }

    /// Reserves for one attempt, and settles the one before it in the same transaction.
    ///
    /// Dropped at its await, both are as they would be without it, or all of it is done and the new reservation is
    /// given back.
    pub(crate) async fn reserve(
        &mut self,
        model: &Arc<str>,
        key: Fingerprint,
        bill: Option<Bill>,
        facts: ModelFacts,
    ) -> Result<Slip, Refusal> {
        let (Some((joined, call, account)), Some(bill)) = (&self.payer, bill) else {
            return Ok(Slip::none());
        };
        let ledger = &joined.ledger;
        let estimate = estimate(ledger, account, model, bill, facts);
        let ask = Ask::new(Arc::clone(model), estimate).key(key).request_id(&call.id);
        let reserved = match self.owed.take().and_then(Slip::into_parts) {
            Some((held, actual)) => Box::pin(turn_over(held, actual, ask)).await,
            None => {
                let taken = call.take();
                let reserved = ledger.reserve(account, ask.calls(taken.calls)).await;
                if matches!(reserved, Ok(Reserved::Held(_))) {
                    taken.stays();
                }
                reserved
            }
        };
        match reserved.map_err(Refusal::Failed)? {
            Reserved::Held(hold) => {
                Ok(Slip::new(Held { hold, ledger: ledger.clone(), call: Arc::clone(call) }))
            }
            Reserved::Denied(denied) => Err(Refusal::OverBudget(Box::new(denied))),
            // No ask of ours has an idempotency key. Whatever it is, it does not permit sending.
            Reserved::Replayed(replayed) => {
                let error = LedgerError::new(ErrorKind::DifferentAsk, replayed.to_string());
                Err(Refusal::Failed(error))
            }
        }
    }

    /// Keeps the slip of an attempt that is over, its charge decided.
    pub(crate) fn owe(&mut self, slip: Slip) {
        self.owed = Some(slip);
    }

    /// What is owed, to be settled without the next.
    pub(crate) fn take_owed(&mut self) -> Option<Slip> {
        self.owed.take()
    }
}

/// Settles one attempt and reserves the next.
async fn turn_over(held: Held, actual: Actual, ask: Ask) -> Result<Reserved, LedgerError> {
    let Held { hold, ledger, call } = held;
    let guard = Guard::new(ledger, hold.id(), actual.clone());
    // On an error the guard tries once more by itself.
    let TurnedOver { settled, next } = Hold::turn_over(hold, actual, ask).await?;
    guard.done();
    if !matches!(next, Reserved::Held(_)) && settled.charged.calls == 0 {
        call.give_back();
    }
    Ok(next)
}

fn estimate(
    ledger: &Ledger,
    account: &str,
    model: &str,
    bill: Bill,
    facts: ModelFacts,
) -> Estimate {
    let longest = facts.output_token_limit.unwrap_or(LONGEST_OUTPUT);
    let output = bill.output.unwrap_or(longest);
    let estimate = ledger.estimate(account, model, bill.input, Some(output), bill.candidates);
    // However far estimates were off: it cannot read more.
    let most = facts.input_token_limit.unwrap_or(u64::MAX).max(estimate.guess);
    Estimate { input: estimate.input.min(most), ..estimate }
}
