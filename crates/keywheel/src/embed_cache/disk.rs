//! Vectors in an SQLite file, which several processes may share.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use keywheel_core::{Clock, SystemClock};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::{EmbedKey, EmbedStore, StoreFault, Vector};
use crate::blocking::blocking;

/// How long a statement waits for other writers of the file.
const BUSY: Duration = Duration::from_secs(5);
/// How far back the last use of a vector may be before it is noted anew: reading must not mean writing.
const USE_IS_NOTED_EVERY_MS: i64 = 24 * 3_600_000;
/// What a row takes besides its numbers: the key twice (the table and its index), and the index of uses.
const OVERHEAD_BYTES: u64 = 128;
/// The file is looked over each time that this part of its bound was written, by whichever process.
const LOOK_EVERY: u64 = 16;

/// Vectors in an SQLite file of bounded size: a store for
/// [`EmbedCacheConfig::with_store`](super::EmbedCacheConfig::with_store).
///
/// The file may be one that is there already, such as the ledger's: only the tables `embed_cache` and
/// `embed_cache_size` are touched; the two may be opened in any order. Texts are not in it, only hashes of them.
/// Several processes may share it; what was not used for longest goes first.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use keywheel::{Gemini, embed_cache::{EmbedCacheConfig, EmbedFile}};
///
/// let file = EmbedFile::open("embeddings.db", 1 << 30)?; // at most a gigabyte
/// let config = EmbedCacheConfig::default().with_store(Arc::new(file));
/// let gemini = Gemini::builder().embed_cache(config).build().await?;
/// # Ok(())
/// # }
/// ```
///
/// A vector outlives the client that fetched it:
///
/// ```
/// use std::sync::Arc;
/// use keywheel::{
///     ApiKey, Gemini, KeySpec, StateLocation, SystemClock, embed_cache::{EmbedCacheConfig, EmbedFile},
///     testing::{Script, Scripted},
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("embeddings.db");
/// let script = Script::new();
/// script.reply(Scripted::embeddings([[0.6, 0.8]])); // the only request there will be
/// for _ in 0..2 {
///     let file = EmbedFile::open_with(&path, 1 << 20, Arc::new(SystemClock))?;
///     let gemini = Gemini::builder()
///         .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
///         .state(StateLocation::None)
///         .transport(Arc::new(script.clone()))
///         .embed_cache(EmbedCacheConfig::default().with_store(Arc::new(file)))
///         .build()
///         .await?;
///     assert_eq!(gemini.embed("gemini-embedding-001", "a text").one().await?, [0.6, 0.8]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct EmbedFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Mutex<Connection>,
    max_bytes: u64,
    clock: Arc<dyn Clock>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the file of embeddings: {0}")]
pub struct EmbedFileError(#[from] rusqlite::Error);

impl EmbedFile {
    /// Opens the file at `path`, or makes it, for its owner alone. Its vectors take `max_bytes` at most, give or take a
    /// sixteenth.
    ///
    /// # Errors
    /// The file cannot be opened, or is no SQLite file.
    pub fn open(path: impl AsRef<Path>, max_bytes: u64) -> Result<Self, EmbedFileError> {
        Self::open_with(path, max_bytes, Arc::new(SystemClock))
    }

    /// The same with a clock, which says when a vector was used last.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        path: impl AsRef<Path>,
        max_bytes: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, EmbedFileError> {
        make_private(path.as_ref());
        let connection = Connection::open(plain(path.as_ref()))?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // A vector lost with the power costs one request.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(SCHEMA)?;
        let connection = Mutex::new(connection);
        Ok(Self { inner: Arc::new(Inner { connection, max_bytes, clock }) })
    }
}

/// A path that SQLite takes for nothing else: `:memory:` is none to it, and `file:…` is a URI.
fn plain(path: &Path) -> PathBuf {
    Path::new(".").join(path)
}

/// Makes the file for its owner alone: texts can be guessed from their vectors. What SQLite puts beside it gets the same
/// permissions. If that fails, opening it says why.
fn make_private(path: &Path) {
    let mut options = File::options();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    drop(options.open(path));
}

/// `written` in `embed_cache_size` counts the bytes written since somebody looked the file over.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS embed_cache (
        key BLOB PRIMARY KEY,
        vector BLOB NOT NULL,
        bytes INTEGER NOT NULL,
        used_at_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS embed_cache_use ON embed_cache (used_at_ms, bytes);
    CREATE TABLE IF NOT EXISTS embed_cache_size (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        written INTEGER NOT NULL
    ) STRICT;
    INSERT OR IGNORE INTO embed_cache_size (id, written) VALUES (1, 0);
";

impl EmbedStore for EmbedFile {
    fn get_many<'a>(
        &'a self,
        keys: &'a [EmbedKey],
    ) -> BoxFuture<'a, Result<Vec<Option<Vector>>, StoreFault>> {
        let (inner, keys) = (Arc::clone(&self.inner), keys.to_vec());
        Box::pin(async move { Ok(blocking(move || inner.get(&keys)).await?) })
    }

    fn put_many(&self, vectors: Vec<(EmbedKey, Vector)>) -> BoxFuture<'_, Result<(), StoreFault>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { Ok(blocking(move || inner.put(&vectors)).await?) })
    }
}

