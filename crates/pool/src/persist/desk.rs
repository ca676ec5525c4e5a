//! Where callers leave what they want of the state file's thread, and wait for answers.

use std::{
    fmt::Display,
    future::Future,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use keywheel_core::clock::from_unix_ms;
use tokio::sync::oneshot;

use super::{StateHealth, StateNote};

/// How many notes the owner is told.
const MOST_NOTES: usize = 16;

/// Shared by the callers, the thread that writes and the thread that answers those who waited long
/// enough.
#[derive(Debug, Default)]
pub(super) struct Desk {
    dirty: AtomicBool,
    state: Mutex<State>,
    /// Wakes the thread that writes.
    work: Condvar,
    /// Wakes the thread that keeps deadlines.
    deadlines: Condvar,
    /// Wakes whoever waits for the writing thread's end.
    end: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many tickets were given out.
    asked: u64,
    /// All tickets up to this one are on disk.
    done: u64,
    waiters: Vec<Waiter>,
    stop: bool,
    ended: bool,
    health: StateHealth,
    /// A test's own time, which stands still until the test lets it go on.
    #[cfg(test)]
    stopped_at: Option<Instant>,
    /// The thread that writes has nothing to do before its next moment.
    #[cfg(test)]
    rests: bool,
}

/// Somebody who waits for a flush that began after his call.
#[derive(Debug)]
struct Waiter {
    ticket: u64,
    deadline: Instant,
    answer: oneshot::Sender<bool>,
}

/// Why the writing thread woke up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// Somebody waits for a flush.
    Urgent,
    /// Time to look around.
    Tick,
    /// Finish.
    Stop,
}

impl Desk {
    pub(super) fn new(health: StateHealth) -> Self {
        Self { state: Mutex::new(State { health, ..State::default() }), ..Self::default() }
    }

    /// Something changed that can wait until the next tick.
    pub(super) fn mark_dirty(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// Asks for a flush that begins from now on. The answer is false when it takes longer than
    /// `patience`.
    pub(super) fn ask(&self, patience: Duration) -> impl Future<Output = bool> + Send + 'static {
        let (answer, heard) = oneshot::channel();
        {
            let mut state = self.lock();
            #[cfg(test)]
            state.rest(false);
            state.asked += 1;
            if !state.ended {
                let (ticket, deadline) = (state.asked, state.now() + patience);
                state.waiters.push(Waiter { ticket, deadline, answer });
            }
            // Without a thread nobody keeps the sender, which answers false.
        }
        self.work.notify_one();
        self.deadlines.notify_one();
        async move { heard.await.unwrap_or(false) }
    }

    pub(super) fn health(&self) -> StateHealth {
        let state = self.lock();
        let persisted = state.done >= state.asked && state.health.error.is_none();
        StateHealth { persisted, ..state.health.clone() }
    }

