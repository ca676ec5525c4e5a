//! Texts become vectors, however many they are and whatever stands in the way; none is asked for twice.

mod common;

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use common::{
    Rig, account,
    bodies::{bad_request, error, minute_full, overloaded, reply},
    fingerprint, label, poll_times, secs,
};
use keywheel::{Cause, Clock as _, Error, Limits, embed::TaskType};
use keywheel_provider::testing::{Recorded, Scripted};
use serde_json::{Value, json};

const MODEL: &str = "gemini-embedding-001";

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("text {number}")).collect()
}

/// The vector of `text`: any that no other text has.
fn vector(text: &str) -> Vec<f32> {
    let sum = text.bytes().fold(7_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    vec![f32::from(sum), text.len() as f32]
}

/// The texts that a request asks for.
fn asked(request: &Recorded) -> Vec<String> {
    let body = request.json();
    let requests = body["requests"].as_array().expect("a batch");
    let text = |request: &Value| {
        let parts = request["content"]["parts"].as_array().expect("parts");
        assert_eq!(parts.len(), 1, "several parts make one vector");
        parts[0]["text"].as_str().expect("a text").to_owned()
    };
    requests.iter().map(text).collect()
}

fn vectors(request: &Recorded) -> Scripted {
    let embeddings: Vec<_> =
        asked(request).iter().map(|text| json!({"values": vector(text)})).collect();
    reply(200, &json!({"embeddings": embeddings}))
}

/// How often each text was asked for by requests that were served.
fn times_asked(requests: &[Recorded]) -> HashMap<String, usize> {
    let mut times = HashMap::new();
    for text in requests.iter().flat_map(asked) {
        *times.entry(text).or_default() += 1;
    }
    times
}

fn day_of_texts_spent(limit: u64) -> Scripted {
    let metric = "generativelanguage.googleapis.com/embed_content_free_tier_requests";
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{
            "quotaMetric": metric,
            "quotaId": "EmbedContentRequestsPerDayPerUserPerProjectPerModel-FreeTier",
            "quotaValue": limit.to_string(),
        }],
    }]);
    reply(429, &error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", details))
}

fn minute_of_texts_full(limit: u64, wait: u64) -> Scripted {
    let metric = "generativelanguage.googleapis.com/embed_content_free_tier_requests";
    let message = format!("You exceeded your current quota.\nPlease retry in {wait}s.");
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{
            "quotaMetric": metric,
            "quotaId": "EmbedContentRequestsPerMinutePerUserPerProjectPerModel-FreeTier",
            "quotaValue": limit.to_string(),
        }],
    }, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{wait}s")}]);
    reply(429, &error(429, "RESOURCE_EXHAUSTED", &message, details))
}

/// <https://github.com/router-for-me/CLIProxyAPI/issues/179>: no embeddings through the pool.
#[test]
fn one_text_is_one_vector() {
    let rig = Rig::new(1);
    rig.script.otherwise(vectors);
    let call = rig.gemini.embed(MODEL, "Who wrote Faust?").task(TaskType::RetrievalQuery);
    let one = rig.run(call.dimensions(768).title("Plays").one()).unwrap();
    assert_eq!(one, vector("Who wrote Faust?"));
    let request = &rig.script.requests()[0];
    assert!(request.url.ends_with("/models/gemini-embedding-001:batchEmbedContents"));
    let sent = &request.json()["requests"][0];
    assert_eq!(sent["taskType"], "RETRIEVAL_QUERY");
    assert_eq!((&sent["outputDimensionality"], &sent["title"]), (&json!(768), &json!("Plays")));
    rig.assert_balanced();
}

