//! The store in memory passes the suite that every store has to pass.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;

use keywheel_ledger::{LedgerError, LedgerStore, MemoryStore};

async fn empty() -> Result<Arc<dyn LedgerStore>, LedgerError> {
    Ok(Arc::new(MemoryStore::new("2026-11-30T20:00:00Z".parse().unwrap())))
}

keywheel_ledger::conformance_tests!(empty);
