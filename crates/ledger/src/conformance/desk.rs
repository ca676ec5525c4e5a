//! What the cases say often, said once.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use keywheel_core::{Clock, ManualClock, QuotaDay};
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    AccountId, Amount, Ask, Charge, Denied, LedgerError, LedgerRules, LedgerStore, Limit, Outcome,
    Period, Reservation, Reserving, Row, RowId, RowQuery, Scope, Settled, Settlement, Span, Total,
    TotalKey,
};

/// The sweep's age in all cases.
pub(super) const AGE: Duration = Duration::from_secs(900);
/// The model of all cases that need only one.
pub(super) const MODEL: &str = "gemini-3.5-flash-lite";

/// A store, the rules, and a clock that is moved by hand. Clones share the store and the clock.
#[derive(Debug, Clone)]
pub(super) struct Desk {
    pub(super) store: Arc<dyn LedgerStore>,
    pub(super) clock: ManualClock,
    pub(super) rules: Arc<LedgerRules>,
}

impl Desk {
    /// At noon in California on a Monday, with these rules.
    pub(super) fn new(store: Arc<dyn LedgerStore>, rules: LedgerRules) -> Self {
        let clock = ManualClock::at(moment("2026-11-30T20:00:00Z"));
        Self { store, clock, rules: Arc::new(rules) }
    }

    /// With one account, `a`, that has these limits.
    pub(super) fn with(
        store: Arc<dyn LedgerStore>,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Self {
        Self::new(store, account(LedgerRules::new(), "a", limits))
    }

    /// With account `a` and a cap on its tokens a day.
    pub(super) fn with_cap(store: Arc<dyn LedgerStore>, cap: u64) -> Self {
        Self::with(store, [Limit::tokens(Period::Day, cap)])
    }

    pub(super) fn set_rules(&mut self, rules: LedgerRules) {
        self.rules = Arc::new(rules);
    }

    pub(super) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    pub(super) fn reservation(&self, account: &str, ask: Ask) -> Reservation {
        let account = AccountId::new(account).expect("a name");
        Reservation::new(account, ask, Arc::clone(&self.rules), self.now()).expect("a good ask")
    }

    pub(super) async fn ask(&self, account: &str, ask: Ask) -> Result<Reserving, LedgerError> {
        self.store.reserve(self.reservation(account, ask)).await
    }

    /// Reserves what has to be granted.
    pub(super) async fn granted(&self, account: &str, ask: Ask) -> Row {
        match self.ask(account, ask).await.expect("the store works") {
            Reserving::Granted(row, _) => *row,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Reserves tokens for account `a`, which has to be granted.
    pub(super) async fn held(&self, tokens: u64) -> Row {
        self.granted("a", tokens_of(tokens)).await
    }

    /// Asks for what has to be denied.
    pub(super) async fn denied(&self, account: &str, ask: Ask) -> Denied {
        match self.ask(account, ask).await.expect("the store works") {
            Reserving::Denied(denied) => denied,
            other => panic!("not denied: {other:?}"),
        }
    }

    pub(super) fn settlement(&self, id: RowId, tokens: u64) -> Settlement {
        Settlement {
            id,
            charge: Charge::Tokens(tokens),
            outcome: Outcome::Answered,
            usage: None,
            note: None,
            now: self.now(),
        }
    }

    pub(super) async fn settle(&self, id: RowId, tokens: u64) -> Result<Settled, LedgerError> {
        self.store.settle(self.settlement(id, tokens)).await
    }

    /// Settles what can be settled.
    pub(super) async fn settled(&self, id: RowId, tokens: u64) -> Settled {
        self.settle(id, tokens).await.expect("the row can be settled")
    }

    pub(super) async fn sweep(&self) -> Vec<Row> {
        self.store.sweep(self.now(), AGE).await.expect("the store works")
    }

    pub(super) async fn total(&self, key: TotalKey) -> Total {
        self.store.totals(vec![key]).await.expect("the store works")[0]
    }

    /// What account `a` used today.
    pub(super) async fn today(&self) -> Total {
        let today = QuotaDay::containing_in(self.now(), self.rules.zone).date();
        self.total(of_account("a", Span::Day(today))).await
    }

    /// The row as the store has it now.
    pub(super) async fn row(&self, id: RowId) -> Option<Row> {
        let query = RowQuery { after: id.seq - 1, limit: 1, ..RowQuery::default() };
        self.rows(query).await.into_iter().find(|row| row.id == id)
    }

    pub(super) async fn rows(&self, query: RowQuery) -> Vec<Row> {
        self.store.rows(query).await.expect("the store works")
    }

    /// Every total agrees with its rows, and how many rows there are.
    pub(super) async fn balanced(&self) -> u64 {
        let report = self.store.audit().await.expect("the store works");
        let wrong: Vec<_> = report.mismatches.iter().map(ToString::to_string).collect();
        assert!(wrong.is_empty(), "totals do not agree with rows: {wrong:#?}");
        report.rows
    }
}

/// Runs `work` on tasks of its own, one for each of `inputs`, that all begin at the same moment.
pub(super) async fn at_once<I, T, F>(
    inputs: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> F,
) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let work: Vec<_> = inputs.into_iter().map(work).collect();
    let start = Arc::new(Barrier::new(work.len()));
    let mut tasks = JoinSet::new();
    for one in work {
        let start = Arc::clone(&start);
        tasks.spawn(async move {
            start.wait().await;
            one.await
        });
    }
    tasks.join_all().await
}

/// `rules` with one more account.
pub(super) fn account(
    rules: LedgerRules,
    name: &str,
    limits: impl IntoIterator<Item = Limit>,
) -> LedgerRules {
    rules.account(name, limits).expect("a name")
}

pub(super) fn tokens_of(tokens: u64) -> Ask {
    Ask::new(MODEL, tokens)
}

pub(super) fn of_account(account: &str, span: Span) -> TotalKey {
    let account = AccountId::new(account).expect("a name");
    TotalKey { scope: Scope::Account(account), span, model: None }
}

pub(super) fn moment(text: &str) -> DateTime<Utc> {
    text.parse().expect("a moment")
}

/// What is used, settled and reserved, of tokens and calls.
pub(super) fn used(total: Total) -> Amount {
    Amount::new(total.tokens.used(), total.calls.used())
}
