//! The state file and the ledger, looked at without changing them; and who runs on them.

mod ledger;
mod running;
mod state;

pub(crate) use self::{
    ledger::{LedgerPlace, looking},
    running::{Gateway, Reloaded, RunFile, gateways},
    state::{BucketEntry, Snapshot},
};
