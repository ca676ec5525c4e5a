//! The JSON form: what it accepts, and how it resolves waits.

use chrono::{DateTime, Utc};
use keywheel_core::{Wait, Window};
use keywheel_provider::{
    Dialect, explain,
    explain::{default_until, explain_bytes},
};
use serde_json::{Value, json};

fn now() -> DateTime<Utc> {
    "2026-10-02T13:54:20Z".parse().expect("a date")
}

fn judge(case: &Value) -> Value {
    explain(case.as_object().expect("an object"), now())
}

#[test]
fn everything_inside_a_case_may_be_missing_or_of_another_kind() {
    let odd = [
        json!({}),
        json!({ "status": null, "headers": null, "body": null, "asked": null, "provider": null }),
        json!({ "status": -1, "headers": [1, 2], "body": 7, "asked": [], "now": "yesterday" }),
        json!({ "status": 1e300, "headers": { "bad name": "x", "ok": ["a", 1, {}] }, "body": [] }),
        json!({ "status": "abc", "provider": "unheard-of", "asked": { "tokens": "many" } }),
    ];
    for case in &odd {
        let verdict = judge(case);
        assert_eq!(verdict["kind"], "server_error", "{case}");
        assert_eq!(verdict["key_is_dead"], false, "{case}");
    }
}

/// What anybody has in a log is the body alone.
#[test]
fn a_body_without_a_case_around_it_is_read_as_a_body() {
    let quota = "GenerateRequestsPerDayPerProjectPerModel-FreeTier";
    let violation = json!({ "quotaId": quota, "quotaValue": "20" });
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]
    }]);
    let error = json!({ "code": 429, "status": "RESOURCE_EXHAUSTED", "details": details });
    let verdict = judge(&json!({ "error": error }));
    assert_eq!(verdict["kind"], "per_day_requests");
    assert_eq!(verdict["until"], "2026-10-03T07:00:00.000Z");
}

#[test]
fn statuses_headers_and_bodies_are_read_in_every_form() {
    let body = json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED" } });
    let forms = [
        json!({ "status": 429, "headers": { "Retry-After": "30" }, "body": body.to_string() }),
        json!({ "status": "429", "headers": { "RETRY-AFTER": 30 }, "body": body }),
        json!({ "status": 429.0, "headers": { "retry-after": ["5", 30] }, "body": body }),
    ];
    for case in &forms {
        let verdict = judge(case);
        assert_eq!(
            (&verdict["kind"], &verdict["delay_s"]),
            (&json!("unspecified_quota"), &json!(30.0))
        );
        assert_eq!(verdict["until"], "2026-10-02T13:54:50.000Z");
    }
}

#[test]
fn now_may_be_a_date_or_an_epoch_and_decides_when_a_day_ends() {
    let at = |now: Value, provider: &str| {
        let body = json!({ "error": { "message": "requests per day" } });
        judge(&json!({ "status": 429, "body": body, "now": now, "provider": provider }))["until"]
            .clone()
    };
    assert_eq!(at(json!("2026-10-02T23:00:00Z"), "gemini"), "2026-10-03T07:00:00.000Z");
    assert_eq!(at(json!(1_790_982_000), "gemini"), "2026-10-03T07:00:00.000Z");
    assert_eq!(at(json!("2026-10-02T23:00:00Z"), "groq"), "2026-10-03T00:00:00.000Z");
    assert_eq!(at(json!("2026-10-02T23:00:00Z"), "unheard-of"), "2026-10-03T00:00:00.000Z");
}

#[test]
fn default_waits_have_no_jitter_and_survive_the_end_of_time() {
    let minute = default_until(Wait::Reset(Window::Minute), Dialect::Gemini, now());
    assert_eq!(minute, default_until(Wait::Ladder, Dialect::OpenAi, now()));
    assert_eq!(minute.map(|at| (at - now()).num_seconds()), Some(60));
    let hour = default_until(Wait::Reset(Window::Hour), Dialect::Gemini, now());
    assert_eq!(hour.map(|at| (at - now()).num_seconds()), Some(3600));
    assert_eq!(default_until(Wait::None, Dialect::Gemini, now()), None);
    let end = DateTime::<Utc>::MAX_UTC;
    assert_eq!(default_until(Wait::Ladder, Dialect::Gemini, end), None);
    assert_eq!(default_until(Wait::Reset(Window::Day), Dialect::OpenAi, end), None);
}

#[test]
fn bytes_without_a_case_are_explained_by_what_they_say() {
    let text = b"[429 Too Many Requests] limit. Please retry in 5s. [{\"quotaId\": \"x\"}]";
    assert_eq!(explain_bytes(text, now())["kind"], "unspecified_quota");
    assert_eq!(explain_bytes(b"\xff\x00", now())["kind"], "server_error");
}

#[test]
fn what_has_neither_a_status_nor_known_words_is_not_recognised() {
    let recognised = |body: &str| explain_bytes(body.as_bytes(), now())["recognised"].clone();
    for body in ["", "Good morning!", r#"{"candidates": []}"#] {
        assert_eq!(recognised(body), false, "{body}");
    }
    for body in [r#"{"error": {"code": 418}}"#, "API key not valid.", "429 Too Many Requests"] {
        assert_eq!(recognised(body), true, "{body}");
    }
    for status in [200, 418, 503] {
        let case = json!({"status": status, "body": "Good morning!"});
        assert_eq!(judge(&case)["recognised"], true, "{status}");
    }
}
