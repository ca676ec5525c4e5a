//! A simulated Google in process, on a clock that passes by itself: hours of work in a moment.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use chrono::{DateTime, Utc};
use keywheel::{Clock as _, Gemini, GeminiBuilder, KeySpec, ManualClock, StateLocation};
use keywheel_core::ApiKey;
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimTransport};

use crate::{demo::Failure, stand::LITE};

/// Where the clock stands at first: Monday, six in the morning in California.
#[must_use]
pub fn monday() -> ManualClock {
    let start = DateTime::<Utc>::from_timestamp(1_796_047_200, 0).unwrap_or_default();
    ManualClock::at(start)
}

/// A client of a simulator with `projects` quota projects of one key each, on `clock`.
///
/// # Errors
/// None in practice: the keys are written here.
pub fn client(
    projects: usize,
    limits: Limits,
    clock: &ManualClock,
) -> Result<GeminiBuilder, Failure> {
    let (mut keys, mut config) = (Vec::new(), SimConfig::new());
    config = config.with_model(LITE, ModelConfig::free(limits));
    for number in 1..=projects {
        let key = ApiKey::new(format!("AQ.EXAMPLE-virtual-{number}"))?;
        config =
            config.with_project(ProjectConfig::new(format!("p{number}")).with_key(key.clone()));
        keys.push(KeySpec::new(key, format!("GEMINI_API_KEY_{number}")));
    }
    Ok(Gemini::builder()
        .keys(keys)
        .clock(Arc::new(clock.clone()))
        .transport(Arc::new(SimTransport::new(config, Arc::new(clock.clone()))?))
        .state(StateLocation::None))
}

/// `future`'s output. Whenever it waits, the clock moves to the next moment that anybody waits for.
pub async fn passing<F: IntoFuture>(clock: &ManualClock, future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    loop {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return output;
        }
        // What can go on without time goes first.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        if let Some(next) = clock.next_wake() {
            clock.set(next.max(clock.now()));
        }
    }
}
