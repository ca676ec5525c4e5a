//! The one thread that writes: it takes what many callers want, and commits it together.
//!
//! A commit waits for the disk once, whether it holds one reservation or 256, and it waits when the
//! next process has the turn already. Each caller gets his own answer: a denial is a value, and one
//! whose row cannot be written does not spoil the others'.

use std::{path::PathBuf, time::Duration};

use rusqlite::Connection;

use super::{
    book::{Book, Memory},
    fault::Fault,
    file::{self, Companions, Identity, Opened},
    job::{Abandoned, GivenBack, Job},
    locks::{Presence, Turn},
    log::Log,
    meta,
    pace::{PERIOD, Pace},
    queue::{Gathered, MOST, Patience, Taker},
    stopwatch::Stopwatch,
    tx,
};
use crate::{Freeing, LedgerError};

/// A client that asks one question after the other is back well within the time for which its settlement stays.
const PATIENCE: Patience = Patience { period: PERIOD, linger: Duration::from_millis(1) };
/// How long to wait for our turn when the ledger is closed.
const PATIENCE_TO_CLOSE: Duration = Duration::from_secs(1);

/// The writer, as it lives in its thread.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    /// The name of the ledger that was opened; no other one is written to.
    ledger_id: String,
    /// `None` after a failure, until it is open again.
    file: Option<Connection>,
    /// What `file` is, to notice when another one takes its place.
    identity: Identity,
    /// What lies beside it, to notice when it is removed.
    companions: Companions,
    log: Log,
    /// What [`data_version`] was when `memory` was last right.
    seen: Option<i64>,
    memory: Memory,
    turn: Turn,
    presence: Presence,
    queue: Taker,
    abandoned: Abandoned,
    freeing: Freeing,
}

impl Writer {
    pub(super) fn new(
        opened: Opened,
        queue: Taker,
        abandoned: Abandoned,
        freeing: Freeing,
    ) -> Self {
        let Opened { connection, turn, presence, storage } = opened;
        let path = storage.path.unwrap_or_default();
        Self {
            identity: Identity::of(&path),
            companions: Companions::of(&path),
            log: Log::of(&path),
            path,
            ledger_id: storage.ledger_id,
            file: Some(connection),
            seen: None,
            memory: Memory::default(),
            turn,
            presence,
            queue,
            abandoned,
            freeing,
        }
    }

    /// Writes what is handed over until nothing more will come, and closes the ledger.
    pub(super) fn run(mut self) {
        let mut batch = Vec::with_capacity(MOST);
        let mut pace = Pace::new();
        let mut began = Stopwatch::start();
        loop {
            let gathered = self.queue.gather(&mut batch, pace.enough(), began, PATIENCE);
            if gathered == Gathered::Closed {
                break;
            }
            pace.begins(batch.len(), gathered);
            began = Stopwatch::start();
            self.write(&mut batch);
        }
        self.close();
    }

    /// Writes the batch, and whatever came while we waited for our turn; everybody gets his answer.
    fn write(&mut self, batch: &mut Vec<Box<dyn Job>>) {
        let failure = self.commit(|queue| {
            queue.drain(batch);
            batch
        });
        match failure {
            Ok(()) => self.answer(batch.drain(..)),
            // One row cannot be written: whose it is, is found out one by one.
            Err(fault) if batch.len() > 1 && !fault.concerns_all() => {
                for mut job in batch.drain(..) {
                    match self.commit(|_| std::slice::from_mut(&mut job)) {
                        Ok(()) => self.answer(std::iter::once(job)),
                        Err(fault) => job.answer(Some(fault.into())),
                    }
                }
            }
            Err(fault) => {
                let error = LedgerError::from(fault);
                tracing::warn!(%error, callers = batch.len(), "the ledger could not be written");
                batch.drain(..).for_each(|job| job.answer(Some(error.clone())));
            }
        }
    }

    /// Answers those whose `jobs` were committed, as soon as the disk has them.
    fn answer(&mut self, jobs: impl Iterator<Item = Box<dyn Job>>) {
        match self.log.sync() {
            Ok(()) => jobs.for_each(|job| job.answer(None)),
            Err(error) => {
                tracing::warn!(%error, "what was written to the ledger may not last");
                jobs.for_each(|job| job.withdraw(error.clone()));
            }
        }
    }

