//! Waiting by a [`Clock`].

use std::time::Duration;

use keywheel_core::Clock;

/// Ends when `clock` reads `at_ms`: at once when moved by hand, else by tokio's timer.
pub(crate) async fn sleep_until(clock: &dyn Clock, at_ms: i64) {
    if let Some(sleep) = clock.manual_sleep(at_ms) {
        return sleep.await;
    }
    // The machine's clock may step: look again every second instead of trusting one long sleep.
    while let Some(left_ms) = left_ms(clock, at_ms) {
        tokio::time::sleep(Duration::from_millis(left_ms.min(1_000))).await;
    }
}

fn left_ms(clock: &dyn Clock, at_ms: i64) -> Option<u64> {
    u64::try_from(at_ms.saturating_sub(clock.unix_ms())).ok().filter(|&ms| ms > 0)
}
