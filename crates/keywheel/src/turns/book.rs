//! The figures of all turns, in memory and in `<stem>.turns.json` beside the pool's state file.
//!
//! What has ended is added to the memory at once, and to the file within about a second, by a thread of its own:
//! a process that is killed loses no more. Several processes add to one file, each what it has not added yet.
//!
//! The pool's counts are kept by writer instead, since an old copy of its file that is put back must not let keys be
//! used beyond their limits. Nothing of that kind hangs on these figures; a sum needs no folding when a writer dies.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use chrono::NaiveDate;
use keywheel_core::{Clock, QuotaDay};
use keywheel_pool::durable::{SharedFile, UpdateError};

use super::{summary::Figures, tally::StepUse, turn::TurnReport};

/// How long the thread lets turns gather.
const GATHER: Duration = Duration::from_millis(500);
/// How long it waits for other processes that change the file.
const PATIENCE: Duration = Duration::from_millis(250);
/// Pauses after a failure, doubling: at first, and at most.
const RETRIES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Where turns are summed up. Dropping it writes what is not in the file yet.
pub(crate) struct TurnBook {
    inner: Arc<Inner>,
    /// Rings the thread, which begins with the first turn that ends, and ends with the book.
    bell: OnceLock<SyncSender<()>>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    file: Option<SharedFile>,
    /// What is not in the file yet; without a file, everything.
    pending: Mutex<Figures>,
    /// Held while figures are between memory and file, so that nobody sees them in neither, or in both.
    moving: Mutex<()>,
}

impl TurnBook {
    /// The book beside the pool's state file; without one, in memory. Reads nothing yet.
    pub(crate) fn open(state_file: Option<&Path>, clock: Arc<dyn Clock>) -> Self {
        let file = state_file.map(|path| SharedFile::beside(path, "turns"));
        let (pending, moving) = (Mutex::default(), Mutex::default());
        let inner = Arc::new(Inner { clock, file, pending, moving });
        Self { inner, bell: OnceLock::new() }
    }

    /// Adds a turn that has ended.
    pub(super) fn record(&self, turn: &TurnReport) {
        let today = self.inner.today();
        self.inner.pending().record(turn, today);
        self.ring();
    }

    /// Adds what was sent for a turn that had ended.
    pub(super) fn record_late(&self, turn: &TurnReport, late: &StepUse) {
        let today = self.inner.today();
        self.inner.pending().record_late(turn, late, today);
        self.ring();
    }

    /// All figures, those of other processes included. Reads the file.
    pub(super) fn figures(&self) -> Figures {
        self.inner.figures()
    }

    /// Adds to the file what is not in it yet. Blocks on the disk.
    ///
    /// # Errors
    /// It could not be written. It is tried again in the background.
    pub(crate) fn flush(&self) -> Result<(), UpdateError> {
        self.inner.flush()
    }

    fn ring(&self) {
        if self.inner.file.is_none() {
            return;
        }
        let bell = self.bell.get_or_init(|| {
            let (bell, rings) = sync_channel(1);
            let inner = Arc::clone(&self.inner);
            let name = "keywheel-turns".to_owned();
            if let Err(error) = thread::Builder::new().name(name).spawn(move || run(&inner, &rings))
            {
                tracing::warn!(%error, "turns are kept in memory only: no thread to write them");
            }
            bell
        });
        // Full: it will wake anyway. Gone: the last flush is the book's own.
        let _ = bell.try_send(());
    }
}

impl Drop for TurnBook {
    fn drop(&mut self) {
        if let Err(error) = self.inner.flush() {
            tracing::warn!(%error, "the last turns are not in the file");
        }
    }
}

impl fmt::Debug for TurnBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnBook").field("file", &self.inner.file).finish_non_exhaustive()
    }
}

impl Inner {
    fn flush(&self) -> Result<(), UpdateError> {
        let Some(file) = &self.file else { return Ok(()) };
        let _moving = self.moving();
        let told = std::mem::take(&mut *self.pending());
        if told.is_empty() {
            return Ok(());
        }
        let (now_ms, today) = (self.clock.unix_ms(), self.today());
        let added = file.update(now_ms, PATIENCE, |all: &mut Figures| all.add(&told, today));
        let Err(fault) = added else { return Ok(()) };
        if let UpdateError::NotSynced(_) = fault {
            // It is there for everybody to see: adding it again would count it twice.
            return Err(fault);
        }
        let mut pending = self.pending();
        let since = std::mem::replace(&mut *pending, told);
        pending.add(&since, today);
        Err(fault)
    }

    fn figures(&self) -> Figures {
        let _moving = self.moving();
        let read = self.file.as_ref().map(SharedFile::read::<Figures>);
        let mut all = match read.transpose() {
            Ok(found) => found.flatten().unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "the file of turns cannot be read");
                Figures::default()
            }
        };
        all.add(&self.pending(), self.today());
        all
    }

    fn today(&self) -> NaiveDate {
        QuotaDay::containing(self.clock.now()).date()
    }

    fn pending(&self) -> MutexGuard<'_, Figures> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(inner: &Inner, rings: &Receiver<()>) {
    let mut retry = RETRIES.0;
    while let Ok(()) = rings.recv() {
        thread::sleep(GATHER);
        while let Err(error) = inner.flush() {
            tracing::debug!(%error, "turns are not in the file yet");
            if !rest(rings, retry) {
                return;
            }
            retry = (retry * 2).min(RETRIES.1);
        }
        retry = RETRIES.0;
    }
}

/// Waits for all of `pause`, however often the bell rings; false once the book is gone.
#[expect(clippy::disallowed_methods, reason = "a pause of this thread, not a time of the program")]
fn rest(rings: &Receiver<()>, pause: Duration) -> bool {
    let end = Instant::now() + pause;
    loop {
        match rings.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

#[cfg(test)]
mod tests;