    /// Asks the writing thread to finish and waits for its end, at most so long.
    pub(super) fn stop(&self, patience: Duration) {
        let mut state = self.lock();
        state.stop = true;
        let until = state.now() + patience;
        self.work.notify_one();
        self.deadlines.notify_one();
        while !state.ended {
            let left = until.saturating_duration_since(state.now());
            if left.is_zero() {
                return;
            }
            let waited = self.end.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Only tells the threads to finish.
    pub(super) fn stop_without_waiting(&self) {
        self.lock().stop = true;
        self.deadlines.notify_one();
    }

    /// True once somebody wants the thread to finish.
    pub(super) fn is_stopping(&self) -> bool {
        self.lock().stop
    }

    /// Waits until there is something to do: somebody asks and `urgent_at` has come, or `tick_at`
    /// has.
    pub(super) fn pause(&self, urgent_at: Instant, tick_at: Instant) -> Call {
        let mut state = self.lock();
        loop {
            if state.stop {
                return Call::Stop;
            }
            let urgent = state.asked > state.done;
            let until = if urgent { urgent_at.min(tick_at) } else { tick_at };
            let now = state.now();
            if now >= until {
                return if urgent && now >= urgent_at { Call::Urgent } else { Call::Tick };
            }
            #[cfg(test)]
            state.rest(true);
            let waited = self.work.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            #[cfg(test)]
            state.rest(false);
        }
    }

    /// Takes the dirty mark away and returns the last ticket, before anything is collected.
    pub(super) fn begin(&self) -> u64 {
        self.dirty.swap(false, Ordering::AcqRel);
        self.lock().asked
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// What was said up to `ticket` is durable; `complete`: all of it, so that the answer is true.
    pub(super) fn succeed(&self, ticket: u64, saved_at_ms: Option<i64>, complete: bool) {
        let mut state = self.lock();
        state.done = state.done.max(ticket);
        state.health.error = None;
        state.health.failing_since = None;
        if let Some(ms) = saved_at_ms {
            state.health.saved_at = Some(from_unix_ms(ms));
        }
        let done = state.done;
        for waiter in state.waiters.extract_if(.., |waiter| waiter.ticket <= done) {
            // Whoever went away does not want to know.
            let _ = waiter.answer.send(complete);
        }
    }

    /// The flush did not succeed and will be tried again. True when it is the first in a row.
    pub(super) fn fail(&self, fault: &dyn Display, now_ms: i64) -> bool {
        let mut state = self.lock();
        let is_first = state.health.failing_since.is_none();
        state.health.failing_since.get_or_insert(from_unix_ms(now_ms));
        state.health.error = Some(fault.to_string());
        is_first
    }

    /// Tells the owner; the latest are kept.
    pub(super) fn note(&self, notes: Vec<StateNote>) {
        let kept = &mut self.lock().health.notes;
        kept.extend(notes);
        let surplus = kept.len().saturating_sub(MOST_NOTES);
        kept.drain(..surplus);
    }

    /// The writing thread is gone: nobody will be served any more.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.stop = true;
        state.waiters.clear();
        drop(state);
        self.end.notify_all();
        self.deadlines.notify_all();
    }

    /// Answers false to those who waited long enough, until the desk closes.
    ///
    /// On a thread of its own, since the one that writes may hang in the disk; and without a
    /// runtime's timer, since the pool works on any executor.
    pub(super) fn keep_deadlines(&self) {
        let mut state = self.lock();
        while !state.ended {
            let now = state.now();
            for waiter in state.waiters.extract_if(.., |waiter| waiter.deadline <= now) {
                let _ = waiter.answer.send(false);
            }
            let next = state.waiters.iter().map(|waiter| waiter.deadline).min();
            state = match next {
                Some(next) => {
                    let waited = self.deadlines.wait_timeout(state, next - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.deadlines.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The time by which everything here is counted, which is no matter of wall time: no simulated clock makes a disk
    /// faster.
    pub(super) fn now(&self) -> Instant {
        self.lock().now()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No foreign code runs under this lock, so a poisoned one still holds whole data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    #[expect(clippy::disallowed_methods, reason = "measures the disk, and no quota")]
    fn now(&self) -> Instant {
        #[cfg(test)]
        if let Some(moment) = self.stopped_at {
            return moment;
        }
        Instant::now()
    }

    #[cfg(test)]
    fn rest(&mut self, rests: bool) {
        self.rests = rests;
    }
}

/// Time as tests want it: what ends after half a second ends so on the slowest machine, and nothing ends before.
#[cfg(test)]
impl Desk {
    /// From now on time stands still here.
    pub(super) fn stop_time(&self) {
        let mut state = self.lock();
        state.stopped_at = Some(state.now());
    }

    /// Lets it go on for so long, at once.
    pub(super) fn advance(&self, time: Duration) {
        let mut state = self.lock();
        let moment = state.now() + time;
        state.stopped_at = Some(moment);
        state.rest(false);
        drop(state);
        for waiting in [&self.work, &self.deadlines, &self.end] {
            waiting.notify_all();
        }
    }

    /// True while the thread that writes has nothing to do before its next moment.
    pub(super) fn is_at_rest(&self) -> bool {
        self.lock().rests
    }
}
