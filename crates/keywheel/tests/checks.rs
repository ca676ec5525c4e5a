//! Quarantined keys come back by a free check once a day, and by nothing that costs quota.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{
    MODEL, NOON, Rig, at,
    bodies::{bare_429, day_spent, error, internal, invalid_key, leaked_key, minute_full, reply},
    fingerprint, key, label, over, spec,
};
use http::Method;
use keywheel::{Cause, Error, Gemini, ManualClock, OpenAiApi, Pool, StateLocation};
use keywheel_provider::testing::{Script, Scripted};
use keywheel_sim::{Face, KeyState, Limits, ModelConfig, ProjectConfig, SimConfig, SimTransport};
use serde_json::json;

const DAY: Duration = Duration::from_secs(25 * 3_600);

fn models() -> Scripted {
    reply(200, &json!({"models": [{"name": format!("models/{MODEL}")}]}))
}

/// A client whose first key was found dead a day ago.
fn with_a_dead_key(dead: Scripted) -> Rig {
    let rig = Rig::new(2);
    rig.script.reply(dead);
    rig.script.reply(Scripted::text("Hello"));
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert!(rig.gemini.status().keys[0].quarantine.is_some());
    assert_eq!(rig.run(rig.gemini.run_due_checks()), 0, "it was found dead a moment ago");
    rig.clock.advance(DAY);
    rig
}

fn quarantined(rig: &Rig) -> Option<Cause> {
    rig.gemini.status().keys[0].quarantine.as_ref().map(|it| it.cause)
}

/// <https://github.com/tashfeenahmed/freellmapi/issues/882>, <https://github.com/juspay/clairvoyance/pull/569>:
/// health checks that spend the quota.
#[test]
fn a_check_lists_models_and_spends_no_quota() {
    let rig = with_a_dead_key(invalid_key());
    let before = rig.script.requests().len();
    rig.script.reply(models());
    assert_eq!(rig.run(rig.gemini.run_due_checks()), 1);
    let requests = rig.script.requests();
    let [check] = &requests[before..] else { panic!("{} requests", requests.len() - before) };
    assert_eq!(check.method, Method::GET);
    assert_eq!(check.url, "http://script.invalid/v1beta/models?pageSize=1");
    assert!(check.body.is_empty());
    assert_eq!(check.key, Some(fingerprint(1)));
    assert_eq!(quarantined(&rig), None);
    assert_eq!(rig.counted(MODEL), 0, "nothing of today's quota");
}

#[test]
fn a_key_found_working_serves_again() {
    let rig = with_a_dead_key(invalid_key());
    rig.script.reply(models());
    rig.run(rig.gemini.run_due_checks());
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let mut served = Vec::new();
    for _ in 0..4 {
        let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        served.push(reply.served_by().unwrap().to_owned());
    }
    assert!(served.contains(&label(1)), "{served:?}");
}

#[test]
fn a_check_is_due_once_a_day() {
    let rig = with_a_dead_key(invalid_key());
    rig.script.otherwise(|_| invalid_key());
    let before = rig.script.requests().len();
    for _ in 0..24 {
        assert_eq!(rig.run(rig.gemini.run_due_checks()), 0);
        rig.clock.advance(Duration::from_secs(3_600));
    }
    let checks = rig.script.requests().len() - before;
    assert!((1..=2).contains(&checks), "{checks} checks in a day");
    assert_eq!(quarantined(&rig), Some(Cause::InvalidKey));
}

/// <https://github.com/NousResearch/hermes-agent/issues/21058>: good keys were reported as invalid. Whoever is
/// refused for a quota was recognised first.
#[test]
fn a_429_means_that_the_key_is_in_order() {
    for refusal in [bare_429(), minute_full(15, 30), day_spent(20)] {
        let rig = with_a_dead_key(invalid_key());
        rig.script.reply(refusal);
        assert_eq!(rig.run(rig.gemini.run_due_checks()), 1);
        assert_eq!(quarantined(&rig), None);
    }
}

