//! Every decision the ledger takes, as pure functions of rows, totals and the time.
//!
//! Stores call them inside their transactions and write what comes back: a row, and a [`Delta`]
//! that is added to each of the row's [`total_keys`](Row::total_keys). No store decides anything
//! itself, so all of them decide alike.
//!
//! A row's life, as a store leads it:
//!
//! ```
//! use std::{collections::HashMap, sync::Arc, time::Duration};
//! use keywheel_ledger::{
//!     AccountId, Ask, Charge, Delta, LedgerRules, Limit, Outcome, Period, Reservation, Row, RowId,
//!     RowState, Settlement, Total, TotalKey, Unit,
//!     decide::{self, Decision, Settling},
//! };
//!
//! let now = "2026-11-30T12:00:00Z".parse()?;
//! let limit = Limit::tokens(Period::Day, 1_000);
//! let rules = Arc::new(LedgerRules::new().account("triage", [limit])?);
//! let ask = |tokens| {
//!     let ask = Ask::new("m", tokens).idempotent("message-7");
//!     Reservation::new(AccountId::new("triage")?, ask, Arc::clone(&rules), now)
//! };
//! let mut totals: HashMap<TotalKey, Total> = HashMap::new();
//! let mut add = |row: &Row, delta: Delta| {
//!     for key in row.total_keys() {
//!         let total = totals.entry(key).or_default();
//!         *total = total.after(delta);
//!     }
//!     totals.clone()
//! };
//!
//! // The key was not used before, and the limit has room.
//! assert_eq!(decide::repeats(None, &ask(800)?)?, None);
//! let Decision::Grant(delta, tightest) = decide::reserve(&ask(800)?, |_| Total::default())? else {
//!     panic!("800 of 1,000");
//! };
//! assert_eq!(tightest.expect("there is a limit").left(), 200);
//! assert!(!delta.frees()); // on the contrary
//! let row = Row::reserved(RowId::fresh(1), &ask(800)?);
//! let totals = add(&row, delta);
//! let key = &row.total_keys()[0]; // the account's, of the day
//! assert_eq!(totals[key].of(Unit::Tokens).reserved, 800);
//!
//! // Now it is a repeat, and another one of 300 finds no room.
//! assert_eq!(decide::repeats(Some(&row), &ask(800)?)?.unwrap().id, row.id);
//! let denied = decide::reserve(&ask(300)?, |key| totals[key])?;
//! assert!(matches!(denied, Decision::Denied(_)));
//!
//! // Settled once; the same figure again changes nothing.
//! let figure = Settlement {
//!     id: row.id,
//!     charge: Charge::Tokens(120),
//!     outcome: Outcome::Answered,
//!     usage: None,
//!     note: None,
//!     now,
//! };
//! let settling = decide::settle(&row, &figure)?;
//! assert_eq!(settling.settled().charged.tokens, 120);
//! let Settling::Write(settled, ..) = settling else { panic!("it was open") };
//! assert!(matches!(decide::settle(&settled, &figure)?, Settling::Nothing(_)));
//!
//! // What else may become of an open row: renewed, swept, or abandoned.
//! let age = Duration::from_secs(900);
//! let later = now + 2 * age;
//! assert!(decide::is_silent(row.heard_of_at(), later, age));
//! let renewed = decide::renew(&row, later).expect("it is open");
//! assert!(decide::sweep(&renewed, later, age).is_none());
//! let (swept, _) = decide::sweep(&row, later, age).expect("it was not renewed");
//! assert_eq!((swept.state, swept.charged), (RowState::Swept, Some(row.amount())));
//! let (abandoned, _) = decide::abandon(&row, now);
//! assert_eq!(abandoned.state, RowState::Released);
//!
//! // An attempt that failed is turned over to the next: the call is the next one's ...
//! let charge = Charge::ByOutcome { charge_timeouts: true };
//! let failed = Settlement { charge, outcome: Outcome::Lost, ..figure };
//! let (settling, _) = decide::turn_over(&row, &failed, &ask(200)?, |_| Total::default())?;
//! let Settling::Write(first, ..) = settling else { panic!("it was open") };
//! assert_eq!(first.charged.unwrap().calls, 0);
//! // ... and comes back if nobody waits for that one any more.
//! let (first, _) = decide::take_call_back(&first).expect("it was sent");
//! assert_eq!(first.charged.unwrap().calls, 1);
//!
//! // Rows go after some time; limits begin anew.
//! let keep = 90 * Duration::from_secs(86_400);
//! assert!(decide::prune(&settled, now + keep, keep).is_some());
//! assert_eq!(decide::begins_anew(Period::Total, now, rules.zone), None);
//! let midnight = decide::begins_anew(Period::Day, now, rules.zone);
//! assert_eq!(midnight, Some("2026-12-01T08:00:00Z".parse()?)); // Pacific
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

