//! Hazards: many answers come at once, and each is taken for news of its own.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod common;

use common::*;
use keywheel_core::Usage;
use keywheel_pool::{Ask, Lease, Selector};
use proptest::prelude::*;

/// `count` calls in flight at once, on one key.
async fn in_flight(fixture: &Fixture, count: usize) -> Vec<Lease> {
    // The cap starts at two and grows with each call that is served.
    for _ in 0..count {
        fixture.serve();
    }
    let mut leases: Vec<_> = (0..count).map(|_| fixture.lease().unwrap()).collect();
    leases.iter_mut().for_each(Lease::sent);
    leases
}

#[tokio::test]
async fn fifty_answers_in_flight_when_the_day_ends_are_one_step() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let leases = in_flight(&fixture, 50).await;
    let mut untils = Vec::new();
    for lease in leases {
        fixture.advance(std::time::Duration::from_millis(20));
        untils.push(lease.refused(&bare()).await.until.unwrap());
    }
    assert!(untils.iter().all(|until| *until == untils[0]), "none of them extends it");
    let first = at("2026-11-29T12:00:00.020Z") + seconds(60);
    assert_eq!(untils[0], first);
    fixture.clock.set(first);
    let next = fixture.refuse(&bare()).await.until.unwrap();
    assert_eq!(next, first + seconds(5 * 60), "the second step, not the fiftieth");
}

#[tokio::test]
async fn fifty_answers_in_flight_with_a_stated_wait_do_not_push_it_on() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    for lease in in_flight(&fixture, 50).await {
        let _ = lease.refused(&minute_spent(30, None)).await;
        fixture.advance(std::time::Duration::from_millis(20));
    }
    assert_eq!(fixture.soonest(), at("2026-11-29T12:00:30Z"));
}

#[tokio::test]
async fn fifty_answers_in_flight_over_midnight_do_not_spend_the_new_day() {
    let fixture = Fixture::new(1, "2026-11-30T07:59:59Z");
    let leases = in_flight(&fixture, 50).await;
    fixture.advance(seconds(2));
    for lease in leases {
        let _ = lease.refused(&day_spent(None)).await;
    }
    // They speak of the day that is over: a minute's doubt, not a day.
    let soonest = fixture.soonest();
    assert!(soonest <= at("2026-11-30T08:01:10Z"), "{soonest}");
    fixture.clock.set(soonest);
    fixture.serve();
    assert_eq!(fixture.pool.status().buckets[0].day.requests, 1, "the refused were given back");
}

#[tokio::test]
async fn answers_later_than_the_cooldown_they_missed_change_nothing() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut leases = in_flight(&fixture, 2).await;
    let slow = leases.pop().unwrap();
    let _ = leases.pop().unwrap().refused(&bare()).await;
    // The cooldown is over when the slow answer comes.
    fixture.advance(seconds(61));
    let reported = slow.refused(&bare()).await;
    assert_eq!(reported.until, None);
    fixture.serve();
}

#[tokio::test]
async fn clear_stands_against_answers_still_in_flight() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let leases = in_flight(&fixture, 5).await;
    fixture.advance(seconds(1));
    let mut leases = leases.into_iter();
    let _ = leases.next().unwrap().refused(&day_spent(Some(20))).await;
    assert!(fixture.lease().is_err());
    assert_eq!(fixture.pool.clear(Selector::All).await, 1);
    for lease in leases {
        assert_eq!(lease.refused(&day_spent(Some(20))).await.until, None);
    }
    fixture.serve();
    // What is sent after the clear is news again, in the same second, too.
    assert!(fixture.refuse(&day_spent(None)).await.until.is_some());
}

#[tokio::test]
async fn clear_of_a_key_stands_against_answers_still_in_flight() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut leases = in_flight(&fixture, 3).await;
    let _ = leases.pop().unwrap().refused(&dead()).await;
    assert!(fixture.lease().is_err());
    assert_eq!(fixture.pool.clear(Selector::Label("KEY_1".into())).await, 1);
    let _ = leases.pop().unwrap().refused(&dead()).await;
    fixture.serve();
    let _ = fixture.refuse(&dead()).await;
    assert!(fixture.lease().is_err());
}

#[tokio::test]
async fn clear_stands_against_an_old_copy_of_another_process() {
    // https://github.com/tashfeenahmed/freellmapi/issues/878
    let one = Fixture::new(1, "2026-11-29T12:00:00Z");
    one.refuse(&day_spent(None)).await;
    // The other process knows the cooldown, and writes after the clear.
    let two = open(&one.clock, &one.state, |builder| builder.keys(keys(1)));
    assert!(two.try_lease(&Ask::new(MODEL)).is_err());
    assert_eq!(one.pool.clear(Selector::Model(MODEL.into())).await, 1);
    let _ = two.mark_rate_limited("KEY_1", "another-model", None).await;
    two.flush().await.unwrap();
    one.serve();
    assert!(two.try_lease(&Ask::new(MODEL)).is_ok(), "the clear reached the other process");
    let three = open(&one.clock, &one.state, |builder| builder.keys(keys(1)));
    assert!(three.try_lease(&Ask::new(MODEL)).is_ok());
}

