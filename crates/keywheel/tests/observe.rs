//! What can be seen from outside: spans by OpenTelemetry's names, counters, and what a call waits for.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{
    MODEL, OTHER_MODEL, Rig, at,
    bodies::{bad_request, day_spent, minute_full, overloaded, part},
    fingerprint, key, secs,
};
use keywheel::{Clock as _, WaitReason};
use keywheel_provider::testing::Scripted;
use serde_json::json;
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt as _, registry::LookupSpan};

type Fields = BTreeMap<String, String>;

/// One span: its name, its parent's place in the list, and its fields.
#[derive(Debug, Clone, Default)]
struct Seen {
    id: u64,
    name: &'static str,
    parent: Option<u64>,
    fields: Fields,
}

#[derive(Debug, Clone, Default)]
struct Capture(Arc<Mutex<Vec<Seen>>>);

struct Into<'a>(&'a mut Fields);

impl Visit for Into<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        self.0.insert(field.name().to_owned(), text.trim_matches('"').to_owned());
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent =
            context.span(id).and_then(|span| span.parent()).map(|span| span.id().into_u64());
        let name = attributes.metadata().name();
        let mut seen = Seen { id: id.into_u64(), name, parent, fields: Fields::new() };
        attributes.record(&mut Into(&mut seen.fields));
        self.0.lock().unwrap().push(seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut all = self.0.lock().unwrap();
        // Numbers are used again: the youngest span of that number is meant.
        if let Some(seen) = all.iter_mut().rev().find(|seen| seen.id == id.into_u64()) {
            values.record(&mut Into(&mut seen.fields));
        }
    }
}

/// What `act` showed: the calls' fields, and those of their attempts.
fn watch(act: impl FnOnce()) -> (Vec<Fields>, Vec<Fields>) {
    let capture = Capture::default();
    let subscriber = tracing_subscriber::registry().with(capture.clone());
    tracing::subscriber::with_default(subscriber, act);
    let seen = capture.0.lock().unwrap().clone();
    for attempt in seen.iter().filter(|seen| seen.name == "attempt") {
        let call = seen.iter().find(|call| Some(call.id) == attempt.parent);
        assert_eq!(call.map(|call| call.name), Some("call"), "an attempt is a child of its call");
    }
    let named =
        |name| seen.iter().filter(move |seen| seen.name == name).map(|seen| seen.fields.clone());
    let text = format!("{seen:?}");
    assert!(!text.contains("my secret prompt"), "a prompt is in a span");
    (1..=3).for_each(|number| assert!(!text.contains(key(number).expose()), "a key is in a span"));
    (named("call").collect(), named("attempt").collect())
}

fn answer() -> Scripted {
    let mut answer = part("Hello", Some("STOP"), (8, 3));
    answer["modelVersion"] = "gemini-3.5-flash-lite-001".into();
    answer["responseId"] = "r-1".into();
    answer["usageMetadata"]["thoughtsTokenCount"] = json!(4);
    common::bodies::reply(200, &answer)
}

