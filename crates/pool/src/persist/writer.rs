//! The thread that keeps the state file: batches what changes, and looks at what others change.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use keywheel_core::Clock;

use super::{
    StateError, StateHealth,
    book::{Book, Flushed, Trouble},
    changes::Shared,
    desk::{Call, Desk},
};

/// How often the thread looks whether something changed, here or on disk. Leaves time for the write
/// itself within the 250 ms that are promised.
const TICK: Duration = Duration::from_millis(200);
/// How long `commit` waits.
const COMMIT_PATIENCE: Duration = Duration::from_millis(500);
/// How long `flush` waits.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);
/// How long dropping the pool waits for the last write.
const END_PATIENCE: Duration = Duration::from_millis(500);
/// Pauses after a failure, doubling: at first, and at most.
const RETRIES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// After a flush that took long, counters wait so many times as long, and commits this fraction of
/// it: a file of 50 MB must not keep a core busy.
const COUNTERS_REST: u32 = 4;
const COMMITS_REST: u32 = 4;

/// The threads of one state file, as the pool holds them.
pub(super) struct Writer {
    desk: Arc<Desk>,
    clock: Arc<dyn Clock>,
    /// Until the thread takes it.
    book: Mutex<Option<Book>>,
    thread: Mutex<Option<thread::ThreadId>>,
}

impl Writer {
    pub(super) fn new(book: Book, health: StateHealth, clock: Arc<dyn Clock>) -> Self {
        let desk = Arc::new(Desk::new(health));
        Self { desk, clock, book: Mutex::new(Some(book)), thread: Mutex::default() }
    }

    pub(super) fn start(&self, shared: Weak<dyn Shared>) {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(book) = book else { return };
        let run = Run::new(Arc::clone(&self.desk), Arc::clone(&self.clock), book, shared);
        match run.spawn() {
            Ok(id) => *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(id),
            Err(error) => {
                self.desk.fail(&format!("cannot start a thread: {error}"), self.clock.unix_ms());
                self.desk.close();
            }
        }
    }

    pub(super) fn mark_dirty(&self) {
        self.desk.mark_dirty();
    }

    pub(super) fn commit(&self) -> impl Future<Output = bool> + Send + 'static {
        self.desk.ask(COMMIT_PATIENCE)
    }

    pub(super) fn flush(&self) -> impl Future<Output = Result<(), StateError>> + Send + 'static {
        let flushed = self.desk.ask(FLUSH_PATIENCE);
        let desk = Arc::clone(&self.desk);
        async move {
            if flushed.await {
                return Ok(());
            }
            let reason = desk.health().error.unwrap_or_else(|| {
                "it takes too long, or another process cleared it meanwhile".to_owned()
            });
            Err(StateError { reason })
        }
    }

    pub(super) fn health(&self) -> StateHealth {
        self.desk.health()
    }

    #[cfg(test)]
    pub(super) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let thread = *self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        match thread {
            // The thread itself let go of the pool's last handle: it cannot wait for itself.
            Some(id) if id == thread::current().id() => self.desk.stop_without_waiting(),
            Some(_) => self.desk.stop(END_PATIENCE),
            None => self.desk.close(),
        }
    }
}

/// What the thread needs.
struct Run {
    desk: Arc<Desk>,
    clock: Arc<dyn Clock>,
    book: Book,
    shared: Weak<dyn Shared>,
    pace: Pace,
}

impl Run {
    fn new(desk: Arc<Desk>, clock: Arc<dyn Clock>, book: Book, shared: Weak<dyn Shared>) -> Self {
        let pace = Pace::new(desk.now());
        Self { desk, clock, book, shared, pace }
    }

    fn spawn(self) -> io::Result<thread::ThreadId> {
        let desk = Arc::clone(&self.desk);
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        named("keywheel-answer").spawn(move || desk.keep_deadlines())?;
        let thread = named("keywheel-state").spawn(move || self.run())?;
        Ok(thread.thread().id())
    }

    fn run(mut self) {
        let _closes = CloseOnDrop(Arc::clone(&self.desk));
        loop {
            let call = self.desk.pause(self.pace.urgent_at, self.pace.tick_at);
            if call == Call::Stop || self.shared.strong_count() == 0 {
                break;
            }
            let wanted = self.desk.is_dirty() || self.book.has_pending();
            if call == Call::Urgent || (wanted && self.desk.now() >= self.pace.counters_at) {
                self.flush();
            } else {
                self.look();
            }
            self.pace.tick_at = self.desk.now() + TICK;
        }
        self.finish();
    }

