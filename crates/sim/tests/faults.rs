//! Faults: what each looks like, and that the same requests meet the same ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::time::Duration;

use common::{MODEL, at, config, generate, is_served, key, post, status, stream, text, world};
use keywheel_sim::{
    Fault, Faults, Limits, ModelConfig, Outcome, Piece, ProjectConfig, SimConfig, SimReply, World,
};

const NOW: &str = "2026-11-30T07:00:00Z";

/// The reply to a stream that meets `fault`.
fn faulted(fault: Option<Fault>, query: &str) -> SimReply {
    let mut world = world(Limits::new());
    fault.into_iter().for_each(|fault| world.force(fault, 1));
    world.handle(&stream(&key(1), query), at(NOW))
}

#[test]
fn a_stream_is_framed_and_ends_with_its_reason_and_cumulative_usage() {
    let reply = faulted(None, "?alt=sse");
    let whole = text(&reply);
    let frames: Vec<serde_json::Value> = whole
        .split_terminator("\r\n\r\n")
        .map(|frame| serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap())
        .collect();
    assert!(frames.len() > 2);
    let (last, before) = frames.split_last().unwrap();
    assert_eq!(last["candidates"][0]["finishReason"], "STOP");
    for frame in before {
        assert!(frame["candidates"][0].get("finishReason").is_none());
    }
    let totals: Vec<_> =
        frames.iter().map(|frame| frame["usageMetadata"]["totalTokenCount"].as_u64()).collect();
    assert!(totals.is_sorted());
    assert!(is_served(&reply));
}

