//! Any call by its path, counted and failed over like the others, and nothing done twice that must not be.

mod common;

use std::pin::pin;

use bytes::Bytes;
use common::{
    MODEL, Rig, account,
    bodies::{bad_request, bare_429, day_spent, overloaded, reply},
    fingerprint, poll_times,
};
use http::{HeaderName, HeaderValue, Method};
use keywheel::{Cause, Error, raw::Call};
use keywheel_provider::{
    Sent, TransportKind,
    testing::{Recorded, Scripted},
};
use serde_json::{Value, json};

fn lost() -> Scripted {
    Scripted::failure(TransportKind::Interrupted, Sent::Maybe)
}

fn ok(_: &Recorded) -> Scripted {
    reply(200, &json!({"name": "things/1"}))
}

#[test]
fn a_reply_comes_as_it_is_and_so_does_the_request() {
    let rig = Rig::new(1);
    let odd = r#"{ "b": 1.0, "a": [ ] }"#;
    let header = HeaderName::from_static("x-gemini-service-tier");
    rig.script.reply(Scripted::json(200, odd).header(header, HeaderValue::from_static("flex")));
    let call = Call::post("models/veo:predictLongRunning", r#"{"z":1, "y":2}"#)
        .with_query("alt", "json")
        .with_header(HeaderName::from_static("api-revision"), HeaderValue::from_static("7"));
    let answer = rig.run(rig.gemini.send(call)).unwrap();
    assert_eq!((answer.status, &*answer.body), (200, odd.as_bytes()));
    assert_eq!(answer.headers["x-gemini-service-tier"], "flex");
    assert_eq!(answer.json::<Value>().unwrap()["b"], 1.0);
    let sent = &rig.script.requests()[0];
    assert!(sent.url.ends_with("/v1beta/models/veo:predictLongRunning?alt=json"), "{}", sent.url);
    assert_eq!(
        (&*sent.body, &sent.headers["api-revision"]),
        (&br#"{"z":1, "y":2}"#[..], &"7".parse::<HeaderValue>().unwrap())
    );
    assert_eq!(rig.counted("veo"), 1);
}

#[test]
fn a_path_that_leads_elsewhere_or_a_credential_is_not_sent() {
    let rig = Rig::new(1);
    for call in [
        Call::get("models/../secrets"),
        Call::get("models//x"),
        Call::get("models").with_query("key", "anything"),
        Call::get("models").with_query("access_token", "anything"),
    ] {
        let error = rig.run(rig.gemini.send(call)).unwrap_err();
        assert!(matches!(error, Error::Setting(_)), "{error}");
    }
    assert!(rig.script.requests().is_empty());
    rig.assert_balanced();
}

#[test]
fn quota_and_weight_can_be_said() {
    let rig = Rig::new(1);
    rig.script.otherwise(ok);
    let call = || Call::post("anything/goes", "{}");
    rig.run(rig.gemini.send(call()).bucket("models/special").requests(7).tokens(99)).unwrap();
    assert_eq!((rig.counted("special"), rig.counted_tokens("special")), (7, 99));
    rig.run(rig.gemini.send(call())).unwrap();
    assert_eq!(rig.counted("api:anything"), 1);
    let body = r#"{"contents":[{"parts":[{"text":"one two three"}]}]}"#;
    rig.run(rig.gemini.send(Call::post(format!("models/{MODEL}:generateContent"), body))).unwrap();
    assert!((3..20).contains(&rig.counted_tokens(MODEL)), "{}", rig.counted_tokens(MODEL));
}

/// <https://github.com/garrytan/gbrain/issues/1922>
#[test]
fn each_text_of_a_batch_counts_whatever_its_dialect() {
    let rig = Rig::new(1);
    rig.script.otherwise(ok);
    for (path, body, weight) in [
        ("models/e:batchEmbedContents", r#"{"requests":[{},{},{}]}"#, 3),
        ("openai/embeddings", r#"{"model":"e","input":["a","b"]}"#, 2),
        ("openai/embeddings", r#"{"model":"e","input":"a"}"#, 1),
        ("models/e:batchEmbedContents", "no JSON", 1),
    ] {
        let before = rig.counted("e");
        rig.run(rig.gemini.send(Call::post(path, body))).unwrap();
        assert_eq!(rig.counted("e") - before, weight, "{path} {body}");
    }
}

#[test]
fn spent_keys_are_passed_over() {
    let rig = Rig::new(2);
    rig.script.reply(day_spent(20));
    rig.script.otherwise(ok);
    let answer = rig.run(rig.gemini.send(Call::post("things", "{}"))).unwrap();
    assert_eq!(
        account(&answer.attempts),
        [("GEMINI_API_KEY_1", "per_day_requests"), ("GEMINI_API_KEY_2", "served")],
        "also of a call that is not done twice: the first was not done"
    );
    assert_eq!(answer.quota_project, format!("key:{}", fingerprint(2)));
}

#[test]
fn a_call_can_be_bound_to_a_project() {
    let rig = Rig::new(3);
    rig.script.otherwise(ok);
    let owner = format!("key:{}", fingerprint(2));
    for _ in 0..3 {
        rig.run(rig.gemini.send(Call::get("things/1")).owner(owner.as_str())).unwrap();
    }
    assert_eq!(rig.keys_used(), [fingerprint(2); 3]);
}

/// Other projects' keys cannot read a file: <https://github.com/snailyp/gemini-balance/issues/401>.
#[test]
fn a_path_that_names_a_file_or_a_cache_goes_to_its_owner() {
    let rig = Rig::new(3);
    rig.script.otherwise(ok);
    let owner = format!("key:{}", fingerprint(2));
    for name in ["files/abc", "cachedContents/xyz"] {
        rig.run(rig.gemini.owners().record(name, &owner, None)).unwrap();
    }
    let calls = || {
        [
            Call::get("files/abc"),
            Call::get("/download/v1beta/files/abc:download").with_query("alt", "media"),
            Call::delete("/v1beta/cachedContents/xyz"),
        ]
    };
    for call in calls() {
        rig.run(rig.gemini.send(call)).unwrap();
    }
    assert_eq!(rig.keys_used(), [fingerprint(2); 3]);
    assert_eq!((rig.counted("api:files"), rig.counted("api:cachedContents")), (2, 1));

    let other = format!("key:{}", fingerprint(3));
    for call in calls() {
        rig.run(rig.gemini.send(call).owner(other.as_str())).unwrap();
    }
    assert_eq!(rig.keys_used()[3..], [fingerprint(3); 3], "unless the caller knows better");
}

#[test]
fn a_fault_of_the_request_comes_back_with_its_body() {
    let rig = Rig::new(3);
    rig.script.reply(bad_request());
    let error = rig.run(rig.gemini.send(Call::post("things", "{}"))).unwrap_err();
    let Error::Rejected { rejected, .. } = error else { panic!("{error}") };
    assert_eq!((rejected.status, rejected.cause), (400, Cause::BadRequest));
    assert!(rejected.body.contains("contents is not specified"));
}

/// An answer that is an error is no answer, whatever its status says.
#[test]
fn an_error_under_a_200_is_an_error() {
    let rig = Rig::new(2);
    let body = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded."}});
    rig.script.reply(reply(200, &body));
    rig.script.otherwise(ok);
    let answer = rig.run(rig.gemini.send(Call::get("things"))).unwrap();
    assert_eq!(answer.attempts.len(), 2);
    rig.script
        .reply(reply(200, &json!({"error": {"code": 3}, "name": "operations/1", "done": true})));
    let answer = rig.run(rig.gemini.send(Call::get("operations/1"))).unwrap();
    assert_eq!(answer.attempts.len(), 1, "an operation that failed is an answer");
}

#[test]
fn what_may_have_been_done_is_not_done_again_unless_that_is_safe() {
    let failures: [fn() -> Scripted; 4] = [
        lost,
        || reply(500, &json!({})),
        || reply(504, &json!({})),
        || Scripted::json(200, Bytes::from_static(b"{\"na")).fail(TransportKind::Interrupted),
    ];
    for failure in failures {
        let create = || Call::post("things", "{}");
        let rig = Rig::new(2);
        rig.script.reply(failure());
        rig.script.otherwise(ok);
        let error = rig.run(rig.gemini.send(create())).unwrap_err();
        assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
        assert_eq!(rig.script.requests().len(), 1, "a thing may be there");
        rig.assert_balanced();

        let get = Call { method: Method::GET, ..create() };
        for call in [rig.gemini.send(create()).retry_safe(), rig.gemini.send(get)] {
            rig.script.reply(failure());
            assert_eq!(rig.run(call).unwrap().attempts.len(), 2);
        }
    }
}

#[test]
fn what_certainly_was_not_done_is_tried_again() {
    for failure in [Scripted::failure(TransportKind::Connect, Sent::No), overloaded(), bare_429()] {
        let rig = Rig::new(2);
        rig.script.reply(failure);
        rig.script.otherwise(ok);
        let answer = rig.run(rig.gemini.send(Call::post("things", "{}"))).unwrap();
        assert_eq!(answer.attempts.len(), 2);
    }
}

#[test]
fn a_raw_call_dropped_at_any_await_leaves_the_pool_in_balance() {
    for polls in 0..20 {
        let rig = Rig::new(2);
        rig.script.reply(day_spent(20).after(std::time::Duration::from_millis(10)));
        rig.script.otherwise(|r| ok(r).after(std::time::Duration::from_millis(10)));
        let call = rig.gemini.send(Call::post("things", "{}"));
        let ended = poll_times(&rig.clock, pin!(call.into_future()), polls).is_some();
        rig.assert_balanced();
        if ended {
            assert!(polls > 2);
            return;
        }
    }
    panic!("it never ended");
}
