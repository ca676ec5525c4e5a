//! How the examples print moments and attempts.

use chrono::{DateTime, Local, Utc};
use keywheel::{Attempt, Kind};
use keywheel_core::quota_day::PACIFIC;

/// A moment in Pacific time, where quota days turn, and in the machine's own zone.
#[must_use]
pub fn moment(at: DateTime<Utc>) -> String {
    let pacific = at.with_timezone(&PACIFIC);
    let here = at.with_timezone(&Local);
    format!("{} Pacific ({} here)", pacific.format("%a %H:%M:%S"), here.format("%a %H:%M:%S"))
}

/// One attempt in a line: who served, or what was refused, why and until when.
#[must_use]
pub fn attempt(attempt: &Attempt) -> String {
    let label = &attempt.label;
    match (attempt.kind, attempt.available_at) {
        (Some(Kind::Served), _) => format!("{label} served"),
        (Some(Kind::Refused(cause)), Some(until)) => {
            format!("{label} refused: {cause}, until {}", moment(until))
        }
        (Some(Kind::Refused(cause)), None) => format!("{label} refused: {cause}, out of use"),
        (None, _) => format!("{label} did not answer"),
    }
}
