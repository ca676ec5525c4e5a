//! The OpenAI-style surfaces: Google's beside its own routes, and a provider's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use common::{MODEL, at, config, generate_text, json, key, ms, status, text};
use http::{HeaderMap, Method};
use keywheel_core::{ApiKey, Cause};
use keywheel_provider::{Asked, Dialect, Kind, Reply, classify};
use keywheel_sim::{
    Face, Fault, KeyState, Limits, ModelConfig, Outcome, ProjectConfig, ProjectState, SimConfig,
    SimReply, SimRequest, World,
};
use serde_json::{Value, json};

const NOW: &str = "2026-11-30T07:00:00Z";
const COMPAT: &str = "/v1beta/openai";

/// A world with an embedding model, and a second project.
fn world(face: Face, limits: Limits) -> World {
    let config = config(limits)
        .with_model("embedder", ModelConfig::embedding(limits))
        .with_project(ProjectConfig::new("beta").with_key(key(2)))
        .with_face(face);
    World::new(config).unwrap()
}

fn request(method: Method, target: &str, key: &ApiKey, body: &Value) -> SimRequest {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", format!("Bearer {}", key.expose()).parse().unwrap());
    SimRequest::new(method, target, headers, body.to_string())
}

fn chat_of(base: &str, key: &ApiKey, extra: &Value) -> SimRequest {
    let mut body = json!({"model": MODEL, "messages": [{"role": "user", "content": "Say hello"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    request(Method::POST, &format!("{base}/chat/completions"), key, &body)
}

fn chat(base: &str) -> SimRequest {
    chat_of(base, &key(1), &json!({}))
}

fn chunks(reply: &SimReply) -> Vec<Value> {
    let said = text(reply);
    let events: Vec<_> = said.split_terminator("\n\n").collect();
    let (done, events) = events.split_last().unwrap();
    assert_eq!(*done, "data: [DONE]");
    let read = |event: &&str| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
    events.iter().map(read).collect()
}

fn header<'a>(reply: &'a SimReply, name: &str) -> Option<&'a str> {
    reply.http.as_ref().unwrap().headers.get(name).map(|value| value.to_str().unwrap())
}

#[test]
fn both_faces_say_what_the_native_route_says() {
    let mut world = world(Face::Gemini, Limits::new());
    let native = json(&world.handle(&generate_text(&key(1), "Say hello"), at(NOW)));
    let native = &native["candidates"][0]["content"]["parts"][0]["text"];
    let compat = json(&world.handle(&chat(COMPAT), at(NOW)));
    assert_eq!(&compat["choices"][0]["message"]["content"], native);
    assert_eq!(compat["choices"][0]["finish_reason"], "stop");
    assert_eq!(compat["usage"]["prompt_tokens"], 3);
    let mut other = self::world(Face::OpenAi, Limits::new());
    for base in ["/v1", "/openai/v1"] {
        let reply = json(&other.handle(&chat(base), at(NOW)));
        assert_eq!(&reply["choices"][0]["message"]["content"], native);
        assert_eq!(reply["created"], at(NOW).timestamp());
    }
    assert_eq!(world.stats().bucket("alpha", MODEL).counted, 2);
}

#[test]
fn googles_layer_draws_on_the_same_bucket_and_refuses_in_an_array() {
    let mut world = world(Face::Gemini, Limits::new().rpd(2));
    assert_eq!(status(&world.handle(&generate_text(&key(1), "a"), at(NOW))), 200);
    assert_eq!(status(&world.handle(&chat(COMPAT), at(NOW))), 200);
    let refused = world.handle(&chat(COMPAT), at(NOW));
    assert_eq!(status(&refused), 429);
    let body = json(&refused);
    assert_eq!(body[0]["error"]["status"], "RESOURCE_EXHAUSTED");
    assert!(text(&refused).contains("GenerateRequestsPerDayPerProjectPerModel-FreeTier"));
    assert!(header(&refused, "retry-after").is_none());
    assert!(header(&refused, "x-ratelimit-limit-requests").is_none());
    assert_eq!(status(&world.handle(&generate_text(&key(1), "a"), at(NOW))), 429);
}

#[test]
fn googles_stream_has_the_usage_so_far_in_every_chunk() {
    let mut world = world(Face::Gemini, Limits::new());
    let request = chat_of(COMPAT, &key(1), &json!({"stream": true}));
    let chunks = chunks(&world.handle(&request, at(NOW)));
    let totals: Vec<_> =
        chunks.iter().map(|chunk| chunk["usage"]["total_tokens"].as_u64().unwrap()).collect();
    assert!(totals.is_sorted() && totals.len() > 3, "{totals:?}");
    let finished: Vec<_> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(finished, ["stop"]);
}

#[test]
fn openais_stream_has_the_usage_once_when_it_is_asked_for() {
    let mut world = world(Face::OpenAi, Limits::new());
    let mut ask = |extra: Value| chunks(&world.handle(&chat_of("/v1", &key(1), &extra), at(NOW)));
    let plain = ask(json!({"stream": true}));
    assert!(plain.iter().all(|chunk| chunk.get("usage").is_none()));
    let counted = ask(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let (last, before) = counted.split_last().unwrap();
    assert!(before.iter().all(|chunk| chunk["usage"].is_null()));
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["prompt_tokens"], 3);
    let said = |chunks: &[Value]| -> String {
        chunks.iter().filter_map(|it| it["choices"][0]["delta"]["content"].as_str()).collect()
    };
    assert_eq!(said(&plain), said(before));
    assert!(said(&plain).starts_with("Simulated answer"));
}

#[test]
fn a_key_is_taken_from_the_authorization_header_alone() {
    for (face, base, missing) in [(Face::Gemini, COMPAT, 400), (Face::OpenAi, "/v1", 401)] {
        let mut world = world(face, Limits::new());
        let mut none = chat(base);
        none.headers.clear();
        assert_eq!(status(&world.handle(&none, at(NOW))), missing);
        let mut elsewhere = none.clone();
        elsewhere.headers = generate_text(&key(1), "a").headers;
        assert_eq!(status(&world.handle(&elsewhere, at(NOW))), missing);
        let mut both = chat(base);
        both.headers.extend(elsewhere.headers);
        let both = world.handle(&both, at(NOW));
        assert_eq!(both.outcome, Outcome::Refused(Cause::CredentialFault));
    }
    let mut world = world(Face::Gemini, Limits::new());
    let unknown = world.handle(&chat_of(COMPAT, &key(9), &json!({})), at(NOW));
    // 400 and not 401, as natively.
    assert_eq!((status(&unknown), &json(&unknown)[0]["error"]["code"]), (400, &400.into()));
}

#[test]
fn a_provider_tells_its_limits_with_every_reply() {
    let mut world = world(Face::OpenAi, Limits::new().rpm(2).tpm(1_000).rpd(100));
    let first = world.handle(&chat("/v1"), at(NOW));
    for (name, value) in [
        ("x-ratelimit-limit-requests", "2"),
        ("x-ratelimit-remaining-requests", "1"),
        ("x-ratelimit-reset-requests", "1m0s"),
        ("x-ratelimit-limit-tokens", "1000"),
        ("x-ratelimit-remaining-tokens", "997"),
        ("x-ratelimit-reset-tokens", "1m0s"),
    ] {
        assert_eq!(header(&first, name), Some(value), "{name}");
    }
    assert!(header(&first, "server").is_none() && header(&first, "retry-after").is_none());
    world.handle(&chat("/v1"), at(NOW));
    let refused = world.handle(&chat("/v1"), at(NOW) + ms(20_500));
    assert_eq!(status(&refused), 429);
    // Rounded up: sooner would be refused again.
    assert_eq!(header(&refused, "retry-after"), Some("40"));
    assert_eq!(header(&refused, "x-ratelimit-remaining-requests"), Some("0"));
    assert_eq!(header(&refused, "x-ratelimit-reset-requests"), Some("39.5s"));
    let expected = format!(
        "Rate limit reached for {MODEL} in organization org-EXAMPLE on requests per min (RPM): \
         Limit 2, Used 2, Requested 1. Please try again in 39.5s. Visit \
         https://platform.openai.com/account/rate-limits to learn more."
    );
    let expected = json!({"error": {
        "message": expected, "type": "requests", "param": null, "code": "rate_limit_exceeded",
    }});
    assert_eq!(json(&refused), expected);
    assert_eq!(status(&world.handle(&chat("/v1"), at(NOW) + ms(60_500))), 200);
}

/// Every OpenAI-style error is what the classifier judges it to be.
#[test]
fn a_providers_errors_are_what_the_classifier_makes_of_them() {
    let judge = |world: &mut World, request: &SimRequest, expected: Cause| {
        let reply = world.handle(request, at(NOW));
        assert_eq!(reply.outcome.told(), Some(expected));
        let http = reply.http.as_ref().unwrap();
        let asked = Asked { model: Some(MODEL), tokens: None, tools: false };
        let body = http.bytes();
        let seen = Reply { status: http.status, headers: &http.headers, body: &body };
        let verdict = classify(Dialect::OpenAi, &seen, &asked, at(NOW));
        let said = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(verdict.kind, Kind::Refused(expected), "{said} {:?}", verdict.evidence);
    };
    let new = |limits| world(Face::OpenAi, limits);
    for state in [KeyState::Invalid, KeyState::Leaked, KeyState::IpBlocked] {
        let mut world = new(Limits::new());
        world.set_key_state(key(1).fingerprint(), state);
        judge(&mut world, &chat("/v1"), Cause::InvalidKey);
    }
    for (state, cause) in [
        (ProjectState::Suspended, Cause::InvalidKey),
        (ProjectState::PrepayDepleted, Cause::Billing),
        (ProjectState::CountryRestricted, Cause::LocationUnsupported),
    ] {
        let mut world = new(Limits::new());
        world.set_project_state("alpha", state);
        judge(&mut world, &chat("/v1"), cause);
    }
    for (limits, cause) in [
        (Limits::new().rpm(1), Cause::PerMinuteRequests),
        (Limits::new().rpd(1), Cause::PerDayRequests),
        (Limits::new().tpm(5), Cause::PerMinuteTokens),
        (Limits::new().tpd(5), Cause::PerDayTokens),
        (Limits::new().rpm(1).rpd(1), Cause::PerDayRequests),
    ] {
        let mut world = new(limits);
        assert!(common::is_served(&world.handle(&chat("/v1"), at(NOW))));
        judge(&mut world, &chat("/v1"), cause);
    }
    judge(&mut new(Limits::new().tpm(2)), &chat("/v1"), Cause::RequestTooLarge);
    judge(&mut new(Limits::nothing()), &chat("/v1"), Cause::Billing);
    for (fault, cause) in [
        (Fault::Overloaded, Cause::Overloaded),
        (Fault::Internal, Cause::ServerError),
        (Fault::Deadline, Cause::Deadline),
        (Fault::Spurious429, Cause::UnspecifiedQuota),
    ] {
        let mut world = new(Limits::new());
        world.force(fault, 1);
        judge(&mut world, &chat("/v1"), cause);
    }
    let mut world = new(Limits::new());
    judge(&mut world, &chat_of("/v1", &key(1), &json!({"model": "x"})), Cause::ModelNotFound);
    judge(&mut world, &chat_of("/v1", &key(1), &json!({"messages": []})), Cause::BadRequest);
}

#[test]
fn faults_of_streams_are_in_the_face_of_the_route() {
    let streamed = |fault| {
        let mut world = world(Face::OpenAi, Limits::new());
        world.force(fault, 1);
        text(&world.handle(&chat_of("/v1", &key(1), &json!({"stream": true})), at(NOW)))
    };
    let cut = streamed(Fault::Cut);
    assert!(cut.contains("Simulated") && !cut.contains("[DONE]") && !cut.contains("\"stop\""));
    assert!(streamed(Fault::ErrorFirst).starts_with("data: {\"error\":{"));
    assert!(streamed(Fault::ErrorMidway).contains("The server is currently overloaded"));
}

#[test]
fn functions_are_called_and_their_answers_quoted() {
    for (face, base) in [(Face::Gemini, COMPAT), (Face::OpenAi, "/v1")] {
        let mut world = world(face, Limits::new());
        let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        }}}]);
        let asked = json!({"role": "user", "content": "How is the weather?"});
        let extra = json!({"messages": [asked], "tools": tools});
        let first = json(&world.handle(&chat_of(base, &key(1), &extra), at(NOW)));
        let choice = &first["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls");
        let call = &choice["message"]["tool_calls"][0];
        assert_eq!(call["function"]["name"], "weather");
        assert_eq!(call["function"]["arguments"], r#"{"city":"simulated city"}"#);
        let streamed = json!({"messages": [asked], "tools": tools, "stream": true});
        let streamed = chunks(&world.handle(&chat_of(base, &key(1), &streamed), at(NOW)));
        let delta = &streamed[0]["choices"][0]["delta"]["tool_calls"][0];
        assert_eq!((&delta["id"], &delta["index"]), (&call["id"], &0.into()));
        let report = json!({"role": "tool", "tool_call_id": call["id"], "content": "{\"sky\":1}"});
        let messages = json!([asked, choice["message"], report]);
        let extra = json!({"messages": messages, "tools": tools});
        let second = json(&world.handle(&chat_of(base, &key(1), &extra), at(NOW)));
        let said = second["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(said.ends_with(r#"weather said {"sky":1}"#), "{said}");
        // Gemini 3 wants its signature back here, too.
        let mut unsigned = choice["message"].clone();
        let had = unsigned["tool_calls"][0].as_object_mut().unwrap().remove("extra_content");
        assert_eq!(had.is_some(), face == Face::Gemini);
        let extra = json!({"messages": [asked, unsigned, report], "tools": tools});
        let expected = if face == Face::Gemini { 400 } else { 200 };
        assert_eq!(status(&world.handle(&chat_of(base, &key(1), &extra), at(NOW))), expected);
    }
}

