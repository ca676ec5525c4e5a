//! What several test files need.

#![allow(dead_code, reason = "every test file uses another part")]

use chrono::{DateTime, TimeDelta, Utc};
use http::{HeaderMap, HeaderValue, Method};
use keywheel_core::ApiKey;
use keywheel_sim::{
    Limits, ModelConfig, Outcome, ProjectConfig, SimConfig, SimReply, SimRequest, World,
};

pub(crate) const MODEL: &str = "gemini-3.5-flash-lite";

pub(crate) fn key(i: u32) -> ApiKey {
    ApiKey::new(format!("AQ.EXAMPLE-key-{i}")).unwrap()
}

/// One project with key 1, and one model with these limits.
pub(crate) fn config(limits: Limits) -> SimConfig {
    SimConfig::new()
        .with_model(MODEL, ModelConfig::free(limits))
        .with_project(ProjectConfig::new("alpha").with_key(key(1)))
}

pub(crate) fn world(limits: Limits) -> World {
    World::new(config(limits)).unwrap()
}

pub(crate) fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

pub(crate) fn ms(ms: i64) -> TimeDelta {
    TimeDelta::milliseconds(ms)
}

pub(crate) fn post(target: &str, key: &ApiKey, body: &str) -> SimRequest {
    let mut headers = HeaderMap::new();
    let mut value = HeaderValue::from_str(key.expose()).unwrap();
    value.set_sensitive(true);
    headers.insert("x-goog-api-key", value);
    SimRequest::new(Method::POST, target, headers, body.to_owned())
}

pub(crate) fn get(target: &str, key: &ApiKey) -> SimRequest {
    SimRequest { method: Method::GET, ..post(target, key, "") }
}

pub(crate) fn generate(key: &ApiKey) -> SimRequest {
    generate_text(key, "Say hello")
}

pub(crate) fn generate_text(key: &ApiKey, text: &str) -> SimRequest {
    let body = serde_json::json!({"contents": [{"parts": [{"text": text}]}]}).to_string();
    post(&format!("/v1beta/models/{MODEL}:generateContent"), key, &body)
}

pub(crate) fn stream(key: &ApiKey, query: &str) -> SimRequest {
    let body = r#"{"contents":[{"parts":[{"text":"Say hello, and then some more, please"}]}]}"#;
    post(&format!("/v1beta/models/{MODEL}:streamGenerateContent{query}"), key, body)
}

pub(crate) fn is_served(reply: &SimReply) -> bool {
    reply.outcome == Outcome::Served
}

pub(crate) fn status(reply: &SimReply) -> u16 {
    reply.http.as_ref().expect("there is a reply").status
}

pub(crate) fn json(reply: &SimReply) -> serde_json::Value {
    serde_json::from_slice(&reply.http.as_ref().expect("there is a reply").bytes()).unwrap()
}

pub(crate) fn text(reply: &SimReply) -> String {
    String::from_utf8(reply.http.as_ref().expect("there is a reply").bytes()).unwrap()
}
