//! Golden bodies. What the official SDKs make of them was measured with google-genai 3.6.1 for Python, @google/genai
//! 3.3.0 and OpenAI's for Python and JavaScript: the class is told by the status, and the message is read from
//! `error.message` in both dialects.

use std::{collections::HashSet, sync::Arc};

use keywheel::{
    ApiKey, Error, Exhausted, ExhaustedKind, Gemini, KeySpec, StateLocation,
    ledger::{AccountId, Denied, ErrorKind, LedgerError, Limit, Period, Scope},
    raw::Call,
    testing::{Script, Scripted},
};
use serde_json::{Value, json};

use super::*;

const TIER: HeaderName = HeaderName::from_static("x-gemini-service-tier");
const NOON: &str = "2026-11-30T12:00:00Z";

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn body(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

fn answered(refusal: &Refusal, dialect: Dialect) -> Response<Bytes> {
    let response = refusal.response(dialect, at(NOON));
    assert!(
        response.headers()[header::CONTENT_TYPE].to_str().unwrap().starts_with("application/json")
    );
    response
}

fn header_of<'r>(response: &'r Response<Bytes>, name: &str) -> Option<&'r str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

fn denied(scope: Scope, cap: u64, asked: u64, retry_at: Option<&str>) -> Error {
    let limit = Limit::tokens(Period::Day, cap);
    let retry_at = retry_at.map(at);
    let denied = Denied { scope, limit, settled: 900, reserved: 50, asked, retry_at };
    Error::OverBudget { denied: Box::new(denied), attempts: vec![], skipped: vec![] }
}

fn triage() -> Scope {
    Scope::Account(AccountId::new("triage").unwrap())
}

fn exhausted(kind: ExhaustedKind, soonest: Option<&str>) -> Box<Exhausted> {
    let model = "gemini-3.6-flash".to_owned();
    Box::new(Exhausted { model, kind, soonest: soonest.map(at), reasons: vec![], omitted: 0 })
}

fn of(error: &Error) -> Refusal {
    Refusal::of(error, "triage", at(NOON))
}

#[test]
fn a_spent_budget_is_429_with_its_reset_in_googles_form() {
    let refusal = of(&denied(triage(), 1_000, 101, Some("2026-12-01T08:00:00.5Z")));
    let response = answered(&refusal, Dialect::Native);
    assert_eq!(response.status(), 429);
    assert_eq!(header_of(&response, "retry-after"), Some("72001"), "rounded up");
    assert_eq!(header_of(&response, "x-should-retry"), Some("false"));
    let message = "101 tokens do not fit into project triage's 1000 tokens a day: 900 are spent and 50 reserved; \
         it begins anew at 2026-12-01T08:00:00Z";
    let wanted = json!({ "error": {
        "code": 429,
        "message": message,
        "status": "RESOURCE_EXHAUSTED",
        "details": [{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "OVER_BUDGET",
            "domain": "keywheel",
            "metadata": { "scope": "project triage", "reset_at": "2026-12-01T08:00:00Z" },
        }],
    } });
    assert_eq!(body(&response), wanted);
}

#[test]
fn a_spent_budget_is_429_with_its_reset_in_openais_form() {
    let refusal = of(&denied(Scope::Whole, 1_000, 101, Some("2026-12-01T08:00:00Z")));
    let response = answered(&refusal, Dialect::OpenAi);
    assert_eq!(header_of(&response, "retry-after"), Some("72000"));
    let message = "101 tokens do not fit into the whole allowance's 1000 tokens a day: 900 are spent and 50 \
         reserved; it begins anew at 2026-12-01T08:00:00Z";
    let wanted = json!({ "error": {
        "message": message,
        "type": "insufficient_quota",
        "param": null,
        "code": "over_budget",
        "scope": "allowance",
        "reset_at": "2026-12-01T08:00:00Z",
    } });
    assert_eq!(body(&response), wanted);
}

