//! The state file and the ledger, looked at without changing them.

mod ledger;
mod state;

pub(crate) use self::{
    ledger::{LedgerPlace, looking},
    state::{BucketEntry, Snapshot},
};
