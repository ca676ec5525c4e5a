//! The sums that limits are compared with: kept beside the rows, never summed up on demand
//! (`docs/decisions/0010-totals-beside-rows.md`).

use std::{fmt, str::FromStr, sync::Arc};

use chrono::{Datelike, NaiveDate};
use serde::{Deserialize, Serialize};

use crate::{AccountId, Amount, ErrorKind, LedgerError, Unit};

/// Whose total it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Everybody's together: what the allowance limits.
    Whole,
    /// One account's.
    Account(AccountId),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("the whole allowance"),
            Self::Account(account) => write!(f, "account {account}"),
        }
    }
}

/// One day, one month, or all of time. `Display` and `FromStr` agree (`2026-11-30`, `2026-11`,
/// `ever`), so stores can use the text as a key.
///
/// ```
/// use keywheel_ledger::Span;
///
/// let day = "2026-11-30".parse().expect("a day");
/// assert_eq!(Span::all_of(day), [Span::Day(day), Span::month_of(day), Span::Ever]);
/// assert_eq!(Span::month_of(day).to_string(), "2026-11");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Span {
    /// One day.
    Day(NaiveDate),
    /// One month of a year.
    Month(i32, u32),
    /// Since the ledger was made.
    Ever,
}

impl Span {
    /// The month that `day` lies in.
    #[must_use]
    pub fn month_of(day: NaiveDate) -> Self {
        Self::Month(day.year(), day.month())
    }

    /// The day, the month and all of time: where a row that was reserved on `day` counts.
    #[must_use]
    pub fn all_of(day: NaiveDate) -> [Self; 3] {
        [Self::Day(day), Self::month_of(day), Self::Ever]
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day(day) => write!(f, "{day}"),
            // With a sign beyond year 9999, as in a day: without one it could not be read again.
            Self::Month(year @ 10_000.., month) => write!(f, "+{year}-{month:02}"),
            Self::Month(year, month) if *year < 0 => write!(f, "-{:04}-{month:02}", -year),
            Self::Month(year, month) => write!(f, "{year:04}-{month:02}"),
            Self::Ever => f.write_str("ever"),
        }
    }
}

impl FromStr for Span {
    type Err = LedgerError;

    fn from_str(text: &str) -> Result<Self, LedgerError> {
        if text == "ever" {
            return Ok(Self::Ever);
        }
        if let Ok(day) = text.parse() {
            return Ok(Self::Day(day));
        }
        let first: Result<NaiveDate, _> = format!("{text}-01").parse();
        let unknown =
            |_| LedgerError::new(ErrorKind::Corrupt, format!("no span is called {text:?}"));
        first.map(Self::month_of).map_err(unknown)
    }
}

/// Which total: whose, of which time, for which model.
///
/// ```
/// use keywheel_ledger::{AccountId, TotalKey};
///
/// let day = "2026-11-30".parse().expect("a day");
/// let keys = TotalKey::all_of(&AccountId::new("triage")?, &"m".into(), day);
/// assert_eq!(keys.len(), 12); // 2 scopes, 3 spans, with and without the model
/// # Ok::<(), keywheel_ledger::LedgerError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TotalKey {
    /// Whose.
    pub scope: Scope,
    /// Of which time.
    pub span: Span,
    /// For which model; `None` for all together.
    pub model: Option<Arc<str>>,
}

impl TotalKey {
    /// Every total in which a row counts: two scopes, three spans, with and without the model.
    /// They are kept whether anything limits them or not.
    #[must_use]
    pub fn all_of(account: &AccountId, model: &Arc<str>, day: NaiveDate) -> [Self; 12] {
        let spans = Span::all_of(day);
        std::array::from_fn(|i| Self {
            scope: if i < 6 { Scope::Account(account.clone()) } else { Scope::Whole },
            span: spans[i % 3],
            model: (i % 6 >= 3).then(|| Arc::clone(model)),
        })
    }
}

/// One total.
///
/// ```
/// use keywheel_ledger::{Change, Delta, Total, Unit};
///
/// let tokens = |settled, reserved| Change { settled, reserved, ..Change::default() };
/// let reserving = Delta { tokens: tokens(0, 800), ..Delta::default() };
/// let settling = Delta { tokens: tokens(120, -800), ..Delta::default() };
/// let total = Total::default().after(reserving);
/// assert_eq!(total.of(Unit::Tokens).used(), 800);
/// assert_eq!(total.after(settling), Total::default().after(reserving.and(settling)));
/// assert_eq!(total.after(settling).of(Unit::Tokens).used(), 120);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Total {
    /// Tokens.
    pub tokens: Sum,
    /// Logical calls.
    pub calls: Sum,
}

impl Total {
    /// The sum of `unit`.
    #[must_use]
    pub const fn of(self, unit: Unit) -> Sum {
        match unit {
            Unit::Tokens => self.tokens,
            Unit::Calls => self.calls,
        }
    }

