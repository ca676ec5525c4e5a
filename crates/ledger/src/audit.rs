//! Whether the totals say what the rows say.

use std::{collections::BTreeMap, fmt};

use crate::{Row, Total, TotalKey, total::Delta};

/// Adds rows up and compares them with totals. For those who write stores.
///
/// Feed it every row and every total of one snapshot, in any order.
///
/// ```
/// use keywheel_ledger::{Ask, AccountId, LedgerRules, Reservation, Row, RowId, audit::Auditor};
///
/// # let rules = std::sync::Arc::new(LedgerRules::new());
/// # let now = "2026-11-30T12:00:00Z".parse().expect("a moment");
/// let ask = Reservation::new(AccountId::new("triage")?, Ask::new("m", 800), rules, now)?;
/// let row = Row::reserved(RowId::fresh(1), &ask);
///
/// let mut auditor = Auditor::default();
/// auditor.row(&row);
/// // auditor.total(key, total) for each total of the store: here none, so all of them are missed.
/// let report = auditor.finish();
/// assert!(!report.is_balanced());
/// assert_eq!(report.mismatches.len(), row.total_keys().len());
/// # Ok::<(), keywheel_ledger::LedgerError>(())
/// ```
#[derive(Debug, Default)]
pub struct Auditor {
    rows: u64,
    sums: BTreeMap<TotalKey, Total>,
    totals: BTreeMap<TotalKey, Total>,
}

impl Auditor {
    /// Takes note of a row.
    pub fn row(&mut self, row: &Row) {
        self.rows += 1;
        let delta = match row.charged {
            Some(charged) => Delta::settling(charged),
            None => Delta::reserving(row.amount()),
        };
        for key in row.total_keys() {
            let sum = self.sums.entry(key).or_default();
            *sum = sum.after(delta);
        }
    }

    /// Takes note of a total.
    pub fn total(&mut self, key: TotalKey, total: Total) {
        self.totals.insert(key, total);
    }

    /// What was found. What the rows of a total do not account for has to be pruned.
    pub fn finish(mut self) -> AuditReport {
        let mut report =
            AuditReport { rows: self.rows, totals: self.totals.len() as u64, ..Default::default() };
        for (key, total) in self.totals {
            let mut rows = self.sums.remove(&key).unwrap_or_default();
            for (rows, total) in [(&mut rows.tokens, total.tokens), (&mut rows.calls, total.calls)]
            {
                rows.settled = rows.settled.saturating_add(total.pruned);
                rows.pruned = total.pruned;
            }
            if rows != total {
                report.mismatches.push(Mismatch { key, total, rows });
            }
        }
        // Rows whose total is not there at all.
        let lost = self.sums.into_iter().filter(|(_, rows)| *rows != Total::default());
        let lost = lost.map(|(key, rows)| Mismatch { key, total: Total::default(), rows });
        report.mismatches.extend(lost);
        report
    }
}

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct AuditReport {
    /// How many rows were added up.
    pub rows: u64,
    /// How many totals they were compared with.
    pub totals: u64,
    /// The totals that do not agree with their rows. Empty: all is well.
    pub mismatches: Vec<Mismatch>,
}

impl AuditReport {
    /// True if every total agrees with its rows.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.mismatches.is_empty()
    }
}

/// A total that does not agree with its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Which total.
    pub key: TotalKey,
    /// What it says.
    pub total: Total,
    /// What its rows say, with what was pruned added.
    pub rows: Total,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, total, rows } = self;
        write!(f, "{} in {}", key.scope, key.span)?;
        if let Some(model) = &key.model {
            write!(f, " for {model}")?;
        }
        write!(
            f,
            ": {} + {} tokens and {} + {} calls (settled + reserved), but its rows say {} + {} and {} + {}",
            total.tokens.settled,
            total.tokens.reserved,
            total.calls.settled,
            total.calls.reserved,
            rows.tokens.settled,
            rows.tokens.reserved,
            rows.calls.settled,
            rows.calls.reserved,
        )
    }
}
