//! A call may be dropped at any await: nothing stays held, what was sent stays counted, and others go on.

mod common;

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use common::{
    MODEL, OTHER_MODEL, Rig,
    bodies::{day_spent, invalid_key, minute_full, overloaded, part},
    poll_times,
};
use keywheel::{Error, Limits, MemoryState, StateLocation};
use keywheel_provider::{Sent, TransportKind, testing::Scripted};

/// A scripted reply, and how many requests Google counts for it.
struct Step {
    reply: Scripted,
    counts: u64,
}

fn step(reply: Scripted, counts: u64) -> Step {
    // Every reply takes a while, so that there is an await to be dropped at.
    Step { reply: reply.after(Duration::from_millis(100)), counts }
}

type Scenario = (&'static str, usize, fn() -> Vec<Step>);

fn scenarios() -> Vec<Scenario> {
    vec![
        ("an answer", 1, || vec![step(Scripted::text("Hello"), 1)]),
        ("an answer in pieces", 1, || {
            let body = part("Hello", Some("STOP"), (8, 1)).to_string();
            let (head, tail) = body.split_at(20);
            let pause = Duration::from_millis(50);
            let pieces = Scripted::json(200, head.to_owned()).pause(pause).piece(tail.to_owned());
            vec![step(pieces, 1)]
        }),
        ("refusals, then an answer", 4, || {
            vec![
                step(day_spent(20), 0),
                step(invalid_key(), 0),
                step(minute_full(15, 30), 0),
                step(Scripted::text("Hello"), 1),
            ]
        }),
        ("failures, then an answer", 1, || {
            vec![
                step(overloaded(), 1),
                step(Scripted::failure(TransportKind::Interrupted, Sent::Maybe), 1),
                step(Scripted::text("Hello"), 1),
            ]
        }),
        ("no connection, then an answer", 1, || {
            vec![
                step(Scripted::failure(TransportKind::Connect, Sent::No), 0),
                step(Scripted::text("Hello"), 1),
            ]
        }),
        ("a wait for the minute, then an answer", 1, || {
            vec![step(minute_full(15, 30), 0), step(Scripted::text("Hello"), 1)]
        }),
        ("a failure and nothing else", 1, || {
            vec![step(overloaded(), 1), step(overloaded(), 1), step(overloaded(), 1)]
        }),
    ]
}

/// What may be counted after `sent` requests, of which the last may not have been reported any more: as it would
/// be, or as one that was sent.
fn allowed(steps: &[Step], sent: usize) -> Vec<u64> {
    let reported = |count: usize| steps[..count].iter().map(|step| step.counts).sum::<u64>();
    if sent == 0 {
        return vec![0];
    }
    vec![reported(sent), reported(sent - 1) + 1]
}

fn still_works(rig: &Rig, name: &str, polls: usize) {
    rig.assert_balanced();
    rig.script.otherwise(|_| Scripted::text("later"));
    for model in [MODEL, "another-model"] {
        // The rest of the script is played first; every scenario ends with an answer, or is at its end.
        let mut served = false;
        for _ in 0..4 {
            rig.clock.advance(Duration::from_secs(120));
            served |= rig.run(rig.gemini.generate(model, "hi")).is_ok();
        }
        assert!(served, "{name}: nothing is served after {polls} polls and a drop");
    }
    rig.assert_balanced();
}

#[test]
fn a_call_dropped_at_any_await_leaves_the_pool_in_balance() {
    for (name, keys, steps) in scenarios() {
        let mut ended = false;
        for polls in 0..200 {
            let rig = Rig::built(
                keys,
                |pool| pool.state(StateLocation::Memory(MemoryState::new())),
                |client| client,
            );
            let steps = steps();
            steps.iter().for_each(|step| rig.script.reply(step.reply.clone()));
            let outcome = {
                let call = pin!(rig.gemini.generate(MODEL, "hi").into_future());
                poll_times(&rig.clock, call, polls)
            };
            let sent = rig.script.requests().len();
            let (counted, allowed) = (rig.counted(MODEL), allowed(&steps, sent));
            assert!(
                allowed.contains(&counted),
                "{name}: {counted} are counted of {sent} sent, dropped after {polls} polls"
            );
            still_works(&rig, name, polls);
            if outcome.is_some() {
                assert_eq!(sent, steps.len(), "{name}: it played to its end");
                ended = true;
                break;
            }
        }
        assert!(ended, "{name}: never ended");
    }
}

#[test]
fn a_stream_dropped_at_any_await_leaves_the_pool_in_balance() {
    let steps = || {
        let pause = Duration::from_millis(50);
        let slow = Scripted::events([part("Hel", None, (8, 1))])
            .pause(pause)
            .piece(format!("data: {}\n\n", part("lo", Some("STOP"), (8, 2))))
            .pause(pause);
        vec![step(day_spent(20), 0), step(overloaded(), 1), step(slow, 1)]
    };
    let mut ended = false;
    for polls in 0..200 {
        let rig = Rig::new(2);
        let steps = steps();
        steps.iter().for_each(|step| rig.script.reply(step.reply.clone()));
        let outcome = {
            let whole = async { rig.gemini.stream(MODEL, "hi").await.unwrap().text().await };
            poll_times(&rig.clock, pin!(whole), polls)
        };
        let sent = rig.script.requests().len();
        assert!(allowed(&steps, sent).contains(&rig.counted(MODEL)), "after {polls} polls");
        still_works(&rig, "a stream", polls);
        if let Some(text) = outcome {
            assert_eq!(text.unwrap(), "Hello");
            ended = true;
            break;
        }
    }
    assert!(ended, "the stream never ended");
}

/// The turn of a caller who went away is the next one's.
#[test]
fn a_waiter_that_goes_away_does_not_keep_the_next_one_waiting() {
    let limits = Limits { rpm: Some(1), ..Limits::default() };
    let rig = Rig::built(1, |pool| pool.limits("*", limits), |client| client);
    rig.script.otherwise(|_| Scripted::text("Hello"));
    rig.run(rig.gemini.generate(MODEL, "first")).unwrap();
    let mut gone = Box::pin(rig.gemini.generate(MODEL, "gone").into_future());
    let mut next = Box::pin(rig.gemini.generate(MODEL, "next").into_future());
    assert!(poll_times(&rig.clock, gone.as_mut(), 1).is_none());
    assert!(poll_times(&rig.clock, next.as_mut(), 1).is_none());
    drop(gone);
    let reply = poll_times(&rig.clock, next.as_mut(), 10).expect("its turn has come").unwrap();
    assert_eq!(reply.text(), "Hello");
    assert_eq!(rig.script.requests().len(), 2);
    rig.assert_balanced();
}

#[test]
fn a_call_that_was_never_awaited_does_nothing() {
    let rig = Rig::new(1);
    drop(rig.gemini.generate(MODEL, "hi"));
    drop(rig.gemini.generate(MODEL, "hi").into_future());
    drop(rig.gemini.stream(MODEL, "hi"));
    assert!(rig.script.requests().is_empty());
    assert_eq!(rig.gemini.status().buckets, []);
}

#[test]
fn until_available_dropped_at_any_await_takes_nothing() {
    for polls in 0..3 {
        let rig = Rig::new(1);
        rig.script.reply(minute_full(15, 30));
        rig.script.otherwise(|_| Scripted::text("Hello"));
        let short = rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(1));
        rig.run(short).unwrap_err();
        {
            let wait = pin!(rig.gemini.until_available(MODEL));
            poll_times(&rig.clock, wait, polls);
        }
        still_works(&rig, "until_available", polls);
        assert_eq!(rig.counted(MODEL), 4);
    }
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// A kind of work, and what it meets: the reply to its request of each number.
struct Kind {
    name: &'static str,
    reply: fn(usize) -> Scripted,
    begin: fn(&Rig) -> Call<'_>,
}

fn generates(rig: &Rig) -> Call<'_> {
    Box::pin(async { rig.gemini.generate(MODEL, "hi").await.map(drop) })
}

