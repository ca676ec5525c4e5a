//! A relayed stream is handed on byte for byte, fails over before its first frame, and says when it broke.

mod common;

use std::time::Duration;

use common::{
    MODEL, NOON, Rig, account, at,
    bodies::{day_spent_body, error, overloaded_body, part},
    relay::{BODY, array, event, events, read, streamed},
};
use http::{HeaderValue, header::CONTENT_ENCODING};
use keywheel::{Cause, Error, Kind, raw::Call};
use keywheel_provider::{TransportKind, testing::Scripted};
use serde_json::json;

fn first() -> String {
    event(&part("Hel", None, (8, 1)))
}

fn last() -> String {
    event(&part("lo", Some("STOP"), (8, 2)))
}

#[test]
fn a_stream_comes_byte_for_byte_however_it_was_cut() {
    let odd = format!(": hello\r\n\r\nid: 7\ndata:  {}\n\n{}", part("x", None, (8, 1)), last());
    let texts = [first() + &last(), odd, format!("\u{feff}{}", last()), last() + ": bye\n"];
    for text in texts {
        for size in [1, 2, 3, 7, 64, 10_000] {
            let rig = Rig::new(1);
            rig.script.reply(events(text.as_bytes().chunks(size).map(<[u8]>::to_vec)));
            let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
            let (bytes, error) = read(&rig.clock, &mut reply.body);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(String::from_utf8(bytes).unwrap(), text, "in pieces of {size}");
            assert_eq!(reply.body.usage().unwrap().total, 10);
            rig.assert_balanced();
            assert_eq!(rig.counted_tokens(MODEL), 8);
        }
    }
}

#[test]
fn a_frame_is_handed_on_as_soon_as_it_is_whole() {
    let rig = Rig::new(1);
    let (head, tail) = (first(), last());
    let (a, b) = tail.split_at(20);
    let slow = events([head.clone() + a]).pause(Duration::from_secs(30)).piece(b.to_owned());
    rig.script.reply(slow);
    let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
    let begun = rig.now();
    assert_eq!(rig.run(reply.body.next()).unwrap().unwrap(), head);
    assert_eq!(rig.now(), begun, "nobody waits for the next frame");
    assert_eq!(rig.run(reply.body.next()).unwrap().unwrap(), a);
    assert_eq!(rig.run(reply.body.next()).unwrap().unwrap(), b);
    assert!(rig.run(reply.body.next()).is_none());
}

#[test]
fn long_streams_keep_nobody_from_a_key_whose_limits_are_unknown() {
    let rig = Rig::new(1);
    let mut long = Vec::new();
    for _ in 0..4 {
        let head = events([first()]).pause(Duration::from_secs(3_000)).piece(last());
        rig.script.reply(head);
        long.push(rig.run(streamed(&rig.gemini).patience(Duration::ZERO)).unwrap());
    }
    assert_eq!(rig.script.open(), 4, "none of them has ended");
    rig.script.reply(events([first(), last()]));
    rig.run(streamed(&rig.gemini).patience(Duration::ZERO)).unwrap();
    assert_eq!(rig.now(), at(NOON));
    drop(long);
    rig.assert_balanced();
}

#[test]
fn an_array_is_a_stream_too() {
    let text =
        format!("[{}\n,\r\n{}\n]\n", part("Hel", None, (8, 1)), part("lo", Some("STOP"), (8, 5)));
    for size in [1, 5, 10_000] {
        let rig = Rig::new(1);
        let pieces = text.as_bytes().chunks(size).map(<[u8]>::to_vec);
        rig.script.reply(pieces.fold(Scripted::json(200, ""), Scripted::piece));
        let mut reply = rig.run(array(&rig.gemini)).unwrap();
        let (bytes, error) = read(&rig.clock, &mut reply.body);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        assert_eq!(reply.body.usage().unwrap().total, 13);
        rig.assert_balanced();
    }
}

