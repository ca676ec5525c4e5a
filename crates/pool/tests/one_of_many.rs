//! Hazard: one refusal benches more than the bucket it is about.
//! <https://github.com/NousResearch/hermes-agent/issues/108656>, <https://github.com/openclaw/openclaw/issues/3231>

mod common;

use std::collections::BTreeSet;

use common::*;
use keywheel_core::{Cause, Dimension, Effect, LimitSeen, Scope, Wait, Window};
use keywheel_pool::{Ask, ExhaustedKind, Refusal, Source};

#[tokio::test]
async fn one_429_leaves_31_of_32_keys_serving() {
    for refusal in [day_spent(Some(500)), minute_spent(30, Some(15)), bare()] {
        let fixture = Fixture::new(32, "2026-11-29T22:00:00Z");
        let out = fixture.lease().unwrap().label().to_owned();
        let mut lease = loop {
            let lease = fixture.lease().unwrap();
            if lease.label() == out {
                break lease;
            }
        };
        lease.sent();
        let _ = lease.refused(&refusal).await;
        let served: BTreeSet<_> = (0..62).map(|_| fixture.serve()).collect();
        assert_eq!(served.len(), 31);
        assert!(!served.contains(&out));
    }
}

#[tokio::test]
async fn a_refused_model_leaves_the_keys_other_models_alone() {
    let fixture = Fixture::new(1, "2026-11-29T22:00:00Z");
    fixture.refuse(&day_spent(Some(20))).await;
    assert!(fixture.lease().is_err());
    assert!(fixture.pool.try_lease(&Ask::new("gemini-3.6-flash")).is_ok());
}

/// Limits are the project's, not the key's: <https://github.com/tashfeenahmed/freellmapi/issues/242>.
#[tokio::test]
async fn keys_of_one_quota_project_cool_together() {
    // https://github.com/openclaw/openclaw/issues/28847
    let fixture = Fixture::with("2026-11-29T22:00:00Z", |builder| {
        builder.keys([key(1).with_project("shared"), key(2).with_project("shared"), key(3)])
    });
    fixture.refuse(&day_spent(None)).await;
    for _ in 0..4 {
        assert_eq!(fixture.serve(), "KEY_3");
    }
}

#[tokio::test]
async fn a_tools_quota_leaves_plain_requests_alone() {
    // https://github.com/doggy8088/ask-page-extension/issues/21
    let fixture = Fixture::new(1, "2026-11-29T22:00:00Z");
    let with_tools = Ask::new(MODEL).with_tools();
    let mut lease = fixture.pool.try_lease(&with_tools).unwrap();
    lease.sent();
    let effect = Effect::new(Scope::Tool, Cause::ToolQuota, Wait::Reset(Window::Hour));
    let reported = lease.refused(&Refusal::new([effect])).await;
    fixture.serve();
    let exhausted = fixture.pool.try_lease(&with_tools).unwrap_err();
    assert_eq!(exhausted.soonest, reported.until);
    assert_eq!(exhausted.reasons[0].cause, Some(Cause::ToolQuota));
    let wait = reported.until.unwrap() - fixture.now();
    assert!((3_601..=3_605).contains(&wait.num_seconds()));
}

#[tokio::test]
async fn a_tools_limit_teaches_nothing_about_the_model() {
    let fixture = Fixture::new(1, "2026-11-29T22:00:00Z");
    let effect = Effect::new(Scope::Tool, Cause::ToolQuota, Wait::Reset(Window::Hour));
    let refusal =
        Refusal { limits: vec![LimitSeen::new(Dimension::Rpd, 1)], ..Refusal::new([effect]) };
    fixture.refuse(&refusal).await;
    for _ in 0..3 {
        fixture.serve();
    }
    assert!(fixture.pool.status().buckets[0].limits.is_empty());
}

#[tokio::test]
async fn an_overloaded_model_marks_no_key() {
    // https://github.com/tbphp/gpt-load/issues/278
    let fixture = Fixture::new(2, "2026-11-29T22:00:00Z");
    for _ in 0..50 {
        let mut lease = fixture.lease().unwrap();
        lease.sent();
        lease.failed(&[Effect::new(Scope::Model, Cause::Overloaded, Wait::Ladder)]);
    }
    let mut lease = fixture.lease().unwrap();
    lease.sent();
    let effect = Effect::new(Scope::Model, Cause::ModelNotFound, Wait::None);
    let _ = lease.refused(&Refusal::new([effect])).await;
    let served: BTreeSet<_> = (0..4).map(|_| fixture.serve()).collect();
    assert_eq!(served.len(), 2);
    // Failed requests count: Google counts them, too.
    let counted: u64 = fixture.pool.status().buckets.iter().map(|b| b.day.requests).sum();
    assert_eq!(counted, 50 + 1 + 4);
}

