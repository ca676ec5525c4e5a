//! Every body the simulator makes is what the classifier judges it to be.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use common::{MODEL, at, config, generate, generate_text, key, post, stream};
use http::{HeaderMap, Method};
use keywheel_core::{Cause, Dimension, Tier};
use keywheel_provider::{Asked, Dialect, Kind, Reply, Verdict, classify};
use keywheel_sim::{
    DayHint, Fault, Faults, KeyState, Limits, ModelConfig, ProjectConfig, ProjectState, SimConfig,
    SimReply, SimRequest, World,
};

const NOW: &str = "2026-11-30T07:00:00Z";

fn judge(reply: &SimReply, tokens: Option<u64>) -> Verdict {
    let http = reply.http.as_ref().unwrap();
    let body = http.bytes();
    let asked = Asked { model: Some(MODEL), tokens, tools: false };
    let seen = Reply { status: http.status, headers: &http.headers, body: &body };
    classify(Dialect::Gemini, &seen, &asked, at(NOW))
}

/// Handles the request and checks that the verdict is what the simulator says that its reply tells.
fn agree(world: &mut World, request: &SimRequest, expected: Cause) {
    let _ = agreed(world, request, expected);
}

/// The same, with the verdict.
fn agreed(world: &mut World, request: &SimRequest, expected: Cause) -> Verdict {
    let reply = world.handle(request, at(NOW));
    assert_eq!(reply.outcome.told(), Some(expected));
    let verdict = judge(&reply, None);
    assert_eq!(verdict.kind, Kind::Refused(expected), "{:?}", verdict.evidence);
    verdict
}

#[test]
fn states_of_keys() {
    for (state, cause) in [
        (KeyState::Invalid, Cause::InvalidKey),
        (KeyState::Expired, Cause::ExpiredKey),
        (KeyState::Leaked, Cause::LeakedOrSuspendedKey),
        (KeyState::ReferrerBlocked, Cause::PermissionOrServiceDisabled),
        (KeyState::IpBlocked, Cause::PermissionOrServiceDisabled),
        (KeyState::ServiceBlocked, Cause::PermissionOrServiceDisabled),
        (KeyState::Unauthenticated, Cause::InvalidKey),
    ] {
        let mut world = common::world(Limits::new());
        world.set_key_state(key(1).fingerprint(), state);
        assert!(agreed(&mut world, &generate(&key(1)), cause).key_is_dead, "{state:?}");
    }
}

#[test]
fn states_of_projects() {
    for (state, cause, dead) in [
        (ProjectState::Suspended, Cause::LeakedOrSuspendedKey, true),
        (ProjectState::Denied, Cause::LeakedOrSuspendedKey, true),
        (ProjectState::ServiceDisabled, Cause::PermissionOrServiceDisabled, true),
        (ProjectState::CountryRestricted, Cause::LocationUnsupported, true),
        (ProjectState::PrepayDepleted, Cause::Billing, false),
        (ProjectState::SpendCapReached, Cause::Billing, false),
    ] {
        let mut world = common::world(Limits::new());
        world.set_project_state("alpha", state);
        let verdict = agreed(&mut world, &generate(&key(1)), cause);
        assert_eq!(verdict.key_is_dead, dead, "{state:?}");
        assert!(!verdict.message.contains(key(1).expose()), "{state:?}: the key was repeated");
    }
}

#[test]
fn credentials_models_and_nonsense() {
    let mut world = common::world(Limits::new());
    let path = format!("/v1beta/models/{MODEL}:generateContent");
    let none = SimRequest::new(Method::POST, &path, HeaderMap::new(), "{}");
    agree(&mut world, &none, Cause::CredentialFault);
    let two = post(&format!("{path}?key=EXAMPLE"), &key(1), "{}");
    agree(&mut world, &two, Cause::CredentialFault);
    agree(&mut world, &generate(&key(9)), Cause::InvalidKey);
    agree(&mut world, &post("/v1/models/x:generateContent", &key(1), "{}"), Cause::ModelNotFound);
    agree(&mut world, &post(&path, &key(1), "{}"), Cause::BadRequest);
    agree(&mut world, &post(&path, &key(1), "nonsense"), Cause::BadRequest);
    let closed = ProjectConfig::new("beta").with_key(key(2)).with_closed_model(MODEL);
    let mut world = World::new(config(Limits::new()).with_project(closed)).unwrap();
    agree(&mut world, &generate(&key(2)), Cause::ModelNotFound);
}

