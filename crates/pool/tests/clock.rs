//! Hazards: the clock steps, the day has 23 or 25 hours, midnight is a millisecond away, the reset is late.
//! <https://github.com/diegosouzapw/OmniRoute/pull/13671>, <https://github.com/BerriAI/litellm/issues/34896>

mod common;

use common::*;
use keywheel_core::{Cause, Effect, Scope, Wait};
use keywheel_pool::{Ask, Refusal};

#[tokio::test]
async fn clock_back_an_hour_leaves_nothing_out_longer_than_legal() {
    let fixture = Fixture::new(3, "2026-11-29T22:30:00Z");
    let hour = bucket(Cause::UnspecifiedQuota, Wait::Stated(seconds(3_600)));
    for refusal in [day_spent(Some(20)), minute_spent(30, None), Refusal::new([hour])] {
        fixture.refuse(&refusal).await;
    }
    fixture.clock.set(at("2026-11-29T21:30:00Z"));
    assert!(fixture.lease().is_err());
    let status = fixture.pool.status();
    let until = |cause| {
        let mut all = status.buckets.iter().flat_map(|bucket| &bucket.cooldowns);
        all.find(|known| known.cause == cause).unwrap().until.unwrap()
    };
    // The day still ends when it ends; the others last as long from now as they were meant to.
    let day = until(Cause::PerDayRequests);
    assert!(day >= at("2026-11-30T08:00:00Z") && day <= at("2026-11-30T08:00:05Z"));
    assert_eq!(until(Cause::PerMinuteRequests), at("2026-11-29T21:30:30Z"));
    assert_eq!(until(Cause::UnspecifiedQuota), at("2026-11-29T22:30:00Z"));
    fixture.clock.set(at("2026-11-29T21:30:30Z"));
    fixture.serve();
}

#[tokio::test]
async fn clock_back_a_day_leaves_a_quota_project_out_no_longer_than_it_was_meant_to() {
    let fixture = Fixture::new(1, "2026-11-29T22:30:00Z");
    let wait = Wait::Stated(seconds(600));
    let money = Effect::new(Scope::QuotaProject, Cause::Billing, wait);
    let block = Effect::new(Scope::Host, Cause::IpBlock, Wait::Ladder);
    fixture.refuse(&Refusal::new([money, block])).await;
    fixture.clock.set(at("2026-11-28T22:30:00Z"));
    assert_eq!(fixture.soonest(), at("2026-11-28T23:00:00Z"), "half an hour is a host's longest");
    fixture.clock.set(at("2026-11-28T23:00:00Z"));
    fixture.serve();
}

#[tokio::test]
async fn clock_back_an_hour_does_not_freeze_the_rolling_minute() {
    let fixture = Fixture::with("2026-11-29T22:30:00Z", |builder| {
        let limits = keywheel_pool::Limits { rpm: Some(1), ..Default::default() };
        builder.keys(keys(1)).limits("*", limits)
    });
    fixture.serve();
    fixture.clock.set(at("2026-11-29T21:30:00Z"));
    let soonest = fixture.soonest();
    assert!(soonest <= at("2026-11-29T21:31:01Z"));
    fixture.clock.set(soonest);
    fixture.serve();
}

#[tokio::test]
async fn clock_back_an_hour_wakes_those_who_wait() {
    let fixture = Fixture::new(1, "2026-11-29T22:30:00Z");
    fixture.refuse(&minute_spent(30, None)).await;
    let pool = fixture.pool.clone();
    let waiting = tokio::spawn(async move { pool.lease(Ask::new(MODEL)).await });
    tokio::task::yield_now().await;
    fixture.clock.set(at("2026-11-29T21:30:00Z"));
    // Anybody's look at the clock is enough to notice.
    assert!(fixture.lease().is_err());
    tokio::task::yield_now().await;
    fixture.clock.set(at("2026-11-29T21:30:30Z"));
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test]
async fn clock_forward_a_day_and_back_never_panics_and_never_strands() {
    let fixture = Fixture::new(2, "2026-11-29T22:30:00Z");
    fixture.refuse(&day_spent(Some(20))).await;
    fixture.advance(seconds(86_400));
    for _ in 0..2 {
        fixture.refuse(&day_spent(Some(20))).await;
    }
    fixture.clock.set(at("2026-11-29T22:30:00Z"));
    // Spent "tomorrow" by a wrong clock: out until the end of today at the latest.
    let soonest = fixture.soonest();
    assert!(soonest <= at("2026-11-30T08:00:10Z"), "{soonest}");
    fixture.clock.set(soonest);
    fixture.serve();
}

