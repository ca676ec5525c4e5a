//! The async side of the [`line`](super::line): tasks that wait, clocks, and one watcher who wakes them.
//!
//! Whoever waits is woken for one of four reasons, and by nobody else: the ledger gave something back, somebody left, a
//! moment came that a limit had named, or a second passed, since other processes settle and free keys without a word.

use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use foldhash::HashMap;
use futures_util::future::{Either, select};
use keywheel::{
    Clock, Error, ExhaustedKind,
    ledger::{AccountId, Freed, Ledger, Scope},
};
use keywheel_core::clock::{after_ms, sleep_until};
use tokio::sync::Notify;

use super::{
    line::{Arrival, Full, Limit, Line, Met, Ticket},
    minute::Minute,
    refused::Refused,
};
use crate::{config::Queue, project::Project};

/// How often those who wait look again though nobody told them to.
const LOOK_AGAIN_MS: i64 = 1_000;

/// Lets requests through, in the order of the [`line`](super::line).
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Rung when a moment may have become the soonest.
    moments: Arc<Notify>,
}

struct State {
    line: Line,
    /// Of those who wait.
    bells: HashMap<Ticket, Arc<Notify>>,
    minutes: HashMap<AccountId, Minute>,
    /// Here while nobody waits, so that nothing is missed that was freed meanwhile; else the watcher has it.
    freed: Option<Freed>,
    is_closed: bool,
}

/// A request that wants to go through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    /// Whose it is.
    pub(crate) project: &'a Project,
    /// The model whose keys it wants; empty for a call to none.
    pub(crate) model: &'a str,
    /// How long it may wait, and how many of its project may.
    pub(crate) queue: Queue,
}

/// How many requests of the last minute count for a project that has a cap on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MinuteStanding {
    pub(crate) cap: u32,
    pub(crate) used: u32,
    /// When the first of them counts no more.
    pub(crate) reset_ms: i64,
}

impl Gate {
    /// One that hears of what `ledger` gives back, and goes by `clock`.
    pub(crate) fn new(ledger: &Ledger, clock: Arc<dyn Clock>) -> Self {
        let state = State {
            line: Line::default(),
            bells: HashMap::default(),
            minutes: HashMap::default(),
            freed: Some(ledger.freed()),
            is_closed: false,
        };
        let moments = Arc::new(Notify::new());
        Self { inner: Arc::new(Inner { clock, state: Mutex::new(state), moments }) }
    }

    /// Does `attempt` when it is its turn, and again after it met a limit that others' settlements, a key or a new day
    /// can mend within the wait. `attempt` must not wait for room or for a key itself; as soon as it has both, and asks
    /// the provider, it tells [`Sent`], and the next one may try.
    ///
    /// # Errors
    /// Why it was not let through, or what the attempt ended with.
    ///
    /// # Cancel safety
    /// May be dropped at any await: its place goes to the next, and unless something was sent it does not count.
    pub(crate) async fn pass<T, F: Future<Output = Result<T, Error>>>(
        &self,
        asking: Asking<'_>,
        mut attempt: impl FnMut(Sent) -> F,
    ) -> Result<(T, Pass), Refused> {
        let clock = &self.inner.clock;
        let began_ms = clock.unix_ms();
        let by_ms = after_ms(began_ms, asking.queue.wait);
        let (counted_ms, minute) = self.inner.count(asking.project, began_ms)?;
        let mut place = self.inner.arrive(asking, counted_ms, began_ms)?;
        let mut last = None;
        loop {
            match place.turn(by_ms).await {
                Turn::Came => {}
                Turn::Closed => return Err(Refused::Stopping),
                Turn::TooLate => return Err(place.late(last, asking.queue.wait)),
            }
            let tries_ms = clock.unix_ms();
            let error = match attempt(place.sent()).await {
                Ok(answer) => {
                    place.sent().tell();
                    let waited_ms = tries_ms.saturating_sub(began_ms).try_into().unwrap_or(0);
                    let waited = Duration::from_millis(waited_ms);
                    return Ok((answer, Pass { _place: place, waited, minute }));
                }
                Err(error) => error,
            };
            let now_ms = clock.unix_ms();
            let Some(met) = met(&error, by_ms).filter(|_| now_ms < by_ms) else {
                return Err(Refused::Ended(error));
            };
            if place.met(met, asking.queue.depth, now_ms).is_err() {
                return Err(Refused::QueueFull { depth: asking.queue.depth, met: Some(met) });
            }
            last = Some(error);
        }
    }

    /// Turns everybody away who waits or comes.
    pub(crate) fn close(&self) {
        let mut state = self.inner.lock();
        state.is_closed = true;
        state.bells.values().for_each(|bell| bell.notify_one());
    }