#[tokio::test]
async fn a_success_sent_after_the_failure_goes_back_to_the_ladders_foot() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut wait = Vec::new();
    for _ in 0..4 {
        let until = fixture.refuse(&bare()).await.until.unwrap();
        wait.push((until - fixture.now()).num_minutes());
        fixture.clock.set(until);
    }
    assert_eq!(wait, [1, 5, 30, 120]);
    let until = fixture.refuse(&bare()).await.until.unwrap();
    assert!(until >= at("2026-11-30T08:00:00Z"), "the last step is the end of the quota day");
    fixture.clock.set(until);
    fixture.serve();
    fixture.advance(seconds(1));
    let until = fixture.refuse(&bare()).await.until.unwrap();
    assert_eq!((until - fixture.now()).num_minutes(), 1);
}

#[tokio::test]
async fn a_success_sent_before_the_failure_proves_nothing() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut leases = in_flight(&fixture, 2).await;
    fixture.advance(seconds(1));
    let _ = leases.pop().unwrap().refused(&bare()).await;
    leases.pop().unwrap().served(&Usage::default());
    fixture.advance(seconds(60));
    let until = fixture.refuse(&bare()).await.until.unwrap();
    assert_eq!((until - fixture.now()).num_minutes(), 5);
}

#[tokio::test]
async fn a_429_is_given_back_and_a_failure_is_not() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut leases = in_flight(&fixture, 3).await;
    let _ = leases.pop().unwrap().refused(&minute_spent(5, None)).await;
    leases.pop().unwrap().failed(&[]);
    drop(leases.pop());
    let status = &fixture.pool.status().buckets[0];
    assert_eq!((status.day.requests, status.minute.requests, status.in_flight), (5, 5, 0));
}

#[tokio::test]
async fn unknown_limits_start_with_two_in_flight_and_grow_with_each_served() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut leases = vec![fixture.lease().unwrap(), fixture.lease().unwrap()];
    let exhausted = fixture.lease().unwrap_err();
    assert_eq!(exhausted.kind, keywheel_pool::ExhaustedKind::Busy);
    assert_eq!(exhausted.soonest, None);
    let mut first = leases.pop().unwrap();
    first.sent();
    first.served(&Usage::default());
    leases.extend([fixture.lease().unwrap(), fixture.lease().unwrap()]);
    assert!(fixture.lease().is_err(), "three");
}

#[tokio::test]
async fn a_long_answer_takes_no_place_from_those_who_try() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut long = in_flight(&fixture, 2).await;
    // As many as may be tried were answered before: four.
    long.extend([fixture.lease().unwrap(), fixture.lease().unwrap()]);
    let pool = fixture.pool.clone();
    let waiter = tokio::spawn(async move { pool.lease(Ask::new(MODEL)).await });
    tokio::task::yield_now().await;
    assert!(!waiter.is_finished(), "four are in flight");
    long[0].answers();
    let told = tokio::time::timeout(seconds(20), waiter).await;
    drop(told.expect("the one who waits is told").unwrap().unwrap());
    // The cooldown takes back what was learned of how many may be in flight, but no place from who answers.
    long.iter_mut().for_each(Lease::answers);
    let until = fixture.refuse(&bare()).await.until.unwrap();
    fixture.clock.set(until);
    fixture.serve();
    let status = &fixture.pool.status().buckets[0];
    assert_eq!((status.in_flight, status.in_flight_cap), (4, Some(3 + 4)));
    drop(long);
    assert_eq!(fixture.pool.status().buckets[0].in_flight_cap, Some(3));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Lease,
    Answers(usize),
    Serve(usize),
    Fail(usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Lease),
        2 => any::<usize>().prop_map(Step::Answers),
        1 => any::<usize>().prop_map(Step::Serve),
        1 => any::<usize>().prop_map(Step::Fail),
        1 => any::<usize>().prop_map(Step::Drop),
    ]
}

proptest! {
    #[test]
    fn only_those_without_an_answer_count_against_what_may_be_in_flight(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
        let (mut open, mut cap): (Vec<(Lease, bool)>, _) = (Vec::new(), 2);
        for step in steps {
            let answered = open.iter().filter(|(_, answers)| *answers).count();
            let status = &fixture.pool.status().buckets;
            if let [bucket] = &**status {
                prop_assert_eq!(bucket.in_flight as usize, open.len());
                prop_assert_eq!(bucket.in_flight_cap, u32::try_from(cap + answered).ok());
            }
            let (Step::Answers(which) | Step::Serve(which) | Step::Fail(which) | Step::Drop(which)) =
                step
            else {
                let lease = fixture.lease();
                prop_assert_eq!(lease.is_ok(), open.len() - answered < cap);
                open.extend(lease.ok().map(|lease| (lease, false)));
                continue;
            };
            if open.is_empty() {
                continue;
            }
            let (mut lease, answers) = open.swap_remove(which % open.len());
            match step {
                Step::Answers(_) => {
                    lease.answers();
                    open.push((lease, true));
                    cap += usize::from(!answers);
                }
                Step::Serve(_) => {
                    lease.served(&Usage::default());
                    cap += usize::from(!answers);
                }
                Step::Fail(_) => lease.failed(&[]),
                _ => drop(lease),
            }
        }
    }
}