#[test]
fn a_request_above_the_whole_budget_is_the_requests_fault() {
    let refusal = of(&denied(triage(), 1_000, 1_001, None));
    let response = answered(&refusal, Dialect::Native);
    assert_eq!((response.status().as_u16(), refusal.reason), (400, Reason::NeverFits));
    assert_eq!(header_of(&response, "retry-after"), None, "no time brings it through");
    assert_eq!(header_of(&response, "x-should-retry"), Some("false"));
    assert_eq!(body(&response)["error"]["status"], "INVALID_ARGUMENT");
}

#[test]
fn a_cap_that_never_begins_anew_still_says_when_to_ask_again() {
    let spent = of(&denied(triage(), 1_000, 101, None));
    assert_eq!(header_of(&answered(&spent, Dialect::Native), "retry-after"), Some("3600"));
    let reserved = of(&denied(triage(), 1_000, 100, None));
    assert_eq!(header_of(&answered(&reserved, Dialect::Native), "retry-after"), Some("30"));
}

/// Most of what is reserved comes back with the answers, and nobody need wait for tomorrow for it.
#[test]
fn room_that_requests_under_way_hold_is_not_told_to_come_back_with_the_new_day() {
    let held = of(&denied(triage(), 1_000, 100, Some("2026-12-01T08:00:00Z")));
    let response = answered(&held, Dialect::Native);
    assert_eq!(header_of(&response, "retry-after"), Some("30"));
    // The line was its chance to be let through at once.
    assert_eq!(header_of(&response, "x-should-retry"), Some("false"));
    let error = &body(&response)["error"];
    assert_eq!(error["details"][0]["metadata"]["reset_at"], "2026-12-01T08:00:00Z");
    assert_eq!(error["details"].as_array().unwrap().len(), 1, "no RetryInfo");
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with("; what is reserved may be given back any moment"), "{message}");
    // The day may turn before.
    let soon = of(&denied(triage(), 1_000, 100, Some("2026-11-30T12:00:07Z")));
    assert_eq!(header_of(&answered(&soon, Dialect::Native), "retry-after"), Some("7"));
}

#[test]
fn exhausted_keys_are_503_and_worth_a_retry_only_soon() {
    let cooling = |soonest| Error::Exhausted {
        exhausted: exhausted(ExhaustedKind::Cooling, soonest),
        attempts: vec![],
        skipped: vec![],
    };
    let soon = of(&cooling(Some("2026-11-30T12:00:41.2Z")));
    let response = answered(&soon, Dialect::Native);
    assert_eq!(response.status(), 503);
    assert_eq!(header_of(&response, "retry-after"), Some("42"));
    assert_eq!(header_of(&response, "x-should-retry"), Some("true"));
    let error = &body(&response)["error"];
    assert_eq!(error["status"], "UNAVAILABLE");
    let retry = json!({
        "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "42s",
    });
    assert_eq!(error["details"][1], retry);
    assert_eq!(error["message"], "no key can serve gemini-3.6-flash before 2026-11-30T12:00:41Z");

    let tomorrow = answered(&of(&cooling(Some("2026-12-01T08:00:02Z"))), Dialect::Native);
    assert_eq!(header_of(&tomorrow, "x-should-retry"), Some("false"));
    assert_eq!(body(&tomorrow)["error"]["details"].as_array().unwrap().len(), 1, "no RetryInfo");

    let never = answered(&of(&cooling(None)), Dialect::OpenAi);
    assert_eq!(header_of(&never, "x-should-retry"), Some("false"));
    assert_eq!(body(&never)["error"]["type"], "server_error");
    let busy = Error::Exhausted {
        exhausted: exhausted(ExhaustedKind::Busy, None),
        attempts: vec![],
        skipped: vec![],
    };
    assert_eq!(header_of(&answered(&of(&busy), Dialect::Native), "retry-after"), Some("5"));
}