use chrono::{DateTime, Datelike, TimeDelta, Utc};
use keywheel_core::{QuotaDay, Usage};

use crate::{
    Amount, Denied, ErrorKind, LedgerError, Limit, LimitStanding, Outcome, Period, Replayed,
    Reservation, Row, RowId, RowState, Scope, Settled, SettledHow, Span, Sum, Total, TotalKey,
    Unit, total::Delta,
};

/// How long a swept row is kept for a late settlement, at least: 7 days.
pub const KEEP_SWEPT: TimeDelta = TimeDelta::days(7);

/// How long an idempotency key is remembered after its row was settled: 24 hours.
pub const KEEP_IDEMPOTENCY: TimeDelta = TimeDelta::hours(24);

/// Whether a reservation is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// Every limit lets it through. Write [`Row::reserved`] and add the delta to its totals. Of the
    /// limits that apply, this is the fullest once that is done; `None` if there is none.
    Grant(Delta, Option<LimitStanding>),
    /// A limit does not. Write nothing.
    Denied(Denied),
}

/// How a row is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The row.
    pub id: RowId,
    /// What it is charged.
    pub charge: Charge,
    /// What became of the attempt.
    pub outcome: Outcome,
    /// What the provider reported, where it did.
    pub usage: Option<Usage>,
    /// What the caller wants to find in the row again; `None` keeps the note it has.
    pub note: Option<String>,
    /// When.
    pub now: DateTime<Utc>,
}

/// What a settlement charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// So many tokens, and the calls as reserved; 0 tokens is a release, which charges no call
    /// either.
    Tokens(u64),
    /// What the [charging table](crate::charge::charge) says, with or without `charge_timeouts`.
    ByOutcome {
        /// Whether an attempt that was sent and never answered is charged at its estimate.
        charge_timeouts: bool,
    },
}

/// What a settlement changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settling {
    /// Write this row in the place of the old one, and add the delta to its totals.
    Write(Box<Row>, Delta, Settled),
    /// The row is settled at this figure already. Write nothing.
    Nothing(Settled),
}

impl Settling {
    /// What the caller is told.
    #[must_use]
    pub const fn settled(&self) -> Settled {
        match self {
            Self::Write(_, _, settled) | Self::Nothing(settled) => *settled,
        }
    }
}

