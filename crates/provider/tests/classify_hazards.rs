//! Replies that break clients, each under the hazard's name.
#![expect(clippy::disallowed_methods, reason = "one hazard is about real time")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod support;

use std::time::{Duration, Instant};

use http::HeaderMap;
use keywheel_core::{Cause, Wait, Window};
use keywheel_provider::{Asked, Dialect, Kind, Reply, Verdict, classify};
use serde_json::json;
use support::now;

fn judge(status: u16, body: &[u8]) -> Verdict {
    let reply = Reply { status, headers: &HeaderMap::new(), body };
    classify(Dialect::Gemini, &reply, &Asked::default(), now())
}

/// A refusal per minute that states `delay` in all three places.
fn stating(delay: &str, id: &str) -> Verdict {
    let body = json!({ "error": { "code": 429, "message": format!("x. Please retry in {delay}."),
        "status": "RESOURCE_EXHAUSTED", "details": [
            { "violations": [{ "quotaId": id, "quotaValue": "5" }] }, { "retryDelay": delay }] } })
    .to_string();
    let headers: HeaderMap =
        [(http::header::RETRY_AFTER, delay.parse().unwrap())].into_iter().collect();
    let reply = Reply { status: 429, headers: &headers, body: body.as_bytes() };
    classify(Dialect::Gemini, &reply, &Asked::default(), now())
}

#[test]
fn a_server_delay_of_zero_does_not_make_a_client_spin() {
    for zero in ["0s", "0", "0.000s", "0ms", "-0s"] {
        assert_eq!(
            stating(zero, "PerMinute").effects[0].wait,
            Wait::Reset(Window::Minute),
            "{zero}"
        );
        assert_eq!(stating(zero, "PerDay").effects[0].wait, Wait::Reset(Window::Day), "{zero}");
    }
}

#[test]
fn a_negative_server_delay_states_nothing() {
    for negative in ["-5s", "-1", "-10h", "-0.5s"] {
        assert_eq!(
            stating(negative, "PerMinute").effects[0].wait,
            Wait::Reset(Window::Minute),
            "{negative}"
        );
    }
}

#[test]
fn a_server_delay_that_is_no_number_states_nothing() {
    for nonsense in ["NaN", "NaNs", "inf", "soon", "s", "", "0x10s"] {
        let wait = stating(nonsense, "PerMinute").effects[0].wait;
        assert_eq!(wait, Wait::Reset(Window::Minute), "{nonsense}");
    }
}

#[test]
fn a_server_delay_of_absurd_length_is_cut_and_the_cut_recorded() {
    let digits = "9".repeat(300);
    for absurd in ["1000000000000000000s", &format!("{digits}s"), "1e18s", "1e300h", "31000000s"] {
        for id in ["PerMinute", "PerDay"] {
            let verdict = stating(absurd, id);
            assert_eq!(
                verdict.effects[0].wait,
                Wait::Stated(Duration::from_hours(25)),
                "{absurd} {id}"
            );
            assert!(verdict.clamped, "{absurd} {id}");
        }
    }
    assert!(!stating("10h", "PerDay").clamped);
}

#[test]
fn a_retry_after_date_in_the_past_states_nothing() {
    let headers: HeaderMap =
        [(http::header::RETRY_AFTER, "Wed, 21 Oct 2015 07:28:00 GMT".parse().unwrap())]
            .into_iter()
            .collect();
    let reply = Reply { status: 429, headers: &headers, body: b"" };
    let verdict = classify(Dialect::OpenAi, &reply, &Asked::default(), now());
    assert_eq!(verdict.effects[0].wait, Wait::Ladder);
}

#[test]
fn a_body_of_50_mb_is_judged_by_its_ends_in_no_time() {
    let filler = "x".repeat(50_000_000);
    let tail = r#"","status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"RequestsPerDay"}]}]}}"#;
    let bodies = [
        format!(r#"{{"error":{{"code":429,"message":"{filler}{tail}"#),
        format!("[{}", "{\"a\":[".repeat(8_000_000)),
        format!("<html>{filler}"),
        format!(
            "data: {{\"candidates\":\"{filler}\"}}\n\ndata: {{\"error\":{{\"code\":503}}}}\n\n"
        ),
        "\u{FFFD}".repeat(16_000_000),
        "{\"error\":{\"message\":\"".to_owned() + &"\\\"{".repeat(16_000_000),
    ];
    let started = Instant::now();
    let kinds: Vec<_> = bodies.iter().map(|body| judge(429, body.as_bytes()).kind).collect();
    let stream = judge(200, bodies[3].as_bytes());
    // Seven bodies, most of a test build's slowness allowed for: reading all 350 MB would take
    // longer.
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(kinds[0], Kind::Refused(Cause::PerDayRequests));
    assert_eq!(kinds[1], Kind::Refused(Cause::UnspecifiedQuota));
    assert_eq!(kinds[2], Kind::Refused(Cause::IpBlock));
    assert_eq!(stream.kind, Kind::Refused(Cause::ServerError));
}

#[test]
fn a_large_answer_is_served_even_if_it_talks_about_errors() {
    let chatter =
        r#"{"text": "{\"error\": {\"code\": 429}}", "error": {"code": 429}},"#.repeat(10_000);
    let body = format!(r#"{{"candidates":[{chatter}{{}}]}}"#);
    assert_eq!(judge(200, body.as_bytes()).kind, Kind::Served);
}

#[test]
fn a_body_nested_a_million_deep_overflows_no_stack() {
    for (open, close) in [("[", "]"), ("{\"error\":", "}"), ("{\"a\":[", "]}")] {
        let deep = format!("{}1{}", open.repeat(1_000_000), close.repeat(1_000_000));
        for status in [200, 400, 429, 503] {
            let verdict = judge(status, deep.as_bytes());
            assert!(!verdict.evidence.is_empty() && !verdict.key_is_dead);
        }
    }
}

#[test]
fn json_in_strings_in_strings_is_followed_only_so_far() {
    let mut body =
        r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}"#
            .to_owned();
    for level in 0..12 {
        let kind = judge(400, body.as_bytes()).kind;
        if level <= 4 {
            assert_eq!(kind, Kind::Refused(Cause::InvalidKey), "level {level}");
        }
        body = json!({ "error": { "message": body, "code": 400 } }).to_string();
    }
}

#[test]
fn invalid_utf8_hides_nothing() {
    let mut body =
        b"\xff\xfe{\"error\":{\"code\":403,\"message\":\"Your API key \xf0\x28 was reported as leaked \xc3\""
            .to_vec();
    assert_eq!(judge(403, &body).kind, Kind::Refused(Cause::LeakedOrSuspendedKey));
    body.truncate(4);
    assert_eq!(judge(403, &body).kind, Kind::Refused(Cause::BadRequest));
}

#[test]
fn an_empty_body_is_judged_by_its_status() {
    let kind = |status| judge(status, b"").cause();
    assert_eq!(kind(429), Some(Cause::UnspecifiedQuota));
    assert_eq!(kind(503), Some(Cause::ServerError));
    assert_eq!(kind(400), Some(Cause::BadRequest));
    assert_eq!(kind(0), Some(Cause::ServerError));
    assert_eq!(kind(65_535), Some(Cause::ServerError));
    assert_eq!(kind(200), None);
}