    /// Writes what changed and tells the pool what the file says then.
    fn flush(&mut self) {
        let began = self.desk.now();
        let ticket = self.desk.begin();
        if let Some(shared) = self.shared.upgrade() {
            self.book.collect(&*shared);
        }
        if !self.book.has_pending() {
            self.desk.succeed(ticket, None, true);
            return;
        }
        let desk = Arc::clone(&self.desk);
        let flushed = self.book.flush(|| desk.is_stopping());
        self.desk.note(self.book.take_notes());
        match flushed {
            Ok(Flushed { others_wrote, complete }) => {
                self.pace.succeeded(began, self.desk.now());
                // Before the answer: who asked for an exploration looks whether it was granted.
                self.absorb(others_wrote);
                self.desk.succeed(ticket, Some(self.clock.unix_ms()), complete);
            }
            Err(trouble) => {
                let ended = self.desk.now();
                // Waiting for the lock is no work to rest from.
                let waited = matches!(trouble, Trouble::Locked);
                self.pace.failed(if waited { ended } else { began }, ended);
                // Others may hold the lock for a moment; a disk that says no has something to tell.
                if self.desk.fail(&trouble, self.clock.unix_ms()) && !waited {
                    tracing::warn!("the state is not on disk: {trouble}; it is tried again");
                }
                self.look();
            }
        }
    }

    fn look(&mut self) {
        if self.book.catch_up() {
            self.absorb(true);
        }
    }

    fn absorb(&self, full: bool) {
        if let Some(shared) = self.shared.upgrade() {
            shared.absorb(self.book.known(), full);
        }
    }

    /// The last write: what is left, with this writer's counts handed over.
    fn finish(&mut self) {
        let ticket = self.desk.begin();
        if let Some(shared) = self.shared.upgrade() {
            self.book.collect(&*shared);
        }
        match self.book.withdraw() {
            Ok(()) => self.desk.succeed(ticket, Some(self.clock.unix_ms()), true),
            Err(trouble) => {
                tracing::warn!("the last changes are not on disk: {trouble}");
                self.desk.fail(&trouble, self.clock.unix_ms());
            }
        }
    }
}

/// When to write next.
struct Pace {
    tick_at: Instant,
    counters_at: Instant,
    urgent_at: Instant,
    retry: Duration,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { tick_at: now, counters_at: now, urgent_at: now, retry: RETRIES.0 }
    }

    fn succeeded(&mut self, began: Instant, ended: Instant) {
        let cost = ended - began;
        self.counters_at = ended + cost * COUNTERS_REST;
        self.urgent_at = ended + cost / COMMITS_REST;
        self.retry = RETRIES.0;
    }

    fn failed(&mut self, began: Instant, ended: Instant) {
        let rest = self.retry.max(ended - began);
        self.counters_at = ended + rest;
        self.urgent_at = ended + rest;
        self.retry = (self.retry * 2).min(RETRIES.1);
    }
}

/// Closes the desk even when the pool's code panics on this thread: nobody may wait for a dead
/// thread.
struct CloseOnDrop(Arc<Desk>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Instant {
        Desk::default().now()
    }

    #[test]
    fn a_write_that_takes_long_is_not_followed_by_the_next_at_once() {
        let began = now();
        let ended = began + Duration::from_millis(400);
        let mut pace = Pace::new(began);
        pace.succeeded(began, ended);
        assert_eq!(pace.counters_at, ended + Duration::from_millis(1_600));
        assert_eq!(pace.urgent_at, ended + Duration::from_millis(100));
    }

    #[test]
    fn a_disk_that_says_no_is_asked_again_less_and_less_often_and_at_least_every_second() {
        let mut pace = Pace::new(now());
        let mut rests = Vec::new();
        let moment = now();
        for _ in 0..7 {
            pace.failed(moment, moment);
            rests.push((pace.urgent_at - moment).as_millis());
        }
        assert_eq!(rests, [50, 100, 200, 400, 800, 1_000, 1_000]);
        pace.succeeded(moment, moment);
        pace.failed(moment, moment);
        assert_eq!(pace.urgent_at, moment + RETRIES.0, "and after a success it begins anew");
    }
}
