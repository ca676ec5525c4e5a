//! The thread that reads: reports and audits look at a snapshot of their own and never stop the
//! writer.

use rusqlite::{Connection, params};
use tokio::sync::{mpsc::Receiver, oneshot};

use super::{
    columns::{self, whole},
    fault::Fault,
    file::{self, Identity},
    meta, totals, tx,
};
use crate::{
    AuditReport, LedgerError, Row, RowQuery, StorageInfo, StoreInfo, Total, TotalKey,
    audit::Auditor,
    decide::{KEEP_IDEMPOTENCY, KEEP_SWEPT},
    store::BATCH,
};

/// Something to read. Says whether the connection is still good.
pub(super) type Reading = Box<dyn FnOnce(Result<&Connection, LedgerError>) -> Connected + Send>;

/// Whether to go on with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connected {
    Keep,
    OpenAnew,
}

/// Reads what comes through `queue` from the ledger in `storage`, until nobody can send any more.
/// `opened` has the identity from when it was opened: this thread may begin much later.
pub(super) fn run(
    storage: StorageInfo,
    opened: (Connection, Identity),
    mut queue: Receiver<Reading>,
) {
    let path = storage.path.unwrap_or_default();
    let mut open = Some(opened);
    while let Some(reading) = queue.blocking_recv() {
        let identity = Identity::of(&path);
        let connection = match open.take().filter(|(_, before)| *before == identity) {
            Some((connection, _)) => Ok(connection),
            // The first time after a failure, or another file has taken its place.
            None => file::reopen_for_reading(&path, &storage.ledger_id),
        };
        match connection {
            Ok(connection) => {
                if reading(Ok(&connection)) == Connected::Keep {
                    open = Some((connection, identity));
                }
            }
            Err(fault) => drop(reading(Err(fault.into()))),
        }
    }
}

/// `work` on a snapshot, with its result sent to `reply`.
pub(super) fn reading<T: Send + 'static>(
    reply: oneshot::Sender<Result<T, LedgerError>>,
    work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
) -> Reading {
    Box::new(move |connection| {
        if reply.is_closed() {
            return Connected::Keep;
        }
        let done = match connection {
            Ok(connection) => tx::snapshot(connection, work),
            Err(error) => Err(Fault::Answer(error)),
        };
        let next = match done {
            Err(Fault::File(_)) => Connected::OpenAnew,
            Ok(_) | Err(Fault::Answer(_)) => Connected::Keep,
        };
        // Whoever went away does not want it.
        let _ = reply.send(done.map_err(LedgerError::from));
        next
    })
}

pub(super) fn info(file: &Connection, storage: StorageInfo) -> Result<StoreInfo, Fault> {
    let open: i64 = file
        .prepare_cached("SELECT count(*) FROM rows WHERE state = 'reserved'")?
        .query_row([], |row| row.get(0))?;
    // Counting the rows would read all of them.
    let pruned = meta::number(file, meta::PRUNED)?.cast_unsigned();
    let rows = meta::last(file)?.saturating_sub(pruned);
    Ok(StoreInfo { storage, rows, open: open.cast_unsigned() })
}

pub(super) fn totals(file: &Connection, keys: &[TotalKey]) -> Result<Vec<Total>, Fault> {
    keys.iter().map(|key| totals::read(file, key)).collect()
}

pub(super) fn rows(file: &Connection, query: &RowQuery) -> Result<Vec<Row>, Fault> {
    const SQL: &str = "SELECT * FROM rows WHERE seq > ?1 AND (?2 IS NULL OR account = ?2) \
        AND (?3 IS NULL OR model = ?3) AND (?4 IS NULL OR key = ?4) \
        AND (?5 IS NULL OR request_id = ?5) AND (?6 IS NULL OR reserved_at >= ?6) \
        AND (?7 IS NULL OR reserved_at < ?7) AND (?8 IS NULL OR state = ?8) \
        ORDER BY seq LIMIT ?9";
    let mut found = Vec::new();
    let params = params![
        whole(query.after),
        query.account.as_ref().map(|account| account.as_str()),
        query.model,
        query.key.map(|key| key.to_string()),
        query.request_id,
        query.from.map(ceil_ms),
        query.until.map(ceil_ms),
        query.state.map(|state| state.as_str()),
        i64::try_from(query.limit).unwrap_or(i64::MAX),
    ];
    columns::each(file, SQL, params, |row| found.push(row))?;
    Ok(found)
}

pub(super) fn recent(file: &Connection, count: usize) -> Result<Vec<Row>, Fault> {
    const SQL: &str = "SELECT * FROM rows WHERE outcome = 'answered' AND usage_total IS NOT NULL \
        ORDER BY seq DESC LIMIT ?";
    let mut found = Vec::new();
    columns::each(file, SQL, [i64::try_from(count).unwrap_or(i64::MAX)], |row| found.push(row))?;
    Ok(found)
}

/// Where the rows are that [`prune`](crate::decide::prune) would let go: at most [`BATCH`]. Looked for
/// here, since nothing but reading all rows finds them; the writer asks again before it removes one.
pub(super) fn prunable(
    file: &Connection,
    now: chrono::DateTime<chrono::Utc>,
    keep: std::time::Duration,
) -> Result<Vec<u64>, Fault> {
    const SQL: &str = "SELECT seq FROM rows \
        WHERE reserved_at <= ?1 AND settled_at IS NOT NULL \
        AND (idempotency_key IS NULL OR settled_at <= ?2) \
        AND (swept_at IS NULL OR swept_at <= ?3) ORDER BY seq LIMIT ?4";
    let now = now.timestamp_millis();
    let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    let before = |span: i64| now.saturating_sub(span);
    let mut statement = file.prepare_cached(SQL)?;
    let places = statement.query_map(
        params![
            before(keep),
            before(KEEP_IDEMPOTENCY.num_milliseconds()),
            before(KEEP_SWEPT.num_milliseconds()),
            BATCH as i64
        ],
        |row| row.get::<_, i64>(0),
    )?;
    places.map(|place| Ok(place?.cast_unsigned())).collect()
}

pub(super) fn audit(file: &Connection) -> Result<AuditReport, Fault> {
    let mut auditor = Auditor::default();
    columns::each(file, "SELECT * FROM rows", [], |row| auditor.row(&row))?;
    totals::read_all(file, |key, total| auditor.total(key, total))?;
    Ok(auditor.finish())
}

/// The first whole millisecond that is not before `moment`: times in the ledger are whole ones.
fn ceil_ms(moment: chrono::DateTime<chrono::Utc>) -> i64 {
    let ms = moment.timestamp_millis();
    ms + i64::from(keywheel_core::clock::from_unix_ms(ms) < moment)
}