#[test]
fn a_check_that_tells_nothing_changes_nothing() {
    let here = error(
        400,
        "FAILED_PRECONDITION",
        "User location is not supported for the API use.",
        json!([]),
    );
    let blocked = Scripted::status(429)
        .header(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/html"))
        .piece("<!DOCTYPE html><html><title>Sorry...</title></html>");
    for nothing in [internal(), reply(400, &here), blocked] {
        let rig = with_a_dead_key(invalid_key());
        rig.script.reply(nothing);
        assert_eq!(rig.run(rig.gemini.run_due_checks()), 0);
        assert_eq!(quarantined(&rig), Some(Cause::InvalidKey), "still what it was");
        // Not for a whole day: the next hour may tell more.
        rig.clock.advance(Duration::from_secs(2 * 3_600));
        rig.script.reply(models());
        assert_eq!(rig.run(rig.gemini.run_due_checks()), 1);
    }
}

#[test]
fn a_key_that_was_published_is_never_checked() {
    let rig = with_a_dead_key(leaked_key());
    let before = rig.script.requests().len();
    assert_eq!(rig.run(rig.gemini.run_due_checks()), 0);
    assert_eq!(rig.script.requests().len(), before);
    assert_eq!(quarantined(&rig), Some(Cause::LeakedOrSuspendedKey));
}

/// The simulator takes nothing but `x-goog-api-key` on its native routes, as Google does.
#[test]
fn a_check_sends_the_key_as_google_wants_it() {
    let clock = ManualClock::at(at(NOON));
    let config = SimConfig::new()
        .with_model(MODEL, ModelConfig::free(Limits::new().rpd(1)))
        .with_project(ProjectConfig::new("alpha").with_key_in_state(key(1), KeyState::Invalid));
    let sim = SimTransport::new(config, Arc::new(clock.clone())).unwrap();
    let pool = Pool::builder()
        .keys([spec(1)])
        .clock(Arc::new(clock.clone()))
        .state(StateLocation::None)
        .build()
        .unwrap();
    let gemini = over(pool, sim.clone(), |client| client);
    let error = common::run(&clock, gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::AllKeysDead { .. }), "{error}");

    clock.advance(DAY);
    assert_eq!(common::run(&clock, gemini.run_due_checks()), 0);
    sim.world().with(|world| world.set_key_state(fingerprint(1), KeyState::Ok));
    clock.advance(DAY);
    assert_eq!(common::run(&clock, gemini.run_due_checks()), 1);
    common::run(&clock, gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(sim.world().stats().bucket("alpha", MODEL).counted, 1, "the checks cost nothing");
}

/// Another provider is asked in its own words: its list of models, with the key as a Bearer token.
#[test]
fn a_check_asks_an_openai_style_provider_its_own_way() {
    let clock = ManualClock::at(at(NOON));
    let config = SimConfig::new()
        .with_face(Face::OpenAi)
        .with_model("llama", ModelConfig::free(Limits::new().rpd(5)))
        .with_project(ProjectConfig::new("alpha").with_key_in_state(key(1), KeyState::Invalid));
    let sim = SimTransport::new(config, Arc::new(clock.clone())).unwrap();
    let pool = Pool::builder()
        .keys([spec(1)])
        .clock(Arc::new(clock.clone()))
        .state(StateLocation::None)
        .build()
        .unwrap();
    let gemini = over(pool, sim.clone(), |client| {
        client.provider(OpenAiApi::new()).base_url("http://acme.invalid/v1")
    });
    let error = common::run(&clock, gemini.generate("llama", "hi")).unwrap_err();
    assert!(matches!(error, Error::AllKeysDead { .. }), "{error}");

    sim.world().with(|world| world.set_key_state(fingerprint(1), KeyState::Ok));
    clock.advance(DAY);
    assert_eq!(common::run(&clock, gemini.run_due_checks()), 1);
    common::run(&clock, gemini.generate("llama", "hi")).unwrap();
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if done() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn a_client_checks_by_itself_while_it_lives() {
    let clock = ManualClock::at(at(NOON));
    let script = Script::new().with_clock(Arc::new(clock.clone()));
    let gemini = Gemini::builder()
        .keys([spec(1), spec(2)])
        .state(StateLocation::None)
        .clock(Arc::new(clock.clone()))
        .transport(Arc::new(script.clone()))
        .base_url("http://script.invalid")
        .build()
        .await
        .unwrap();
    script.reply(invalid_key());
    script.reply(Scripted::text("Hello"));
    gemini.generate(MODEL, "hi").await.unwrap();
    script.reply(models());
    let dead = |gemini: &Gemini| gemini.status().keys[0].quarantine.is_some();
    assert!(dead(&gemini));
    for _ in 0..26 {
        until("the next look", || clock.next_wake().is_some()).await;
        clock.set(clock.next_wake().unwrap());
        tokio::task::yield_now().await;
    }
    until("the key is back", || !dead(&gemini)).await;
    assert_eq!(script.requests().len(), 3, "one check");

    // A clone keeps it going; the last one ends it.
    let clone = gemini.clone();
    drop(gemini);
    until("the next look", || clock.next_wake().is_some()).await;
    drop(clone);
    until("the end of the task", || clock.next_wake().is_none()).await;
}

#[tokio::test]
async fn a_client_built_without_checks_leaves_them_to_its_owner() {
    let clock = ManualClock::at(at(NOON));
    let gemini = Gemini::builder()
        .keys([spec(1)])
        .state(StateLocation::None)
        .clock(Arc::new(clock.clone()))
        .without_daily_checks()
        .build()
        .await
        .unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(clock.next_wake(), None);
    drop(gemini);
}
