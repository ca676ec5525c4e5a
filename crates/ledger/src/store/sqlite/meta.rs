//! What the ledger says about itself, in the table `meta`.

use rusqlite::{
    Connection, OptionalExtension as _, ToSql, params,
    types::{FromSql, Value},
};

use super::fault::Fault;

/// A random name, given when the ledger was made.
pub(super) const LEDGER_ID: &str = "ledger_id";
/// When it was made, in milliseconds since the epoch.
pub(super) const CREATED_AT: &str = "created_at";
/// 1 while nobody has it open and the last who had closed it in order.
pub(super) const CLOSED: &str = "closed_in_order";
/// How many rows were pruned.
pub(super) const PRUNED: &str = "rows_pruned";
/// The last place that was given to a row, when rows were last pruned.
pub(super) const LAST: &str = "last_seq";

/// The value of `name`.
///
/// # Errors
/// Whatever reading it comes to.
pub(super) fn read<T: FromSql>(file: &Connection, name: &str) -> Result<Option<T>, Fault> {
    let mut statement = file.prepare_cached("SELECT value FROM meta WHERE name = ?")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}

/// The value of `name`; 0 if it was never set.
///
/// # Errors
/// Whatever reading it comes to.
pub(super) fn number(file: &Connection, name: &str) -> Result<i64, Fault> {
    Ok(read::<Value>(file, name)?.map_or(0, |value| match value {
        Value::Integer(number) => number,
        _ => 0,
    }))
}

/// Sets the value of `name`.
///
/// # Errors
/// Whatever writing it comes to.
pub(super) fn set(file: &Connection, name: &str, value: impl ToSql) -> Result<(), Fault> {
    file.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?, ?)")?
        .execute(params![name, value])?;
    Ok(())
}

/// The last place that was given to a row. Places are given without gaps, so this less
/// [`PRUNED`] is how many rows there are.
///
/// # Errors
/// Whatever reading it comes to.
pub(super) fn last(file: &Connection) -> Result<u64, Fault> {
    let mut statement = file.prepare_cached("SELECT COALESCE(MAX(seq), 0) FROM rows")?;
    let newest: i64 = statement.query_row([], |row| row.get(0))?;
    Ok(newest.max(number(file, LAST)?).cast_unsigned())
}
