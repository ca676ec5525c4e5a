//! The guard that owns a reservation.

use std::task::{Context, Waker};

use chrono::{DateTime, Utc};
use keywheel_core::Usage;
use tokio::runtime::Handle;

use crate::{
    Amount, Ask, Denied, Ledger, LedgerError, LimitStanding, Outcome, Replayed, Row, RowId,
    RowState, Settled, decide::Charge,
};

/// What became of an ask.
#[derive(Debug)]
#[must_use = "a reservation that nobody settles stays charged until the sweep"]
pub enum Reserved {
    /// It is granted: send, then settle.
    Held(Hold),
    /// A limit does not let it through: do not send.
    Denied(Denied),
    /// It was made before: do not send.
    Replayed(Replayed),
}

impl Reserved {
    /// The hold, if the ask was granted.
    #[must_use]
    pub fn held(self) -> Option<Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Denied(_) | Self::Replayed(_) => None,
        }
    }

    /// Why not, if a limit stood in the way.
    #[must_use]
    pub fn denied(self) -> Option<Denied> {
        match self {
            Self::Denied(denied) => Some(denied),
            Self::Held(_) | Self::Replayed(_) => None,
        }
    }
}

/// Permission to send one attempt, charged at its estimate until it is settled.
///
/// It holds no lock and no connection. Dropped without [`settle`](Self::settle),
/// [`release`](Self::release) or [`turn_over`](Self::turn_over) it stays charged at its estimate;
/// after 900 seconds without [`renew`](Self::renew) the sweep makes that final. That is on purpose:
/// whoever drops it in a panic or by cancelling a future may have sent the request.
///
/// ```
/// # use keywheel_ledger::{Amount, Ask, Ledger, LedgerError, RowState};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
/// # let ledger = Ledger::builder().account("chat", []).in_memory().open().await?;
/// let hold = ledger.reserve("chat", Ask::new("m", 800)).await?.held().expect("no limit");
/// assert_eq!(hold.reserved(), Amount::new(800, 1));
/// assert_eq!(hold.reserved_at(), hold.row().reserved_at);
/// assert_eq!(hold.renew().await?, RowState::Reserved); // from time to time in a long stream
/// // Nobody waits for the answer any more, and the request was not sent.
/// assert_eq!(hold.release().await?.charged, Amount::ZERO);
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// A future of `settle`, `release` or `turn_over` that is dropped either had no effect or all of
/// it; in the first case the row is ended by the sweep, and [`Ledger::settle`] with the
/// [`id`](Self::id) still works. `renew` may be dropped and called again.
#[derive(Debug)]
#[must_use = "a reservation that nobody settles stays charged until the sweep"]
pub struct Hold {
    ledger: Ledger,
    row: Box<Row>,
    standing: Option<LimitStanding>,
}

impl Hold {
    pub(crate) const fn new(
        ledger: Ledger,
        row: Box<Row>,
        standing: Option<LimitStanding>,
    ) -> Self {
        Self { ledger, row, standing }
    }

    /// The row's id. Kept with the request, it allows a settlement from elsewhere.
    #[must_use]
    pub const fn id(&self) -> RowId {
        self.row.id
    }

    /// What is reserved.
    #[must_use]
    pub const fn reserved(&self) -> Amount {
        self.row.amount()
    }

    /// The row as it was when it was reserved.
    #[must_use]
    pub const fn row(&self) -> &Row {
        &self.row
    }

    /// When it was reserved, by the ledger's clock.
    #[must_use]
    pub const fn reserved_at(&self) -> DateTime<Utc> {
        self.row.reserved_at
    }