#[test]
fn quotas_with_their_limits() {
    for (limits, cause, dimension, value) in [
        (Limits::new().rpm(2), Cause::PerMinuteRequests, Dimension::Rpm, 2),
        (Limits::new().rpd(2), Cause::PerDayRequests, Dimension::Rpd, 2),
        (Limits::new().tpm(7), Cause::PerMinuteTokens, Dimension::Tpm, 7),
        (Limits::new().tpd(7), Cause::PerDayTokens, Dimension::Tpd, 7),
        (Limits::new().rpm(2).rpd(2), Cause::PerDayRequests, Dimension::Rpd, 2),
    ] {
        for hint in [DayHint::Short, DayHint::Hours, DayHint::None] {
            let mut config = config(limits);
            config.day_hint = hint;
            let mut world = World::new(config).unwrap();
            for _ in 0..2 {
                assert!(common::is_served(&world.handle(&generate(&key(1)), at(NOW))));
            }
            // Once for every order of the details.
            for _ in 0..12 {
                let verdict = agreed(&mut world, &generate(&key(1)), cause);
                let seen = verdict.limits.iter().find(|seen| seen.dimension == dimension).unwrap();
                assert_eq!(seen.value, value);
                assert_eq!(seen.tier, Some(Tier::Free));
                assert!(verdict.named_quota);
            }
        }
    }
}

#[test]
fn several_violations_never_name_a_worse_window_than_was_spent() {
    let faults = Faults { several_violations: 1.0, ..Faults::default() };
    let minute = Limits::new().rpm(2).tpm(1_000).rpd(100).tpd(100_000);
    let mut world = World::new(config(minute).with_faults(faults.clone())).unwrap();
    for _ in 0..2 {
        world.handle(&generate(&key(1)), at(NOW));
    }
    agree(&mut world, &generate(&key(1)), Cause::PerMinuteRequests);
    let day = Limits::new().rpm(100).tpm(1_000).rpd(2);
    let mut world = World::new(config(day).with_faults(faults)).unwrap();
    for _ in 0..2 {
        world.handle(&generate(&key(1)), at(NOW));
    }
    let verdict = agreed(&mut world, &generate(&key(1)), Cause::PerDayRequests);
    assert_eq!(verdict.limits.len(), 3);
}

#[test]
fn no_free_tier() {
    let config = SimConfig::new()
        .with_model(MODEL, ModelConfig::paid_only().with_internal_name("gemini-3.1-pro"))
        .with_project(ProjectConfig::new("alpha").with_key(key(1)));
    let mut world = World::new(config).unwrap();
    let verdict = agreed(&mut world, &generate(&key(1)), Cause::FreeTierNotAvailable);
    assert!(!verdict.key_is_dead);
    // Said in the text alone, of four quotas, by the name that the model has inside.
    let body = common::text(&world.handle(&generate(&key(1)), at(NOW)));
    assert!(!body.contains("quotaValue"));
    assert_eq!(body.matches("limit: 0, model: gemini-3.1-pro\\n").count(), 4);
}

#[test]
fn a_request_larger_than_its_quota() {
    let mut world = common::world(Limits::new().tpm(10));
    let reply = world.handle(&generate_text(&key(1), &"x".repeat(400)), at(NOW));
    assert_eq!(reply.outcome.told(), Some(Cause::RequestTooLarge));
    assert_eq!(judge(&reply, Some(100)).kind, Kind::Refused(Cause::RequestTooLarge));
    // Without knowing the size nobody can tell.
    assert_eq!(judge(&reply, None).kind, Kind::Refused(Cause::PerMinuteTokens));
}

