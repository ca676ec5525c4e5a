//! One row for each reservation.

use std::{fmt, str::FromStr, sync::Arc};

use chrono::{DateTime, NaiveDate, Utc};
use keywheel_core::{Fingerprint, Usage};
use serde::{Deserialize, Serialize};

use crate::{
    AccountId, Amount, ErrorKind, Estimate, Idempotency, LedgerError, Outcome, Reservation,
    TotalKey,
};

/// The identity of a row: its place in the ledger, and 128 random bits so that an id from another
/// ledger, or a guessed one, names nothing here.
///
/// A sequence keeps new rows together on disk; random ids alone cost half the speed at a million
/// rows (`docs/decisions/0011-sequence-ids.md`). `Display` and `FromStr` agree.
///
/// ```
/// use keywheel_ledger::RowId;
///
/// let id = RowId::fresh(26);
/// assert!(id.to_string().starts_with("r26-"));
/// assert_eq!(id.to_string().parse::<RowId>()?, id);
/// # Ok::<(), keywheel_ledger::LedgerError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId {
    /// The row's place, from 1.
    pub seq: u64,
    /// Random bits.
    pub nonce: u128,
}

impl RowId {
    /// An id for the row at `seq`, with a nonce of its own. For those who write stores.
    #[must_use]
    pub fn fresh(seq: u64) -> Self {
        Self { seq, nonce: fastrand::u128(..) }
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}-{:032x}", self.seq, self.nonce)
    }
}

impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RowId {
    type Err = LedgerError;

    fn from_str(text: &str) -> Result<Self, LedgerError> {
        let parse = || {
            let (seq, nonce) = text.strip_prefix('r')?.split_once('-')?;
            // `parse` would take a sign.
            let plain = nonce.len() == 32
                && nonce.bytes().all(|b| b.is_ascii_hexdigit())
                && seq.bytes().all(|b| b.is_ascii_digit());
            let nonce = u128::from_str_radix(nonce, 16).ok()?;
            plain.then_some(Self { seq: seq.parse().ok()?, nonce })
        };
        parse().ok_or_else(|| {
            LedgerError::new(ErrorKind::Invalid, "a row's id is r, a number, - and 32 hex digits")
        })
    }
}

impl Serialize for RowId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where a row is in its life: pending, then ended once. Only a late settlement follows an end,
/// and only the sweep's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// Open: charged at its estimate.
    Reserved,
    /// Charged at its actual figure.
    Settled,
    /// Settled at nothing.
    Released,
    /// Its holder was not heard of for too long: charged at its estimate, until a late settlement.
    Swept,
}

impl RowState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Reserved, Self::Settled, Self::Released, Self::Swept];

    /// The name used in stores, reports and exports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Settled => "settled",
            Self::Released => "released",
            Self::Swept => "swept",
        }
    }
}

impl fmt::Display for RowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RowState {
    type Err = LedgerError;

    fn from_str(text: &str) -> Result<Self, LedgerError> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| {
            LedgerError::new(ErrorKind::Corrupt, format!("no state is called {text:?}"))
        })
    }
}

