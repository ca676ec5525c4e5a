//! A ledger in a SQLite file: durable, for any number of processes on one machine.
//!
//! | to know | look in |
//! |---|---|
//! | how many callers share one commit, and what a failure does | `writer` |
//! | what a caller hands over, and what becomes of it if he goes away | `job`, `queue` |
//! | how long a commit waits for others | `pace` |
//! | what is read and written for one reservation | `book`, `totals`, `columns` |
//! | how processes take turns | `locks` |
//! | when the disk has what was committed | `log` |
//! | what is checked when the file is opened | `file`, `filesystem`, `location` |
//! | the tables | `schema`, `meta` |
//! | reports and audits | `reader` |

mod book;
mod columns;
mod fault;
mod file;
mod filesystem;
mod job;
mod location;
mod locks;
mod log;
mod meta;
mod pace;
mod queue;
mod reader;
mod schema;
mod stopwatch;
mod totals;
mod tx;
mod writer;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError, mpsc as std_mpsc},
    thread,
    time::Duration,
};

use chrono::{DateTime, Utc};
use rusqlite::{Connection, InterruptHandle};
use tokio::sync::{mpsc, oneshot};

use self::{
    book::Book,
    fault::Fault,
    file::{Identity, Opened},
    job::{Abandoned, Call, Delivery, Reply, Undo, WhenAlone},
    queue::{Giver, queue},
    reader::Reading,
    writer::Writer,
};
use super::{LedgerStore, Reserving, RowQuery, StoreFuture, StoreInfo, Told};
use crate::{
    AuditReport, Durability, ErrorKind, Freeing, LedgerError, Reservation, Row, RowId, RowState,
    Settled, Settlement, StorageInfo, Total, TotalKey,
};

/// How many may wait to read.
const READERS: usize = 64;
/// How long dropping a store waits for each of its threads. They end by themselves, later, if it takes
/// longer.
const PATIENCE_TO_CLOSE: Duration = Duration::from_secs(5);

/// A ledger in a SQLite file.
///
/// Writing and reading have a thread each; no runtime is needed, and none is blocked. Dropping it
/// finishes what was handed over, closes the file in order and waits for that, 5 seconds at most for
/// each of the two threads.
/// Several stores on one file, in one process or many, take turns and count together.
///
/// ```
/// use keywheel_ledger::{Durability, LedgerStore, SqliteStore};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("ledger.db");
/// # let now = chrono::DateTime::UNIX_EPOCH;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = SqliteStore::open(Some(&path), Durability::Create, now).await?;
/// assert!(store.info().await?.storage.just_created);
/// # Ok::<(), keywheel_ledger::LedgerError>(()) }).unwrap();
/// ```
pub struct SqliteStore {
    storage: StorageInfo,
    abandoned: Abandoned,
    freeing: Freeing,
    /// `None` while it is dropped, and if it is only looked at.
    writer: Option<Giver>,
    reader: Option<mpsc::Sender<Reading>>,
    interrupt: InterruptHandle,
    /// The reader and the writer; each ends when its thread has.
    threads: Mutex<[std_mpsc::Receiver<()>; 2]>,
}

impl SqliteStore {
    /// The file that [`open`](Self::open) would use for `path`, by the environment as it is now; opens nothing.
    ///
    /// ```
    /// use keywheel_ledger::SqliteStore;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let folder = folder.path().canonicalize().unwrap();
    /// assert_eq!(SqliteStore::path(Some(&folder))?, folder.join("ledger.db"));
    /// # Ok::<(), keywheel_ledger::LedgerError>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when there is no such folder, or something that is no file in the file's place.
    pub fn path(path: Option<&Path>) -> Result<PathBuf, LedgerError> {
        let lookup = |name: &str| std::env::var_os(name);
        location::resolve(path, lookup, location::platform_state_folder)
    }