#[test]
fn another_key_takes_over_before_the_first_frame() {
    let refused = |body: &serde_json::Value| events([event(body)]);
    let beginnings: [(&str, Scripted); 8] = [
        ("per_day_requests", refused(&day_spent_body(20))),
        ("per_day_requests", Scripted::json(200, day_spent_body(20).to_string())),
        ("per_day_requests", events([format!("event: error\ndata: {}\n\n", day_spent_body(20))])),
        ("overloaded", refused(&overloaded_body())),
        ("overloaded", Scripted::json(503, overloaded_body().to_string())),
        ("none", events([""; 0])),
        ("none", events([first().split_at(9).0.to_owned()])),
        ("none", events([""; 0]).fail(TransportKind::Interrupted)),
    ];
    for (kind, beginning) in beginnings {
        let rig = Rig::new(2);
        rig.script.reply(beginning.clone());
        rig.script.reply(events([first(), last()]));
        let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
        assert_eq!(account(&reply.attempts)[0].1, kind);
        assert_eq!(reply.attempts.len(), 2, "{beginning:?}");
        let (bytes, error) = read(&rig.clock, &mut reply.body);
        assert_eq!((String::from_utf8(bytes).unwrap(), error.is_none()), (first() + &last(), true));
        rig.assert_balanced();
    }
}

#[test]
fn a_first_frame_that_is_late_is_not_waited_for() {
    let rig = Rig::new(2);
    let late = events([""; 0]).pause(Duration::from_secs(5));
    rig.script.reply(late.piece(event(&overloaded_body())));
    let begun = rig.now();
    let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
    assert_eq!((rig.now() - begun).num_seconds(), 2);
    let (bytes, error) = read(&rig.clock, &mut reply.body);
    assert_eq!(bytes, b"");
    assert!(matches!(error, Some(Error::StreamBroken { verdict: Some(_), .. })), "{error:?}");
    rig.assert_balanced();
}

/// <https://github.com/diegosouzapw/OmniRoute/issues/4177>, <https://github.com/theopenco/llmgateway/issues/3616>
#[test]
fn an_error_in_the_middle_is_told_and_its_bytes_are_not_handed_on() {
    let pretty = serde_json::to_string_pretty(&overloaded_body()).unwrap();
    let tails = [
        event(&overloaded_body()),
        pretty.clone(),
        format!("{pretty}\n"),
        format!("[{pretty}\n]"),
        format!("event: error\r\n{}", event(&overloaded_body())),
        pretty[..40].to_owned(),
    ];
    for tail in tails {
        for size in [1, 3, 10_000] {
            let rig = Rig::new(1);
            let pieces = tail.as_bytes().chunks(size).map(<[u8]>::to_vec);
            rig.script.reply(pieces.fold(events([first()]), Scripted::piece));
            let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
            let (bytes, error) = read(&rig.clock, &mut reply.body);
            let bytes = String::from_utf8(bytes).unwrap();
            assert_eq!(bytes.trim_end_matches('['), first(), "{tail} in pieces of {size}");
            let Some(Error::StreamBroken { verdict: Some(verdict), .. }) = error else {
                panic!("{error:?}")
            };
            if tail.len() > 40 {
                assert_eq!(verdict.kind, Kind::Refused(Cause::Overloaded));
            }
            rig.assert_balanced();
        }
    }
}

#[test]
fn a_quota_that_runs_out_in_the_middle_holds_the_key_back() {
    let rig = Rig::new(1);
    rig.script.reply(events([first(), event(&day_spent_body(20))]));
    let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
    let (bytes, _) = read(&rig.clock, &mut reply.body);
    assert_eq!(String::from_utf8(bytes).unwrap(), first());
    let error = rig.run(streamed(&rig.gemini).patience(Duration::ZERO)).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    rig.assert_balanced();
}

/// <https://github.com/tashfeenahmed/freellmapi/issues/1288>
#[test]
fn an_end_without_a_reason_is_told_after_the_bytes() {
    let ends: [Scripted; 3] = [
        events([first()]),
        events([first(), "data: {\"candi".to_owned()]),
        events([first()]).fail(TransportKind::Interrupted),
    ];
    for end in ends {
        let rig = Rig::new(1);
        rig.script.reply(end);
        let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
        let (bytes, error) = read(&rig.clock, &mut reply.body);
        assert_eq!(String::from_utf8(bytes).unwrap(), first(), "whole frames only");
        assert!(matches!(error, Some(Error::StreamBroken { verdict: None, .. })), "{error:?}");
        rig.assert_balanced();
    }
}

