//! Vectors: the same for the same text, model, task and length, and counted one by one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use common::{at, json, key, post, status};
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, World};
use serde_json::{Value, json};

const NOW: &str = "2026-11-30T07:00:00Z";
const MODELS: [&str; 2] = ["gemini-embedding-001", "gemini-embedding-2"];

fn world(limits: Limits) -> World {
    let mut config = SimConfig::new().with_project(ProjectConfig::new("alpha").with_key(key(1)));
    for model in MODELS {
        config = config.with_model(model, ModelConfig::embedding(limits));
    }
    World::new(config).unwrap()
}

fn one(world: &mut World, model: &str, parts: &[&str], extra: &Value) -> Vec<f64> {
    let parts: Vec<_> = parts.iter().map(|text| json!({"text": text})).collect();
    let mut body = json!({"content": {"parts": parts}});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let target = format!("/v1beta/models/{model}:embedContent");
    let reply = json(&world.handle(&post(&target, &key(1), &body.to_string()), at(NOW)));
    serde_json::from_value(reply["embedding"]["values"].clone()).unwrap()
}

fn batch(world: &mut World, texts: &[String]) -> keywheel_sim::SimReply {
    let requests: Vec<_> = texts
        .iter()
        .map(|text| json!({"model": "models/x", "content": {"parts": [{"text": text}]}}))
        .collect();
    let target = format!("/v1/models/{}:batchEmbedContents", MODELS[0]);
    let body = json!({"requests": requests}).to_string();
    world.handle(&post(&target, &key(1), &body), at(NOW))
}

#[test]
fn a_vector_depends_on_text_model_task_and_length_and_on_nothing_else() {
    let mut world = world(Limits::new());
    let none = json!({});
    let first = one(&mut world, MODELS[0], &["text"], &none);
    assert_eq!(first, one(&mut world, MODELS[0], &["text"], &none));
    let norm: f64 = first.iter().map(|value| value * value).sum();
    assert!((norm - 1.0).abs() < 1e-4, "{norm}");
    let others = [
        one(&mut world, MODELS[0], &["texts"], &none),
        one(&mut world, MODELS[1], &["text"], &none),
        one(&mut world, MODELS[0], &["text"], &json!({"taskType": "RETRIEVAL_QUERY"})),
        one(&mut world, MODELS[0], &["text"], &json!({"task_type": "RETRIEVAL_DOCUMENT"})),
        one(&mut world, MODELS[0], &["text"], &json!({"title": "A title"})),
        one(&mut world, MODELS[0], &["text"], &json!({"outputDimensionality": 767})),
    ];
    for (i, other) in others.iter().enumerate() {
        assert_ne!(other[..16], first[..16], "case {i}");
        assert!(!others[..i].iter().any(|it| it[..16] == other[..16]), "case {i}");
    }
    assert_eq!(others[5].len(), 767);
}

/// The quirk that loses vectors: Google's Python SDK packs a list for gemini-embedding-2 into one content,
/// and one content has one vector (<https://github.com/vectorize-io/hindsight/issues/4001>).
#[test]
fn several_parts_of_one_content_have_one_vector_between_them() {
    let mut world = world(Limits::new().rpm(3));
    let both = one(&mut world, MODELS[1], &["a", "b"], &json!({}));
    assert_ne!(both, one(&mut world, MODELS[1], &["a"], &json!({})));
    assert_eq!(world.stats().bucket("alpha", MODELS[1]).counted, 2);
}

#[test]
fn every_text_of_a_batch_is_a_request() {
    let mut world = world(Limits::new().rpm(100).rpd(150));
    let texts: Vec<_> = (0..100).map(|i| format!("text {i}")).collect();
    let reply = json(&batch(&mut world, &texts));
    assert_eq!(reply["embeddings"].as_array().unwrap().len(), 100);
    assert_eq!(reply["usageMetadata"]["promptTokenCount"], 10 * 2 + 90 * 2);
    let alone = one(&mut world, MODELS[1], &["text 7"], &json!({}));
    assert_ne!(reply["embeddings"][7]["values"][0].as_f64(), Some(alone[0]));
    assert_eq!(world.stats().bucket("alpha", MODELS[0]).counted, 100);
    assert_eq!(status(&batch(&mut world, &texts[..1])), 429);
}

/// 133 in the corpus.
#[test]
fn more_than_a_hundred_are_refused() {
    let mut world = world(Limits::new());
    let texts: Vec<_> = (0..101).map(|i| format!("text {i}")).collect();
    let reply = batch(&mut world, &texts);
    assert_eq!(status(&reply), 400);
    let said = json(&reply)["error"]["message"].as_str().unwrap().to_owned();
    assert!(said.contains("at most 100 requests can be in one batch"), "{said}");
}