#[tokio::test]
async fn money_keeps_the_quota_project_out_for_every_model() {
    let fixture = Fixture::new(2, "2026-11-29T22:00:00Z");
    let wait = Wait::Stated(seconds(600));
    let effect = Effect::new(Scope::QuotaProject, Cause::Billing, wait);
    let reported = fixture.refuse(&Refusal::new([effect])).await;
    assert_eq!(reported.until, Some(fixture.now() + seconds(600)));
    for model in [MODEL, "gemini-3.6-flash"] {
        for _ in 0..4 {
            let lease = fixture.pool.try_lease(&Ask::new(model)).unwrap();
            assert_eq!(lease.label(), "KEY_2");
        }
    }
    fixture.advance(seconds(600));
    let served: BTreeSet<_> = (0..4).map(|_| fixture.serve()).collect();
    assert_eq!(served.len(), 2);
}

#[tokio::test]
async fn a_blocked_host_holds_everybody_and_doubles() {
    let fixture = Fixture::new(3, "2026-11-29T22:00:00Z");
    let block = [Effect::new(Scope::Host, Cause::IpBlock, Wait::Ladder)];
    let mut minutes = Vec::new();
    for _ in 0..7 {
        // Those in flight together are one block.
        let mut together: Vec<_> = (0..3).map(|_| fixture.lease().unwrap()).collect();
        together.iter_mut().for_each(|lease| lease.sent());
        fixture.advance(seconds(1));
        for lease in together {
            let _ = lease.refused(&Refusal::new(block)).await;
        }
        let wait = fixture.soonest() - fixture.now();
        minutes.push(wait.num_minutes());
        fixture.clock.set(fixture.soonest());
    }
    assert_eq!(minutes, [1, 2, 4, 8, 16, 30, 30]);
    fixture.serve();
    fixture.advance(seconds(1));
    fixture.refuse(&Refusal::new(block)).await;
    assert_eq!((fixture.soonest() - fixture.now()).num_minutes(), 1);
}

#[tokio::test]
async fn a_project_without_money_and_a_blocked_host_are_told_as_what_they_are() {
    let wait = Wait::Stated(seconds(600));
    for (scope, cause, source) in [
        (Scope::QuotaProject, Cause::Billing, Source::Stated),
        (Scope::Host, Cause::IpBlock, Source::Stated),
    ] {
        let fixture = Fixture::new(1, "2026-11-29T22:00:00Z");
        fixture.refuse(&Refusal::new([Effect::new(scope, cause, wait)])).await;
        let exhausted = fixture.lease().unwrap_err();
        assert_eq!(exhausted.kind, ExhaustedKind::Cooling, "{exhausted}");
        let reason = &exhausted.reasons[0];
        assert_eq!((reason.cause, reason.source), (Some(cause), source));
        assert_eq!(reason.available_at, exhausted.soonest);
    }
    let fixture = Fixture::new(1, "2026-11-29T22:00:00Z");
    let block = Effect::new(Scope::Host, Cause::IpBlock, Wait::Ladder);
    fixture.refuse(&Refusal::new([block])).await;
    assert_eq!(fixture.lease().unwrap_err().reasons[0].source, Source::Guessed);
}

#[tokio::test]
async fn a_dead_key_says_how_it_is_mended() {
    let fixture = Fixture::new(2, "2026-11-29T22:00:00Z");
    let project = Effect::new(Scope::QuotaProject, Cause::LeakedOrSuspendedKey, Wait::None);
    let suspended = Refusal { detail: "ask for a review".into(), ..Refusal::new([project]) };
    let leaked = Refusal { detail: "make a new key".into(), ..dead() };
    for refusal in [leaked, suspended] {
        fixture.refuse(&refusal).await;
    }
    let exhausted = fixture.lease().unwrap_err();
    let details: BTreeSet<_> = exhausted.reasons.iter().map(|r| r.detail.as_str()).collect();
    assert_eq!(details, ["ask for a review", "make a new key"].into());
    let text = exhausted.to_string();
    assert!(text.contains("make a new key") && text.contains("ask for a review"), "{text}");
    let status = fixture.pool.status();
    let told = status.keys.iter().filter_map(|key| key.quarantine.as_ref());
    assert_eq!(told.map(|known| known.detail.as_str()).collect::<BTreeSet<_>>(), details);
}
