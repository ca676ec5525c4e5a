//! What the tests of the handle share.

#![allow(dead_code, reason = "every test file uses its part")]

pub(crate) mod gated;

use std::sync::Arc;

use keywheel_core::ManualClock;
use keywheel_ledger::{Actual, Ledger, Limit, Row, RowQuery, Usage};

/// A ledger in memory and its clock.
pub(crate) struct Opened {
    pub(crate) ledger: Ledger,
    pub(crate) clock: ManualClock,
}

/// Noon in California on a Monday; account `a` with these limits.
pub(crate) async fn open(limits: impl IntoIterator<Item = Limit>) -> Opened {
    let clock = ManualClock::at("2026-11-30T20:00:00Z".parse().unwrap());
    let builder = Ledger::builder().account("a", limits).in_memory();
    let ledger = builder.clock(Arc::new(clock.clone())).open().await.unwrap();
    Opened { ledger, clock }
}

pub(crate) async fn rows(ledger: &Ledger) -> Vec<Row> {
    ledger.rows(RowQuery::default()).await.unwrap()
}

/// Answered, with so much input and output.
pub(crate) fn actual(input: u64, output: u64) -> Actual {
    Actual::from(Usage { input, output, total: input + output, ..Usage::default() })
}
