//! A pool of API keys that knows by wall clock when each may be used again.

mod ask;
mod builder;
mod error;
pub mod keys;
mod lease;
mod limits;
mod outcome;
mod pool;
pub mod reset;
mod select;
pub mod status;

pub use ask::Ask;
pub use builder::{MemoryState, PoolBuilder, StateLocation};
pub use error::{Exhausted, ExhaustedKind, PoolError, Reason, Source};
pub use keys::KeySpec;
pub use lease::Lease;
pub use limits::{LimitSource, Limits};
pub use outcome::{Refusal, Reported};
pub use pool::{CheckResult, DueCheck, Pool, ReloadReport, StateError};
pub use reset::{LimitKind, ResetStrategy};
pub use select::{Selection, Selector};
pub use status::PoolStatus;