/// Decides about `reservation`: all limits that apply, or none.
///
/// `total` says where a total stands; one that was never written is [`Total::default`].
///
/// A limit is compared with what is used, settled and reserved together. It is left out if nothing
/// of its unit is asked for. Lowering a cap below what is used denies new asks and takes nothing
/// back.
///
/// # Errors
/// [`ErrorKind::UnknownAccount`], and [`ErrorKind::Invalid`] if the ledger's own total has no room
/// for the ask.
pub fn reserve(
    reservation: &Reservation,
    total: impl Fn(&TotalKey) -> Total,
) -> Result<Decision, LedgerError> {
    let Reservation { account, ask, rules, now, day } = reservation;
    let asked = ask.amount();
    let mut longest: Option<Denied> = None;
    let mut fullest: Option<(Scope, &Limit, Sum)> = None;
    for (scope, limit) in rules.limits_for(account, &ask.model)? {
        let asked = asked.of(limit.unit);
        let sum = total(&limit.total_key(scope.clone(), *day)).of(limit.unit);
        if asked == 0 {
            continue;
        }
        if sum.used().checked_add(asked).is_some_and(|used| used <= limit.cap) {
            let after = Sum { reserved: sum.reserved + asked, ..sum };
            if fullest
                .as_ref()
                .is_none_or(|(_, other, sum)| is_fuller((limit, after), (*other, *sum)))
            {
                fullest = Some((scope, limit, after));
            }
            continue;
        }
        let retry_at =
            (asked <= limit.cap).then(|| begins_anew(limit.period, *now, rules.zone)).flatten();
        let denied = Denied {
            scope,
            limit: limit.clone(),
            settled: sum.settled,
            reserved: sum.reserved,
            asked,
            retry_at,
        };
        if longest.as_ref().is_none_or(|other| holds_longer(&denied, other)) {
            longest = Some(denied);
        }
    }
    if let Some(denied) = longest {
        return Ok(Decision::Denied(denied));
    }
    let all = total(&TotalKey { scope: Scope::Whole, span: Span::Ever, model: None });
    for unit in [Unit::Tokens, Unit::Calls] {
        if all.of(unit).used().saturating_add(asked.of(unit)) > i64::MAX as u64 {
            let what = format!("the ledger cannot count {} more {unit}", asked.of(unit));
            return Err(LedgerError::new(ErrorKind::Invalid, what));
        }
    }
    let fullest = fullest.map(|(scope, limit, sum)| LimitStanding {
        scope,
        limit: limit.clone(),
        sum,
        begins_anew: begins_anew(limit.period, *now, rules.zone),
    });
    Ok(Decision::Grant(Delta::reserving(asked), fullest))
}

/// Whether `reservation` repeats an earlier one. `found` is the newest row of its account with its
/// idempotency key, if there is one.
///
/// # Errors
/// [`ErrorKind::DifferentAsk`] if the key was used for something else.
pub fn repeats(
    found: Option<&Row>,
    reservation: &Reservation,
) -> Result<Option<Replayed>, LedgerError> {
    let (Some(row), Some(asked)) = (found, &reservation.ask.idempotency) else { return Ok(None) };
    let forgotten = row.settled_at.is_some_and(|at| reservation.now - at >= KEEP_IDEMPOTENCY);
    if forgotten {
        return Ok(None);
    }
    if row.idempotency.as_ref().is_none_or(|first| first.content != asked.content) {
        let what = format!("the idempotency key was used for a different request (row {})", row.id);
        return Err(LedgerError::new(ErrorKind::DifferentAsk, what));
    }
    Ok(Some(Replayed::of(row)))
}

/// Settles `row` once. The same number of tokens again changes nothing; a swept row takes the true
/// figure once. More than was reserved is charged: it was spent.
///
/// # Errors
/// [`ErrorKind::SettledOtherwise`] if the row has another figure already.
pub fn settle(row: &Row, settlement: &Settlement) -> Result<Settling, LedgerError> {
    settle_with(row, settlement, CallsOf::This)
}

/// Settles one attempt and decides about the next, in one transaction.
///
/// The logical call moves on: if `next` is granted, the calls are charged to it and not to `row`.
/// If it is denied, `row` is settled all the same. An error means that neither happens. The
/// idempotency key of `next` is not looked up: it is the same call's.
///
/// # Errors
/// Those of [`settle`] and [`reserve`].
pub fn turn_over(
    row: &Row,
    settlement: &Settlement,
    next: &Reservation,
    total: impl Fn(&TotalKey) -> Total,
) -> Result<(Settling, Decision), LedgerError> {
    let moved = settle_with(row, settlement, CallsOf::Next)?;
    let own = row.total_keys();
    let after = |key: &TotalKey| match &moved {
        Settling::Write(_, delta, _) if own.contains(key) => total(key).after(*delta),
        _ => total(key),
    };
    match reserve(next, after)? {
        Decision::Denied(denied) => Ok((settle(row, settlement)?, Decision::Denied(denied))),
        granted @ Decision::Grant(..) => Ok((moved, granted)),
    }
}

