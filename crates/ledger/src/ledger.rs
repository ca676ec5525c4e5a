//! The handle that callers use.

mod upkeep;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use keywheel_core::Clock;

use crate::{
    AccountId, Actual, Ask, AuditReport, Estimate, Freed, Hold, LedgerBuilder, LedgerError,
    LedgerRules, LedgerStore, Outcome, Overcommitment, Reservation, Reserved, Reserving, Row,
    RowId, RowQuery, RowState, Settled, SettledHow, Settlement, StoreInfo, TurnedOver, Usage,
    background::Background, charge::is_beyond_belief, correction::Corrections, hold::detach,
};

pub use upkeep::Swept;

/// Reserves before spending, and settles after. Cheap to clone; clones share one ledger.
///
/// ```
/// use keywheel_ledger::{Ask, Ledger, Limit, Period, Reserved};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), keywheel_ledger::LedgerError> {
/// let ledger = Ledger::builder()
///     .account("triage", [Limit::tokens(Period::Day, 1_000)])
///     .in_memory()
///     .open()
///     .await?;
///
/// let hold = match ledger.reserve("triage", Ask::new("gemini-3.5-flash-lite", 800)).await? {
///     Reserved::Held(hold) => hold,
///     Reserved::Denied(denied) => panic!("{denied}"),
///     Reserved::Replayed(replayed) => panic!("{replayed}"),
/// };
/// // … the request is sent, and its reply says what it used …
/// hold.settle(120).await?;
/// assert_eq!(ledger.usage("triage").await?.day.tokens.used(), 120);
/// # Ok(()) }
/// ```
///
/// # Fails closed
/// An error never permits sending. Neither do [`Reserved::Denied`] and [`Reserved::Replayed`].
///
/// # Cancel safety
/// Every future may be dropped at any await. A `reserve` that is dropped leaves no row, or one that
/// is released at once or ended by the sweep at the latest. A `settle` that is dropped had no effect
/// or all of it. What only reads has no effect.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn LedgerStore>,
    pub(crate) clock: Arc<dyn Clock>,
    rules: RwLock<Arc<LedgerRules>>,
    corrections: Arc<Mutex<Corrections>>,
    pub(crate) settings: Settings,
    background: OnceLock<Background>,
}

/// How a ledger keeps itself tidy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) sweep_after: Duration,
    pub(crate) sweep_every: Duration,
    pub(crate) keep_rows: Duration,
}

impl Ledger {
    /// A ledger to be described and opened.
    pub fn builder() -> LedgerBuilder {
        LedgerBuilder::new()
    }

