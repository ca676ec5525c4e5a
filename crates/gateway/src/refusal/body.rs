//! Bodies of refusals: Google's error object, and OpenAI's.

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use super::{Reason, Refusal};
use crate::route::Dialect;

/// The body for a client of `dialect`.
pub(super) fn of(refusal: &Refusal, dialect: Dialect, now: DateTime<Utc>) -> Bytes {
    let body = match dialect {
        Dialect::Native => google(refusal, now),
        Dialect::OpenAi => openai(refusal),
    };
    Bytes::from(body.to_string())
}

/// `{"error":{"code","message","status","details"}}`, the form that all SDKs of Google's read.
fn google(refusal: &Refusal, now: DateTime<Utc>) -> Value {
    let mut metadata = Map::new();
    metadata.insert("scope".into(), refusal.scope.clone().into());
    if let Some(moment) = refusal.reset_at {
        metadata.insert("reset_at".into(), shown(moment).into());
    }
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": refusal.reason.as_str().to_ascii_uppercase(),
        "domain": "keywheel",
        "metadata": metadata,
    })];
    // Whoever reads it waits so long and tries again, which must not be asked for in vain.
    if refusal.should_retry != Some(false)
        && let Some(seconds) = refusal.wait_seconds(now)
    {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{seconds}s"),
        }));
    }
    json!({ "error": {
        "code": refusal.status.as_u16(),
        "message": refusal.message,
        "status": status_word(refusal),
        "details": details,
    } })
}

/// The words of `google.rpc.Code` for HTTP statuses.
fn status_word(refusal: &Refusal) -> &'static str {
    match refusal.status.as_u16() {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        499 => "CANCELLED",
        500 => "INTERNAL",
        502 | 503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INVALID_ARGUMENT",
    }
}

/// `{"error":{"message","type","param","code"}}`; an array, which Google itself sends there, is read by none of OpenAI's
/// SDKs.
fn openai(refusal: &Refusal) -> Value {
    let kind = match (refusal.reason, refusal.status.as_u16()) {
        // What OpenAI says when money is spent: no time soon brings it back.
        (Reason::OverBudget, _) => "insufficient_quota",
        (_, 401) => "authentication_error",
        (_, 403) => "permission_error",
        (_, 429) => "rate_limit_error",
        (_, 500..) => "server_error",
        _ => "invalid_request_error",
    };
    let mut error = json!({
        "message": refusal.message,
        "type": kind,
        "param": null,
        "code": refusal.reason.as_str(),
        "scope": refusal.scope,
    });
    if let Some(moment) = refusal.reset_at {
        error["reset_at"] = shown(moment).into();
    }
    json!({ "error": error })
}

fn shown(moment: DateTime<Utc>) -> String {
    moment.to_rfc3339_opts(SecondsFormat::Secs, true)
}
