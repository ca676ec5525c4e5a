//! Wall clock behind a trait, so that cooldowns survive restarts and tests never sleep.
//!
//! keywheel reads *wall* time, not monotonic time: a cooldown written to disk must mean the same
//! moment after a restart. The price is that the clock may step; every reader of it has to cope.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use chrono::{DateTime, Utc};

/// A source of wall-clock time in milliseconds since the Unix epoch.
///
/// The one place in keywheel that reads the machine's clock is [`SystemClock`].
///
/// ```
/// use keywheel_core::{Clock, ManualClock, SystemClock, clock::from_unix_ms};
///
/// let clock = ManualClock::at(from_unix_ms(1_764_460_800_000));
/// assert_eq!(clock.unix_ms(), 1_764_460_800_000);
/// assert_eq!(clock.now().to_rfc3339(), "2025-11-30T00:00:00+00:00");
/// // A clock moved by hand brings its own sleep; under the machine's, the runtime sleeps.
/// assert!(clock.manual_sleep(clock.unix_ms() + 60_000).is_some());
/// assert!(SystemClock.manual_sleep(0).is_none());
/// ```
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since 1970-01-01T00:00:00Z. May step backwards or forwards between two calls.
    fn unix_ms(&self) -> i64;

    /// The same moment as [`unix_ms`](Self::unix_ms), for people and for JSON.
    fn now(&self) -> DateTime<Utc> {
        from_unix_ms(self.unix_ms())
    }

    /// A future that ends once this clock reads at least `at_ms`, for clocks that do not follow
    /// real time.
    ///
    /// `None`, the default, means that the clock follows real time and the caller's runtime has to
    /// sleep. Clocks that are moved by hand must return `Some`, or waiters would wait for real.
    fn manual_sleep(&self, at_ms: i64) -> Option<ManualSleep> {
        let _ = at_ms;
        None
    }
}

/// The moment `ms` milliseconds after the epoch; values out of chrono's range are clamped to it.
#[must_use]
pub fn from_unix_ms(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms).unwrap_or(if ms < 0 {
        DateTime::<Utc>::MIN_UTC
    } else {
        DateTime::<Utc>::MAX_UTC
    })
}

/// What a clock that reads `now_ms` reads `length` later; what lies beyond the end of time is its end.
///
/// ```
/// use std::time::Duration;
/// use keywheel_core::clock::after_ms;
///
/// assert_eq!(after_ms(1_000, Duration::from_secs(2)), 3_000);
/// assert_eq!(after_ms(1_000, Duration::MAX), i64::MAX);
/// ```
#[must_use]
pub fn after_ms(now_ms: i64, length: Duration) -> i64 {
    now_ms.saturating_add(i64::try_from(length.as_millis()).unwrap_or(i64::MAX))
}

/// Ends once `clock` reads `at_ms`; or once it would have, had it not been set back meanwhile: a deadline of a minute
/// does not become one of a day.
///
/// A clock that is moved by hand brings its own sleep, and is waited for however it is set. Under one that follows
/// real time `nap` sleeps, which is the caller's runtime's, such as `tokio::time::sleep`: for a second at a time, since
/// a clock may step forward, too.
///
/// ```
/// use std::{pin::pin, task::{Context, Waker}, time::Duration};
/// use keywheel_core::{Clock, ManualClock, clock::sleep_until};
///
/// let clock = ManualClock::at("2026-11-30T07:59:59Z".parse().unwrap());
/// let midnight_ms = clock.unix_ms() + 1_000;
/// let runtimes_sleep = |_: Duration| std::future::pending();
/// let mut sleep = pin!(sleep_until(&clock, midnight_ms, runtimes_sleep));
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(sleep.as_mut().poll(&mut context).is_pending());
/// clock.advance(Duration::from_secs(1));
/// assert!(sleep.as_mut().poll(&mut context).is_ready());
/// ```
///
/// # Cancel safety
/// Dropping it changes nothing.
pub async fn sleep_until<N: Future<Output = ()>>(
    clock: &dyn Clock,
    at_ms: i64,
    nap: impl Fn(Duration) -> N,
) {
    if let Some(sleep) = clock.manual_sleep(at_ms) {
        return sleep.await;
    }
    let left_ms = || u64::try_from(at_ms.saturating_sub(clock.unix_ms())).unwrap_or(0);
    let mut rest_ms = left_ms();
    while rest_ms > 0 {
        let nap_ms = rest_ms.min(LONGEST_NAP_MS);
        nap(Duration::from_millis(nap_ms)).await;
        rest_ms = left_ms().min(rest_ms - nap_ms);
    }
}

