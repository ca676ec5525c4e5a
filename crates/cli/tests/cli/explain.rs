//! `keywheel explain`.

use crate::common::{Place, assert_form};

const DAY_SPENT: &str = r#"{"error":{"code":429,"message":"You exceeded your current quota. Please retry in 36s.",
"status":"RESOURCE_EXHAUSTED","details":[
{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":
"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaValue":"20"}]},
{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"36s"}]}}"#;

/// <https://github.com/UKGovernmentBEIS/inspect_ai/issues/5526>
#[test]
fn a_spent_day_is_told_with_its_end_whatever_the_hint_says() {
    let place = Place::new();
    let arguments = ["explain", "--at", "2026-11-30T07:12:03Z", "--json"];
    let explained = place.run_with(&arguments, DAY_SPENT).ends(0).json("explain");
    let verdict = &explained["verdict"];
    assert_eq!(verdict["kind"], "per_day_requests");
    assert_eq!(verdict["until"], "2026-11-30T08:00:00.000Z");
    assert_eq!(verdict["limits"][0]["value"], 20);
    place
        .run_with(&["explain", "--at", "2026-11-30T07:12:03Z"], DAY_SPENT)
        .ends(0)
        .says("per_day_requests")
        .says("2026-11-30T08:00:00")
        .says("20 rpd");
    let dead = place.run_with(&["explain", "--json", "--status", "400"], INVALID).json("explain");
    assert_form("explain", &[&explained, &dead]);
}

const INVALID: &str =
    r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}"#;

#[test]
fn a_file_what_curl_prints_and_a_bare_body_are_all_understood() {
    let place = Place::new();
    place.write("reply.json", INVALID);
    place.run(&["explain", "reply.json"]).ends(0).says("invalid_key").says("to do");
    let curl = format!("HTTP/2 429\r\ncontent-type: application/json\r\n\r\n{DAY_SPENT}");
    place.run_with(&["explain", "-"], &curl).ends(0).says("per_day_requests");
    let recorded = r#"{"status": 429, "headers": {"retry-after": 7}, "provider": "groq"}"#;
    place.run_with(&["explain"], recorded).ends(0).says("in 7 s");
    let header = ["explain", "--status", "429", "--header", "retry-after: 7", "--provider", "groq"];
    place.run_with(&header, "slow down").ends(0).says("in 7 s");
}

#[test]
fn a_reply_that_repeats_a_key_is_explained_without_it() {
    let place = Place::new();
    let key = "AQ.EXAMPLE-explained-key";
    let body = format!(
        r#"{{"error":{{"code":403,"message":"Permission denied: Consumer 'api_key:{key}' has been suspended.","details":[{{"reason":"CONSUMER_SUSPENDED"}}]}}}}"#
    );
    place.run_with(&["explain", "--status", "403"], &body).ends(0).says("leaked_or_suspended_key");
}

#[test]
fn what_is_no_error_is_not_explained_as_one() {
    let place = Place::new();
    let answer = r#"{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}"#;
    for input in
        [answer, r#"{"name":"keywheel","version":1}"#, "[]", "42", "{\"error\":null}", "hi"]
    {
        place.run_with(&["explain"], input).ends(2).complains("no error reply");
        place.run_with(&["explain", "--json"], input).ends(2);
    }
    // Of what has the form of an error, or a status, there is something to say.
    for error in [r#"{"error":{"message":"something new"}}"#, r#"[{"error":"x"}]"#] {
        place.run_with(&["explain"], error).ends(0).says("server_error");
    }
    place.run_with(&["explain", "--status", "503"], "hi").ends(0).says("server_error");
}

#[test]
fn nothing_is_no_reply_and_a_file_that_is_not_there_is_named() {
    let place = Place::new();
    place.run_with(&["explain"], " \n").ends(2).complains("no reply");
    place.run(&["explain", "missing.json"]).ends(2).complains("missing.json");
}
