//! The ledger's file: found, made, checked, opened.

use std::{fs, io, path::Path, time::Duration};

use chrono::{DateTime, Utc};
use keywheel_core::clock::from_unix_ms;
use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::{
    fault::{Fault, io_fault},
    filesystem,
    locks::{Presence, Turn, beside},
    log::Log,
    meta,
    schema::{self, Found},
    tx,
};
use crate::{Durability, ErrorKind, LedgerError, StorageInfo, StorageKind};

/// How long to wait for somebody else's turn, and for a lock of another program.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How many statements are kept ready.
const STATEMENTS: usize = 32;
/// How much of the file is kept in memory, in KiB. What is written is the newest rows, and they lie together: at a million
/// rows four times as much is no faster.
const CACHE_KIB: i64 = 4 * 1024;
/// After how many pages of 4 KiB the log is copied into the file. Copying stops the writer for some
/// milliseconds, so not too often; and readers have to look through the log, so not too rarely.
const LOG_PAGES: i64 = 4_000;
/// How large the log may stay after a long report has made it grow.
const LOG_BYTES: i64 = 64 << 20;

/// A ledger that is open for writing.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) turn: Turn,
    pub(super) presence: Presence,
    pub(super) storage: StorageInfo,
}

/// Opens the ledger at `path`, which is made if `durability` allows it.
///
/// # Errors
/// [`ErrorKind::Missing`], [`ErrorKind::Vanishing`], [`ErrorKind::Corrupt`],
/// [`ErrorKind::NewerSchema`], and [`ErrorKind::Store`] for what may be over in a moment. A file that
/// is not a ledger is left as it is.
pub(super) fn open(
    path: &Path,
    durability: Durability,
    now: DateTime<Utc>,
) -> Result<Opened, LedgerError> {
    if durability == Durability::RequireExisting && is_empty(path) {
        return Err(missing(path));
    }
    make_folder(path)?;
    let kind = filesystem::kind(path);
    judge(path, &kind, durability)?;

    let turn = Turn::open(path).map_err(|error| io_fault(&shut_out(path), error))?;
    let held = wait_for(&turn)?;
    let is_made =
        make_file(path).map_err(|error| io_fault("the ledger's file cannot be made", error))?;
    let joined = join(path, durability, now);
    if joined.is_err() && is_made && is_empty(path) {
        // Whoever looks next is to find what there was: no ledger, and not one that is empty.
        let _ = fs::remove_file(path);
    }
    drop(held);
    let (connection, presence, found) = joined?;

    let just_created = found == Found::Nothing;
    let storage = StorageInfo { just_created, ..describe(path, kind, &connection)? };
    Ok(Opened { connection, turn, presence, storage })
}

