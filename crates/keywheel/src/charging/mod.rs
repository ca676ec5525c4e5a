//! What attempts cost, and who is charged: the client's side of the ledger.
//!
//! The attempt loop does the same with and without the feature `ledger`: it reserves before it sends, and says what
//! became of it. Without the feature all of that is empty.
//!
//! | to know | look in |
//! |---|---|
//! | what a request may cost at most | [`mod@bill`] |
//! | how an attempt is reserved, settled, and given up | `tab`, `slip` |
//! | what each outcome is charged | [`keywheel_ledger::charge`], by the [`Spent`] of `attempt::outcome` |

mod bill;
#[cfg(not(feature = "ledger"))]
mod nobody;
#[cfg(feature = "ledger")]
mod slip;
#[cfg(feature = "ledger")]
mod tab;

pub(crate) use self::bill::{Bill, BuildsOn, READERS, bill, bounded, cap, gone_on, longest_answer};
#[cfg(not(feature = "ledger"))]
pub(crate) use self::nobody::{Payer, Purse, Refusal, Slip, Tab};
#[cfg(feature = "ledger")]
pub(crate) use self::{
    slip::Slip,
    tab::{Payer, Purse, Refusal, Tab},
};

/// What became of one attempt, as far as its price goes: the rows of the ledger's charging table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// It never reached the provider.
    NotSent,
    /// Refused before anything was generated.
    Refused,
    /// The provider failed.
    ServerError,
    /// It was sent, and no answer came.
    Lost,
    /// Answered to its end.
    Answered,
    /// The answer began and did not end, or nobody waited for it.
    CutShort,
}
