//! What each attempt of a call is charged: one test for each row of the charging table, through the client.

#![cfg(feature = "ledger")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{collections::BTreeSet, time::Duration};

use common::{
    MODEL, OTHER_MODEL,
    bodies::{
        bad_request, day_spent, invalid_key, minute_full, model_not_found, overloaded, part, reply,
    },
    ledger::{Charged, OUTPUT, request},
};
use keywheel::{
    Error, GenerateRequest,
    ledger::{Amount, Limit, Outcome, Period},
};
use keywheel_provider::{Sent, TransportKind, testing::Scripted};
use serde_json::json;

/// So much was used, by one logical call.
const fn used(tokens: u64) -> Option<Amount> {
    Some(Amount::new(tokens, 1))
}

/// An answer of 9 tokens.
fn hello() -> Scripted {
    reply(200, &part("Hello", Some("STOP"), (8, 1)))
}

#[test]
fn a_failover_over_three_keys_settles_each_attempt_once() {
    let it = Charged::new(3, [Limit::calls(Period::Day, 1)]);
    it.rig.script.reply(day_spent(20));
    it.rig.script.reply(minute_full(15, 30));
    it.rig.script.reply(hello());
    let reply = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    assert_eq!(
        it.charges(),
        [
            (Some(Outcome::Refused), Some(Amount::ZERO)),
            (Some(Outcome::Refused), Some(Amount::ZERO)),
            (Some(Outcome::Answered), used(9)),
        ]
    );
    let rows = it.rows();
    let keys: BTreeSet<_> = rows.iter().map(|row| row.key.unwrap()).collect();
    assert_eq!(keys.len(), 3, "each row names its key");
    assert_eq!(rows[2].key, Some(reply.attempts()[2].fingerprint));
    for row in &rows {
        assert_eq!(Some(&*row.request_id), reply.request_id(), "one call, one name");
        assert_eq!((&*row.model, &*row.note), (MODEL, ""));
        assert_eq!(row.estimate.output, OUTPUT);
    }
    let usage = rows[2].usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.total), (8, 1, 9));
    it.assert_balanced();
}

/// The next attempt is reserved while the last one is settled: the two never stand side by side.
#[test]
fn a_budget_with_room_for_one_attempt_is_enough_for_a_failover() {
    let it = Charged::new(3, [Limit::tokens(Period::Day, OUTPUT + 50)]);
    it.rig.script.reply(day_spent(20));
    it.rig.script.reply(invalid_key());
    it.rig.script.reply(hello());
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    assert_eq!(it.used(), 9);
    it.assert_balanced();
}

