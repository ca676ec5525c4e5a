//! What several test files need: keys, bodies in Google's shapes, a client over a script, and a way to run it.

#![allow(dead_code, reason = "every test file uses another part")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

pub(crate) mod bodies;
#[cfg(feature = "ledger")]
pub(crate) mod ledger;
pub(crate) mod log;
pub(crate) mod relay;
pub(crate) mod sim;

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::FutureExt as _;
use keywheel::{
    ApiKey, Attempt, Clock as _, Gemini, GeminiBuilder, Kind, ManualClock, Pool, StateLocation,
};
use keywheel_core::Fingerprint;
use keywheel_pool::{KeySpec, PoolBuilder};
use keywheel_provider::{Transport, testing::Script};

pub(crate) const MODEL: &str = "gemini-3.5-flash-lite";
pub(crate) const OTHER_MODEL: &str = "gemini-3.5-flash";

/// Noon in California: the quota day ends in twelve hours.
pub(crate) const NOON: &str = "2026-11-30T20:00:00Z";
/// When that day ends.
pub(crate) const MIDNIGHT: &str = "2026-12-01T08:00:00Z";

pub(crate) fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

pub(crate) fn secs(secs: i64) -> TimeDelta {
    TimeDelta::seconds(secs)
}

pub(crate) fn key(number: usize) -> ApiKey {
    ApiKey::new(format!("AIzaSyEXAMPLE{number:026}")).unwrap()
}

pub(crate) fn fingerprint(number: usize) -> Fingerprint {
    key(number).fingerprint()
}

/// Key `number`, under the name that `.env` would give it.
pub(crate) fn spec(number: usize) -> KeySpec {
    KeySpec::new(key(number), label(number))
}

pub(crate) fn specs(count: usize) -> Vec<KeySpec> {
    (1..=count).map(spec).collect()
}

pub(crate) fn label(number: usize) -> String {
    format!("GEMINI_API_KEY_{number}")
}

/// Prints what is logged as `RUST_LOG` asks, so that a search of the whole run's output sees it.
pub(crate) fn follow_rust_log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    // Another test of the same program was first: the same subscriber is in place.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).try_init();
}

/// A client over a script, on a clock that is moved by hand.
pub(crate) struct Rig {
    pub(crate) clock: ManualClock,
    pub(crate) script: Script,
    pub(crate) gemini: Gemini,
}

impl Rig {
    /// A client with `keys` keys, each its own quota project.
    pub(crate) fn new(keys: usize) -> Self {
        Self::built(keys, |pool| pool, |client| client)
    }

    /// The same with settings.
    pub(crate) fn built(
        keys: usize,
        pool: impl FnOnce(PoolBuilder) -> PoolBuilder,
        client: impl FnOnce(GeminiBuilder) -> GeminiBuilder,
    ) -> Self {
        follow_rust_log();
        let clock = ManualClock::at(at(NOON));
        let script = Script::new().with_clock(Arc::new(clock.clone()));
        let builder = Pool::builder()
            .keys(specs(keys))
            .clock(Arc::new(clock.clone()))
            .state(StateLocation::None)
            .seed(1);
        let pool = pool(builder).build().unwrap();
        let gemini = over(pool, script.clone(), client);
        Self { clock, script, gemini }
    }

    /// Runs `future` to its end, moving the clock whenever nothing else can go on.
    pub(crate) fn run<F: IntoFuture>(&self, future: F) -> F::Output {
        run(&self.clock, future)
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Which keys were sent, oldest first.
    pub(crate) fn keys_used(&self) -> Vec<Fingerprint> {
        self.script.requests().into_iter().map(|request| request.key.unwrap()).collect()
    }

    /// Nothing is under way, nobody waits, and nothing is held.
    pub(crate) fn assert_balanced(&self) {
        assert_eq!(self.script.open(), 0, "requests are still under way");
        assert_balanced(&self.gemini);
    }

    /// How many requests of today are counted for `model`, all keys together.
    pub(crate) fn counted(&self, model: &str) -> u64 {
        let status = self.gemini.status();
        let buckets = status.buckets.iter().filter(|bucket| bucket.model == model);
        buckets.map(|bucket| bucket.day.requests).sum()
    }

    /// How many input tokens of today are counted for `model`, all keys together.
    pub(crate) fn counted_tokens(&self, model: &str) -> u64 {
        let status = self.gemini.status();
        let buckets = status.buckets.iter().filter(|bucket| bucket.model == model);
        buckets.map(|bucket| bucket.day.tokens).sum()
    }
}

pub(crate) fn over(
    pool: Pool,
    transport: impl Transport + 'static,
    client: impl FnOnce(GeminiBuilder) -> GeminiBuilder,
) -> Gemini {
    let builder = Gemini::builder()
        .pool(pool)
        .transport(Arc::new(transport))
        .base_url("http://script.invalid")
        .without_daily_checks();
    client(builder).build().now_or_never().expect("the pool is there already").unwrap()
}

pub(crate) fn assert_balanced(gemini: &Gemini) {
    let status = gemini.status();
    for bucket in &status.buckets {
        assert_eq!(bucket.in_flight, 0, "{} / {}", bucket.quota_project, bucket.model);
    }
    assert!(status.waiting.iter().all(|waiting| waiting.waiters == 0), "{:?}", status.waiting);
}

/// What each attempt met: the key's label and the kind of the reply.
pub(crate) fn account(attempts: &[Attempt]) -> Vec<(&str, &'static str)> {
    let kind = |attempt: &Attempt| attempt.kind.map_or("none", Kind::as_str);
    attempts.iter().map(|attempt| (attempt.label.as_str(), kind(attempt))).collect()
}

/// Runs `future` on this thread. It is polled again only when it was woken; when it was not, the clock moves to
/// the next moment that somebody sleeps until.
///
/// # Panics
/// Nothing will ever wake it: a lost wake-up, or a wait without end.
pub(crate) fn run<F: IntoFuture>(clock: &ManualClock, future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    poll_times(clock, future.as_mut(), usize::MAX).expect("it has ended")
}

/// The same for so many polls; `None` if it has not ended then.
pub(crate) fn poll_times<F: Future>(
    clock: &ManualClock,
    mut future: Pin<&mut F>,
    times: usize,
) -> Option<F::Output> {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    for _ in 0..times {
        while !woken.0.swap(false, Ordering::AcqRel) {
            let next = clock.next_wake().expect("nothing will ever wake this future");
            assert!(next >= clock.now(), "the clock goes forward only");
            clock.set(next);
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
    }
    None
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}