#[test]
fn a_stream_without_sse_is_one_array_of_the_same_chunks() {
    let whole: Vec<serde_json::Value> = serde_json::from_str(&text(&faulted(None, ""))).unwrap();
    let said: String = whole
        .iter()
        .map(|chunk| chunk["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap())
        .collect();
    assert!(said.starts_with("Simulated answer"), "{said}");
    let error: serde_json::Value =
        serde_json::from_str(&text(&faulted(Some(Fault::Overloaded), ""))).unwrap();
    assert_eq!(error[0]["error"]["code"], 503);
}

#[test]
fn a_model_has_faults_and_latency_of_its_own() {
    let cut = Faults { cut: 1.0, ..Faults::default() };
    let (cut_model, slow) = ("gemini-cut", Duration::from_secs(3));
    let model = ModelConfig::free(Limits::new()).with_faults(cut).with_latency(slow, slow);
    let mut world = World::new(config(Limits::new()).with_model(cut_model, model)).unwrap();
    let body = r#"{"contents":[{"parts":[{"text":"Say hello"}]}]}"#;
    let mut outcome = |model: &str| {
        let target = format!("/v1beta/models/{model}:streamGenerateContent?alt=sse");
        let reply = world.handle(&post(&target, &key(1), body), at(NOW));
        (reply.outcome, reply.latency)
    };
    assert_eq!(outcome(cut_model), (Outcome::Faulted(Fault::Cut), slow));
    assert_eq!(outcome(MODEL), (Outcome::Served, Duration::ZERO));
}

#[test]
fn a_cut_stream_ends_without_a_reason() {
    let reply = faulted(Some(Fault::Cut), "?alt=sse");
    assert_eq!(status(&reply), 200);
    assert!(!text(&reply).contains("finishReason"));
    assert!(text(&reply).contains("Simulated"));
    assert_eq!(reply.outcome, Outcome::Faulted(Fault::Cut));
}

#[test]
fn an_error_comes_first_or_after_some_text_in_a_stream_that_began_well() {
    let first = faulted(Some(Fault::ErrorFirst), "?alt=sse");
    assert_eq!(status(&first), 200);
    assert!(text(&first).starts_with("data: {\"error\":{\"code\":500"));
    let midway = text(&faulted(Some(Fault::ErrorMidway), "?alt=sse"));
    let (answer, error) = midway.split_once("\r\n\r\n").unwrap();
    assert!(answer.contains("candidates"));
    assert!(error.starts_with("data: {\"error\":{\"code\":503"));
}

#[test]
fn a_broken_body_and_a_stalled_one() {
    let broken = faulted(Some(Fault::Broken), "?alt=sse").http.unwrap().body;
    assert!(matches!(broken.as_slice(), [Piece::Bytes(some), Piece::Break] if !some.is_empty()));
    let stalled = faulted(Some(Fault::Stall), "?alt=sse").http.unwrap().body;
    assert_eq!(stalled, [Piece::Stall]);
    assert!(faulted(Some(Fault::Reset), "").http.is_none());
}

/// Answers that clients take for failures, though they are none: the tokens were spent.
#[test]
fn thoughts_alone_and_a_blocked_prompt_are_answers() {
    for (fault, streamed) in
        [(Fault::ThoughtOnly, true), (Fault::ThoughtOnly, false), (Fault::Blocked, true)]
    {
        let mut world = world(Limits::new());
        world.force(fault, 1);
        let request = if streamed { stream(&key(1), "?alt=sse") } else { generate(&key(1)) };
        let reply = world.handle(&request, at(NOW));
        assert!(is_served(&reply));
        let said = text(&reply);
        assert_eq!(said.contains("\"thought\""), fault == Fault::ThoughtOnly, "{said}");
        assert_eq!(said.contains("thoughtsTokenCount"), fault == Fault::ThoughtOnly, "{said}");
        assert_eq!(said.contains("blockReason"), fault == Fault::Blocked, "{said}");
        assert!(!said.contains("candidatesTokenCount"), "{said}");
        assert_eq!(world.stats().bucket("alpha", MODEL).counted, 1);
    }
}

#[test]
fn an_empty_body_and_an_empty_candidate() {
    let empty = faulted(Some(Fault::EmptyBody), "?alt=sse");
    assert_eq!((status(&empty), text(&empty).as_str()), (200, ""));
    let mut world = world(Limits::new());
    world.force(Fault::NoContent, 1);
    let reply = world.handle(&generate(&key(1)), at(NOW));
    let candidate = common::json(&reply)["candidates"][0].clone();
    assert_eq!(candidate["finishReason"], "STOP");
    assert!(candidate["content"].get("parts").is_none());
    assert_eq!(reply.outcome, Outcome::Faulted(Fault::NoContent));
}

/// Half a function call is worse than none: whoever repairs its JSON calls with wrong arguments.
#[test]
fn a_function_call_is_cut_within_its_arguments() {
    let mut world = world(Limits::new());
    let body = r#"{"contents":[{"role":"user","parts":[{"text":"weather"}]}],
        "tools":[{"functionDeclarations":[{"name":"weather","parameters":{
            "type":"OBJECT","properties":{"city":{"type":"STRING"}}}}]}]}"#;
    let path = format!("/v1beta/models/{MODEL}:streamGenerateContent?alt=sse");
    let request = post(&path, &key(1), body);
    let whole = text(&world.handle(&request, at(NOW)));
    world.force(Fault::CutCall, 1);
    let cut = text(&world.handle(&request, at(NOW)));
    assert!(whole.starts_with(&cut) && cut.len() < whole.len());
    assert!(cut.contains("functionCall") && !cut.ends_with('\n'), "{cut}");
    let json = cut.strip_prefix("data: ").unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(json).is_err());
}

#[test]
fn a_model_that_is_down_counts_what_it_refuses_and_comes_back() {
    let outage = keywheel_sim::Outage {
        model: MODEL.to_owned(),
        from: at(NOW),
        until: at(NOW) + common::ms(600_000),
    };
    let config = config(Limits::new()).with_outage(outage);
    let mut world = World::new(config).unwrap();
    for (after_ms, expected) in [(-1, 200), (0, 503), (599_999, 503), (600_000, 200)] {
        let now = at(NOW) + common::ms(after_ms);
        assert_eq!(status(&world.handle(&generate(&key(1)), now)), expected, "{after_ms}");
    }
    assert_eq!(world.stats().bucket("alpha", MODEL).counted, 4);
    world.set_outages(Vec::new());
    assert_eq!(status(&world.handle(&generate(&key(1)), at(NOW))), 200);
}

