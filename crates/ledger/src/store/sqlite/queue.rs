//! What callers hand to the writer, and when he is woken for it.
//!
//! Waking a thread costs about as much as writing a row, so whoever hands something over wakes the writer only if he
//! waits for it: for the first, or for as many as the [`pace`](super::pace) says are worth a commit.
//!
//! What nobody waits for, such as the settlement of a gateway's request, stays for a moment: it is written with the next
//! reservation, and the writer does not take the processor from whoever is about to hand an answer on.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::{job::Job, stopwatch::Stopwatch};

/// The most that goes into one transaction.
pub(super) const MOST: usize = 256;
/// How many callers may wait in the queue; the others wait for a place in it.
const PLACES: usize = 1_024;

/// A new queue: the callers' end, and the writer's.
pub(super) fn queue() -> (Giver, Taker) {
    let state = State {
        jobs: VecDeque::new(),
        awaited: 0,
        waits_for: WaitsFor::Nothing,
        is_woken: false,
        is_closed: false,
    };
    let places = Semaphore::new(PLACES);
    let shared = Arc::new(Shared { state: Mutex::new(state), rung: Condvar::new(), places });
    (Giver(Arc::clone(&shared)), Taker(shared))
}

/// The callers' end. Dropped, nothing more comes, and the writer ends when he has done what is in it.
pub(super) struct Giver(Arc<Shared>);

/// A place in the queue. Dropped, it is free again.
pub(super) struct Place<'a> {
    shared: &'a Shared,
    permit: SemaphorePermit<'a>,
}

/// Wakes the writer, and gives him nothing.
#[derive(Clone)]
pub(super) struct Bell(Arc<Shared>);

/// The writer's end. Dropped, the queue takes nothing more, and what is in it is dropped as well.
pub(super) struct Taker(Arc<Shared>);

/// Nobody will ever take it: the writer has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed;

/// How long the writer waits for more to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// From the beginning of one commit to the next, where many write.
    pub(super) period: Duration,
    /// For as long there may be nothing but jobs for which nobody waits.
    pub(super) linger: Duration,
}

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
    /// For how many of them somebody waits.
    awaited: usize,
    waits_for: WaitsFor,
    /// He is to look about at once, whatever he waits for.
    is_woken: bool,
    is_closed: bool,
}

/// What the writer is to be woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// He is not waiting.
    Nothing,
    /// So many jobs.
    Jobs(usize),
    /// One job that somebody waits for, or as many as fit into a transaction.
    Awaited,
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
        self.0.put(job).map_err(|_| Closed)
    }

    /// A place for one job, if there is one.
    pub(super) fn place(&self) -> Option<Place<'_>> {
        self.0.places.try_acquire().ok().map(|permit| Place { shared: &self.0, permit })
    }
}

impl Place<'_> {
    /// Hands `job` over; it comes back if the writer has ended.
    pub(super) fn put(self, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        self.permit.forget();
        self.shared.put(job)
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
        if state.waits_for != WaitsFor::Nothing {
            self.0.ring(state);
        }
    }
}

impl Taker {
    /// Waits for something to do, and then until there are `enough` jobs or the period that `began` is over; if nobody
    /// waits for any of them, before that until somebody does. What is there by then is in `batch`, up to [`MOST`] of
    /// it.
    pub(super) fn gather(
        &self,
        batch: &mut Vec<Box<dyn Job>>,
        enough: usize,
        began: Stopwatch,
        patience: Patience,
    ) -> Gathered {
        let mut state = self.0.lock();
        while state.is_idle() {
            state.waits_for = WaitsFor::Jobs(1);
            state = self.0.rung.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.jobs.is_empty() && !state.is_woken {
            return Gathered::Closed;
        }
        let noticed = Stopwatch::start();
        let (state, _) = self.wait_for(state, WaitsFor::Awaited, noticed, patience.linger);
        let (mut state, gathered) =
            self.wait_for(state, WaitsFor::Jobs(enough), began, patience.period);
        state.waits_for = WaitsFor::Nothing;
        state.is_woken = false;
        self.0.take(state, batch);
        gathered
    }

    /// Waits for what is `wanted`, or what cannot wait, until `patience` has passed since `began`.
    fn wait_for<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        wanted: WaitsFor,
        began: Stopwatch,
        patience: Duration,
    ) -> (MutexGuard<'a, State>, Gathered) {
        while !state.has(wanted) && !state.is_woken && !state.is_closed {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return (state, Gathered::Late);
            }
            state.waits_for = wanted;
            let waited = self.0.rung.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        (state, Gathered::Enough)
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

    /// Takes `job` into a place that was had for it; gives it back if the writer has ended.
    fn put(&self, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(job);
        }
        state.awaited += usize::from(job.is_awaited());
        state.jobs.push_back(job);
        if state.has(state.waits_for) {
            self.ring(state);
        }
        Ok(())
    }

    fn ring(&self, mut state: MutexGuard<'_, State>) {
        state.waits_for = WaitsFor::Nothing;
        drop(state);
        self.rung.notify_one();
    }

    fn take(&self, mut state: MutexGuard<'_, State>, batch: &mut Vec<Box<dyn Job>>) {
        let count = state.jobs.len().min(MOST.saturating_sub(batch.len()));
        let first = batch.len();
        batch.extend(state.jobs.drain(..count));
        state.awaited -= batch[first..].iter().filter(|job| job.is_awaited()).count();
        drop(state);
        self.places.add_permits(count);
    }
}

