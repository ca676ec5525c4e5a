//! Hazard: a server's number is believed as it comes.
//! <https://github.com/router-for-me/CLIProxyAPI/issues/5639>

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod common;

use std::time::Duration;

use common::*;
use keywheel_core::{Cause, Effect, Scope, Wait, Window};
use keywheel_pool::{LimitKind, Refusal, reset};

const CAUSES: [Cause; 6] = [
    Cause::PerMinuteRequests,
    Cause::PerMinuteTokens,
    Cause::PerDayRequests,
    Cause::PerDayTokens,
    Cause::UnspecifiedQuota,
    Cause::ToolQuota,
];

async fn stated(cause: Cause, wait: Duration) -> i64 {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let refusal = Refusal::new([bucket(cause, Wait::Stated(wait))]);
    let mut lease = fixture.pool.try_lease(&keywheel_pool::Ask::new(MODEL).with_tools()).unwrap();
    lease.sent();
    let until = lease.refused(&refusal).await.until.unwrap();
    (until - fixture.now()).num_milliseconds()
}

#[tokio::test]
async fn a_delay_of_zero_still_waits() {
    for cause in CAUSES {
        let wait = stated(cause, Duration::ZERO).await;
        assert!((1_000..=1_000).contains(&wait), "{cause}: {wait}");
    }
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let reported =
        fixture.pool.mark_rate_limited("KEY_1", MODEL, Some(Duration::ZERO)).await.unwrap();
    assert_eq!(reported.until, Some(fixture.now() + seconds(1)));
}

#[tokio::test]
async fn a_delay_of_10_to_the_18_seconds_is_cut_to_what_is_legal() {
    for cause in CAUSES {
        for wait in [Duration::from_secs(1_000_000_000_000_000_000), Duration::MAX] {
            let wait = stated(cause, wait).await;
            let longest = if cause.is_per_minute() { 600_000 } else { 25 * 3_600_000 };
            assert!((0..=longest).contains(&wait), "{cause}: {wait}");
        }
    }
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let billing = Effect::new(Scope::QuotaProject, Cause::Billing, Wait::Stated(Duration::MAX));
    let until = fixture.refuse(&Refusal::new([billing])).await.until.unwrap();
    assert!(until <= fixture.now() + chrono::TimeDelta::days(31));
    let host = Effect::new(Scope::Host, Cause::IpBlock, Wait::Stated(Duration::MAX));
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let until = fixture.refuse(&Refusal::new([host])).await.until.unwrap();
    assert_eq!(until, fixture.now() + seconds(30 * 60));
}

#[tokio::test]
async fn no_wait_leads_into_the_past_not_even_at_the_end_of_time() {
    for wait in [Wait::Stated(Duration::ZERO), Wait::Reset(Window::Day), Wait::Ladder] {
        for start in ["2026-11-29T12:00:00Z", "1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59Z"] {
            let fixture = Fixture::new(1, start);
            let refusal = Refusal::new([bucket(Cause::PerDayRequests, wait)]);
            let until = fixture.refuse(&refusal).await.until;
            assert!(until.unwrap() > fixture.now(), "{wait:?} at {start}");
        }
    }
}

#[tokio::test]
async fn a_stated_wait_of_hours_is_that_buckets_own_day_boundary() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let nine_hours = bucket(Cause::PerDayRequests, Wait::Stated(seconds(9 * 3_600)));
    let refusal = Refusal { effects: vec![nine_hours], ..day_spent(Some(2)) };
    let until = fixture.refuse(&refusal).await.until.unwrap();
    let turns = at("2026-11-29T21:00:00Z");
    assert!(until > turns && until <= turns + seconds(5));
    assert!(fixture.state.json().contains(r#""date": "2026-11-29""#));
    fixture.clock.set(until);
    fixture.serve();
    fixture.serve();
    // Not at midnight Pacific (08:00) but a day after the stated moment, also for a new process.
    let fixture = fixture.restart(|builder| builder.keys(keys(1)));
    fixture.clock.set(at("2026-11-30T09:00:00Z"));
    let soonest = fixture.soonest();
    assert!(soonest >= at("2026-11-30T21:00:00Z") && soonest <= at("2026-11-30T21:00:05Z"));
    fixture.clock.set(soonest);
    fixture.serve();
}

#[tokio::test]
async fn counts_before_a_stated_boundary_survive_a_restart() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    for _ in 0..5 {
        fixture.serve();
    }
    let nine_hours = bucket(Cause::PerDayRequests, Wait::Stated(seconds(9 * 3_600)));
    fixture.refuse(&Refusal { effects: vec![nine_hours], ..day_spent(None) }).await;
    let fixture = fixture.restart(|builder| builder.keys(keys(1)));
    let bucket = &fixture.pool.status().buckets[0];
    assert_eq!((bucket.day.requests, bucket.explored), (5, true));
    assert_eq!(bucket.day_ends_at, at("2026-11-29T21:00:00Z"));
}

#[tokio::test]
async fn a_day_that_was_stated_today_is_not_asked_about_again_today() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let nine_hours = bucket(Cause::PerDayRequests, Wait::Stated(seconds(9 * 3_600)));
    fixture.refuse(&Refusal { effects: vec![nine_hours], ..day_spent(None) }).await;
    fixture.advance(seconds(3 * 3_600));
    let ask = keywheel_pool::Ask::new(MODEL).by(fixture.now() + seconds(1));
    assert!(fixture.pool.lease(ask).await.is_err());
}

