//! Which key serves: turns, the fullest day, fail-over, paid keys, owners; and what stays over a reload.

mod common;

use common::*;
use keywheel_core::{Cause, Dimension, Effect, Scope, Tier, Usage, Wait};
use keywheel_pool::{Ask, ExhaustedKind, KeySpec, Limits, PoolError, Refusal, Selection, Selector};

#[tokio::test]
async fn round_robin_goes_through_quota_projects_and_then_through_their_keys() {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        builder.keys([key(1).with_project("a"), key(2), key(3).with_project("a"), key(4)])
    });
    let order: Vec<_> = (0..6).map(|_| fixture.serve()).collect();
    assert_eq!(order, ["KEY_1", "KEY_2", "KEY_4", "KEY_3", "KEY_2", "KEY_4"]);
}

#[tokio::test]
async fn a_key_that_dies_does_not_send_the_ring_back_to_its_start() {
    let fixture = Fixture::new(4, "2026-11-29T12:00:00Z");
    assert_eq!(fixture.serve(), "KEY_1");
    fixture.refuse(&dead()).await;
    let order: Vec<_> = (0..4).map(|_| fixture.serve()).collect();
    assert_eq!(order, ["KEY_3", "KEY_4", "KEY_1", "KEY_3"]);
}

#[tokio::test]
async fn most_remaining_takes_the_fullest_day() {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        let limits = Limits { rpd: Some(100), ..Limits::default() };
        builder.keys(keys(3)).limits("*", limits).selection(Selection::MostRemaining)
    });
    for label in ["KEY_1", "KEY_3"] {
        let out = fixture.pool.status().keys.iter().find(|key| key.label == label).unwrap().clone();
        for _ in 0..10 {
            let ask = Ask::new(MODEL).with_affinity(out.quota_project.as_str());
            let mut lease = fixture.pool.try_lease(&ask).unwrap();
            lease.sent();
            lease.served(&Usage::default());
        }
    }
    for _ in 0..10 {
        assert_eq!(fixture.serve(), "KEY_2");
    }
}

#[tokio::test]
async fn failover_uses_one_quota_project_until_it_is_quarantined() {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        builder.keys(keys(3)).selection(Selection::Failover)
    });
    for _ in 0..5 {
        assert_eq!(fixture.serve(), "KEY_1");
    }
    fixture.refuse(&day_spent(None)).await;
    let exhausted = fixture.lease().unwrap_err();
    assert_eq!(exhausted.kind, ExhaustedKind::Cooling, "quotas are not added up");
    fixture.clock.set(exhausted.soonest.unwrap());
    fixture.refuse(&dead()).await;
    for _ in 0..5 {
        assert_eq!(fixture.serve(), "KEY_2");
    }
    assert_eq!(fixture.pool.clear(Selector::Label("KEY_1".into())).await, 1);
    assert_eq!(fixture.serve(), "KEY_1");
}

#[tokio::test]
async fn paid_keys_serve_only_those_who_allow_it_and_only_when_no_free_key_can() {
    let fixture =
        Fixture::with("2026-11-29T12:00:00Z", |builder| builder.keys([key(1), key(2).paid()]));
    let paid = Ask::new(MODEL).allowing_paid();
    assert_eq!(fixture.pool.try_lease(&paid).unwrap().label(), "KEY_1");
    fixture.refuse(&day_spent(None)).await;
    assert!(fixture.lease().is_err());
    let lease = fixture.pool.try_lease(&paid).unwrap();
    assert_eq!((lease.label(), lease.tier()), ("KEY_2", Tier::Paid));
    // Whoever waits for a free key does not hold up who may pay.
    let pool = fixture.pool.clone();
    let waiting = tokio::spawn(async move { pool.lease(Ask::new(MODEL)).await });
    tokio::task::yield_now().await;
    assert!(fixture.pool.lease(paid).await.is_ok());
    waiting.abort();
}

#[tokio::test]
async fn a_paid_key_with_a_free_tiers_quota_becomes_free_and_says_so() {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| builder.keys([key(1).paid()]));
    assert_eq!(fixture.lease().unwrap_err().kind, ExhaustedKind::NoKeys);
    let mut lease = fixture.pool.try_lease(&Ask::new(MODEL).allowing_paid()).unwrap();
    lease.sent();
    let mut refusal = minute_spent(5, Some(15));
    refusal.limits[0].tier = Some(Tier::Free);
    let _ = lease.refused(&refusal).await;
    fixture.advance(seconds(5));
    fixture.serve();
    let status = fixture.pool.status();
    assert_eq!(status.keys[0].tier, Tier::Free);
    assert!(status.notes[0].contains("KEY_1"));
}

#[tokio::test]
async fn an_owner_serves_its_own_and_excluded_keys_serve_nobody() {
    let fixture = Fixture::new(3, "2026-11-29T12:00:00Z");
    let keys = fixture.pool.status().keys;
    for key in &keys {
        let ask = Ask::new(MODEL).with_affinity(key.quota_project.as_str());
        assert_eq!(fixture.pool.try_lease(&ask).unwrap().label(), key.label);
        let ask = ask.excluding([key.fingerprint]);
        assert!(fixture.pool.try_lease(&ask).is_err());
    }
    let all = keys.iter().map(|key| key.fingerprint);
    let ask = Ask::new(MODEL).excluding(all.clone().take(2));
    assert_eq!(fixture.pool.try_lease(&ask).unwrap().label(), "KEY_3");
    let ask = Ask::new(MODEL).excluding(all);
    assert!(fixture.pool.lease(ask).await.is_err(), "told at once, not after waiting for ever");
    let unknown = Ask::new(MODEL).with_affinity("nobody");
    assert_eq!(fixture.pool.lease(unknown).await.unwrap_err().kind, ExhaustedKind::NoKeys);
}