    pub(crate) fn new(
        store: Arc<dyn LedgerStore>,
        clock: Arc<dyn Clock>,
        rules: LedgerRules,
        settings: Settings,
    ) -> Self {
        let inner = Inner {
            store,
            clock,
            rules: RwLock::new(Arc::new(rules)),
            corrections: Arc::default(),
            settings,
            background: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Asks for permission to send one attempt that may cost `ask`, on behalf of `account`.
    ///
    /// All limits that apply, the account's and the allowance's, let it through, or nothing is
    /// written. A refusal is a value that says which limit, how full it is, and when it begins anew.
    ///
    /// # Errors
    /// [`UnknownAccount`](crate::ErrorKind::UnknownAccount),
    /// [`DifferentAsk`](crate::ErrorKind::DifferentAsk), [`Invalid`](crate::ErrorKind::Invalid), and
    /// whatever keeps the store from writing. None of them permits sending.
    ///
    /// # Cancel safety
    /// Dropped at its await, it leaves no row, or one that is released as soon as the store notices,
    /// and by the sweep at the latest.
    pub async fn reserve(&self, account: &str, ask: Ask) -> Result<Reserved, LedgerError> {
        let reservation = self.reservation(account, ask)?;
        let reserving = self.inner.store.reserve(reservation).await?;
        Ok(self.hand_out(reserving))
    }

    /// Charges a row what was really used, once: for those who have its id and not its [`Hold`].
    ///
    /// The same number of tokens again changes nothing. A row that was swept takes the true figure
    /// once. More than was reserved is charged and told as [`Settled::overrun`]. The row counts in the
    /// day in which it was reserved.
    ///
    /// # Errors
    /// [`UnknownId`](crate::ErrorKind::UnknownId),
    /// [`SettledOtherwise`](crate::ErrorKind::SettledOtherwise), and whatever keeps the store from
    /// writing.
    ///
    /// # Cancel safety
    /// Dropped at its await, it had no effect or all of it. It may be called again with the same
    /// figure.
    pub async fn settle(
        &self,
        id: RowId,
        actual: impl Into<Actual>,
    ) -> Result<Settled, LedgerError> {
        self.settle_row(id, None, actual.into()).await
    }

    /// The same for those who cannot wait: see [`Hold::settle_detached`].
    pub fn settle_detached(&self, id: RowId, actual: impl Into<Actual>) {
        self.settle_unattended(id, None, actual.into());
    }

    /// Charges a row nothing.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    /// As [`settle`](Self::settle).
    pub async fn release(&self, id: RowId) -> Result<Settled, LedgerError> {
        self.settle(id, Actual::released()).await
    }

    /// Says that the holder of a row is alive: see [`Hold::renew`].
    ///
    /// # Errors
    /// [`UnknownId`](crate::ErrorKind::UnknownId), and whatever keeps the store from writing.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn renew(&self, id: RowId) -> Result<RowState, LedgerError> {
        self.inner.store.renew(id, self.inner.clock.now()).await
    }

    /// What a request by `account` to `model` may cost: its input corrected by how far estimates for
    /// this model were off (see [`correction`](Self::correction)), and its largest output times
    /// `candidates`.
    ///
    /// `input` is what the request was estimated at (`keywheel_core::estimate`). `max_output` is the
    /// request's `maxOutputTokens`; without one it is the account's `default_max_output`, and has to
    /// be set into the request, or the bound is none.
    ///
    /// ```
    /// # use keywheel_ledger::{Ledger, LedgerError};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// let ledger = Ledger::builder().account("chat", []).in_memory().open().await?;
    /// let estimate = ledger.estimate("chat", "gemini-3.5-flash-lite", 1_000, None, 1);
    /// assert_eq!(estimate.total(), 1_000 + 8_192);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn estimate(
        &self,
        account: &str,
        model: &str,
        input: u64,
        max_output: Option<u64>,
        candidates: u64,
    ) -> Estimate {
        let output = max_output.unwrap_or_else(|| self.rules().default_max_output(account));
        let output = output.saturating_mul(candidates.max(1));
        Estimate::new(input, output).corrected(self.correction(model))
    }