#[test]
fn a_call_is_a_span_with_the_names_of_opentelemetry_and_each_attempt_a_span_inside() {
    let (calls, attempts) = watch(|| {
        let rig = Rig::new(3);
        rig.script.reply(day_spent(20));
        rig.script.reply(overloaded());
        rig.script.reply(answer());
        rig.run(rig.gemini.generate(MODEL, "my secret prompt")).unwrap();
    });
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    for (name, value) in [
        ("otel.name", "generate_content gemini-3.5-flash-lite"),
        ("otel.kind", "client"),
        ("gen_ai.operation.name", "generate_content"),
        ("gen_ai.provider.name", "gcp.gemini"),
        ("gen_ai.request.model", MODEL),
        ("gen_ai.response.model", "gemini-3.5-flash-lite-001"),
        ("gen_ai.response.id", "r-1"),
        ("gen_ai.response.finish_reasons", "[\"STOP\"]"),
        ("gen_ai.usage.input_tokens", "8"),
        ("gen_ai.usage.output_tokens", "7"),
        ("server.address", "script.invalid"),
        ("server.port", "80"),
    ] {
        assert_eq!(call.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(call.get("error.type"), None);
    let kinds: Vec<_> = attempts.iter().map(|attempt| attempt["kind"].as_str()).collect();
    assert_eq!(kinds, ["per_day_requests", "overloaded", "served"]);
    assert_eq!(attempts[0]["http.response.status_code"], "429");
    assert_eq!(attempts[0]["label"], "GEMINI_API_KEY_1");
    assert_eq!(attempts[0]["key"], fingerprint(1).to_string());
}

#[test]
fn a_stream_is_one_span_to_its_end_and_an_error_is_named() {
    let (calls, _) = watch(|| {
        let rig = Rig::new(1);
        rig.script
            .reply(Scripted::events([part("Hel", None, (8, 1)), part("lo", Some("STOP"), (8, 2))]));
        rig.run(async { rig.gemini.stream(MODEL, "hi").await.unwrap().text().await }).unwrap();
        rig.script.reply(bad_request());
        rig.run(rig.gemini.stream(MODEL, "hi")).unwrap_err();
        rig.script.reply(Scripted::events([part("Hel", None, (8, 1))]));
        rig.run(async { rig.gemini.stream(MODEL, "hi").await.unwrap().text().await }).unwrap_err();
        rig.script.reply(Scripted::json(200, r#"{"totalTokens": 2}"#));
        rig.run(rig.gemini.count_tokens(MODEL, "hi")).unwrap();
    });
    assert_eq!(calls[0]["gen_ai.usage.output_tokens"], "2");
    assert_eq!(calls[0]["gen_ai.response.finish_reasons"], "[\"STOP\"]");
    assert_eq!(
        (&*calls[1]["error.type"], &*calls[1]["otel.status_code"]),
        ("bad_request", "ERROR")
    );
    assert_eq!(calls[2]["error.type"], "stream_broken");
    assert_eq!(calls[3]["gen_ai.operation.name"], "countTokens");
}

#[test]
fn counters_tell_what_became_of_every_call_and_request() {
    let rig = Rig::built(2, |pool| pool, |client| client.fallback([OTHER_MODEL]));
    rig.script.reply(overloaded());
    rig.script.reply(answer());
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    rig.script.reply(day_spent(20));
    rig.script.reply(day_spent(20));
    rig.script.reply(answer());
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    rig.script.reply(bad_request());
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    rig.run(async {
        rig.script.reply(Scripted::events([part("Hello", Some("STOP"), (8, 2))]));
        rig.gemini.stream(MODEL, "hi").await.unwrap().text().await.unwrap();
    });
    let counters = rig.gemini.counters();
    assert_eq!((counters.calls, counters.attempts, counters.served), (4, 7, 3));
    let refused: Vec<_> = counters.refused.iter().map(|(cause, count)| (*cause, *count)).collect();
    assert_eq!(refused, [("bad_request", 1), ("overloaded", 1), ("per_day_requests", 2)]);
    assert_eq!((counters.retries, counters.fallbacks, counters.gave_up), (1, 2, 1));
    assert_eq!((counters.input_tokens, counters.output_tokens), (24, 16));
    assert!((1_000..=2_000).contains(&counters.waited_ms), "{}", counters.waited_ms);
    let sums: u64 = counters.models.values().map(|model| model.attempts).sum();
    assert_eq!(sums, counters.attempts);
    assert!(serde_json::to_value(&counters).unwrap()["models"][MODEL]["served"].is_u64());
}

#[test]
fn whoever_shows_a_call_is_told_what_it_waits_for_and_until_when() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    let rig = Rig::built(
        1,
        |pool| pool,
        |client| client.on_wait(move |wait| log.lock().unwrap().push(wait.clone())),
    );
    rig.script.reply(minute_full(15, 30));
    rig.script.reply(overloaded());
    rig.script.otherwise(|_| Scripted::text("Hello"));
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    let waits = told.lock().unwrap().clone();
    let reasons: Vec<_> = waits.iter().map(|wait| wait.reason).collect();
    assert_eq!(reasons, [WaitReason::Quota, WaitReason::Retry]);
    assert_eq!(waits[0].model, MODEL);
    let until = waits[0].until - at(common::NOON);
    assert!(until >= secs(30) && until < secs(32), "{until}");
    // Nobody waits for what comes too late, or for nothing.
    told.lock().unwrap().clear();
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    rig.script.reply(day_spent(20));
    rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(60))).unwrap_err();
    assert!(told.lock().unwrap().is_empty(), "{told:?}");
    assert!(rig.clock.now() > at(common::NOON));
}