/// Each text counts as a request of the quota: <https://github.com/garrytan/gbrain/issues/1922>. Batches of over 100
/// are refused: <https://github.com/geldata/gel/issues/9032>.
#[test]
fn many_texts_are_asked_for_a_hundred_at_a_time_and_each_is_counted() {
    let rig = Rig::new(1);
    rig.script.otherwise(vectors);
    let texts = texts(250);
    let answer = rig.run(rig.gemini.embed(MODEL, &texts)).unwrap();
    let expected: Vec<_> = texts.iter().map(|text| vector(text)).collect();
    assert_eq!(answer.vectors, expected, "in their order");
    let mut sizes: Vec<_> = rig.script.requests().iter().map(|r| asked(r).len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [50, 100, 100]);
    assert_eq!((answer.requests, rig.counted(MODEL)), (250, 250));
    rig.assert_balanced();
}

#[test]
fn a_text_that_comes_twice_is_asked_for_once() {
    let rig = Rig::new(1);
    rig.script.otherwise(vectors);
    let answer = rig.run(rig.gemini.embed(MODEL, ["a", "b", "a", "a"])).unwrap();
    assert_eq!(answer.vectors, ["a", "b", "a", "a"].map(vector));
    assert_eq!(asked(&rig.script.requests()[0]), ["a", "b"]);
    assert_eq!(rig.counted(MODEL), 2);
}

#[test]
fn no_texts_are_no_request_and_an_empty_text_is_none_either() {
    let rig = Rig::new(1);
    let none = rig.run(rig.gemini.embed(MODEL, Vec::<String>::new())).unwrap();
    assert!(none.vectors.is_empty());
    for texts in [vec!["ok", ""], vec![" \n"]] {
        let error = rig.run(rig.gemini.embed(MODEL, texts)).unwrap_err();
        assert!(matches!(error, Error::Setting(_)), "{error}");
    }
    assert!(rig.script.requests().is_empty());
}

/// <https://github.com/RooCodeInc/Roo-Code/issues/5713>: such jobs began again from zero.
#[test]
fn two_hundred_and_fifty_texts_that_meet_the_limit_half_way_go_on_and_repeat_nothing() {
    let limits = Limits { rpm: Some(100), ..Limits::default() };
    let rig = Rig::built(1, |pool| pool.limits("*", limits), |client| client);
    rig.script.otherwise(vectors);
    let began = rig.clock.now();
    let texts = texts(250);
    let call = rig.gemini.embed(MODEL, &texts).deadline(Duration::from_secs(300));
    let answer = rig.run(call).unwrap();
    let expected: Vec<_> = texts.iter().map(|text| vector(text)).collect();
    assert_eq!(answer.vectors, expected);
    assert!(rig.clock.now() - began >= secs(120), "two more minutes are needed for the other 150");
    let times = times_asked(&rig.script.requests());
    assert_eq!(times.len(), 250);
    assert!(times.values().all(|&times| times == 1), "{times:?}");
    rig.assert_balanced();
}

#[test]
fn what_is_done_when_the_day_is_spent_is_handed_out_and_the_rest_alone_is_asked_for_later() {
    let rig = Rig::built(
        1,
        |pool| pool.limits("*", Limits { rpd: Some(130), ..Limits::default() }),
        |client| client,
    );
    rig.script.otherwise(vectors);
    let texts = texts(250);
    let error = rig.run(rig.gemini.embed(MODEL, &texts)).unwrap_err();
    assert_eq!(error.next_available_at().map(|at| at >= common::at(common::MIDNIGHT)), Some(true));
    let Error::Incomplete { done, source } = error else { panic!("{error}") };
    assert!(matches!(*source, Error::Exhausted { .. }), "{source}");
    assert_eq!((done.len(), done.total()), (130, 250), "the day is used up to its last request");
    assert_eq!(done.vector("text 0"), Some(&vector("text 0")[..]));
    assert_eq!((done.requests(), done.attempts().len()), (130, rig.script.requests().len()));
    assert_eq!(rig.counted(MODEL), 130);

    rig.clock.advance(Duration::from_hours(13));
    let sent = rig.script.requests().len();
    let answer = rig.run(rig.gemini.embed(MODEL, &texts).resume(*done)).unwrap();
    let expected: Vec<_> = texts.iter().map(|text| vector(text)).collect();
    assert_eq!(answer.vectors, expected);
    assert_eq!((answer.requests, answer.cache_hits), (120, 130));
    let later: Vec<_> = rig.script.requests()[sent..].iter().flat_map(asked).collect();
    assert_eq!(later.len(), 120, "only the rest");
    let times = times_asked(&rig.script.requests());
    assert!(times.len() == 250 && times.values().all(|&times| times == 1));
    rig.assert_balanced();
}