#[test]
fn faults_of_streams_leave_whole_replies_alone() {
    for fault in [Fault::Cut, Fault::CutCall, Fault::ErrorFirst, Fault::ErrorMidway] {
        let mut world = world(Limits::new());
        world.force(fault, 1);
        assert!(is_served(&world.handle(&generate(&key(1)), at(NOW))));
    }
}

#[test]
fn split_bodies_arrive_in_small_pieces_and_are_the_same_bytes() {
    let config = config(Limits::new()).with_faults(Faults { split: 1.0, ..Faults::default() });
    let mut world = World::new(config).unwrap();
    let reply = world.handle(&stream(&key(1), "?alt=sse"), at(NOW));
    assert_eq!(text(&reply), text(&faulted(None, "?alt=sse")));
    let body = reply.http.unwrap().body;
    assert!(body.len() > 50);
    assert!(body.iter().all(|piece| matches!(piece, Piece::Bytes(some) if some.len() <= 7)));
}

#[test]
fn rates_come_out_as_set() {
    let faults = Faults { overloaded: 0.2, internal: 0.1, spurious_429: 0.1, ..Faults::default() };
    let mut world = World::new(config(Limits::new()).with_faults(faults)).unwrap();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..10_000 {
        *seen.entry(status(&world.handle(&generate(&key(1)), at(NOW)))).or_insert(0) += 1;
    }
    // One in ten is refused before; of the rest one in five and one in ten fail.
    for (status, expected) in [(429, 1_000), (503, 1_800), (500, 900), (200, 6_300)] {
        let off = (seen[&status] - expected) as f64;
        assert!(off.abs() < 5.0 * f64::from(expected).sqrt(), "{status}: {}", seen[&status]);
    }
}

/// What makes strategies comparable: the n-th request of a bucket and day meets the same fault, whatever was
/// sent elsewhere or refused in between.
#[test]
fn a_buckets_faults_do_not_depend_on_other_traffic() {
    let faults = Faults { overloaded: 0.3, ..Faults::default() };
    let config = SimConfig::new()
        .with_model(MODEL, ModelConfig::free(Limits::new().rpm(10)))
        .with_project(ProjectConfig::new("alpha").with_key(key(1)))
        .with_project(ProjectConfig::new("beta").with_key(key(2)))
        .with_faults(faults);
    let fate = |noise: usize| {
        let mut world = World::new(config.clone()).unwrap();
        let mut out = Vec::new();
        for minute in 0..20 {
            let now = at(NOW) + common::ms(minute * 60_000);
            for _ in 0..10 {
                out.push(status(&world.handle(&generate(&key(1)), now)));
            }
            for _ in 0..noise {
                world.handle(&generate(&key(2)), now);
                assert_eq!(status(&world.handle(&generate(&key(1)), now)), 429);
            }
        }
        out
    };
    assert_eq!(fate(0), fate(7));
}

#[test]
fn the_capacity_of_a_day_is_what_an_eager_client_gets_out_of_it() {
    let faults = Faults { overloaded: 0.05, cut: 0.05, reset: 0.02, ..Faults::default() };
    let config = config(Limits::new().rpd(300)).with_faults(faults);
    let mut world = World::new(config).unwrap();
    let date = keywheel_core::QuotaDay::containing(at(NOW)).date();
    let expected = world.day_capacity("alpha", MODEL, date).unwrap();
    for _ in 0..400 {
        world.handle(&generate(&key(1)), at(NOW));
    }
    assert_eq!(world.stats().served(), expected);
    assert!(expected < 300);
}
