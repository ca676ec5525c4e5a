//! A client over a script that charges a ledger, both on one clock that is moved by hand.

#[path = "../../../ledger/tests/common/gated.rs"]
pub(crate) mod gated;

use std::{sync::Arc, time::Duration};

use keywheel::{
    GeminiBuilder, GenerateRequest, ManualClock, Pool, StateLocation,
    ledger::{Amount, Ledger, LedgerStore, Limit, MemoryStore, Outcome, Row, RowQuery, RowState},
};
use keywheel_provider::testing::Script;

use super::{NOON, Rig, at, follow_rust_log, over, run, specs};

/// The account that the client charges.
pub(crate) const APP: &str = "app";

/// The longest answer of the requests of [`request`].
pub(crate) const OUTPUT: u64 = 100;

/// A small request that says how long its answer may be.
pub(crate) fn request() -> GenerateRequest {
    GenerateRequest::from("hi").with_max_output_tokens(100)
}

pub(crate) struct Charged {
    pub(crate) rig: Rig,
    pub(crate) ledger: Ledger,
}

/// How long a row may be silent.
pub(crate) const SWEEP_AFTER: Duration = Duration::from_secs(240);

impl Charged {
    /// `keys` keys, and an account with these limits.
    pub(crate) fn new(keys: usize, limits: impl IntoIterator<Item = Limit>) -> Self {
        Self::built(keys, limits, |client| client)
    }

    pub(crate) fn built(
        keys: usize,
        limits: impl IntoIterator<Item = Limit>,
        client: impl FnOnce(GeminiBuilder) -> GeminiBuilder,
    ) -> Self {
        let store = Arc::new(MemoryStore::new(at(NOON)));
        Self::over(store, keys, limits, client)
    }

    /// The same over a store of the test's own.
    pub(crate) fn over(
        store: Arc<dyn LedgerStore>,
        keys: usize,
        limits: impl IntoIterator<Item = Limit>,
        client: impl FnOnce(GeminiBuilder) -> GeminiBuilder,
    ) -> Self {
        follow_rust_log();
        let clock = ManualClock::at(at(NOON));
        let builder = Ledger::builder().account(APP, limits).account("other", []).store(store);
        // Shorter than the usual quarter of an hour: whatever renews has to look it up.
        let builder = builder.sweep_after(SWEEP_AFTER);
        let ledger = run(&clock, builder.clock(Arc::new(clock.clone())).open()).unwrap();
        let script = Script::new().with_clock(Arc::new(clock.clone()));
        let pool = Pool::builder()
            .keys(specs(keys))
            .clock(Arc::new(clock.clone()))
            .state(StateLocation::None)
            .seed(1)
            .build()
            .unwrap();
        let gemini = over(pool, script.clone(), |to| client(to.ledger(ledger.clone(), APP)));
        Self { rig: Rig { clock, script, gemini }, ledger }
    }

    /// Every row, oldest first.
    pub(crate) fn rows(&self) -> Vec<Row> {
        rows(&self.rig.clock, &self.ledger)
    }

    /// What became of each attempt, and what it was charged.
    pub(crate) fn charges(&self) -> Vec<(Option<Outcome>, Option<Amount>)> {
        self.rows().iter().map(|row| (row.outcome, row.charged)).collect()
    }

    /// What the account has used today, settled and reserved together.
    pub(crate) fn used(&self) -> u64 {
        self.rig.run(self.ledger.usage(APP)).unwrap().day.tokens.used()
    }

    /// Nothing is open, in the pool and in the ledger; and the ledger's sums are those of its rows.
    pub(crate) fn assert_balanced(&self) {
        self.rig.assert_balanced();
        assert_settled(&self.rig.clock, &self.ledger);
    }
}

pub(crate) fn rows(clock: &ManualClock, ledger: &Ledger) -> Vec<Row> {
    run(clock, ledger.rows(RowQuery::default())).unwrap()
}

/// No row is open, and the sums are those of the rows.
pub(crate) fn assert_settled(clock: &ManualClock, ledger: &Ledger) {
    let rows = rows(clock, ledger);
    let open: Vec<_> = rows.iter().filter(|row| row.state == RowState::Reserved).collect();
    assert!(open.is_empty(), "still open: {open:?}");
    let audit = run(clock, ledger.audit()).unwrap();
    assert!(audit.is_balanced(), "{audit:?}");
}