#[tokio::test]
async fn clock_forward_a_day_and_back_keeps_the_counts_of_today() {
    let fixture = Fixture::with("2026-11-29T22:30:00Z", |builder| {
        let limits = keywheel_pool::Limits { rpd: Some(4), ..Default::default() };
        builder.keys(keys(1)).limits("*", limits)
    });
    let requests = || fixture.pool.status().buckets[0].day.requests;
    for _ in 0..3 {
        fixture.serve();
    }
    fixture.clock.set(at("2026-11-30T22:30:00Z"));
    fixture.serve();
    assert_eq!(requests(), 1);
    fixture.clock.set(at("2026-11-29T22:31:00Z"));
    assert_eq!(requests(), 3);
    fixture.serve();
    assert!(fixture.lease().is_err(), "four are a day's");
    // Others hear the same of the file.
    fixture.pool.flush().await.unwrap();
    let other = open(&fixture.clock, &fixture.state, |builder| builder.keys(keys(1)));
    assert_eq!(other.status().buckets[0].day.requests, 4);
    // What the wrong clock counted for tomorrow is not tomorrow's.
    fixture.clock.set(at("2026-11-30T22:30:00Z"));
    assert_eq!(requests(), 0);
}

#[tokio::test]
async fn clock_at_the_ends_of_time_never_panics() {
    let fixture = Fixture::new(2, "2026-11-29T22:30:00Z");
    for moment in [i64::MIN, i64::MIN / 2, -1, 0, 1, i64::MAX / 2, i64::MAX] {
        fixture.clock.set(keywheel_core::clock::from_unix_ms(moment));
        for refusal in [day_spent(None), bare(), minute_spent(u64::MAX, Some(1))] {
            if let Ok(mut lease) = fixture.lease() {
                lease.sent();
                let _ = lease.refused(&refusal).await;
            }
        }
        assert_eq!(fixture.pool.status().buckets.len(), 2);
    }
}

#[tokio::test]
async fn both_clock_changes_keep_the_day_until_pacific_midnight() {
    // 8 March 2026 has 23 hours, 1 November 2026 has 25.
    for (refused, ends) in [
        ("2026-03-08T09:30:00Z", "2026-03-09T07:00:00Z"),
        ("2026-03-08T10:30:00Z", "2026-03-09T07:00:00Z"),
        ("2026-11-01T08:30:00Z", "2026-11-02T08:00:00Z"),
        ("2026-11-01T09:30:00Z", "2026-11-02T08:00:00Z"),
    ] {
        let fixture = Fixture::new(1, refused);
        let until = fixture.refuse(&day_spent(None)).await.until.unwrap();
        let late = (until - at(ends)).num_milliseconds();
        assert!((1_000..=5_000).contains(&late), "{refused}: {until}");
        fixture.clock.set(until - chrono::TimeDelta::milliseconds(1));
        assert!(fixture.lease().is_err());
        fixture.clock.set(until);
        fixture.serve();
    }
}

#[tokio::test]
async fn counts_of_a_23_and_a_25_hour_day_turn_at_pacific_midnight() {
    for (start, before, after) in [
        ("2026-03-08T08:00:00Z", "2026-03-09T06:59:59.999Z", "2026-03-09T07:00:00Z"),
        ("2026-11-01T07:00:00Z", "2026-11-02T07:59:59.999Z", "2026-11-02T08:00:00Z"),
    ] {
        let fixture = Fixture::new(1, start);
        fixture.serve();
        fixture.clock.set(at(before));
        assert_eq!(fixture.pool.status().buckets[0].day.requests, 1);
        fixture.clock.set(at(after));
        assert_eq!(fixture.pool.status().buckets[0].day.requests, 0);
    }
}

