//! The totals as the writer knows them: read once, changed in memory, written once per transaction.

use std::sync::Arc;

use chrono::NaiveDate;
use foldhash::HashMap;
use rusqlite::{Connection, params};

use super::{
    columns::{counted, parsed, text, whole},
    fault::Fault,
};
use crate::{AccountId, Delta, Scope, Sum, Total, TotalKey};

/// More totals than this are not kept in memory from one transaction to the next.
const MOST: usize = 20_000;

/// Totals, by key.
#[derive(Debug, Default)]
pub(super) struct Totals {
    slots: Vec<Slot>,
    by_key: HashMap<TotalKey, usize>,
    /// The totals in which a row counts, by what decides that: one lookup instead of twelve.
    groups: HashMap<(AccountId, Arc<str>, NaiveDate), Group>,
    changed: Vec<usize>,
}

/// The totals in which a row counts. Good until [`Totals::forget`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Group([usize; 12]);

#[derive(Debug)]
struct Slot {
    key: TotalKey,
    total: Total,
    is_changed: bool,
}

impl Totals {
    /// Forgets everything: another process wrote, or a transaction failed.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The totals in which a row of `account` for `model` on `day` counts.
    ///
    /// # Errors
    /// Whatever reading them comes to.
    pub(super) fn group(
        &mut self,
        file: &Connection,
        account: &AccountId,
        model: &Arc<str>,
        day: NaiveDate,
    ) -> Result<Group, Fault> {
        let name = (account.clone(), Arc::clone(model), day);
        if let Some(group) = self.groups.get(&name) {
            return Ok(*group);
        }
        let mut slots = [0; 12];
        for (slot, key) in slots.iter_mut().zip(TotalKey::all_of(account, model, day)) {
            *slot = self.slot(file, key)?;
        }
        self.groups.insert(name, Group(slots));
        Ok(Group(slots))
    }

    /// The total of `key`, which is one of `group`; zero if it is not.
    pub(super) fn peek(&self, group: Group, key: &TotalKey) -> Total {
        let mut slots = group.0.iter().map(|slot| &self.slots[*slot]);
        slots.find(|slot| slot.key == *key).map(|slot| slot.total).unwrap_or_default()
    }

    /// Adds `delta` to every total of `group`.
    pub(super) fn change(&mut self, group: Group, delta: Delta) {
        for index in group.0 {
            let slot = &mut self.slots[index];
            slot.total = slot.total.after(delta);
            if !slot.is_changed {
                slot.is_changed = true;
                self.changed.push(index);
            }
        }
    }

    /// Writes what was changed. If the transaction fails after this, [`forget`](Self::forget).
    ///
    /// # Errors
    /// Whatever writing comes to.
    pub(super) fn write(&mut self, file: &Connection) -> Result<(), Fault> {
        for index in self.changed.drain(..) {
            let slot = &mut self.slots[index];
            write(file, &slot.key, &slot.total)?;
            slot.is_changed = false;
        }
        if self.slots.len() > MOST {
            self.forget();
        }
        Ok(())
    }

    fn slot(&mut self, file: &Connection, key: TotalKey) -> Result<usize, Fault> {
        if let Some(slot) = self.by_key.get(&key) {
            return Ok(*slot);
        }
        let total = read(file, &key)?;
        self.by_key.insert(key.clone(), self.slots.len());
        self.slots.push(Slot { key, total, is_changed: false });
        Ok(self.slots.len() - 1)
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
    match found.next()? {
        Some(columns) => total_at(columns, 0),
        None => Ok(Total::default()),
    }
}

/// Every total there is.
///
/// # Errors
/// Whatever reading them comes to.
pub(super) fn read_all(
    file: &Connection,
    mut take: impl FnMut(TotalKey, Total),
) -> Result<(), Fault> {
    let mut statement = file.prepare(
        "SELECT account, span, model, tokens_settled, tokens_reserved, tokens_pruned, \
            calls_settled, calls_reserved, calls_pruned FROM totals",
    )?;
    let mut found = statement.query([])?;
    while let Some(columns) = found.next()? {
        let scope = match text(columns, 0)? {
            "" => Scope::Whole,
            _ => Scope::Account(parsed(columns, 0)?),
        };
        let model = Some(text(columns, 2)?).filter(|model| !model.is_empty()).map(Arc::from);
        take(TotalKey { scope, span: parsed(columns, 1)?, model }, total_at(columns, 3)?);
    }
    Ok(())
}

fn total_at(columns: &rusqlite::Row<'_>, first: usize) -> Result<Total, Fault> {
    let sum = |first| {
        Ok::<_, Fault>(Sum {
            settled: counted(columns, first)?,
            reserved: counted(columns, first + 1)?,
            pruned: counted(columns, first + 2)?,
        })
    };
    Ok(Total { tokens: sum(first)?, calls: sum(first + 3)? })
}

fn write(file: &Connection, key: &TotalKey, total: &Total) -> Result<(), Fault> {
    let (account, model) = names(key);
    let Total { tokens, calls } = total;
    // Not `OR REPLACE`, which removes the row first.
    const WRITE: &str = "INSERT INTO totals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) \
        ON CONFLICT DO UPDATE SET \
            tokens_settled = excluded.tokens_settled, tokens_reserved = excluded.tokens_reserved, \
            tokens_pruned = excluded.tokens_pruned, calls_settled = excluded.calls_settled, \
            calls_reserved = excluded.calls_reserved, calls_pruned = excluded.calls_pruned";
    file.prepare_cached(WRITE)?.execute(params![
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
