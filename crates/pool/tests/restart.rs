//! Hazard: a restart forgets what was spent, and pays for it with refusals.
//! <https://github.com/NousResearch/hermes-agent/issues/53654>

mod common;

use common::*;
use keywheel_core::{Cause, Dimension, LimitSeen, Tier, Usage};
use keywheel_pool::{
    Ask, LimitKind, MemoryState, PoolBuilder, Refusal, Selector, Source, reset::daily,
};

#[tokio::test]
async fn restart_keeps_a_spent_day() {
    // 14:00 in California, spent; 22:00, restarted.
    let fixture = Fixture::new(1, "2026-11-29T22:00:00Z");
    let reported = fixture.refuse(&day_spent(Some(500))).await;
    assert!(reported.persisted);
    let until = reported.until.unwrap();
    assert!(until >= at("2026-11-30T08:00:01Z") && until <= at("2026-11-30T08:00:05Z"));

    fixture.clock.set(at("2026-11-30T06:00:00Z"));
    let fixture = fixture.restart(|builder| builder.keys(keys(1)));
    let exhausted = fixture.lease().unwrap_err();
    assert_eq!(exhausted.soonest, Some(until));
    assert_eq!(exhausted.reasons[0].cause, Some(Cause::PerDayRequests));
    assert_eq!(exhausted.reasons[0].source, Source::Derived);
    // Nor does a caller who would wait get an exploratory request: today's question was answered.
    let ask = Ask::new(MODEL).by(at("2026-11-30T07:00:00Z"));
    assert_eq!(fixture.pool.lease(ask).await.unwrap_err().soonest, Some(until));

    fixture.clock.set(until);
    fixture.serve();
}

#[tokio::test]
async fn restart_keeps_counts_limits_and_the_minute() {
    let fixture = Fixture::new(1, "2026-11-29T22:00:00Z");
    fixture.refuse(&minute_spent(5, Some(3))).await;
    fixture.advance(seconds(6));
    for _ in 0..3 {
        fixture.serve();
    }
    let soonest = fixture.soonest();
    let fixture = fixture.restart(|builder| builder.keys(keys(1)));
    assert_eq!(fixture.soonest(), soonest, "the minute of the last process counts");
    let bucket = &fixture.pool.status().buckets[0];
    assert_eq!((bucket.day.requests, bucket.limits[0].value), (3, 3));
}

#[tokio::test]
async fn restart_keeps_a_quarantine() {
    let fixture = Fixture::new(2, "2026-11-29T22:00:00Z");
    fixture.refuse(&dead()).await;
    let fixture = fixture.restart(|builder| builder.keys(keys(2)));
    for _ in 0..4 {
        assert_eq!(fixture.serve(), "KEY_2");
    }
}

#[tokio::test]
async fn restart_goes_on_with_the_ladder() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    for wait in [60, 300] {
        let reported = fixture.refuse(&bare()).await;
        assert_eq!(reported.until, Some(fixture.now() + seconds(wait)));
        if wait == 60 {
            fixture.advance(seconds(60));
        }
    }
    let fixture = fixture.restart(|builder| builder.keys(keys(1)));
    fixture.advance(seconds(300));
    let reported = fixture.refuse(&bare()).await;
    assert_eq!(reported.until, Some(fixture.now() + seconds(30 * 60)));
}

#[tokio::test]
async fn another_pool_on_the_same_state_sees_a_cooldown() {
    let one = Fixture::new(1, "2026-11-29T22:00:00Z");
    let two = open(&one.clock, &one.state, |builder| builder.keys(keys(1)));
    one.refuse(&day_spent(None)).await;
    // State in memory is looked at with the next write of one's own.
    let mut lease = two.try_lease(&Ask::new("another-model")).unwrap();
    lease.sent();
    lease.served(&Usage::default());
    assert!(two.try_lease(&Ask::new(MODEL)).is_err());
}

#[tokio::test]
async fn a_paid_marking_that_a_reply_disproved_stays_disproved_for_a_day() {
    let paid = || [key(1).paid()];
    let tiers = |fixture: &Fixture| fixture.pool.status().keys[0].tier;
    let fixture = Fixture::with("2026-11-29T22:00:00Z", |builder| builder.keys(paid()));
    let mut seen = LimitSeen::new(Dimension::Rpm, 5);
    seen.tier = Some(Tier::Free);
    let refusal = Refusal { limits: vec![seen], ..minute_spent(30, None) };
    let mut lease = fixture.pool.try_lease(&Ask::new(MODEL).allowing_paid()).unwrap();
    lease.sent();
    let _ = lease.refused(&refusal).await;
    assert_eq!(tiers(&fixture), Tier::Free);
    fixture.pool.reload(paid());
    assert_eq!(tiers(&fixture), Tier::Free, "a reload brings no new knowledge");
    let fixture = fixture.restart(|builder| builder.keys(paid()));
    assert_eq!(tiers(&fixture), Tier::Free, "nor does a restart");
    // The owner may have begun to pay since: then a free key would cost money unasked.
    fixture.advance(seconds(24 * 3_600));
    let fixture = fixture.restart(|builder| builder.keys(paid()));
    assert_eq!(tiers(&fixture), Tier::Paid);
}

#[tokio::test]
async fn a_generation_at_the_end_of_numbers_in_the_file_can_still_be_cleared() {
    let fixture = Fixture::new(1, "2026-11-29T22:00:00Z");
    fixture.refuse(&day_spent(None)).await;
    let json = fixture.state.json();
    assert!(json.contains("\"generation\": 0"));
    let json = json.replace("\"generation\": 0", &format!("\"generation\": {}", u64::MAX));
    let state = MemoryState::from_json(json.as_bytes()).unwrap();
    let pool = open(&fixture.clock, &state, |builder| builder.keys(keys(1)));
    assert_eq!(pool.clear(Selector::All).await, 1);
    assert!(pool.try_lease(&Ask::new(MODEL)).is_ok());
}

#[tokio::test]
async fn counts_of_a_day_that_ends_elsewhere_outlive_a_write_of_a_pool_whose_day_is_pacific() {
    // Already Monday by UTC, still Sunday in California.
    let fixture = Fixture::with("2026-11-30T03:00:00Z", utc_days);
    for _ in 0..3 {
        fixture.serve();
    }
    fixture.pool.flush().await.unwrap();
    let other = open(&fixture.clock, &fixture.state, |builder| builder.keys([key(2)]));
    other.try_lease(&Ask::new(MODEL)).unwrap().sent();
    other.flush().await.unwrap();
    drop(other);
    let fixture = fixture.restart(utc_days);
    let bucket = &fixture.pool.status().buckets[0];
    assert_eq!((bucket.day.requests, bucket.day_ends_at), (3, at("2026-12-01T00:00:00Z")));
}

fn utc_days(builder: PoolBuilder) -> PoolBuilder {
    let midnight = daily(chrono_tz::UTC, chrono::NaiveTime::MIN);
    builder.keys(keys(1)).reset_strategy(LimitKind::RequestsPerDay, midnight)
}
