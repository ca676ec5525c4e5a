//! Replies in the shapes of Google's own. Where one comes from stands in the provider's corpus.

use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use keywheel::ApiKey;
use keywheel_provider::testing::Scripted;
use serde_json::{Value, json};

pub(crate) fn reply(status: u16, body: &Value) -> Scripted {
    Scripted::json(status, body.to_string())
}

pub(crate) fn error(code: u16, status: &str, message: &str, details: Value) -> Value {
    json!({"error": {"code": code, "message": message, "status": status, "details": details}})
}

fn info(reason: &str) -> Value {
    json!([{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"service": "generativelanguage.googleapis.com"},
    }])
}

/// A bad key comes with 400, not 401: <https://github.com/yym68686/uni-api/issues/140>.
pub(crate) fn invalid_key() -> Scripted {
    let message = "API key not valid. Please pass a valid API key.";
    reply(400, &error(400, "INVALID_ARGUMENT", message, info("API_KEY_INVALID")))
}

/// <https://github.com/continuedev/continue/issues/10513>
pub(crate) fn leaked_key() -> Scripted {
    let message = "Your API key was reported as leaked. Please use another API key.";
    reply(403, &error(403, "PERMISSION_DENIED", message, json!([])))
}

/// Repeats the key.
pub(crate) fn suspended(key: &ApiKey) -> Scripted {
    let message =
        format!("Permission denied: Consumer 'api_key:{}' has been suspended.", key.expose());
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "CONSUMER_SUSPENDED",
        "domain": "googleapis.com",
        "metadata": {
            "consumer": "projects/123456789012",
            "service": "generativelanguage.googleapis.com",
            "containerInfo": format!("api_key:{}", key.expose()),
        },
    }]);
    reply(403, &error(403, "PERMISSION_DENIED", &message, details))
}

/// The day is spent; the hint of a few seconds is Google's, and useless.
pub(crate) fn day_spent(limit: u64) -> Scripted {
    reply(429, &day_spent_body(limit))
}

pub(crate) fn day_spent_body(limit: u64) -> Value {
    quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "requests", limit, Some("36s"))
}

/// The minute is full for so many seconds.
pub(crate) fn minute_full(limit: u64, wait: u64) -> Scripted {
    reply(429, &minute_full_body(limit, wait))
}

pub(crate) fn minute_full_body(limit: u64, wait: u64) -> Value {
    let id = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier";
    quota(id, "requests", limit, Some(&format!("{wait}s")))
}

/// The minute has no room for the tokens.
pub(crate) fn tokens_full(limit: u64, wait: u64) -> Scripted {
    let id = "GenerateContentInputTokensPerModelPerMinute-FreeTier";
    reply(429, &quota(id, "input_token_count", limit, Some(&format!("{wait}s"))))
}

fn quota(id: &str, metric: &str, limit: u64, delay: Option<&str>) -> Value {
    let metric = format!("generativelanguage.googleapis.com/generate_content_free_tier_{metric}");
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{
            "quotaMetric": metric,
            "quotaId": id,
            "quotaDimensions": {"location": "global", "model": "gemini-internal"},
            "quotaValue": limit.to_string(),
        }],
    })];
    let mut message = format!(
        "You exceeded your current quota, please check your plan and billing details. \n* Quota \
         exceeded for metric: {metric}, limit: {limit}, model: gemini-internal"
    );
    if let Some(delay) = delay {
        message += &format!("\nPlease retry in {delay}.");
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay,
        }));
    }
    error(429, "RESOURCE_EXHAUSTED", &message, Value::Array(details))
}

pub(crate) fn bare_429() -> Scripted {
    let message = "Resource has been exhausted (e.g. check quota).";
    reply(429, &error(429, "RESOURCE_EXHAUSTED", message, json!([])))
}

pub(crate) fn overloaded() -> Scripted {
    reply(503, &overloaded_body())
}

pub(crate) fn overloaded_body() -> Value {
    let message = "This model is currently experiencing high demand. Please try again later.";
    error(503, "UNAVAILABLE", message, json!([]))
}

pub(crate) fn internal() -> Scripted {
    reply(500, &error(500, "INTERNAL", "Internal error encountered.", json!([])))
}

pub(crate) fn bad_gateway() -> Scripted {
    let html = HeaderValue::from_static("text/html; charset=UTF-8");
    let page = "<!DOCTYPE html><html><title>Error 502 (Server Error)!!1</title></html>";
    Scripted::status(502).header(CONTENT_TYPE, html).piece(Bytes::from_static(page.as_bytes()))
}

pub(crate) fn model_not_found() -> Scripted {
    let message = "models/gemini-x is not found for API version v1beta, or is not supported for \
                   generateContent.";
    reply(404, &error(404, "NOT_FOUND", message, json!([])))
}

pub(crate) fn bad_request() -> Scripted {
    let message = "* GenerateContentRequest.contents: contents is not specified\n";
    reply(400, &error(400, "INVALID_ARGUMENT", message, json!([])))
}

/// One event of a stream.
pub(crate) fn part(text: &str, finish_reason: Option<&str>, tokens: (u64, u64)) -> Value {
    let mut candidate =
        json!({"content": {"role": "model", "parts": [{"text": text}]}, "index": 0});
    if let Some(reason) = finish_reason {
        candidate["finishReason"] = reason.into();
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": tokens.0,
            "candidatesTokenCount": tokens.1,
            "totalTokenCount": tokens.0 + tokens.1,
        },
    })
}
