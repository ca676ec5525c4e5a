//! What is done to the ledger inside one transaction.

use std::time::Duration;

use chrono::{DateTime, Utc};
use foldhash::HashMap;
use rusqlite::{Connection, params};

use super::{
    columns::{self, whole},
    fault::Fault,
    job::GivenBack,
    meta,
    totals::{Group, Totals},
};
use crate::{
    Delta, ErrorKind, LedgerError, Reservation, Row, RowId, RowState, Settled, Settlement,
    decide::{self, Decision, Settling},
    store::{BATCH, Reserving},
};

/// The most open rows that are remembered. With more in flight the others are read.
const REMEMBERED: usize = 4_096;

/// What the writer remembers from one transaction to the next, as long as nobody else writes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    totals: Totals,
    /// The last place that was given to a row.
    last: Option<u64>,
    /// Rows that were reserved here and not written since, by their places: most are settled soon.
    open: HashMap<u64, Row>,
}

impl Memory {
    /// Forgets everything: another process wrote, or a transaction failed.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// The ledger inside one transaction. Every method writes all it has to or returns a fault; after a
/// [`Fault::File`] the transaction is rolled back and the [`Memory`] forgotten.
#[derive(Debug)]
pub(super) struct Book<'a> {
    file: &'a Connection,
    memory: &'a mut Memory,
    frees: bool,
}

impl<'a> Book<'a> {
    /// The ledger in `file`, which is in an immediate transaction.
    pub(super) const fn new(file: &'a Connection, memory: &'a mut Memory) -> Self {
        Self { file, memory, frees: false }
    }

    /// Writes what was kept in memory so far; the last thing before the commit. Returns whether less
    /// is used after it.
    pub(super) fn close(self) -> Result<bool, Fault> {
        self.memory.totals.write(self.file)?;
        Ok(self.frees)
    }

    pub(super) fn reserve(&mut self, asked: &Reservation) -> Result<Reserving, Fault> {
        let before = self.same_key(asked)?;
        if let Some(replayed) = decide::repeats(before.as_ref(), asked)? {
            return Ok(Reserving::Replayed(replayed));
        }
        let group = self.group_of(asked)?;
        let decision = decide::reserve(asked, |key| self.memory.totals.peek(group, key))?;
        self.carry_out(decision, asked, group)
    }

    pub(super) fn settle(&mut self, settlement: &Settlement) -> Result<Settled, Fault> {
        let row = self.row(settlement.id)?;
        let settling = decide::settle(&row, settlement)?;
        self.write(settling)
    }

    pub(super) fn turn_over(
        &mut self,
        settlement: &Settlement,
        next: &Reservation,
    ) -> Result<(Settled, Reserving), Fault> {
        let row = self.row(settlement.id)?;
        let group = self.group_of(next)?;
        let totals = &self.memory.totals;
        let (settling, decision) =
            decide::turn_over(&row, settlement, next, |key| totals.peek(group, key))?;
        Ok((self.write(settling)?, self.carry_out(decision, next, group)?))
    }

    pub(super) fn renew(&mut self, id: RowId, now: DateTime<Utc>) -> Result<RowState, Fault> {
        let row = self.row(id)?;
        if let Some(renewed) = decide::renew(&row, now) {
            self.update(&renewed)?;
        }
        Ok(row.state)
    }

    /// Gives back what was reserved for somebody who never heard of it; if an attempt was turned over
    /// to it, the call goes back to that.
    pub(super) fn abandon(&mut self, gone: GivenBack) -> Result<(), Fault> {
        let row = self.row(gone.id)?;
        if row.state != RowState::Reserved {
            return Ok(());
        }
        // Nobody is there who could say what time it is.
        let (row, delta) = decide::abandon(&row, row.heard_of_at());
        self.replace(&row, delta)?;
        let Some(before) = gone.before else { return Ok(()) };
        match decide::take_call_back(&self.row(before)?) {
            Some((row, delta)) => self.replace(&row, delta),
            None => Ok(()),
        }
    }

    pub(super) fn sweep(&mut self, now: DateTime<Utc>, age: Duration) -> Result<Vec<Row>, Fault> {
        let mut swept = Vec::new();
        for row in self.silent(now, age)? {
            if let Some((row, delta)) = decide::sweep(&row, now, age) {
                self.replace(&row, delta)?;
                swept.push(row);
            }
        }
        Ok(swept)
    }