    /// How many wait, in all.
    pub(crate) fn queued(&self) -> usize {
        self.inner.lock().line.queued()
    }
}

/// To be told when a request has found room and a key, and goes to the provider.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    inner: Weak<Inner>,
    ticket: Ticket,
    was_sent: Arc<AtomicBool>,
}

impl Sent {
    /// It goes. Saying it again changes nothing.
    pub(crate) fn tell(&self) {
        self.was_sent.store(true, Ordering::Relaxed);
        if let Some(inner) = self.inner.upgrade() {
            inner.change(|line, now_ms| line.let_through(self.ticket, now_ms));
        }
    }
}

/// A request that was let through. Held until its answer has come to its end; dropped, it makes room for the next.
#[derive(Debug)]
#[must_use = "dropped, it counts as done"]
pub(crate) struct Pass {
    _place: Place,
    /// How long it waited for its turn.
    pub(crate) waited: Duration,
    /// How full the minute of its project is.
    pub(crate) minute: Option<MinuteStanding>,
}

/// A place in the line, until it is dropped.
#[derive(Debug)]
struct Place {
    inner: Arc<Inner>,
    ticket: Ticket,
    /// Once it had to wait.
    bell: Option<Arc<Notify>>,
    project: AccountId,
    counted_ms: Option<i64>,
    was_sent: Arc<AtomicBool>,
}

enum Turn {
    Came,
    TooLate,
    Closed,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the line and wakes those who may try because of it.
    fn change(&self, work: impl FnOnce(&mut Line, i64) -> Vec<Ticket>) {
        let now_ms = self.clock.unix_ms();
        let mut state = self.lock();
        let told = work(&mut state.line, now_ms);
        state.wake(&told);
    }

    /// Counts one of the project's requests a minute. When, and how full it is.
    fn count(
        &self,
        project: &Project,
        now_ms: i64,
    ) -> Result<(Option<i64>, Option<MinuteStanding>), Refused> {
        let Some(cap) = project.requests_per_minute else { return Ok((None, None)) };
        let mut state = self.lock();
        let minute = state.minutes.entry(project.name.clone()).or_default();
        match minute.count(cap, now_ms) {
            Ok(()) => {
                let (used, reset_ms) = minute.used(now_ms);
                let used = used.try_into().unwrap_or(u32::MAX);
                Ok((Some(now_ms), Some(MinuteStanding { cap, used, reset_ms })))
            }
            Err(reset_ms) => Err(Refused::PerMinute { cap, reset_ms }),
        }
    }

    fn arrive(
        self: &Arc<Self>,
        asking: Asking<'_>,
        counted_ms: Option<i64>,
        now_ms: i64,
    ) -> Result<Place, Refused> {
        let Asking { project, model, queue } = asking;
        let arrival = Arrival {
            project: project.name.clone(),
            priority: project.priority,
            model: model.into(),
            in_flight: project.in_flight,
            depth: queue.depth,
        };
        let mut state = self.lock();
        let came = if state.is_closed {
            Err(Refused::Stopping)
        } else {
            let full = |Full| Refused::QueueFull { depth: queue.depth, met: None };
            state.line.arrive(arrival, now_ms).map_err(full)
        };
        let ticket = match came {
            Ok((ticket, _)) => ticket,
            Err(refused) => {
                state.take_back(&project.name, counted_ms);
                return Err(refused);
            }
        };
        drop(state);
        Ok(Place {
            inner: Arc::clone(self),
            ticket,
            bell: None,
            project: project.name.clone(),
            counted_ms,
            was_sent: Arc::default(),
        })
    }

    /// Sees to it that somebody watches while somebody waits.
    fn be_watched(self: &Arc<Self>) {
        let Some(freed) = self.lock().freed.take() else { return };
        let (inner, clock) = (Arc::downgrade(self), Arc::clone(&self.clock));
        tokio::spawn(watch(inner, clock, Arc::clone(&self.moments), freed));
    }
}

impl State {
    fn wake(&self, told: &[Ticket]) {
        told.iter().filter_map(|ticket| self.bells.get(ticket)).for_each(|bell| bell.notify_one());
    }

    fn take_back(&mut self, project: &AccountId, counted_ms: Option<i64>) {
        if let (Some(at_ms), Some(minute)) = (counted_ms, self.minutes.get_mut(project)) {
            minute.take_back(at_ms);
        }
    }
}

