//! A recorded case in, its verdict out, both as JSON: for people, for tests in any language, and
//! for the CLI.

use chrono::{DateTime, Days, NaiveTime, SecondsFormat, TimeDelta, Utc};
use http::{HeaderMap, HeaderName, HeaderValue};
use keywheel_core::{Effect, QuotaDay, Wait, Window};
use serde_json::{Map, Value, json};

use crate::classify::{Asked, Dialect, Reply, Verdict, classify};

/// Explains one case.
///
/// `case` is an object with `status`, `headers` (name to string, number or list), `body` (a string,
/// or JSON to be sent as it is), and optionally `asked {model, tokens, tools}`, `provider`
/// (`gemini` by default; what is not known counts as `openai`) and `now` (RFC 3339 or seconds since
/// the epoch; else `now` is used). What is missing or of another kind is taken as absent:
/// everything gets a verdict. An object without `status` and `body` is taken for a body itself.
///
/// The answer has `kind`, `key_is_dead`, `recognised`, `scope`, `delay_s` and `until` (as the default
/// strategies give them, without jitter; both null when waiting is no answer), `retry`, `limits`,
/// `evidence`, `effects`, `message`, `fix`, `clamped`, `named_quota` and `project_number`.
///
/// ```
/// use keywheel_provider::explain;
/// use serde_json::{from_value, json};
///
/// let case = from_value(json!({
///     "status": 429,
///     "headers": {"retry-after": 7},
///     "provider": "groq",
///     "now": "2026-11-30T07:12:03Z",
/// }))
/// .unwrap();
/// let now = "2026-12-01T00:00:00Z".parse().unwrap();
/// let verdict = explain(&case, now);
/// assert_eq!(verdict["delay_s"], 7.0);
/// assert_eq!(verdict["until"], "2026-11-30T07:12:10.000Z", "the case says when it was");
/// ```
#[must_use]
pub fn explain(case: &Map<String, Value>, now: DateTime<Utc>) -> Value {
    if !case.contains_key("status") && !case.contains_key("body") {
        // What anybody has in a log: the body alone, with the status inside.
        let body = Value::Object(case.clone()).to_string();
        return explain_bytes(body.as_bytes(), case.get("now").and_then(moment).unwrap_or(now));
    }
    let now = case.get("now").and_then(moment).unwrap_or(now);
    let dialect = case.get("provider").and_then(Value::as_str).map_or(Dialect::Gemini, |name| {
        // Any provider that is not Google's speaks OpenAI's dialect, more or less.
        name.parse().unwrap_or(Dialect::OpenAi)
    });
    let headers = case.get("headers").map(headers).unwrap_or_default();
    let body = case.get("body").map(body).unwrap_or_default();
    let status = case.get("status").and_then(whole).and_then(|n| u16::try_from(n).ok());
    let reply = Reply { status: status.unwrap_or(0), headers: &headers, body: body.as_bytes() };
    let asked = case.get("asked").unwrap_or(&Value::Null);
    let asked = Asked {
        model: asked.get("model").and_then(Value::as_str),
        tokens: asked.get("tokens").and_then(whole),
        tools: asked.get("tools").is_some_and(is_some_tool),
    };
    to_json(&classify(dialect, &reply, &asked, now), dialect, now)
}

/// Explains bytes of which nothing else is known, as the body of a reply without a status.
///
/// ```
/// use keywheel_provider::explain_bytes;
///
/// let body = br#"{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}"#;
/// let verdict = explain_bytes(body, "2026-11-30T07:12:03Z".parse().unwrap());
/// assert_eq!(verdict["kind"], "invalid_key");
/// assert_eq!(verdict["key_is_dead"], true);
/// ```
#[must_use]
pub fn explain_bytes(body: &[u8], now: DateTime<Utc>) -> Value {
    let reply = Reply { status: 0, headers: &HeaderMap::new(), body };
    to_json(&classify(Dialect::Gemini, &reply, &Asked::default(), now), Dialect::Gemini, now)
}