/// Joins those who have the ledger open; only while it is our turn.
fn join(
    path: &Path,
    durability: Durability,
    now: DateTime<Utc>,
) -> Result<(Connection, Presence, Found), LedgerError> {
    if is_empty(path) && !is_empty(&beside(path, "-wal")) {
        return Err(emptied(path));
    }
    let companions = Companions::of(path);
    let mut connection = raw(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(Fault::from)?;
    let found = schema::look(&connection)?;
    if found == Found::Nothing && durability == Durability::RequireExisting {
        return Err(missing(path));
    }
    let (presence, alone) =
        Presence::join(path).map_err(|error| io_fault(&shut_out(path), error))?;
    if !alone && !companions.are_there() {
        return Err(bereft(path));
    }
    configure(&connection)?;
    if found != Found::Nothing && alone && !was_closed_in_order(&connection) {
        if !companions.are_there() {
            tracing::warn!(
                "{} was not closed in order, and its log is gone: unless a program such as sqlite3 \
                 wrote it back, what was reserved and settled last is not counted",
                path.display()
            );
        }
        check(path, &connection)?;
    }
    schema::migrate(&mut connection, found)?;
    tx::immediate(&mut connection, |file| {
        // Also if whoever made it was killed before he could name it.
        if meta::read::<String>(file, meta::LEDGER_ID)?.is_none() {
            meta::set(file, meta::LEDGER_ID, format!("{:032x}", fastrand::u128(..)))?;
            meta::set(file, meta::CREATED_AT, now.timestamp_millis())?;
        }
        meta::set(file, meta::CLOSED, 0)
    })?;
    if alone {
        // Into the file itself: whoever takes the log away must not take the ledger's name with it.
        connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            .map_err(Fault::from)?;
    }
    keep_private(path);
    Log::take_over(&connection).map_err(Fault::from)?;
    Ok((connection, presence, found))
}

fn describe(
    path: &Path,
    kind: StorageKind,
    connection: &Connection,
) -> Result<StorageInfo, LedgerError> {
    Ok(StorageInfo {
        vanishes: kind.vanishes(),
        kind,
        path: Some(path.to_owned()),
        created_at: from_unix_ms(meta::number(connection, meta::CREATED_AT)?),
        ledger_id: meta::read(connection, meta::LEDGER_ID)?.unwrap_or_default(),
        just_created: false,
    })
}

/// Opens the ledger called `id` again, which was open before.
///
/// # Errors
/// Whatever stands in its place now.
pub(super) fn reopen(path: &Path, id: &str) -> Result<Connection, Fault> {
    if is_empty(path) {
        return Err(missing(path).into());
    }
    expect_same(path, id)?;
    let connection = raw(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    expect_ledger(&connection)?;
    configure(&connection)?;
    Log::take_over(&connection)?;
    Ok(connection)
}

/// Opens a ledger that is open for writing elsewhere in this process, for reading.
///
/// # Errors
/// Whatever opening it comes to.
pub(super) fn open_for_reading(path: &Path) -> Result<Connection, Fault> {
    let connection = raw(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    expect_ledger(&connection)?;
    Ok(connection)
}

/// Opens the ledger at `path` to be looked at, and writes nothing.
///
/// # Errors
/// There is none, or whatever opening it comes to.
pub(super) fn open_to_look(path: &Path) -> Result<(Connection, StorageInfo), LedgerError> {
    if is_empty(path) {
        return Err(missing(path));
    }
    let opened = open_for_reading(path)
        .or_else(|fault| open_alone(path).or_else(|_| open_at_rest(path)).map_err(|_| fault));
    let connection = opened.map_err(|fault| match fault {
        Fault::File(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
            let what = format!("{}: {error}", shut_out(path));
            LedgerError::new(ErrorKind::Store, what).caused_by(error)
        }
        other => other.into(),
    })?;
    let storage = describe(path, filesystem::kind(path), &connection)?;
    Ok((connection, storage))
}

/// Opens a ledger that nobody else has open, for reading. The index of its log, which lies in a file of 32 KiB for all
/// who have it open, is kept in memory: a full disk has no room for it.
fn open_alone(path: &Path) -> Result<Connection, Fault> {
    let connection = raw(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    // Copying the log into the file would write, too.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    expect_ledger(&connection)?;
    Ok(connection)
}

/// Opens a ledger that was closed, for reading, where nothing can be made beside it: without its log, as there is none.
/// Nothing keeps others from opening it for writing meanwhile, so this is for where all else failed.
fn open_at_rest(path: &Path) -> Result<Connection, Fault> {
    if ["-wal", "-journal"].iter().any(|ending| beside(path, ending).exists()) {
        let what = "the ledger is in use, or was not closed in order";
        return Err(LedgerError::new(ErrorKind::Store, what).into());
    }
    let connection = raw_immutable(path)?;
    expect_ledger(&connection)?;
    Ok(connection)
}

/// Opens the ledger called `id` again for reading, after another connection for reading was closed.
///
/// # Errors
/// Whatever stands in its place now.
pub(super) fn reopen_for_reading(path: &Path, id: &str) -> Result<Connection, Fault> {
    expect_same(path, id)?;
    open_for_reading(path)
}

/// Which file a path names; another one after it was replaced. Always the same where files have no
/// numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The identity of what is at `path` now.
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        let found = fs::metadata(path);
        found.map_or(Self::default(), |it| Self { device: it.dev(), inode: it.ino() })
    }

    #[cfg(not(unix))]
    pub(super) fn of(_: &Path) -> Self {
        Self::default()
    }
}

/// SQLite's own files beside the ledger: the log, which holds what was committed last, and the index
/// of it that is shared by all who have the ledger open. They are there as long as anybody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Companions([Identity; 2]);

impl Companions {
    pub(super) fn of(path: &Path) -> Self {
        Self(["-wal", "-shm"].map(|ending| Identity::of(&beside(path, ending))))
    }

    /// True if neither was removed. Where files have no numbers nobody can remove them in use.
    fn are_there(self) -> bool {
        cfg!(not(unix)) || !self.0.contains(&Identity::default())
    }
}

/// Waits for our turn to write.
///
/// # Errors
/// [`ErrorKind::Store`] if it does not come within [`PATIENCE`].
pub(super) fn wait_for(turn: &Turn) -> Result<super::locks::Held<'_>, LedgerError> {
    let held = turn
        .take(PATIENCE)
        .map_err(|error| io_fault("the files beside the ledger cannot be locked", error))?;
    held.ok_or_else(|| {
        let what = "another process has kept the ledger for over 5 seconds; is it stopped?";
        LedgerError::new(ErrorKind::Store, what)
    })
}

fn raw(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    // Each connection stays in one thread. The path is absolute by now, so that SQLite takes it neither
    // for a URI, as `file:…`, nor for no file at all, as `:memory:`.
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Only for what is known to be a ledger, or nothing yet: this writes.
fn configure(connection: &Connection) -> Result<(), Fault> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        let what = format!("the ledger's file system has no shared memory (journal mode {mode})");
        return Err(LedgerError::new(ErrorKind::Store, what).into());
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(())
}

fn expect_ledger(connection: &Connection) -> Result<(), Fault> {
    match schema::look(connection)? {
        Found::Nothing => {
            let what = "an empty database has taken the ledger's place";
            Err(LedgerError::new(ErrorKind::Missing, what).into())
        }
        Found::Version(_) => Ok(()),
    }
}

/// Makes sure that what lies at `path` is the ledger called `id`, or a copy of it.
///
/// Looks at the file alone, as [`open`] took care that its name is in there: a connection that can
/// write would take the log beside it for its own, and copy what is in it into a foreign file.
fn expect_same(path: &Path, id: &str) -> Result<(), Fault> {
    let file = raw_immutable(path)?;
    expect_ledger(&file)?;
    let found = meta::read::<String>(&file, meta::LEDGER_ID)?.unwrap_or_default();
    if found == id {
        return Ok(());
    }
    let what = format!(
        "another ledger lies at {}: {found:?} and not {id:?}, in which this process counts; put the \
         right one back, or restart to use it",
        path.display()
    );
    Err(LedgerError::new(ErrorKind::Missing, what).into())
}

/// The file as it is, without locks and without the log beside it.
fn raw_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let access = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    raw(Path::new(&immutable(path)), access)
}