#[test]
fn what_cannot_be_read_is_handed_on_and_no_error() {
    let rig = Rig::new(1);
    let text = "data: this version knows no such thing\r\n\r\n";
    rig.script.reply(events([text]));
    let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
    let (bytes, error) = read(&rig.clock, &mut reply.body);
    assert_eq!((&*bytes, error.is_none()), (text.as_bytes(), true));
    rig.assert_balanced();
}

#[test]
fn a_stream_that_is_no_answer_needs_no_reason_for_its_end() {
    let rig = Rig::new(1);
    let text = event(&json!({"event_type": "interaction.complete", "interaction":
        {"usage": {"total_input_tokens": 3, "total_output_tokens": 4}}}));
    rig.script.reply(events([text.clone()]));
    let call = Call::post("interactions", r#"{"model":"m","input":"hi","stream":true}"#);
    let mut reply = rig.run(rig.gemini.relay(call)).unwrap();
    let (bytes, error) = read(&rig.clock, &mut reply.body);
    assert_eq!((String::from_utf8(bytes).unwrap(), error.is_none()), (text, true));
    assert_eq!(reply.body.usage().unwrap().total, 7);
}

fn chunk(finish: Option<&str>, total: u64) -> String {
    event(&json!({
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": total - 5, "total_tokens": total},
    }))
}

/// <https://github.com/open-webui/open-webui/discussions/29064>: counts of several chunks were added up.
#[test]
fn an_openai_stream_ends_with_done_or_a_reason_and_its_usage_is_not_added_up() {
    let done = || "data: [DONE]\n\n".to_owned();
    for (pieces, is_whole) in [
        (vec![chunk(None, 6), chunk(Some("stop"), 9), done()], true),
        (vec![chunk(None, 6), chunk(Some("stop"), 9)], true),
        (vec![chunk(None, 6), chunk(None, 9), done()], true),
        (vec![chunk(None, 6), chunk(None, 9)], false),
    ] {
        let rig = Rig::new(1);
        rig.script.reply(events(pieces.clone()));
        let body = json!({"model": MODEL, "stream": true, "messages": []}).to_string();
        let call = Call::post("/v1beta/openai/chat/completions", body);
        let mut reply = rig.run(rig.gemini.relay(call)).unwrap();
        assert_eq!(reply.model.as_deref(), Some(MODEL));
        let (bytes, error) = read(&rig.clock, &mut reply.body);
        assert_eq!(String::from_utf8(bytes).unwrap(), pieces.concat());
        assert_eq!(error.is_none(), is_whole, "{error:?}");
        assert_eq!(reply.body.usage().unwrap().total, 9);
        rig.assert_balanced();
    }
}

/// <https://github.com/BerriAI/litellm/issues/30471>: thought signatures made frames of several MiB.
#[test]
fn a_frame_of_many_megabytes_is_handed_on_and_read() {
    let big = event(&json!({
        "candidates": [{"content": {"parts": [{"thoughtSignature": "s".repeat(6 << 20)}]},
            "finishReason": "STOP"}],
        "usageMetadata": {"totalTokenCount": 77},
    }));
    let rig = Rig::new(1);
    rig.script.reply(events(big.as_bytes().chunks(16 * 1024).map(<[u8]>::to_vec)));
    let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
    let early = rig.run(reply.body.next()).unwrap().unwrap();
    assert!(early.len() <= 128 * 1024, "nobody waits for its end: {}", early.len());
    let (rest, error) = read(&rig.clock, &mut reply.body);
    assert!(error.is_none(), "{error:?}");
    assert!(early.iter().chain(&rest).eq(big.as_bytes()));
    assert_eq!(reply.body.usage().unwrap().total, 77);
    rig.assert_balanced();
}

#[test]
fn a_frame_over_the_cap_is_handed_on_and_its_usage_given_up() {
    let big =
        event(&json!({"candidates": [{"content": {"parts": [{"text": "s".repeat(33 << 20)}]}}]}));
    let rig = Rig::new(1);
    rig.script.reply(events(big.as_bytes().chunks(1 << 20).map(<[u8]>::to_vec)));
    let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
    let (bytes, error) = read(&rig.clock, &mut reply.body);
    assert!(error.is_none(), "nobody knows whether it is whole: {error:?}");
    assert!(bytes == big.as_bytes());
    assert_eq!(reply.body.usage(), None);
    rig.assert_balanced();
}

#[test]
fn a_compressed_stream_is_read_on_a_copy() {
    use std::io::Write as _;
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let pieces: Vec<Vec<u8>> = [first(), last()]
        .map(|text| {
            zip.write_all(text.as_bytes()).unwrap();
            zip.flush().unwrap();
            std::mem::take(zip.get_mut())
        })
        .into();
    let all = [pieces.concat(), zip.finish().unwrap()].concat();
    for size in [1, 30, 10_000] {
        let rig = Rig::new(1);
        let reply = events(all.chunks(size).map(<[u8]>::to_vec));
        rig.script.reply(reply.header(CONTENT_ENCODING, HeaderValue::from_static("gzip")));
        let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
        let (bytes, error) = read(&rig.clock, &mut reply.body);
        assert_eq!((bytes == all, error.is_none()), (true, true), "{error:?}");
        assert_eq!(reply.body.usage().unwrap().total, 10);
        rig.assert_balanced();
    }
}

#[test]
fn a_connection_that_stays_open_after_the_answer_is_not_waited_for() {
    // Usage may still come after the reason for the end, but not after the announced end.
    for (end, patience) in [(last(), 5), (last() + "data: [DONE]\n\n", 0)] {
        let rig = Rig::new(1);
        rig.script.reply(events([first(), end.clone()]).hang());
        let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
        let begun = rig.now();
        let (bytes, error) = read(&rig.clock, &mut reply.body);
        assert_eq!((String::from_utf8(bytes).unwrap(), error.is_none()), (first() + &end, true));
        assert_eq!((rig.now() - begun).num_seconds(), patience);
        rig.assert_balanced();
    }
}

#[test]
fn the_deadline_holds_to_the_end_of_the_stream() {
    let rig = Rig::new(1);
    rig.script.reply(events([first()]).hang());
    let call = streamed(&rig.gemini).deadline(Duration::from_secs(10));
    let mut reply = rig.run(call).unwrap();
    let (bytes, error) = read(&rig.clock, &mut reply.body);
    assert_eq!(String::from_utf8(bytes).unwrap(), first());
    assert!(matches!(error, Some(Error::DeadlineReached { .. })), "{error:?}");
    rig.assert_balanced();

    // Without one of its own: the client's for streams.
    let rig = Rig::new(1);
    rig.script.reply(events([first()]).hang());
    let begun = rig.now();
    let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
    let (_, error) = read(&rig.clock, &mut reply.body);
    assert!(matches!(error, Some(Error::DeadlineReached { .. })), "{error:?}");
    assert_eq!((rig.now() - begun).num_minutes(), 20);
}

#[test]
fn a_stream_that_is_dropped_is_closed_at_once() {
    for items in 0..3 {
        let rig = Rig::new(1);
        rig.script.reply(events([first(), last()]).hang());
        let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
        for _ in 0..items {
            rig.run(reply.body.next()).unwrap().unwrap();
        }
        assert_eq!(rig.script.open(), 1);
        drop(reply);
        rig.assert_balanced();
        assert_eq!(rig.counted(MODEL), 1);
    }
}

#[test]
fn streams_are_asked_for_as_plain_text() {
    let rig = Rig::new(1);
    rig.script.otherwise(|_| events([last()]));
    let accept = http::header::ACCEPT_ENCODING;
    for (path, expected) in [("streamGenerateContent", "identity"), ("generateContent", "gzip")] {
        let call = Call::post(format!("models/{MODEL}:{path}"), BODY)
            .with_header(accept.clone(), HeaderValue::from_static("gzip, deflate, br"));
        drop(rig.run(rig.gemini.relay(call)).unwrap());
        assert_eq!(rig.script.requests().last().unwrap().headers[&accept], expected);
    }
}

#[test]
fn an_error_that_repeats_the_key_is_scrubbed_wherever_it_comes() {
    let rig = Rig::new(1);
    let key = common::key(1);
    let message = format!("Consumer 'api_key:{}' has been suspended.", key.expose());
    let body = error(403, "PERMISSION_DENIED", &message, json!([]));
    rig.script.reply(events([first(), event(&body)]));
    let mut reply = rig.run(streamed(&rig.gemini)).unwrap();
    let (bytes, error) = read(&rig.clock, &mut reply.body);
    let all =
        format!("{} {error:?} {}", String::from_utf8(bytes).unwrap(), error.as_ref().unwrap());
    assert!(!all.contains(key.expose()), "it is in what was handed on");
}
