//! A budget for tokens and calls: reserve before spending, settle after, sweep what crashed.
//!
//! One row for each reservation, charged at its estimate until it is settled. `docs/ledger.md` of the
//! repository has the contract for people; this is the map for readers of the code.
//!
//! | to know | look in |
//! |---|---|
//! | how to use it | [`Ledger`], [`Hold`] |
//! | who may use how much | [`rules`], [`LedgerConfig`] |
//! | what is asked, answered, and kept of it | [`ask`], [`answer`], [`row`] |
//! | why an ask was refused, what settling and sweeping change | [`decide`] (pure functions) |
//! | what an attempt is charged | [`mod@charge`] (one pure function) |
//! | the sums that limits are compared with | [`total`], [`audit`] |
//! | what a store has to do | [`store`] |
//! | where a ledger lies | [`storage`] |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod account;
pub mod amount;
pub mod answer;
pub mod ask;
pub mod audit;
mod background;
mod builder;
pub mod charge;
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod correction;
pub mod decide;
mod error;
mod export;
mod freed;
mod hold;
mod ledger;
mod report;
pub mod row;
pub mod rules;
mod standing;
pub mod storage;
pub mod store;
pub mod total;

// The crates of dates and time zones, in whose types moments are given.
#[doc(no_inline)]
pub use chrono;
#[doc(no_inline)]
pub use chrono_tz;
pub use keywheel_core::{Clock, Fingerprint, ManualClock, SystemClock, Usage};

pub use account::AccountId;
pub use amount::{Amount, LARGEST, Unit};
pub use answer::{Denied, Replayed, Settled, SettledHow};
pub use ask::{Ask, Estimate, Idempotency, Reservation};
pub use audit::{AuditReport, Mismatch};
pub use builder::{KEEP_ROWS, LedgerBuilder, SWEEP_AFTER, SWEEP_EVERY};
pub use charge::Outcome;
pub use config::{ConfigFault, LedgerConfig};
pub use decide::{Charge, Settlement};
pub use error::{ErrorKind, LedgerError};
pub use export::{Export, ExportFormat};
pub use freed::{Freed, Freeing};
pub use hold::{Actual, Hold, Reserved, TurnedOver};
pub use ledger::{Ledger, Swept};
pub use report::{EstimateLine, GroupBy, UsageLine};
pub use row::{Row, RowId, RowState};
pub use rules::{AccountRules, DEFAULT_MAX_OUTPUT, LedgerRules, Limit, Overcommitment, Period};
pub use standing::{LimitStanding, Standing};
pub use storage::{Durability, StorageInfo, StorageKind};
pub use store::{LedgerStore, MemoryStore, Reserving, RowQuery, SqliteStore, StoreInfo};
pub use total::{Change, Delta, Scope, Span, Sum, Total, TotalKey};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/ledger.md")]
struct LedgerDocTests;
