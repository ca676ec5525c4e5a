//! Replies that repeat what the caller, or another server, has said: none of it is the provider's
//! word about a key.

mod support;

use http::HeaderMap;
use keywheel_core::{Cause, Scope};
use keywheel_provider::{Asked, Dialect, Reply, Verdict, classify};
use serde_json::{Value, json};
use support::now;

fn judge(status: u16, body: impl AsRef<[u8]>) -> Verdict {
    let reply = Reply { status, headers: &HeaderMap::new(), body: body.as_ref() };
    let asked = Asked { model: Some("gemini-x"), tokens: Some(100), tools: false };
    classify(Dialect::Gemini, &reply, &asked, now())
}

fn error(code: u16, status: &str, message: &str, details: &Value) -> String {
    json!({ "error": { "code": code, "message": message, "status": status, "details": details } })
        .to_string()
}

fn refused(message: &str, details: &Value) -> Verdict {
    judge(400, error(400, "INVALID_ARGUMENT", message, details))
}

#[test]
fn a_refused_request_that_is_quoted_kills_no_key() {
    let suspended = r#"{"error":{"code":403,"details":[{"reason":"CONSUMER_SUSPENDED"}]}}"#;
    let python = "[{'reason': 'API_KEY_INVALID'}]";
    for message in [
        "Invalid JSON payload received. Unknown name \"API key not valid. Please pass a valid API \
            key.\" at 'generation_config': Cannot find field."
            .to_owned(),
        "Unknown name \"API key not valid\" at 'generation_config': Cannot find field.".to_owned(),
        "Invalid value at 'x' (TYPE_ENUM), \"my api key expired\"".to_owned(),
        "Invalid value at 'tool_config' , \"account has been suspended\"".to_owned(),
        "The role 'API key not valid' is not known.".to_owned(),
        "Functions must have names: API key not valid".to_owned(),
        "API keys \"was reported as leaked\" and \"has been suspended\" are no enum".to_owned(),
        format!("Invalid value at 'contents[0].role' (TYPE_STRING), {suspended}"),
        format!("Tools must have a name, got {suspended}"),
        format!("{suspended} is not a role"),
        format!("Error: the role \"{python}\" is not known"),
        format!("400 Invalid value at 'contents[0].role' (TYPE_STRING), {python}"),
        format!("Invalid value at 'contents[0].role', \"{}\" {python}", "x".repeat(200_000)),
    ] {
        let start: String = message.chars().take(90).collect();
        for body in [
            error(400, "INVALID_ARGUMENT", &message, &json!([])),
            json!({ "error": error(400, "INVALID_ARGUMENT", &message, &json!([])) }).to_string(),
            format!(
                "400 INVALID_ARGUMENT. {}",
                error(400, "INVALID_ARGUMENT", &message, &json!([]))
            ),
        ] {
            let verdict = judge(400, body);
            assert_eq!(verdict.cause(), Some(Cause::BadRequest), "{start}");
            assert_eq!(verdict.effects[0].scope, Scope::Request, "{start}");
        }
        // The text alone, as an SDK's error has it.
        assert!(!judge(0, format!("400 INVALID_ARGUMENT: {message}")).key_is_dead, "{start}");
    }
}

#[test]
fn what_field_violations_quote_kills_no_key() {
    let details = json!([{ "@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations":
        [{ "field": "x", "description": "API key expired", "reason": "API_KEY_INVALID" }] }]);
    assert_eq!(refused("API key not valid as a name.", &details).cause(), Some(Cause::BadRequest));
    let named = json!([details[0], { "reason": "API_KEY_INVALID" }]);
    assert_eq!(refused("x", &named).cause(), Some(Cause::InvalidKey));
}

#[test]
fn what_a_provider_says_itself_still_kills_a_key() {
    let plain = [
        (400, "API key not valid. Please pass a valid API key.", Cause::InvalidKey),
        (400, "API key expired. Please renew the API key.", Cause::ExpiredKey),
        (403, "Your API key was reported as leaked. x", Cause::LeakedOrSuspendedKey),
        (403, "Consumer 'api_key:x' has been suspended.", Cause::LeakedOrSuspendedKey),
        (403, "Your project has been denied access.", Cause::LeakedOrSuspendedKey),
    ];
    let behind =
        ["", "400 ", "[GoogleGenerativeAI Error]: Error fetching from https://x: [403 No] "];
    for (status, text, cause) in plain {
        for opening in behind {
            let said = format!("{opening}{text}");
            let body = error(status, "INVALID_ARGUMENT", &said, &json!([]));
            assert_eq!(judge(status, &body).cause(), Some(cause), "{said}");
            assert_eq!(judge(status, &said).cause(), Some(cause), "{said}");
            let gateway = json!({ "error": { "message": format!("ApiError: {body}") } });
            assert_eq!(judge(status, gateway.to_string()).cause(), Some(cause), "{said}");
        }
    }
}

#[test]
fn a_gateway_that_tells_of_a_refusal_upstream_kills_no_key() {
    let invalid = json!([{ "reason": "API_KEY_INVALID" }]);
    let suspended = json!([{ "reason": "CONSUMER_SUSPENDED" }]);
    let inner = error(400, "INVALID_ARGUMENT", "API key not valid.", &invalid);
    for (status, body) in [
        (502, "HTTP 401 unauthorized from upstream".to_owned()),
        (503, "[401] try later".to_owned()),
        (503, "API key not valid. Please pass a valid API key.".to_owned()),
        (503, inner.clone()),
        (503, r#"{"error":{"type":"authentication_error","message":"x"}}"#.to_owned()),
        (500, error(500, "INTERNAL", "x", &suspended)),
        (500, json!({ "error": { "message": inner, "code": 500 } }).to_string()),
    ] {
        let verdict = judge(status, &body);
        assert!(!verdict.key_is_dead, "{status} {body}");
        assert_eq!(verdict.cause(), Some(Cause::ServerError), "{status} {body}");
    }
    let inner = json!({ "error": { "message": inner, "code": 404 } }).to_string();
    for body in [inner, error(404, "NOT_FOUND", "x", &invalid)] {
        assert_eq!(judge(404, &body).cause(), Some(Cause::ModelNotFound), "{body}");
    }
    assert_eq!(judge(429, "[403] permission").cause(), Some(Cause::UnspecifiedQuota));
    // Of which only the text is known, the text's number counts.
    assert_eq!(judge(0, "HTTP 401 unauthorized").cause(), Some(Cause::InvalidKey));
}

#[test]
fn a_tool_is_known_by_whole_words_of_its_quotas_name() {
    let cause = |metric: &str| {
        let violation = json!({ "quotaMetric": format!("g.googleapis.com/{metric}"), "quotaValue": "5",
            "quotaId": "RequestsPerDayPerProject", "quotaDimensions": { "model": "maps-search" } });
        let body = error(429, "RESOURCE_EXHAUSTED", "x", &json!([{ "violations": [violation] }]));
        judge(429, body).cause().unwrap()
    };
    for model in ["deep_research_requests", "ResearchRequests", "mapspace_requests", "url_requests"]
    {
        assert_eq!(cause(model), Cause::PerDayRequests, "{model}");
    }
    for tool in [
        "search_grounding_requests",
        "GoogleSearchRequests",
        "url_context",
        "URLContext",
        "google-maps",
    ] {
        assert_eq!(cause(tool), Cause::ToolQuota, "{tool}");
    }
}
