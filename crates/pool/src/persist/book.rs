//! The state file as one process knows it, and one flush of it. Runs on the state file's thread
//! alone.

use std::{collections::BTreeSet, fmt, io, path::PathBuf, sync::Arc, time::Duration};

use keywheel_core::{Clock, Fingerprint};

use super::{
    StateNote,
    bounds::Waits,
    changes::{Changes, Shared, Told},
    file::{Fault, Files, Found, Seen},
    format::{StateFile, VERSION},
    lock::{Live, Lock, Sign},
    merge::{combine, loses_news, merge},
    restore::own_part,
    tidy,
    time::At,
};

/// How long one flush waits for the lock. A flush that does not get it is tried again.
const LOCK_PATIENCE: Duration = Duration::from_millis(250);
/// How long opening the pool waits for it, to keep a bad file aside.
const OPEN_PATIENCE: Duration = Duration::from_millis(500);
/// A writer whose sign of life is missing is given up after the longest day: its counts mean nothing
/// then.
const SILENT_MS: i64 = 25 * 3_600_000;
/// How often in an hour a process keeps a file aside. Whoever keeps writing other files there is
/// stronger than we are.
const MOST_KEPT_ASIDE: usize = 3;
const HOUR_MS: i64 = 3_600_000;

/// The state file as this process knows it.
pub(super) struct Book {
    files: Files,
    writer: Box<str>,
    waits: Waits,
    clock: Arc<dyn Clock>,
    /// What the file said when it was last read or written, with ours merged in since (which
    /// changes nothing when it is merged again).
    known: Arc<StateFile>,
    /// Which file that was.
    seen: Option<Seen>,
    /// What is not on disk yet.
    pending: Changes,
    /// When that was collected, and what is on disk already.
    told: Told,
    /// This process's keys.
    keys: BTreeSet<Fingerprint>,
    /// How often this process saved.
    saves: u64,
    started_at: At,
    live: Option<Live>,
    /// When files were kept aside in the last hour.
    kept_aside: Vec<i64>,
    /// What happened since it was opened that the owner should know.
    notes: Vec<StateNote>,
    /// The file needs writing although nothing changed here: it was torn.
    repair: bool,
    /// This is the last flush.
    leaving: bool,
}

/// What came of a flush.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flushed {
    /// Somebody else had written.
    pub(super) others_wrote: bool,
    /// Everything is in the file. False when another process cleared, just before, what this one had
    /// to say.
    pub(super) complete: bool,
}

/// Why a flush did not succeed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Another process has the lock.
    Locked,
    /// The disk said no.
    Disk(&'static str, io::Error),
    /// Something else keeps writing there.
    Contested(Fault),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked => f.write_str("another process holds the state file's lock"),
            Self::Disk(what, error) => write!(f, "cannot {what}: {error}"),
            Self::Contested(fault) => {
                write!(f, "the state file {fault} again and again; something else writes there")
            }
        }
    }
}

impl Book {
    /// Reads the file at `path`. What is no state file is kept aside.
    pub(super) fn open(
        path: PathBuf,
        writer: Box<str>,
        waits: Waits,
        clock: Arc<dyn Clock>,
    ) -> (Self, Vec<StateNote>) {
        let started_at = At(clock.unix_ms());
        let mut book = Self {
            files: Files::new(path),
            writer,
            waits,
            clock,
            known: Arc::new(StateFile::empty()),
            seen: None,
            pending: Changes::default(),
            told: Told::default(),
            keys: BTreeSet::new(),
            saves: 0,
            started_at,
            live: None,
            kept_aside: Vec::new(),
            notes: Vec::new(),
            repair: false,
            leaving: false,
        };
        let found = book.first_look();
        let notes = found.into_iter().chain(book.take_notes()).collect();
        (book, notes)
    }

    /// What the file says, ours merged in.
    pub(super) fn known(&self) -> &Arc<StateFile> {
        &self.known
    }

    /// True when something waits to be written, be it for the second time.
    pub(super) fn has_pending(&self) -> bool {
        self.repair || !self.pending.is_empty()
    }

    /// What happened since the last call that the owner should know.
    pub(super) fn take_notes(&mut self) -> Vec<StateNote> {
        std::mem::take(&mut self.notes)
    }

    /// Adds what the pool has to say.
    pub(super) fn collect(&mut self, shared: &dyn Shared) {
        // Before: what is set meanwhile counts as news once more, and nothing is taken for told.
        self.told.now = Some(At(self.clock.unix_ms()));
        self.add(shared.collect());
    }

