//! However a provider refuses, a call sends a key once and then not again before something has changed.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{collections::HashMap, fs, path::PathBuf, sync::Arc, time::Duration};

use common::{MODEL, Rig, account, bodies::minute_full, label};
use futures_util::future::join;
use http::{HeaderName, HeaderValue, Method};
use keywheel::{Clock as _, Error, GenerateRequest, Selector};
use keywheel_provider::testing::Scripted;
use serde_json::{Value, json};

const KEYS: usize = 3;

/// More than any call sends; a call without end meets it.
const ENDLESS: usize = 1_000;

fn request(tools: bool) -> GenerateRequest {
    let mut request = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    if tools {
        request["tools"] = json!([{"google_search": {}}]);
    }
    serde_json::from_value(request).unwrap()
}

/// Every reply of the published corpus, by name.
fn corpus() -> Vec<(String, Scripted)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    let read = |file: &str| -> Value {
        serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap()
    };
    let index = read("index.json");
    let files = index["cases"].as_array().unwrap().iter();
    files
        .map(|entry| {
            let case = read(entry["file"].as_str().unwrap());
            let status = u16::try_from(case["status"].as_u64().unwrap()).unwrap();
            let body = case["body"].as_str().unwrap().to_owned();
            let mut reply = Scripted::status(status).piece(body);
            for (name, value) in case["headers"].as_object().into_iter().flatten() {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let name: HeaderName = name.parse().unwrap();
                reply = reply.header(name, HeaderValue::from_str(&value).unwrap());
            }
            (case["id"].as_str().unwrap().to_owned(), reply)
        })
        .collect()
}

/// A quota that only requests with tools have, as Google names it.
fn search_quota() -> Scripted {
    let body = common::bodies::error(
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota",
        json!([{
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{
                "quotaMetric": "generativelanguage.googleapis.com/search_grounding_requests",
                "quotaId": "SearchGroundingRequestsPerDayPerProject-FreeTier",
            }],
        }]),
    );
    common::bodies::reply(429, &body)
}

/// 17,340 requests in five seconds from one call, before there was this test.
#[test]
fn a_tools_quota_that_refuses_a_request_without_tools_is_met_once_by_each_key() {
    for tools in [false, true] {
        let rig = Rig::new(KEYS);
        let script = rig.script.clone();
        rig.script.otherwise(move |_| {
            assert!(script.requests().len() < ENDLESS, "a call without end");
            search_quota()
        });
        let error = rig.run(rig.gemini.generate(MODEL, request(tools))).unwrap_err();
        assert!(matches!(error, Error::Exhausted { .. }), "{error}");
        assert_eq!(rig.script.requests().len(), KEYS, "tools: {tools}");
        assert!(error.next_available_at().is_some(), "tools: {tools}");
        rig.assert_balanced();
    }
}

#[test]
fn a_call_sends_no_key_twice_at_one_moment_whatever_the_corpus_answers() {
    let cases = corpus();
    assert!(cases.len() > 100, "only {} cases were read", cases.len());
    for (id, answer) in cases {
        for tools in [false, true] {
            let rig = Rig::new(KEYS);
            let (script, clock) = (rig.script.clone(), Arc::new(rig.clock.clone()));
            let sent = Arc::new(std::sync::Mutex::new(HashMap::<_, usize>::new()));
            let (seen, name, reply) = (Arc::clone(&sent), id.clone(), answer.clone());
            rig.script.otherwise(move |request| {
                assert!(script.requests().len() < ENDLESS, "{name}: a call without end");
                if request.method == Method::POST {
                    *seen.lock().unwrap().entry((request.key, clock.now())).or_default() += 1;
                }
                reply.clone()
            });
            let call = rig.gemini.generate(MODEL, request(tools));
            // Whatever the answer is, it ends; cooldowns of seconds may come several times.
            let _any = rig.run(call.deadline(Duration::from_secs(30)));
            let sent = sent.lock().unwrap();
            let twice = sent.iter().find(|(_, times)| **times > 1);
            assert!(twice.is_none(), "{id}, tools: {tools}: {twice:?}");
            let total = sent.len();
            assert!((1..=KEYS * 30).contains(&total), "{id}, tools: {tools}: {total} requests");
            rig.assert_balanced();
        }
    }
}

/// A refusal that is older than a clear holds nothing back. The call leaves the key alone all the same.
#[test]
fn a_key_that_refused_without_being_held_back_is_left_out_by_the_call() {
    for keys in [1, 2] {
        let rig = Rig::new(keys);
        rig.script.reply(minute_full(15, 30).after(Duration::from_secs(1)));
        rig.script.otherwise(|_| Scripted::text("Hello"));
        let call = rig.gemini.generate(MODEL, "hi").into_future();
        let clear = async {
            // The call is on its way now; its answer is still to come.
            assert_eq!(rig.gemini.pool().clear(Selector::All).await, 0);
            rig.gemini.pool().mark_rate_limited(&label(1), MODEL, None).await.unwrap();
            rig.gemini.pool().clear(Selector::All).await
        };
        let (outcome, cleared) = rig.run(join(call, clear));
        assert_eq!(cleared, 1);
        match outcome {
            Ok(reply) => {
                assert_eq!(keys, 2, "the only key was sent again");
                assert_eq!(account(reply.attempts())[0].1, "per_minute_requests");
                assert_eq!(reply.served_by(), Some(label(2).as_str()));
            }
            Err(error) => {
                assert_eq!(keys, 1);
                let Error::Rejected { rejected, attempts, .. } = error else { panic!("{error}") };
                assert_eq!((rejected.status, attempts.len()), (429, 1));
            }
        }
        // The next call may use it.
        rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        rig.assert_balanced();
    }
}
