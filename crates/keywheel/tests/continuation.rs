//! An answer in several hops is one answer: each hop is a request that counts, and none asks another project.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{pin::pin, time::Duration};

use common::{
    MODEL, OTHER_MODEL, Rig,
    bodies::{day_spent, overloaded, reply},
    poll_times,
};
use keywheel::{Error, FinishReason};
use keywheel_provider::testing::{Recorded, Scripted};
use serde_json::{Value, json};

/// A hop of an answer; with a token it is not the last.
fn hop(text: &str, token: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": [{"text": text}]}});
    candidate["finishReason"] = if token.is_some() { "CONTINUATION" } else { "STOP" }.into();
    if let Some(token) = token {
        candidate["continuationToken"] = token.into();
    }
    json!({"candidates": [candidate], "usageMetadata": {
        "promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7,
    }})
}

fn token_of(request: &Recorded) -> Option<String> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    body["continuationToken"].as_str().map(str::to_owned)
}

/// Three keys, and an answer in three hops.
fn rig(as_reply: fn(Value) -> Scripted) -> Rig {
    let rig = Rig::built(3, |pool| pool, |client| client.fallback([OTHER_MODEL]));
    rig.script.otherwise(move |request| {
        as_reply(match token_of(request).as_deref() {
            None => hop("Once ", Some("1")),
            Some("1") => hop("upon ", Some("2")),
            _ => hop("a time.", None),
        })
    });
    rig
}

fn whole(body: Value) -> Scripted {
    reply(200, &body).after(Duration::from_millis(100))
}

fn streamed(body: Value) -> Scripted {
    Scripted::events([body]).after(Duration::from_millis(100))
}

fn three_hops_of_one_project(rig: &Rig) {
    let tokens: Vec<_> = rig.script.requests().iter().map(token_of).collect();
    assert_eq!(tokens, [None, Some("1".to_owned()), Some("2".to_owned())]);
    let first = rig.keys_used()[0];
    assert_eq!(rig.keys_used(), [first; 3], "a token is the project's that gave it");
    assert_eq!((rig.counted(MODEL), rig.counted_tokens(MODEL)), (3, 15));
    assert_eq!(rig.gemini.counters().served, 3);
    assert_eq!(rig.gemini.counters().calls, 1);
    rig.assert_balanced();
}

#[test]
fn the_hops_of_an_answer_are_put_together_and_counted() {
    let rig = rig(whole);
    let reply = rig.run(rig.gemini.generate(MODEL, "Tell me a story")).unwrap();
    assert_eq!(&*reply.text(), "Once upon a time.");
    assert_eq!(reply.finish_reason(), Some(FinishReason::Stop));
    assert_eq!(reply.usage().unwrap().total, 21);
    assert_eq!(reply.attempts().len(), 3);
    three_hops_of_one_project(&rig);
}

#[test]
fn a_stream_goes_on_and_its_reader_sees_one_end() {
    let rig = rig(streamed);
    let (parts, usage, attempts) = rig.run(async {
        let mut stream = rig.gemini.stream(MODEL, "Tell me a story").await.unwrap();
        let mut parts = Vec::new();
        while let Some(part) = stream.next().await {
            parts.push(part.unwrap());
        }
        (parts, stream.usage().unwrap(), stream.attempts().len())
    });
    let text: String = parts.iter().map(|part| part.text().to_string()).collect();
    assert_eq!(text, "Once upon a time.");
    let ends: Vec<_> = parts.iter().map(keywheel::GenerateResponse::finish_reason).collect();
    assert_eq!(ends, [None, None, Some(FinishReason::Stop)]);
    assert_eq!((usage.total, attempts), (21, 3));
    three_hops_of_one_project(&rig);
}

