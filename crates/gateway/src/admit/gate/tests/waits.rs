//! How long a wait is, what ends it, and what is told of it.

use std::pin::Pin;

use super::*;

/// A request whose attempt ends with `attempt`'s word.
async fn pass<T>(
    desk: &Desk,
    project: &Project,
    attempt: impl AsyncFn() -> Result<T, Error>,
) -> Result<(T, Pass), Refused> {
    let asking = Asking { project, model: "m", queue: desk.queue };
    desk.gate.pass(asking, |_| attempt()).await
}

/// Begins, and has to wait.
async fn waits(mut going: Pin<&mut impl Future>) {
    assert!(poll_fn(|cx| Poll::Ready(going.as_mut().poll(cx).is_pending())).await);
    settle_down().await;
}

#[tokio::test]
async fn a_wait_ends_to_the_millisecond_with_what_was_met_last() {
    let (mut desk, _order) = Desk::new().await;
    // So short that nobody looks again within it.
    desk.queue.wait = Duration::from_millis(500);
    let _hold = desk.reserve("a", 900).await.unwrap();
    let first = desk.ask(&project("a"), "1", 500);
    settle_down().await;
    desk.clock.advance(Duration::from_millis(499));
    settle_down().await;
    assert!(!first.is_finished());
    desk.clock.advance(Duration::from_millis(1));
    let refused = comes(first).await.unwrap().unwrap_err();
    assert!(matches!(&refused, Refused::Ended(Error::OverBudget { .. })), "{refused:?}");
}

#[tokio::test]
async fn who_never_had_its_turn_is_told_what_the_first_one_waits_for() {
    for (whose, taken, limit) in [("a", 900, Limit::Own), ("all", 1_900, Limit::Allowance)] {
        let (desk, _order) = Desk::new().await;
        let _hold = desk.reserve(whose, taken).await.unwrap();
        let a = project("a");
        let first = desk.ask(&a, "1", 500);
        settle_down().await;
        let mut hasty = desk.clone();
        hasty.queue.wait = Duration::from_millis(500);
        let second = hasty.ask(&a, "2", 500);
        settle_down().await;
        desk.clock.advance(Duration::from_millis(500));
        let refused = comes(second).await.unwrap().unwrap_err();
        let Refused::Behind { met: Some(met), .. } = &refused else { panic!("{refused:?}") };
        assert_eq!(met.limit, limit);
        assert!(!first.is_finished());
    }
}

/// The place that was free when it came is somebody else's when it meets a limit.
#[tokio::test]
async fn who_meets_a_limit_and_finds_the_queue_full_by_then_is_refused() {
    let (mut desk, _order) = Desk::new().await;
    desk.queue.depth = 1;
    let _hold = desk.reserve("a", 900).await.unwrap();
    let (a, go_on) = (project("a"), Notify::new());
    let mut slow = pin!(pass(&desk, &a, async || {
        go_on.notified().await;
        desk.reserve("a", 500).await.map(drop)
    }));
    waits(slow.as_mut()).await;
    let quick = desk.ask(&a, "1", 500);
    settle_down().await;
    go_on.notify_one();
    let refused = comes(slow).await.unwrap_err();
    let Refused::QueueFull { depth: 1, met: Some(met) } = &refused else { panic!("{refused:?}") };
    assert_eq!(met.limit, Limit::Own);
    assert!(!quick.is_finished());
}

#[tokio::test]
async fn a_queue_that_is_full_takes_nothing_of_the_minute() {
    let (mut desk, _order) = Desk::new().await;
    desk.queue.depth = 1;
    let _hold = desk.reserve("a", 900).await.unwrap();
    let mut a = project("a");
    a.requests_per_minute = Some(2);
    let _waits = desk.ask(&a, "1", 500);
    settle_down().await;
    for _ in 0..3 {
        let refused = desk.pass(&a, "2", 500).await.unwrap_err();
        assert!(matches!(refused, Refused::QueueFull { .. }), "{refused:?}");
    }
}

#[tokio::test]
async fn what_is_answered_was_sent_also_if_nobody_said_so_and_has_waited_for_its_turn_alone() {
    let (desk, _order) = Desk::new().await;
    let mut a = project("a");
    a.requests_per_minute = Some(1);
    let answers = async || {
        desk.clock.advance(Duration::from_secs(5));
        Ok(())
    };
    let (_, passed) = pass(&desk, &a, answers).await.unwrap();
    assert_eq!(passed.waited, Duration::ZERO);
    drop(passed);
    let refused = pass(&desk, &a, answers).await.unwrap_err();
    assert!(matches!(refused, Refused::PerMinute { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_moment_that_comes_sooner_than_all_others_is_not_slept_through() {
    let (desk, _order) = Desk::new().await;
    let _hold = desk.reserve("a", 900).await.unwrap();
    let _first = desk.ask(&project("a"), "1", 500);
    settle_down().await;
    // By now somebody looks again in a second.
    let at = desk.now_ms() + 300;
    let b = project("b");
    let mut sooner = pin!(pass(&desk, &b, async || match desk.now_ms() < at {
        true => Err(exhausted(ExhaustedKind::Cooling, Some(at))),
        false => Ok(()),
    }));
    waits(sooner.as_mut()).await;
    desk.clock.advance(Duration::from_millis(300));
    let (_, passed) = comes(sooner).await.unwrap();
    assert_eq!(passed.waited, Duration::from_millis(300));
}

/// Of another process's keys nobody hears, however late the moment is that was named.
#[tokio::test]
async fn who_waits_for_a_moment_looks_every_second_all_the_same_and_then_nobody_does() {
    let (desk, _order) = Desk::new().await;
    let soonest = Some(desk.now_ms() + 20_000);
    let (a, is_busy) = (project("a"), AtomicBool::new(true));
    let mut going = pin!(pass(&desk, &a, async || match is_busy.load(Ordering::Relaxed) {
        true => Err(exhausted(ExhaustedKind::Busy, soonest)),
        false => Ok(()),
    }));
    waits(going.as_mut()).await;
    // Who wants the keys of another model has nothing to wait for.
    let another = Asking { project: &a, model: "another", queue: desk.queue };
    assert!(desk.gate.pass(another, async |_| Ok::<_, Error>(())).now_or_never().is_some());
    settle_down().await;
    waits(going.as_mut()).await;
    is_busy.store(false, Ordering::Relaxed);
    desk.clock.advance(Duration::from_secs(1));
    drop(comes(going).await.unwrap());
    desk.clock.advance(Duration::from_secs(1));
    settle_down().await;
    assert!(desk.gate.inner.lock().freed.is_some(), "somebody watches over nobody");
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_put_off_the_next_look() {
    let (desk, _order) = Desk::new().await;
    let (other, _) = Desk::new().await;
    let hold = other.reserve("a", 900).await.unwrap();
    let a = project("a");
    let attempt = async || other.reserve("a", 500).await.map(drop);
    let mut going = pin!(pass(&desk, &a, attempt));
    waits(going.as_mut()).await;
    desk.clock.set(desk.clock.now() - chrono::TimeDelta::hours(1));
    // Something that is heard of, and does not help.
    desk.reserve("b", 10).await.unwrap().release().await.unwrap();
    settle_down().await;
    waits(going.as_mut()).await;
    hold.release().await.unwrap();
    waits(going.as_mut()).await;
    desk.clock.advance(Duration::from_secs(1));
    assert!(comes(going).await.is_ok());
}
