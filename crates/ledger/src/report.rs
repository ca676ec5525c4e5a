//! What the rows say when they are added up.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Serialize;

use crate::{
    Ledger, LedgerError, Row, RowQuery, RowState,
    correction::{error, percentile},
};

/// By what usage is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupBy {
    /// By account.
    Account,
    /// By model.
    Model,
    /// By the key's fingerprint; `-` where no key was named.
    Key,
    /// By the hour in which rows were reserved, as `2026-11-01T01:00-07:00`: the offset tells the
    /// two hours apart that come when the clocks go back.
    Hour(Tz),
    /// By the day in which rows were reserved, in any zone. In the ledger's own it is the day in
    /// which they count.
    Day(Tz),
}

/// Usage added up over a group of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UsageLine {
    /// The group: an account, a model, an hour.
    pub group: String,
    /// How many rows.
    pub rows: u64,
    /// How many of them are open.
    pub open: u64,
    /// How many were ended by the sweep and not settled since.
    pub swept: u64,
    /// Logical calls charged.
    pub calls: u64,
    /// Tokens charged.
    pub tokens: u64,
    /// Tokens reserved by open rows.
    pub reserved: u64,
    /// Input tokens reported, cached ones included.
    pub input: u64,
    /// Cached input tokens reported.
    pub cached: u64,
    /// Output tokens reported, thinking excluded.
    pub output: u64,
    /// Thinking tokens reported.
    pub thinking: u64,
    /// How many rows used more than was reserved.
    pub overruns: u64,
    /// By how many tokens together.
    pub overrun_tokens: u64,
}

/// How good the estimates for a model were.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EstimateLine {
    /// The model.
    pub model: String,
    /// How many rows were settled with usage.
    pub rows: u64,
    /// Tokens reserved for them.
    pub estimated: u64,
    /// Tokens they were charged.
    pub actual: u64,
    /// Actual input divided by its uncorrected estimate: the median. `None` if no estimate told
    /// input apart.
    pub input_error_median: Option<f64>,
    /// The same, at the 99th percentile: what the next estimates are multiplied by, within 1 to 8.
    pub input_error_p99: Option<f64>,
}

impl Ledger {
    /// Usage of the rows that `query` asks for, added up by `by`, in the order of the groups. The
    /// query's page ([`after`](RowQuery::after), [`limit`](RowQuery::limit)) does not matter: all
    /// pages are read, a thousand rows at a time.
    ///
    /// Rows that were pruned are not there any more; totals of longer times are in
    /// [`usage`](Self::usage).
    ///
    /// ```
    /// # use keywheel_ledger::{Ask, GroupBy, Ledger, LedgerError, RowQuery};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// # let ledger = Ledger::builder().account("chat", []).in_memory().open().await?;
    /// # ledger.reserve("chat", Ask::new("m", 800)).await?.held().expect("no limit").settle(120).await?;
    /// for line in ledger.report(GroupBy::Day(chrono_tz::Asia::Kolkata), RowQuery::default()).await? {
    ///     println!("{}: {} tokens in {} calls", line.group, line.tokens, line.calls);
    /// #   assert_eq!((line.tokens, line.calls), (120, 1));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Whatever keeps the store from reading.
    pub async fn report(
        &self,
        by: GroupBy,
        query: RowQuery,
    ) -> Result<Vec<UsageLine>, LedgerError> {
        let mut groups: BTreeMap<(i64, String), UsageLine> = BTreeMap::new();
        self.for_each_row(query, |row| {
            let group = by.group(row);
            groups.entry(group).or_default().add(row);
        })
        .await?;
        let named = groups.into_iter().map(|((_, group), line)| UsageLine { group, ..line });
        Ok(named.collect())
    }

