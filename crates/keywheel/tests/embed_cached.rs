//! With an embedding cache no text is asked for twice, whoever asks, and whatever went wrong in between.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{pin::pin, time::Duration};

use common::{
    Rig,
    bodies::{bad_request, reply},
    poll_times,
};
use futures_util::future::join;
use keywheel::{Clock as _, Error, Limits, embed::TaskType, embed_cache::EmbedCacheConfig};
use keywheel_provider::testing::{Recorded, Scripted};
use serde_json::json;

const MODEL: &str = "gemini-embedding-001";

fn rig(limits: Limits) -> Rig {
    Rig::built(
        1,
        |pool| pool.limits("*", limits),
        |client| client.embed_cache(EmbedCacheConfig::default()),
    )
}

fn asked(request: &Recorded) -> Vec<String> {
    let body = request.json();
    let requests = body["requests"].as_array().unwrap();
    let text =
        |r: &serde_json::Value| r["content"]["parts"][0]["text"].as_str().unwrap().to_owned();
    requests.iter().map(text).collect()
}

/// A vector tells which text it is of, and which task.
fn vectors(request: &Recorded) -> Scripted {
    let task = request.json()["requests"][0]["taskType"].as_str().map_or(0, str::len);
    let vectors: Vec<_> =
        asked(request).iter().map(|text| json!({"values": [text.len(), task]})).collect();
    reply(200, &json!({"embeddings": vectors})).after(Duration::from_millis(100))
}

fn all_asked(rig: &Rig) -> Vec<String> {
    let mut all: Vec<_> = rig.script.requests().iter().flat_map(asked).collect();
    all.sort();
    all
}

#[test]
fn a_text_is_asked_for_once_but_again_for_another_task() {
    let rig = rig(Limits::default());
    rig.script.otherwise(vectors);
    let first = rig.run(rig.gemini.embed(MODEL, ["a", "bb", "a"])).unwrap();
    assert_eq!((first.requests, first.cache_hits), (2, 0));
    let again = rig.run(rig.gemini.embed(MODEL, ["bb", "ccc"])).unwrap();
    assert_eq!(again.vectors, [[2.0, 0.0], [3.0, 0.0]]);
    assert_eq!((again.requests, again.cache_hits), (1, 1));
    let other = rig.run(rig.gemini.embed(MODEL, "bb").task(TaskType::Clustering)).unwrap();
    assert_eq!(other.vectors, [[2.0, 10.0]], "a vector of another task is another vector");
    assert_eq!(all_asked(&rig), ["a", "bb", "bb", "ccc"]);
    assert_eq!(rig.counted(MODEL), 4);
}

#[test]
fn two_calls_at_once_share_what_both_want() {
    let rig = rig(Limits::default());
    rig.script.otherwise(vectors);
    let (one, two) = rig.run(join(
        rig.gemini.embed(MODEL, ["a", "bb"]).into_future(),
        rig.gemini.embed(MODEL, ["bb", "ccc"]).into_future(),
    ));
    assert_eq!(one.unwrap().vectors, [[1.0, 0.0], [2.0, 0.0]]);
    let two = two.unwrap();
    assert_eq!(two.vectors, [[2.0, 0.0], [3.0, 0.0]]);
    assert_eq!((two.requests, two.cache_hits), (1, 1));
    assert_eq!(all_asked(&rig), ["a", "bb", "ccc"]);
    rig.assert_balanced();
}

#[test]
fn whoever_waits_for_a_call_that_fails_or_is_dropped_asks_itself() {
    let rig = rig(Limits::default());
    rig.script.reply(bad_request().after(Duration::from_millis(100)));
    rig.script.otherwise(vectors);
    let (one, two) = rig.run(join(
        rig.gemini.embed(MODEL, "a").into_future(),
        rig.gemini.embed(MODEL, "a").into_future(),
    ));
    assert!(matches!(one, Err(Error::Rejected { .. })));
    assert_eq!(two.unwrap().vectors, [[1.0, 0.0]]);

    let mut dropped = Box::pin(rig.gemini.embed(MODEL, "bb").into_future());
    assert!(poll_times(&rig.clock, dropped.as_mut(), 1).is_none());
    let mut waiting = pin!(rig.gemini.embed(MODEL, "bb").into_future());
    assert!(poll_times(&rig.clock, waiting.as_mut(), 1).is_none());
    drop(dropped);
    let answer = poll_times(&rig.clock, waiting, 50).expect("it takes over").unwrap();
    assert_eq!((answer.requests, answer.vectors), (1, vec![vec![2.0, 0.0]]));
    rig.assert_balanced();
}

