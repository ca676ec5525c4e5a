//! A relayed call that is no stream: byte for byte, failed over like any other, and refused with what was said.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{io::Write as _, pin::pin, time::Duration};

use common::{
    MODEL, OTHER_MODEL, Rig, account,
    bodies::{
        bad_request, day_spent, error, minute_full, model_not_found, overloaded, overloaded_body,
        part, reply,
    },
    fingerprint, poll_times,
    relay::{BODY, read, streamed, whole},
};
use http::{HeaderName, HeaderValue, header::CONTENT_ENCODING};
use keywheel::{
    Cause, Error, Rejected,
    raw::{Call, Relayed},
};
use keywheel_provider::{
    TransportKind,
    testing::{Recorded, Scripted},
};
use serde_json::{Value, json};

fn answer(_: &Recorded) -> Scripted {
    reply(200, &part("Hello", Some("STOP"), (8, 2)))
}

/// So many keys, and a provider that says `replies` and answers whatever comes after them.
fn rig(keys: usize, replies: impl IntoIterator<Item = Scripted>) -> Rig {
    let rig = Rig::new(keys);
    replies.into_iter().for_each(|reply| rig.script.reply(reply));
    rig.script.otherwise(answer);
    rig
}

/// What a call was handed back that the provider found at fault.
fn rejected(rig: &Rig) -> Rejected {
    match rig.run(whole(&rig.gemini)) {
        Err(Error::Rejected { rejected, .. }) => *rejected,
        other => panic!("{other:?}"),
    }
}

