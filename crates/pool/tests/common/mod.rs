//! What the pool's tests share: a pool on a manual clock, and the words for calls and refusals.

#![allow(dead_code, unreachable_pub, reason = "every test program uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use keywheel_core::{
    ApiKey, Cause, Dimension, Effect, LimitSeen, ManualClock, Scope, Usage, Wait, Window,
};
use keywheel_pool::{
    Ask, Exhausted, KeySpec, Lease, MemoryState, Pool, PoolBuilder, Refusal, Reported,
    StateLocation,
};

pub const MODEL: &str = "gemini-3.5-flash-lite";

pub fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// `count` keys called `KEY_1`, `KEY_2`, …, each in a quota project of its own.
pub fn keys(count: usize) -> Vec<KeySpec> {
    (1..=count).map(key).collect()
}

pub fn key(number: usize) -> KeySpec {
    let secret = format!("AQ.EXAMPLE-key-{number}");
    KeySpec::new(ApiKey::new(secret).unwrap(), format!("KEY_{number}"))
}

/// A pool on a manual clock, with state in memory that outlives it.
pub struct Fixture {
    pub clock: ManualClock,
    pub state: MemoryState,
    pub pool: Pool,
}

impl Fixture {
    /// `count` separate keys, at `start`.
    pub fn new(count: usize, start: &str) -> Self {
        Self::with(start, |builder| builder.keys(keys(count)))
    }

    pub fn with(start: &str, build: impl FnOnce(PoolBuilder) -> PoolBuilder) -> Self {
        let (clock, state) = (ManualClock::at(at(start)), MemoryState::new());
        let pool = open(&clock, &state, build);
        Self { clock, state, pool }
    }

    /// The same state, opened by a new pool, as after a restart.
    pub fn restart(self, build: impl FnOnce(PoolBuilder) -> PoolBuilder) -> Self {
        let Self { clock, state, pool } = self;
        drop(pool);
        let pool = open(&clock, &state, build);
        Self { clock, state, pool }
    }

    pub fn now(&self) -> DateTime<Utc> {
        use keywheel_core::Clock as _;
        self.clock.now()
    }

    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// One call that is served.
    #[track_caller]
    pub fn serve(&self) -> String {
        let mut lease = self.lease().unwrap();
        lease.sent();
        let label = lease.label().to_owned();
        lease.served(&Usage::default());
        label
    }

    /// One call that is refused.
    pub async fn refuse(&self, refusal: &Refusal) -> Reported {
        let mut lease = self.lease().unwrap();
        lease.sent();
        lease.refused(refusal).await
    }

    pub fn lease(&self) -> Result<Lease, Exhausted> {
        self.pool.try_lease(&Ask::new(MODEL))
    }

    /// The soonest moment, when nothing serves now.
    #[track_caller]
    pub fn soonest(&self) -> DateTime<Utc> {
        self.lease().unwrap_err().soonest.unwrap()
    }
}

pub fn open(
    clock: &ManualClock,
    state: &MemoryState,
    build: impl FnOnce(PoolBuilder) -> PoolBuilder,
) -> Pool {
    let builder = Pool::builder()
        .clock(Arc::new(clock.clone()))
        .state(StateLocation::Memory(state.clone()))
        .seed(7);
    build(builder).build().unwrap()
}

/// The day's requests are spent; the reply names a quota and its value, if one is given.
pub fn day_spent(limit: Option<u64>) -> Refusal {
    Refusal {
        limits: limit.map(|value| LimitSeen::new(Dimension::Rpd, value)).into_iter().collect(),
        named_quota: true,
        ..Refusal::new([bucket(Cause::PerDayRequests, Wait::Reset(Window::Day))])
    }
}

/// The minute's requests are spent; the reply states a wait and names a quota.
pub fn minute_spent(wait: u64, limit: Option<u64>) -> Refusal {
    Refusal {
        limits: limit.map(|value| LimitSeen::new(Dimension::Rpm, value)).into_iter().collect(),
        named_quota: true,
        ..Refusal::new([bucket(Cause::PerMinuteRequests, Wait::Stated(seconds(wait)))])
    }
}

/// A 429 that says nothing.
pub fn bare() -> Refusal {
    Refusal::new([bucket(Cause::UnspecifiedQuota, Wait::Ladder)])
}

pub fn dead() -> Refusal {
    Refusal::new([Effect::new(Scope::Key, Cause::InvalidKey, Wait::None)])
}

pub fn bucket(cause: Cause, wait: Wait) -> Effect {
    Effect::new(Scope::Bucket, cause, wait)
}