    /// This total after `delta`. Never negative and never beyond `i64::MAX`, which every store can
    /// hold.
    #[must_use]
    pub fn after(self, delta: Delta) -> Self {
        Self { tokens: self.tokens.after(delta.tokens), calls: self.calls.after(delta.calls) }
    }
}

/// What is spent and what is set aside, kept apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sum {
    /// Charged for good: rows that were settled, released or swept.
    pub settled: u64,
    /// Charged until it is settled: the estimates of open rows.
    pub reserved: u64,
    /// The part of `settled` whose rows were pruned.
    pub pruned: u64,
}

impl Sum {
    /// What limits are compared with: settled and reserved.
    #[must_use]
    pub const fn used(self) -> u64 {
        self.settled.saturating_add(self.reserved)
    }

    fn after(self, change: Change) -> Self {
        let add = |sum: u64, change: i64| sum.saturating_add_signed(change).min(i64::MAX as u64);
        Self {
            settled: add(self.settled, change.settled),
            reserved: add(self.reserved, change.reserved),
            pruned: add(self.pruned, change.pruned),
        }
    }
}

/// How a row changes every total it counts in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Delta {
    /// Of tokens.
    pub tokens: Change,
    /// Of logical calls.
    pub calls: Change,
}

impl Delta {
    pub(crate) fn reserving(amount: Amount) -> Self {
        Self::from_parts(amount, |amount| Change { reserved: amount, ..Change::default() })
    }

    pub(crate) fn settling(amount: Amount) -> Self {
        Self::from_parts(amount, |amount| Change { settled: amount, ..Change::default() })
    }

    pub(crate) fn pruning(amount: Amount) -> Self {
        Self::from_parts(amount, |amount| Change { pruned: amount, ..Change::default() })
    }

    fn from_parts(amount: Amount, change: impl Fn(i64) -> Change) -> Self {
        let signed = |amount| i64::try_from(amount).unwrap_or(i64::MAX);
        Self { tokens: change(signed(amount.tokens)), calls: change(signed(amount.calls)) }
    }

    /// Both, one after the other.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { tokens: self.tokens.and(other.tokens), calls: self.calls.and(other.calls) }
    }

    /// True if less is used after it, settled and reserved together: there may be room for others.
    #[must_use]
    pub const fn frees(self) -> bool {
        self.tokens.frees() || self.calls.frees()
    }

    pub(crate) const fn undone(self) -> Self {
        Self { tokens: self.tokens.undone(), calls: self.calls.undone() }
    }
}

/// How a [`Sum`] changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Change {
    /// Of what is settled.
    pub settled: i64,
    /// Of what is reserved.
    pub reserved: i64,
    /// Of what was pruned.
    pub pruned: i64,
}

impl Change {
    const fn and(self, other: Self) -> Self {
        Self {
            settled: self.settled.saturating_add(other.settled),
            reserved: self.reserved.saturating_add(other.reserved),
            pruned: self.pruned.saturating_add(other.pruned),
        }
    }

    const fn frees(self) -> bool {
        self.settled.saturating_add(self.reserved) < 0
    }

    const fn undone(self) -> Self {
        Self {
            settled: self.settled.saturating_neg(),
            reserved: self.reserved.saturating_neg(),
            pruned: self.pruned.saturating_neg(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_read_as_it_is_written() {
        let day: NaiveDate = "2026-11-30".parse().unwrap();
        for (span, text) in Span::all_of(day).into_iter().zip(["2026-11-30", "2026-11", "ever"]) {
            assert_eq!(span.to_string(), text);
            assert_eq!(text.parse::<Span>().unwrap(), span);
        }
        // A clock may be far off.
        for day in [NaiveDate::MIN, NaiveDate::MAX, day] {
            for year in [day.year(), -5, 0, 9_999, 10_000] {
                for span in day.with_year(year).into_iter().flat_map(Span::all_of) {
                    assert_eq!(span.to_string().parse::<Span>().unwrap(), span, "{span}");
                }
            }
        }
        for bad in ["", "2026", "2026-13", "2026-11-31", "Ever"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_row_counts_in_twelve_totals_that_differ() {
        let day = "2026-11-30".parse().unwrap();
        let keys = TotalKey::all_of(&"a".parse().unwrap(), &"m".into(), day);
        let different: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), 12);
    }

    #[test]
    fn a_total_neither_wraps_nor_turns_negative() {
        let huge = Delta::reserving(Amount::new(u64::MAX, u64::MAX));
        let full = Total::default().after(huge).after(huge);
        assert_eq!(full.tokens.reserved, i64::MAX as u64);
        let empty = Total::default().after(huge.undone());
        assert_eq!(empty, Total::default());
        assert_eq!(Sum { settled: u64::MAX, reserved: 1, pruned: 0 }.used(), u64::MAX);
    }
}