impl Place {
    /// Waits until it may try.
    async fn turn(&mut self, by_ms: i64) -> Turn {
        let Some(bell) = self.bell() else { return Turn::Came };
        self.inner.be_watched();
        let mut late = pin!(sleep_until(&*self.inner.clock, by_ms, tokio::time::sleep));
        loop {
            if self.may_try() {
                return Turn::Came;
            }
            if self.inner.lock().is_closed {
                return Turn::Closed;
            }
            match select(pin!(bell.notified()), late.as_mut()).await {
                Either::Left(_) => {}
                // It may have been told at this very moment.
                Either::Right(_) if self.may_try() => return Turn::Came,
                Either::Right(_) => return Turn::TooLate,
            }
        }
    }

    /// What wakes it; `None` if it may try already.
    fn bell(&mut self) -> Option<Arc<Notify>> {
        let mut state = self.inner.lock();
        if state.line.tries(self.ticket) {
            return None;
        }
        // Under the same lock: whoever tells it from now on finds the bell.
        let bell = self.bell.get_or_insert_default();
        state.bells.entry(self.ticket).or_insert_with(|| Arc::clone(bell));
        Some(Arc::clone(bell))
    }

    fn may_try(&self) -> bool {
        self.inner.lock().line.tries(self.ticket)
    }

    fn met(&self, met: Met, depth: usize, now_ms: i64) -> Result<(), Full> {
        let mut state = self.inner.lock();
        let told = state.line.met(self.ticket, met, depth, now_ms)?;
        state.wake(&told);
        drop(state);
        self.inner.moments.notify_one();
        Ok(())
    }

    fn sent(&self) -> Sent {
        Sent {
            inner: Arc::downgrade(&self.inner),
            ticket: self.ticket,
            was_sent: Arc::clone(&self.was_sent),
        }
    }

    /// Why it was not its turn in time.
    fn late(&self, last: Option<Error>, waited: Duration) -> Refused {
        if let Some(error) = last {
            return Refused::Ended(error);
        }
        let state = self.inner.lock();
        if state.line.wants_a_place(self.ticket) {
            return Refused::InFlight { waited };
        }
        Refused::Behind { met: state.line.met_before(self.ticket), waited }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now_ms = self.inner.clock.unix_ms();
        let mut state = self.inner.lock();
        state.bells.remove(&self.ticket);
        if !self.was_sent.load(Ordering::Relaxed) {
            state.take_back(&self.project, self.counted_ms);
        }
        let told = state.line.leave(self.ticket, now_ms);
        state.wake(&told);
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

/// Wakes those who wait, until nobody does.
async fn watch(inner: Weak<Inner>, clock: Arc<dyn Clock>, moments: Arc<Notify>, mut freed: Freed) {
    let mut look_ms = clock.unix_ms().saturating_add(LOOK_AGAIN_MS);
    loop {
        let wake_ms = {
            let Some(inner) = inner.upgrade() else { return };
            let now_ms = clock.unix_ms();
            // A clock that was set back puts nothing off.
            look_ms = look_ms.min(now_ms.saturating_add(LOOK_AGAIN_MS));
            let mut state = inner.lock();
            if state.line.queued() == 0 {
                state.freed = Some(freed);
                return;
            }
            state.line.next_moment(now_ms).map_or(look_ms, |moment| moment.min(look_ms))
        };
        let given_back = {
            let time = pin!(sleep_until(&*clock, wake_ms, tokio::time::sleep));
            let moved = pin!(moments.notified());
            let other = select(time, moved);
            matches!(select(pin!(freed.changed()), other).await, Either::Left(_))
        };
        let Some(inner) = inner.upgrade() else { return };
        if given_back {
            inner.change(Line::freed);
        }
        if clock.unix_ms() >= look_ms {
            look_ms = clock.unix_ms().saturating_add(LOOK_AGAIN_MS);
            inner.change(Line::look_again);
        } else {
            inner.change(Line::next);
        }
    }
}

/// What stands in the way of a call that ended with `error`, if it can come to an end by `by_ms`.
fn met(error: &Error, by_ms: i64) -> Option<Met> {
    let (limit, may_be_freed, moment) = match error {
        Error::OverBudget { denied, .. } => {
            let limit = match denied.scope {
                Scope::Whole => Limit::Allowance,
                Scope::Account(_) => Limit::Own,
            };
            (limit, denied.may_fit_once_others_settle(), denied.retry_at)
        }
        Error::Exhausted { exhausted, .. } => {
            (Limit::Keys, exhausted.kind == ExhaustedKind::Busy, exhausted.soonest)
        }
        _ => return None,
    };
    let until_ms = moment.map(|moment| moment.timestamp_millis()).filter(|at| *at <= by_ms);
    (may_be_freed || until_ms.is_some()).then_some(Met { limit, until_ms, may_be_freed })
}

#[cfg(test)]
mod tests;
