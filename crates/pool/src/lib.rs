//! A pool of API keys that knows by wall clock when each may be used again.
//!
//! It knows no HTTP and no provider: callers ask for a [`Lease`], send one request with its key, and tell
//! what became of it in the words of [`keywheel_core::cause`]. What is learned outlives the process in a
//! JSON state file that several processes share.
//!
//! | to know | look in |
//! |---|---|
//! | how keys are found and loaded | [`keys`] |
//! | how to ask for a key, and what comes back | [`Pool`], [`Ask`], [`Lease`], [`Exhausted`] |
//! | when a limit comes back, and how to say it for another provider | [`reset`] |
//! | what the pool knows now | [`status`] |
//! | who is asked next, and what is known of limits beforehand | [`Selection`], [`Limits`] |
//! | how state is kept, or not | [`StateLocation`] |
//! | how to keep something else beside the state file | [`durable`] |

#![cfg_attr(docsrs, feature(doc_cfg))]

// For readers of the code: what is decided, and by which rule, is in `cooldown`, `window` and `state::bucket` (pure
// functions); whose turn it is, in `state::model`, `state::lane` and `wait`.

mod ask;
mod builder;
mod cooldown;
mod core;
pub mod durable;
mod error;
mod hint;
pub mod keys;
mod lease;
mod limits;
mod outcome;
mod persist;
mod pool;
mod quarantine;
mod report;
pub mod reset;
mod select;
mod snapshot;
mod state;
pub mod status;
mod wait;
mod window;

// The crates of dates and time zones, in whose types moments are given.
#[doc(no_inline)]
pub use chrono;
#[doc(no_inline)]
pub use chrono_tz;
pub use keywheel_core::{
    ApiKey, ApiKeyError, Cause, Clock, Dimension, Effect, Fingerprint, LimitSeen, ManualClock,
    Release, SystemClock, Tier, Usage,
};

pub use ask::Ask;
pub use builder::PoolBuilder;
pub use error::{Exhausted, ExhaustedKind, PoolError, Reason, Source, UnknownKey};
pub use keys::KeySpec;
pub use lease::Lease;
pub use limits::{LimitSource, Limits};
pub use outcome::{Refusal, Reported};
pub use persist::{MemoryState, StateError, StateHealth, StateLocation, StateNote};
pub use pool::{CheckResult, DueCheck, Pool, ReloadReport};
pub use reset::{LimitKind, ResetStrategy};
pub use select::{Selection, Selector};
pub use status::{PoolStatus, ProjectLimits};