#[test]
fn refusals_that_end_a_call_cost_nothing() {
    type Refusal = (fn() -> Scripted, &'static str);
    let refusals: [Refusal; 5] = [
        (|| day_spent(20), "a spent day"),
        (invalid_key, "an invalid key"),
        (bad_request, "a bad request"),
        (model_not_found, "a model that is gone"),
        (|| minute_full(15, 30), "a full minute"),
    ];
    for (refusal, name) in refusals {
        let it = Charged::new(1, [Limit::calls(Period::Day, 1)]);
        it.rig.script.reply(refusal());
        let call = it.rig.gemini.generate(MODEL, request()).deadline(Duration::from_secs(5));
        it.rig.run(call).unwrap_err();
        assert_eq!(it.charges(), [(Some(Outcome::Refused), Some(Amount::ZERO))], "{name}");
        it.assert_balanced();
        // Neither tokens nor the day's one call were used up.
        it.rig.clock.advance(Duration::from_secs(60));
        it.rig.script.reply(hello());
        let again = it.rig.run(it.rig.gemini.generate(OTHER_MODEL, request()));
        assert!(again.is_ok() || name == "an invalid key", "{name}: {again:?}");
    }
}

#[test]
fn failures_of_the_provider_cost_no_tokens_and_are_one_call_with_their_retries() {
    let it = Charged::new(1, [Limit::calls(Period::Day, 1)]);
    it.rig.script.reply(overloaded());
    it.rig.script.reply(overloaded());
    it.rig.script.reply(hello());
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    let failed = (Some(Outcome::ServerError), Some(Amount::new(0, 1)));
    let again = (Some(Outcome::ServerError), Some(Amount::ZERO));
    let answered = (Some(Outcome::Answered), Some(Amount::new(9, 0)));
    assert_eq!(it.charges(), [failed, again, answered]);
    it.assert_balanced();
}

#[test]
fn nothing_is_reserved_while_a_call_waits() {
    let it = Charged::new(1, []);
    it.rig.script.reply(minute_full(15, 30));
    it.rig.script.reply(hello());
    let mut seen = Vec::new();
    let mut call = Box::pin(it.rig.gemini.generate(MODEL, request()).into_future());
    while common::poll_times(&it.rig.clock, call.as_mut(), 1).is_none() {
        let sent = it.rig.script.requests().len();
        let open = it.rows().iter().filter(|row| row.charged.is_none()).count();
        seen.push((sent, it.rig.script.open(), open));
        assert!(seen.len() < 100, "it goes on within the minute: {seen:?}");
        it.rig.clock.advance(Duration::from_secs(1));
    }
    drop(call);
    let waiting = seen.iter().filter(|(sent, under_way, _)| *sent == 1 && *under_way == 0);
    assert!(waiting.clone().count() > 0, "it waited: {seen:?}");
    assert!(waiting.clone().all(|(.., open)| *open == 0), "{seen:?}");
    it.assert_balanced();
}

#[test]
fn what_was_never_sent_costs_nothing() {
    let it = Charged::new(1, [Limit::calls(Period::Day, 1)]);
    it.rig.script.reply(Scripted::failure(TransportKind::Connect, Sent::No));
    it.rig.script.reply(hello());
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    let not_sent = (Some(Outcome::NotSent), Some(Amount::ZERO));
    assert_eq!(it.charges(), [not_sent, (Some(Outcome::Answered), used(9))]);
    it.assert_balanced();
}

/// What a request costs of which nobody knows what became.
fn lost(it: &Charged) {
    it.rig.script.reply(Scripted::failure(TransportKind::Interrupted, Sent::Maybe));
    it.rig.script.reply(hello());
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    it.assert_balanced();
}

#[test]
fn a_cut_after_sending_costs_the_estimate() {
    let it = Charged::new(1, []);
    lost(&it);
    let estimate = it.rows()[0].estimate.total();
    assert!(estimate >= OUTPUT);
    assert_eq!(it.charges()[0], (Some(Outcome::Lost), used(estimate)));
    assert_eq!(it.used(), estimate + 9);
}

#[test]
fn a_cut_costs_nothing_where_its_owner_wants_that() {
    let it = Charged::new(1, []);
    let mut rules = (*it.ledger.rules()).clone();
    rules.charge_timeouts = false;
    it.ledger.set_rules(rules);
    lost(&it);
    assert_eq!(it.used(), 9);
}

#[test]
fn a_deadline_that_comes_first_costs_the_estimate() {
    let it = Charged::new(1, []);
    it.rig.script.reply(hello().after(Duration::from_secs(60)));
    let call = it.rig.gemini.generate(MODEL, request()).deadline(Duration::from_secs(10));
    let error = it.rig.run(call).unwrap_err();
    assert!(matches!(error, Error::DeadlineReached { .. }), "{error}");
    let estimate = it.rows()[0].estimate.total();
    assert_eq!(it.charges(), [(Some(Outcome::Lost), used(estimate))]);
    it.assert_balanced();
}

#[test]
fn an_answer_is_charged_its_total_thinking_included() {
    let it = Charged::new(1, []);
    let mut body = part("Hello", Some("STOP"), (8, 1));
    body["usageMetadata"]["thoughtsTokenCount"] = 40.into();
    body["usageMetadata"]["cachedContentTokenCount"] = 3.into();
    body["usageMetadata"]["totalTokenCount"] = 49.into();
    it.rig.script.reply(reply(200, &body));
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(49))]);
    let usage = it.rows()[0].usage.unwrap();
    assert_eq!((usage.thinking, usage.cached), (40, 3));
}

#[test]
fn an_answer_without_usage_costs_the_estimate() {
    let it = Charged::new(1, []);
    let mut body = part("Hello", Some("STOP"), (8, 1));
    body.as_object_mut().unwrap().remove("usageMetadata");
    it.rig.script.reply(reply(200, &body));
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    let estimate = it.rows()[0].estimate.total();
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(estimate))]);
}

#[test]
fn an_answer_that_cannot_be_read_costs_the_estimate() {
    let it = Charged::new(1, []);
    it.rig.script.reply(reply(200, &json!({"candidates": "none"})));
    let error = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    let estimate = it.rows()[0].estimate.total();
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(estimate))]);
    it.assert_balanced();
}