    /// Removes those of the rows at `places` that may go.
    pub(super) fn prune(
        &mut self,
        places: &[u64],
        now: DateTime<Utc>,
        keep: Duration,
    ) -> Result<usize, Fault> {
        let last = self.last()?;
        let mut removed = 0;
        for place in places {
            let Some(row) = self.row_at(*place)? else { continue };
            let Some(delta) = decide::prune(&row, now, keep) else { continue };
            let group = self.group(&row)?;
            self.file.prepare_cached("DELETE FROM rows WHERE seq = ?")?.execute([whole(*place)])?;
            self.memory.totals.change(group, delta);
            removed += 1;
        }
        // The place of the newest row must not be given away again when it goes.
        meta::set(self.file, meta::LAST, whole(last))?;
        let before = meta::number(self.file, meta::PRUNED)?;
        meta::set(self.file, meta::PRUNED, before.saturating_add(whole(removed)))?;
        Ok(removed as usize)
    }

    fn carry_out(
        &mut self,
        decision: Decision,
        asked: &Reservation,
        group: Group,
    ) -> Result<Reserving, Fault> {
        let (delta, fullest) = match decision {
            Decision::Denied(denied) => return Ok(Reserving::Denied(denied)),
            Decision::Grant(delta, fullest) => (delta, fullest),
        };
        let place = self.last()? + 1;
        let row = Row::reserved(RowId::fresh(place), asked);
        columns::insert(self.file, &row)?;
        self.memory.last = Some(place);
        self.memory.totals.change(group, delta);
        if self.memory.open.len() < REMEMBERED {
            self.memory.open.insert(place, row.clone());
        }
        Ok(Reserving::Granted(Box::new(row), fullest))
    }

    fn write(&mut self, settling: Settling) -> Result<Settled, Fault> {
        let settled = settling.settled();
        if let Settling::Write(row, delta, _) = settling {
            self.replace(&row, delta)?;
        }
        Ok(settled)
    }

    fn replace(&mut self, row: &Row, delta: Delta) -> Result<(), Fault> {
        // First: where this fails, nothing of the row is written.
        let group = self.group(row)?;
        self.update(row)?;
        self.memory.totals.change(group, delta);
        self.frees |= delta.frees();
        Ok(())
    }

    fn update(&mut self, row: &Row) -> Result<(), Fault> {
        self.memory.open.remove(&row.id.seq);
        Ok(columns::update(self.file, row)?)
    }

    fn group(&mut self, row: &Row) -> Result<Group, Fault> {
        self.memory.totals.group(self.file, &row.account, &row.model, row.day)
    }

    fn group_of(&mut self, asked: &Reservation) -> Result<Group, Fault> {
        self.memory.totals.group(self.file, &asked.account, &asked.ask.model, asked.day)
    }

    fn last(&mut self) -> Result<u64, Fault> {
        if let Some(last) = self.memory.last {
            return Ok(last);
        }
        let last = meta::last(self.file)?;
        self.memory.last = Some(last);
        Ok(last)
    }

    /// The row is not remembered after this: whoever asks for it is about to write it.
    fn row(&mut self, id: RowId) -> Result<Row, Fault> {
        let found = match self.memory.open.remove(&id.seq) {
            Some(remembered) => Some(remembered),
            None => self.row_at(id.seq)?,
        };
        found.filter(|row| row.id == id).ok_or_else(|| {
            LedgerError::new(ErrorKind::UnknownId, format!("there is no row {id}")).into()
        })
    }

    fn row_at(&self, place: u64) -> Result<Option<Row>, Fault> {
        columns::first(self.file, "SELECT * FROM rows WHERE seq = ?", [whole(place)])
    }

    fn same_key(&self, asked: &Reservation) -> Result<Option<Row>, Fault> {
        const NEWEST: &str = "SELECT * FROM rows WHERE account = ? AND idempotency_key = ? \
            ORDER BY seq DESC LIMIT 1";
        let Some(repeat) = &asked.ask.idempotency else { return Ok(None) };
        columns::first(self.file, NEWEST, params![asked.account.as_str(), repeat.key])
    }

    /// Open rows that were not heard of for longer than `age` in either direction, oldest first.
    fn silent(&self, now: DateTime<Utc>, age: Duration) -> Result<Vec<Row>, Fault> {
        const SILENT: &str = "SELECT * FROM rows \
            WHERE state = 'reserved' AND COALESCE(renewed_at, reserved_at) < ? \
            ORDER BY COALESCE(renewed_at, reserved_at) LIMIT ?";
        const FROM_THE_FUTURE: &str = "SELECT * FROM rows \
            WHERE state = 'reserved' AND COALESCE(renewed_at, reserved_at) > ? \
            ORDER BY COALESCE(renewed_at, reserved_at) LIMIT ?";
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let now = now.timestamp_millis();
        let mut silent = Vec::new();
        for (sql, than) in
            [(SILENT, now.saturating_sub(age)), (FROM_THE_FUTURE, now.saturating_add(age))]
        {
            let room = BATCH - silent.len();
            columns::each(self.file, sql, params![than, room as i64], |row| silent.push(row))?;
        }
        Ok(silent)
    }
}