    /// Opens the ledger in the file at `path`, or makes it if `durability` allows that, at `now`.
    ///
    /// `None` means the file that `KEYWHEEL_LEDGER` names, else `LEDGER_DB`, else
    /// `keywheel/ledger.db` in the platform's folder for the state of programs
    /// (`$XDG_STATE_HOME`, `~/.local/state`). Of a folder that is there, it is `ledger.db` in it.
    ///
    /// The file can be read by its owner alone. After the last to have it open ended without closing
    /// it, all of it is checked first.
    ///
    /// # Errors
    /// [`Missing`](ErrorKind::Missing) and [`Vanishing`](ErrorKind::Vanishing) as `durability` asks
    /// for; [`Corrupt`](ErrorKind::Corrupt) for a file that is damaged or not a ledger and
    /// [`NewerSchema`](ErrorKind::NewerSchema) for one of a newer keywheel, which are left as they
    /// are; [`Invalid`](ErrorKind::Invalid) for a path that cannot be a file; else
    /// [`Store`](ErrorKind::Store).
    ///
    /// # Cancel safety
    /// Dropped before it is done, it ends on its thread and closes the file again.
    pub async fn open(
        path: Option<&Path>,
        durability: Durability,
        now: DateTime<Utc>,
    ) -> Result<Self, LedgerError> {
        let lookup = |name: &str| std::env::var_os(name);
        let path = location::resolve(path, lookup, location::platform_state_folder)?;
        let (writer, written) = queue();
        let (reader, read) = mpsc::channel(READERS);
        let abandoned = Abandoned::new(writer.bell());
        let freeing = Freeing::default();

        let (report, opened) = oneshot::channel();
        let writing = spawn("keywheel-ledger", {
            let (abandoned, freeing) = (abandoned.clone(), freeing.clone());
            move || match open_both(&path, durability, now) {
                // Who set the variable that named it may be somebody else.
                Err(error) => drop(report.send(Err(error.in_file(&path)))),
                Ok((opened, reading)) => {
                    let storage = opened.storage.clone();
                    let writer = Writer::new(opened, written, abandoned, freeing);
                    // Nobody waits any more: the queue has ended, too, and the writer closes.
                    let _ = report.send(Ok((storage, reading)));
                    writer.run();
                }
            }
        })?;
        let (storage, reading) = opened.await.unwrap_or_else(|_| Err(closed()))?;
        let interrupt = reading.0.get_interrupt_handle();
        let reading = spawn("keywheel-reader", {
            let storage = storage.clone();
            move || reader::run(storage, reading, read)
        })?;
        let threads = Mutex::new([reading, writing]);
        let (writer, reader) = (Some(writer), Some(reader));
        Ok(Self { storage, abandoned, freeing, writer, reader, interrupt, threads })
    }

    /// Opens the ledger in the file at `path` to be looked at: what would write answers with
    /// [`Closed`](ErrorKind::Closed).
    ///
    /// Works on a full disk, too, and while somebody keeps the turn to write. Nothing is checked.
    /// One that was closed is read also where nothing can be made beside it; whoever opens it for writing
    /// meanwhile is not seen.
    ///
    /// ```
    /// use keywheel_ledger::{Durability, LedgerStore, SqliteStore};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("ledger.db");
    /// # let now = chrono::DateTime::UNIX_EPOCH;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// assert!(SqliteStore::open_to_look(Some(&path)).await.is_err(), "none is made");
    /// drop(SqliteStore::open(Some(&path), Durability::Create, now).await?);
    /// let store = SqliteStore::open_to_look(Some(&path)).await?;
    /// assert!(store.audit().await?.is_balanced());
    /// # Ok::<(), keywheel_ledger::LedgerError>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Missing`](ErrorKind::Missing) if there is none, and as [`open`](Self::open).
    ///
    /// # Cancel safety
    /// As [`open`](Self::open).
    pub async fn open_to_look(path: Option<&Path>) -> Result<Self, LedgerError> {
        let path = Self::path(path)?;
        let (reader, read) = mpsc::channel(READERS);
        let (report, opened) = oneshot::channel();
        let reading = spawn("keywheel-reader", move || match file::open_to_look(&path) {
            Err(error) => drop(report.send(Err(error.in_file(&path)))),
            Ok((connection, storage)) => {
                let opened = (storage.clone(), connection.get_interrupt_handle());
                // Nobody waits any more: the queue has ended, too, and so does the reader.
                let _ = report.send(Ok(opened));
                reader::run(storage, (connection, Identity::of(&path)), read);
            }
        })?;
        let (storage, interrupt) = opened.await.unwrap_or_else(|_| Err(closed()))?;
        // Of a writer that never was.
        let abandoned = Abandoned::new(queue().0.bell());
        let (_, writing) = std_mpsc::channel();
        let threads = Mutex::new([reading, writing]);
        let (writer, reader, freeing) = (None, Some(reader), Freeing::default());
        Ok(Self { storage, abandoned, freeing, writer, reader, interrupt, threads })
    }

    /// Where it lies.
    ///
    /// ```
    /// # use keywheel_ledger::{Durability, SqliteStore};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("ledger.db");
    /// # let now = chrono::DateTime::UNIX_EPOCH;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let store = SqliteStore::open(Some(&path), Durability::EphemeralOk, now).await?;
    /// assert_eq!(store.storage().path.as_ref(), Some(&path));
    /// # Ok::<(), keywheel_ledger::LedgerError>(()) }).unwrap();
    /// ```
    #[must_use]
    pub const fn storage(&self) -> &StorageInfo {
        &self.storage
    }

