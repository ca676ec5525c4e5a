//! A stream is reserved like any other attempt, and settled once: at its end, by an error, or by whoever drops it.

#![cfg(feature = "ledger")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::time::Duration;

use common::{
    MODEL,
    bodies::{day_spent_body, overloaded_body, part},
    ledger::{Charged, OUTPUT, request},
};
use keywheel::{
    Error, GeminiStream,
    ledger::{Amount, Outcome, RowState},
};
use keywheel_provider::{TransportKind, testing::Scripted};
use serde_json::json;

const fn used(tokens: u64) -> Option<Amount> {
    Some(Amount::new(tokens, 1))
}

fn open(it: &Charged) -> GeminiStream {
    it.rig.run(it.rig.gemini.stream(MODEL, request())).unwrap()
}

/// Two parts, with what had been used by each.
fn two_parts(last: (u64, u64)) -> Scripted {
    Scripted::events([part("Hel", None, (8, 1)), part("lo", Some("STOP"), last)])
}

fn next(it: &Charged, stream: &mut GeminiStream) -> Option<String> {
    it.rig.run(stream.next()).map(|part| part.unwrap().text().into_owned())
}

fn estimate(it: &Charged) -> u64 {
    it.rows()[0].estimate.total()
}

#[test]
fn a_stream_read_to_its_end_is_settled_before_its_end_is_told() {
    let it = Charged::new(1, []);
    it.rig.script.reply(two_parts((8, 2)));
    let mut stream = open(&it);
    assert_eq!(it.rows()[0].state, RowState::Reserved);
    assert_eq!(it.rig.run(stream.text()).unwrap(), "Hello");
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(10))]);
    it.assert_balanced();
    drop(stream);
    assert_eq!(it.rows().len(), 1);
}

#[test]
fn a_stream_dropped_half_way_costs_the_estimate() {
    let it = Charged::new(1, []);
    it.rig.script.reply(two_parts((8, 2)));
    let mut stream = open(&it);
    assert_eq!(next(&it, &mut stream).as_deref(), Some("Hel"));
    drop(stream);
    assert_eq!(it.charges(), [(Some(Outcome::CutShort), used(estimate(&it)))]);
    assert_eq!(it.rows()[0].usage.unwrap().total, 9, "what was seen is kept");
    it.assert_balanced();
}

#[test]
fn a_stream_dropped_after_more_than_the_estimate_costs_what_was_seen() {
    let it = Charged::new(1, []);
    it.rig.script.reply(Scripted::events([part("Hel", None, (5_000, 1))]).hang());
    let mut stream = open(&it);
    next(&it, &mut stream);
    drop(stream);
    assert_eq!(it.charges(), [(Some(Outcome::CutShort), used(5_001))]);
    it.assert_balanced();
}

#[test]
fn a_stream_dropped_before_its_first_part_costs_the_estimate() {
    let it = Charged::new(1, []);
    it.rig.script.reply(two_parts((8, 2)));
    drop(open(&it));
    assert_eq!(it.charges(), [(Some(Outcome::CutShort), used(estimate(&it)))]);
    it.assert_balanced();
}

/// Readers stop at the finish reason and never ask for the end.
#[test]
fn a_stream_dropped_after_its_last_part_costs_what_it_used() {
    let it = Charged::new(1, []);
    it.rig.script.reply(two_parts((8, 2)));
    let mut stream = open(&it);
    while next(&it, &mut stream).as_deref() != Some("lo") {}
    drop(stream);
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(10))]);
    it.assert_balanced();
}

#[test]
fn a_stream_that_breaks_is_settled_before_its_error_is_told() {
    let breaks: [(&str, Scripted); 4] = [
        ("an error inside", Scripted::events([part("Hel", None, (8, 1)), overloaded_body()])),
        ("a refusal inside", Scripted::events([part("Hel", None, (8, 1)), day_spent_body(20)])),
        ("a cut", Scripted::events([part("Hel", None, (8, 1))]).fail(TransportKind::Interrupted)),
        ("an end without a reason", Scripted::events([part("Hel", None, (8, 1))])),
    ];
    for (name, reply) in breaks {
        let it = Charged::new(1, []);
        it.rig.script.reply(reply);
        let mut stream = open(&it);
        let error = it.rig.run(stream.text()).unwrap_err();
        assert!(matches!(error, Error::StreamBroken { .. }), "{name}: {error}");
        assert_eq!(it.charges(), [(Some(Outcome::CutShort), used(estimate(&it)))], "{name}");
        it.assert_balanced();
    }
}

#[test]
fn a_stream_that_begins_with_a_refusal_costs_nothing_for_that() {
    let it = Charged::new(2, []);
    it.rig.script.reply(Scripted::events([day_spent_body(20)]));
    it.rig.script.reply(two_parts((8, 2)));
    it.rig.run(open(&it).text()).unwrap();
    let refused = (Some(Outcome::Refused), Some(Amount::ZERO));
    assert_eq!(it.charges(), [refused, (Some(Outcome::Answered), used(10))]);
    it.assert_balanced();
}