impl State {
    /// True if there is nothing to do.
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && !self.is_woken && !self.is_closed
    }

    /// True if what is waited for is there.
    fn has(&self, wanted: WaitsFor) -> bool {
        match wanted {
            WaitsFor::Nothing => false,
            WaitsFor::Jobs(enough) => self.jobs.len() >= enough,
            WaitsFor::Awaited => self.awaited > 0 || self.jobs.len() >= MOST,
        }
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::{
        LedgerError,
        store::sqlite::{book::Book, fault::Fault},
    };

    /// A job that does nothing, and whether somebody waits for it.
    struct Nothing {
        is_awaited: bool,
    }

    impl Job for Nothing {
        fn is_awaited(&self) -> bool {
            self.is_awaited
        }

        fn is_moot(&self) -> bool {
            false
        }

        fn run(&mut self, _: &mut Book<'_>) -> Result<(), Fault> {
            Ok(())
        }

        fn answer(self: Box<Self>, _: Option<LedgerError>) {}

        fn withdraw(self: Box<Self>, _: LedgerError) {}
    }

    const AN_HOUR: Duration = Duration::from_secs(3_600);

    fn push(giver: &Giver) -> Option<Result<(), Closed>> {
        giver.push(Box::new(Nothing { is_awaited: true })).now_or_never()
    }

    /// Hands over what nobody waits for.
    fn leave(giver: &Giver) {
        let left = giver.place().map(|place| place.put(Box::new(Nothing { is_awaited: false })));
        assert!(matches!(left, Some(Ok(()))));
    }

    /// What is gathered by a writer with so much patience, and how many that are.
    fn gather(
        taker: &Taker,
        enough: usize,
        period: Duration,
        linger: Duration,
    ) -> (Gathered, usize) {
        let mut batch = Vec::new();
        let patience = Patience { period, linger };
        let gathered = taker.gather(&mut batch, enough, Stopwatch::start(), patience);
        (gathered, batch.len())
    }

    /// What is gathered without waiting at all.
    fn gathered(taker: &Taker, enough: usize) -> (Gathered, usize) {
        gather(taker, enough, Duration::ZERO, Duration::ZERO)
    }

    #[test]
    fn what_is_there_is_taken_up_to_a_transaction_and_makes_room() {
        let (giver, taker) = queue();
        for _ in 0..PLACES {
            assert_eq!(push(&giver), Some(Ok(())));
        }
        assert_eq!(push(&giver), None, "it waits for a place");
        assert!(giver.place().is_none());
        assert_eq!(gathered(&taker, 1), (Gathered::Enough, MOST));
        assert!(giver.place().is_some());
        let mut batch = Vec::new();
        taker.drain(&mut batch);
        taker.drain(&mut batch);
        assert_eq!(batch.len(), MOST, "no more than a transaction holds");
    }

    #[test]
    fn fewer_than_enough_are_taken_once_the_time_is_over_or_the_bell_rings() {
        let (giver, taker) = queue();
        push(&giver);
        assert_eq!(gathered(&taker, 2), (Gathered::Late, 1));
        push(&giver);
        giver.bell().ring();
        assert_eq!(gather(&taker, 2, AN_HOUR, AN_HOUR), (Gathered::Enough, 1));
        giver.bell().ring();
        assert_eq!(gathered(&taker, 1), (Gathered::Enough, 0), "there may be rows to give back");
    }

    #[test]
    fn the_writer_is_woken_by_the_last_of_as_many_as_it_waits_for() {
        let (giver, taker) = queue();
        push(&giver);
        let writer = std::thread::spawn(move || gather(&taker, 3, AN_HOUR, AN_HOUR));
        push(&giver);
        push(&giver);
        assert_eq!(writer.join().unwrap(), (Gathered::Enough, 3));
    }

    #[test]
    fn what_nobody_waits_for_is_written_with_what_somebody_does() {
        let (giver, taker) = queue();
        leave(&giver);
        let writer = std::thread::spawn(move || gather(&taker, 1, AN_HOUR, AN_HOUR));
        leave(&giver);
        push(&giver);
        assert_eq!(writer.join().unwrap(), (Gathered::Enough, 3));
    }

    #[test]
    fn what_nobody_waits_for_does_not_stay_longer_than_a_moment() {
        let (giver, taker) = queue();
        leave(&giver);
        assert_eq!(gather(&taker, 1, AN_HOUR, Duration::ZERO), (Gathered::Enough, 1));
        // What was awaited and is taken is not counted any more.
        push(&giver);
        leave(&giver);
        assert_eq!(gather(&taker, 1, AN_HOUR, AN_HOUR), (Gathered::Enough, 2));
        leave(&giver);
        assert_eq!(gather(&taker, 1, AN_HOUR, Duration::ZERO), (Gathered::Enough, 1));
    }

    #[test]
    fn what_nobody_waits_for_goes_at_once_when_it_fills_a_transaction_or_the_ledger_closes() {
        let (giver, taker) = queue();
        for _ in 0..MOST {
            leave(&giver);
        }
        assert_eq!(gather(&taker, 1, AN_HOUR, AN_HOUR), (Gathered::Enough, MOST));
        leave(&giver);
        drop(giver);
        assert_eq!(gather(&taker, 1, AN_HOUR, AN_HOUR), (Gathered::Enough, 1));
    }

    #[test]
    fn what_was_handed_over_is_done_before_the_end_and_nothing_is_taken_after_it() {
        let (giver, taker) = queue();
        push(&giver);
        drop(giver);
        assert_eq!(gathered(&taker, 8), (Gathered::Enough, 1), "nobody else will come");
        assert_eq!(gathered(&taker, 1), (Gathered::Closed, 0));

        let (giver, taker) = queue();
        let place = giver.place().unwrap();
        drop(taker);
        assert_eq!(push(&giver), Some(Err(Closed)));
        assert!(place.put(Box::new(Nothing { is_awaited: true })).is_err());
        giver.bell().ring();
    }
}
