mod desk;
mod waits;

use std::{
    collections::BTreeSet,
    future::poll_fn,
    sync::atomic::AtomicUsize,
    task::{Context, Poll, Waker},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::task::JoinSet;

use self::desk::{Desk, WAIT, all_of, comes, drained, exhausted, project, settle_down};
use super::*;

#[tokio::test]
async fn of_500_at_once_over_a_cap_none_passes_it_none_is_lost_and_all_go_in_their_order() {
    let (desk, mut order) = Desk::new().await;
    let names: Vec<&'static str> =
        (0..500).map(|n| &*Box::leak(format!("{n} ").into_boxed_str())).collect();
    let a = project("a");
    let tasks: Vec<_> = names.iter().map(|name| desk.ask(&a, name, 100)).collect();
    let mut sent = String::new();
    for _ in 0..500 {
        settle_down().await;
        sent.push_str(&drained(&mut order));
        let day = desk.ledger.usage("a").await.unwrap().day.tokens;
        assert!(day.used() <= 1_000, "{day:?}");
        let waiting = desk.gate.queued();
        assert!(waiting == 0 || day.used() + 100 > 1_000, "{waiting} wait and there is room");
        desk.answers.add_permits(1);
    }
    settle_down().await;
    desk.answers.add_permits(500);
    assert!(all_of(tasks).await.iter().all(Result::is_ok));
    assert_eq!(sent, names.concat());
    assert!(desk.is_empty()); // and the clock stood still: nobody was found by looking from time to time
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_many_threads_none_passes_a_cap_and_none_is_lost() {
    let (mut desk, _order) = Desk::new().await;
    desk.answers.add_permits(10_000);
    desk.queue.depth = 10_000;
    let under_way = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..600_u64 {
        let (desk, under_way) = (desk.clone(), Arc::clone(&under_way));
        tasks.spawn(async move {
            let mut project = project(["a", "b", "c"][n as usize % 3]);
            project.in_flight = Some(7);
            project.priority = (n % 3) as u8 / 2;
            let passed = desk.pass(&project, "", 50 + n % 7 * 40).await;
            let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::task::yield_now().await;
            under_way.fetch_sub(1, Ordering::SeqCst);
            passed.map(|_| now)
        });
    }
    let passed = comes(tasks.join_all()).await;
    assert!(passed.iter().all(|one| one.as_ref().is_ok_and(|now| *now <= 21)), "{passed:?}");
    assert!(desk.is_empty());
    assert!(desk.ledger.audit().await.unwrap().is_balanced());
    assert_eq!(desk.ledger.usage_of_all().await.unwrap().day.tokens.used(), 600);
}

#[tokio::test]
async fn a_settlement_from_anywhere_lets_the_first_one_in() {
    let (desk, mut order) = Desk::new().await;
    // Not through the gate: a call of the embedding program, say.
    let hold = desk.reserve("a", 900).await.unwrap();
    let tasks = vec![desk.ask(&project("a"), "1", 500), desk.ask(&project("a"), "2", 500)];
    settle_down().await;
    assert_eq!((drained(&mut order).as_str(), desk.gate.queued()), ("", 2));
    hold.settle_detached(100);
    settle_down().await;
    assert_eq!(drained(&mut order), "1");
    desk.answers.add_permits(2);
    assert!(all_of(tasks).await.iter().all(|waited| *waited.as_ref().unwrap() == Duration::ZERO));
    assert_eq!(drained(&mut order), "2");
}

/// <https://github.com/BerriAI/litellm/issues/18128>: limits that are not fair between users.
#[tokio::test]
async fn the_allowance_goes_to_the_highest_priority_first_and_equals_take_turns() {
    let (desk, mut order) = Desk::new().await;
    let of = |name: &str, priority| {
        let mut project = project(name);
        project.priority = priority;
        project
    };
    let (a, b, c) = (of("a", 0), of("b", 0), of("c", 1));
    let (hold, other) = (desk.reserve("all", 1_000).await, desk.reserve("all", 1_000).await);
    let mut tasks = Vec::new();
    for (project, name) in [(&a, "a"), (&a, "a"), (&b, "b"), (&b, "b"), (&c, "c")] {
        tasks.push(desk.ask(project, name, 900));
        settle_down().await;
    }
    hold.unwrap().settle(1).await.unwrap(); // room for one
    settle_down().await;
    assert_eq!(drained(&mut order), "c");
    for next in ["a", "b", "a", "b"] {
        desk.answers.add_permits(1);
        settle_down().await;
        assert_eq!(drained(&mut order), next);
    }
    desk.answers.add_permits(9);
    other.unwrap().release().await.unwrap();
    assert!(all_of(tasks).await.iter().all(Result::is_ok));
}

/// <https://github.com/maximhq/bifrost/issues/4790>
#[tokio::test]
async fn no_more_are_under_way_than_the_cap_until_the_answer_has_come_to_its_end() {
    let (desk, mut order) = Desk::new().await;
    desk.answers.add_permits(9);
    let mut a = project("a");
    a.in_flight = Some(1);
    let first = desk.pass(&a, "1", 10).await.unwrap().1;
    let second = desk.ask(&a, "2", 10);
    settle_down().await;
    assert_eq!(drained(&mut order), "1", "its answer is still read");
    drop(first);
    assert!(comes(second).await.unwrap().is_ok());

    // Nobody ends in time.
    let _first = desk.pass(&a, "1", 10).await.unwrap();
    let second = desk.ask(&a, "2", 10);
    settle_down().await;
    desk.clock.advance(WAIT);
    let refused = comes(second).await.unwrap().unwrap_err();
    let told = refused.refusal("a", desk.clock.now());
    assert_eq!((told.reason.as_str(), told.status.as_u16()), ("in_flight", 429));
}

#[tokio::test]
async fn who_goes_away_at_any_await_leaves_its_place_to_the_next() {
    let mut polls_to_the_end = BTreeSet::new();
    for polls in 0..12 {
        let (desk, _order) = Desk::new().await;
        let mut a = project("a");
        (a.in_flight, a.requests_per_minute) = (Some(1), Some(9));
        desk.answers.add_permits(9);
        let first = desk.pass(&a, "1", 10).await.unwrap();
        let mut hold = Some(desk.reserve("a", 950).await.unwrap());
        let mut first = Some(first);
        let mut goes: BoxFuture<'_, _> = Box::pin(desk.pass(&a, "2", 500));
        let next = desk.ask(&a, "3", 500);
        for poll in 0..polls {
            let polled = poll_fn(|cx| Poll::Ready(goes.as_mut().poll(cx))).await;
            if polled.is_ready() {
                polls_to_the_end.insert(poll);
                break;
            }
            settle_down().await;
            // First a place, then room in the budget.
            match poll {
                2 => drop(first.take()),
                5 => drop(hold.take().unwrap().release().await),
                _ => {}
            }
        }
        drop(goes);
        drop(first);
        if let Some(hold) = hold {
            hold.release().await.unwrap();
        }
        assert!(comes(next).await.unwrap().is_ok(), "gone after {polls} polls");
        assert!(desk.is_empty(), "gone after {polls} polls");
        let now_ms = desk.now_ms();
        let (sent, _) = desk.gate.inner.lock().minutes.get_mut(&a.name).unwrap().used(now_ms);
        let second_was_sent = !polls_to_the_end.is_empty();
        assert_eq!(sent, 2 + usize::from(second_was_sent), "gone after {polls} polls");
    }
    assert!(!polls_to_the_end.is_empty(), "it never came to its end");
}

#[tokio::test]
async fn who_was_told_to_try_and_goes_away_before_it_hears_of_it_passes_the_turn_on() {
    let (desk, mut order) = Desk::new().await;
    let hold = desk.reserve("a", 900).await.unwrap();
    let a = project("a");
    let mut first = Box::pin(desk.pass(&a, "1", 400));
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let second = desk.ask(&a, "2", 400);
    settle_down().await;
    hold.settle(1).await.unwrap();
    settle_down().await;
    assert!(first.as_mut().now_or_never().is_none(), "it tries");
    drop(first);
    desk.answers.add_permits(1);
    assert!(comes(second).await.unwrap().is_ok());
    assert_eq!(drained(&mut order), "12");
}

#[tokio::test]
async fn the_day_turns_in_the_queue() {
    let (desk, mut order) = Desk::at("2026-12-01T07:59:50Z").await;
    desk.reserve("a", 900).await.unwrap().settle(900).await.unwrap();
    let task = desk.ask(&project("a"), "1", 500);
    settle_down().await;
    desk.clock.advance(Duration::from_millis(9_999));
    settle_down().await;
    assert_eq!(drained(&mut order), "");
    desk.clock.advance(Duration::from_millis(1));
    desk.answers.add_permits(1);
    assert_eq!(comes(task).await.unwrap().unwrap(), Duration::from_secs(10));
    assert_eq!(desk.ledger.usage("a").await.unwrap().day.tokens.used(), 1);
}

#[tokio::test]
async fn what_nothing_can_let_through_in_time_is_refused_at_once() {
    // Everything is spent, and the day turns after the wait.
    let (desk, _order) = Desk::at("2026-12-01T07:59:29Z").await;
    desk.reserve("a", 900).await.unwrap().settle(900).await.unwrap();
    let a = project("a");
    let refused = desk.pass(&a, "1", 500).await.unwrap_err();
    let told = refused.refusal("a", desk.clock.now());
    assert_eq!((told.reason.as_str(), told.status.as_u16()), ("over_budget", 429));
    assert_eq!(told.reset_at, Some("2026-12-01T08:00:00Z".parse().unwrap()));
    assert_eq!(told.should_retry, Some(false));

    // More than the whole budget.
    let refused = desk.pass(&a, "2", 1_001).await.unwrap_err();
    let told = refused.refusal("a", desk.clock.now());
    assert_eq!((told.reason.as_str(), told.status.as_u16()), ("never_fits", 400));
    assert!(desk.is_empty());
}

/// <https://github.com/diegosouzapw/OmniRoute/issues/495>: a request stood in the queue for ever.
#[tokio::test]
async fn a_wait_ends_at_its_time_with_what_stood_in_the_way() {
    let (desk, mut order) = Desk::new().await;
    let hold = desk.reserve("a", 900).await.unwrap();
    let a = project("a");
    let first = desk.ask(&a, "1", 500);
    settle_down().await;
    desk.clock.advance(WAIT / 2);
    let second = desk.ask(&a, "2", 500);
    settle_down().await;
    desk.clock.advance(WAIT / 2);
    let refused = comes(first).await.unwrap().unwrap_err();
    assert!(matches!(&refused, Refused::Ended(Error::OverBudget { .. })), "{refused:?}");
    assert_eq!(refused.refusal("a", desk.clock.now()).should_retry, Some(false));
    settle_down().await;
    // Now the second is the first, and has tried itself.
    desk.clock.advance(WAIT / 2);
    let refused = comes(second).await.unwrap().unwrap_err();
    assert_eq!(refused.refusal("a", desk.clock.now()).reason.as_str(), "over_budget");
    assert_eq!(drained(&mut order), "");
    hold.release().await.unwrap();
    assert!(desk.is_empty());
}

#[tokio::test]
async fn a_queue_that_is_full_refuses_at_once_and_takes_the_next_when_one_leaves() {
    let (mut desk, _order) = Desk::new().await;
    desk.queue.depth = 2;
    let _hold = desk.reserve("a", 900).await.unwrap();
    let a = project("a");
    let waiting = [desk.ask(&a, "1", 500), desk.ask(&a, "2", 500)];
    settle_down().await;
    let refused = desk.pass(&a, "3", 500).await.unwrap_err();
    let told = refused.refusal("a", desk.clock.now());
    assert_eq!((told.reason.as_str(), told.status.as_u16()), ("queue_full", 429));
    assert!(told.retry_after.is_some());
    waiting[0].abort();
    settle_down().await;
    assert!(desk.ask(&a, "4", 500).now_or_never().is_none());
    settle_down().await;
    assert_eq!(desk.gate.queued(), 2);
}

#[tokio::test]
async fn keys_are_waited_for_as_long_as_they_come_in_time() {
    let (desk, _order) = Desk::new().await;
    let a = project("a");
    let asking = Asking { project: &a, model: "m", queue: desk.queue };
    // The first moment was a guess; the second is right.
    let moments = [desk.now_ms() + 2_000, desk.now_ms() + 5_000];
    let tries = Arc::new(AtomicUsize::new(0));
    let task = tokio::spawn({
        let (desk, a, tries) = (desk.clone(), a.clone(), Arc::clone(&tries));
        async move {
            let asking = Asking { project: &a, model: "m", queue: desk.queue };
            let attempt = |_| {
                let tried = tries.fetch_add(1, Ordering::Relaxed);
                let moment = moments.into_iter().find(|moment| *moment > desk.now_ms());
                assert!(tried < 9, "it tries in a loop");
                async move {
                    moment.map_or(Ok(()), |at| Err(exhausted(ExhaustedKind::Cooling, Some(at))))
                }
            };
            desk.gate.pass(asking, attempt).await.map(|(_, pass)| pass.waited)
        }
    });
    for _ in 0..5 {
        settle_down().await;
        desk.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(comes(task).await.unwrap().unwrap(), Duration::from_secs(5));

    // Later than the wait, or never: at once.
    let later = Some(desk.now_ms() + 30_001);
    for (kind, soonest) in [(ExhaustedKind::Cooling, later), (ExhaustedKind::Cooling, None)] {
        let refused = desk.gate.pass(asking, async |_| Err::<(), _>(exhausted(kind, soonest)));
        let refused = refused.await.unwrap_err().refusal("a", desk.clock.now());
        assert_eq!((refused.reason.as_str(), refused.status.as_u16()), ("exhausted", 503));
        assert_eq!(refused.reset_at.map(|at| at.timestamp_millis()), soonest);
    }
    // All are busy until the wait is over: they will not be for long.
    let busy = async |_| Err::<(), _>(exhausted(ExhaustedKind::Busy, None));
    let later = async { (settle_down().await, desk.clock.advance(WAIT)) };
    let (refused, _) = tokio::join!(desk.gate.pass(asking, busy), later);
    let refused = refused.unwrap_err().refusal("a", desk.clock.now());
    assert_eq!((refused.reason.as_str(), refused.should_retry), ("exhausted", None));
    assert!(refused.retry_after.is_some());
    // Anything else is not the gate's business.
    let refused =
        desk.gate.pass(asking, async |_| Err::<(), _>(Error::Setting("odd".to_owned()))).await;
    assert!(matches!(refused, Err(Refused::Ended(Error::Setting(_)))));
    assert!(desk.is_empty());
}

#[tokio::test]
async fn a_key_that_somebody_gives_back_is_for_who_waits_for_one() {
    let (desk, _order) = Desk::new().await;
    desk.answers.add_permits(9);
    let a = project("a");
    let first = desk.pass(&a, "1", 10).await.unwrap();
    let is_busy = Arc::new(AtomicBool::new(true));
    let task = tokio::spawn({
        let (desk, is_busy) = (desk.clone(), Arc::clone(&is_busy));
        async move {
            let asking = Asking { project: &project("b"), model: "m", queue: desk.queue };
            let attempt = |_| {
                let is_busy = is_busy.load(Ordering::Relaxed);
                async move { if is_busy { Err(exhausted(ExhaustedKind::Busy, None)) } else { Ok(()) } }
            };
            desk.gate.pass(asking, attempt).await.map(|_| ())
        }
    });
    settle_down().await;
    is_busy.store(false, Ordering::Relaxed);
    settle_down().await;
    assert!(!task.is_finished(), "nobody told it");
    drop(first);
    assert!(comes(task).await.unwrap().is_ok());
}

#[tokio::test]
async fn what_other_processes_free_is_seen_within_a_second() {
    let (desk, _order) = Desk::new().await;
    // Somebody else's ledger, of whom nobody hears.
    let (other, _) = Desk::new().await;
    let hold = other.reserve("a", 900).await.unwrap();
    let a = project("a");
    let task = tokio::spawn({
        let (gate, other) = (desk.gate.clone(), other.clone());
        async move {
            let asking = Asking { project: &a, model: "m", queue: other.queue };
            let passed =
                gate.pass(asking, |_| async { other.reserve("a", 500).await.map(drop) }).await;
            passed.map(|(_, pass)| pass.waited)
        }
    });
    settle_down().await;
    hold.release().await.unwrap();
    settle_down().await;
    assert!(!task.is_finished());
    desk.clock.advance(Duration::from_secs(1));
    assert_eq!(comes(task).await.unwrap().unwrap(), Duration::from_secs(1));
}

#[tokio::test]
async fn the_requests_of_a_minute_are_those_that_were_sent() {
    let (desk, _order) = Desk::new().await;
    desk.answers.add_permits(9);
    let mut a = project("a");
    a.requests_per_minute = Some(2);
    let (_, pass) = desk.pass(&a, "1", 10).await.unwrap();
    let reset_ms = desk.now_ms() + 60_000;
    assert_eq!(pass.minute, Some(MinuteStanding { cap: 2, used: 1, reset_ms }));
    // What was not sent does not count: refused by the budget, or gone from the queue.
    assert!(desk.pass(&a, "2", 2_000).await.is_err());
    let hold = desk.reserve("a", 900).await.unwrap();
    let gone = desk.ask(&a, "3", 500);
    settle_down().await;
    gone.abort();
    settle_down().await;
    hold.release().await.unwrap();
    desk.clock.advance(Duration::from_secs(20));
    drop(desk.pass(&a, "4", 10).await.unwrap());
    for _ in 0..5 {
        let refused = desk.pass(&a, "5", 10).await.unwrap_err();
        let told = refused.refusal("a", desk.clock.now());
        assert_eq!((told.reason.as_str(), told.status.as_u16()), ("requests_per_minute", 429));
        assert_eq!(told.reset_at, Some("2026-11-30T20:01:00Z".parse().unwrap()));
    }
    drop(desk.pass(&project("b"), "6", 10).await.unwrap());
    desk.clock.advance(Duration::from_secs(40));
    drop(desk.pass(&a, "7", 10).await.unwrap());
}

#[tokio::test]
async fn who_waits_when_the_gateway_stops_is_told_so() {
    let (desk, _order) = Desk::new().await;
    let _hold = desk.reserve("a", 900).await.unwrap();
    let a = project("a");
    let tasks = vec![desk.ask(&a, "1", 500), desk.ask(&a, "2", 500)];
    settle_down().await;
    desk.gate.close();
    for refused in all_of(tasks).await {
        assert!(matches!(refused, Err(Refused::Stopping)), "{refused:?}");
    }
    assert!(matches!(desk.pass(&a, "3", 1).await, Err(Refused::Stopping)));
    assert!(desk.is_empty());
}

#[tokio::test]
async fn a_refusal_of_all_keys_after_it_was_sent_brings_it_back_to_where_it_stood() {
    let (desk, mut order) = Desk::new().await;
    let a = project("a");
    let at = desk.now_ms() + 1_000;
    let task = tokio::spawn({
        let (desk, a) = (desk.clone(), a.clone());
        async move {
            let asking = Asking { project: &a, model: "m", queue: desk.queue };
            let attempt = |sent: Sent| {
                let desk = desk.clone();
                async move {
                    sent.tell();
                    let _ = desk.sent.send("1");
                    if desk.now_ms() < at {
                        desk.answers.acquire().await.unwrap().forget();
                        return Err(exhausted(ExhaustedKind::Cooling, Some(at)));
                    }
                    Ok(())
                }
            };
            desk.gate.pass(asking, attempt).await.map(|_| ())
        }
    });
    settle_down().await;
    let asking = Asking { project: &a, model: "m", queue: desk.queue };
    desk.answers.add_permits(1);
    settle_down().await;
    assert_eq!(desk.gate.queued(), 1);
    let mut later = Box::pin(desk.gate.pass(asking, async |_| Ok::<_, Error>(())));
    assert!(poll_fn(|cx| Poll::Ready(later.as_mut().poll(cx).is_pending())).await);
    desk.clock.advance(Duration::from_secs(1));
    assert!(comes(task).await.unwrap().is_ok());
    assert!(comes(later).await.is_ok());
    assert_eq!(drained(&mut order), "11");
}