    /// Reads the file if somebody else wrote it, without the lock: a rename is seen whole or not at
    /// all. True when there is something to absorb.
    pub(super) fn catch_up(&mut self) -> bool {
        let Ok(Some(stamp)) = self.files.look() else { return false };
        if self.seen.as_ref().is_some_and(|seen| seen.is(&stamp)) {
            return false;
        }
        match self.files.read() {
            Ok(Found::Good(file, seen)) => {
                self.adopt(*file, seen);
                true
            }
            Ok(Found::Bad(_)) => {
                self.repair = true;
                false
            }
            // Gone again, or not to be read: the next flush will tell.
            Ok(Found::Missing) | Err(_) => false,
        }
    }

    /// Reads, merges and replaces the file under the lock.
    ///
    /// # Errors
    /// [`Trouble`]; nothing is lost then, the next flush tries again.
    pub(super) fn flush(&mut self, stop: impl Fn() -> bool) -> Result<Flushed, Trouble> {
        let disk = |what| move |error| Trouble::Disk(what, error);
        self.files.make_folder().map_err(disk("make the state folder"))?;
        let lock = Lock::take(&self.files.lock(), LOCK_PATIENCE, stop)
            .map_err(disk("lock the state file"))?
            .ok_or(Trouble::Locked)?;
        let heard = Arc::clone(&self.known);
        let others_wrote = self.bring_up_to_date()?;
        let now_ms = self.clock.unix_ms();
        self.show_life().map_err(disk("make a sign of life"))?;

        self.pending.told = self.told;
        let complete = !loses_news(&self.known, &self.pending, &heard, now_ms);
        drop(heard);
        let mut base = Arc::unwrap_or_clone(std::mem::take(&mut self.known));
        tidy::make_sane_again(&mut base, &self.waits, now_ms);
        let mut file = merge(base, &self.pending, &self.writer, now_ms);
        self.sign(&mut file, now_ms);
        self.fold_dead(&mut file, now_ms);
        tidy::prune(&mut file, &self.keys, now_ms);
        tidy::derive_available_at(&mut file, now_ms);
        let replaced = self.files.replace(&file);
        self.known = Arc::new(file);
        self.seen = Some(replaced.map_err(disk("write the state file"))?);
        self.pending = Changes::default();
        self.told.before = self.told.now.unwrap_or_default();
        self.saves += 1;
        self.repair = false;
        drop(lock);
        Ok(Flushed { others_wrote, complete })
    }

    /// Takes this writer out of the file at a clean end: its counts are summed up with those of
    /// others who are gone. What was unwritten is written with it.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); whoever comes next finds this writer dead then, and does the
    /// same.
    pub(super) fn withdraw(&mut self) -> Result<(), Trouble> {
        if self.saves > 0 || self.has_pending() {
            self.leaving = true;
            self.flush(|| false)?;
        }
        self.live.take().into_iter().for_each(Live::end);
        Ok(())
    }

    fn first_look(&mut self) -> Option<StateNote> {
        let path = self.files.path().to_owned();
        let unusable = |fault| Some(StateNote::Unusable { path: Some(path.clone()), fault });
        let fault = match self.files.read() {
            Ok(Found::Missing) => return None,
            Ok(Found::Good(file, seen)) => {
                self.adopt(*file, seen);
                return None;
            }
            Ok(Found::Bad(fault)) => fault,
            Err(error) => return unusable(format!("cannot be read: {error}")),
        };
        self.repair = true;
        // Under the lock it is looked at once more: another process may just have put it right.
        match Lock::take(&self.files.lock(), OPEN_PATIENCE, || false) {
            Ok(Some(_lock)) => match self.files.read() {
                Ok(Found::Good(file, seen)) => {
                    self.adopt(*file, seen);
                    None
                }
                Ok(Found::Bad(fault)) => match self.keep_aside() {
                    Ok(kept) => Some(StateNote::KeptAside { kept, fault: fault.to_string() }),
                    Err(error) => unusable(format!("{fault}, and cannot be moved: {error}")),
                },
                Ok(Found::Missing) => None,
                Err(error) => unusable(format!("cannot be read: {error}")),
            },
            Ok(None) => unusable(format!("{fault}, and another process holds its lock")),
            Err(error) => unusable(format!("{fault}, and its lock cannot be had: {error}")),
        }
    }