    /// What input estimates for `model` are multiplied by: the p99 of actual over estimated among
    /// the latest 512 answers, from 1 to 8; 1 until 50 were seen.
    ///
    /// ```
    /// # use keywheel_ledger::{Ask, Estimate, Ledger, LedgerError, RowQuery, Usage};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// # let ledger = Ledger::builder().account("chat", []).in_memory().open().await?;
    /// for _ in 0..50 {
    ///     let ask = Ask::new("m", Estimate::new(100, 20));
    ///     let hold = ledger.reserve("chat", ask).await?.held().expect("no limit");
    ///     hold.settle(Usage { input: 150, output: 20, total: 170, ..Usage::default() }).await?;
    /// }
    /// assert_eq!(ledger.correction("m"), 1.5);
    /// assert_eq!(ledger.estimate("chat", "m", 1_000, Some(20), 1).total(), 1_520);
    /// // The same in reports: how far estimates were off, which rows used more than reserved.
    /// assert_eq!(ledger.estimates(RowQuery::default()).await?[0].input_error_median, Some(1.5));
    /// assert_eq!(ledger.overruns(RowQuery::default()).await?.len(), 50);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn correction(&self, model: &str) -> f64 {
        self.corrections().factor(model)
    }

    /// How long a holder may be silent until the sweep ends its row. Whoever may need longer calls
    /// [`renew`](Hold::renew) several times in it.
    #[must_use]
    pub fn sweep_after(&self) -> Duration {
        self.inner.settings.sweep_after
    }

    /// The rules that hold now.
    #[must_use]
    pub fn rules(&self) -> Arc<LedgerRules> {
        Arc::clone(&self.inner.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears from now on when there may be room again where an ask was denied: after whatever left
    /// less used than before has been written by this process, a settlement, a release, or a
    /// reservation given back whose caller went away; and after [`set_rules`](Self::set_rules). Not of
    /// other processes on the same ledger, and not of days that turn.
    ///
    /// ```
    /// # use keywheel_ledger::{Ask, Ledger, LedgerError, Limit, Period};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// # let day = Limit::tokens(Period::Day, 1_000);
    /// # let ledger = Ledger::builder().account("triage", [day]).in_memory().open().await?;
    /// let open = ledger.reserve("triage", Ask::new("m", 600)).await?.held().expect("it fits");
    /// let mut freed = ledger.freed(); // before the ask that may be denied, to miss nothing
    /// let denied = ledger.reserve("triage", Ask::new("m", 500)).await?.denied().expect("too much");
    /// assert!(denied.may_fit_once_others_settle());
    ///
    /// open.settle_detached(100);
    /// freed.changed().await;
    /// let _fits = ledger.reserve("triage", Ask::new("m", 500)).await?.held().expect("it fits");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn freed(&self) -> Freed {
        self.inner.store.freeing().watch()
    }

    /// Makes `rules` hold from now on, in this process. An ask that was made before, and waits for
    /// the store, is decided by the rules of its moment. What is reserved stays reserved; a cap below
    /// what is used denies until enough has settled or its period begins anew. Returns, and logs,
    /// which limits of the allowance are given out by more than 90 %.
    ///
    /// ```
    /// # use keywheel_ledger::{Ask, Ledger, LedgerError, Limit, Period};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// # let day = Limit::tokens(Period::Day, 1_000);
    /// # let ledger = Ledger::builder().account("triage", [day]).in_memory().open().await?;
    /// let now = ledger.rules().as_ref().clone();
    /// let less = now.account("triage", [Limit::tokens(Period::Day, 500)])?;
    /// assert!(ledger.set_rules(less).is_empty()); // no allowance is given out too far
    /// assert!(ledger.reserve("triage", Ask::new("m", 800)).await?.denied().is_some());
    /// # Ok(()) }
    /// ```
    pub fn set_rules(&self, rules: LedgerRules) -> Vec<Overcommitment> {
        let warnings = warn_of_overcommitments(&rules);
        *self.inner.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        self.inner.store.freeing().tell();
        warnings
    }

    /// The rows that `query` asks for, oldest first, one page of them.
    ///
    /// # Errors
    /// Whatever keeps the store from reading.
    pub async fn rows(&self, query: RowQuery) -> Result<Vec<Row>, LedgerError> {
        self.inner.store.rows(query).await
    }

    /// Adds up all rows and compares the sums with every total.
    ///
    /// # Errors
    /// Whatever keeps the store from reading.
    pub async fn audit(&self) -> Result<AuditReport, LedgerError> {
        self.inner.store.audit().await
    }

    /// Where the ledger lies, and how much it holds.
    ///
    /// # Errors
    /// Whatever keeps the store from reading.
    pub async fn info(&self) -> Result<StoreInfo, LedgerError> {
        self.inner.store.info().await
    }

    pub(crate) fn store(&self) -> &dyn LedgerStore {
        &*self.inner.store
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.inner.clock
    }

    /// Sweeps, learns from the newest rows, and starts what runs by itself.
    pub(crate) async fn begin(&self) -> Result<(), LedgerError> {
        self.inner.sweep().await?;
        let rows = self.inner.store.recent(RECENT).await?;
        let mut corrections = self.corrections();
        for row in rows.iter().rev() {
            let usage = row.usage.as_ref();
            if let Some(usage) = usage.filter(|it| !is_beyond_belief(it, row.amount())) {
                corrections.observe(&row.model, row.estimate.guess, usage);
            }
        }
        drop(corrections);
        if let Some(background) = Background::start(&self.inner) {
            // A ledger is begun once.
            let _ = self.inner.background.set(background);
        }
        Ok(())
    }

    pub(crate) async fn settle_row(
        &self,
        id: RowId,
        row: Option<&Row>,
        actual: Actual,
    ) -> Result<Settled, LedgerError> {
        let settlement = self.settlement(id, actual);
        let (outcome, seen) = (settlement.outcome, settlement.usage);
        let settled = self.inner.store.settle(settlement).await?;
        learn(&self.inner.corrections, settled, row, outcome, seen);
        Ok(settled)
    }

    /// Settles for somebody who does not wait.
    pub(crate) fn settle_unattended(&self, id: RowId, row: Option<Box<Row>>, actual: Actual) {
        let settlement = self.settlement(id, actual);
        let (outcome, seen) = (settlement.outcome, settlement.usage);
        // Not the ledger: the store is not to be kept alive by what waits in it.
        let corrections = Arc::clone(&self.inner.corrections);
        let told = move |settled: Result<Settled, LedgerError>| match settled {
            Ok(settled) => learn(&corrections, settled, row.as_deref(), outcome, seen),
            Err(error) => {
                tracing::warn!(%error, "an attempt could not be settled; the sweep charges its estimate");
            }
        };
        let left = self.inner.store.settle_unattended(settlement, Box::new(told));
        let Some((settlement, told)) = left else { return };
        let ledger = self.clone();
        detach(async move { told(ledger.inner.store.settle(settlement).await) });
    }

    pub(crate) async fn turn_over_row(
        &self,
        row: &Row,
        actual: Actual,
        mut next: Ask,
    ) -> Result<TurnedOver, LedgerError> {
        next.calls = row.calls;
        next.idempotency.clone_from(&row.idempotency);
        if next.request_id.is_empty() {
            next.request_id.clone_from(&row.request_id);
        }
        if next.note.is_empty() {
            next.note.clone_from(&row.note);
        }
        let next = self.reservation(row.account.as_str(), next)?;
        let settlement = self.settlement(row.id, actual);
        let (outcome, seen) = (settlement.outcome, settlement.usage);
        let (settled, reserving) = self.inner.store.turn_over(settlement, next).await?;
        learn(&self.inner.corrections, settled, Some(row), outcome, seen);
        Ok(TurnedOver { settled, next: self.hand_out(reserving) })
    }

    fn reservation(&self, account: &str, ask: Ask) -> Result<Reservation, LedgerError> {
        let rules = self.rules();
        let account = match rules.accounts.get_key_value(account) {
            Some((known, _)) => known.clone(),
            None => AccountId::new(account)?,
        };
        Reservation::new(account, ask, rules, self.inner.clock.now())
    }

    fn settlement(&self, id: RowId, actual: Actual) -> Settlement {
        Settlement {
            id,
            charge: actual.charge(self.rules().charge_timeouts),
            outcome: actual.outcome,
            usage: actual.usage,
            note: actual.note,
            now: self.inner.clock.now(),
        }
    }

    fn hand_out(&self, reserving: Reserving) -> Reserved {
        match reserving {
            Reserving::Granted(row, fullest) => {
                Reserved::Held(Hold::new(self.clone(), row, fullest))
            }
            Reserving::Denied(denied) => {
                tracing::debug!(%denied, "denied");
                Reserved::Denied(denied)
            }
            Reserving::Replayed(replayed) => Reserved::Replayed(replayed),
        }
    }

    fn corrections(&self) -> MutexGuard<'_, Corrections> {
        self.inner.corrections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a settlement says of the estimates.
fn learn(
    corrections: &Mutex<Corrections>,
    settled: Settled,
    row: Option<&Row>,
    outcome: Outcome,
    seen: Option<Usage>,
) {
    if settled.overrun() > 0 {
        tracing::debug!(row = %settled.id, overrun = settled.overrun(), "used more than reserved");
    }
    if settled.how == SettledHow::Again {
        return;
    }
    let Some(usage) = seen else { return };
    if is_beyond_belief(&usage, settled.reserved) {
        tracing::warn!(
            row = %settled.id,
            reported = usage.charged(),
            reserved = settled.reserved.tokens,
            charged = settled.charged.tokens,
            "a usage was reported that no request can have; it is kept with the row and not believed"
        );
        return;
    }
    // Only an answer that came to its end is what estimates are compared with.
    if let (Some(row), Outcome::Answered) = (row, outcome) {
        let mut corrections = corrections.lock().unwrap_or_else(PoisonError::into_inner);
        corrections.observe(&row.model, row.estimate.guess, &usage);
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("store", &self.inner.store).finish_non_exhaustive()
    }
}

/// How many of the newest rows the corrections are rebuilt from.
const RECENT: usize = 2_000;

pub(crate) fn warn_of_overcommitments(rules: &LedgerRules) -> Vec<Overcommitment> {
    let found = rules.overcommitments();
    found.iter().for_each(|one| tracing::warn!(percent = one.percent(), "{one}"));
    found
}
