//! What users reported of other tools, each as a test: the address of the report stands above it.
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod support;

use serde_json::{Map, Value, json};
use support::{corpus, now};

const FREE: &str = "generativelanguage.googleapis.com/generate_content_free_tier_requests";
const DAY: &str = "GenerateRequestsPerDayPerProjectPerModel-FreeTier";
const MINUTE: &str = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier";
const TOKENS: &str = "GenerateContentInputTokensPerModelPerMinute-FreeTier";

/// A Gemini 429 with these quotas and this hint.
fn quota(ids: &[&str], value: &str, hint: &str) -> Value {
    let violations: Vec<_> = ids
        .iter()
        .map(|id| json!({ "quotaMetric": FREE, "quotaId": id, "quotaValue": value }))
        .collect();
    error(
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        "RESOURCE_EXHAUSTED",
        &json!([
            { "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations },
            { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": hint },
        ]),
    )
}

fn error(code: u16, message: &str, status: &str, details: &Value) -> Value {
    json!({ "error": { "code": code, "message": message, "status": status, "details": details } })
}

fn judge(status: u16, body: &Value) -> Value {
    judge_with(status, body, &json!({}))
}

fn judge_with(status: u16, body: &Value, more: &Value) -> Value {
    let mut case: Map<String, Value> = more.as_object().unwrap().clone();
    case.insert("status".into(), status.into());
    case.insert("body".into(), body.clone());
    keywheel_provider::explain(&case, now())
}

/// The pause in whole seconds.
fn seconds(verdict: &Value) -> u64 {
    verdict["delay_s"].as_f64().unwrap() as u64
}

/// From `now()`, 06:54 in California, to midnight there.
const TO_PACIFIC_MIDNIGHT: u64 = 17 * 3600 + 5 * 60 + 40;

// https://github.com/snailyp/gemini-balance/issues/367
// https://github.com/UKGovernmentBEIS/inspect_ai/issues/5526
// https://github.com/zzstoatzz/plyr.fm/pull/2046
// https://github.com/tashfeenahmed/freellmapi/issues/92
#[test]
fn a_per_day_quota_is_out_until_pacific_midnight_whatever_the_hint() {
    for hint in ["0s", "5s", "36s", "60s", "599s"] {
        let verdict = judge(429, &quota(&[DAY], "20", hint));
        assert_eq!(
            (&verdict["kind"], &verdict["scope"]),
            (&json!("per_day_requests"), &json!("bucket"))
        );
        assert_eq!(seconds(&verdict), TO_PACIFIC_MIDNIGHT, "hint {hint}");
    }
}

// https://github.com/diegosouzapw/OmniRoute/issues/9504
// https://github.com/diegosouzapw/OmniRoute/pull/3686
// https://github.com/Wei-Shaw/sub2api/issues/6828
#[test]
fn a_per_minute_quota_waits_seconds_and_never_for_the_day() {
    let verdict = judge(429, &quota(&[MINUTE], "5", "39s"));
    assert_eq!((&verdict["kind"], seconds(&verdict)), (&json!("per_minute_requests"), 39));
}

// https://github.com/can1357/oh-my-pi/issues/1253
// https://github.com/BerriAI/litellm/issues/25507
// https://github.com/Aider-AI/aider/issues/3694
// https://github.com/langchain-ai/langchain-google/issues/945
#[test]
fn the_hint_in_the_body_is_used_for_minutes() {
    let verdict = judge(429, &quota(&[TOKENS], "250000", "42s"));
    assert_eq!((&verdict["kind"], seconds(&verdict)), (&json!("per_minute_tokens"), 42));
}

// https://github.com/interviewstreet/hiring-agent/pull/243
#[test]
fn no_wait_is_shorter_than_any_hint() {
    let mut body = quota(&[MINUTE], "5", "9s");
    body["error"]["message"] = json!("Quota exceeded.\nPlease retry in 9.9s.");
    assert!(judge(429, &body)["delay_s"].as_f64().unwrap() >= 9.9);
    let headers = json!({ "headers": { "Retry-After": "30" } });
    assert!(judge_with(429, &body, &headers)["delay_s"].as_f64().unwrap() >= 30.0);
}

// https://github.com/dcdpr/jp/pull/1061
#[test]
fn fractional_and_compound_durations_are_accepted() {
    for (hint, millis) in [("45.837906927s", 46_337), ("242ms", 742), ("1m2s", 62_500)] {
        let verdict = judge(429, &quota(&[MINUTE], "5", hint));
        assert_eq!(
            (verdict["delay_s"].as_f64().unwrap() * 1000.0).round() as u64,
            millis,
            "{hint}"
        );
    }
}

// https://github.com/google-gemini/gemini-cli/issues/22486
#[test]
fn a_limit_of_zero_is_no_free_tier_and_no_wait() {
    let verdict = judge(429, &quota(&[DAY, MINUTE], "0", "57s"));
    assert_eq!(
        (&verdict["kind"], &verdict["delay_s"]),
        (&json!("free_tier_not_available"), &Value::Null)
    );
    assert!(verdict["fix"].as_str().unwrap().contains("no free quota"));
}

// https://github.com/googleapis/python-genai/issues/2044
#[test]
fn several_quotas_at_once_are_all_kept_and_the_day_is_the_headline() {
    let verdict = judge(429, &quota(&[MINUTE, TOKENS, DAY], "20", "12s"));
    let causes: Vec<_> =
        verdict["effects"].as_array().unwrap().iter().map(|e| e["cause"].clone()).collect();
    assert_eq!(causes, ["per_day_requests", "per_minute_requests", "per_minute_tokens"]);
    assert_eq!(seconds(&verdict), TO_PACIFIC_MIDNIGHT);
    assert_eq!(verdict["limits"].as_array().unwrap().len(), 3);
}

// https://github.com/NousResearch/hermes-agent/issues/53654
#[test]
fn the_day_ends_at_midnight_and_not_24_hours_later() {
    let late = json!({ "now": "2026-11-01T06:30:00Z" }); // the day on which the clocks go back
    let verdict = judge_with(429, &quota(&[DAY], "20", "5s"), &late);
    assert_eq!(verdict["until"], "2026-11-01T07:00:00.000Z");
    let early = json!({ "now": "2026-11-01T07:30:00Z" });
    let verdict = judge_with(429, &quota(&[DAY], "20", "5s"), &early);
    assert_eq!(verdict["until"], "2026-11-02T08:00:00.000Z");
}

// https://github.com/NousResearch/hermes-agent/issues/108656
// https://github.com/openclaw/openclaw/issues/3231
// https://github.com/Wei-Shaw/sub2api/issues/5201
#[test]
fn one_models_quota_concerns_that_model_only() {
    for case in corpus().iter().filter(|case| case.kind().starts_with("per_")) {
        let verdict = keywheel_provider::explain(&case.json, now());
        for effect in verdict["effects"].as_array().unwrap() {
            assert!(matches!(effect["scope"].as_str(), Some("bucket" | "request")), "{}", case.id);
        }
    }
}

// https://github.com/router-for-me/CLIProxyAPI/issues/5639
#[test]
fn a_reset_far_away_is_cut_to_25_hours_and_that_is_said() {
    let verdict = judge(429, &quota(&[DAY], "20", "2592000s"));
    assert_eq!((seconds(&verdict), &verdict["clamped"]), (25 * 3600, &json!(true)));
    assert!(verdict["evidence"].to_string().contains("cut to the longest"));
}

// https://github.com/tbphp/gpt-load/issues/278
// https://github.com/tbphp/gpt-load/issues/361
#[test]
fn server_faults_never_blame_a_key() {
    for status in [500, 502, 503, 504, 499, 520, 529] {
        for body in [json!(""), error(status, "x", "UNAVAILABLE", &json!([])), json!("<html>")] {
            let verdict = judge(status, &body);
            assert_eq!(
                (&verdict["key_is_dead"], &verdict["scope"]),
                (&json!(false), &json!("model")),
                "{status}"
            );
            assert_eq!(verdict["retry"], "back_off");
        }
    }
}

// https://github.com/tbphp/gpt-load/issues/319
#[test]
fn a_wrong_path_never_blames_a_key() {
    for body in
        ["<!DOCTYPE html><title>Error 404 (Not Found)!!1</title>", "404 page not found", "", "{}"]
    {
        let verdict = judge(404, &json!(body));
        assert_eq!(
            (&verdict["kind"], &verdict["key_is_dead"]),
            (&json!("bad_request"), &json!(false)),
            "{body}"
        );
    }
}

// https://github.com/yym68686/uni-api/issues/140
// https://github.com/MadAppGang/claudish/issues/59
// https://github.com/Wei-Shaw/sub2api/issues/1709
#[test]
fn a_bad_key_that_comes_as_400_is_a_dead_key() {
    let info = json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID" }]);
    let verdict = judge(400, &error(400, "API key not valid.", "INVALID_ARGUMENT", &info));
    assert_eq!((&verdict["kind"], &verdict["key_is_dead"]), (&json!("invalid_key"), &json!(true)));
    assert_eq!((&verdict["scope"], &verdict["retry"]), (&json!("key"), &json!("other_key")));
}

// https://github.com/tbphp/gpt-load/issues/317
// https://github.com/poenl/gemini-api/issues/8
#[test]
fn a_suspended_or_denied_project_takes_all_its_keys_with_it() {
    let info =
        json!([{ "reason": "CONSUMER_SUSPENDED", "metadata": { "consumer": "projects/123" } }]);
    let suspended =
        judge(403, &error(403, "Consumer has been suspended.", "PERMISSION_DENIED", &info));
    let text = "Your project has been denied access. Please contact support.";
    let denied = judge(403, &error(403, text, "PERMISSION_DENIED", &json!([])));
    for verdict in [&suspended, &denied] {
        assert_eq!(verdict["kind"], "leaked_or_suspended_key");
        assert_eq!(
            (&verdict["scope"], &verdict["key_is_dead"]),
            (&json!("quota_project"), &json!(true))
        );
    }
    assert_eq!(suspended["project_number"], "projects/123");
}

// https://github.com/continuedev/continue/issues/10513
#[test]
fn a_leaked_key_is_dead_for_good_and_the_fix_is_said() {
    let text = "Your API key was reported as leaked. Please use another API key.";
    let verdict = judge(403, &error(403, text, "PERMISSION_DENIED", &json!([])));
    assert_eq!(
        (&verdict["kind"], &verdict["scope"]),
        (&json!("leaked_or_suspended_key"), &json!("key"))
    );
    assert!(verdict["fix"].as_str().unwrap().contains("new key"));
}

// https://github.com/songquanpeng/one-api/issues/1775
// https://github.com/snailyp/gemini-balance/issues/382
#[test]
fn whatever_kills_a_key_says_why() {
    for case in corpus() {
        let verdict = keywheel_provider::explain(&case.json, now());
        if verdict["key_is_dead"] == true {
            assert!(
                verdict["fix"].is_string() && verdict["evidence"][0].is_string(),
                "{}",
                case.id
            );
        }
    }
}

// https://github.com/NousResearch/hermes-agent/issues/21058
// https://github.com/voidmind-io/voidllm/issues/182
#[test]
fn a_429_never_says_that_a_key_is_invalid() {
    for case in corpus().iter().filter(|case| case.status() == 429) {
        assert_eq!(
            keywheel_provider::explain(&case.json, now())["key_is_dead"],
            false,
            "{}",
            case.id
        );
    }
}

// https://github.com/doggy8088/ask-page-extension/issues/21
// https://github.com/hihumanzone/Gemini-Discord-Bot/issues/48
#[test]
fn a_bare_429_to_a_request_with_search_concerns_the_tool_only() {
    let bare = error(
        429,
        "Resource has been exhausted (e.g. check quota).",
        "RESOURCE_EXHAUSTED",
        &json!([]),
    );
    let with_tools = json!({ "asked": { "tools": true } });
    let verdict = judge_with(429, &bare, &with_tools);
    assert_eq!((&verdict["kind"], &verdict["scope"]), (&json!("tool_quota"), &json!("tool")));
    assert_eq!(seconds(&verdict), 3600);
    assert_eq!(judge(429, &bare)["kind"], "unspecified_quota");
    let named = judge_with(429, &quota(&[DAY], "20", "5s"), &with_tools);
    assert_eq!(named["kind"], "per_day_requests");
}

// https://github.com/constellation-works/orbit/pull/490
// https://github.com/ortus-boxlang/bx-ai/pull/235
// https://github.com/ultimatejimmy/xray.koplugin/issues/72: keys of the new form, too.
#[test]
fn keys_in_a_reply_are_taken_out_of_what_is_said_about_it() {
    for key in ["AIzaSyEXAMPLE0000000000000000000000000001", "AQ.EXAMPLE-key-1-of-another-form"] {
        let text =
            format!("Consumer 'api_key:{key}' has been suspended. See https://x/v1?key={key}");
        let info = json!([{ "reason": "CONSUMER_SUSPENDED", "metadata": { "consumer": format!("api_key:{key}") } }]);
        let verdict = judge(403, &error(403, &text, "PERMISSION_DENIED", &info));
        assert_eq!(verdict["kind"], "leaked_or_suspended_key");
        assert!(!verdict.to_string().contains("EXAMPLE"), "a key came through");
        assert_eq!(verdict["project_number"], Value::Null);
    }
}

// https://github.com/livekit/agents/issues/3723: of `X-Server-Timeout`, which Google's SDKs send for a timeout.
#[test]
fn a_deadline_of_the_caller_s_that_is_too_short_is_no_fault_of_a_key() {
    let text = "Manually set deadline 5s is too short. Minimum allowed deadline is 10s.";
    let verdict = judge(400, &error(400, text, "INVALID_ARGUMENT", &json!([])));
    assert_eq!((&verdict["kind"], &verdict["scope"]), (&json!("bad_request"), &json!("request")));
    assert_eq!(verdict["retry"], "never");
}