#[tokio::test]
async fn a_short_hint_with_a_spent_day_does_not_shorten_the_day() {
    // https://github.com/zzstoatzz/plyr.fm/pull/2046: classifiers say Reset(day) then; both effects come here.
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let minute = bucket(Cause::PerMinuteRequests, Wait::Stated(seconds(5)));
    let day = bucket(Cause::PerDayRequests, Wait::Reset(Window::Day));
    let refusal = Refusal { named_quota: true, ..Refusal::new([minute, day]) };
    let until = fixture.refuse(&refusal).await.until.unwrap();
    assert!(until >= at("2026-11-30T08:00:00Z"));
}

#[tokio::test]
async fn a_users_strategy_replaces_the_default_without_a_change_to_the_pool() {
    let fixture = Fixture::with("2026-11-29T12:10:00Z", |builder| {
        builder
            .keys(keys(2))
            .reset_strategy(LimitKind::RequestsPerDay, reset::hourly())
            .reset_strategy(LimitKind::Unspecified, reset::fixed(seconds(7)))
    });
    let until = fixture.refuse(&day_spent(None)).await.until.unwrap();
    assert!(until > at("2026-11-29T13:00:00Z") && until <= at("2026-11-29T13:00:05Z"));
    let until = fixture.refuse(&bare()).await.until.unwrap();
    assert_eq!(until, fixture.now() + seconds(7));
    fixture.clock.set(at("2026-11-29T13:00:06Z"));
    let served: std::collections::BTreeSet<_> = (0..4).map(|_| fixture.serve()).collect();
    assert_eq!(served.len(), 2);
}

#[tokio::test]
async fn a_shorter_wait_never_cuts_a_longer_one_that_holds() {
    let fixture = Fixture::new(1, "2026-11-29T20:00:00Z");
    let mark = |wait| fixture.pool.mark_rate_limited("KEY_1", MODEL, wait);
    let long = mark(Some(seconds(18 * 3_600))).await.unwrap().until;
    assert_eq!(long, Some(at("2026-11-30T14:00:00Z")));
    for wait in [Some(seconds(5)), None] {
        fixture.advance(seconds(1));
        assert_eq!(mark(wait).await.unwrap().until, long, "{wait:?}");
    }
    // An answer that was on its way, for the quota project.
    let money = |wait| {
        let effect = Effect::new(Scope::QuotaProject, Cause::Billing, Wait::Stated(seconds(wait)));
        Refusal::new([effect])
    };
    let fixture = Fixture::new(1, "2026-11-29T20:00:00Z");
    let mut first = fixture.lease().unwrap();
    first.sent();
    let mut second = fixture.lease().unwrap();
    fixture.advance(seconds(2));
    second.sent();
    let until = first.refused(&money(3_600)).await.until;
    fixture.advance(seconds(2));
    assert_eq!(second.refused(&money(5)).await.until, until);
}

#[tokio::test]
async fn the_ladder_ends_with_the_quota_day() {
    let fixture = Fixture::new(1, "2026-11-30T07:00:00Z");
    let mut until = fixture.now();
    for _ in 0..4 {
        fixture.clock.set(until);
        until = fixture.refuse(&bare()).await.until.unwrap();
    }
    assert!(until >= at("2026-11-30T08:00:00Z"), "the fourth step is two hours");
    assert!(until <= at("2026-11-30T08:00:05Z"), "{until}");
}

#[tokio::test]
async fn a_spent_budget_is_looked_at_hourly_and_at_the_first_of_the_month_at_the_latest() {
    let effect = Effect::new(Scope::QuotaProject, Cause::Billing, Wait::Reset(Window::Hour));
    for (now, again) in [
        ("2026-11-29T12:00:00Z", "2026-11-29T13:00:00Z"),
        ("2026-12-01T07:40:00Z", "2026-12-01T08:00:00Z"),
        ("2027-01-01T07:40:00Z", "2027-01-01T08:00:00Z"),
        ("2026-12-01T08:40:00Z", "2026-12-01T09:40:00Z"),
    ] {
        let fixture = Fixture::new(1, now);
        let until = fixture.refuse(&Refusal::new([effect])).await.until.unwrap();
        assert!(until >= at(again) && until <= at(again) + seconds(5), "{now}: {until}");
    }
}

#[tokio::test]
async fn a_label_that_no_key_has_is_said_and_marks_nothing() {
    let fixture = Fixture::new(10, "2026-11-29T12:00:00Z");
    let pool = &fixture.pool;
    let unknown = pool.mark_rate_limited("AQ.EXAMPLE-key-1", MODEL, None).await.unwrap_err();
    let said = unknown.to_string();
    assert!(said.ends_with("KEY_7, KEY_8 and 2 more") && !said.contains("AQ."), "{said}");
    assert!(pool.status().buckets.iter().all(|bucket| bucket.ready));
    // A reload may have taken the key away meanwhile.
    pool.reload([]);
    let unknown = pool.mark_rate_limited("KEY_1", MODEL, None).await.unwrap_err();
    assert!(unknown.to_string().ends_with("there is none"), "{unknown}");
}