    /// How full the fullest of the limits is that hold for it, with this reservation counted in, as it
    /// was when it was made; `None` if no limit does. Fullest by the share of its cap, and of those
    /// that are alike the first in the order of the rules.
    ///
    /// ```
    /// # use keywheel_ledger::{Ask, Ledger, LedgerError, Limit, Period, Scope};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// let ledger = Ledger::builder()
    ///     .account("chat", [Limit::tokens(Period::Day, 1_000)])
    ///     .allowance([Limit::calls(Period::Month, 100)])
    ///     .in_memory()
    ///     .open()
    ///     .await?;
    /// let hold = ledger.reserve("chat", Ask::new("m", 800)).await?.held().expect("it fits");
    /// let fullest = hold.standing().expect("there are limits");
    /// assert_eq!((fullest.percent(), fullest.left()), (80, 200)); // and 1 % of the month's calls
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub const fn standing(&self) -> Option<&LimitStanding> {
        self.standing.as_ref()
    }

    /// Charges what was really used: a number of tokens, a [`Usage`], an [`Outcome`] without usage,
    /// or an [`Actual`]. A usage costs its total, or its parts where they come to more, so that its
    /// total may be left out ([`Usage::charged`]).
    ///
    /// ```
    /// # use keywheel_ledger::{Ask, Ledger, LedgerError, Usage};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// # let ledger = Ledger::builder().account("chat", []).in_memory().open().await?;
    /// let hold = ledger.reserve("chat", Ask::new("m", 800)).await?.held().expect("no limit");
    /// hold.settle(Usage { input: 90, output: 10, ..Usage::default() }).await?;
    /// assert_eq!(ledger.usage("chat").await?.day.tokens.settled, 100);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Ledger::settle`].
    pub async fn settle(self, actual: impl Into<Actual>) -> Result<Settled, LedgerError> {
        let Self { ledger, row, .. } = self;
        ledger.settle_row(row.id, Some(&row), actual.into()).await
    }

    /// Charges nothing, not even a call.
    ///
    /// # Errors
    /// As [`Ledger::settle`].
    pub async fn release(self) -> Result<Settled, LedgerError> {
        self.settle(Actual::released()).await
    }

    /// Settles this attempt and reserves the next in one transaction, so that a cap holds without a
    /// gap between them. The logical call and its idempotency key move on to the next attempt.
    ///
    /// `next` says the model, the estimate and the key; its number of calls and its idempotency key
    /// are this row's, and so are its request id and note unless it has some of its own. If it is
    /// denied, this attempt is settled all the same.
    ///
    /// ```
    /// # use keywheel_ledger::{Ask, Ledger, LedgerError, Outcome, Usage};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// # let ledger = Ledger::builder().account("chat", []).in_memory().open().await?;
    /// # let usage = Usage::new(100, 20);
    /// let hold = ledger.reserve("chat", Ask::new("m", 800)).await?.held().expect("no limit");
    /// // The first key got a 503 …
    /// let turned = hold.turn_over(Outcome::ServerError, Ask::new("m", 800)).await?;
    /// // … and the second an answer.
    /// turned.next.held().expect("no limit").settle(usage).await?;
    /// let today = ledger.usage("chat").await?.day;
    /// assert_eq!((today.tokens.settled, today.calls.settled), (120, 1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Ledger::settle`] and [`Ledger::reserve`]; then neither happened, or it cannot be told,
    /// and this attempt is left to the sweep. [`Ledger::settle`] with its [`id`](Self::id) may still
    /// settle it.
    pub async fn turn_over(
        self,
        actual: impl Into<Actual>,
        next: Ask,
    ) -> Result<TurnedOver, LedgerError> {
        let Self { ledger, row, .. } = self;
        ledger.turn_over_row(&row, actual.into(), next).await
    }