#[test]
fn a_moment_that_is_over_is_one_second_away() {
    let refusal = Refusal::new(Reason::InFlight, "x").reset_at(Some(at("2026-11-30T11:00:00Z")));
    assert_eq!(header_of(&answered(&refusal, Dialect::Native), "retry-after"), Some("1"));
    let refusal = Refusal::new(Reason::InFlight, "x").retry_after(Duration::from_millis(1_001));
    assert_eq!(header_of(&answered(&refusal, Dialect::Native), "retry-after"), Some("2"));
}

#[tokio::test]
async fn what_the_provider_rejects_goes_back_as_it_came() {
    let text = "{\n  \"error\": {\"code\": 404, \"message\": \"no such model\", \"status\": \"NOT_FOUND\"}\n}\n";
    let script = Script::new();
    script.otherwise(move |_| {
        Scripted::json(404, text)
            .header(header::SET_COOKIE, HeaderValue::from_static("a=b"))
            .header(TIER, HeaderValue::from_static("standard"))
    });
    let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1");
    let gemini = Gemini::builder()
        .keys([key])
        .state(StateLocation::None)
        .transport(Arc::new(script))
        .build()
        .await
        .unwrap();
    let error = gemini.send(Call::post("models/m:generateContent", "{}")).await.unwrap_err();
    for dialect in [Dialect::Native, Dialect::OpenAi] {
        let response = answered(&of(&error), dialect);
        assert_eq!((response.status().as_u16(), response.body().as_ref()), (404, text.as_bytes()));
        assert_eq!(header_of(&response, "x-gemini-service-tier"), Some("standard"));
        assert_eq!(header_of(&response, "set-cookie"), None);
        assert_eq!(header_of(&response, "www-authenticate"), None);
    }
}

/// One of each, and what becomes of it.
fn every_error() -> Vec<(Error, u16, Reason)> {
    let (attempts, skipped) = (vec![], vec![]);
    let dead = exhausted(ExhaustedKind::AllDead, None);
    let none = exhausted(ExhaustedKind::NoKeys, None);
    let secret = "AIzaSyEXAMPLE0000000000000000000000000001";
    let ledger = LedgerError::new(ErrorKind::Store, format!("/var/lib/ledger.db: {secret}"));
    let beyond = LedgerError::new(ErrorKind::Invalid, "a model's name is empty");
    vec![
        (Error::Setting("no model's name".into()), 400, Reason::BadRequest),
        (Error::NoKeys { exhausted: none, attempts: vec![], skipped: vec![] }, 503, Reason::NoKeys),
        (
            Error::AllKeysDead { exhausted: dead, attempts: vec![], skipped: vec![] },
            503,
            Reason::AllKeysDead,
        ),
        (Error::Ledger { source: ledger, attempts: vec![] }, 503, Reason::LedgerDown),
        (Error::Ledger { source: beyond, attempts: vec![] }, 400, Reason::BadBody),
        (Error::TooLarge { estimated: 9, limit: 5, skipped: vec![] }, 400, Reason::TooLarge),
        (
            Error::UpstreamDown {
                reason: "HTTP 500".into(),
                next_attempt_at: Some(at("2026-11-30T12:00:15Z")),
                attempts,
                skipped,
            },
            503,
            Reason::UpstreamDown,
        ),
        (Error::DeadlineReached { attempts: vec![] }, 504, Reason::DeadlineReached),
        (Error::StreamBroken { reason: "cut".into(), verdict: None }, 502, Reason::BadAnswer),
        (
            Error::MixedOwners { owners: vec![("files/a".into(), "one".into())] },
            409,
            Reason::MixedOwners,
        ),
        (
            Error::FileFailed { name: "files/a".into(), reason: "{}".into() },
            400,
            Reason::BadRequest,
        ),
        (
            Error::WrongShape {
                reason: "no JSON".into(),
                text: secret.into(),
                finish_reason: None,
                attempts: vec![],
            },
            502,
            Reason::BadAnswer,
        ),
        (Error::Unreadable { reason: "no JSON".into(), attempts: vec![] }, 502, Reason::BadAnswer),
        (denied(triage(), 1_000, 100, Some("2026-12-01T08:00:00Z")), 429, Reason::OverBudget),
        (denied(triage(), 1_000, 2_000, None), 400, Reason::NeverFits),
    ]
}