    /// Hands `work` to the writer.
    fn write<T: Undo + Send + 'static>(
        &self,
        when_alone: WhenAlone,
        work: impl FnMut(&mut Book<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel::<Delivery<T>>();
            let (reply, abandoned) = (Reply::To(reply), self.abandoned.clone());
            let job = Box::new(Call { work, when_alone, reply, abandoned, kept: None });
            let queue = self.writer.as_ref().ok_or_else(closed)?;
            // Dropped here, nothing was handed over.
            queue.push(job).await.map_err(|_| closed())?;
            // Dropped here, the answer is dropped as well and knows what to give back.
            let delivery = answer.await.map_err(|_| closed())?;
            delivery.take().unwrap_or_else(|| Err(closed()))
        })
    }

    /// Hands `work` to the reader.
    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let queue = self.reader.as_ref().ok_or_else(closed)?;
            queue.send(reader::reading(reply, work)).await.map_err(|_| closed())?;
            answer.await.unwrap_or_else(|_| Err(closed()))
        })
    }
}

impl LedgerStore for SqliteStore {
    fn freeing(&self) -> &Freeing {
        &self.freeing
    }

    fn info(&self) -> StoreFuture<'_, StoreInfo> {
        let storage = self.storage.clone();
        self.read(|file| reader::info(file, storage))
    }

    fn reserve(&self, reservation: Reservation) -> StoreFuture<'_, Reserving> {
        self.write(WhenAlone::Skip, move |book| book.reserve(&reservation))
    }

    fn settle(&self, settlement: Settlement) -> StoreFuture<'_, Settled> {
        self.write(WhenAlone::Apply, move |book| book.settle(&settlement))
    }

    fn settle_unattended(&self, settlement: Settlement, told: Told) -> Option<(Settlement, Told)> {
        let Some(place) = self.writer.as_ref().and_then(Giver::place) else {
            return Some((settlement, told));
        };
        let work = move |book: &mut Book<'_>| book.settle(&settlement);
        let (reply, abandoned) = (Reply::Tell(told), self.abandoned.clone());
        let when_alone = WhenAlone::Apply;
        let job = Box::new(Call { work, when_alone, reply, abandoned, kept: None });
        if let Err(job) = place.put(job) {
            job.answer(Some(closed()));
        }
        None
    }

    fn turn_over(
        &self,
        settlement: Settlement,
        next: Reservation,
    ) -> StoreFuture<'_, (Settled, Reserving)> {
        self.write(WhenAlone::Apply, move |book| book.turn_over(&settlement, &next))
    }

    fn renew(&self, id: RowId, now: DateTime<Utc>) -> StoreFuture<'_, RowState> {
        self.write(WhenAlone::Apply, move |book| book.renew(id, now))
    }

    fn sweep(&self, now: DateTime<Utc>, age: Duration) -> StoreFuture<'_, Vec<Row>> {
        self.write(WhenAlone::Skip, move |book| book.sweep(now, age))
    }

    fn prune(&self, now: DateTime<Utc>, keep: Duration) -> StoreFuture<'_, usize> {
        Box::pin(async move {
            let places = self.read(move |file| reader::prunable(file, now, keep)).await?;
            if places.is_empty() {
                return Ok(0);
            }
            self.write(WhenAlone::Skip, move |book| book.prune(&places, now, keep)).await
        })
    }

    fn totals(&self, keys: Vec<TotalKey>) -> StoreFuture<'_, Vec<Total>> {
        self.read(move |file| reader::totals(file, &keys))
    }

    fn rows(&self, query: RowQuery) -> StoreFuture<'_, Vec<Row>> {
        self.read(move |file| reader::rows(file, &query))
    }

    fn recent(&self, count: usize) -> StoreFuture<'_, Vec<Row>> {
        self.read(move |file| reader::recent(file, count))
    }

    fn audit(&self) -> StoreFuture<'_, AuditReport> {
        self.read(reader::audit)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        let [reading, writing] = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Nobody waits for what is read: every future borrows the store. They send nothing; waiting
        // ends when the thread has dropped its side.
        drop(self.reader.take());
        self.interrupt.interrupt();
        let _ = reading.recv_timeout(PATIENCE_TO_CLOSE);
        // The writer last: only the last connection takes the log away.
        drop(self.writer.take());
        let _ = writing.recv_timeout(PATIENCE_TO_CLOSE);
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("storage", &self.storage).finish_non_exhaustive()
    }
}

fn open_both(
    path: &Path,
    durability: Durability,
    now: DateTime<Utc>,
) -> Result<(Opened, (Connection, Identity)), LedgerError> {
    let opened = file::open(path, durability, now)?;
    let reading = file::open_for_reading(path)?;
    Ok((opened, (reading, Identity::of(path))))
}

/// Runs `work` on a thread of this name; what is returned ends when the thread does.
fn spawn(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<std_mpsc::Receiver<()>, LedgerError> {
    let (alive, ended) = std_mpsc::channel();
    let work = move || {
        work();
        drop::<std_mpsc::Sender<()>>(alive);
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(|_| ended)
        .map_err(|error| fault::io_fault("no thread for the ledger", error))
}

fn closed() -> LedgerError {
    LedgerError::new(ErrorKind::Closed, "the ledger is closed, or its thread has ended")
}
