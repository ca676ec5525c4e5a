//! A relayed call is reserved like any other and settled once, however its body ends.

#![cfg(feature = "ledger")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{pin::pin, sync::Arc, time::Duration};

use common::{
    MODEL,
    bodies::{day_spent, day_spent_body, overloaded_body, part, reply},
    ledger::{APP, Charged, SWEEP_AFTER},
    poll_times,
    relay::{array, event, events, read, streamed, whole},
};
use http::HeaderValue;
use keywheel::{
    Error,
    ledger::{Amount, Limit, Outcome, Period, RowState},
    raw::{Call, Relayed},
};
use keywheel_provider::{TransportKind, testing::Scripted};
use serde_json::json;

const fn used(tokens: u64) -> Option<Amount> {
    Some(Amount::new(tokens, 1))
}

fn first() -> String {
    event(&part("Hel", None, (8, 1)))
}

fn last() -> String {
    event(&part("lo", Some("STOP"), (8, 2)))
}

fn open(it: &Charged) -> Relayed {
    it.rig.run(streamed(&it.rig.gemini)).unwrap()
}

fn estimate(it: &Charged) -> u64 {
    it.rows()[0].estimate.total()
}

#[test]
fn whatever_the_form_of_a_reply_it_is_charged_what_it_says() {
    let (a, b) = (part("Hel", None, (8, 1)), part("lo", Some("STOP"), (8, 2)));
    let replies = [
        ("events", events([event(&a), event(&b)])),
        ("an array", Scripted::json(200, format!("[{a}\n,\r\n{b}\n]"))),
        ("one answer", reply(200, &b)),
    ];
    for (name, scripted) in replies {
        for zipped in [false, true] {
            let it = Charged::new(1, []);
            it.rig.script.reply(if zipped { zip(&it, scripted.clone()) } else { scripted.clone() });
            let call = match name {
                "events" => streamed(&it.rig.gemini),
                "an array" => array(&it.rig.gemini),
                _ => whole(&it.rig.gemini),
            };
            let mut relayed = it.rig.run(call).unwrap();
            assert_eq!(it.rows()[0].state, RowState::Reserved, "{name}");
            assert_eq!(relayed.request_id.as_ref(), Some(&it.rows()[0].request_id), "{name}");
            let (_, error) = read(&it.rig.clock, &mut relayed.body);
            assert!(error.is_none(), "{name}: {error:?}");
            assert_eq!(it.charges(), [(Some(Outcome::Answered), used(10))], "{name} {zipped}");
            it.assert_balanced();
            drop(relayed);
            assert_eq!(it.rows().len(), 1);
        }
    }
}