/// The row after its holder said that it is alive; `None` if it has ended already.
#[must_use]
pub fn renew(row: &Row, now: DateTime<Utc>) -> Option<Row> {
    (row.state == RowState::Reserved).then(|| Row { renewed_at: Some(now), ..row.clone() })
}

/// The row charged at its estimate, if it is open and its holder was not heard of for longer than
/// `age`.
///
/// A row from the future by more than `age` is swept, too: it was written under a clock that was
/// wrong, and would never be old enough.
#[must_use]
pub fn sweep(row: &Row, now: DateTime<Utc>, age: Duration) -> Option<(Row, Delta)> {
    if row.state != RowState::Reserved || !is_silent(row.heard_of_at(), now, age) {
        return None;
    }
    let amount = row.amount();
    let swept = Row {
        state: RowState::Swept,
        charged: Some(amount),
        swept_at: Some(now),
        settled_at: Some(now),
        ..row.clone()
    };
    Some((swept, Delta::reserving(amount).undone().and(Delta::settling(amount))))
}

/// Whether a holder last heard of at `heard_of_at` has been silent for longer than `age`, in either
/// direction.
#[must_use]
pub fn is_silent(heard_of_at: DateTime<Utc>, now: DateTime<Utc>, age: Duration) -> bool {
    (now - heard_of_at).abs() > TimeDelta::from_std(age).unwrap_or(TimeDelta::MAX)
}

/// The row of a caller who went away before hearing that it was granted: released at once, and its
/// idempotency key given back, since nothing was sent.
#[must_use]
pub fn abandon(row: &Row, now: DateTime<Utc>) -> (Row, Delta) {
    let released = Row {
        state: RowState::Released,
        charged: Some(Amount::ZERO),
        outcome: Some(Outcome::NotSent),
        settled_at: Some(now),
        idempotency: None,
        ..row.clone()
    };
    (released, Delta::reserving(row.amount()).undone())
}

/// The row of an attempt that was turned over to one that is [abandoned](abandon): the logical call,
/// which had moved on, comes back, unless an attempt like this one is no call. `None` if nothing
/// changes.
#[must_use]
pub fn take_call_back(row: &Row) -> Option<(Row, Delta)> {
    let charged = row.charged.filter(|charged| charged.calls == 0)?;
    let is_call = match row.outcome? {
        Outcome::NotSent | Outcome::Refused => false,
        // Nothing at all was its caller's own figure: a release.
        Outcome::Answered => charged.tokens > 0 || row.usage.is_some(),
        Outcome::ServerError | Outcome::Lost | Outcome::CutShort => true,
    };
    if !is_call || row.calls == 0 {
        return None;
    }
    let charged = Amount { calls: row.calls, ..charged };
    let row = Row { state: RowState::Settled, charged: Some(charged), ..row.clone() };
    Some((row, Delta::settling(Amount::new(0, charged.calls))))
}

/// What removing `row` adds to its totals; `None` if it has to stay.
///
/// A row may go once it was reserved at least `keep` ago, has ended, is remembered by no idempotency
/// key, and was not swept within [`KEEP_SWEPT`]. Only the pruned part of a total changes, never what
/// limits are compared with.
#[must_use]
pub fn prune(row: &Row, now: DateTime<Utc>, keep: Duration) -> Option<Delta> {
    let keep = TimeDelta::from_std(keep).unwrap_or(TimeDelta::MAX);
    let settled_at = row.settled_at?;
    let old = now - row.reserved_at >= keep;
    let remembered = row.idempotency.is_some() && now - settled_at < KEEP_IDEMPOTENCY;
    let awaited = row.swept_at.is_some_and(|at| now - at < KEEP_SWEPT);
    (old && !remembered && !awaited).then(|| Delta::pruning(row.charged.unwrap_or(Amount::ZERO)))
}