fn hello() -> Scripted {
    Scripted::text("Hello")
}

fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "another model at once",
            reply: |number| if number == 0 { day_spent(20) } else { hello() },
            begin: generates,
        },
        Kind {
            name: "the soonest of two models",
            reply: |number| match number {
                0 => minute_full(15, 50),
                1 => minute_full(15, 20),
                _ => hello(),
            },
            begin: generates,
        },
        Kind {
            name: "another model after retries",
            reply: |number| if number < 3 { overloaded() } else { hello() },
            begin: generates,
        },
        Kind {
            name: "a model that is left alone, and its probes",
            reply: |number| if number < 7 { overloaded() } else { hello() },
            begin: |rig| {
                Box::pin(async {
                    loop {
                        let call = rig.gemini.generate(MODEL, "hi").without_fallback();
                        match call.no_deadline().await {
                            Err(Error::UpstreamDown { .. }) => {}
                            ended => return ended.map(drop),
                        }
                    }
                })
            },
        },
        Kind {
            name: "embeddings",
            reply: |number| match number {
                0 => overloaded(),
                _ => Scripted::json(200, r#"{"embeddings": [{"values": [0.5]}]}"#),
            },
            begin: |rig| Box::pin(async { rig.gemini.embed(EMBEDDER, ["hi"]).await.map(drop) }),
        },
        Kind {
            name: "a count of tokens",
            reply: |number| match number {
                0 => overloaded(),
                _ => Scripted::json(200, r#"{"totalTokens": 2}"#),
            },
            begin: |rig| Box::pin(async { rig.gemini.count_tokens(MODEL, "hi").await.map(drop) }),
        },
        Kind {
            name: "the list of models",
            reply: |number| match number {
                0 => minute_full(15, 30),
                _ => Scripted::json(200, r#"{"models": [{"name": "models/x"}]}"#),
            },
            begin: |rig| Box::pin(async { rig.gemini.models().await.map(drop) }),
        },
    ]
}

const EMBEDDER: &str = "gemini-embedding-2";

/// Also while it waits for several models at once, for a model that is left alone, or for a retry.
#[test]
fn every_kind_of_work_dropped_at_any_await_leaves_pool_and_breaker_in_balance() {
    for Kind { name, reply, begin } in kinds() {
        let mut ended = false;
        for polls in 0..300 {
            let rig = Rig::built(1, |pool| pool, |client| client.fallback([OTHER_MODEL]));
            let count = AtomicUsize::new(0);
            rig.script.otherwise(move |_| {
                reply(count.fetch_add(1, Ordering::Relaxed)).after(Duration::from_millis(100))
            });
            let outcome = poll_times(&rig.clock, pin!(begin(&rig)), polls);
            rig.assert_balanced();
            let (sent, counters) = (rig.script.requests().len(), rig.gemini.counters());
            assert_eq!(counters.attempts, sent as u64, "{name}, after {polls} polls");
            // Nothing that was left behind keeps any model from answering, once its quota is back.
            rig.script.otherwise(|_| hello());
            rig.clock.advance(Duration::from_secs(86_400));
            for model in [MODEL, OTHER_MODEL, EMBEDDER] {
                let call = rig.gemini.generate(model, "hi").without_fallback();
                let later = rig.run(call.deadline(Duration::from_secs(60)));
                assert!(later.is_ok(), "{name}, {model} after {polls} polls: {later:?}");
            }
            rig.assert_balanced();
            if let Some(outcome) = outcome {
                assert!(outcome.is_ok(), "{name}: {outcome:?}");
                ended = true;
                break;
            }
        }
        assert!(ended, "{name}: never ended");
    }
}
