//! Routes, credentials and answers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use common::{
    MODEL, at, config, generate, generate_text, get, is_served, json, key, post, status, text,
    world,
};
use http::{HeaderMap, Method};
use keywheel_core::Cause;
use keywheel_sim::{
    KeyState, Limits, ModelConfig, Outcome, ProjectConfig, SimConfig, SimRequest, World,
};

const NOW: &str = "2026-11-30T07:00:00Z";

#[test]
fn a_key_is_taken_from_the_header_or_the_query_but_not_from_both() {
    let mut world = world(Limits::new());
    let path = format!("/v1beta/models/{MODEL}:generateContent");
    let body = generate(&key(1)).body;
    let query = format!("{path}?key={}", key(1).expose());
    let asked = |headers: HeaderMap, target: &str| {
        SimRequest::new(Method::POST, target, headers, body.clone())
    };
    let header = generate(&key(1)).headers;
    let mut bearer = HeaderMap::new();
    bearer.insert("authorization", "Bearer EXAMPLE".parse().unwrap());
    let mut with_bearer = header.clone();
    with_bearer.extend(bearer.clone());
    let cases = [
        (asked(header.clone(), &path), 200),
        (asked(HeaderMap::new(), &query), 200),
        (asked(header, &query), 400),
        (asked(with_bearer, &path), 400),
        (asked(HeaderMap::new(), &path), 403),
        (asked(bearer, &path), 401),
    ];
    for (i, (request, expected)) in cases.into_iter().enumerate() {
        assert_eq!(status(&world.handle(&request, at(NOW))), expected, "case {i}");
    }
}

#[test]
fn all_versions_are_served_and_other_paths_are_not() {
    let mut world = world(Limits::new());
    let body = r#"{"contents":[{"parts":[{"text":"x"}]}]}"#;
    for path in [
        format!("/v1/models/{MODEL}:generateContent"),
        format!("/v1beta/models/{MODEL}:generateContent"),
        format!("/v1alpha/models/{MODEL}:generateContent"),
        format!("/v1beta/models/{MODEL}%3AgenerateContent"),
    ] {
        assert_eq!(status(&world.handle(&post(&path, &key(1), body), at(NOW))), 200, "{path}");
    }
    for path in [
        format!("/v2/models/{MODEL}:generateContent"),
        format!("/models/{MODEL}:generateContent"),
        format!("/v1beta/models/{MODEL}:dance"),
        format!("/v1beta/models/a/b:{MODEL}"),
        "/v1beta/models/:generateContent".to_owned(),
        "/".to_owned(),
        String::new(),
    ] {
        let reply = world.handle(&post(&path, &key(1), body), at(NOW));
        assert_eq!((status(&reply), reply.outcome), (404, Outcome::NoSuchPath), "{path}");
    }
}

#[test]
fn an_answer_is_the_same_for_the_same_prompt_and_counts_its_tokens() {
    let mut world = world(Limits::new());
    let first = json(&world.handle(&generate(&key(1)), at(NOW)));
    assert_eq!(first, json(&world.handle(&generate(&key(1)), at(NOW))));
    assert_ne!(first, json(&world.handle(&generate_text(&key(1), "else"), at(NOW))));
    let usage = &first["usageMetadata"];
    assert_eq!(usage["promptTokenCount"], 3);
    let output = usage["candidatesTokenCount"].as_u64().unwrap();
    assert_eq!(usage["totalTokenCount"].as_u64().unwrap(), 3 + output);
    assert_eq!(first["candidates"][0]["finishReason"], "STOP");
    assert!(usage.get("thoughtsTokenCount").is_none());
}

