//! What callers hand to the writer, and when he is woken for it.
//!
//! Waking a thread costs about as much as writing a row, so whoever hands something over wakes the writer only if he
//! waits for it: for the first, or for as many as the [`pace`](super::pace) says are worth a commit.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Semaphore;

use super::{job::Job, stopwatch::Stopwatch};

/// The most that goes into one transaction.
pub(super) const MOST: usize = 256;
/// How many callers may wait in the queue; the others wait for a place in it.
const PLACES: usize = 1_024;
/// The writer does not wait.
const NEVER: usize = usize::MAX;

/// A new queue: the callers' end, and the writer's.
pub(super) fn queue() -> (Giver, Taker) {
    let state = State { jobs: VecDeque::new(), enough: NEVER, is_woken: false, is_closed: false };
    let places = Semaphore::new(PLACES);
    let shared = Arc::new(Shared { state: Mutex::new(state), rung: Condvar::new(), places });
    (Giver(Arc::clone(&shared)), Taker(shared))
}

/// The callers' end. Dropped, nothing more comes, and the writer ends when he has done what is in it.
pub(super) struct Giver(Arc<Shared>);

/// Wakes the writer, and gives him nothing.
#[derive(Clone)]
pub(super) struct Bell(Arc<Shared>);

/// The writer's end. Dropped, the queue takes nothing more, and what is in it is dropped as well.
pub(super) struct Taker(Arc<Shared>);

/// Nobody will ever take it: the writer has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed;

/// Why the writer stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gathered {
    /// As many came as he waited for, or what cannot wait.
    Enough,
    /// The time was over first.
    Late,
    /// Nothing came, and nothing will.
    Closed,
}

struct Shared {
    state: Mutex<State>,
    rung: Condvar,
    places: Semaphore,
}

struct State {
    jobs: VecDeque<Box<dyn Job>>,
    /// How many there have to be before the writer is woken.
    enough: usize,
    /// He is to look about at once, whatever he waits for.
    is_woken: bool,
    is_closed: bool,
}

impl Giver {
    /// What wakes the writer.
    pub(super) fn bell(&self) -> Bell {
        Bell(Arc::clone(&self.0))
    }

    /// Hands `job` over, once there is a place for it.
    ///
    /// # Errors
    /// If the writer has ended.
    ///
    /// # Cancel safety
    /// Dropped before it is done, nothing was handed over.
    pub(super) async fn push(&self, job: Box<dyn Job>) -> Result<(), Closed> {
        self.0.places.acquire().await.map_err(|_| Closed)?.forget();
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(Closed);
        }
        state.jobs.push_back(job);
        if state.jobs.len() >= state.enough {
            self.0.ring(state);
        }
        Ok(())
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        self.0.ring(state);
    }
}

impl Bell {
    /// Lets the writer look about at once, whatever he waits for.
    pub(super) fn ring(&self) {
        let mut state = self.0.lock();
        state.is_woken = true;
        if state.enough != NEVER {
            self.0.ring(state);
        }
    }
}

impl Taker {
    /// Waits for something to do, and then until there are `enough` jobs in `batch` or `patience` has passed since
    /// `began`. What is there by then is in `batch`, up to [`MOST`] of it.
    pub(super) fn gather(
        &self,
        batch: &mut Vec<Box<dyn Job>>,
        enough: usize,
        began: Stopwatch,
        patience: Duration,
    ) -> Gathered {
        let mut state = self.0.lock();
        while state.jobs.is_empty() && !state.is_woken && !state.is_closed {
            state.enough = 1;
            state = self.0.rung.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.jobs.is_empty() && !state.is_woken {
            return Gathered::Closed;
        }
        let mut gathered = Gathered::Enough;
        while state.jobs.len() < enough && !state.is_woken && !state.is_closed {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                gathered = Gathered::Late;
                break;
            }
            state.enough = enough;
            let waited = self.0.rung.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.enough = NEVER;
        state.is_woken = false;
        self.0.take(state, batch);
        gathered
    }

    /// Puts what has come meanwhile into `batch`, too, up to [`MOST`] in all.
    pub(super) fn drain(&self, batch: &mut Vec<Box<dyn Job>>) {
        self.0.take(self.0.lock(), batch);
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.0.places.close();
        let left = {
            let mut state = self.0.lock();
            state.is_closed = true;
            std::mem::take(&mut state.jobs)
        };
        // Not under the lock: a job that goes may have something to say here.
        drop(left);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, mut state: MutexGuard<'_, State>) {
        state.enough = NEVER;
        drop(state);
        self.rung.notify_one();
    }

    fn take(&self, mut state: MutexGuard<'_, State>, batch: &mut Vec<Box<dyn Job>>) {
        let count = state.jobs.len().min(MOST.saturating_sub(batch.len()));
        batch.extend(state.jobs.drain(..count));
        drop(state);
        self.places.add_permits(count);
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").finish_non_exhaustive()
    }
}

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taker").finish_non_exhaustive()
    }
}