/// The same reply in gzip.
fn zip(it: &Charged, plain: Scripted) -> Scripted {
    use std::io::Write as _;

    use futures_util::StreamExt as _;
    use keywheel_provider::{Transport as _, WireRequest, testing::Script};

    let script = Script::new().with_clock(Arc::new(it.rig.clock.clone()));
    script.reply(plain);
    let request = WireRequest {
        method: http::Method::GET,
        url: String::new(),
        headers: http::HeaderMap::new(),
        body: "".into(),
    };
    let mut reply = it.rig.run(script.send(request)).unwrap();
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut pieces = Vec::new();
    while let Some(piece) = it.rig.run(reply.body.next()) {
        zip.write_all(&piece.unwrap()).unwrap();
        zip.flush().unwrap();
        pieces.push(std::mem::take(zip.get_mut()));
    }
    pieces.push(zip.finish().unwrap());
    let kind = reply.headers[http::header::CONTENT_TYPE].clone();
    let zipped = Scripted::status(200)
        .header(http::header::CONTENT_TYPE, kind)
        .header(http::header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    pieces.into_iter().fold(zipped, Scripted::piece)
}

#[test]
fn a_reply_that_says_nothing_of_its_usage_costs_the_estimate() {
    for scripted in [
        reply(200, &json!({"candidates": [{"finishReason": "STOP"}]})),
        Scripted::json(200, "no JSON at all"),
    ] {
        let it = Charged::new(1, []);
        it.rig.script.reply(scripted);
        let mut relayed = it.rig.run(whole(&it.rig.gemini)).unwrap();
        read(&it.rig.clock, &mut relayed.body);
        assert_eq!(it.charges(), [(Some(Outcome::Answered), used(estimate(&it)))]);
        it.assert_balanced();
    }
}

#[test]
fn an_attempt_that_was_refused_costs_nothing_and_the_next_one_its_usage() {
    for refused in [day_spent(20), events([event(&day_spent_body(20))])] {
        let it = Charged::new(2, []);
        it.rig.script.reply(refused);
        it.rig.script.reply(events([first(), last()]));
        let mut relayed = open(&it);
        read(&it.rig.clock, &mut relayed.body);
        let refused = (Some(Outcome::Refused), Some(Amount::ZERO));
        assert_eq!(it.charges(), [refused, (Some(Outcome::Answered), used(10))]);
        it.assert_balanced();
    }
}

#[test]
fn a_stream_that_breaks_is_settled_before_its_error_is_told() {
    let breaks: [(&str, Scripted); 4] = [
        ("an error inside", events([first(), event(&overloaded_body())])),
        ("a refusal inside", events([first(), event(&day_spent_body(20))])),
        ("a cut", events([first()]).fail(TransportKind::Interrupted)),
        ("an end without a reason", events([first()])),
    ];
    for (name, scripted) in breaks {
        let it = Charged::new(1, []);
        it.rig.script.reply(scripted);
        let mut relayed = open(&it);
        it.rig.run(relayed.body.next()).unwrap().unwrap();
        let error = it.rig.run(relayed.body.next()).unwrap().unwrap_err();
        assert!(matches!(error, Error::StreamBroken { .. }), "{name}: {error}");
        assert_eq!(it.charges(), [(Some(Outcome::CutShort), used(estimate(&it)))], "{name}");
        assert_eq!(it.rows()[0].usage.unwrap().total, 9, "what was seen is kept");
        it.assert_balanced();
    }
}

#[test]
fn a_body_that_is_dropped_costs_the_estimate_or_what_was_seen_if_more() {
    // After so many items of a stream that goes on; what it said by then.
    for (items, said, charged) in
        [(0, (8, 1), None), (1, (8, 1), None), (1, (5_000, 1), Some(5_001))]
    {
        let it = Charged::new(1, []);
        it.rig.script.reply(events([event(&part("Hel", None, said))]).hang());
        let mut relayed = open(&it);
        for _ in 0..items {
            it.rig.run(relayed.body.next()).unwrap().unwrap();
        }
        drop(relayed);
        let charged = charged.unwrap_or_else(|| estimate(&it));
        assert_eq!(it.charges(), [(Some(Outcome::CutShort), used(charged))], "{items} {said:?}");
        it.assert_balanced();
    }
}

/// Readers stop at the last byte and never ask for the end.
#[test]
fn a_body_that_is_dropped_at_its_end_costs_what_it_used() {
    let it = Charged::new(1, []);
    it.rig.script.reply(events([first(), last()]).hang());
    let mut relayed = open(&it);
    while it.rig.run(relayed.body.next()).unwrap().unwrap() != last() {}
    drop(relayed);
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(10))]);
    it.assert_balanced();

    let it = Charged::new(1, []);
    it.rig.script.reply(reply(200, &part("Hello", Some("STOP"), (8, 2))));
    drop(it.rig.run(whole(&it.rig.gemini)).unwrap());
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(10))]);
    it.assert_balanced();

    // By its length, a reply that is too long to be looked at whole.
    let it = Charged::new(1, []);
    let long = part(&"a".repeat(100_000), Some("STOP"), (8, 2)).to_string();
    let length = HeaderValue::from(long.len());
    let (a, b) = long.split_at(70_000);
    let scripted = Scripted::json(200, a.to_owned()).header(http::header::CONTENT_LENGTH, length);
    it.rig.script.reply(scripted.piece(b.to_owned()).hang());
    let mut relayed = it.rig.run(whole(&it.rig.gemini)).unwrap();
    it.rig.run(relayed.body.next()).unwrap().unwrap();
    assert_eq!(it.rig.run(relayed.body.next()).unwrap().unwrap(), b);
    drop(relayed);
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(10))]);
    it.assert_balanced();
}

