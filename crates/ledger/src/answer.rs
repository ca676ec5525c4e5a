//! What the ledger answers: refusals and repeats are values, not errors.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use crate::{Amount, Limit, Row, RowId, RowState, Scope, Unit};

/// A reservation that a limit does not let through. Nothing was written. `Display` says it in a
/// sentence.
///
/// ```
/// # use keywheel_ledger::{Ask, Ledger, LedgerError, Limit, Period};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
/// # let day = Limit::tokens(Period::Day, 1_000);
/// # let ledger = Ledger::builder().account("triage", [day]).in_memory().open().await?;
/// let open = ledger.reserve("triage", Ask::new("m", 600)).await?.held().expect("it fits");
/// let denied = ledger.reserve("triage", Ask::new("m", 500)).await?.denied().expect("too much");
/// assert_eq!((denied.used(), denied.left(), denied.asked), (600, 400, 500));
/// assert!(denied.retry_at.is_some()); // at midnight
/// assert!(denied.may_fit_once_others_settle());
/// assert!(!denied.never_fits());
///
/// open.settle(100).await?;
/// let _fits = ledger.reserve("triage", Ask::new("m", 500)).await?.held().expect("it fits");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// Whose limit it is.
    pub scope: Scope,
    /// The limit; if several refuse, the one that holds longest.
    pub limit: Limit,
    /// How much of it is settled.
    pub settled: u64,
    /// How much of it is reserved by rows that are still open.
    pub reserved: u64,
    /// How much was asked for, in the limit's unit.
    pub asked: u64,
    /// When the limit begins anew. `None` if waiting for that moment will not help: the limit never
    /// begins anew, or the ask is larger than the whole cap.
    pub retry_at: Option<DateTime<Utc>>,
}

impl Denied {
    /// What is used: settled and reserved.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.settled.saturating_add(self.reserved)
    }

    /// How much is left; 0 if a lowered cap or an overrun left less than nothing.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.limit.cap.saturating_sub(self.used())
    }

    /// True if the ask is larger than the whole cap, so that nothing but a smaller ask helps.
    #[must_use]
    pub const fn never_fits(&self) -> bool {
        self.asked > self.limit.cap
    }

    /// True if open rows, once they settle below their estimates, may leave enough room.
    #[must_use]
    pub const fn may_fit_once_others_settle(&self) -> bool {
        self.settled.saturating_add(self.asked) <= self.limit.cap
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, limit, settled, reserved, asked, retry_at } = self;
        let unit = limit.unit;
        match (unit, asked) {
            (Unit::Calls, 1) => write!(f, "the call does not fit into {scope}'s {limit}: ")?,
            _ => write!(f, "{asked} {unit} do not fit into {scope}'s {limit}: ")?,
        }
        if self.never_fits() {
            return write!(f, "that is more than the whole limit");
        }
        write!(f, "{settled} are spent and {reserved} reserved")?;
        match retry_at {
            Some(at) => {
                write!(f, "; it begins anew at {}", at.to_rfc3339_opts(SecondsFormat::Secs, true))
            }
            None => f.write_str("; it never begins anew"),
        }
    }
}

/// An ask whose idempotency key was used before. It never permits sending: the request was sent
/// already, or somebody is about to. `Display` says it in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// The row of the first ask, or of its latest attempt.
    pub id: RowId,
    /// What became of it.
    pub state: RowState,
    /// What it was charged; `None` while it is open.
    pub charged: Option<Amount>,
}

impl Replayed {
    pub(crate) fn of(row: &Row) -> Self {
        Self { id: row.id, state: row.state, charged: row.charged }
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this request was made before under the same idempotency key and ")?;
        f.write_str(match self.state {
            RowState::Reserved => "is still under way",
            RowState::Settled => "is settled",
            RowState::Released => "was given up without a charge",
            RowState::Swept => "was not heard of again",
        })?;
        write!(f, " (row {}); it must not be sent again", self.id)
    }
}

/// What became of a settlement.
///
/// ```
/// # use keywheel_ledger::{Ask, Ledger, LedgerError, SettledHow};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
/// # let ledger = Ledger::builder().account("chat", []).in_memory().open().await?;
/// let hold = ledger.reserve("chat", Ask::new("m", 800)).await?.held().expect("no limit");
/// let settled = hold.settle(900).await?;
/// assert_eq!((settled.charged.tokens, settled.overrun()), (900, 100));
/// assert_eq!(settled.how, SettledHow::First);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The row.
    pub id: RowId,
    /// What it is charged.
    pub charged: Amount,
    /// What was reserved.
    pub reserved: Amount,
    /// Whether it was the first settlement.
    pub how: SettledHow,
}

impl Settled {
    /// The tokens beyond what was reserved. They were spent, so they are charged, too.
    #[must_use]
    pub const fn overrun(&self) -> u64 {
        self.charged.tokens.saturating_sub(self.reserved.tokens)
    }
}

/// Whether a settlement was the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SettledHow {
    /// It was: the row was open.
    First,
    /// The row was swept before; the true figure takes the place of the estimate.
    AfterSweep,
    /// The row was settled before at the same figure; nothing changed.
    Again,
}