#[test]
fn an_answer_that_breaks_off_costs_the_estimate() {
    let it = Charged::new(1, []);
    it.rig.script.reply(Scripted::json(200, r#"{"candi"#).fail(TransportKind::Interrupted));
    it.rig.script.reply(hello());
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    let estimate = it.rows()[0].estimate.total();
    assert_eq!(it.charges()[0], (Some(Outcome::CutShort), used(estimate)));
    it.assert_balanced();
}

/// An estimate is a bound for nearly all, and what was used beyond it was used.
#[test]
fn more_than_was_reserved_is_charged_as_it_was() {
    let it = Charged::new(1, [Limit::tokens(Period::Day, 1_000)]);
    it.rig.script.reply(reply(200, &part("Hello", Some("STOP"), (2_000, 90))));
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    assert_eq!(it.used(), 2_090);
    let error = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap_err();
    assert!(matches!(error, Error::OverBudget { .. }), "{error}");
}

/// Each of so many answers may be as long as one.
#[test]
fn candidates_are_reserved_each_at_its_longest() {
    let it = Charged::new(1, []);
    it.rig.script.reply(hello());
    let three = request().with_candidate_count(3);
    it.rig.run(it.rig.gemini.generate(MODEL, three)).unwrap();
    assert_eq!(it.rows()[0].estimate.output, 3 * OUTPUT);
}

/// One call, however many requests its vectors take.
#[test]
fn many_vectors_are_one_call_and_each_request_a_row() {
    let it = Charged::new(2, [Limit::calls(Period::Day, 1)]);
    it.rig.script.otherwise(|request| {
        let texts = request.json()["requests"].as_array().map_or(0, Vec::len);
        Scripted::embeddings(vec![[1.0_f32]; texts])
    });
    let texts: Vec<_> = (0..250).map(|number| format!("text {number}")).collect();
    let vectors = it.rig.run(it.rig.gemini.embed("gemini-embedding-001", texts)).unwrap();
    assert_eq!(vectors.vectors.len(), 250);
    let rows = it.rows();
    assert!(rows.len() >= 3, "{} requests", rows.len());
    assert_eq!(rows.iter().map(|row| row.charged.unwrap().calls).sum::<u64>(), 1);
    assert!(rows.iter().all(|row| row.estimate.output == 0), "vectors are no output");
    let names: BTreeSet<_> = rows.iter().map(|row| row.request_id.clone()).collect();
    assert_eq!(names.len(), 1);
    it.assert_balanced();
}

#[test]
fn what_asks_no_model_is_not_in_the_ledger() {
    let it = Charged::new(1, [Limit::tokens(Period::Day, 0), Limit::calls(Period::Day, 0)]);
    it.rig.script.reply(Scripted::token_count(3));
    it.rig.run(it.rig.gemini.count_tokens(MODEL, "hi")).unwrap();
    it.rig.script.reply(reply(200, &json!({"models": []})));
    it.rig.run(it.rig.gemini.models()).unwrap();
    assert_eq!(it.rows(), []);
}

#[test]
fn a_raw_call_is_reserved_at_what_its_body_allows_and_sent_as_it_is() {
    use keywheel::raw::Call;
    let it = Charged::new(1, []);
    it.rig.script.otherwise(|_| hello());
    let generate = |body: &'static str| {
        let call = Call::post("models/m:generateContent", body);
        it.rig.run(it.rig.gemini.send(call)).unwrap();
    };
    let bounded = r#"{"contents":[],"generationConfig":{"maxOutputTokens":70}}"#;
    generate(bounded);
    generate(r#"{"contents":[]}"#);
    let outputs: Vec<_> = it.rows().iter().map(|row| row.estimate.output).collect();
    assert_eq!(outputs, [70, 65_536]);
    assert_eq!(it.rig.script.requests()[0].body, bounded.as_bytes());
    assert_eq!(it.charges()[0], (Some(Outcome::Answered), used(9)));

    let chat = r#"{"model":"m","messages":[],"max_completion_tokens":30,"n":2}"#;
    it.rig.run(it.rig.gemini.send(Call::post("/v1beta/openai/chat/completions", chat))).unwrap();
    assert_eq!(it.rows()[2].estimate.output, 60);
    it.assert_balanced();
}

#[test]
fn a_raw_stream_is_charged_what_its_events_say() {
    use keywheel::raw::Call;
    let it = Charged::new(1, []);
    let events = || [part("Hel", None, (8, 1)), part("lo", Some("STOP"), (8, 2))];
    let call = || Call::post("models/m:streamGenerateContent", r#"{"contents":[]}"#);
    it.rig.script.reply(Scripted::events(events()));
    it.rig.run(it.rig.gemini.send(call().with_query("alt", "sse"))).unwrap();
    it.rig.script.reply(reply(200, &events().to_vec().into()));
    it.rig.run(it.rig.gemini.send(call())).unwrap();
    let answered = (Some(Outcome::Answered), used(10));
    assert_eq!(it.charges(), [answered, answered]);
    it.assert_balanced();
}

/// One gate before every way to a model. Elsewhere some went past it:
/// <https://github.com/BerriAI/litellm/issues/10750>, <https://github.com/headroomlabs-ai/headroom/issues/3374>.
#[test]
fn no_way_to_a_model_leads_past_an_empty_budget() {
    use keywheel::raw::Call;
    const BODY: &str = r#"{"model":"m","input":"hi","contents":[{"parts":[{"text":"hi"}]}]}"#;
    let it = Charged::new(1, [Limit::tokens(Period::Day, 0)]);
    let (rig, gemini) = (&it.rig, &it.rig.gemini);
    let raw = |path: &str| rig.run(gemini.send(Call::post(path, BODY))).map(drop);
    let ways = [
        ("generate", rig.run(gemini.generate(MODEL, "hi")).map(drop)),
        ("stream", rig.run(gemini.stream(MODEL, "hi")).map(drop)),
        ("chat", rig.run(gemini.chat(MODEL).send("hi")).map(drop)),
        ("json", rig.run(gemini.generate_json::<Vec<u8>>(MODEL, "hi")).map(drop)),
        ("embed", rig.run(gemini.embed("gemini-embedding-001", "hi")).map(drop)),
        ("raw generate", raw("models/m:generateContent")),
        ("raw stream", raw("models/m:streamGenerateContent?alt=sse")),
        ("raw embed", raw("models/m:batchEmbedContents")),
        ("raw predict", raw("models/veo:predictLongRunning")),
        ("raw chat", raw("/v1beta/openai/chat/completions")),
        ("raw interaction", raw("/v1beta/interactions")),
    ];
    for (way, ended) in ways {
        assert!(matches!(ended, Err(Error::OverBudget { .. })), "{way}: {ended:?}");
    }
    assert!(rig.script.requests().is_empty(), "nothing was sent");
    assert_eq!(it.rows(), [], "and nothing is held");
}

/// Its size is not in the request. The provider counts it, at no cost.
#[test]
fn a_file_is_weighed_by_the_provider() {
    let with_file = || {
        let file = r#"{"contents":[{"parts":[{"fileData":{"fileUri":"https://generativelanguage.googleapis.com/v1beta/files/x","mimeType":"application/pdf"}}]}],"generationConfig":{"maxOutputTokens":100}}"#;
        serde_json::from_str::<GenerateRequest>(file).unwrap()
    };
    let it = Charged::new(1, []);
    it.rig.script.reply(Scripted::token_count(5_000));
    it.rig.script.reply(hello());
    it.rig.run(it.rig.gemini.generate(MODEL, with_file())).unwrap();
    assert_eq!(it.rows()[0].estimate.input, 5_000);

    // If it does not say, it is as much as the model can read.
    let facts = keywheel::ModelFacts { input_token_limit: Some(32_000), ..Default::default() };
    let it = Charged::built(1, [], |client| client.model_facts(MODEL, facts));
    it.rig.script.reply(bad_request());
    it.rig.script.reply(hello());
    it.rig.run(it.rig.gemini.generate(MODEL, with_file())).unwrap();
    assert_eq!(it.rows()[0].estimate.input, 32_000);
    assert_eq!(it.rows().len(), 1, "counting is no row");
}

/// What pages it reads is the model's choice.
#[test]
fn a_tool_that_reads_is_reserved_at_all_that_the_model_can_read() {
    let it = Charged::new(1, []);
    it.rig.script.otherwise(|_| hello());
    let reads = request().with_tool(json!({"urlContext": {}}));
    it.rig.run(it.rig.gemini.generate(MODEL, reads)).unwrap();
    let searches = request().with_tool(json!({"googleSearch": {}}));
    it.rig.run(it.rig.gemini.generate(MODEL, searches)).unwrap();
    let inputs: Vec<_> = it.rows().iter().map(|row| row.estimate.input).collect();
    assert_eq!(inputs[0], 1 << 20);
    assert!(inputs[1] < 100, "{inputs:?}");
}

#[test]
fn an_answer_from_the_cache_or_from_the_callback_costs_nothing() {
    let cache = keywheel::embed_cache::EmbedCacheConfig::default();
    let it = Charged::built(1, [Limit::tokens(Period::Day, 50)], |client| {
        client.embed_cache(cache).on_exhausted(|_| async { "resting" })
    });
    it.rig.script.otherwise(|_| Scripted::embeddings([[1.0_f32]]));
    for _ in 0..2 {
        it.rig.run(it.rig.gemini.embed("gemini-embedding-001", ["a text"])).unwrap();
    }
    assert_eq!(it.rows().len(), 1);
    let reply = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    assert!(reply.degraded().is_some());
    assert_eq!(it.rows().len(), 1);
    it.assert_balanced();
}
