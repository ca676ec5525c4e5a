//! Sleeping by the [`Clock`], real or moved by hand.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, Either, select};
pub(crate) use keywheel_core::clock::after_ms;
use keywheel_core::{Clock, clock};

/// Sleeps for `pause` on `clock`.
pub(crate) async fn sleep(clock: &dyn Clock, pause: Duration) {
    sleep_until(clock, from_now_ms(clock, pause)).await;
}

/// Sleeps for `pause` on `clock` at one go, not by steps of a second: for what does no harm if it comes late, as waking
/// every second would.
pub(crate) async fn rest(clock: &dyn Clock, pause: Duration) {
    match clock.manual_sleep(from_now_ms(clock, pause)) {
        Some(sleep) => sleep.await,
        None => tokio::time::sleep(pause).await,
    }
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

/// [`clock::sleep_until`], with tokio's timer.
pub(crate) async fn sleep_until(clock: &dyn Clock, at_ms: i64) {
    clock::sleep_until(clock, at_ms, tokio::time::sleep).await;
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// A machine's clock that is set back by a day after two seconds.
    #[derive(Debug)]
    struct SetBack(Instant);

    impl Clock for SetBack {
        fn unix_ms(&self) -> i64 {
            let passed_ms = i64::try_from(self.0.elapsed().as_millis()).unwrap();
            1_800_000_000_000 + passed_ms - if passed_ms < 2_000 { 0 } else { 86_400_000 }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_lengthens_no_sleep_and_no_deadline() {
        let begun = Instant::now();
        let clock = SetBack(begun);
        sleep(&clock, Duration::from_secs(10)).await;
        assert_eq!(begun.elapsed().as_secs(), 10);
        let begun = Instant::now();
        let clock = SetBack(begun);
        let deadline_ms = from_now_ms(&clock, Duration::from_secs(60));
        assert_eq!(until(&clock, Some(deadline_ms), std::future::pending::<()>()).await, None);
        assert_eq!(begun.elapsed().as_secs(), 60);
    }
}