    /// Estimates against actual figures by model, over the rows that `query` asks for and that were
    /// settled with usage.
    ///
    /// # Errors
    /// Whatever keeps the store from reading.
    pub async fn estimates(&self, query: RowQuery) -> Result<Vec<EstimateLine>, LedgerError> {
        let mut models: HashMap<Arc<str>, (EstimateLine, Vec<f64>)> = HashMap::new();
        self.for_each_row(query, |row| {
            let (Some(usage), Some(charged)) = (row.usage, row.charged) else { return };
            let (line, errors) = models
                .entry(Arc::clone(&row.model))
                .or_insert_with(|| (EstimateLine::of(&row.model), Vec::new()));
            line.rows += 1;
            line.estimated = line.estimated.saturating_add(row.estimate.total());
            line.actual = line.actual.saturating_add(charged.tokens);
            errors.extend(error(row.estimate.guess, usage.input.saturating_add(usage.tool)));
        })
        .await?;
        let finish = |(mut line, mut errors): (EstimateLine, Vec<f64>)| {
            line.input_error_median = percentile(&mut errors, 50);
            line.input_error_p99 = percentile(&mut errors, 99);
            line
        };
        let mut lines: Vec<_> = models.into_values().map(finish).collect();
        lines.sort_by(|one, other| one.model.cmp(&other.model));
        Ok(lines)
    }

    /// The rows among those that `query` asks for that used more than was reserved, oldest first.
    ///
    /// # Errors
    /// Whatever keeps the store from reading.
    pub async fn overruns(&self, query: RowQuery) -> Result<Vec<Row>, LedgerError> {
        let mut found = Vec::new();
        self.for_each_row(query, |row| {
            if row.overrun() > 0 {
                found.push(row.clone());
            }
        })
        .await?;
        Ok(found)
    }

    /// The rows among those that `query` asks for that the sweep ended, settled later or not,
    /// oldest first.
    ///
    /// # Errors
    /// Whatever keeps the store from reading.
    pub async fn swept(&self, query: RowQuery) -> Result<Vec<Row>, LedgerError> {
        let mut found = Vec::new();
        self.for_each_row(query, |row| {
            if row.swept_at.is_some() {
                found.push(row.clone());
            }
        })
        .await?;
        Ok(found)
    }

    async fn for_each_row(
        &self,
        mut query: RowQuery,
        mut visit: impl FnMut(&Row),
    ) -> Result<(), LedgerError> {
        (query.after, query.limit) = (0, PAGE);
        loop {
            let rows = self.rows(query.clone()).await?;
            rows.iter().for_each(&mut visit);
            match rows.last() {
                Some(last) if rows.len() == PAGE => query.after = last.id.seq,
                _ => return Ok(()),
            }
        }
    }
}

/// How many rows are read at a time.
pub(crate) const PAGE: usize = 1_000;

impl GroupBy {
    /// The group that `row` belongs to, and what groups are ordered by before their names.
    fn group(self, row: &Row) -> (i64, String) {
        match self {
            Self::Account => (0, row.account.as_str().into()),
            Self::Model => (0, (*row.model).into()),
            Self::Key => (0, row.key.map_or_else(|| "-".into(), |key| key.to_string())),
            Self::Hour(zone) => hour(row.reserved_at, zone),
            Self::Day(zone) => {
                let day = keywheel_core::QuotaDay::containing_in(row.reserved_at, zone).date();
                (0, day.to_string())
            }
        }
    }
}

/// The hour around `moment` by the clocks in `zone`, by when it began and by name.
fn hour(moment: DateTime<Utc>, zone: Tz) -> (i64, String) {
    let local = moment.with_timezone(&zone);
    let into = i64::from(chrono::Timelike::minute(&local)) * 60
        + i64::from(chrono::Timelike::second(&local));
    (moment.timestamp() - into, local.format("%Y-%m-%dT%H:00%:z").to_string())
}

impl UsageLine {
    fn add(&mut self, row: &Row) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        self.rows += 1;
        match row.charged {
            Some(charged) => {
                add(&mut self.tokens, charged.tokens);
                add(&mut self.calls, charged.calls);
            }
            None => {
                self.open += 1;
                add(&mut self.reserved, row.estimate.total());
            }
        }
        self.swept += u64::from(row.state == RowState::Swept);
        if let Some(usage) = row.usage {
            add(&mut self.input, usage.input);
            add(&mut self.cached, usage.cached);
            add(&mut self.output, usage.output);
            add(&mut self.thinking, usage.thinking);
        }
        self.overruns += u64::from(row.overrun() > 0);
        add(&mut self.overrun_tokens, row.overrun());
    }
}

impl EstimateLine {
    fn of(model: &str) -> Self {
        Self {
            model: model.into(),
            rows: 0,
            estimated: 0,
            actual: 0,
            input_error_median: None,
            input_error_p99: None,
        }
    }
}
