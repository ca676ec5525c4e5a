//! A job that waits for its quota: it sleeps until the day turns and goes on.
//!
//! `cargo run --example until_available` takes a day of simulated time, and a moment of yours.

use std::sync::Arc;

use chrono::DateTime;
use keywheel::{Clock as _, Error, Gemini, KeySpec, ManualClock, StateLocation};
use keywheel_core::ApiKey;
use keywheel_examples::{demo::Failure, show, stand::LITE};
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimTransport};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let start = DateTime::parse_from_rfc3339("2026-11-30T21:00:00Z")?.to_utc();
    let clock = Arc::new(ManualClock::at(start));
    let key = ApiKey::new("AQ.EXAMPLE-nightly")?;
    let config = SimConfig::new()
        .with_model(LITE, ModelConfig::free(Limits::new().rpd(3)))
        .with_project(ProjectConfig::new("nightly").with_key(key.clone()));
    let gemini = Gemini::builder()
        .keys([KeySpec::new(key, "GEMINI_API_KEY_1")])
        .clock(Arc::<ManualClock>::clone(&clock))
        .transport(Arc::new(SimTransport::new(config, Arc::<ManualClock>::clone(&clock))?))
        .state(StateLocation::None)
        .build()
        .await?;

    let work = tokio::spawn({
        let (gemini, clock) = (gemini.clone(), Arc::clone(&clock));
        async move {
            for page in 1..=5 {
                let reply = loop {
                    match gemini.generate(LITE, format!("Summarise page {page}")).await {
                        // No polling and no guessing: this returns at the moment of return.
                        Err(Error::Exhausted { exhausted, .. }) if exhausted.soonest.is_some() => {
                            println!("  {exhausted}");
                            gemini.until_available(LITE).await?;
                        }
                        done => break done?,
                    }
                };
                println!("page {page} at {}: {}", show::moment(clock.now()), reply.text());
            }
            Ok::<(), Failure>(())
        }
    });
    // Time here passes by hand: to the next moment that anybody waits for.
    while !work.is_finished() {
        tokio::task::yield_now().await;
        if let Some(next) = clock.next_wake() {
            clock.set(next);
        }
    }
    work.await?
}
