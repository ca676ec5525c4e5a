//! Cached contents: whose they are, how long they last, and what they count.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use common::{MODEL, at, config, get, json, key, ms, post, status};
use http::Method;
use keywheel_core::{ApiKey, Cause};
use keywheel_sim::{Limits, ModelConfig, Outcome, ProjectConfig, SimReply, SimRequest, World};
use serde_json::{Value, json};

const NOW: &str = "2026-11-30T07:00:00Z";

/// Two projects and two models.
fn world(limits: Limits) -> World {
    let config = config(limits)
        .with_model("gemini-other", ModelConfig::free(Limits::new()))
        .with_project(ProjectConfig::new("beta").with_key(key(2)));
    World::new(config).unwrap()
}

/// A prompt of 2,000 tokens, and what else is set.
fn create(world: &mut World, key: &ApiKey, extra: &Value) -> SimReply {
    let mut body = json!({
        "model": format!("models/{MODEL}"),
        "contents": [{"role": "user", "parts": [{"text": "word".repeat(2_000)}]}],
        "displayName": "manual",
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    world.handle(&post("/v1beta/cachedContents", key, &body.to_string()), at(NOW))
}

fn ask(key: &ApiKey, model: &str, name: &str, extra: &Value) -> SimRequest {
    let mut body = json!({"contents": [{"parts": [{"text": "What now"}]}], "cachedContent": name});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    post(&format!("/v1beta/models/{model}:generateContent"), key, &body.to_string())
}

#[test]
fn a_cache_counts_its_tokens_in_every_prompt_that_names_it() {
    let mut world = world(Limits::new().tpm(4_100));
    let cache = json(&create(&mut world, &key(1), &json!({})));
    assert_eq!(cache["usageMetadata"]["totalTokenCount"], 2_000);
    assert_eq!(cache["model"], format!("models/{MODEL}"));
    assert_eq!(cache["displayName"], "manual");
    // An hour, when nothing else is said.
    assert_eq!(cache["expireTime"], "2026-11-30T08:00:00.000000Z");
    let name = cache["name"].as_str().unwrap();
    let request = ask(&key(1), MODEL, name, &json!({}));
    let usage = json(&world.handle(&request, at(NOW)))["usageMetadata"].clone();
    assert_eq!(usage["promptTokenCount"], 2_002);
    assert_eq!(usage["cachedContentTokenCount"], 2_000);
    // Cached tokens are input tokens, for the limits too.
    assert_eq!(status(&world.handle(&request, at(NOW))), 200);
    assert_eq!(status(&world.handle(&request, at(NOW))), 429);
    let counted = SimRequest {
        path: format!("/v1beta/models/{MODEL}:countTokens"),
        ..ask(&key(1), MODEL, name, &json!({}))
    };
    let counted = json(&world.handle(&counted, at(NOW)));
    assert_eq!(
        (&counted["totalTokens"], &counted["cachedContentTokenCount"]),
        (&2_002.into(), &2_000.into())
    );
}

#[test]
fn another_projects_cache_is_forbidden_to_all_but_its_own() {
    let mut world = world(Limits::new());
    let cache = json(&create(&mut world, &key(1), &json!({})));
    let name = cache["name"].as_str().unwrap();
    let target = format!("/v1beta/{name}");
    let with = |method, i| SimRequest { method, ..post(&target, &key(i), r#"{"ttl":"60s"}"#) };
    for request in [
        with(Method::GET, 2),
        with(Method::PATCH, 2),
        with(Method::DELETE, 2),
        ask(&key(2), MODEL, name, &json!({})),
    ] {
        let reply = world.handle(&request, at(NOW));
        let expected = json!({"error": {
            "code": 403,
            "message": "CachedContent not found (or permission denied)",
            "status": "PERMISSION_DENIED",
        }});
        assert_eq!((status(&reply), json(&reply)), (403, expected));
    }
    let empty = world.handle(&get("/v1beta/cachedContents", &key(2)), at(NOW));
    assert_eq!(json(&empty), json!({}));
    let own = json(&world.handle(&get("/v1beta/cachedContents", &key(1)), at(NOW)));
    assert_eq!(own["cachedContents"], json!([cache]));
    assert_eq!(json(&world.handle(&with(Method::DELETE, 1), at(NOW))), json!({}));
    assert_eq!(status(&world.handle(&with(Method::GET, 1), at(NOW))), 403);
}

#[test]
fn a_cache_ends_when_it_says_and_its_end_can_be_moved() {
    let mut world = world(Limits::new());
    let cache = json(&create(&mut world, &key(1), &json!({"ttl": "60s"})));
    let name = cache["name"].as_str().unwrap().to_owned();
    let alive = |world: &mut World, after_ms: i64| {
        let reply = world.handle(&ask(&key(1), MODEL, &name, &json!({})), at(NOW) + ms(after_ms));
        status(&reply) == 200
    };
    assert!(alive(&mut world, 59_999));
    assert!(!alive(&mut world, 60_000));
    let patch = |body: &str| SimRequest {
        method: Method::PATCH,
        ..post(&format!("/v1beta/{name}"), &key(1), body)
    };
    let moved = world.handle(&patch(r#"{"ttl":"90.5s"}"#), at(NOW) + ms(10_000));
    assert_eq!(json(&moved)["expireTime"], "2026-11-30T07:01:40.500000Z");
    assert!(alive(&mut world, 100_499));
    assert!(!alive(&mut world, 100_500));
    let to = world.handle(&patch(r#"{"expireTime":"2026-11-30T09:00:00Z"}"#), at(NOW));
    assert_eq!(json(&to)["expireTime"], "2026-11-30T09:00:00.000000Z");
    for nonsense in [r#"{"ttl":"-5s"}"#, r#"{"ttl":"5m"}"#, r#"{"expireTime":"yesterday"}"#, "x"] {
        assert_eq!(status(&world.handle(&patch(nonsense), at(NOW))), 400, "{nonsense}");
    }
}

#[test]
fn a_cache_that_cannot_be_is_refused() {
    let mut world = world(Limits::new());
    let small = json!({"contents": [{"parts": [{"text": "short"}]}]});
    let small = create(&mut world, &key(1), &small);
    assert_eq!(
        json(&small)["error"]["message"],
        "Cached content is too small. total_token_count=2, min_total_token_count=1024"
    );
    let nowhere = create(&mut world, &key(1), &json!({"model": "models/gemini-1.0"}));
    assert_eq!(nowhere.outcome, Outcome::Refused(Cause::ModelNotFound));
    let cache = json(&create(&mut world, &key(1), &json!({})));
    let name = cache["name"].as_str().unwrap();
    let other = world.handle(&ask(&key(1), "gemini-other", name, &json!({})), at(NOW));
    assert!(json(&other)["error"]["message"].as_str().unwrap().contains("has to be the same"));
    let twice = json!({"systemInstruction": {"parts": [{"text": "Be brief"}]}});
    let twice = world.handle(&ask(&key(1), MODEL, name, &twice), at(NOW));
    assert!(json(&twice)["error"]["message"].as_str().unwrap().contains("can not be used with"));
}

#[test]
fn a_project_that_may_cache_nothing_is_told_so() {
    let mut alpha = ProjectConfig::new("free").with_key(key(3));
    alpha.refuses_caches = true;
    let mut world = World::new(config(Limits::new()).with_project(alpha)).unwrap();
    let reply = create(&mut world, &key(3), &json!({}));
    assert_eq!(status(&reply), 429);
    assert_eq!(
        json(&reply)["error"]["message"],
        format!(
            "TotalCachedContentStorageTokensPerModelFreeTier limit exceeded for model {MODEL}: \
             limit=0, requested=2000"
        )
    );
}
