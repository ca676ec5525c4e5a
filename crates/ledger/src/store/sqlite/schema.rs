//! What the tables look like, and how those of older versions become these.

use rusqlite::{Connection, Transaction};

use super::{fault::Fault, tx};
use crate::{ErrorKind, LedgerError};

/// Marks the file as a ledger (`PRAGMA application_id`): "kwLd".
const APPLICATION: i32 = 0x6b77_4c64;

/// One step for each version of the schema: step `n` makes version `n + 1` of version `n`. Steps that
/// were released are never changed; new ones are added.
const STEPS: &[&str] = &[TABLES, VIEW];

/// Text is kept as text, so that the `sqlite3` shell shows rows a person can read. No `STRICT`: the
/// shells of older systems could not open the file.
const TABLES: &str = "
CREATE TABLE rows (
    seq               INTEGER PRIMARY KEY,
    nonce             BLOB NOT NULL,
    state             TEXT NOT NULL,
    account           TEXT NOT NULL,
    model             TEXT NOT NULL,
    key               TEXT,
    request_id        TEXT NOT NULL,
    day               TEXT NOT NULL,
    estimate_guess    INTEGER NOT NULL,
    estimate_input    INTEGER NOT NULL,
    estimate_output   INTEGER NOT NULL,
    calls             INTEGER NOT NULL,
    charged_tokens    INTEGER,
    charged_calls     INTEGER,
    usage_input       INTEGER,
    usage_cached      INTEGER,
    usage_output      INTEGER,
    usage_thinking    INTEGER,
    usage_tool        INTEGER,
    usage_total       INTEGER,
    outcome           TEXT,
    reserved_at       INTEGER NOT NULL,
    renewed_at        INTEGER,
    swept_at          INTEGER,
    settled_at        INTEGER,
    note              TEXT NOT NULL,
    idempotency_key   TEXT,
    idempotency_hash  INTEGER
);
-- Each index costs every reservation: only those without which something would read all rows.
CREATE INDEX open_rows ON rows (COALESCE(renewed_at, reserved_at)) WHERE state = 'reserved';
CREATE INDEX idempotency ON rows (account, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- The whole allowance has the account '', all models together the model ''.
CREATE TABLE totals (
    account           TEXT NOT NULL,
    span              TEXT NOT NULL,
    model             TEXT NOT NULL,
    tokens_settled    INTEGER NOT NULL,
    tokens_reserved   INTEGER NOT NULL,
    tokens_pruned     INTEGER NOT NULL,
    calls_settled     INTEGER NOT NULL,
    calls_reserved    INTEGER NOT NULL,
    calls_pruned      INTEGER NOT NULL,
    PRIMARY KEY (account, span, model)
) WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
";

const VIEW: &str = "
CREATE VIEW ledger (id, ts, estimate, actual, note) AS
SELECT
    'r' || seq || '-' || lower(hex(nonce)),
    strftime('%Y-%m-%dT%H:%M:%fZ', reserved_at / 1000.0, 'unixepoch'),
    estimate_input + estimate_output,
    charged_tokens,
    note
FROM rows;
";

/// How many tables and indexes there are besides those of the cache of embeddings, which may share the
/// file, and may have made it.
const STRANGERS: &str =
    "SELECT count(*) FROM sqlite_schema WHERE tbl_name NOT IN ('embed_cache', 'embed_cache_size')";

/// What a file turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// An empty database, or one that holds nothing but a cache of embeddings.
    Nothing,
    /// A ledger of this version of the schema.
    Version(usize),
}

/// Looks at a file without changing it.
///
/// # Errors
/// [`ErrorKind::Corrupt`] when it is another program's database, [`ErrorKind::NewerSchema`] when a
/// newer keywheel wrote it, and whatever reading it comes to.
pub(super) fn look(connection: &Connection) -> Result<Found, Fault> {
    let pragma = |name| connection.query_row(name, [], |row| row.get::<_, i32>(0));
    let application = pragma("PRAGMA application_id")?;
    let version = pragma("PRAGMA user_version")?;
    let objects: i64 = connection.query_row(STRANGERS, [], |row| row.get(0))?;
    if (application, version, objects) == (0, 0, 0) {
        return Ok(Found::Nothing);
    }
    if application != APPLICATION {
        let what = "the file is a database of another program; it is left as it is";
        return Err(LedgerError::new(ErrorKind::Corrupt, what).into());
    }
    match usize::try_from(version) {
        Ok(version) if (1..=STEPS.len()).contains(&version) => Ok(Found::Version(version)),
        Ok(version) if version > STEPS.len() => Err(newer(version).into()),
        _ => {
            let what = format!("the ledger claims version {version} of its schema");
            Err(LedgerError::new(ErrorKind::Corrupt, what).into())
        }
    }
}

/// Brings what was `found` to this version, all steps or none.
///
/// # Errors
/// Whatever SQLite comes to; the file stays as it was.
pub(super) fn migrate(connection: &mut Connection, found: Found) -> Result<(), Fault> {
    advance(connection, found, STEPS)
}

fn advance(connection: &mut Connection, found: Found, steps: &[&str]) -> Result<(), Fault> {
    let from = match found {
        Found::Nothing => 0,
        Found::Version(version) => version,
    };
    if from >= steps.len() {
        return Ok(());
    }
    tx::immediate(connection, |transaction| {
        steps[from..].iter().try_for_each(|step| transaction.execute_batch(step))?;
        mark(transaction, steps.len())
    })
}

fn mark(transaction: &Transaction<'_>, version: usize) -> Result<(), Fault> {
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", version as i64)?;
    Ok(())
}

fn newer(version: usize) -> LedgerError {
    let what = format!(
        "the ledger was written by a newer keywheel (schema {version}, this one knows {}); \
         update keywheel, or use another file",
        STEPS.len()
    );
    LedgerError::new(ErrorKind::NewerSchema, what)
}