fn text(rig: &Rig, reply: &mut Relayed) -> String {
    let (bytes, error) = read(&rig.clock, &mut reply.body);
    assert!(error.is_none(), "{error:?}");
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_reply_comes_byte_for_byte_and_so_does_the_request() {
    let rig = Rig::new(1);
    let odd = r#"{ "b": 1.0, "candidates": [ ], "usageMetadata": {"totalTokenCount": 3}, "b": 2 }"#;
    let tier = HeaderName::from_static("x-gemini-service-tier");
    rig.script.reply(Scripted::json(200, odd).header(tier, HeaderValue::from_static("flex")));
    let body = r#"{ "z":1, "y":[ ] }"#;
    let call = Call::post(format!("/v1/models/{MODEL}:generateContent"), body)
        .with_query("fields", "a,b")
        .with_header(HeaderName::from_static("api-revision"), HeaderValue::from_static("7"));
    let mut relayed = rig.run(rig.gemini.relay(call)).unwrap();
    assert_eq!((relayed.status, relayed.model.as_deref()), (200, Some(MODEL)));
    assert_eq!(relayed.headers["x-gemini-service-tier"], "flex");
    assert_eq!(relayed.key_label, "GEMINI_API_KEY_1");
    assert_eq!(relayed.quota_project, format!("key:{}", fingerprint(1)));
    assert_eq!((relayed.request_id.as_deref(), relayed.output_cap), (None, None), "no ledger");
    assert_eq!(relayed.body.remaining(), Some(odd.len() as u64));
    assert_eq!(text(&rig, &mut relayed), odd);
    assert_eq!(relayed.body.usage().unwrap().total, 3);
    assert_eq!(relayed.body.remaining(), Some(0));
    let sent = &rig.script.requests()[0];
    assert!(sent.url.ends_with(":generateContent?fields=a%2Cb"), "{}", sent.url);
    assert_eq!(
        (&*sent.body, &sent.headers["api-revision"]),
        (body.as_bytes(), &HeaderValue::from_static("7"))
    );
    rig.assert_balanced();
}

#[test]
fn a_long_reply_is_handed_on_before_its_end() {
    let rig = Rig::new(1);
    let picture = "a".repeat(200_000);
    let mut body = part(&picture, Some("STOP"), (8, 2)).to_string();
    let rest = body.split_off(100_000);
    let slow = Scripted::json(200, body.clone()).pause(Duration::from_secs(30)).piece(rest.clone());
    rig.script.reply(slow);
    let mut relayed = rig.run(whole(&rig.gemini)).unwrap();
    assert_eq!(relayed.body.remaining(), None);
    let begun = rig.now();
    assert_eq!(rig.run(relayed.body.next()).unwrap().unwrap(), body);
    assert_eq!(rig.now(), begun);
    assert_eq!(text(&rig, &mut relayed), rest);
    assert_eq!(relayed.body.usage().unwrap().total, 10);
    rig.assert_balanced();
}

#[test]
fn a_file_is_handed_on_as_it_comes() {
    let rig = Rig::new(1);
    let kind = HeaderValue::from_static("application/octet-stream");
    let slow = Scripted::status(200).header(http::header::CONTENT_TYPE, kind);
    let slow = slow.pause(Duration::from_secs(60)).piece(vec![0_u8, 255]).piece(vec![7_u8]);
    rig.script.reply(slow);
    let call = Call::get("files/x:download").with_query("alt", "media");
    let begun = rig.now();
    let mut relayed = rig.run(rig.gemini.relay(call)).unwrap();
    assert_eq!((rig.now(), relayed.model.take()), (begun, None), "it is not looked at");
    assert_eq!(read(&rig.clock, &mut relayed.body).0, [0, 255, 7]);
    assert_eq!(rig.counted("api:files"), 1);
    rig.assert_balanced();
}

#[test]
fn another_key_takes_over_while_nothing_was_handed_out() {
    let cut = part("Hello", Some("STOP"), (8, 2)).to_string().split_off(30);
    let failures = [
        ("per_day_requests", day_spent(20)),
        ("overloaded", overloaded()),
        ("overloaded", reply(200, &overloaded_body())),
        ("overloaded", reply(200, &json!([overloaded_body()]))),
        ("none", Scripted::json(200, cut.clone()).fail(TransportKind::Interrupted)),
        ("none", Scripted::json(200, "{\"candidates\": [{\"content\"")),
        ("none", Scripted::json(200, "")),
    ];
    for (kind, failure) in failures {
        let rig = rig(2, [failure]);
        let mut relayed = rig.run(whole(&rig.gemini)).unwrap();
        assert_eq!(account(&relayed.attempts)[0], ("GEMINI_API_KEY_1", kind));
        assert!(text(&rig, &mut relayed).contains("Hello"), "{kind}");
        rig.assert_balanced();
    }
}

#[test]
fn what_the_request_is_at_fault_for_comes_back_as_it_came() {
    let body =
        serde_json::to_string_pretty(&error(400, "INVALID_ARGUMENT", "no such field", json!([])));
    let body = body.unwrap();
    let header = HeaderName::from_static("x-debug");
    let refusal = Scripted::json(400, body.clone()).header(header, HeaderValue::from_static("7"));
    let rig = rig(2, [refusal]);
    let rejected = rejected(&rig);
    assert_eq!(
        (rejected.status, rejected.cause, &*rejected.body),
        (400, Cause::BadRequest, &*body)
    );
    assert_eq!(rejected.headers["x-debug"], "7");
    assert_eq!(rejected.headers["content-type"], "application/json; charset=UTF-8");
    assert_eq!(rig.script.requests().len(), 1);
    rig.assert_balanced();
}

#[test]
fn a_refusal_that_repeats_the_key_is_scrubbed_in_body_and_headers() {
    let rig = Rig::new(1);
    let key = common::key(1);
    let said = format!("bad use of {}", key.expose());
    let header = HeaderName::from_static("x-debug");
    let refusal = reply(400, &error(400, "INVALID_ARGUMENT", &said, json!([])));
    rig.script.reply(refusal.header(header, HeaderValue::from_str(&said).unwrap()));
    let error = rig.run(whole(&rig.gemini)).unwrap_err();
    let Error::Rejected { rejected, .. } = &error else { panic!("{error}") };
    assert!(rejected.body.contains("bad use of [REDACTED]"));
    assert!(rejected.headers.get("x-debug").is_none());
    assert!(!format!("{error:?} {error}").contains(key.expose()), "it is in the error");
}

#[test]
fn a_compressed_reply_is_read_on_a_copy_and_a_compressed_error_too() {
    let zip = |plain: &Value| {
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        zip.write_all(plain.to_string().as_bytes()).unwrap();
        zip.finish().unwrap()
    };
    let gzip = || HeaderValue::from_static("gzip");
    let rig = Rig::new(2);
    let zipped = zip(&part("Hello", Some("STOP"), (8, 2)));
    rig.script.reply(Scripted::json(200, zip(&overloaded_body())).header(CONTENT_ENCODING, gzip()));
    rig.script.reply(Scripted::json(200, zipped.clone()).header(CONTENT_ENCODING, gzip()));
    let mut relayed = rig.run(whole(&rig.gemini)).unwrap();
    assert_eq!(account(&relayed.attempts)[0].1, "overloaded", "an error inside a 200");
    assert_eq!(relayed.headers[CONTENT_ENCODING], "gzip");
    assert!(read(&rig.clock, &mut relayed.body).0 == zipped);
    assert_eq!(relayed.body.usage().unwrap().total, 10);

    let refusal = error(400, "INVALID_ARGUMENT", "no such field", json!([]));
    rig.script.reply(Scripted::json(400, zip(&refusal)).header(CONTENT_ENCODING, gzip()));
    let rejected = rejected(&rig);
    assert_eq!(rejected.body, refusal.to_string());
    assert!(rejected.headers.get(CONTENT_ENCODING).is_none(), "it is plain text now");
    rig.assert_balanced();
}

#[test]
fn another_model_takes_over_in_the_path() {
    let rig = rig(1, [model_not_found()]);
    let mut relayed = rig.run(whole(&rig.gemini).fallback([OTHER_MODEL])).unwrap();
    assert_eq!(relayed.model.as_deref(), Some(OTHER_MODEL));
    assert_eq!(relayed.skipped[0].model, MODEL);
    assert!(text(&rig, &mut relayed).contains("Hello"));
    let sent = rig.script.requests();
    assert_eq!(sent[1].model().as_deref(), Some(OTHER_MODEL));
    assert_eq!((&sent[0].body, &sent[0].headers), (&sent[1].body, &sent[1].headers));
    rig.assert_balanced();

    rig.script.reply(model_not_found());
    let error = rig.run(whole(&rig.gemini).fallback([OTHER_MODEL]).without_fallback()).unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error}");
}