    /// The same as [`settle`](Self::settle) for those who cannot wait, such as destructors.
    ///
    /// What the store can do at once is done before this returns: all of it in memory, and in a file
    /// handing it to the thread that writes, whatever becomes of the caller. If its queue is full it
    /// goes on in the background, where there is a tokio runtime; without one the row is left to the
    /// sweep. A failure is logged.
    ///
    /// ```
    /// # use keywheel_ledger::{Ask, Ledger, LedgerError, Outcome};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// # let ledger = Ledger::builder().account("chat", []).in_memory().open().await?;
    /// let hold = ledger.reserve("chat", Ask::new("m", 800)).await?.held().expect("no limit");
    /// hold.settle_detached(Outcome::CutShort); // dropped by the reader
    /// assert_eq!(ledger.usage("chat").await?.day.tokens.settled, 800);
    /// # Ok(()) }
    /// ```
    pub fn settle_detached(self, actual: impl Into<Actual>) {
        let Self { ledger, row, .. } = self;
        ledger.settle_unattended(row.id, Some(row), actual.into());
    }

    /// Says that the holder is alive, so that the sweep leaves the row alone: for streams that last
    /// longer than the sweep's age. Often is not necessary: every few minutes will do.
    ///
    /// Anything but [`RowState::Reserved`] means that the row has ended already, most likely by the
    /// sweep. It can be settled nevertheless.
    ///
    /// # Errors
    /// If the store cannot write.
    pub async fn renew(&self) -> Result<RowState, LedgerError> {
        self.ledger.renew(self.row.id).await
    }
}

/// Polls `future` once, and leaves the rest of it to the runtime, if there is one.
pub(crate) fn detach(future: impl Future<Output = ()> + Send + 'static) {
    let mut future = Box::pin(future);
    let mut cx = Context::from_waker(Waker::noop());
    if future.as_mut().poll(&mut cx).is_pending()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(future);
    }
}

/// What [`Hold::turn_over`] did.
#[derive(Debug)]
#[must_use = "a reservation that nobody settles stays charged until the sweep"]
pub struct TurnedOver {
    /// The attempt that was settled.
    pub settled: Settled,
    /// The next one.
    pub next: Reserved,
}

/// What an attempt really cost, or what is known of it.
///
/// ```
/// use keywheel_ledger::{Actual, Outcome, Usage};
///
/// let figure = Actual::from(120);
/// let usage = Actual::from(Usage::new(100, 20));
/// let timeout = Actual::from(Outcome::Lost);
/// let dropped = Actual::from(Outcome::CutShort).usage(None).note("the user closed the page");
/// // A figure of one's own, for an answer that broke off; and an attempt that was never sent.
/// let partial = Actual::from(40).outcome(Outcome::CutShort);
/// let unsent = Actual::released();
/// assert_ne!(partial, unsent);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actual {
    pub(crate) outcome: Outcome,
    pub(crate) usage: Option<Usage>,
    /// The caller's own figure, in the place of the charging table's.
    pub(crate) tokens: Option<u64>,
    pub(crate) note: Option<String>,
}

impl Actual {
    /// Nothing was used.
    #[must_use]
    pub const fn released() -> Self {
        Self { outcome: Outcome::NotSent, usage: None, tokens: Some(0), note: None }
    }

    /// With another outcome.
    #[must_use]
    pub const fn outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }

    /// With the usage that was seen, if any.
    #[must_use]
    pub const fn usage(mut self, usage: Option<Usage>) -> Self {
        self.usage = usage;
        self
    }

    /// With a note in the place of the row's.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    pub(crate) fn charge(&self, charge_timeouts: bool) -> Charge {
        self.tokens.map_or(Charge::ByOutcome { charge_timeouts }, Charge::Tokens)
    }
}

impl From<u64> for Actual {
    /// So many tokens, whatever the charging table says; 0 is a release.
    fn from(tokens: u64) -> Self {
        Self { tokens: Some(tokens), ..Self::from(Outcome::Answered) }
    }
}

impl From<Usage> for Actual {
    /// Answered, with this usage.
    fn from(usage: Usage) -> Self {
        Self::from(Outcome::Answered).usage(Some(usage))
    }
}

impl From<Outcome> for Actual {
    /// This outcome, without usage.
    fn from(outcome: Outcome) -> Self {
        Self { outcome, usage: None, tokens: None, note: None }
    }
}