/// The URI by which SQLite reads a file so.
fn immutable(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' => uri.push(char::from(*byte)),
            _ if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

fn judge(path: &Path, kind: &StorageKind, durability: Durability) -> Result<(), LedgerError> {
    let path = path.display();
    if let StorageKind::Network(name) = kind {
        tracing::warn!("{path} lies on {name}: locks may not hold there; put it on a local disk");
    }
    if !kind.vanishes() {
        return Ok(());
    }
    let fact =
        format!("{path} lies on {kind}: a restart or a new instance begins with an empty cap");
    match durability {
        Durability::RequireExisting | Durability::Init => {
            let what = format!("{fact}; put it on a disk that stays, such as a mounted volume");
            return Err(LedgerError::new(ErrorKind::Vanishing, what));
        }
        Durability::EphemeralOk => tracing::warn!("{fact}, which was accepted"),
        Durability::Create => tracing::warn!("{fact}; put it on a disk that stays, or accept it"),
    }
    Ok(())
}

fn missing(path: &Path) -> LedgerError {
    let what = format!(
        "there is no ledger at {}, so its cap would start anew; was a disk not mounted? \
         If it is to begin here, make it once (init)",
        path.display()
    );
    LedgerError::new(ErrorKind::Missing, what)
}

/// Of a user who has no right to write there, or a file system that can only be read.
fn shut_out(path: &Path) -> String {
    let folder = path.parent().unwrap_or(path).display();
    format!(
        "the ledger needs files beside it, such as its log and the index of it, and they cannot be \
         made or opened (is the folder {folder} one that this user can write to?)"
    )
}

/// SQLite would throw the log away, and everything in it that was acknowledged.
fn emptied(path: &Path) -> LedgerError {
    let what = format!(
        "the ledger at {} is empty, but a log of one lies beside it; it was emptied while it was in \
         use. Put a copy back, or remove the log to begin anew",
        path.display()
    );
    LedgerError::new(ErrorKind::Corrupt, what)
}

/// Whoever opened it now would begin a log of his own, and neither would see what the other writes.
pub(super) fn bereft(path: &Path) -> LedgerError {
    let what = format!(
        "the log of the ledger at {} (-wal or -shm) was removed while it was in use; end every \
         program that has it open, and start them again",
        path.display()
    );
    LedgerError::new(ErrorKind::Corrupt, what)
}

/// Nothing there, or nothing in it. Looked at without opening it, which would take away the locks
/// that SQLite holds on it.
fn is_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() == 0) || !path.exists()
}