#[test]
fn vectors_of_another_model_or_task_are_not_gone_on_from() {
    let rig = Rig::built(
        1,
        |pool| pool.limits("*", Limits { rpd: Some(1), ..Limits::default() }),
        |client| client,
    );
    rig.script.otherwise(vectors);
    let done = || match rig.run(rig.gemini.embed("other", ["a", "b"])).unwrap_err() {
        Error::Incomplete { done, .. } => done,
        error => panic!("{error}"),
    };
    let done = done();
    for call in [
        rig.gemini.embed(MODEL, ["a", "b"]),
        rig.gemini.embed("other", ["a", "b"]).dimensions(256),
        rig.gemini.embed("other", ["a", "b"]).task(TaskType::Clustering),
    ] {
        let error = rig.run(call.resume((*done).clone())).unwrap_err();
        assert!(matches!(error, Error::Setting(_)), "{error}");
    }
}

/// Learned from a reply in the middle: the request that was refused would be refused for ever.
#[test]
fn a_limit_below_the_size_of_a_request_is_learned_by_one_refusal() {
    let rig = Rig::new(1);
    rig.script.reply(minute_of_texts_full(40, 20));
    rig.script.otherwise(vectors);
    let call = rig.gemini.embed(MODEL, texts(90)).deadline(Duration::from_secs(600));
    let answer = rig.run(call).unwrap();
    assert_eq!(answer.vectors.len(), 90);
    let sizes: Vec<_> = rig.script.requests().iter().map(|r| asked(r).len()).collect();
    assert_eq!(sizes[0], 90);
    assert!(sizes[1..].iter().all(|&size| size <= 40), "{sizes:?}");
    assert_eq!(sizes[1..].iter().sum::<usize>(), 90, "nothing is repeated: {sizes:?}");
    rig.assert_balanced();
}

#[test]
fn a_spent_key_leaves_its_texts_to_the_next_one() {
    let rig = Rig::new(2);
    rig.script.reply(day_of_texts_spent(1_000));
    rig.script.otherwise(vectors);
    let answer = rig.run(rig.gemini.embed(MODEL, texts(3))).unwrap();
    let (first, second) = (label(1), label(2));
    assert_eq!(
        account(&answer.attempts),
        [(first.as_str(), "per_day_requests"), (second.as_str(), "served")]
    );
    assert_eq!(rig.keys_used(), [fingerprint(1), fingerprint(2)]);
    assert_eq!(rig.counted(MODEL), 3, "the refused ones were not counted");
}

#[test]
fn embeddings_stay_with_their_model() {
    let rig = Rig::new(1);
    rig.script.otherwise(|_| overloaded());
    let error = rig.run(rig.gemini.embed(MODEL, "a")).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    for request in rig.script.requests() {
        assert!(request.url.contains(MODEL), "{}", request.url);
    }
}

#[test]
fn another_number_of_vectors_than_texts_is_an_error_and_is_not_asked_for_again() {
    let answers = [
        json!({"embeddings": [{"values": [1.0]}]}),
        json!({"embeddings": [{"values": [1.0]}, {"values": [1.0]}, {"values": [1.0]}]}),
        json!({"embeddings": [{"values": [1.0]}, {}]}),
    ];
    for answer in answers {
        let rig = Rig::new(1);
        rig.script.reply(reply(200, &answer));
        let error = rig.run(rig.gemini.embed(MODEL, ["a", "b"])).unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error}");
        assert_eq!((rig.script.requests().len(), rig.counted(MODEL)), (1, 2));
    }
}

