//! How a row lies in its table.
//!
//! Columns are read by their place: later versions of the schema only add columns at the end.

use std::{str::FromStr, sync::Arc};

use chrono::{DateTime, Utc};
use keywheel_core::{Usage, clock::from_unix_ms};
use rusqlite::{
    Connection, Params, Row as Columns, params,
    types::{FromSql, ValueRef},
};

use super::fault::Fault;
use crate::{AccountId, Amount, ErrorKind, Estimate, Idempotency, LedgerError, Row, RowId};

/// The one row that `sql` selects, if there is one; `SELECT *` from `rows`.
///
/// # Errors
/// Whatever reading it comes to.
pub(super) fn first(
    file: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Option<Row>, Fault> {
    let mut statement = file.prepare_cached(sql)?;
    let mut found = statement.query(params)?;
    found.next()?.map(read).transpose()
}

/// Gives `take` every row that `sql` selects; `SELECT *` from `rows`.
///
/// # Errors
/// Whatever reading them comes to.
pub(super) fn each(
    file: &Connection,
    sql: &str,
    params: impl Params,
    mut take: impl FnMut(Row),
) -> Result<(), Fault> {
    let mut statement = file.prepare_cached(sql)?;
    let mut found = statement.query(params)?;
    while let Some(columns) = found.next()? {
        take(read(columns)?);
    }
    Ok(())
}

/// Adds a row.
///
/// # Errors
/// Whatever SQLite comes to.
pub(super) fn insert(file: &Connection, row: &Row) -> rusqlite::Result<()> {
    const INSERT: &str = "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, \
        ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let usage = row.usage.as_ref();
    let repeat = row.idempotency.as_ref();
    file.prepare_cached(INSERT)?.execute(params![
        whole(row.id.seq),
        row.id.nonce.to_be_bytes(),
        row.state.as_str(),
        row.account.as_str(),
        &*row.model,
        row.key.map(|key| key.to_string()),
        row.request_id,
        row.day.to_string(),
        whole(row.estimate.guess),
        whole(row.estimate.input),
        whole(row.estimate.output),
        whole(row.calls),
        row.charged.map(|charged| whole(charged.tokens)),
        row.charged.map(|charged| whole(charged.calls)),
        usage.map(|usage| whole(usage.input)),
        usage.map(|usage| whole(usage.cached)),
        usage.map(|usage| whole(usage.output)),
        usage.map(|usage| whole(usage.thinking)),
        usage.map(|usage| whole(usage.tool)),
        usage.map(|usage| whole(usage.total)),
        row.outcome.map(|outcome| outcome.as_str()),
        row.reserved_at.timestamp_millis(),
        row.renewed_at.map(|at| at.timestamp_millis()),
        row.swept_at.map(|at| at.timestamp_millis()),
        row.settled_at.map(|at| at.timestamp_millis()),
        row.note,
        repeat.map(|repeat| &repeat.key),
        repeat.map(|repeat| repeat.content.cast_signed()),
    ])?;
    Ok(())
}

/// Writes what can change in a row's life.
///
/// # Errors
/// Whatever SQLite comes to.
pub(super) fn update(file: &Connection, row: &Row) -> rusqlite::Result<()> {
    const UPDATE: &str = "UPDATE rows SET state = ?, charged_tokens = ?, charged_calls = ?, \
        usage_input = ?, usage_cached = ?, usage_output = ?, usage_thinking = ?, usage_tool = ?, \
        usage_total = ?, outcome = ?, renewed_at = ?, swept_at = ?, settled_at = ?, note = ?, \
        idempotency_key = ?, idempotency_hash = ? WHERE seq = ?";
    let usage = row.usage.as_ref();
    let repeat = row.idempotency.as_ref();
    file.prepare_cached(UPDATE)?.execute(params![
        row.state.as_str(),
        row.charged.map(|charged| whole(charged.tokens)),
        row.charged.map(|charged| whole(charged.calls)),
        usage.map(|usage| whole(usage.input)),
        usage.map(|usage| whole(usage.cached)),
        usage.map(|usage| whole(usage.output)),
        usage.map(|usage| whole(usage.thinking)),
        usage.map(|usage| whole(usage.tool)),
        usage.map(|usage| whole(usage.total)),
        row.outcome.map(|outcome| outcome.as_str()),
        row.renewed_at.map(|at| at.timestamp_millis()),
        row.swept_at.map(|at| at.timestamp_millis()),
        row.settled_at.map(|at| at.timestamp_millis()),
        row.note,
        repeat.map(|repeat| &repeat.key),
        repeat.map(|repeat| repeat.content.cast_signed()),
        whole(row.id.seq),
    ])?;
    Ok(())
}

/// A row as its columns say.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for what keywheel never writes.
fn read(columns: &Columns<'_>) -> Result<Row, Fault> {
    let charged = match (number(columns, 12)?, number(columns, 13)?) {
        (Some(tokens), Some(calls)) => Some(Amount::new(tokens, calls)),
        _ => None,
    };
    let usage = match number(columns, 14)? {
        None => None,
        Some(input) => Some(Usage {
            input,
            cached: counted(columns, 15)?,
            output: counted(columns, 16)?,
            thinking: counted(columns, 17)?,
            tool: counted(columns, 18)?,
            total: counted(columns, 19)?,
        }),
    };
    let idempotency = match column::<Option<String>>(columns, 26)? {
        None => None,
        Some(key) => {
            Some(Idempotency { key, content: column::<i64>(columns, 27)?.cast_unsigned() })
        }
    };
    Ok(Row {
        id: RowId { seq: counted(columns, 0)?, nonce: u128::from_be_bytes(column(columns, 1)?) },
        state: parsed(columns, 2)?,
        account: parsed::<AccountId>(columns, 3)?,
        model: Arc::from(text(columns, 4)?),
        key: optional(columns, 5)?,
        request_id: text(columns, 6)?.to_owned(),
        day: parsed(columns, 7)?,
        estimate: Estimate {
            guess: counted(columns, 8)?,
            input: counted(columns, 9)?,
            output: counted(columns, 10)?,
        },
        calls: counted(columns, 11)?,
        charged,
        usage,
        outcome: optional(columns, 20)?,
        reserved_at: from_unix_ms(column(columns, 21)?),
        renewed_at: moment(columns, 22)?,
        swept_at: moment(columns, 23)?,
        settled_at: moment(columns, 24)?,
        note: text(columns, 25)?.to_owned(),
        idempotency,
    })
}

/// A number as SQLite can hold it. None that keywheel takes is larger.
pub(super) fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that is never negative.
pub(super) fn counted(columns: &Columns<'_>, index: usize) -> Result<u64, Fault> {
    u64::try_from(column::<i64>(columns, index)?).map_err(|_| unreadable(columns, index))
}

/// A column of text.
pub(super) fn text<'a>(columns: &'a Columns<'_>, index: usize) -> Result<&'a str, Fault> {
    columns.get_ref(index)?.as_str().map_err(|_| unreadable(columns, index))
}

/// A column of text that has to be well formed.
pub(super) fn parsed<T: FromStr>(columns: &Columns<'_>, index: usize) -> Result<T, Fault> {
    text(columns, index)?.parse().map_err(|_| unreadable(columns, index))
}

fn optional<T: FromStr>(columns: &Columns<'_>, index: usize) -> Result<Option<T>, Fault> {
    if columns.get_ref(index)? == ValueRef::Null {
        return Ok(None);
    }
    parsed(columns, index).map(Some)
}

fn column<T: FromSql>(columns: &Columns<'_>, index: usize) -> Result<T, Fault> {
    Ok(columns.get(index)?)
}

fn number(columns: &Columns<'_>, index: usize) -> Result<Option<u64>, Fault> {
    let number = column::<Option<i64>>(columns, index)?;
    number.map(|number| u64::try_from(number).map_err(|_| unreadable(columns, index))).transpose()
}

fn moment(columns: &Columns<'_>, index: usize) -> Result<Option<DateTime<Utc>>, Fault> {
    Ok(column::<Option<i64>>(columns, index)?.map(from_unix_ms))
}

fn unreadable(columns: &Columns<'_>, index: usize) -> Fault {
    let name = columns.as_ref().column_name(index).unwrap_or("column");
    let what = format!("the ledger has a {name} that keywheel never writes");
    LedgerError::new(ErrorKind::Corrupt, what).into()
}
