//! Another provider's own reset strategy, without a change to the pool.
//!
//! This one gives its quota back at the start of every hour, and its minute limit means 20 seconds.

use std::{error::Error, sync::Arc, time::Duration};

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use keywheel::{ApiKey, Ask, KeySpec, ManualClock, Pool, StateLocation};
use keywheel_core::{Cause, Clock as _, Effect, Scope, Wait, Window};
use keywheel_pool::{LimitKind, Refusal, reset};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::at("2026-11-30T10:42:00Z".parse()?);
    let clock_of_strategy = clock.clone();
    // "Given now, how long": `None` means that the strategy may use its own clock.
    let top_of_the_hour = move |now: Option<DateTime<Utc>>| {
        let now = now.unwrap_or_else(|| clock_of_strategy.now());
        let hour = now.duration_trunc(TimeDelta::hours(1)).unwrap_or(now);
        (hour + TimeDelta::hours(1) - now).to_std().unwrap_or_default()
    };
    let pool = Pool::builder()
        .keys([KeySpec::new(ApiKey::new("sk-EXAMPLE-1")?, "OTHER_API_KEY_1")])
        .clock(Arc::new(clock.clone()))
        .state(StateLocation::None)
        .reset_strategy(LimitKind::RequestsPerDay, top_of_the_hour)
        .reset_strategy(LimitKind::RequestsPerMinute, reset::fixed(Duration::from_secs(20)))
        .build()?;

    for (cause, window) in
        [(Cause::PerMinuteRequests, Window::Minute), (Cause::PerDayRequests, Window::Day)]
    {
        let mut lease = pool.lease(Ask::new("their-model")).await?;
        lease.sent();
        let effect = Effect::new(Scope::Bucket, cause, Wait::Reset(window));
        let reported = lease.refused(&Refusal::new([effect])).await;
        println!("{cause:<20} at {} -> until {:?}", clock.now().time(), reported.until);
        clock.advance(Duration::from_secs(30));
    }
    Ok(())
}
