//! Transactions: immediate ones only, for whoever writes.
//!
//! A deferred transaction that reads first and writes later fails at once, busy timeout or not, when
//! somebody else wrote in between. Therefore nobody in this crate begins a transaction that writes in
//! another way than by [`immediate`].

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::fault::Fault;

/// Runs `work` in one immediate transaction, and commits it if `work` succeeds.
///
/// # Errors
/// What `work` or the commit came to. Nothing of `work` is kept then.
pub(super) fn immediate<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    // Rolled back when it is dropped before the commit.
    let transaction =
        Transaction::new(connection, TransactionBehavior::Immediate).map_err(Fault::from)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// Runs `work` on a snapshot: whatever others write meanwhile, it sees one moment. Only for a
/// connection that cannot write.
///
/// # Errors
/// What `work` came to.
pub(super) fn snapshot<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let transaction = connection.unchecked_transaction()?;
    let done = work(&transaction)?;
    transaction.finish()?;
    Ok(done)
}