#[test]
fn embeddings() {
    for (limits, cause) in [
        (Limits::new().rpm(1), Cause::PerMinuteRequests),
        (Limits::new().rpd(1), Cause::PerDayRequests),
        (Limits::new().tpm(1), Cause::PerMinuteTokens),
        (Limits::new().tpd(1), Cause::PerDayTokens),
    ] {
        let config = SimConfig::new()
            .with_model("gemini-embedding-001", ModelConfig::embedding(limits))
            .with_project(ProjectConfig::new("alpha").with_key(key(1)));
        let mut world = World::new(config).unwrap();
        let path = "/v1beta/models/gemini-embedding-001:embedContent";
        let request = post(path, &key(1), r#"{"content":{"parts":[{"text":"x"}]}}"#);
        assert!(common::is_served(&world.handle(&request, at(NOW))));
        agree(&mut world, &request, cause);
    }
}

#[test]
fn tools_have_a_quota_of_their_own() {
    let mut project = ProjectConfig::new("alpha").with_key(key(1));
    project.refuses_tools = true;
    let config =
        SimConfig::new().with_model(MODEL, ModelConfig::free(Limits::new())).with_project(project);
    let mut world = World::new(config).unwrap();
    let path = format!("/v1beta/models/{MODEL}:generateContent");
    let body = r#"{"contents":[{"parts":[{"text":"x"}]}],"tools":[{"googleSearch":{}}]}"#;
    agree(&mut world, &post(&path, &key(1), body), Cause::ToolQuota);
    assert!(common::is_served(&world.handle(&generate(&key(1)), at(NOW))));
}

#[test]
fn faults() {
    for (fault, cause) in [
        (Fault::Overloaded, Cause::Overloaded),
        (Fault::Internal, Cause::ServerError),
        (Fault::Html, Cause::ServerError),
        (Fault::Deadline, Cause::Deadline),
        (Fault::Spurious429, Cause::UnspecifiedQuota),
    ] {
        let mut world = common::world(Limits::new());
        world.force(fault, 3);
        agree(&mut world, &generate(&key(1)), cause);
        agree(&mut world, &stream(&key(1), "?alt=sse"), cause);
        // In an array.
        agree(&mut world, &stream(&key(1), ""), cause);
    }
    for (fault, cause) in
        [(Fault::ErrorFirst, Cause::ServerError), (Fault::ErrorMidway, Cause::Overloaded)]
    {
        let mut world = common::world(Limits::new());
        world.force(fault, 1);
        agree(&mut world, &stream(&key(1), "?alt=sse"), cause);
    }
}

/// Another project's file is the caller's mistake, not the key's: the pool must not retire the key
/// (<https://github.com/snailyp/gemini-balance/issues/401>).
#[test]
fn a_foreign_file_is_no_fault_of_the_key() {
    let mut world = common::world(Limits::new());
    let verdict = agreed(&mut world, &common::get("/v1/files/x", &key(1)), Cause::BadRequest);
    assert!(!verdict.key_is_dead);
}

#[test]
fn bare_refusals_tell_nothing() {
    let faults = Faults { bare_429: 1.0, ..Faults::default() };
    let mut world = World::new(config(Limits::new().rpd(1)).with_faults(faults)).unwrap();
    world.handle(&generate(&key(1)), at(NOW));
    let verdict = agreed(&mut world, &generate(&key(1)), Cause::UnspecifiedQuota);
    assert!(verdict.limits.is_empty() && !verdict.named_quota);
}

#[test]
fn answers_are_answers() {
    let mut world = common::world(Limits::new());
    for request in [generate(&key(1)), stream(&key(1), "?alt=sse"), stream(&key(1), "")] {
        let verdict = judge(&world.handle(&request, at(NOW)), None);
        assert_eq!(verdict.kind, Kind::Served, "{:?}", verdict.evidence);
    }
}