#[tokio::test]
async fn refused_at_the_last_millisecond_of_the_day_is_back_with_the_new_one() {
    let fixture = Fixture::new(1, "2026-11-30T07:59:59.999Z");
    let until = fixture.refuse(&day_spent(None)).await.until.unwrap();
    assert!(until > at("2026-11-30T08:00:00Z") && until <= at("2026-11-30T08:00:05Z"));
}

#[tokio::test]
async fn sent_before_midnight_and_answered_after_counts_for_the_old_day() {
    let fixture = Fixture::with("2026-11-30T07:59:59.999Z", |builder| {
        let limits = keywheel_pool::Limits { rpd: Some(2), ..Default::default() };
        builder.keys(keys(1)).limits("*", limits)
    });
    let mut old = fixture.lease().unwrap();
    old.sent();
    fixture.advance(seconds(1));
    fixture.serve();
    old.served(&keywheel_core::Usage { input: 10, ..Default::default() });
    let day = fixture.pool.status().buckets[0].day;
    assert_eq!((day.requests, day.tokens), (1, 0));
}

#[tokio::test]
async fn a_reset_five_minutes_late_costs_minutes_and_not_the_day() {
    // Google's day turns at 00:05 by our clock.
    let fixture = Fixture::new(1, "2026-11-30T08:00:10Z");
    let mut refused = Vec::new();
    while fixture.now() < at("2026-11-30T08:05:00Z") {
        refused.push(fixture.refuse(&day_spent(None)).await.until.unwrap());
        fixture.clock.set(*refused.last().unwrap());
    }
    let minutes: Vec<_> =
        refused.iter().map(|until| (*until - at("2026-11-30T08:00:10Z")).num_minutes()).collect();
    assert_eq!(minutes, [1, 6], "after 1 and then 5 minutes more");
    fixture.serve();
}

#[tokio::test]
async fn a_day_really_spent_right_after_the_reset_is_believed() {
    let fixture = Fixture::new(1, "2026-11-30T08:00:10Z");
    for _ in 0..20 {
        fixture.serve();
    }
    let until = fixture.refuse(&day_spent(Some(20))).await.until.unwrap();
    assert!(until >= at("2026-12-01T08:00:00Z"), "twenty were served, and twenty is the limit");
}

#[tokio::test]
async fn a_doubted_reset_becomes_a_day_after_three_waits() {
    let fixture = Fixture::new(1, "2026-11-30T08:00:10Z");
    for minutes in [1, 5, 30] {
        let until = fixture.refuse(&day_spent(None)).await.until.unwrap();
        assert_eq!((until - fixture.now()).num_minutes(), minutes);
        fixture.clock.set(until);
    }
    let until = fixture.refuse(&day_spent(None)).await.until.unwrap();
    assert!(until >= at("2026-12-01T08:00:00Z"));
}

#[tokio::test]
async fn a_limit_learned_under_a_fast_clock_is_replaced_by_the_next() {
    let fixture = Fixture::new(1, "2026-12-29T22:30:00Z");
    fixture.refuse(&minute_spent(1, Some(3))).await;
    fixture.clock.set(at("2026-11-29T22:30:00Z"));
    fixture.clock.set(fixture.soonest());
    fixture.refuse(&minute_spent(1, Some(30))).await;
    assert_eq!(fixture.pool.status().buckets[0].limits[0].value, 30);
}

#[tokio::test]
async fn the_next_free_check_goes_back_with_the_clock() {
    let fixture = Fixture::new(1, "2027-11-29T22:30:00Z");
    fixture.refuse(&dead()).await;
    fixture.clock.set(at("2026-11-29T22:30:00Z"));
    assert!(fixture.pool.due_checks().await.is_empty());
    fixture.advance(seconds(24 * 3_600));
    assert_eq!(fixture.pool.due_checks().await.len(), 1);
}