impl Inner {
    fn get(&self, keys: &[EmbedKey]) -> rusqlite::Result<Vec<Option<Vector>>> {
        let (connection, now_ms) = (self.connection(), self.clock.unix_ms());
        let mut found = Vec::with_capacity(keys.len());
        let mut used = Vec::new();
        {
            let mut select = connection
                .prepare_cached("SELECT vector, used_at_ms FROM embed_cache WHERE key = ?1")?;
            for key in keys {
                let row: Option<(Vec<u8>, i64)> = select
                    .query_row([key.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()?;
                let vector = row.as_ref().and_then(|(bytes, _)| from_bytes(bytes));
                // Also when the clock went back behind it.
                let is_old = |at_ms: i64| at_ms.abs_diff(now_ms) > USE_IS_NOTED_EVERY_MS as u64;
                if vector.is_some() && row.is_some_and(|(_, at_ms)| is_old(at_ms)) {
                    used.push(*key);
                }
                found.push(vector);
            }
        }
        if !used.is_empty()
            && let Err(error) = Self::note_use(connection, &used, now_ms)
        {
            // What was found is no worse for it; it is noted with the next use.
            tracing::debug!(%error, "the use of vectors is not noted");
        }
        Ok(found)
    }

    /// Does not wait for other writers: it can be done any time.
    fn note_use(
        mut connection: MutexGuard<'_, Connection>,
        keys: &[EmbedKey],
        now_ms: i64,
    ) -> rusqlite::Result<()> {
        connection.busy_timeout(Duration::ZERO)?;
        let noted = Self::write_use(&mut connection, keys, now_ms);
        connection.busy_timeout(BUSY)?;
        noted
    }

    fn write_use(
        connection: &mut Connection,
        keys: &[EmbedKey],
        now_ms: i64,
    ) -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut update = transaction
                .prepare_cached("UPDATE embed_cache SET used_at_ms = ?2 WHERE key = ?1")?;
            for key in keys {
                update.execute(params![key.as_bytes(), now_ms])?;
            }
        }
        transaction.commit()
    }

    fn put(&self, vectors: &[(EmbedKey, Vector)]) -> rusqlite::Result<()> {
        let (mut connection, now_ms) = (self.connection(), self.clock.unix_ms());
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut written = 0_u64;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT OR REPLACE INTO embed_cache (key, vector, bytes, used_at_ms)
                 VALUES (?1, ?2, ?3, ?4)",
            )?;
            for (key, vector) in vectors {
                let blob = to_bytes(vector);
                let bytes = blob.len() as u64 + OVERHEAD_BYTES;
                insert.execute(params![key.as_bytes(), blob, bytes as i64, now_ms])?;
                written = written.saturating_add(bytes);
            }
        }
        let unseen: i64 = transaction.query_row(
            "UPDATE embed_cache_size SET written = written + ?1 WHERE id = 1 RETURNING written",
            [written as i64],
            |row| row.get(0),
        )?;
        if u64::try_from(unseen).unwrap_or(0) >= self.max_bytes / LOOK_EVERY {
            self.prune(&transaction)?;
        }
        transaction.commit()
    }

    /// Drops what was not used for longest, down to the bound.
    fn prune(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.execute("UPDATE embed_cache_size SET written = 0 WHERE id = 1", [])?;
        connection.execute(
            "DELETE FROM embed_cache WHERE rowid IN (
                SELECT rowid FROM (
                    SELECT rowid, sum(bytes) OVER (ORDER BY used_at_ms DESC, rowid DESC) AS total
                    FROM embed_cache
                ) WHERE total > ?1
             )",
            [i64::try_from(self.max_bytes).unwrap_or(i64::MAX)],
        )?;
        Ok(())
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A transaction that a panic left open was rolled back when it was dropped.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// `None` for what is no vector.
fn from_bytes(bytes: &[u8]) -> Option<Vector> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let is_vector = !numbers.is_empty() && rest.is_empty();
    is_vector.then(|| numbers.iter().map(|number| f32::from_le_bytes(*number)).collect())
}

#[cfg(test)]
mod tests;