/// How long a step of the clock may go unnoticed.
const LONGEST_NAP_MS: u64 = 1_000;

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn unix_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// A clock that stands still until it is moved. Clones share one time.
///
/// ```
/// use std::time::Duration;
/// use keywheel_core::{Clock, ManualClock};
///
/// let clock = ManualClock::at("2026-11-30T07:59:59Z".parse().unwrap());
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.now().to_rfc3339(), "2026-11-30T08:00:00+00:00");
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock {
    inner: Arc<Mutex<Manual>>,
}

#[derive(Debug)]
struct Manual {
    now_ms: i64,
    next_id: u64,
    /// Ordered by moment, then by who came first.
    sleepers: BTreeMap<(i64, u64), Waker>,
}

impl ManualClock {
    /// A clock that reads `start`.
    #[must_use]
    pub fn at(start: DateTime<Utc>) -> Self {
        let inner =
            Manual { now_ms: start.timestamp_millis(), next_id: 0, sleepers: BTreeMap::new() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Moves the clock forward and wakes whoever sleeps until a moment that has now come.
    pub fn advance(&self, by: Duration) {
        let to = after_ms(self.lock().now_ms, by);
        self.set_unix_ms(to);
    }

    /// Sets the clock, forwards or backwards, and wakes whoever sleeps until a moment that has now
    /// come.
    pub fn set(&self, to: DateTime<Utc>) {
        self.set_unix_ms(to.timestamp_millis());
    }

    /// The soonest moment somebody sleeps until; `None` when nobody sleeps.
    ///
    /// A simulation advances to this moment when nothing else can run.
    ///
    /// ```
    /// use std::{pin::pin, task::{Context, Waker}};
    /// use keywheel_core::{Clock, ManualClock};
    ///
    /// let clock = ManualClock::at("2026-11-30T07:59:00Z".parse().unwrap());
    /// let midnight = "2026-11-30T08:00:00Z".parse().unwrap();
    /// assert_eq!(clock.next_wake(), None);
    ///
    /// let mut sleep = pin!(clock.manual_sleep(1_796_025_600_000).unwrap());
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(sleep.as_mut().poll(&mut context).is_pending());
    /// assert_eq!(clock.next_wake(), Some(midnight));
    /// clock.set(midnight);
    /// assert!(sleep.as_mut().poll(&mut context).is_ready());
    /// ```
    #[must_use]
    pub fn next_wake(&self) -> Option<DateTime<Utc>> {
        self.lock().sleepers.first_key_value().map(|((at, _), _)| from_unix_ms(*at))
    }

    fn set_unix_ms(&self, to: i64) {
        let mut due = Vec::new();
        {
            let mut inner = self.lock();
            inner.now_ms = to;
            while let Some(entry) = inner.sleepers.first_entry() {
                if entry.key().0 > to {
                    break;
                }
                due.push(entry.remove());
            }
        }
        // Outside the lock: a waker may poll its task on this thread.
        due.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Manual> {
        // No user code runs under this lock, so a poisoned one still holds whole data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn unix_ms(&self) -> i64 {
        self.lock().now_ms
    }

    fn manual_sleep(&self, at_ms: i64) -> Option<ManualSleep> {
        let id = {
            let mut inner = self.lock();
            inner.next_id += 1;
            inner.next_id
        };
        Some(ManualSleep { clock: self.clone(), at_ms, id })
    }
}

/// Ends once its [`ManualClock`] reads at least the moment asked for.
///
/// # Cancel safety
/// Dropping it removes its entry from the clock.
#[derive(Debug)]
pub struct ManualSleep {
    clock: ManualClock,
    at_ms: i64,
    id: u64,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.clock.lock();
        if inner.now_ms >= self.at_ms {
            return Poll::Ready(());
        }
        inner.sleepers.insert((self.at_ms, self.id), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        self.clock.lock().sleepers.remove(&(self.at_ms, self.id));
    }
}

#[cfg(test)]
mod tests;