/// A verdict as JSON, its waits resolved as the pool's default strategies do.
///
/// ```
/// use http::HeaderMap;
/// use keywheel_provider::{Asked, Dialect, Reply, classify, explain::to_json};
///
/// let reply = Reply { status: 200, headers: &HeaderMap::new(), body: b"{}" };
/// let now = "2026-11-30T07:12:03Z".parse().unwrap();
/// let verdict = classify(Dialect::Gemini, &reply, &Asked::default(), now);
/// let json = to_json(&verdict, Dialect::Gemini, now);
/// assert_eq!(json["kind"], "served");
/// assert!(json["until"].is_null(), "nothing to wait for");
/// ```
#[must_use]
pub fn to_json(verdict: &Verdict, dialect: Dialect, now: DateTime<Utc>) -> Value {
    let until = verdict.effects.first().and_then(|effect| default_until(effect.wait, dialect, now));
    json!({
        "kind": verdict.kind.as_str(),
        "key_is_dead": verdict.key_is_dead,
        "recognised": verdict.recognised,
        "scope": verdict.scope(),
        "delay_s": until.map(|until| seconds(until - now)),
        "until": until.map(rfc3339),
        "retry": verdict.retry.as_str(),
        "limits": verdict.limits,
        "evidence": verdict.evidence,
        "effects": verdict.effects.iter().map(|e| effect(*e, dialect, now)).collect::<Vec<_>>(),
        "message": verdict.message,
        "fix": verdict.fix,
        "clamped": verdict.clamped,
        "named_quota": verdict.named_quota,
        "project_number": verdict.project_number,
    })
}

/// When `wait` is over by the default strategies, without jitter; `None` when waiting is no answer.
///
/// A day ends at midnight Pacific for Gemini and at midnight UTC for the others; a ladder begins at
/// a minute.
///
/// ```
/// use keywheel_core::{Wait, Window};
/// use keywheel_provider::{Dialect, explain::default_until};
///
/// let now = "2026-11-30T07:12:03Z".parse().unwrap();
/// let day = |dialect| default_until(Wait::Reset(Window::Day), dialect, now).unwrap();
/// assert_eq!(day(Dialect::Gemini).to_rfc3339(), "2026-11-30T08:00:00+00:00");
/// assert_eq!(day(Dialect::OpenAi).to_rfc3339(), "2026-12-01T00:00:00+00:00");
/// assert_eq!(default_until(Wait::None, Dialect::Gemini, now), None);
/// ```
#[must_use]
pub fn default_until(wait: Wait, dialect: Dialect, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let delay = match wait {
        Wait::Stated(stated) => TimeDelta::from_std(stated).ok()?,
        Wait::Reset(Window::Day) => {
            return match dialect {
                Dialect::Gemini => Some(QuotaDay::containing(now).ends_at()),
                Dialect::OpenAi => {
                    let tomorrow = now.date_naive().checked_add_days(Days::new(1))?;
                    Some(tomorrow.and_time(NaiveTime::MIN).and_utc())
                }
            };
        }
        Wait::Reset(Window::Hour) => TimeDelta::hours(1),
        Wait::Reset(Window::Minute) | Wait::Ladder => TimeDelta::minutes(1),
        Wait::None => return None,
    };
    now.checked_add_signed(delay)
}

fn effect(effect: Effect, dialect: Dialect, now: DateTime<Utc>) -> Value {
    let until = default_until(effect.wait, dialect, now);
    let source = match effect.wait {
        Wait::Stated(_) => "stated",
        Wait::Reset(_) => "reset",
        Wait::Ladder => "ladder",
        Wait::None => "none",
    };
    json!({
        "scope": effect.scope,
        "cause": effect.cause,
        "wait": source,
        "delay_s": until.map(|until| seconds(until - now)),
        "until": until.map(rfc3339),
    })
}

fn seconds(delay: TimeDelta) -> f64 {
    delay.num_milliseconds() as f64 / 1000.0
}

fn rfc3339(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn moment(value: &Value) -> Option<DateTime<Utc>> {
    match value {
        Value::String(text) => Some(DateTime::parse_from_rfc3339(text).ok()?.to_utc()),
        Value::Number(seconds) => DateTime::from_timestamp(seconds.as_i64()?, 0),
        _ => None,
    }
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().map(|n| n as u64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// `true`, a tool's name, or a list of tools as requests have it.
fn is_some_tool(value: &Value) -> bool {
    match value {
        Value::Bool(used) => *used,
        Value::String(name) => !name.is_empty(),
        Value::Array(tools) => !tools.is_empty(),
        Value::Object(tools) => !tools.is_empty(),
        Value::Null | Value::Number(_) => false,
    }
}

fn body(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn headers(value: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for value in values {
            if let Ok(value) = HeaderValue::from_str(&body(value)) {
                headers.append(&name, value);
            }
        }
    }
    headers
}
