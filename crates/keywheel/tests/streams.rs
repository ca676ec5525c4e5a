//! A stream may be replaced by another until its first part is handed out, and is never taken for more than it was.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{
    MODEL, NOON, Rig, account, at,
    bodies::{
        day_spent_body, error, invalid_key, minute_full_body, overloaded, overloaded_body, part,
        reply,
    },
    fingerprint, key, label, over, run,
};
use futures_util::{FutureExt as _, StreamExt as _};
use keywheel::{
    Cause, Clock as _, Error, GeminiStream, GenerateRequest, KeySpec, Kind, ManualClock, Pool,
    StateLocation, Usage,
};
use keywheel_provider::{TransportKind, testing::Scripted};
use keywheel_sim::{Fault, Limits, ModelConfig, ProjectConfig, SimConfig, SimTransport};
use serde_json::json;

/// What a stream gave: the texts of its parts, and the error at its end if there was one.
type Read = (Vec<String>, Option<Error>);

fn open(rig: &Rig) -> GeminiStream {
    rig.run(rig.gemini.stream(MODEL, "hi")).unwrap()
}

fn read(clock: &ManualClock, stream: &mut GeminiStream) -> Read {
    let (mut texts, mut error) = (Vec::new(), None);
    while let Some(part) = run(clock, stream.next()) {
        match part {
            Ok(part) => texts.push(part.text().into_owned()),
            Err(fault) => {
                error = Some(fault);
                break;
            }
        }
    }
    for _ in 0..2 {
        assert!(run(clock, stream.next()).is_none(), "the end stays the end");
    }
    (texts, error)
}

fn hello() -> Scripted {
    Scripted::stream(["Hel", "lo"])
}

#[test]
fn a_whole_stream_is_served_and_its_last_usage_is_what_counts() {
    let rig = Rig::new(1);
    rig.script.reply(Scripted::events([
        part("Hel", None, (900, 1)),
        part("lo", None, (950, 2)),
        part("", Some("STOP"), (1_000, 2)),
    ]));
    let mut stream = open(&rig);
    assert_eq!(account(stream.attempts()), [(&*label(1), "served")]);
    assert_eq!(stream.model(), MODEL);
    assert!(stream.degraded().is_none());
    let (texts, error) = read(&rig.clock, &mut stream);
    assert!(error.is_none());
    assert_eq!(texts, ["Hel", "lo", ""]);
    let last = Usage { input: 1_000, output: 2, total: 1_002, ..Usage::default() };
    assert_eq!(stream.usage(), Some(last));
    assert_eq!(rig.counted_tokens(MODEL), 1_000, "neither the estimate nor a sum");
    rig.assert_balanced();
    let url = &rig.script.requests()[0].url;
    assert!(url.ends_with(":streamGenerateContent?alt=sse"), "{url}");
}

#[test]
fn a_stream_reads_as_any_other_stream_and_as_one_text() {
    let rig = Rig::new(1);
    rig.script.otherwise(|_| hello());
    let parts = rig.run(open(&rig).collect::<Vec<_>>());
    assert_eq!(parts.len(), 2);
    assert_eq!(rig.run(open(&rig).text()).unwrap(), "Hello");
    rig.assert_balanced();
}

/// <https://github.com/maximhq/bifrost/issues/5395>, <https://github.com/mnfst/llm-gateway/pull/1657>: no
/// failover once the head of the stream was there.
#[test]
fn a_stream_that_begins_with_a_refusal_is_replaced_before_anybody_sees_it() {
    let first = [
        (Scripted::events([day_spent_body(20)]), "per_day_requests"),
        (Scripted::events([json!([minute_full_body(15, 30)])]), "per_minute_requests"),
        (Scripted::json(200, day_spent_body(20).to_string()), "per_day_requests"),
        (reply(429, &json!([day_spent_body(20)])), "per_day_requests"),
        (invalid_key(), "invalid_key"),
    ];
    for (refusal, kind) in first {
        let rig = Rig::new(2);
        rig.script.reply(refusal);
        rig.script.reply(hello());
        let before = rig.clock.now();
        let mut stream = open(&rig);
        assert_eq!(account(stream.attempts()), [(&*label(1), kind), (&*label(2), "served")]);
        assert_eq!(rig.clock.now(), before, "nobody paused");
        let (texts, error) = read(&rig.clock, &mut stream);
        assert!(error.is_none());
        assert_eq!(texts, ["Hel", "lo"]);
        rig.assert_balanced();
    }
}