#[test]
fn settings_are_understood() {
    let mut world = world(Face::OpenAi, Limits::new());
    let mut ask = |extra: Value| json(&world.handle(&chat_of("/v1", &key(1), &extra), at(NOW)));
    let short = ask(json!({"max_completion_tokens": 2, "n": 2}));
    assert_eq!(short["choices"][1]["finish_reason"], "length");
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let typed = ask(json!({"response_format": format}));
    assert_eq!(typed["choices"][0]["message"]["content"], r#"{"a":1}"#);
    let thinks = ask(json!({"reasoning_effort": "low"}));
    let usage = &thinks["usage"];
    let reasoning = usage["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    assert!(reasoning > 0 && usage["completion_tokens"].as_u64().unwrap() > reasoning);
    let system = json!([
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": [{"type": "text", "text": "Say hello"}]},
    ]);
    assert_eq!(ask(json!({"messages": system}))["usage"]["prompt_tokens"], 5);
}

#[test]
fn vectors_are_those_of_the_native_route_and_counted_as_each_face_counts() {
    let mut compat = world(Face::Gemini, Limits::new());
    let mut provider = world(Face::OpenAi, Limits::new());
    let ask = |base: &str, input: Value, format: &str| {
        let body = json!({
            "model": "embedder", "input": input, "encoding_format": format, "dimensions": 8,
        });
        request(Method::POST, &format!("{base}/embeddings"), &key(1), &body)
    };
    let both = json!(["one", "two"]);
    let native = common::post(
        "/v1beta/models/embedder:embedContent",
        &key(1),
        r#"{"content":{"parts":[{"text":"two"}]},"outputDimensionality":8}"#,
    );
    let native = json(&compat.handle(&native, at(NOW)))["embedding"]["values"].clone();
    for (world, base) in [(&mut compat, COMPAT), (&mut provider, "/v1")] {
        let reply = json(&world.handle(&ask(base, both.clone(), "float"), at(NOW)));
        assert_eq!(reply["data"][1]["embedding"], native);
        assert_eq!(reply["usage"]["prompt_tokens"], 2);
        let packed = json(&world.handle(&ask(base, json!("two"), "base64"), at(NOW)));
        // Eight numbers of four bytes.
        assert_eq!(packed["data"][0]["embedding"].as_str().unwrap().len(), 44);
    }
    // Google counts texts, OpenAI requests.
    assert_eq!(compat.stats().bucket("alpha", "embedder").counted, 1 + 3);
    assert_eq!(provider.stats().bucket("alpha", "embedder").counted, 2);
    let many: Vec<_> = (0..101).map(|i| i.to_string()).collect();
    let many = json!(many);
    assert_eq!(status(&compat.handle(&ask(COMPAT, many.clone(), "float"), at(NOW))), 400);
    assert_eq!(status(&provider.handle(&ask("/v1", many, "float"), at(NOW))), 200);
}

#[test]
fn models_are_listed_and_other_paths_are_not_there() {
    let mut compat = world(Face::Gemini, Limits::new());
    let mut provider = world(Face::OpenAi, Limits::new());
    let nothing = json!({});
    for (world, base, prefix) in [(&mut compat, COMPAT, "models/"), (&mut provider, "/v1", "")] {
        let get = |path: &str| request(Method::GET, &format!("{base}/{path}"), &key(1), &nothing);
        let all = json(&world.handle(&get("models"), at(NOW)));
        let ids: Vec<_> = all["data"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
        assert_eq!(ids, [&format!("{prefix}embedder"), &format!("{prefix}{MODEL}")]);
        let one = json(&world.handle(&get(&format!("models/{MODEL}")), at(NOW)));
        assert_eq!(one["id"], format!("{prefix}{MODEL}"));
        assert_eq!(status(&world.handle(&get("models/nothing"), at(NOW))), 404);
        let reply = world.handle(&get("responses"), at(NOW));
        assert_eq!(reply.outcome, Outcome::NoSuchPath);
    }
    let native = provider.handle(&generate_text(&key(1), "a"), at(NOW));
    assert_eq!(json(&native)["error"]["code"], "unknown_url");
}

#[test]
fn another_projects_quota_is_its_own() {
    let mut world = world(Face::OpenAi, Limits::new().rpm(1));
    for (i, expected) in [(1, 200), (1, 429), (2, 200), (2, 429)] {
        let request = chat_of("/v1", &key(i), &json!({}));
        assert_eq!(status(&world.handle(&request, at(NOW))), expected);
    }
    let config = SimConfig::from_toml("face = \"openai\"\n[models.a]\n").unwrap();
    assert_eq!(config.face, Face::OpenAi);
}
