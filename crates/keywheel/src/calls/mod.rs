//! Every kind of call but plain generate and stream. All of them go through the one attempt loop.

pub mod caches;
pub mod chat;
pub mod embed;
pub mod files;
pub mod json;
mod models;
pub(crate) mod owner;
mod pages;
mod pending;
pub mod raw;
mod relay;
mod simple;

use std::time::Duration;

use keywheel_core::Clock;

use self::models::count;
pub(crate) use self::models::count_tokens;
pub use self::pending::Pending;
use crate::{gemini::CallOptions, time::from_now_ms};

/// When a call of several requests has to be over.
fn end_ms(clock: &dyn Clock, options: &CallOptions) -> Option<i64> {
    options.deadline.map(|deadline| from_now_ms(clock, deadline))
}

/// The options of the next request of a call that has to be over at `end_ms`.
fn within(clock: &dyn Clock, options: &CallOptions, end_ms: Option<i64>) -> CallOptions {
    let left = |at: i64| u64::try_from(at.saturating_sub(clock.unix_ms())).unwrap_or_default();
    let deadline = end_ms.map(left).map(Duration::from_millis);
    CallOptions { deadline, ..options.clone() }
}
