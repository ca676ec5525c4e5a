//! The store in memory passes the suite that every store has to pass.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;

use keywheel_ledger::{LedgerError, LedgerStore, MemoryStore, conformance::Case};

async fn empty() -> Result<Arc<dyn LedgerStore>, LedgerError> {
    Ok(Arc::new(MemoryStore::new("2026-11-30T20:00:00Z".parse().unwrap())))
}

keywheel_ledger::conformance_tests!(empty);

#[tokio::test]
async fn two_hundred_random_histories_agree_with_the_model() {
    for _ in 0..200 {
        let case = Case::named("a_random_history_agrees_with_the_model");
        case.run(empty().await.unwrap()).await;
    }
}
