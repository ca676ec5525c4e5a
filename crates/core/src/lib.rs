//! The small types every keywheel crate shares. No I/O, no async runtime.
//!
//! | to know | look in |
//! |---|---|
//! | what time it is, and how tests move it | [`clock`] |
//! | when the daily quota comes back | [`quota_day`] |
//! | how a key is kept from being printed | [`api_key`] |
//! | what a refusal can mean, whom it concerns, how long it lasts | [`cause`] |
//! | which limit a reply named | [`limit`] |
//! | what a call used | [`usage`] |
//! | what a call will use | [`estimate`] |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod api_key;
pub mod cause;
pub mod clock;
pub mod estimate;
pub mod limit;
pub mod quota_day;
pub mod scrub;
pub mod usage;

pub use api_key::{ApiKey, ApiKeyError, Fingerprint};
pub use cause::{Cause, Effect, Release, Scope, Wait, Window};
pub use clock::{Clock, ManualClock, SystemClock};
pub use limit::{Dimension, LimitSeen, Tier};
pub use quota_day::QuotaDay;
pub use usage::Usage;
