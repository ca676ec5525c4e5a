//! Hazards: a bucket's own day boundary that is wrong, out of date, or learned under a wrong clock.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod common;

use chrono::{DateTime, TimeDelta, Utc};
use common::*;
use keywheel_core::{Cause, Wait, Window};
use keywheel_pool::Refusal;

fn per_day(wait: Wait, named_quota: bool) -> Refusal {
    Refusal { named_quota, ..Refusal::new([bucket(Cause::PerDayRequests, wait)]) }
}

fn stated(minutes: u64) -> Refusal {
    per_day(Wait::Stated(seconds(minutes * 60)), true)
}

fn day_end(fixture: &Fixture) -> DateTime<Utc> {
    // A look at the clock lets the day turn.
    let _ = fixture.lease();
    fixture.pool.status().buckets[0].day_ends_at
}

fn is_about(until: Option<DateTime<Utc>>, end: &str) -> bool {
    let late = until.unwrap() - at(end);
    (TimeDelta::zero()..=TimeDelta::seconds(5)).contains(&late)
}

#[tokio::test]
async fn a_wait_of_a_quarter_of_an_hour_that_names_no_quota_moves_nobodys_day() {
    let fixture = Fixture::new(1, "2026-11-29T23:00:00Z");
    let until = fixture.refuse(&per_day(Wait::Stated(seconds(900)), false)).await.until;
    assert!(is_about(until, "2026-11-29T23:15:00Z"), "it is waited for");
    fixture.clock.set(until.unwrap());
    assert_eq!(day_end(&fixture), at("2026-11-30T08:00:00Z"));
    assert!(is_about(fixture.refuse(&day_spent(None)).await.until, "2026-11-30T08:00:00Z"));
}

#[tokio::test]
async fn a_spent_day_ends_at_the_earlier_of_its_own_boundary_and_midnight_pacific() {
    for (hours, end) in [(9, "2026-11-30T08:00:00Z"), (14, "2026-11-30T02:00:00Z")] {
        let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
        fixture.refuse(&stated(hours * 60)).await;
        fixture.clock.set(at("2026-11-29T22:00:00Z").max(fixture.soonest()));
        fixture.advance(TimeDelta::minutes(30).to_std().unwrap());
        fixture.serve();
        if hours == 14 {
            fixture.clock.set(at("2026-11-30T20:00:00Z"));
        }
        let until = fixture.refuse(&day_spent(None)).await.until;
        let end = if hours == 14 { "2026-12-01T02:00:00Z" } else { end };
        assert!(is_about(until, end), "{hours}: {until:?}");
    }
}

#[tokio::test]
async fn a_refusal_right_after_its_own_boundary_gives_the_boundary_up() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let until = fixture.refuse(&stated(9 * 60)).await.until.unwrap();
    assert_eq!(day_end(&fixture), at("2026-11-29T21:00:00Z"));
    fixture.clock.set(until);
    let until = fixture.refuse(&day_spent(None)).await.until.unwrap();
    assert_eq!((until - fixture.now()).num_minutes(), 1, "asked again soon");
    assert_eq!(day_end(&fixture), at("2026-11-30T08:00:00Z"));
    // Also for a new process.
    let fixture = fixture.restart(|builder| builder.keys(keys(1)));
    assert_eq!(day_end(&fixture), at("2026-11-30T08:00:00Z"));
}

#[tokio::test]
async fn a_reply_that_states_another_moment_moves_the_boundary_or_takes_it_back() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let until = fixture.refuse(&stated(60)).await.until.unwrap();
    fixture.clock.set(until + TimeDelta::hours(1));
    fixture.refuse(&stated(3 * 60)).await;
    assert_eq!((day_end(&fixture) - fixture.now()).num_minutes(), 180);
    fixture.clock.set(fixture.soonest() + TimeDelta::hours(1));
    let until_midnight = at("2026-11-30T08:00:00Z") - fixture.now();
    fixture.refuse(&stated(until_midnight.num_minutes().unsigned_abs())).await;
    assert_eq!(day_end(&fixture), at("2026-11-30T08:00:00Z"));
    let fixture = fixture.restart(|builder| builder.keys(keys(1)));
    assert_eq!(day_end(&fixture), at("2026-11-30T08:00:00Z"));
    fixture.clock.set(at("2026-12-01T00:00:00Z"));
    assert_eq!(day_end(&fixture), at("2026-12-01T08:00:00Z"));
}

#[tokio::test]
async fn a_clock_set_back_a_year_leaves_no_boundary_of_the_future_behind() {
    let fixture = Fixture::new(1, "2027-11-29T20:00:00Z");
    fixture.refuse(&stated(3 * 60)).await;
    fixture.clock.set(at("2026-11-29T20:00:00Z"));
    let soonest = fixture.soonest();
    assert!(soonest <= at("2026-11-29T23:00:05Z"), "{soonest}");
    fixture.pool.flush().await.unwrap();
    assert_eq!(day_end(&fixture), at("2026-11-30T08:00:00Z"));
    fixture.clock.set(at("2026-11-29T23:30:00Z"));
    let until = fixture.refuse(&per_day(Wait::Reset(Window::Day), true)).await.until;
    assert!(is_about(until, "2026-11-30T08:00:00Z"), "{until:?}");
    let fixture = fixture.restart(|builder| builder.keys(keys(1)));
    assert_eq!(day_end(&fixture), at("2026-11-30T08:00:00Z"));
}

#[tokio::test]
async fn a_clock_two_days_ahead_that_is_corrected_strands_nobody() {
    let fixture = Fixture::with("2026-12-01T20:00:00Z", |builder| {
        let limits = keywheel_pool::Limits { rpd: Some(5), ..Default::default() };
        builder.keys(keys(1)).limits("*", limits)
    });
    fixture.refuse(&stated(11)).await;
    fixture.clock.set(at("2026-11-29T20:00:00Z"));
    let _ = fixture.lease();
    fixture.clock.set(at("2026-11-29T20:20:00Z"));
    while fixture.lease().is_ok() {
        fixture.serve();
    }
    assert!(fixture.soonest() <= at("2026-11-30T08:00:05Z"), "{}", fixture.soonest());
}
