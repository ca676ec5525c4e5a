//! What holds for every reply, however odd.

use std::time::Duration;

use chrono::DateTime;
use http::{HeaderMap, HeaderName, HeaderValue};
use keywheel_core::{Cause, Scope, Wait};
use keywheel_provider::{Asked, Dialect, Kind, Reply, Retry, Verdict, classify};
use proptest::{collection::vec, option, prelude::*, sample::select};

const FRAGMENTS: [&str; 46] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "'",
    "\\",
    "\n",
    "data: ",
    "\"error\"",
    "\"message\"",
    "\"code\"",
    "\"details\"",
    "\"violations\"",
    "\"quotaId\"",
    "\"quotaValue\"",
    "\"retryDelay\"",
    "429",
    "\"0\"",
    "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
    "PerMinute",
    "limit: 0",
    ", model: m",
    "Please retry in ",
    "9e999s",
    "99999999999999999999h",
    "-1s",
    "RESOURCE_EXHAUSTED",
    "per day",
    "retry_delay { seconds: ",
    "\u{1F600}",
    "<html>",
    "\"reason\"",
    "\"type\"",
    "\"API_KEY_INVALID\"",
    "\"CONSUMER_SUSPENDED\"",
    "\"authentication_error\"",
    "API key not valid",
    "Your API key was reported as leaked",
    "\"PERMISSION_DENIED\"",
    "401",
    "403",
    "HTTP 401",
    "{\"error\":{\"code\":400,\"details\":[{\"reason\":\"API_KEY_INVALID\"}]}}",
];

/// Text that looks like an error nearly enough to reach every branch.
fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..200),
        vec(select(FRAGMENTS.as_slice()), 0..60).prop_map(|parts| parts.concat().into_bytes()),
        (vec(select(FRAGMENTS.as_slice()), 0..40), vec(any::<u8>(), 0..9))
            .prop_map(|(parts, noise)| { [parts.concat().into_bytes(), noise].concat() }),
    ]
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    let names = [
        "retry-after",
        "retry-after-ms",
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
        "x-ratelimit-limit-req-minute",
        "anthropic-ratelimit-input-tokens-reset",
    ];
    let values = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
        "[0-9]{300}",
        "[0-9]{1,3}(ms|s|m|h)",
        Just("Wed, 21 Oct 2026 07:28:00 GMT".to_owned()),
        Just("2026-10-02T13:54:20Z".to_owned()),
        "[ -~]{0,30}",
    ];
    vec((select(names.to_vec()), values), 0..6).prop_map(|pairs| {
        let pairs = pairs.into_iter().filter_map(|(name, value)| {
            Some((HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?))
        });
        pairs.collect()
    })
}

/// What every verdict promises its readers.
fn check(verdict: &Verdict, status: u16) -> Result<(), TestCaseError> {
    prop_assert!(!verdict.evidence.is_empty());
    prop_assert!(verdict.message.chars().count() <= 500);
    let Kind::Refused(cause) = verdict.kind else {
        prop_assert!((200..300).contains(&status));
        prop_assert!(verdict.effects.is_empty() && !verdict.key_is_dead);
        return Ok(());
    };
    prop_assert_eq!(verdict.effects.first().map(|effect| effect.cause), Some(cause));
    for effect in &verdict.effects {
        if let Wait::Stated(wait) = effect.wait {
            prop_assert!(wait <= Duration::from_hours(25), "{effect:?}");
            prop_assert!(!wait.is_zero(), "{effect:?} would spin");
        }
    }
    if verdict.key_is_dead {
        let scope = verdict.effects[0].scope;
        prop_assert!(matches!(scope, Scope::Key | Scope::QuotaProject), "{scope}");
        prop_assert_eq!(verdict.retry, Retry::OtherKey);
    }
    let server = matches!(cause, Cause::Overloaded | Cause::ServerError | Cause::Deadline);
    prop_assert!(!(server && verdict.key_is_dead), "a server fault blames a key");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_reply_gets_a_verdict_with_bounded_waits(
        body in body(),
        headers in headers(),
        status in prop_oneof![any::<u16>(), select([0, 200, 400, 401, 403, 404, 429, 500, 503].to_vec())],
        tokens in option::of(any::<u64>()),
        tools in any::<bool>(),
        openai in any::<bool>(),
        now in any::<i64>(),
    ) {
        let dialect = if openai { Dialect::OpenAi } else { Dialect::Gemini };
        let now = DateTime::from_timestamp_millis(now).unwrap_or(DateTime::UNIX_EPOCH);
        let reply = Reply { status, headers: &headers, body: &body };
        let verdict = classify(dialect, &reply, &Asked { model: Some("m"), tokens, tools }, now);
        check(&verdict, status)?;
        // The JSON form must cope with any moment, too.
        let json = keywheel_provider::explain::to_json(&verdict, dialect, now);
        prop_assert!(json["evidence"].is_array());
    }

    #[test]
    fn a_server_fault_or_a_wrong_address_kills_no_key_whatever_the_body(
        body in body(),
        headers in headers(),
        status in prop_oneof![Just(404), 500..=599_u16, 600..=u16::MAX],
        openai in any::<bool>(),
    ) {
        let dialect = if openai { Dialect::OpenAi } else { Dialect::Gemini };
        let reply = Reply { status, headers: &headers, body: &body };
        let verdict = classify(dialect, &reply, &Asked::default(), DateTime::UNIX_EPOCH);
        prop_assert!(!verdict.key_is_dead, "{}", verdict.evidence[0]);
    }

    #[test]
    fn a_key_anywhere_in_the_body_is_nowhere_in_the_verdict(
        before in "[a-z \"{}:,\\\\]{0,40}",
        field in select(["message", "quotaId", "quotaMetric", "reason", "status", "code", "model"].to_vec()),
        status in select([400, 403, 429, 500].to_vec()),
    ) {
        const KEY: &str = "AIzaSyEXAMPLE0000000000000000000000000001";
        let body = format!(
            r#"{{"error":{{"{field}":"{before}{KEY} x","details":[{{"{field}":"{KEY}","violations":[{{"{field}":"{KEY}"}}]}}]}}}}"#
        );
        let headers = HeaderMap::new();
        let reply = Reply { status, headers: &headers, body: body.as_bytes() };
        let verdict = classify(Dialect::Gemini, &reply, &Asked::default(), DateTime::UNIX_EPOCH);
        let leaked = format!("{verdict:?}").contains("EXAMPLE");
        prop_assert!(!leaked, "leaked through {}", field);
    }
}
