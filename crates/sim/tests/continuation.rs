//! Answers in several requests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use common::{MODEL, at, json, key, post, status, text};
use keywheel_core::ApiKey;
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimRequest, World};
use serde_json::{Value, json};

const NOW: &str = "2026-11-30T07:00:00Z";

fn world(after: Option<u64>) -> World {
    let mut model = ModelConfig::free(Limits::new());
    model.continue_after = after;
    let config = SimConfig::new()
        .with_model(MODEL, model)
        .with_project(ProjectConfig::new("alpha").with_key(key(1)))
        .with_project(ProjectConfig::new("beta").with_key(key(2)));
    World::new(config).unwrap()
}

fn ask(key: &ApiKey, verb: &str, said: &str, token: Option<&str>) -> SimRequest {
    let mut body = json!({"contents": [{"parts": [{"text": said}]}]});
    if let Some(token) = token {
        body["continuationToken"] = token.into();
    }
    post(&format!("/v1/models/{MODEL}:{verb}"), key, &body.to_string())
}

fn said(reply: &Value) -> &str {
    reply["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap()
}

const PROMPT: &str = "Tell me something long, and do not stop before it is ended";

#[test]
fn the_parts_of_an_answer_are_the_answer_and_every_part_is_a_request() {
    let whole = json(&world(None).handle(&ask(&key(1), "generateContent", PROMPT, None), at(NOW)));
    let mut world = world(Some(8));
    let (mut all, mut token, mut requests) = (String::new(), None::<String>, 0);
    loop {
        let request = ask(&key(1), "generateContent", PROMPT, token.as_deref());
        let part = json(&world.handle(&request, at(NOW)));
        requests += 1;
        all += said(&part);
        let candidate = &part["candidates"][0];
        // The input is counted again with every part.
        assert_eq!(part["usageMetadata"]["promptTokenCount"], 15);
        match candidate["finishReason"].as_str().unwrap() {
            "CONTINUATION" => {
                assert_eq!(part["usageMetadata"]["candidatesTokenCount"], 8);
                token = candidate["continuationToken"].as_str().map(str::to_owned);
                assert!(token.is_some());
            }
            reason => {
                assert_eq!(reason, "STOP");
                assert!(candidate.get("continuationToken").is_none());
                break;
            }
        }
    }
    assert_eq!(all, said(&whole));
    assert!(requests > 2, "{requests}");
    assert_eq!(world.stats().bucket("alpha", MODEL).counted, requests);
}

#[test]
fn a_stream_is_continued_too() {
    let mut world = world(Some(8));
    let request = ask(&key(1), "streamGenerateContent?alt=sse", PROMPT, None);
    let first = text(&world.handle(&request, at(NOW)));
    let last = first.split_terminator("\r\n\r\n").last().unwrap().strip_prefix("data: ").unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["candidates"][0]["finishReason"], "CONTINUATION");
    assert_eq!(first.matches("finishReason").count(), 1);
    let token = last["candidates"][0]["continuationToken"].as_str();
    let next = json(&world.handle(&ask(&key(1), "generateContent", PROMPT, token), at(NOW)));
    let whole =
        json(&self::world(None).handle(&ask(&key(1), "generateContent", PROMPT, None), at(NOW)));
    assert!(said(&whole)[32..].starts_with(said(&next)));
}

/// What a pool has to know: the follow-up has to go to a key of the same project.
#[test]
fn a_token_of_another_project_or_prompt_is_refused() {
    let mut world = world(Some(8));
    let first = json(&world.handle(&ask(&key(1), "generateContent", PROMPT, None), at(NOW)));
    let token = first["candidates"][0]["continuationToken"].as_str();
    for request in [
        ask(&key(2), "generateContent", PROMPT, token),
        ask(&key(1), "generateContent", "Something else", token),
        ask(&key(1), "generateContent", PROMPT, Some("bm9uc2Vuc2U=")),
        ask(&key(1), "generateContent", PROMPT, Some("no base64!")),
    ] {
        assert_eq!(status(&world.handle(&request, at(NOW))), 400);
    }
    let own = ask(&key(1), "generateContent", PROMPT, token);
    assert_eq!(status(&world.handle(&own, at(NOW))), 200);
}