/// <https://github.com/openclaw/openclaw/issues/42655>: embedding jobs began again from zero.
#[test]
fn after_a_limit_the_same_call_asks_for_the_rest_alone() {
    let rig = rig(Limits { rpd: Some(3), ..Limits::default() });
    rig.script.otherwise(vectors);
    let texts = ["a", "bb", "ccc", "dddd", "eeeee"];
    let error = rig.run(rig.gemini.embed(MODEL, texts)).unwrap_err();
    let Error::Incomplete { done, .. } = error else { panic!("{error}") };
    assert_eq!(done.len(), 3);
    rig.clock.advance(Duration::from_hours(13));
    let answer = rig.run(rig.gemini.embed(MODEL, texts)).unwrap();
    assert_eq!((answer.requests, answer.cache_hits), (2, 3));
    assert_eq!(all_asked(&rig), texts);
}

#[test]
fn known_vectors_need_no_key() {
    let rig = rig(Limits { rpd: Some(1), ..Limits::default() });
    rig.script.otherwise(vectors);
    rig.run(rig.gemini.embed(MODEL, "a")).unwrap();
    let known = rig.run(rig.gemini.embed(MODEL, ["a", "a"])).unwrap();
    assert_eq!((known.requests, known.cache_hits, known.attempts.len()), (0, 1, 0));
    assert!(matches!(rig.run(rig.gemini.embed(MODEL, "new")), Err(Error::Exhausted { .. })));
}

#[test]
fn turns_count_vectors_made_and_vectors_known() {
    let rig = rig(Limits::default());
    rig.script.otherwise(vectors);
    let turn = rig.gemini.turn("recall");
    let step = turn.step("embed");
    rig.run(step.embed(MODEL, ["a", "bb"])).unwrap();
    rig.run(step.embed(MODEL, ["a", "ccc"])).unwrap();
    drop((step, turn));
    let report = rig.gemini.turns();
    let text = format!("{report:?}");
    assert!(text.contains("embedded: 3") && text.contains("cache_hits: 1"), "{text}");
}

/// As a future in a `select!` that goes on without polling it.
#[test]
fn calls_that_are_begun_and_then_left_alone_keep_nobody_waiting_for_ever() {
    // Where no limit is known, few requests are under way at once.
    let rig = rig(Limits { rpm: Some(100), ..Limits::default() });
    rig.script.otherwise(vectors);
    let mut left: Vec<_> = ["a", "bb", "ccc"]
        .into_iter()
        .map(|text| Box::pin(rig.gemini.embed(MODEL, text).into_future()))
        .collect();
    for call in &mut left {
        assert!(poll_times(&rig.clock, call.as_mut(), 1).is_none());
    }
    let begun = rig.clock.now();
    let waiting = rig.gemini.embed(MODEL, ["a", "bb", "ccc"]).no_deadline().into_future();
    let answer = poll_times(&rig.clock, pin!(waiting), 50).expect("it takes over").unwrap();
    assert_eq!(answer.vectors, [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]);
    let waited = (rig.clock.now() - begun).num_seconds();
    assert_eq!(waited, 120, "for all of them at once, not one after the other");
    // One that goes on after all does no harm, and what was fetched is there for everybody.
    let late = poll_times(&rig.clock, left[0].as_mut(), 50).expect("it ends");
    drop((late, left));
    let known = rig.run(rig.gemini.embed(MODEL, ["a", "bb", "ccc"])).unwrap();
    assert_eq!((known.requests, known.cache_hits), (0, 3));
}