    /// Makes `known` what the file says, under the lock. True when somebody else had written.
    fn bring_up_to_date(&mut self) -> Result<bool, Trouble> {
        let disk = |what| move |error| Trouble::Disk(what, error);
        let stamp = self.files.look().map_err(disk("read the state file"))?;
        // A file that somebody removed is written anew, with all we know.
        let Some(stamp) = stamp else { return Ok(false) };
        if self.seen.as_ref().is_some_and(|seen| seen.is(&stamp)) {
            return Ok(false);
        }
        match self.files.read().map_err(disk("read the state file"))? {
            Found::Missing => Ok(false),
            Found::Good(file, seen) => {
                self.adopt(*file, seen);
                Ok(true)
            }
            Found::Bad(fault) if self.may_keep_aside() => {
                let kept = self.keep_aside().map_err(disk("keep a bad state file aside"))?;
                let note = StateNote::KeptAside { kept, fault: fault.to_string() };
                tracing::warn!("{note}");
                self.notes.push(note);
                Ok(false)
            }
            Found::Bad(fault) => Err(Trouble::Contested(fault)),
        }
    }

    fn keep_aside(&mut self) -> io::Result<PathBuf> {
        let now_ms = self.clock.unix_ms();
        let kept = self.files.keep_aside(now_ms)?;
        self.kept_aside.push(now_ms);
        Ok(kept)
    }

    fn may_keep_aside(&mut self) -> bool {
        let now_ms = self.clock.unix_ms();
        // Either way: a clock that was ahead must not count for longer.
        self.kept_aside.retain(|at_ms| at_ms.abs_diff(now_ms) < HOUR_MS.unsigned_abs());
        self.kept_aside.len() < MOST_KEPT_ASIDE
    }

    /// Takes a file that somebody else wrote. If it is an old copy that was put back, what is known
    /// here goes on top of it with the next flush.
    fn adopt(&mut self, mut file: StateFile, seen: Seen) {
        if seen.overflowed {
            self.notes.push(StateNote::FieldsDropped { path: self.files.path().to_owned() });
        }
        tidy::make_sane(&mut file, &self.waits, self.clock.unix_ms());
        let saves = file.writers.find(&self.writer).map_or(0, |entry| entry.saves);
        if saves < self.saves {
            let ours = own_part(&self.known, &self.writer);
            self.pending = combine(ours, std::mem::take(&mut self.pending));
        }
        self.known = Arc::new(file);
        self.seen = Some(seen);
    }

    fn add(&mut self, changes: Changes) {
        self.keys.extend(changes.keys.iter().map(|(fingerprint, _)| *fingerprint));
        self.pending = combine(std::mem::take(&mut self.pending), changes);
    }

    fn show_life(&mut self) -> io::Result<()> {
        if self.live.is_some() {
            return Ok(());
        }
        // Those of writers that died between making theirs and their first save.
        for writer in self.files.live_writers() {
            if is_writer(&writer) && self.known.writers.find(&writer).is_none() {
                Live::sign(&Live::path(self.files.path(), &writer));
            }
        }
        self.live = Some(Live::hold(Live::path(self.files.path(), &self.writer))?);
        Ok(())
    }

    fn sign(&self, file: &mut StateFile, now_ms: i64) {
        file.version = VERSION;
        file.saved_at = At(now_ms);
        let entry = file.writers.entry(&self.writer);
        entry.pid = std::process::id().into();
        entry.started_at = self.started_at;
        entry.seen_at = At(now_ms);
        entry.saves = self.saves + 1;
    }

    fn fold_dead(&self, file: &mut StateFile, now_ms: i64) {
        let oldest = At(now_ms.saturating_sub(SILENT_MS));
        let dead = file.writers.iter().filter(|(writer, entry)| {
            if ***writer == *self.writer {
                return self.leaving;
            }
            let sign = if is_writer(writer) {
                Live::sign(&Live::path(self.files.path(), writer))
            } else {
                Sign::Missing
            };
            sign == Sign::Dead || sign == Sign::Missing && entry.seen_at < oldest
        });
        let dead: Vec<Box<str>> = dead.map(|(writer, _)| writer.clone()).collect();
        tidy::fold(file, &dead);
    }
}

/// The id of a new writer: `w` and ten random hexadecimal digits.
pub(super) fn new_writer() -> Box<str> {
    format!("w{:010x}", fastrand::Rng::new().u64(..) & 0xff_ffff_ffff).into()
}

/// Names of files are made of these ids, and the state file can be edited: no separators, no dots.
fn is_writer(id: &str) -> bool {
    id.len() <= 32 && id.starts_with('w') && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