#[test]
fn every_way_to_end_has_its_status_and_is_read_in_both_dialects() {
    for (error, status, reason) in every_error() {
        let refusal = of(&error);
        assert_eq!((refusal.status.as_u16(), refusal.reason), (status, reason), "{error}");
        for dialect in [Dialect::Native, Dialect::OpenAi] {
            let response = answered(&refusal, dialect);
            let error = &body(&response)["error"];
            assert!(!error["message"].as_str().unwrap().is_empty());
            // Who may be told to come back is told when.
            if matches!(status, 429 | 503) {
                assert!(header_of(&response, "retry-after").is_some(), "{reason:?}");
            }
            // No file, no key, no key's label.
            let text = String::from_utf8_lossy(response.body()).into_owned();
            assert!(!text.contains("AIza") && !text.contains("/var/lib"), "{reason:?}");
        }
    }
}

#[test]
fn every_reason_has_one_name_and_a_body_that_both_kinds_of_clients_read() {
    let names: HashSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    for reason in Reason::ALL {
        let refusal = Refusal::new(reason, "why \"it\" is");
        let google = body(&answered(&refusal, Dialect::Native));
        let error = &google["error"];
        // Python's SDK finds an error in a stream by this being the first key.
        assert!(google.as_object().unwrap().keys().next().is_some_and(|key| key == "error"));
        assert_eq!(error["code"], reason.status().as_u16());
        assert_eq!(error["details"][0]["reason"], reason.as_str().to_ascii_uppercase());
        assert_eq!(error["details"][0]["metadata"]["scope"], "request");
        let openai = body(&answered(&refusal, Dialect::OpenAi));
        assert_eq!(openai["error"]["code"], reason.as_str());
        assert_eq!(openai["error"]["message"], "why \"it\" is");
        assert!(openai["error"]["type"].is_string());
    }
}

#[test]
fn whoever_shows_no_token_is_told_how_to_show_one() {
    let refusal = Refusal::new(Reason::NoToken, "show it");
    let response = answered(&refusal, Dialect::OpenAi);
    assert_eq!(response.status(), 401);
    assert_eq!(header_of(&response, "www-authenticate"), Some("Bearer"));
    assert_eq!(body(&response)["error"]["type"], "authentication_error");
}

/// OpenAI's clients would make three times as many requests of each, which the provider has to bear.
#[test]
fn what_the_gateway_tried_several_times_is_not_to_be_tried_again() {
    let down = |next_attempt_at| Error::UpstreamDown {
        reason: "overloaded".to_owned(),
        next_attempt_at,
        attempts: vec![],
        skipped: vec![],
    };
    let tried = answered(&of(&down(None)), Dialect::OpenAi);
    assert_eq!(header_of(&tried, "x-should-retry"), Some("false"));
    assert!(header_of(&tried, "retry-after").is_some());
    // Nothing is sent before that moment, so that trying again costs nobody anything.
    let left_alone = answered(&of(&down(Some(at("2026-11-30T12:01:00Z")))), Dialect::OpenAi);
    assert_eq!(header_of(&left_alone, "x-should-retry"), None);
}

/// A suspended key is repeated in Google's own message.
#[test]
fn no_refusal_repeats_a_key() {
    let key = ApiKey::new("AIzaSyEXAMPLE0000000000000000000000000001").unwrap();
    let error = Error::UpstreamDown {
        reason: format!("Consumer 'api_key:{}' has been suspended", key.expose()),
        next_attempt_at: None,
        attempts: vec![],
        skipped: vec![],
    };
    let response = answered(&of(&error), Dialect::Native);
    assert!(!String::from_utf8_lossy(response.body()).contains(key.expose()));
}
