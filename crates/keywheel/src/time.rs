//! Sleeping by the [`Clock`], real or moved by hand.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, Either, select};
use keywheel_core::Clock;

/// Sleeps for `pause` on `clock`.
pub(crate) async fn sleep(clock: &dyn Clock, pause: Duration) {
    sleep_until(clock, from_now_ms(clock, pause)).await;
}

/// `future`'s output, or `None` once `clock` reads `deadline_ms`. Without a deadline it just waits.
pub(crate) async fn until<F: Future>(
    clock: &dyn Clock,
    deadline_ms: Option<i64>,
    future: F,
) -> Option<F::Output> {
    let Some(deadline_ms) = deadline_ms else {
        return Some(future.await);
    };
    match select(pin!(future), pin!(sleep_until(clock, deadline_ms))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// Ends when `clock` reads `at_ms`; for those who keep it beside what they wait for.
pub(crate) fn timer(clock: &Arc<dyn Clock>, at_ms: i64) -> BoxFuture<'static, ()> {
    let clock = Arc::clone(clock);
    Box::pin(async move { sleep_until(&*clock, at_ms).await })
}

/// Ends after `length` on `clock`; as [`timer`].
pub(crate) fn pause(clock: &Arc<dyn Clock>, length: Duration) -> BoxFuture<'static, ()> {
    timer(clock, from_now_ms(&**clock, length))
}

/// What `clock` reads after `length`; what lies beyond the calendar is its end.
pub(crate) fn from_now_ms(clock: &dyn Clock, length: Duration) -> i64 {
    after_ms(clock.unix_ms(), length)
}

/// `length` after `now_ms`.
pub(crate) fn after_ms(now_ms: i64, length: Duration) -> i64 {
    now_ms.saturating_add(i64::try_from(length.as_millis()).unwrap_or(i64::MAX))
}

/// Ends when `clock` reads `at_ms`.
pub(crate) async fn sleep_until(clock: &dyn Clock, at_ms: i64) {
    if let Some(sleep) = clock.manual_sleep(at_ms) {
        return sleep.await;
    }
    // The machine's clock may step: look again every second instead of trusting one long sleep.
    while let Ok(left_ms @ 1..) = u64::try_from(at_ms.saturating_sub(clock.unix_ms())) {
        tokio::time::sleep(Duration::from_millis(left_ms.min(1_000))).await;
    }
}
