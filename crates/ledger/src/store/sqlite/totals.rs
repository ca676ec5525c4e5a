//! The totals as the writer knows them: read once, changed in memory, written once per transaction.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension as _, params};

use super::columns::{counted, whole};
use super::fault::Fault;
use crate::{Delta, Scope, Sum, Total, TotalKey};

/// More totals than this are not kept in memory from one transaction to the next.
const MOST: usize = 20_000;

/// Totals, by key.
#[derive(Debug, Default)]
pub(super) struct Totals {
    known: HashMap<TotalKey, Total>,
    changed: HashSet<TotalKey>,
}

impl Totals {
    /// Forgets everything: another process wrote, or a transaction failed.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.changed.clear();
    }

    /// The total of `key` as this transaction sees it.
    ///
    /// # Errors
    /// Whatever reading it comes to.
    pub(super) fn of(&mut self, file: &Connection, key: &TotalKey) -> Result<Total, Fault> {
        if let Some(total) = self.known.get(key) {
            return Ok(*total);
        }
        let total = read(file, key)?;
        self.known.insert(key.clone(), total);
        Ok(total)
    }

    /// Changes the totals of all `keys` by `delta`.
    ///
    /// # Errors
    /// Whatever reading one of them comes to.
    pub(super) fn change(
        &mut self,
        file: &Connection,
        keys: &[TotalKey],
        delta: Delta,
    ) -> Result<(), Fault> {
        for key in keys {
            let after = self.of(file, key)?.after(delta);
            self.known.insert(key.clone(), after);
            self.changed.insert(key.clone());
        }
        Ok(())
    }

    /// Writes what was changed. If the transaction fails after this, [`forget`](Self::forget).
    ///
    /// # Errors
    /// Whatever writing comes to.
    pub(super) fn write(&mut self, file: &Connection) -> Result<(), Fault> {
        for key in self.changed.drain() {
            if let Some(total) = self.known.get(&key) {
                write(file, &key, total)?;
            }
        }
        if self.known.len() > MOST {
            self.known.clear();
        }
        Ok(())
    }
}

/// A total straight from the file; zero if nothing was ever counted there.
///
/// # Errors
/// Whatever reading it comes to.
pub(super) fn read(file: &Connection, key: &TotalKey) -> Result<Total, Fault> {
    let mut statement = file.prepare_cached(
        "SELECT tokens_settled, tokens_reserved, tokens_pruned, calls_settled, calls_reserved, \
            calls_pruned FROM totals WHERE account = ? AND span = ? AND model = ?",
    )?;
    let (account, model) = names(key);
    let mut found = statement.query(params![account, key.span.to_string(), model])?;
    let Some(columns) = found.next()? else { return Ok(Total::default()) };
    let sum = |first| {
        Ok::<_, Fault>(Sum {
            settled: counted(columns, first)?,
            reserved: counted(columns, first + 1)?,
            pruned: counted(columns, first + 2)?,
        })
    };
    Ok(Total { tokens: sum(0)?, calls: sum(3)? })
}

fn write(file: &Connection, key: &TotalKey, total: &Total) -> Result<(), Fault> {
    let (account, model) = names(key);
    let Total { tokens, calls } = total;
    file.prepare_cached("INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?
        .execute(params![
            account,
            key.span.to_string(),
            model,
            whole(tokens.settled),
            whole(tokens.reserved),
            whole(tokens.pruned),
            whole(calls.settled),
            whole(calls.reserved),
            whole(calls.pruned),
        ])?;
    Ok(())
}

/// How the scope and the model of a total are called in the table. No account and no model is empty.
fn names(key: &TotalKey) -> (&str, &str) {
    let account = match &key.scope {
        Scope::Whole => "",
        Scope::Account(account) => account.as_str(),
    };
    (account, key.model.as_deref().unwrap_or(""))
}