/// Makes the file's folder, for its owner alone, and those above it that are not there.
fn make_folder(path: &Path) -> Result<(), LedgerError> {
    let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) else { return Ok(()) };
    let there = folder.ancestors().find(|above| above.is_dir());
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| {
        io_fault(&format!("the folder {} cannot be made", folder.display()), error)
    })?;
    // SQLite syncs the folder; a power cut must not take the folder itself. Where folders cannot be
    // synced, such as on Windows, nothing is lost by trying.
    for above in folder.ancestors().skip(1) {
        let _ = fs::File::open(above).and_then(|above| above.sync_all());
        if there == Some(above) {
            break;
        }
    }
    Ok(())
}

/// Makes an empty file that only its owner can read, unless there is one; true if it did. SQLite
/// gives the files that it makes beside it the same permissions.
///
/// It is never opened if it is there: closing it again would take away the locks that SQLite holds
/// on it for other handles in this process.
fn make_file(path: &Path) -> io::Result<bool> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        made => Ok(made.is_ok()),
    }
}

/// Takes the permissions of others away. What somebody else owns stays as it is.
#[cfg(unix)]
fn keep_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for path in [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")] {
        let Ok(found) = fs::metadata(&path) else { continue };
        if found.permissions().mode() & 0o077 != 0 {
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
        }
    }
}

/// Files take the permissions of their folder, which is the user's own.
#[cfg(not(unix))]
fn keep_private(_: &Path) {}

fn was_closed_in_order(connection: &Connection) -> bool {
    meta::number(connection, meta::CLOSED).is_ok_and(|closed| closed == 1)
}

/// Reads all of it, after whoever had it open ended without closing it.
fn check(path: &Path, connection: &Connection) -> Result<(), LedgerError> {
    let verdict: Result<String, _> =
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0));
    let fault = match verdict {
        Ok(verdict) if verdict == "ok" => return Ok(()),
        Ok(fault) => fault,
        Err(error) => return Err(Fault::from(error).into()),
    };
    let what = format!(
        "the ledger at {} is damaged ({fault}); it is left as it is. Put it aside and restore a \
         copy, or begin a new one",
        path.display()
    );
    Err(LedgerError::new(ErrorKind::Corrupt, what))
}
