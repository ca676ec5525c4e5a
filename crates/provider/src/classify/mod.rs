//! What a provider's reply means: one pure function, [`classify`].

use chrono::{DateTime, Utc};
use keywheel_core::{Cause, Effect, Scope, Wait};

mod verdict;

pub use verdict::{Asked, Dialect, Kind, Reply, Retry, UnknownDialect, Verdict};

/// Says what `reply` means. Never fails: any bytes get a verdict.
pub fn classify(
    _dialect: Dialect,
    reply: &Reply<'_>,
    _asked: &Asked<'_>,
    _now: DateTime<Utc>,
) -> Verdict {
    let served = (200..300).contains(&reply.status);
    let kind = if served { Kind::Served } else { Kind::Refused(Cause::ServerError) };
    Verdict {
        kind,
        effects: if served {
            Vec::new()
        } else {
            vec![Effect::new(Scope::Model, Cause::ServerError, Wait::None)]
        },
        limits: Vec::new(),
        key_is_dead: false,
        retry: if served { Retry::Never } else { Retry::BackOff },
        named_quota: false,
        project_number: None,
        clamped: false,
        message: String::new(),
        fix: None,
        evidence: vec![format!("HTTP status {}", reply.status)],
    }
}
