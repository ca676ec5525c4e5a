//! Hazards: no keys, one key, none alive. Three answers that must not look alike.
//! <https://github.com/NousResearch/hermes-agent/issues/40960>

mod common;

use common::*;
use keywheel_core::{Cause, Effect, Scope, Usage, Wait};
use keywheel_pool::{Ask, CheckResult, ExhaustedKind, Refusal, Selector};

#[tokio::test]
async fn no_keys_is_said_at_once() {
    let fixture = Fixture::new(0, "2026-11-29T12:00:00Z");
    for exhausted in [
        fixture.lease().unwrap_err(),
        fixture.pool.lease(Ask::new(MODEL)).await.unwrap_err(),
        fixture.pool.available(&Ask::new(MODEL)).await.unwrap_err(),
    ] {
        assert_eq!(exhausted.kind, ExhaustedKind::NoKeys);
        assert_eq!((exhausted.soonest, exhausted.reasons.len()), (None, 0));
    }
    assert_eq!(fixture.pool.next_available(MODEL), None);
    assert_eq!(fixture.pool.clear(Selector::All).await, 0);
}

#[tokio::test]
async fn a_model_without_a_free_quota_is_no_matter_of_waiting() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let none = Effect::new(Scope::Bucket, Cause::FreeTierNotAvailable, Wait::None);
    fixture.refuse(&Refusal::new([none])).await;
    let exhausted = fixture.lease().unwrap_err();
    assert_eq!(exhausted.soonest, None);
    assert!(exhausted.to_string().contains("waiting will not help"), "{exhausted}");
}

#[tokio::test]
async fn one_key_waits_and_comes_back() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    fixture.refuse(&minute_spent(30, None)).await;
    let exhausted = fixture.lease().unwrap_err();
    assert_eq!(exhausted.kind, ExhaustedKind::Cooling);
    assert_eq!(exhausted.reasons[0].labels, ["KEY_1"]);
    assert_eq!(exhausted.soonest, fixture.pool.next_available(MODEL));
    let pool = fixture.pool.clone();
    let waiting = tokio::spawn(async move { pool.lease(Ask::new(MODEL)).await });
    tokio::task::yield_now().await;
    fixture.clock.set(exhausted.soonest.unwrap());
    let mut lease = waiting.await.unwrap().unwrap();
    lease.sent();
    lease.served(&Usage::default());
}

#[tokio::test]
async fn all_keys_dead_is_said_at_once_and_a_clear_brings_them_back() {
    let fixture = Fixture::new(3, "2026-11-29T12:00:00Z");
    for _ in 0..3 {
        assert_eq!(fixture.refuse(&dead()).await.until, None);
    }
    for exhausted in [
        fixture.lease().unwrap_err(),
        fixture.pool.lease(Ask::new(MODEL)).await.unwrap_err(),
        fixture.pool.try_lease(&Ask::new("another-model")).unwrap_err(),
    ] {
        assert_eq!(exhausted.kind, ExhaustedKind::AllDead);
        assert_eq!(exhausted.reasons.len(), 3);
        assert_eq!(exhausted.reasons[0].cause, Some(Cause::InvalidKey));
        assert_eq!(exhausted.reasons[0].available_at, None);
    }
    assert_eq!(fixture.pool.clear(Selector::All).await, 3);
    fixture.serve();
}

#[tokio::test]
async fn a_dead_key_is_dead_for_every_model_and_no_other_key() {
    let fixture = Fixture::new(2, "2026-11-29T12:00:00Z");
    fixture.pool.try_lease(&Ask::new("another-model")).unwrap().failed(&[]);
    fixture.refuse(&dead()).await;
    for model in [MODEL, "another-model", "a-third"] {
        for _ in 0..4 {
            assert_eq!(fixture.pool.try_lease(&Ask::new(model)).unwrap().label(), "KEY_2");
        }
    }
}

#[tokio::test]
async fn a_denied_quota_project_takes_all_its_keys_with_it() {
    // https://github.com/poenl/gemini-api/issues/8
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        builder.keys([key(1).with_project("p"), key(2).with_project("p"), key(3)])
    });
    let effect = Effect::new(Scope::QuotaProject, Cause::LeakedOrSuspendedKey, Wait::None);
    fixture.refuse(&Refusal::new([effect])).await;
    for _ in 0..4 {
        assert_eq!(fixture.serve(), "KEY_3");
    }
    // By hand only: no check is due, ever.
    fixture.advance(seconds(40 * 86_400));
    assert!(fixture.pool.due_checks().await.is_empty());
    assert_eq!(fixture.pool.clear(Selector::QuotaProject("p".into())).await, 1);
    let served: std::collections::BTreeSet<_> = (0..6).map(|_| fixture.serve()).collect();
    assert_eq!(served.len(), 3);
}

#[tokio::test]
async fn a_quarantined_key_is_checked_once_a_day_and_comes_back_alive() {
    // https://github.com/QuantumNous/new-api/issues/3537
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    fixture.refuse(&dead()).await;
    assert!(fixture.pool.due_checks().await.is_empty(), "it was refused a moment ago");
    fixture.advance(seconds(86_400));
    let due = fixture.pool.due_checks().await;
    assert_eq!(due[0].label, "KEY_1");
    assert!(fixture.pool.due_checks().await.is_empty(), "claimed once");
    let other = open(&fixture.clock, &fixture.state, |builder| builder.keys(keys(1)));
    assert!(other.due_checks().await.is_empty(), "by all pools together");

    fixture.pool.check_result(due[0].fingerprint, CheckResult::Unknown);
    fixture.advance(seconds(3_600));
    assert_eq!(
        fixture.pool.due_checks().await.len(),
        1,
        "a check that failed is due again in an hour"
    );
    let dead = CheckResult::StillDead(Cause::ExpiredKey);
    fixture.pool.check_result(due[0].fingerprint, dead);
    assert!(fixture.lease().is_err());
    fixture.advance(seconds(86_400));
    assert_eq!(fixture.pool.due_checks().await.len(), 1);
    fixture.pool.check_result(due[0].fingerprint, CheckResult::Alive);
    fixture.serve();
    let fixture = fixture.restart(|builder| builder.keys(keys(1)));
    fixture.serve();
}