#[test]
fn thinking_is_counted_and_shares_the_limit_of_the_answer() {
    let mut world = world(Limits::new());
    let path = format!("/v1beta/models/{MODEL}:generateContent");
    let ask = |config: &str| {
        let body = format!(
            r#"{{"contents":[{{"parts":[{{"text":"Say hello"}}]}}],"generationConfig":{config}}}"#
        );
        post(&path, &key(1), &body)
    };
    let shown = ask(r#"{"thinkingConfig":{"includeThoughts":true}}"#);
    let shown = json(&world.handle(&shown, at(NOW)));
    assert_eq!(shown["candidates"][0]["content"]["parts"][0]["thought"], true);
    assert!(shown["usageMetadata"]["thoughtsTokenCount"].as_u64().unwrap() > 0);
    let off = json(&world.handle(&ask(r#"{"thinkingConfig":{"thinkingBudget":0}}"#), at(NOW)));
    assert!(off["usageMetadata"].get("thoughtsTokenCount").is_none());
    let short = ask(r#"{"maxOutputTokens":20,"thinking_config":{"thinking_budget":-1}}"#);
    let short = json(&world.handle(&short, at(NOW)));
    assert_eq!(short["candidates"][0]["finishReason"], "MAX_TOKENS");
    let count = |name: &str| short["usageMetadata"][name].as_u64().unwrap_or(0);
    assert!(count("thoughtsTokenCount") + count("candidatesTokenCount") <= 20);
}

#[test]
fn models_are_listed_page_by_page_without_those_closed_to_the_project() {
    let mut config = SimConfig::new()
        .with_project(ProjectConfig::new("alpha").with_key(key(1)).with_closed_model("model-2"));
    for i in 0..5 {
        config = config.with_model(format!("model-{i}"), ModelConfig::free(Limits::new()));
    }
    let mut world = World::new(config).unwrap();
    let mut names = Vec::new();
    let mut token = String::new();
    loop {
        let target = format!("/v1beta/models?pageSize=3{token}");
        let page = json(&world.handle(&get(&target, &key(1)), at(NOW)));
        let models = page["models"].as_array().unwrap();
        names.extend(models.iter().map(|model| model["name"].as_str().unwrap().to_owned()));
        match page["nextPageToken"].as_str() {
            Some(next) => token = format!("&pageToken={next}"),
            None => break,
        }
    }
    assert_eq!(names, ["models/model-0", "models/model-1", "models/model-3", "models/model-4"]);
    let one = world.handle(&get("/v1beta/models/model-1", &key(1)), at(NOW));
    assert_eq!(json(&one)["supportedGenerationMethods"][0], "generateContent");
    assert_eq!(status(&world.handle(&get("/v1beta/models/model-2", &key(1)), at(NOW))), 404);
}

#[test]
fn a_list_without_models_is_told_and_one_without_anything_else_is_left_out() {
    let closed = ProjectConfig::new("closed").with_key(key(2)).with_closed_model(MODEL);
    let mut world = World::new(config(Limits::new()).with_project(closed)).unwrap();
    let mut list = |name: &str| {
        json(&world.handle(&get(&format!("/v1beta/{name}"), &key(2)), at(NOW))).to_string()
    };
    assert_eq!(list("models"), r#"{"models":[]}"#);
    assert_eq!((list("files").as_str(), list("cachedContents").as_str()), ("{}", "{}"));
}

#[test]
fn a_model_that_is_unknown_closed_or_of_the_other_kind_is_not_found() {
    let config = config(Limits::new())
        .with_model("gemini-embedding-001", ModelConfig::embedding(Limits::new()))
        .with_model("gemini-2.5-flash", ModelConfig::free(Limits::new()))
        .with_project(
            ProjectConfig::new("new").with_key(key(2)).with_closed_model("gemini-2.5-flash"),
        );
    let mut world = World::new(config).unwrap();
    let body = r#"{"contents":[{"parts":[{"text":"x"}]}]}"#;
    let mut ask = |key_number, model: &str| {
        let path = format!("/v1beta/models/{model}:generateContent");
        world.handle(&post(&path, &key(key_number), body), at(NOW))
    };
    for reply in [ask(1, "gemini-1.0"), ask(1, "gemini-embedding-001"), ask(2, "gemini-2.5-flash")]
    {
        assert_eq!(status(&reply), 404);
        assert_eq!(reply.outcome, Outcome::Refused(Cause::ModelNotFound));
    }
    assert!(is_served(&ask(1, "gemini-2.5-flash")));
}

#[test]
fn only_a_suspended_projects_reply_repeats_the_key() {
    let mut world = world(Limits::new());
    let repeats = |world: &mut World| {
        text(&world.handle(&generate(&key(1)), at(NOW))).contains(key(1).expose())
    };
    for state in [KeyState::Invalid, KeyState::Expired, KeyState::Leaked] {
        assert!(world.set_key_state(key(1).fingerprint(), state));
        assert!(!repeats(&mut world));
    }
    world.set_key_state(key(1).fingerprint(), KeyState::Ok);
    world.set_project_state("alpha", keywheel_sim::ProjectState::Suspended);
    assert!(repeats(&mut world));
    world.set_project_state("alpha", keywheel_sim::ProjectState::Ok);
    assert!(!repeats(&mut world));
}

#[test]
fn a_paid_project_has_the_paid_limits() {
    let model = ModelConfig::paid_only().with_paid(Limits::new().rpm(2));
    let config = SimConfig::new()
        .with_model(MODEL, model)
        .with_project(ProjectConfig::new("free").with_key(key(1)))
        .with_project(ProjectConfig::new("paid").with_key(key(2)).paid());
    let mut world = World::new(config).unwrap();
    assert!(!is_served(&world.handle(&generate(&key(1)), at(NOW))));
    assert!(is_served(&world.handle(&generate(&key(2)), at(NOW))));
    assert!(is_served(&world.handle(&generate(&key(2)), at(NOW))));
    let refused = text(&world.handle(&generate(&key(2)), at(NOW)));
    assert!(refused.contains("GenerateRequestsPerMinutePerProjectPerModel"));
    assert!(!refused.contains("FreeTier"));
}

#[test]
fn vectors_have_the_dimensions_asked_for() {
    let config = SimConfig::new()
        .with_model("gemini-embedding-001", ModelConfig::embedding(Limits::new()))
        .with_project(ProjectConfig::new("alpha").with_key(key(1)));
    let mut world = World::new(config).unwrap();
    let path = "/v1beta/models/gemini-embedding-001:embedContent";
    let body = r#"{"content":{"parts":[{"text":"x"}]},"outputDimensionality":16}"#;
    let reply = world.handle(&post(path, &key(1), body), at(NOW));
    assert_eq!(json(&reply)["embedding"]["values"].as_array().unwrap().len(), 16);
    let long = format!(r#"{{"content":{{"parts":[{{"text":"{}"}}]}}}}"#, "x".repeat(10_000));
    assert_eq!(status(&world.handle(&post(path, &key(1), &long), at(NOW))), 400);
}

#[test]
fn debug_output_holds_no_key() {
    let mut world = world(Limits::new());
    world.set_project_state("alpha", keywheel_sim::ProjectState::Suspended);
    let query = format!("/v1beta/models?key={}", key(1).expose());
    let request = SimRequest::new(Method::GET, &query, HeaderMap::new(), "");
    let reply = world.handle(&request, at(NOW));
    let said = format!("{world:?} {:?} {request:?} {:?}", world.config(), reply.http);
    assert!(!said.contains(key(1).expose()), "a key stands in debug output");
}