#[test]
fn a_stream_that_is_refused_late_but_before_any_part_costs_nothing() {
    let it = Charged::new(1, []);
    // The head is there; the first part is not waited for longer than two seconds.
    let late = Scripted::events(Vec::<String>::new()).pause(Duration::from_secs(5));
    it.rig.script.reply(late.piece(format!("data: {}\r\n\r\n", day_spent_body(20))));
    let mut stream = open(&it);
    it.rig.run(stream.text()).unwrap_err();
    assert_eq!(it.charges(), [(Some(Outcome::Refused), Some(Amount::ZERO))]);
    it.assert_balanced();
}

#[test]
fn a_stream_whose_deadline_comes_costs_the_estimate() {
    let it = Charged::new(1, []);
    it.rig.script.reply(Scripted::events([part("Hel", None, (8, 1))]).hang());
    let call = it.rig.gemini.stream(MODEL, request()).deadline(Duration::from_secs(10));
    let mut stream = it.rig.run(call).unwrap();
    let error = it.rig.run(stream.text()).unwrap_err();
    assert!(matches!(error, Error::DeadlineReached { .. }), "{error}");
    assert_eq!(it.charges(), [(Some(Outcome::CutShort), used(estimate(&it)))]);
    it.assert_balanced();
}

/// The sweep takes whoever is silent for a quarter of an hour for dead.
#[test]
fn a_stream_longer_than_the_sweeps_age_is_not_swept() {
    let it = Charged::new(1, []);
    let slow = (0..40).fold(Scripted::events(Vec::<String>::new()), |slow, number| {
        let finish = (number == 39).then_some("STOP");
        let event = part("x", finish, (8, number + 1));
        slow.pause(Duration::from_secs(60)).piece(format!("data: {event}\r\n\r\n"))
    });
    it.rig.script.reply(slow);
    let mut stream = it.rig.run(it.rig.gemini.stream(MODEL, request()).no_deadline()).unwrap();
    let mut parts = 0;
    while next(&it, &mut stream).is_some() {
        parts += 1;
        assert_eq!(it.rig.run(it.ledger.sweep()).unwrap().rows, 0, "after {parts} minutes");
    }
    assert_eq!(parts, 40);
    assert!(it.rows()[0].renewed_at.is_some());
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(48))]);
    it.assert_balanced();
}

/// A reader who does not read for so long is swept, and the true figure is booked when he goes on.
#[test]
fn a_stream_that_was_swept_is_settled_late() {
    let it = Charged::new(1, []);
    it.rig.script.reply(two_parts((8, 2)));
    let mut stream = open(&it);
    it.rig.clock.advance(Duration::from_secs(1_000));
    assert_eq!(it.rig.run(it.ledger.sweep()).unwrap().rows, 1);
    assert_eq!(it.used(), estimate(&it));
    it.rig.run(stream.text()).unwrap();
    assert_eq!(it.charges(), [(Some(Outcome::Answered), used(10))]);
    it.assert_balanced();
}

#[test]
fn each_hop_of_an_answer_is_reserved_and_all_are_one_call() {
    for streamed in [false, true] {
        let it = Charged::new(1, []);
        it.rig.script.otherwise(move |request| {
            let goes_on = request.json()["continuationToken"].is_null();
            let mut body = part("so ", Some("STOP"), (5, 90));
            if goes_on {
                body["candidates"][0]["finishReason"] = "CONTINUATION".into();
                body["candidates"][0]["continuationToken"] = "t".into();
            }
            match streamed {
                true => Scripted::events([body]),
                false => Scripted::json(200, body.to_string()),
            }
        });
        let text = if streamed {
            it.rig.run(open(&it).text()).unwrap()
        } else {
            it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap().text().into_owned()
        };
        assert_eq!(text, "so so ");
        let next = Some(Amount::new(95, 0));
        let answered = Some(Outcome::Answered);
        assert_eq!(it.charges(), [(answered, used(95)), (answered, next)], "{streamed}");
        let rows = it.rows();
        assert_eq!(rows[0].request_id, rows[1].request_id);
        assert_eq!(rows[1].estimate.input, rows[0].estimate.input + 90, "it reads what was said");
        assert_eq!(rows[1].estimate.output, OUTPUT);
        it.assert_balanced();
    }
}

#[test]
fn a_stream_tells_that_the_ledger_bounded_it() {
    let capped = |request: keywheel::GenerateRequest| {
        let it = Charged::new(1, []);
        it.rig.script.reply(Scripted::events([part("Hel", Some("MAX_TOKENS"), (8, 1))]));
        let mut stream = it.rig.run(it.rig.gemini.stream(MODEL, request)).unwrap();
        it.rig.run(stream.text()).unwrap();
        let sent = it.rig.script.requests()[0].json();
        (stream.output_was_capped(), sent["generationConfig"]["maxOutputTokens"].clone())
    };
    assert_eq!(capped("hi".into()), (true, json!(8_192)));
    assert_eq!(capped(request()), (false, json!(100)));
}