#[test]
fn a_stream_whose_deadline_comes_costs_the_estimate() {
    let it = Charged::new(1, []);
    it.rig.script.reply(events([first()]).hang());
    let call = streamed(&it.rig.gemini).deadline(Duration::from_secs(10));
    let mut relayed = it.rig.run(call).unwrap();
    let (_, error) = read(&it.rig.clock, &mut relayed.body);
    assert!(matches!(error, Some(Error::DeadlineReached { .. })), "{error:?}");
    assert_eq!(it.charges(), [(Some(Outcome::CutShort), used(estimate(&it)))]);
    it.assert_balanced();
}

/// The sweep takes whoever is silent for so long for dead.
#[test]
fn a_body_longer_than_the_sweeps_age_is_not_swept() {
    let it = Charged::new(1, []);
    let slow = (0..40).fold(events([""; 0]), |slow, number| {
        let finish = (number == 39).then_some("STOP");
        slow.pause(SWEEP_AFTER / 4).piece(event(&part("x", finish, (8, number + 1))))
    });
    it.rig.script.reply(slow);
    let mut relayed = it.rig.run(streamed(&it.rig.gemini).no_deadline()).unwrap();
    let mut pieces = 0;
    while let Some(piece) = it.rig.run(relayed.body.next()) {
        piece.unwrap();
        pieces += 1;
        assert_eq!(it.rig.run(it.ledger.sweep()).unwrap().rows, 0, "after {pieces} pieces");
    }
    assert_eq!(pieces, 40);
    assert!(it.rows()[0].renewed_at.is_some());
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(48))]);
    it.assert_balanced();
}

#[test]
fn a_fixed_charge_is_what_it_costs_whatever_the_reply_says() {
    // A call of a model, and one of a route that costs nothing by itself.
    for path in [format!("models/{MODEL}:generateContent"), "batches/1:cancel".to_owned()] {
        let it = Charged::new(1, [Limit::tokens(Period::Day, 1_500)]);
        let answer = || reply(200, &part("Hello", Some("STOP"), (8, 2)));
        it.rig.script.reply(answer());
        let call = || it.rig.gemini.relay(Call::post(path.clone(), "{}")).fixed_charge(1_000);
        let mut relayed = it.rig.run(call()).unwrap();
        read(&it.rig.clock, &mut relayed.body);
        assert_eq!(it.charges(), [(Some(Outcome::Answered), used(1_000))], "{path}");
        let error = it.rig.run(call()).unwrap_err();
        assert!(matches!(error, Error::OverBudget { .. }), "{path}: {error}");
        it.assert_balanced();
    }
}

#[test]
fn a_fixed_charge_is_what_it_costs_also_where_the_provider_breaks_it_off() {
    let it = Charged::new(1, []);
    let said = event(&part("Hel", None, (8_000, 1)));
    it.rig.script.reply(events([said, event(&day_spent_body(20))]));
    let mut relayed = it.rig.run(streamed(&it.rig.gemini).fixed_charge(1_000)).unwrap();
    let (_, error) = read(&it.rig.clock, &mut relayed.body);
    assert!(matches!(error, Some(Error::StreamBroken { .. })), "{error:?}");
    assert_eq!(it.charges(), [(Some(Outcome::CutShort), used(1_000))]);
    it.assert_balanced();
}

#[test]
fn what_asks_no_model_costs_nothing() {
    let it = Charged::new(1, []);
    it.rig.script.reply(reply(200, &json!({"files": []})));
    let mut relayed = it.rig.run(it.rig.gemini.relay(Call::get("files"))).unwrap();
    read(&it.rig.clock, &mut relayed.body);
    assert!(it.rows().is_empty());
    assert!(relayed.standing.is_none());
    it.assert_balanced();
}

