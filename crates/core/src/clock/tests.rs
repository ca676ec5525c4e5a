use std::{
    pin::pin,
    sync::atomic::{AtomicI64, Ordering},
    task::Wake,
};

use super::*;

/// Notes its name when it is woken.
struct Bell {
    name: &'static str,
    rung: Arc<Mutex<Vec<&'static str>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.lock().unwrap().push(self.name);
    }
}

#[derive(Default)]
struct Bells(Arc<Mutex<Vec<&'static str>>>);

impl Bells {
    fn poll<F: Future<Output = ()>>(
        &self,
        name: &'static str,
        sleep: &mut Pin<Box<F>>,
    ) -> Poll<()> {
        let waker = Waker::from(Arc::new(Bell { name, rung: Arc::clone(&self.0) }));
        sleep.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn rung(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn clock() -> ManualClock {
    ManualClock::at(from_unix_ms(1_000))
}

fn sleep(clock: &ManualClock, at_ms: i64) -> Pin<Box<ManualSleep>> {
    Box::pin(clock.manual_sleep(at_ms).expect("a manual clock sleeps by hand"))
}

#[test]
fn sleepers_wake_in_the_order_of_their_moments_then_of_arrival() {
    let (clock, bells) = (clock(), Bells::default());
    let mut sleeps = [("late", 3_000), ("early", 2_000), ("late too", 3_000), ("last", 9_000)]
        .map(|(name, at)| (name, sleep(&clock, at)));
    for (name, sleep) in &mut sleeps {
        assert_eq!(bells.poll(name, sleep), Poll::Pending);
    }
    assert_eq!(clock.next_wake(), Some(from_unix_ms(2_000)));
    clock.advance(Duration::from_millis(999));
    assert_eq!(bells.rung(), [""; 0]);
    clock.advance(Duration::from_millis(5_000));
    assert_eq!(bells.rung(), ["early", "late", "late too"]);
    let polls = sleeps.each_mut().map(|(name, sleep)| bells.poll(name, sleep));
    assert_eq!(polls, [Poll::Ready(()), Poll::Ready(()), Poll::Ready(()), Poll::Pending]);
}

#[test]
fn a_sleep_until_now_or_before_is_over_at_once() {
    let (clock, bells) = (clock(), Bells::default());
    for at in [1_000, 999, i64::MIN] {
        assert_eq!(bells.poll("a", &mut sleep(&clock, at)), Poll::Ready(()));
    }
    assert_eq!(clock.next_wake(), None);
}

#[test]
fn a_clock_set_back_makes_sleepers_wait_for_their_moment_again() {
    let (clock, bells) = (clock(), Bells::default());
    let mut sleep = sleep(&clock, 2_000);
    assert_eq!(bells.poll("a", &mut sleep), Poll::Pending);
    clock.set(from_unix_ms(500));
    clock.advance(Duration::from_millis(1_499));
    assert_eq!(bells.rung(), [""; 0]);
    assert_eq!(bells.poll("a", &mut sleep), Poll::Pending);
    clock.advance(Duration::from_millis(1));
    assert_eq!(bells.rung(), ["a"]);
    // Woken, but set back before it looked: it goes on sleeping and is woken once more.
    clock.set(from_unix_ms(0));
    assert_eq!(bells.poll("a", &mut sleep), Poll::Pending);
    clock.set(from_unix_ms(2_000));
    assert_eq!(bells.rung(), ["a"]);
    assert_eq!(bells.poll("a", &mut sleep), Poll::Ready(()));
}

#[test]
fn a_dropped_sleep_leaves_no_trace() {
    let (clock, bells) = (clock(), Bells::default());
    let (mut kept, mut dropped) = (sleep(&clock, 3_000), sleep(&clock, 2_000));
    assert_eq!(bells.poll("kept", &mut kept), Poll::Pending);
    assert_eq!(bells.poll("dropped", &mut dropped), Poll::Pending);
    drop(dropped);
    assert_eq!(clock.next_wake(), Some(from_unix_ms(3_000)));
    clock.set(from_unix_ms(9_000));
    assert_eq!(bells.rung(), ["kept"]);
    assert_eq!(clock.next_wake(), None);
}

#[test]
fn the_last_waker_counts() {
    let (clock, bells) = (clock(), Bells::default());
    let mut sleep = sleep(&clock, 2_000);
    assert_eq!(bells.poll("old", &mut sleep), Poll::Pending);
    assert_eq!(bells.poll("new", &mut sleep), Poll::Pending);
    clock.set(from_unix_ms(2_000));
    assert_eq!(bells.rung(), ["new"]);
}

#[test]
fn clones_share_one_time_and_its_sleepers() {
    let (clock, bells) = (clock(), Bells::default());
    let other = clock.clone();
    let mut sleep = sleep(&clock, 2_000);
    assert_eq!(bells.poll("a", &mut sleep), Poll::Pending);
    other.advance(Duration::from_secs(1));
    assert_eq!(clock.unix_ms(), 2_000);
    assert_eq!(bells.rung(), ["a"]);
}

#[test]
fn a_waker_may_use_the_clock() {
    struct Advances(ManualClock);
    impl Wake for Advances {
        fn wake(self: Arc<Self>) {
            self.0.advance(Duration::from_millis(1));
        }
    }
    let clock = clock();
    let mut sleep = sleep(&clock, 2_000);
    let waker = Waker::from(Arc::new(Advances(clock.clone())));
    assert_eq!(sleep.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    clock.set(from_unix_ms(2_000));
    assert_eq!(clock.unix_ms(), 2_001);
}

/// Follows real time, which passes with each nap, and is changed by `step_ms` after two seconds.
#[derive(Debug)]
struct Steps {
    passed_ms: AtomicI64,
    step_ms: i64,
}

impl Steps {
    fn by(step_ms: i64) -> Self {
        Self { passed_ms: AtomicI64::new(0), step_ms }
    }

    /// How much time passes in a sleep of `length`.
    fn sleeps(&self, length: Duration) -> Duration {
        let nap = |length: Duration| {
            assert!(length <= Duration::from_secs(1), "a step would go unnoticed");
            self.passed_ms.fetch_add(length.as_millis().try_into().unwrap(), Ordering::Relaxed);
            std::future::ready(())
        };
        let sleep = pin!(sleep_until(self, after_ms(self.unix_ms(), length), nap));
        assert!(sleep.poll(&mut Context::from_waker(Waker::noop())).is_ready());
        Duration::from_millis(self.passed_ms.load(Ordering::Relaxed).try_into().unwrap())
    }
}

impl Clock for Steps {
    fn unix_ms(&self) -> i64 {
        let passed_ms = self.passed_ms.load(Ordering::Relaxed);
        1_800_000_000_000 + passed_ms + if passed_ms < 2_000 { 0 } else { self.step_ms }
    }
}

#[test]
fn a_clock_that_steps_back_lengthens_no_sleep_and_one_that_steps_forward_ends_it() {
    const DAY_MS: i64 = 86_400_000;
    for (step_ms, ends_ms) in [(0, 10_500), (-DAY_MS, 10_500), (DAY_MS, 2_000), (4_000, 6_500)] {
        let passed = Steps::by(step_ms).sleeps(Duration::from_millis(10_500));
        assert_eq!(passed, Duration::from_millis(ends_ms), "{step_ms}");
    }
    assert_eq!(Steps::by(0).sleeps(Duration::ZERO), Duration::ZERO);
}

#[test]
fn under_a_manual_clock_the_runtime_does_not_sleep() {
    let (clock, bells) = (clock(), Bells::default());
    let nap = |_| -> std::future::Ready<()> { panic!("the runtime knows nothing of this clock") };
    let until = |at_ms| Box::pin(sleep_until(&clock, at_ms, nap));
    assert_eq!(bells.poll("a", &mut until(1_000)), Poll::Ready(()));
    let mut sleep = until(2_000);
    assert_eq!(bells.poll("a", &mut sleep), Poll::Pending);
    clock.advance(Duration::from_secs(1));
    assert_eq!(bells.rung(), ["a"]);
    assert_eq!(bells.poll("a", &mut sleep), Poll::Ready(()));
}

#[test]
fn times_out_of_range_are_clamped_and_do_not_panic() {
    assert_eq!(from_unix_ms(0).to_rfc3339(), "1970-01-01T00:00:00+00:00");
    assert_eq!(from_unix_ms(-1).timestamp_millis(), -1);
    assert_eq!(from_unix_ms(i64::MAX), DateTime::<Utc>::MAX_UTC);
    assert_eq!(from_unix_ms(i64::MIN), DateTime::<Utc>::MIN_UTC);
    let clock = clock();
    clock.advance(Duration::MAX);
    clock.advance(Duration::MAX);
    assert_eq!(clock.unix_ms(), i64::MAX);
    assert_eq!(clock.now(), DateTime::<Utc>::MAX_UTC);
}

#[test]
fn the_machines_clock_is_not_moved_by_hand() {
    assert!(SystemClock.manual_sleep(0).is_none());
    // Later than this test was written, and not in seconds or microseconds.
    assert!((1_790_000_000_000..5_000_000_000_000).contains(&SystemClock.unix_ms()));
}