    /// Does the `jobs` in one transaction, when it is our turn. After an error none of them is done;
    /// else they are, but the disk need not have them yet.
    fn commit<'a>(
        &mut self,
        jobs: impl FnOnce(&Taker) -> &'a mut [Box<dyn Job>],
    ) -> Result<(), Fault> {
        let _held = file::wait_for(&self.turn)?;
        // A file that nobody can find any more would be written to for ever.
        let identity = Identity::of(&self.path);
        if self.file.is_none() || identity != self.identity {
            (self.file, self.seen) = (None, None);
            self.file = Some(file::reopen(&self.path, &self.ledger_id)?);
            self.identity = identity;
            self.companions = Companions::of(&self.path);
            self.log.follow();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        if Companions::of(&self.path) != self.companions {
            save(file);
            return Err(file::bereft(&self.path).into());
        }
        self.log.mend(file)?;
        let jobs = jobs(&self.queue);
        let abandoned = self.abandoned.take();
        let (memory, seen) = (&mut self.memory, &mut self.seen);
        let done = tx::immediate(file, |file| {
            let version = data_version(file)?;
            if seen.replace(version) != Some(version) {
                memory.forget();
            }
            let mut book = Book::new(file, memory);
            for gone in &abandoned {
                give_back(&mut book, *gone)?;
            }
            for job in jobs.iter_mut().filter(|job| !job.is_moot()) {
                job.run(&mut book)?;
            }
            book.close()
        });
        match done {
            Ok(frees) => {
                if frees {
                    self.freeing.tell();
                }
                Ok(())
            }
            Err(fault) => {
                self.abandoned.put_back(abandoned);
                // Whatever state it is in: a new connection has none, and makes us read the totals
                // anew.
                self.file = None;
                Err(fault)
            }
        }
    }

    /// Marks the ledger as closed in order, if nobody else has it open.
    fn close(mut self) {
        if !self.abandoned.is_empty() {
            let nobody: &mut [Box<dyn Job>] = &mut [];
            // If it cannot be written, the sweep does it.
            let _ = self.commit(|_| nobody);
        }
        // Somebody else's turn never ends: he, or the next to open it, will find it not closed.
        let Ok(Some(_held)) = self.turn.take(PATIENCE_TO_CLOSE) else { return };
        let Some(mut file) = self.file.take() else { return };
        if self.presence.leave() {
            let closed = tx::immediate(&mut file, |file| meta::set(file, meta::CLOSED, 1));
            let closed = closed.and_then(|()| {
                Ok(file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
            });
            if let Err(fault) = closed {
                let error = LedgerError::from(fault);
                tracing::warn!(%error, "the ledger could not be closed in order");
            }
        }
        // Before the turn ends: the last connection to close removes the log.
        drop(file);
    }
}

/// Brings what is in a log that nobody else can find any more into the file: it was acknowledged, and
/// would go with us.
fn save(file: &Connection) {
    let saved = file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    if let Err(error) = saved {
        tracing::warn!(%error, "what is in the ledger's removed log could not be saved");
    }
}

/// A number that changes when another connection writes.
fn data_version(file: &Connection) -> Result<i64, Fault> {
    Ok(file.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

fn give_back(book: &mut Book<'_>, gone: GivenBack) -> Result<(), Fault> {
    match book.abandon(gone) {
        // Pruned meanwhile, or damaged: nobody waits to hear of it.
        Err(Fault::Answer(_)) | Ok(()) => Ok(()),
        Err(fault) => Err(fault),
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use tokio::sync::oneshot::{self, error::TryRecvError as NoAnswer};

    use super::*;
    use crate::{
        Ask, Charge, Durability, LedgerRules, Limit, Outcome, Period, Reservation, Reserving,
        Settled, Settlement,
        store::sqlite::{
            job::{Call, Delivery, Reply, WhenAlone},
            queue::queue,
        },
    };

    /// A writer without a thread of its own, and what would be handed to it.
    struct Desk {
        writer: Writer,
        abandoned: Abandoned,
        rules: Arc<LedgerRules>,
    }

    impl Desk {
        fn open(path: &Path, cap: u64) -> Self {
            let opened = file::open(path, Durability::Create, chrono::DateTime::UNIX_EPOCH);
            let (giver, queue) = queue();
            let abandoned = Abandoned::new(giver.bell());
            let freeing = Freeing::default();
            let writer = Writer::new(opened.unwrap(), queue, abandoned.clone(), freeing);
            let limit = Limit::tokens(Period::Total, cap);
            let rules = Arc::new(LedgerRules::new().account("triage", [limit]).unwrap());
            Self { writer, abandoned, rules }
        }

        /// What everybody hears who reserves `tokens` in one batch.
        fn reserve(&mut self, tokens: &[u64]) -> Vec<Result<Reserving, LedgerError>> {
            let (mut batch, answers): (Vec<_>, Vec<_>) =
                tokens.iter().map(|tokens| self.ask(*tokens)).unzip();
            self.writer.write(&mut batch);
            let heard = |mut answer: oneshot::Receiver<Delivery<Reserving>>| {
                let answer: Result<_, NoAnswer> = answer.try_recv();
                answer.unwrap().take().unwrap()
            };
            answers.into_iter().map(heard).collect()
        }

        fn ask(&self, tokens: u64) -> (Box<dyn Job>, oneshot::Receiver<Delivery<Reserving>>) {
            let account = "triage".parse().unwrap();
            let ask = Ask::new("m", tokens);
            let now = chrono::DateTime::UNIX_EPOCH;
            let asked = Reservation::new(account, ask, Arc::clone(&self.rules), now).unwrap();
            let (reply, answer) = oneshot::channel();
            let call = Call {
                work: move |book: &mut Book<'_>| book.reserve(&asked),
                when_alone: WhenAlone::Skip,
                reply: Reply::To(reply),
                abandoned: self.abandoned.clone(),
                kept: None,
            };
            (Box::new(call), answer)
        }
    }

    #[test]
    fn nobody_is_granted_what_the_disk_does_not_have_and_it_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut desk = Desk::open(&folder.path().join("ledger.db"), 1_000);
        assert!(desk.reserve(&[100])[0].is_ok());
        desk.writer.log.break_disk();
        for answer in desk.reserve(&[300, 400]) {
            assert_eq!(answer.unwrap_err().kind(), crate::ErrorKind::Store);
        }
        // Exactly what is left if nothing of the 700 stays behind.
        let answer = desk.reserve(&[900]).remove(0).unwrap();
        assert!(matches!(answer, Reserving::Granted(..)), "{answer:?}");
    }

    #[test]
    fn whoever_settles_unattended_is_told_that_the_disk_does_not_have_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut desk = Desk::open(&folder.path().join("ledger.db"), 1_000);
        let Ok(Reserving::Granted(row, _)) = desk.reserve(&[100]).remove(0) else { panic!() };
        let heard = |desk: &mut Desk| {
            let (told, hears) = std::sync::mpsc::channel();
            let told = move |settled: Result<Settled, LedgerError>| told.send(settled).unwrap();
            let now = chrono::DateTime::UNIX_EPOCH;
            let (charge, outcome) = (Charge::Tokens(70), Outcome::Answered);
            let settlement =
                Settlement { id: row.id, charge, outcome, usage: None, note: None, now };
            let call = Call {
                work: move |book: &mut Book<'_>| book.settle(&settlement),
                when_alone: WhenAlone::Apply,
                reply: Reply::Tell(Box::new(told)),
                abandoned: desk.abandoned.clone(),
                kept: None,
            };
            desk.writer.write(&mut vec![Box::new(call) as Box<dyn Job>]);
            hears.try_recv().unwrap()
        };
        desk.writer.log.break_disk();
        assert_eq!(heard(&mut desk).unwrap_err().kind(), crate::ErrorKind::Store);
        // As for everybody: it may have been written, and the same again changes nothing.
        assert_eq!(heard(&mut desk).unwrap().charged.tokens, 70);
    }

    #[test]
    fn after_the_disk_failed_the_log_is_copied_before_anything_is_granted() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("ledger.db"), folder.path().join("copy.db"));
        let mut desk = Desk::open(&path, 1_000);
        let without_the_log = || -> i64 {
            std::fs::copy(&path, &copy).unwrap();
            let copy = Connection::open(&copy).unwrap();
            copy.query_row("SELECT count(*) FROM rows", [], |row| row.get(0)).unwrap()
        };
        desk.writer.log.break_disk();
        assert!(desk.reserve(&[300])[0].is_err());
        assert_eq!(without_the_log(), 0);
        // The disk will not be asked again for the pages that it did not take; these are other ones.
        assert!(desk.reserve(&[100])[0].is_ok());
        assert_eq!(without_the_log(), 1);
    }
}