#[test]
fn the_tightest_limit_is_told_with_the_head() {
    let limits = [Limit::tokens(Period::Day, 1_000), Limit::calls(Period::Month, 1_000)];
    let it = Charged::new(1, limits);
    it.rig.script.reply(events([first(), last()]));
    let relayed = open(&it);
    // Nobody knows yet what a stream will have cost.
    let standing = relayed.standing.as_ref().unwrap();
    assert_eq!((standing.limit.cap, standing.sum.used()), (1_000, 0));
    assert_eq!(standing.limit.period, Period::Day);
    drop(relayed);
    it.assert_balanced();
}

#[test]
fn a_whole_answer_is_told_with_what_it_has_cost_not_with_its_estimate() {
    let it = Charged::new(1, [Limit::tokens(Period::Day, 1_000)]);
    it.rig.script.otherwise(|_| reply(200, &part("Hello", Some("STOP"), (8, 2))));
    for used in [10, 20] {
        let mut relayed = it.rig.run(whole(&it.rig.gemini)).unwrap();
        assert_eq!(relayed.standing.as_ref().unwrap().sum.used(), used);
        read(&it.rig.clock, &mut relayed.body);
    }
    it.assert_balanced();
}

#[test]
fn each_project_is_charged_for_its_own_calls() {
    let it = Charged::new(1, []);
    it.rig.script.otherwise(|_| reply(200, &part("Hello", Some("STOP"), (8, 2))));
    for account in [APP, "other"] {
        let mut relayed = it.rig.run(whole(&it.rig.gemini).account(account)).unwrap();
        read(&it.rig.clock, &mut relayed.body);
        assert_eq!(it.rig.run(it.ledger.usage(account)).unwrap().day.tokens.used(), 10);
    }
    let error = it.rig.run(whole(&it.rig.gemini).account("nobody")).unwrap_err();
    assert!(matches!(error, Error::Ledger { .. }), "{error}");
    it.assert_balanced();
}

#[test]
fn a_call_dropped_at_any_await_leaves_pool_and_ledger_in_balance() {
    for polls in 0..60 {
        let it = Charged::new(2, []);
        let pause = Duration::from_millis(10);
        it.rig.script.reply(day_spent(20).after(pause));
        it.rig.script.otherwise(move |_| {
            events([first()]).after(pause).pause(pause).piece(last()).pause(pause)
        });
        let ended = {
            let call = pin!(async {
                let mut relayed = streamed(&it.rig.gemini).await.unwrap();
                while let Some(piece) = relayed.body.next().await {
                    piece.unwrap();
                }
            });
            poll_times(&it.rig.clock, call, polls).is_some()
        };
        it.assert_balanced();
        if ended {
            assert!(polls > 3, "{polls}");
            return;
        }
    }
    panic!("it never ended");
}

