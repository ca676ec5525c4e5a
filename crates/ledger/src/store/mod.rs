//! What a ledger asks of the place where it keeps its rows.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use chrono::{DateTime, Utc};
use keywheel_core::Fingerprint;

use crate::{
    AccountId, AuditReport, Denied, Freeing, LedgerError, LimitStanding, Replayed, Reservation,
    Row, RowId, RowState, Settled, Settlement, StorageInfo, Total, TotalKey,
};

mod memory;
mod sqlite;

pub use memory::MemoryStore;
pub use sqlite::SqliteStore;

/// A future that a store returns. Boxed, so that stores can be used behind `dyn`.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, LedgerError>> + Send + 'a>>;

/// Is told how a settlement ended that nobody waits for.
pub type Told = Box<dyn FnOnce(Result<Settled, LedgerError>) + Send>;

/// The most rows that one [`sweep`](LedgerStore::sweep) or [`prune`](LedgerStore::prune) touches.
pub const BATCH: usize = 1_000;

/// Keeps rows and totals.
///
/// A store decides nothing: inside its transaction it reads what a function of
/// [`decide`](crate::decide) needs, calls it, and writes what comes back. The suite in
/// `conformance` (a feature) is the contract as tests.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use keywheel_ledger::{
///     AccountId, Ask, Charge, LedgerRules, LedgerStore, Limit, MemoryStore, Outcome, Period,
///     Reservation, Reserving, RowQuery, RowState, Scope, Settlement, Unit,
/// };
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let now = "2026-11-30T12:00:00Z".parse()?;
/// let limit = Limit::tokens(Period::Day, 1_000);
/// let rules = Arc::new(LedgerRules::new().account("triage", [limit.clone()])?);
/// let store = MemoryStore::new(now);
/// let mut freed = store.freeing().watch(); // hears of what is settled at less than was reserved
///
/// let ask = Reservation::new(AccountId::new("triage")?, Ask::new("m", 800), rules, now)?;
/// let Reserving::Granted(row, _) = store.reserve(ask).await? else { panic!("800 of 1,000") };
/// let key = limit.total_key(Scope::Account(row.account.clone()), row.day);
/// assert_eq!(store.totals(vec![key]).await?[0].of(Unit::Tokens).reserved, 800);
///
/// // Its holder says that it is alive, and then no more.
/// let age = Duration::from_secs(900);
/// assert_eq!(store.renew(row.id, now + age).await?, RowState::Reserved);
/// assert!(store.sweep(now + 2 * age, age).await?.is_empty());
/// assert_eq!(store.sweep(now + 3 * age, age).await?.len(), 1);
/// assert_eq!(store.rows(RowQuery::default()).await?[0].state, RowState::Swept);
/// assert!(store.recent(10).await?.is_empty()); // no answer came
///
/// // Nothing was used after all, and somebody who waits is told that there is room.
/// let released = Settlement {
///     id: row.id,
///     charge: Charge::Tokens(0),
///     outcome: Outcome::NotSent,
///     usage: None,
///     note: None,
///     now: now + 3 * age,
/// };
/// // Nobody would have to wait for that, where the store has a thread of its own. This one has none.
/// let left = store.settle_unattended(released, Box::new(|settled| drop(settled)));
/// let (released, _told) = left.expect("it comes back");
/// store.settle(released).await?;
/// freed.changed().await;
///
/// let year = Duration::from_secs(365 * 86_400);
/// assert_eq!(store.prune(now + year, year).await?, 1);
/// assert!(store.audit().await?.is_balanced()); // what was pruned still counts
/// # Ok(()) }
/// ```
///
/// # Contract
///
/// - Every operation is one transaction, isolated from all others on the same ledger, in this
///   process and in others: all of it is written or nothing. What was read to decide did not change
///   before the decision is written.
/// - An operation that returns `Ok` is durable: it survives `kill -9` and, where the storage does
///   too, a power cut. One that returns an error was not written, or it cannot be told; the store
///   reads anew before it decides again.
/// - Denials and repeats are values and write nothing.
/// - Time comes in as an argument. It may step backwards; nothing panics, no total turns negative.
///
/// # Cancel safety
///
/// Any future may be dropped at any await. A reservation whose caller is gone before the answer is
/// handed over is not written, or is [abandoned](crate::decide::abandon) soon after; at the latest
/// the sweep ends it. A settlement or turnover that was handed over is applied although nobody hears
/// of it; a turnover's next row is abandoned then, and its call
/// [taken back](crate::decide::take_call_back).
pub trait LedgerStore: fmt::Debug + Send + Sync {
    /// Where the store [tells](Freeing::tell) that less is used than before, once that is written: a
    /// settlement, a turnover, or a row given back ([`Delta::frees`](crate::Delta::frees)).
    fn freeing(&self) -> &Freeing;

    /// Where it lies, and how much it holds.
    fn info(&self) -> StoreFuture<'_, StoreInfo>;

    /// Reserves, if every limit lets it through.
    ///
    /// With an idempotency key: [`repeats`](crate::decide::repeats) is asked first, with the newest
    /// row of the account with that key. Then [`reserve`](crate::decide::reserve).
    fn reserve(&self, reservation: Reservation) -> StoreFuture<'_, Reserving>;

    /// Settles a row: [`settle`](crate::decide::settle).
    ///
    /// # Errors
    /// [`UnknownId`](crate::ErrorKind::UnknownId) if no row has this id, nonce included.
    fn settle(&self, settlement: Settlement) -> StoreFuture<'_, Settled>;