#[tokio::test]
async fn a_reload_keeps_the_state_of_keys_that_stay_and_of_those_that_come_back() {
    let fixture = Fixture::new(2, "2026-11-29T12:00:00Z");
    fixture.refuse(&day_spent(Some(5))).await;
    let mut out = fixture.lease().unwrap();
    out.sent();
    let report = fixture.pool.reload([key(2), key(3), key(3)]);
    assert_eq!(
        (report.added, report.removed, report.kept),
        (vec!["KEY_3".into()], vec!["KEY_1".into()], 1)
    );
    assert!(report.notes[0].contains("KEY_3"));
    out.served(&Usage::default());
    let served: Vec<_> = (0..4).map(|_| fixture.serve()).collect();
    assert!(!served.contains(&"KEY_1".to_owned()));
    let day = |label: &str| {
        let buckets = fixture.pool.status().buckets;
        buckets.iter().find(|bucket| bucket.labels == [label]).unwrap().day.requests
    };
    assert_eq!((day("KEY_2"), day("KEY_3")), (3, 2));

    let _ = fixture.pool.reload([key(1)]);
    let until = fixture.soonest();
    assert!(until >= at("2026-11-30T08:00:00Z"), "it is still spent");
    let _ = fixture.pool.reload([]);
    assert_eq!(fixture.lease().unwrap_err().kind, ExhaustedKind::NoKeys);
}

#[tokio::test]
async fn a_reload_serves_those_who_wait() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    fixture.refuse(&day_spent(None)).await;
    let pool = fixture.pool.clone();
    let waiting = tokio::spawn(async move { pool.lease(Ask::new(MODEL)).await });
    tokio::task::yield_now().await;
    let _ = fixture.pool.reload([key(1), key(2)]);
    assert_eq!(waiting.await.unwrap().unwrap().label(), "KEY_2");
}

#[tokio::test]
async fn keys_that_share_a_quota_are_named_and_never_merged() {
    // https://github.com/Chiqo-ke/AlgoAgent, API_KEY_ROOT_CAUSE_ANALYSIS.md
    let fixture = Fixture::new(2, "2026-11-29T12:00:00Z");
    for _ in 0..3 {
        assert!(fixture.pool.status().same_project.is_empty());
        // Five each, and the project's limit is ten.
        for _ in 0..10 {
            fixture.serve();
        }
        for _ in 0..2 {
            fixture.refuse(&minute_spent(60, Some(10))).await;
        }
        fixture.advance(seconds(61));
    }
    let hints = fixture.pool.status().same_project;
    assert_eq!(hints.len(), 1);
    assert_eq!((hints[0].labels.len(), hints[0].proven), (2, false));
    assert_eq!(fixture.pool.status().buckets.len(), 2);
}

#[tokio::test]
async fn a_named_project_number_is_proof() {
    let fixture = Fixture::new(2, "2026-11-29T12:00:00Z");
    for _ in 0..2 {
        let effect = Effect::new(Scope::Key, Cause::PermissionOrServiceDisabled, Wait::None);
        let refusal =
            Refusal { project_number: Some("projects/123".into()), ..Refusal::new([effect]) };
        fixture.refuse(&refusal).await;
    }
    let hints = fixture.pool.status().same_project;
    assert!(hints[0].proven && hints[0].evidence.contains("projects/123"));
}

#[tokio::test]
async fn a_withdrawn_cooldown_is_as_if_it_had_never_been() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    fixture
        .refuse(&Refusal::new([
            bucket(Cause::UnspecifiedQuota, Wait::Ladder),
            bucket(Cause::PerMinuteRequests, Wait::Stated(seconds(10))),
        ]))
        .await;
    let project = fixture.pool.status().keys[0].quota_project.clone();
    assert!(fixture.pool.withdraw(&project, MODEL, Cause::UnspecifiedQuota).await);
    assert!(!fixture.pool.withdraw(&project, MODEL, Cause::UnspecifiedQuota).await);
    assert_eq!(fixture.soonest(), fixture.now() + seconds(10), "the other cause stands");
    let fixture = fixture.restart(|builder| builder.keys(keys(1)));
    assert_eq!(fixture.soonest(), fixture.now() + seconds(10));
}

#[test]
fn nothing_that_a_pool_tells_holds_a_key() {
    let fixture = Fixture::new(2, "2026-11-29T12:00:00Z");
    let mut lease = fixture.lease().unwrap();
    lease.sent();
    let told = format!("{:?} {:?}", lease, fixture.pool);
    drop(lease.refused(&dead()));
    let status = fixture.pool.status();
    let told = told
        + &format!("{status:?} {:?}", fixture.pool.try_lease(&Ask::new(MODEL)))
        + &serde_json::to_string(&status).unwrap()
        + &fixture.state.json();
    assert!(told.contains("KEY_1") && !told.contains("AQ."), "labels yes, keys no");
}

#[test]
fn a_pool_is_not_built_from_contradictions() {
    let builder = || keywheel_pool::Pool::builder().state(keywheel_pool::StateLocation::None);
    let zero = builder().limits("*", Limits { rpd: Some(0), ..Limits::default() }).build();
    assert!(matches!(zero, Err(PoolError::ZeroLimit { dimension: Dimension::Rpd, .. })));
    let twice: [KeySpec; 2] = [key(1), key(1).paid()];
    assert!(matches!(builder().keys(twice).build(), Err(PoolError::Contradiction { .. })));
    assert!(builder().keys([key(1), key(1)]).build().is_ok());
}