#[test]
fn an_answer_without_a_limit_gets_the_accounts_and_every_other_byte_stays() {
    let chat = "/v1beta/openai/chat/completions";
    for (path, body, sent, cap) in [
        (
            "models/m:generateContent",
            r#"{ "contents": [ ],  "x":1.0 }"#,
            r#"{"generationConfig":{"maxOutputTokens":8192}, "contents": [ ],  "x":1.0 }"#,
            Some(8_192),
        ),
        (
            "models/m:streamGenerateContent",
            r#"{"generation_config":{"temperature":1}}"#,
            r#"{"generation_config":{"maxOutputTokens":8192,"temperature":1}}"#,
            Some(8_192),
        ),
        (
            chat,
            r#"{"model": "m", "messages": []}"#,
            r#"{"max_tokens":8192,"model": "m", "messages": []}"#,
            Some(8_192),
        ),
        ("models/m:generateContent", r#"{"generationConfig":{"maxOutputTokens":9}}"#, "", None),
        (chat, r#"{"model":"m","max_completion_tokens":9}"#, "", None),
        ("models/m:embedContent", r#"{"content":{}}"#, "", None),
        ("models/m:predict", r#"{"instances":[]}"#, "", None),
        ("models/m:countTokens", r#"{"contents":[]}"#, "", None),
        ("models/m:generateContent", "no JSON", "", None),
    ] {
        let it = Charged::new(1, []);
        it.rig.script.reply(reply(200, &part("Hello", Some("STOP"), (8, 2))));
        let relayed = it.rig.run(it.rig.gemini.relay(Call::post(path, body))).unwrap();
        assert_eq!(relayed.output_cap, cap, "{path} {body}");
        let expected = if sent.is_empty() { body } else { sent };
        assert_eq!(String::from_utf8_lossy(&it.rig.script.requests()[0].body), expected);
        if let (Some(cap), [row]) = (cap, &*it.rows()) {
            assert_eq!(row.estimate.output, cap, "what is reserved is what can be used");
        }
        drop(relayed);
        it.assert_balanced();
    }
    // With a fixed charge nothing is set: it is no bound.
    let it = Charged::new(1, []);
    it.rig.script.reply(reply(200, &part("Hello", Some("STOP"), (8, 2))));
    let call = it.rig.gemini.relay(Call::post("models/m:generateContent", "{}")).fixed_charge(7);
    assert_eq!(it.rig.run(call).unwrap().output_cap, None);
    assert_eq!(&*it.rig.script.requests()[0].body, b"{}");
}

#[test]
fn another_model_takes_over_in_the_body_of_openais_dialect() {
    let it = Charged::new(1, []);
    it.rig.script.reply(day_spent(20));
    it.rig.script.otherwise(|_| reply(200, &json!({"choices": [{"finish_reason": "stop"}]})));
    let body = format!(r#"{{"messages": [ ],  "model":"{MODEL}" }}"#);
    let call = Call::post("/v1beta/openai/chat/completions", body);
    let relayed = it.rig.run(it.rig.gemini.relay(call).fallback(["other"])).unwrap();
    assert_eq!(relayed.model.as_deref(), Some("other"));
    let sent = it.rig.script.requests();
    let expected = r#"{"max_tokens":8192,"messages": [ ],  "model":"other" }"#;
    assert_eq!(
        (String::from_utf8_lossy(&sent[1].body), &sent[0].url),
        (expected.into(), &sent[1].url)
    );
    drop(relayed);
    assert_eq!(&*it.rows()[1].model, "other");
    it.assert_balanced();
}

#[test]
fn files_and_caches_are_counted_by_the_provider_once_however_often_it_is_tried() {
    let it = Charged::new(1, [Limit::tokens(Period::Day, 5_000)]);
    it.rig.script.otherwise(|request| match request.url.to_string().contains(":countTokens") {
        true => reply(200, &json!({"totalTokens": 4_000})),
        false => Scripted::minute_full(5, Duration::from_secs(30)),
    });
    let body = r#"{"contents":[{"parts":[{"fileData":{"fileUri":"files/x"}}]}],"generationConfig":{"maxOutputTokens":9}}"#;
    let path = format!("/v1/models/{MODEL}:generateContent");
    let call = it.rig.gemini.relay(Call::post(path, body)).patience(Duration::ZERO);
    for _ in 0..3 {
        it.rig.run(call.clone()).unwrap_err();
    }
    let sent = it.rig.script.requests();
    assert!(
        sent[0].url.to_string().ends_with(&format!("/v1/models/{MODEL}:countTokens")),
        "{}",
        sent[0].url
    );
    let asked = sent[0].json();
    assert_eq!(asked["generateContentRequest"]["model"], format!("models/{MODEL}"));
    assert_eq!(
        asked["generateContentRequest"]["contents"][0]["parts"][0]["fileData"]["fileUri"],
        "files/x"
    );
    assert_eq!(sent.len(), 2, "one count, and one attempt");
    assert_eq!(it.rows()[0].estimate.input, 4_000);
    it.assert_balanced();
}

#[test]
fn tools_that_read_what_they_like_are_reserved_at_what_the_model_reads() {
    let it = Charged::new(1, [Limit::tokens(Period::Day, 1_000_000)]);
    let call = Call::post("models/m:generateContent", r#"{"tools":[{"url_context":{}}]}"#);
    let error = it.rig.run(it.rig.gemini.relay(call)).unwrap_err();
    assert!(matches!(error, Error::OverBudget { .. }), "{error}");
    assert!(it.rig.script.requests().is_empty());
    it.assert_balanced();
}