/// To which row of a turnover the logical call is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallsOf {
    This,
    Next,
}

fn settle_with(
    row: &Row,
    settlement: &Settlement,
    calls: CallsOf,
) -> Result<Settling, LedgerError> {
    let reserved = row.amount();
    let mut charged = match settlement.charge {
        Charge::Tokens(0) => Amount::ZERO,
        Charge::Tokens(tokens) => Amount { tokens, ..reserved }.bounded(),
        Charge::ByOutcome { charge_timeouts } => {
            let seen = settlement.usage.as_ref();
            crate::charge::charge(settlement.outcome, reserved, seen, charge_timeouts)
        }
    };
    if calls == CallsOf::Next {
        charged.calls = 0;
    }
    let how = match row.state {
        RowState::Reserved => SettledHow::First,
        RowState::Swept => SettledHow::AfterSweep,
        RowState::Settled | RowState::Released => {
            let before = row.charged.unwrap_or(Amount::ZERO);
            // The tokens are the caller's figure; the calls follow from what came after.
            if before.tokens != charged.tokens {
                return Err(settled_otherwise(row, before, charged));
            }
            let how = SettledHow::Again;
            return Ok(Settling::Nothing(Settled { id: row.id, charged: before, reserved, how }));
        }
    };
    let standing = match how {
        SettledHow::AfterSweep => Delta::settling(row.charged.unwrap_or(Amount::ZERO)),
        _ => Delta::reserving(reserved),
    };
    let state = if charged == Amount::ZERO { RowState::Released } else { RowState::Settled };
    let settled = Row {
        state,
        charged: Some(charged),
        usage: settlement.usage,
        outcome: Some(settlement.outcome),
        settled_at: Some(settlement.now),
        note: settlement.note.clone().unwrap_or_else(|| row.note.clone()),
        ..row.clone()
    };
    let delta = standing.undone().and(Delta::settling(charged));
    let told = Settled { id: row.id, charged, reserved, how };
    Ok(Settling::Write(Box::new(settled), delta, told))
}

fn settled_otherwise(row: &Row, before: Amount, charged: Amount) -> LedgerError {
    let what = format!(
        "row {} is settled at {} tokens and cannot be settled at {}",
        row.id, before.tokens, charged.tokens
    );
    LedgerError::new(ErrorKind::SettledOtherwise, what)
}

/// Whether more of one limit is used than of the other, as a share of its cap.
fn is_fuller((one, used): (&Limit, Sum), (other, other_used): (&Limit, Sum)) -> bool {
    let share = |sum: Sum, of: &Limit| u128::from(sum.used()) * u128::from(of.cap);
    share(used, other) > share(other_used, one)
}

fn holds_longer(one: &Denied, other: &Denied) -> bool {
    match (one.retry_at, other.retry_at) {
        (None, Some(_)) => true,
        (Some(one), Some(other)) => one > other,
        (_, None) => false,
    }
}

/// The first moment of the next day or month in `zone`; `None` for what never begins anew.
#[must_use]
pub fn begins_anew(
    period: Period,
    now: DateTime<Utc>,
    zone: chrono_tz::Tz,
) -> Option<DateTime<Utc>> {
    let today = QuotaDay::containing_in(now, zone);
    match period {
        Period::Day => Some(today.ends_at()),
        Period::Month => {
            let month = |day: QuotaDay| (day.date().year(), day.date().month());
            let mut day = today.next();
            // A month has at most 31 days; the bound is for the end of the calendar.
            for _ in 0..31 {
                if month(day) != month(today) {
                    break;
                }
                day = day.next();
            }
            Some(day.starts_at())
        }
        Period::Total => None,
    }
}

#[cfg(test)]
mod tests;