    /// The same for somebody who does not wait. A store that has a thread of its own takes it at once, calls `told`
    /// from there when it is done, and returns `None`. What it cannot take at once comes back, to be settled as others
    /// are: so does everything by default.
    fn settle_unattended(&self, settlement: Settlement, told: Told) -> Option<(Settlement, Told)> {
        Some((settlement, told))
    }

    /// Settles one row and reserves another: [`turn_over`](crate::decide::turn_over).
    fn turn_over(
        &self,
        settlement: Settlement,
        next: Reservation,
    ) -> StoreFuture<'_, (Settled, Reserving)>;

    /// Notes that the row's holder is alive ([`renew`](crate::decide::renew)) and says where the row
    /// is in its life.
    fn renew(&self, id: RowId, now: DateTime<Utc>) -> StoreFuture<'_, RowState>;

    /// Ends open rows whose holders have been silent for longer than `age`
    /// ([`sweep`](crate::decide::sweep)) and returns them as they are now: at most [`BATCH`], oldest
    /// first. Fewer than that: none is left. Of two sweepers each row is returned to one.
    fn sweep(&self, now: DateTime<Utc>, age: Duration) -> StoreFuture<'_, Vec<Row>>;

    /// Removes rows that [`prune`](crate::decide::prune) lets go: at most [`BATCH`]. Returns how many
    /// it removed; fewer than [`BATCH`]: none is left.
    fn prune(&self, now: DateTime<Utc>, keep: Duration) -> StoreFuture<'_, usize>;

    /// Where these totals stand, in the order of the keys and in one snapshot. One that was never
    /// written is [`Total::default`].
    fn totals(&self, keys: Vec<TotalKey>) -> StoreFuture<'_, Vec<Total>>;

    /// The rows that `query` asks for, in the order of their ids.
    fn rows(&self, query: RowQuery) -> StoreFuture<'_, Vec<Row>>;

    /// The newest `count` rows that were answered with usage, newest first: what the correction of
    /// estimates is rebuilt from.
    fn recent(&self, count: usize) -> StoreFuture<'_, Vec<Row>>;

    /// Compares the rows with every total, in one snapshot, with an
    /// [`Auditor`](crate::audit::Auditor).
    fn audit(&self) -> StoreFuture<'_, AuditReport>;
}

/// What became of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Reserving {
    /// The row that was written, and the fullest of the limits that apply, this row counted in;
    /// `None` if there is none.
    Granted(Box<Row>, Option<LimitStanding>),
    /// A limit does not let it through.
    Denied(Denied),
    /// It was made before.
    Replayed(Replayed),
}

/// What a store says about itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct StoreInfo {
    /// Where it lies.
    pub storage: StorageInfo,
    /// How many rows it holds.
    pub rows: u64,
    /// How many of them are open.
    pub open: u64,
}

/// Which rows are asked for. Everything that is `None` lets every row through.
///
/// ```
/// use keywheel_ledger::{RowQuery, RowState};
///
/// let swept = RowQuery { state: Some(RowState::Swept), ..RowQuery::default() };
/// assert_eq!(swept.limit, 1_000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowQuery {
    /// Of this account.
    pub account: Option<AccountId>,
    /// Of this model.
    pub model: Option<String>,
    /// With this key.
    pub key: Option<Fingerprint>,
    /// In this state.
    pub state: Option<RowState>,
    /// With this request id.
    pub request_id: Option<String>,
    /// Reserved at this moment or later.
    pub from: Option<DateTime<Utc>>,
    /// Reserved before this moment.
    pub until: Option<DateTime<Utc>>,
    /// With a place after this one ([`RowId::seq`]): the last row of the page before.
    pub after: u64,
    /// At most so many. Defaults to 1,000.
    pub limit: usize,
}

impl Default for RowQuery {
    fn default() -> Self {
        Self {
            account: None,
            model: None,
            key: None,
            state: None,
            request_id: None,
            from: None,
            until: None,
            after: 0,
            limit: 1_000,
        }
    }
}

impl RowQuery {
    /// Whether `row` is asked for, apart from the limit.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel_ledger::{AccountId, Ask, LedgerRules, Reservation, Row, RowId};
    /// use keywheel_ledger::{RowQuery, RowState};
    ///
    /// # let rules = Arc::new(LedgerRules::new());
    /// # let now = "2026-11-30T12:00:00Z".parse().expect("a moment");
    /// # let ask = Reservation::new(AccountId::new("triage")?, Ask::new("m", 800), rules, now)?;
    /// let row = Row::reserved(RowId::fresh(1), &ask);
    /// let open = RowQuery { state: Some(RowState::Reserved), ..RowQuery::default() };
    /// assert!(open.matches(&row));
    /// assert!(!RowQuery { until: Some(now), ..open }.matches(&row));
    /// # Ok::<(), keywheel_ledger::LedgerError>(())
    /// ```
    #[must_use]
    pub fn matches(&self, row: &Row) -> bool {
        self.account.as_ref().is_none_or(|account| *account == row.account)
            && self.model.as_ref().is_none_or(|model| **model == *row.model)
            && self.key.is_none_or(|key| row.key == Some(key))
            && self.state.is_none_or(|state| state == row.state)
            && self.request_id.as_ref().is_none_or(|id| *id == row.request_id)
            && self.from.is_none_or(|from| row.reserved_at >= from)
            && self.until.is_none_or(|until| row.reserved_at < until)
            && row.id.seq > self.after
    }
}