#[test]
fn a_stream_that_begins_with_a_failure_is_tried_again_after_a_pause() {
    let first = [
        Scripted::events([overloaded_body()]),
        Scripted::events(["{not JSON}"]),
        Scripted::events(Vec::<String>::new()),
        Scripted::status(200).fail(TransportKind::Interrupted),
        overloaded(),
    ];
    for failure in first {
        let rig = Rig::new(1);
        rig.script.reply(failure);
        rig.script.reply(hello());
        let before = rig.clock.now();
        let mut stream = open(&rig);
        assert_eq!(stream.attempts().len(), 2);
        assert!((rig.clock.now() - before).num_milliseconds() >= 1_000);
        assert!(read(&rig.clock, &mut stream).1.is_none());
        assert!(rig.gemini.status().buckets[0].ready, "no key is blamed");
        assert_eq!(rig.counted(MODEL), 2);
        rig.assert_balanced();
    }
}

#[test]
fn a_stream_that_only_fails_is_the_providers_failure() {
    let rig = Rig::new(2);
    rig.script.otherwise(|_| Scripted::events([overloaded_body()]));
    let error = rig.run(rig.gemini.stream(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    assert_eq!(rig.script.requests().len(), 3);
    rig.assert_balanced();
}

/// <https://github.com/diegosouzapw/OmniRoute/issues/4177>: passed on as success.
#[test]
fn an_error_in_the_middle_breaks_the_stream_and_blames_no_key() {
    let rig = Rig::new(2);
    rig.script.reply(Scripted::events([part("Hel", None, (8, 1)), overloaded_body()]));
    let mut stream = open(&rig);
    let (texts, error) = read(&rig.clock, &mut stream);
    assert_eq!(texts, ["Hel"]);
    let Some(Error::StreamBroken { verdict: Some(verdict), reason }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(verdict.kind, Kind::Refused(Cause::Overloaded));
    assert!(reason.contains("high demand"), "{reason}");
    assert_eq!(rig.script.requests().len(), 1, "nobody takes over once text was handed out");
    assert_eq!(rig.counted(MODEL), 1);
    assert!(rig.gemini.status().buckets.iter().all(|bucket| bucket.cooldowns.is_empty()));
    rig.assert_balanced();
}

#[test]
fn a_quota_met_in_the_middle_holds_the_bucket_back() {
    let rig = Rig::new(2);
    rig.script.reply(Scripted::events([part("Hel", None, (8, 1)), day_spent_body(20)]));
    rig.script.otherwise(|_| hello());
    let mut stream = open(&rig);
    let (_, error) = read(&rig.clock, &mut stream);
    assert!(matches!(error, Some(Error::StreamBroken { verdict: Some(_), .. })), "{error:?}");
    rig.assert_balanced();
    for _ in 0..3 {
        assert_eq!(open(&rig).attempts()[0].fingerprint, fingerprint(2));
    }
    let status = rig.gemini.status();
    let spent = status.buckets.iter().find(|bucket| !bucket.ready).expect("the first is out");
    assert_eq!(spent.cooldowns[0].cause, Cause::PerDayRequests);
}

#[test]
fn a_key_found_dead_in_the_middle_is_quarantined() {
    let rig = Rig::new(2);
    let message = "Your API key was reported as leaked. Please use another API key.";
    let leaked = error(403, "PERMISSION_DENIED", message, json!([]));
    rig.script.reply(Scripted::events([part("Hel", None, (8, 1)), leaked]));
    let mut stream = open(&rig);
    let (_, error) = read(&rig.clock, &mut stream);
    assert!(matches!(error, Some(Error::StreamBroken { .. })), "{error:?}");
    let quarantine = rig.gemini.status().keys[0].quarantine.clone().expect("it is dead");
    assert_eq!(quarantine.cause, Cause::LeakedOrSuspendedKey);
    rig.assert_balanced();
}

/// <https://github.com/doggy8088/ask-page-extension/issues/21>: a search quota was taken for a dead key.
#[test]
fn a_quota_met_in_the_middle_of_a_search_holds_back_searches_only() {
    let rig = Rig::new(1);
    let bare = error(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted.", json!([]));
    rig.script.reply(Scripted::events([part("Hel", None, (8, 1)), bare]));
    rig.script.otherwise(|_| hello());
    let search = GenerateRequest::from("hi").with_tool(json!({"googleSearch": {}}));
    let mut stream = rig.run(rig.gemini.stream(MODEL, search.clone())).unwrap();
    let (_, error) = read(&rig.clock, &mut stream);
    let Some(Error::StreamBroken { verdict: Some(verdict), .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(verdict.kind, Kind::Refused(Cause::ToolQuota));
    rig.run(rig.gemini.stream(MODEL, "plain")).unwrap();
    let error = rig.run(rig.gemini.stream(MODEL, search)).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
}

#[test]
fn an_end_without_a_reason_is_no_whole_answer() {
    let rig = Rig::new(1);
    rig.script.reply(Scripted::events([part("Hel", None, (8, 1)), part("lo", None, (8, 2))]));
    let mut stream = open(&rig);
    let (texts, error) = read(&rig.clock, &mut stream);
    assert_eq!(texts, ["Hel", "lo"]);
    assert!(matches!(error, Some(Error::StreamBroken { verdict: None, .. })), "{error:?}");
    rig.assert_balanced();

    rig.script.reply(Scripted::events([part("Hel", None, (8, 1)), part("lo", None, (8, 2))]));
    let text = rig.run(open(&rig).text());
    assert!(matches!(text, Err(Error::StreamBroken { .. })), "half a text is no text");
}

#[test]
fn a_cut_connection_breaks_the_stream() {
    for kind in [TransportKind::Interrupted, TransportKind::Timeout] {
        let rig = Rig::new(2);
        rig.script.reply(Scripted::events([part("Hel", None, (8, 1))]).fail(kind));
        let mut stream = open(&rig);
        let (texts, error) = read(&rig.clock, &mut stream);
        assert_eq!(texts, ["Hel"]);
        assert!(matches!(error, Some(Error::StreamBroken { verdict: None, .. })), "{error:?}");
        assert_eq!(rig.counted(MODEL), 1);
        rig.assert_balanced();
    }
}

#[test]
fn a_stream_dropped_after_any_part_ends_the_request_and_holds_nothing() {
    let texts = ["a", "b", "c", "d"];
    for parts in 0..=texts.len() {
        let rig = Rig::new(1);
        rig.script.reply(Scripted::stream(texts).hang());
        let mut stream = open(&rig);
        assert_eq!(rig.script.open(), 1);
        for text in &texts[..parts] {
            assert_eq!(rig.run(stream.next()).unwrap().unwrap().text(), *text);
        }
        if parts == texts.len() {
            assert!(stream.next().now_or_never().is_none(), "the connection is still open");
        }
        assert_eq!(rig.gemini.status().buckets[0].in_flight, 1);
        drop(stream);
        assert_eq!(rig.counted(MODEL), 1, "it was sent");
        rig.assert_balanced();
    }
}

/// Many readers stop at the finish reason and never ask for the end.
#[test]
fn a_stream_dropped_at_its_finish_reason_was_served() {
    let rig = Rig::new(1);
    rig.script.reply(Scripted::events([part("Hello", Some("STOP"), (1_000, 1))]));
    let mut stream = open(&rig);
    assert!(rig.run(stream.next()).unwrap().unwrap().finish_reason().is_some());
    drop(stream);
    assert_eq!(rig.counted_tokens(MODEL), 1_000, "its usage is known");
    rig.assert_balanced();
}

#[test]
fn a_dropped_next_loses_nothing() {
    let rig = Rig::new(1);
    let pause = Duration::from_secs(5);
    rig.script.reply(
        Scripted::events([part("Hel", None, (8, 1))])
            .pause(pause)
            .piece(format!("data: {}\n\n", part("lo", Some("STOP"), (8, 2)))),
    );
    let mut stream = open(&rig);
    rig.run(stream.next()).unwrap().unwrap();
    for _ in 0..5 {
        assert!(stream.next().now_or_never().is_none());
        rig.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(rig.run(stream.next()).unwrap().unwrap().text(), "lo");
    assert!(rig.run(stream.next()).is_none());
    rig.assert_balanced();
}

/// Who thinks for long would otherwise keep the caller from even showing that something happens.
#[test]
fn long_streams_keep_nobody_from_a_key_whose_limits_are_unknown() {
    let rig = Rig::new(1);
    let mut long = Vec::new();
    for _ in 0..4 {
        let begins = Scripted::events([part("Hel", None, (8, 1))]);
        rig.script.reply(begins.pause(Duration::from_secs(3_000)));
        let mut stream = open(&rig);
        rig.run(stream.next()).unwrap().unwrap();
        long.push(stream);
    }
    assert_eq!(rig.script.open(), 4, "none of them has ended");
    rig.script.reply(hello());
    open(&rig);
    assert_eq!(rig.now(), at(NOON));
    drop(long);
    rig.assert_balanced();
}

#[test]
fn a_first_part_that_takes_over_two_seconds_is_not_waited_for() {
    let late = Duration::from_secs(30);
    let first = format!("data: {}\n\n", part("Hello", Some("STOP"), (8, 1)));
    let rig = Rig::new(2);
    rig.script.reply(Scripted::status(200).pause(late).piece(first));
    let before = rig.clock.now();
    let mut stream = open(&rig);
    assert_eq!((rig.clock.now() - before).num_milliseconds(), 2_000);
    assert_eq!(read(&rig.clock, &mut stream).0, ["Hello"]);
    assert_eq!((rig.clock.now() - before).num_milliseconds(), 30_000);

    // The price: an error that comes as late is the caller's to see.
    rig.script.reply(
        Scripted::status(200).pause(late).piece(format!("data: {}\n\n", day_spent_body(20))),
    );
    let mut stream = open(&rig);
    let (texts, error) = read(&rig.clock, &mut stream);
    assert!(texts.is_empty());
    assert!(matches!(error, Some(Error::StreamBroken { verdict: Some(_), .. })), "{error:?}");
    rig.assert_balanced();
}

#[test]
fn the_deadline_holds_to_the_end_of_a_stream() {
    let before_the_first = |rig: &Rig| {
        rig.script.reply(hello().after(Duration::from_secs(60)));
        let call = rig.gemini.stream(MODEL, "hi").deadline(Duration::from_secs(5));
        let error = rig.run(call).unwrap_err();
        assert!(matches!(error, Error::DeadlineReached { .. }), "{error}");
    };
    let rig = Rig::new(1);
    before_the_first(&rig);

    let seconds = Duration::from_secs;
    let slow = || {
        let more = |reply: Scripted, _| {
            reply.pause(seconds(20)).piece(format!("data: {}\n\n", part("a", None, (8, 1))))
        };
        let slow = (0..5).fold(Scripted::events([part("a", None, (8, 1))]), more);
        slow.pause(seconds(20)).piece(format!("data: {}\n\n", part("b", Some("STOP"), (8, 1))))
    };
    for (deadline, expected) in [(Some(50), "aaa"), (Some(130), "aaaaaab"), (None, "aaaaaab")] {
        let rig = Rig::new(1);
        rig.script.reply(slow());
        let before = rig.clock.now();
        let call = rig.gemini.stream(MODEL, "hi");
        let call = match deadline {
            Some(deadline) => call.deadline(seconds(deadline)),
            None => call.no_deadline(),
        };
        let mut stream = rig.run(call).unwrap();
        let (texts, error) = read(&rig.clock, &mut stream);
        assert_eq!(texts.concat(), expected, "{deadline:?}");
        if deadline == Some(50) {
            assert!(matches!(error, Some(Error::DeadlineReached { .. })), "{error:?}");
            assert_eq!(error.unwrap().attempts().len(), 1);
            assert_eq!((rig.clock.now() - before).num_seconds(), 50, "to the second");
        } else {
            assert!(error.is_none(), "{error:?}");
        }
        assert_eq!(rig.counted(MODEL), 1, "it was sent");
        rig.assert_balanced();
    }
}

/// Comments are no answer: they keep the connection alive, and must not keep the call alive.
#[test]
fn a_stream_of_comments_ends_at_the_deadline() {
    let comments = || {
        let comment = |reply: Scripted, _| reply.pause(Duration::from_secs(10)).piece(": ping\n\n");
        (0..200).fold(Scripted::events([part("a", None, (8, 1))]), comment).hang()
    };
    let rig = Rig::new(1);
    rig.script.reply(comments());
    let before = rig.clock.now();
    let mut stream = open(&rig);
    let (texts, error) = read(&rig.clock, &mut stream);
    assert_eq!(texts, ["a"]);
    assert!(matches!(error, Some(Error::DeadlineReached { .. })), "{error:?}");
    assert_eq!(
        (rig.clock.now() - before).num_seconds(),
        1_200,
        "the client's deadline for streams"
    );
    rig.assert_balanced();
}

/// Whoever has the whole answer need not wait for the end of the connection.
#[test]
fn a_whole_answer_waits_five_seconds_at_most_for_the_end_of_its_body() {
    let whole = || Scripted::events([part("a", None, (8, 1)), part("b", Some("STOP"), (900, 2))]);
    let ping = |reply: Scripted, _| reply.pause(Duration::from_secs(2)).piece(": ping\n\n");
    let endings = [whole().hang(), (0..100).fold(whole(), ping)];
    for ending in endings {
        let rig = Rig::new(1);
        rig.script.reply(ending);
        let before = rig.clock.now();
        let mut stream = rig.run(rig.gemini.stream(MODEL, "hi").no_deadline()).unwrap();
        let (texts, error) = read(&rig.clock, &mut stream);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(texts.concat(), "ab");
        assert_eq!((rig.clock.now() - before).num_seconds(), 5);
        assert_eq!(rig.counted_tokens(MODEL), 900, "it was served");
        rig.assert_balanced();
    }
    // At the deadline itself, too, what is whole was served.
    let rig = Rig::new(1);
    rig.script.reply(whole().hang());
    let call = rig.gemini.stream(MODEL, "hi").deadline(Duration::from_secs(1));
    let mut stream = rig.run(call).unwrap();
    assert!(read(&rig.clock, &mut stream).1.is_none());
    assert_eq!(rig.counted_tokens(MODEL), 900);
}

/// The same against the simulator's streams, byte for byte as Google sends them.
#[test]
fn the_simulators_faults_are_told_apart() {
    let expected = [
        (Fault::ErrorFirst, "replaced"),
        (Fault::Overloaded, "replaced"),
        (Fault::Reset, "replaced"),
        (Fault::Html, "replaced"),
        (Fault::Unreachable, "replaced"),
        (Fault::Spurious429, "replaced"),
        (Fault::ErrorMidway, "broken with verdict"),
        (Fault::Cut, "broken"),
        (Fault::Broken, "broken"),
    ];
    for (fault, what) in expected {
        let clock = ManualClock::at(at(NOON));
        let config = SimConfig::new()
            .with_model(MODEL, ModelConfig::free(Limits::new()))
            .with_project(ProjectConfig::new("alpha").with_key(key(1)))
            .with_project(ProjectConfig::new("beta").with_key(key(2)));
        let sim = SimTransport::new(config, Arc::new(clock.clone())).unwrap();
        let pool = Pool::builder()
            .keys([1, 2].map(|i| KeySpec::new(key(i), label(i))))
            .clock(Arc::new(clock.clone()))
            .state(StateLocation::None)
            .seed(1)
            .build()
            .unwrap();
        let gemini = over(pool, sim.clone(), |client| client);
        sim.world().with(|world| world.force(fault, 1));
        let request = "Tell me a story about a lighthouse, a storm and a cat that could not swim";
        let mut stream = run(&clock, gemini.stream(MODEL, request)).unwrap();
        let (_, error) = read(&clock, &mut stream);
        let found = match (stream.attempts().len(), &error) {
            (2, None) => "replaced",
            (1, Some(Error::StreamBroken { verdict: Some(_), .. })) => "broken with verdict",
            (1, Some(Error::StreamBroken { verdict: None, .. })) => "broken",
            other => panic!("{fault:?}: {other:?}"),
        };
        assert_eq!(found, what, "{fault:?}");
        common::assert_balanced(&gemini);
    }
}
