//! The provider's own failures blame no key, are retried twice, and then it is said plainly that nothing answers.

mod common;

use std::time::Duration;

use common::{
    MODEL, Rig, account,
    bodies::{bad_gateway, bad_request, internal, model_not_found, overloaded, part, reply},
    fingerprint, label,
};
use keywheel::{Cause, Clock as _, Error, RetryConfig};
use keywheel_provider::{Sent, TransportKind, testing::Scripted};
use serde_json::json;

fn nobody_is_blamed(rig: &Rig) {
    let status = rig.gemini.status();
    assert!(status.keys.iter().all(|key| key.quarantine.is_none() && key.cooling_until.is_none()));
    for bucket in &status.buckets {
        assert_eq!(bucket.cooldowns, [], "{}", bucket.quota_project);
        assert!(bucket.ready, "{}", bucket.quota_project);
    }
    assert_eq!(status.host_blocked_until, None);
    rig.assert_balanced();
}

/// <https://github.com/tbphp/gpt-load/issues/278>, <https://github.com/tbphp/gpt-load/issues/361>: 500 and 503
/// took keys out.
#[test]
fn failures_of_the_provider_are_retried_twice_with_pauses_and_blame_nobody() {
    let empty = || Scripted::json(200, "{}");
    let cut = || Scripted::json(200, r#"{"candidates": [{"content"#);
    for (name, failure) in [
        ("503", overloaded as fn() -> Scripted),
        ("500", internal),
        ("502 as a page", bad_gateway),
        ("200 without content", empty),
        ("200 cut short", cut),
        ("504 without a body", || Scripted::status(504)),
    ] {
        let rig = Rig::new(5);
        rig.script.otherwise(move |_| failure());
        let before = rig.clock.now();
        let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
        assert!(matches!(error, Error::UpstreamDown { .. }), "{name}: {error}");
        assert_eq!(error.attempts().len(), 3, "{name}");
        assert_eq!(rig.script.requests().len(), 3, "{name}");
        // 1 s and 2 s, each with up to as much again.
        let paused = (rig.clock.now() - before).num_milliseconds();
        assert!((3_000..=6_000).contains(&paused), "{name}: paused {paused} ms");
        assert_eq!(rig.counted(MODEL), 3, "{name}: failed calls count at Google");
        nobody_is_blamed(&rig);
    }
}

#[test]
fn a_failure_that_passes_is_not_seen_by_the_caller() {
    let rig = Rig::new(1);
    rig.script.reply(overloaded());
    rig.script.reply(bad_gateway());
    rig.script.reply(Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.text(), "Hello");
    let key = label(1);
    assert_eq!(
        account(reply.attempts()),
        [(&*key, "overloaded"), (&*key, "server_error"), (&*key, "served")]
    );
    nobody_is_blamed(&rig);
}

/// <https://github.com/tbphp/gpt-load/issues/319>: a wrong path took keys out.
#[test]
fn a_fault_of_the_request_is_handed_back_as_it_came_and_blames_nobody() {
    for (fault, status, cause, words) in [
        (bad_request(), 400, Cause::BadRequest, "contents is not specified"),
        (model_not_found(), 404, Cause::ModelNotFound, "gemini-x is not found"),
        (Scripted::json(418, r#"{"teapot": true}"#), 418, Cause::BadRequest, r#"{"teapot": true}"#),
        (Scripted::status(307).piece("moved"), 307, Cause::BadRequest, "moved"),
    ] {
        let rig = Rig::new(3);
        rig.script.reply(fault);
        let before = rig.clock.now();
        let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
        let Error::Rejected { rejected, attempts, .. } = &error else { panic!("{error}") };
        assert_eq!((rejected.status, rejected.cause), (status, cause));
        assert!(rejected.body.contains(words), "{}", rejected.body);
        assert_eq!(attempts.len(), 1);
        assert_eq!(rig.clock.now(), before);
        nobody_is_blamed(&rig);
    }
}

/// Gateways answer with whole pages, and broken ones without end.
#[test]
fn an_error_without_end_is_read_in_part() {
    let rig = Rig::new(1);
    let piece = "x".repeat(1 << 20);
    let endless = (0..50).fold(Scripted::status(400), |reply, _| reply.piece(piece.clone()));
    rig.script.reply(endless.hang());
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    let Error::Rejected { rejected, .. } = &error else { panic!("{error}") };
    assert_eq!(rejected.body.len(), 1 << 20);
    nobody_is_blamed(&rig);
}

#[test]
fn a_connection_that_was_never_made_costs_no_quota() {
    let rig = Rig::new(2);
    rig.script.otherwise(|_| Scripted::failure(TransportKind::Connect, Sent::No));
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    assert_eq!(error.attempts().len(), 3);
    assert!(error.attempts().iter().all(|attempt| attempt.status.is_none()));
    assert!(error.attempts().iter().all(|attempt| !attempt.message.is_empty()));
    assert_eq!(rig.counted(MODEL), 0, "Google never saw them");
    nobody_is_blamed(&rig);
}

#[test]
fn a_request_that_may_have_arrived_counts() {
    for kind in [TransportKind::Timeout, TransportKind::Interrupted, TransportKind::Decode] {
        let rig = Rig::new(2);
        rig.script.reply(Scripted::failure(kind, Sent::Maybe));
        rig.script.reply(Scripted::text("Hello"));
        rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        assert_eq!(rig.counted(MODEL), 2, "{kind:?}");
        nobody_is_blamed(&rig);
    }
}

/// Whatever the transport thinks of it: the head of the reply was there, so the provider has seen the request.
#[test]
fn a_reply_that_breaks_off_counts_and_is_retried() {
    let rig = Rig::new(1);
    let whole = part("Hello", Some("STOP"), (8, 1)).to_string();
    let broken = Scripted::json(200, whole[..20].to_owned()).fail(TransportKind::Interrupted);
    rig.script.reply(broken);
    rig.script.reply(Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.attempts()[0].status, Some(200));
    assert_eq!(rig.counted(MODEL), 2);
    nobody_is_blamed(&rig);
}

/// A refusal whose body is torn off is told by its status.
#[test]
fn an_error_that_breaks_off_is_judged_by_its_status() {
    let rig = Rig::new(2);
    let torn = Scripted::json(429, r#"{"error": {"code": 4"#).fail(TransportKind::Interrupted);
    rig.script.reply(torn);
    rig.script.reply(Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(account(reply.attempts())[0].1, "unspecified_quota");
    assert_eq!(reply.attempts()[1].fingerprint, fingerprint(2));
}

/// It would come again, and each time counts.
#[test]
fn a_success_in_an_unknown_form_is_not_asked_for_again() {
    let rig = Rig::new(3);
    rig.script.reply(reply(200, &json!({"candidates": "none of your business"})));
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    assert_eq!(error.attempts().len(), 1);
    assert_eq!(rig.counted(MODEL), 1);
    nobody_is_blamed(&rig);
}

#[test]
fn a_blocked_prompt_is_an_answer() {
    let rig = Rig::new(1);
    rig.script.reply(reply(200, &json!({"promptFeedback": {"blockReason": "SAFETY"}})));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.block_reason(), Some("SAFETY"));
    assert_eq!(account(reply.attempts()), [(label(1).as_str(), "served")]);
}

/// <https://github.com/gke-labs/kube-agents/issues/1225>: three retries two seconds apart where 54 s were asked for.
#[test]
fn a_pause_is_as_long_as_the_provider_asks_up_to_a_minute() {
    let asks = |wait: &str| {
        let retry = json!([{
            "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": wait,
        }]);
        reply(503, &common::bodies::error(503, "UNAVAILABLE", "high demand", retry))
    };
    for (wait, paused) in [("30s", 30), ("7200s", 60)] {
        let rig = Rig::new(1);
        rig.script.reply(asks(wait));
        rig.script.reply(Scripted::text("Hello"));
        let before = rig.clock.now();
        rig.run(rig.gemini.generate(MODEL, "hi").no_deadline()).unwrap();
        assert_eq!((rig.clock.now() - before).num_seconds(), paused, "{wait}");
    }
}

#[test]
fn retries_are_a_setting() {
    let config = RetryConfig {
        max_retries: 4,
        first_pause: Duration::from_millis(10),
        max_pause: Duration::from_millis(20),
        ..RetryConfig::default()
    };
    let rig = Rig::built(1, |pool| pool, |client| client.retry(config));
    rig.script.otherwise(|_| overloaded());
    let before = rig.clock.now();
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert_eq!(error.attempts().len(), 5);
    assert!((rig.clock.now() - before).num_milliseconds() <= 20 + 3 * 40);
}

#[test]
fn a_model_that_is_no_model_name_is_said_before_anything_is_leased() {
    let rig = Rig::new(1);
    for model in ["", "..", "a b", "../../v1/files", "x?key=1"] {
        let error = rig.run(rig.gemini.generate(model, "hi")).unwrap_err();
        assert!(matches!(error, Error::Setting(_)), "{model:?}: {error}");
    }
    assert!(rig.script.requests().is_empty());
    assert_eq!(rig.gemini.status().buckets, []);
}

/// A request that nobody could send is not retried, and takes nothing.
#[test]
fn a_request_that_cannot_be_sent_is_said_at_once() {
    let rig = Rig::new(2);
    rig.script.otherwise(|_| Scripted::failure(TransportKind::Request, Sent::No));
    let before = rig.clock.now();
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Setting(_)), "{error}");
    assert_eq!(rig.script.requests().len(), 1);
    assert_eq!(rig.clock.now(), before);
    assert_eq!(rig.counted(MODEL), 0);
    nobody_is_blamed(&rig);
}