/// Everything that is kept of one reservation. Times are whole milliseconds.
///
/// ```
/// use std::sync::Arc;
/// use keywheel_ledger::{AccountId, Amount, Ask, LedgerRules, Reservation, Row, RowId, RowState};
///
/// # let now = "2026-11-30T12:00:00Z".parse().expect("a moment");
/// let rules = Arc::new(LedgerRules::new());
/// let ask = Reservation::new(AccountId::new("triage")?, Ask::new("m", 800), rules, now)?;
/// let open = Row::reserved(RowId::fresh(1), &ask);
/// assert_eq!((open.amount(), open.overrun()), (Amount::new(800, 1), 0));
/// assert_eq!(open.heard_of_at(), now);
/// // The account's and everybody's; of the day, the month and ever; of the model and of all.
/// assert_eq!(open.total_keys().len(), 12);
///
/// let charged = Some(Amount::new(900, 1));
/// let settled = Row { state: RowState::Settled, charged, ..open };
/// assert_eq!(settled.overrun(), 100);
/// # Ok::<(), keywheel_ledger::LedgerError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its identity.
    pub id: RowId,
    /// Whose budget it is charged to.
    pub account: AccountId,
    /// The model that was asked for.
    pub model: Arc<str>,
    /// The key that was used.
    pub key: Option<Fingerprint>,
    /// The caller's name for the request.
    pub request_id: String,
    /// The day in which it counts, whenever it is settled.
    pub day: NaiveDate,
    /// What it might cost.
    pub estimate: Estimate,
    /// How many logical calls were reserved.
    pub calls: u64,
    /// Where it is in its life.
    pub state: RowState,
    /// What it was charged in the end; `None` while it is open.
    pub charged: Option<Amount>,
    /// What the provider reported, where it did.
    pub usage: Option<Usage>,
    /// What became of the attempt.
    pub outcome: Option<Outcome>,
    /// When it was reserved.
    pub reserved_at: DateTime<Utc>,
    /// When its holder last said that it is alive.
    pub renewed_at: Option<DateTime<Utc>>,
    /// When it was swept; stays when it is settled later.
    pub swept_at: Option<DateTime<Utc>>,
    /// When it got its last figure; `None` while it is open.
    pub settled_at: Option<DateTime<Utc>>,
    /// What the caller wanted to find here again.
    pub note: String,
    /// What makes a repeat recognisable.
    #[serde(skip)]
    pub idempotency: Option<Idempotency>,
}

impl Row {
    /// The row that a granted `reservation` begins as.
    #[must_use]
    pub fn reserved(id: RowId, reservation: &Reservation) -> Self {
        let Reservation { account, ask, now, day, .. } = reservation;
        Self {
            id,
            account: account.clone(),
            model: Arc::clone(&ask.model),
            key: ask.key,
            request_id: ask.request_id.clone(),
            day: *day,
            estimate: ask.estimate,
            calls: ask.calls,
            state: RowState::Reserved,
            charged: None,
            usage: None,
            outcome: None,
            reserved_at: *now,
            renewed_at: None,
            swept_at: None,
            settled_at: None,
            note: ask.note.clone(),
            idempotency: ask.idempotency.clone(),
        }
    }

    /// What was reserved.
    #[must_use]
    pub const fn amount(&self) -> Amount {
        Amount::new(self.estimate.total(), self.calls)
    }

    /// The totals it counts in.
    #[must_use]
    pub fn total_keys(&self) -> [TotalKey; 12] {
        TotalKey::all_of(&self.account, &self.model, self.day)
    }

    /// The tokens it was charged beyond what was reserved.
    #[must_use]
    pub fn overrun(&self) -> u64 {
        let charged = self.charged.unwrap_or(Amount::ZERO).tokens;
        charged.saturating_sub(self.estimate.total())
    }

    /// When its holder was last heard of.
    #[must_use]
    pub fn heard_of_at(&self) -> DateTime<Utc> {
        self.renewed_at.unwrap_or(self.reserved_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_not_one_is_an_error() {
        let good = RowId { seq: u64::MAX, nonce: u128::MAX }.to_string();
        assert_eq!(good.parse::<RowId>().unwrap().to_string(), good);
        let zero = "0".repeat(32);
        let bad = [
            String::new(),
            "r1".into(),
            "1-0".into(),
            "r1-0".into(),
            format!("r+1-{zero}"),
            format!("r18446744073709551616-{zero}"),
            format!("r1-+{}", &zero[1..]),
            format!("r1-{zero}0"),
            format!("r-{zero}"),
        ];
        for text in bad {
            assert_eq!(text.parse::<RowId>().unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
    }

    #[test]
    fn every_state_is_read_as_it_is_written() {
        for state in RowState::ALL {
            assert_eq!(state.to_string().parse::<RowState>().unwrap(), state);
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert!("open".parse::<RowState>().is_err());
    }
}