/// They cannot be compared, and an index takes only those of one length.
#[test]
fn vectors_of_different_lengths_are_an_error_and_are_not_asked_for_again() {
    let rig = Rig::new(2);
    rig.script.reply(Scripted::embeddings(vec![vec![0.1, 0.2], vec![0.3]]));
    let error = rig.run(rig.gemini.embed(MODEL, ["a", "b"])).unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    assert_eq!((rig.script.requests().len(), rig.counted(MODEL)), (1, 2));
}

#[test]
fn a_call_that_has_nothing_to_show_tells_of_every_attempt() {
    let rig = Rig::new(2);
    rig.script.otherwise(|_| minute_of_texts_full(1, 50));
    let call = rig.gemini.embed(MODEL, texts(40)).deadline(Duration::from_secs(1));
    let error = rig.run(call).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert!(rig.script.requests().len() > 1);
    assert_eq!(error.attempts().len(), rig.script.requests().len());
}

#[test]
fn a_fault_of_the_texts_is_handed_back() {
    let rig = Rig::new(3);
    rig.script.otherwise(|_| bad_request());
    let error = rig.run(rig.gemini.embed(MODEL, "a")).unwrap_err();
    let Error::Rejected { rejected, .. } = error else { panic!("{error}") };
    assert_eq!(rejected.cause, Cause::BadRequest);
    assert_eq!(rig.script.requests().len(), 1);
}

#[test]
fn no_more_than_four_requests_are_under_way_at_once() {
    let limits = Limits { rpm: Some(10_000), ..Limits::default() };
    let rig = Rig::built(9, |pool| pool.limits("*", limits), |client| client);
    rig.script.otherwise(|request| vectors(request).after(Duration::from_secs(1)));
    let mut call = pin!(rig.gemini.embed(MODEL, texts(900)).into_future());
    assert!(poll_times(&rig.clock, call.as_mut(), 1).is_none());
    assert_eq!(rig.script.open(), 4);
    let answer = poll_times(&rig.clock, call, 1_000).expect("it ends").unwrap();
    assert_eq!(answer.vectors.len(), 900);
    rig.assert_balanced();
}

#[test]
fn a_call_for_vectors_dropped_at_any_await_leaves_the_pool_in_balance() {
    let mut ended = false;
    for polls in 0..200 {
        let limits = Limits { rpm: Some(100), ..Limits::default() };
        let rig = Rig::built(2, |pool| pool.limits("*", limits), |client| client);
        rig.script.reply(minute_full(100, 30).after(Duration::from_millis(100)));
        rig.script.reply(overloaded().after(Duration::from_millis(100)));
        rig.script.otherwise(|request| vectors(request).after(Duration::from_millis(100)));
        let outcome = {
            let call = rig.gemini.embed(MODEL, texts(250)).deadline(Duration::from_secs(600));
            poll_times(&rig.clock, pin!(call.into_future()), polls)
        };
        rig.assert_balanced();
        if let Some(answer) = outcome {
            assert_eq!(answer.unwrap().vectors.len(), 250);
            ended = true;
            break;
        }
        rig.clock.advance(Duration::from_secs(300));
        rig.script.otherwise(vectors);
        rig.run(rig.gemini.embed(MODEL, ["later"]).deadline(Duration::from_secs(600))).unwrap();
        rig.assert_balanced();
    }
    assert!(ended, "it never ended");
}

#[test]
fn the_texts_may_be_held_in_any_way() {
    let rig = Rig::new(1);
    rig.script.otherwise(vectors);
    let (owned, shared): (Vec<String>, Arc<str>) = (texts(1), "shared".into());
    for call in [
        rig.gemini.embed(MODEL, "a"),
        rig.gemini.embed(MODEL, "a".to_owned()),
        rig.gemini.embed(MODEL, &owned),
        rig.gemini.embed(MODEL, owned.as_slice()),
        rig.gemini.embed(MODEL, owned.clone()),
        rig.gemini.embed(MODEL, [shared]),
    ] {
        assert_eq!(rig.run(call).unwrap().vectors.len(), 1);
    }
}