#[test]
fn an_answer_without_end_stops_at_sixteen_hops() {
    for (as_reply, streams) in [(whole as fn(Value) -> Scripted, false), (streamed, true)] {
        let rig = Rig::new(1);
        let count = std::sync::atomic::AtomicUsize::new(0);
        rig.script.otherwise(move |_| {
            let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            as_reply(hop("more ", Some(&number.to_string())))
        });
        let end = if streams {
            rig.run(async {
                let mut stream = rig.gemini.stream(MODEL, "hi").await.unwrap();
                let mut end = None;
                while let Some(part) = stream.next().await {
                    end = part.unwrap().finish_reason();
                }
                end
            })
        } else {
            rig.run(rig.gemini.generate(MODEL, "hi")).unwrap().finish_reason()
        };
        assert_eq!(rig.script.requests().len(), 16);
        assert_eq!(end, Some(FinishReason::Continuation), "and it says that it is not whole");
        rig.assert_balanced();
    }
}

/// A token that comes again would bring the same again.
#[test]
fn a_token_that_repeats_itself_ends_the_answer() {
    let rig = Rig::new(1);
    rig.script.otherwise(|_| whole(hop("again ", Some("1"))));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(&*reply.text(), "again again ");
    assert_eq!(rig.script.requests().len(), 2);
}

/// Neither another project nor another model knows the token.
#[test]
fn a_hop_that_its_project_cannot_serve_ends_the_call_with_the_moment() {
    let rig = rig(whole);
    rig.script.reply(whole(hop("Once ", Some("1"))));
    rig.script.reply(day_spent(20));
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert!(error.next_available_at().is_some());
    assert_eq!(error.attempts().len(), 2);
    rig.assert_balanced();

    let rig = self::rig(streamed);
    rig.script.reply(streamed(hop("Once ", Some("1"))));
    rig.script.reply(day_spent(20));
    let (parts, error) = rig.run(async {
        let mut stream = rig.gemini.stream(MODEL, "hi").await.unwrap();
        let first = stream.next().await.unwrap().unwrap().text().to_string();
        (first, stream.next().await.unwrap().unwrap_err())
    });
    assert_eq!(parts, "Once ");
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    let counters = rig.gemini.counters();
    assert_eq!((counters.calls, counters.gave_up), (1, 1), "one call is given up once");
    rig.assert_balanced();
}

#[test]
fn a_hop_that_fails_is_retried_and_the_deadline_holds_for_all_hops() {
    let rig = rig(whole);
    rig.script.reply(whole(hop("Once ", Some("1"))));
    rig.script.reply(overloaded());
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(&*reply.text(), "Once upon a time.");
    assert_eq!(reply.attempts().len(), 4);

    for (as_reply, streams) in [(whole as fn(Value) -> Scripted, false), (streamed, true)] {
        let rig = self::rig(as_reply);
        let deadline = Duration::from_millis(250);
        let error = if streams {
            rig.run(async {
                let mut stream = rig.gemini.stream(MODEL, "hi").deadline(deadline).await.unwrap();
                stream.text().await.unwrap_err()
            })
        } else {
            rig.run(rig.gemini.generate(MODEL, "hi").deadline(deadline)).unwrap_err()
        };
        assert!(matches!(error, Error::DeadlineReached { .. }), "{error}");
        rig.assert_balanced();
    }
}

#[test]
fn an_answer_in_hops_may_be_dropped_at_any_await() {
    for streams in [false, true] {
        let mut ended = false;
        for polls in 0..200 {
            let rig = rig(if streams { streamed } else { whole });
            let outcome = {
                let call = async {
                    if streams {
                        return rig.gemini.stream(MODEL, "hi").await.unwrap().text().await.unwrap();
                    }
                    rig.gemini.generate(MODEL, "hi").await.unwrap().text().to_string()
                };
                poll_times(&rig.clock, pin!(call), polls)
            };
            rig.assert_balanced();
            assert_eq!(rig.counted(MODEL), rig.script.requests().len() as u64, "{polls} polls");
            if let Some(text) = outcome {
                assert_eq!(text, "Once upon a time.");
                ended = true;
                break;
            }
        }
        assert!(ended, "it never ended");
    }
}