#[test]
fn vectors_and_caches_keep_their_model() {
    let cached = r#"{"contents":[{"parts":[{"text":"hi"}]}],"cachedContent":"cachedContents/c"}"#;
    for (verb, body) in [
        ("embedContent", r#"{"content":{"parts":[{"text":"hi"}]}}"#),
        ("batchEmbedContents", r#"{"requests":[{}]}"#),
        ("generateContent", cached),
        ("streamGenerateContent", cached),
        ("countTokens", BODY),
    ] {
        let rig = Rig::new(1);
        rig.script.reply(model_not_found());
        let call = Call::post(format!("models/{MODEL}:{verb}"), body);
        let error = rig.run(rig.gemini.relay(call).fallback([OTHER_MODEL])).unwrap_err();
        assert!(matches!(error, Error::Rejected { .. }), "{verb}: {error}");
        assert_eq!(rig.script.requests().len(), 1, "{verb}");
        rig.assert_balanced();
    }
}

#[test]
fn without_patience_a_call_takes_a_key_now_or_says_when() {
    let rig = rig(2, [minute_full(5, 30), minute_full(5, 20)]);
    let begun = rig.now();
    let call = || whole(&rig.gemini).patience(Duration::ZERO);
    let error = rig.run(call()).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert_eq!(account(error.attempts()).len(), 2, "each key that could serve was asked");
    assert_eq!(rig.now(), begun, "nobody waited");
    let soonest = error.next_available_at().unwrap();
    assert!((20..22).contains(&(soonest - begun).num_seconds()), "{soonest}");
    assert_eq!(rig.run(call()).unwrap_err().next_available_at(), Some(soonest));
    assert_eq!(rig.script.requests().len(), 2, "nothing is sent in vain");

    rig.clock.set(soonest);
    assert!(text(&rig, &mut rig.run(call()).unwrap()).contains("Hello"));
    rig.assert_balanced();
}

#[test]
fn patience_is_for_the_whole_call() {
    let twice = rig(1, [minute_full(5, 20), minute_full(5, 20)]);
    let patient = |rig: &Rig| rig.run(whole(&rig.gemini).patience(Duration::from_secs(30)));
    let begun = twice.now();
    let error = patient(&twice).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    let waited = (twice.now() - begun).num_seconds();
    assert!((20..22).contains(&waited), "the second wait does not fit: {waited}");

    let once = rig(1, [minute_full(5, 20)]);
    assert_eq!(patient(&once).unwrap().attempts.len(), 2);
}

#[test]
fn what_may_have_been_done_is_not_done_again_unless_that_is_safe() {
    let rig = Rig::new(2);
    rig.script.reply(reply(500, &json!({})));
    let error = rig.run(rig.gemini.relay(Call::post("things", "{}"))).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    rig.script.reply(reply(500, &json!({})));
    rig.script.otherwise(answer);
    rig.run(rig.gemini.relay(Call::post("things", "{}")).retry_safe()).unwrap();
    assert_eq!(rig.script.requests().len(), 3);
    rig.assert_balanced();
}

#[test]
fn a_fault_of_the_call_is_said_before_anything_is_sent() {
    let rig = Rig::new(1);
    for path in ["models/../x", "a//b", "models/x@y:generateContent"] {
        let error = rig.run(rig.gemini.relay(Call::post(path, "{}"))).unwrap_err();
        assert!(matches!(error, Error::Setting(_)), "{error}");
    }
    assert!(rig.script.requests().is_empty());
    rig.assert_balanced();
}

/// For those who try it again later.
#[test]
fn a_clone_of_a_call_is_the_same_call() {
    let rig = rig(1, [bad_request()]);
    let call = streamed(&rig.gemini);
    rig.run(call.clone()).unwrap_err();
    rig.run(call).unwrap();
    let sent = rig.script.requests();
    assert_eq!((&sent[0].url, &sent[0].body), (&sent[1].url, &sent[1].body));
}

#[test]
fn a_call_dropped_at_any_await_leaves_the_pool_in_balance() {
    for polls in 0..30 {
        let pause = Duration::from_millis(10);
        let rig = rig(2, [day_spent(20).after(pause)]);
        rig.script.otherwise(move |r| answer(r).after(pause));
        let ended = {
            let call = pin!(async {
                let mut relayed = whole(&rig.gemini).await.unwrap();
                while let Some(piece) = relayed.body.next().await {
                    piece.unwrap();
                }
            });
            poll_times(&rig.clock, call, polls).is_some()
        };
        rig.assert_balanced();
        if ended {
            assert!(polls > 2);
            return;
        }
    }
    panic!("it never ended");
}

/// Else a bucket that is believed to be spent would stay so, where everybody has a queue of his own.
#[test]
fn without_patience_the_days_exploration_is_made_all_the_same() {
    let rig = rig(1, [day_spent(0)]);
    let call = || whole(&rig.gemini).patience(Duration::ZERO);
    let error = rig.run(call()).unwrap_err();
    assert_eq!(account(error.attempts()), [("GEMINI_API_KEY_1", "free_tier_not_available")]);
    rig.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(rig.run(call()).unwrap().attempts.len(), 1);
    rig.assert_balanced();
}
