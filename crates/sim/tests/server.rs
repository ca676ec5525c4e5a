//! The same world over a real socket, and in process on a manual clock.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::{
    io::{ErrorKind, Read as _},
    sync::Arc,
    time::Duration,
};

use common::{MODEL, at, config, key};
use flate2::read::GzDecoder;
use futures_util::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, Method};
use keywheel_core::{ManualClock, SystemClock};
use keywheel_provider::{Sent, Transport as _, TransportKind, WireRequest};
use keywheel_sim::{Fault, Limits, SimConfig, SimServer, SimTransport};

async fn server(limits: Limits) -> SimServer {
    SimServer::start(config(limits), Arc::new(SystemClock)).await.unwrap()
}

async fn ask(sim: &SimServer, verb: &str) -> reqwest::Result<reqwest::Response> {
    reqwest::Client::new()
        .post(format!("{}/v1beta/models/{MODEL}:{verb}", sim.base_url()))
        .header("x-goog-api-key", key(1).expose())
        .body(r#"{"contents":[{"parts":[{"text":"Say hello"}]}]}"#)
        .send()
        .await
}

#[tokio::test]
async fn quotas_hold_over_a_socket() {
    let sim = server(Limits::new().rpd(2)).await;
    for expected in [200, 200, 429] {
        assert_eq!(ask(&sim, "generateContent").await.unwrap().status(), expected);
    }
    assert_eq!(sim.world().stats().served(), 2);
    assert_eq!(sim.world().stats().refused_per_bucket_max(), 1);
}

#[tokio::test]
async fn a_stream_comes_over_a_socket_with_its_type() {
    let sim = server(Limits::new()).await;
    let reply = ask(&sim, "streamGenerateContent?alt=sse").await.unwrap();
    assert_eq!(reply.headers()["content-type"], "text/event-stream");
    assert!(reply.text().await.unwrap().contains("finishReason"));
}

#[tokio::test]
async fn a_stream_is_compressed_event_by_event_for_those_who_accept_it() {
    let mut config = config(Limits::new());
    (config.gzip, config.chunk_pause) = (true, Duration::from_secs(3_600));
    let sim = SimServer::start(config, Arc::new(SystemClock)).await.unwrap();
    let request = reqwest::Client::new()
        .post(format!("{}/v1beta/models/{MODEL}:streamGenerateContent?alt=sse", sim.base_url()))
        .header("x-goog-api-key", key(1).expose())
        .header("accept-encoding", "deflate, gzip;q=1.0")
        .body(r#"{"contents":[{"parts":[{"text":"Say hello"}]}]}"#);
    let reply = request.send().await.unwrap();
    assert_eq!(reply.headers()["content-encoding"], "gzip");
    // The rest comes in an hour.
    let bytes = reply.bytes_stream().next().await.unwrap().unwrap();
    let mut first = String::new();
    let end = GzDecoder::new(&bytes[..]).read_to_string(&mut first).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    assert!(first.starts_with("data: {") && first.ends_with("\r\n\r\n"), "{first}");
}

#[tokio::test]
async fn others_get_the_same_bytes_as_they_are() {
    let mut compressing = config(Limits::new());
    compressing.gzip = true;
    let sim = SimServer::start(compressing, Arc::new(SystemClock)).await.unwrap();
    let reply = ask(&sim, "generateContent").await.unwrap();
    assert!(!reply.headers().contains_key("content-encoding"));
    assert!(reply.text().await.unwrap().contains("finishReason"));
}

#[tokio::test]
async fn what_was_counted_is_told_without_a_key() {
    let sim = server(Limits::new().rpd(1)).await;
    for _ in 0..3 {
        ask(&sim, "generateContent").await.unwrap();
    }
    let reply = reqwest::get(format!("{}/stats", sim.base_url())).await.unwrap();
    let told: serde_json::Value = serde_json::from_str(&reply.text().await.unwrap()).unwrap();
    assert_eq!((&told["served"], &told["refused"]), (&1.into(), &2.into()), "{told}");
    let bucket = &told["buckets"][0];
    assert_eq!((&bucket["project"], &bucket["model"]), (&"alpha".into(), &MODEL.into()));
    assert_eq!((&bucket["counted"], &bucket["over_day"]), (&1.into(), &2.into()));
}

#[tokio::test]
async fn a_reset_connection_has_no_reply_and_a_broken_one_half_a_body() {
    let sim = server(Limits::new()).await;
    sim.world().with(|world| world.force(Fault::Reset, 1));
    assert!(ask(&sim, "generateContent").await.unwrap_err().is_request());
    sim.world().with(|world| world.force(Fault::Broken, 1));
    let reply = ask(&sim, "generateContent").await.unwrap();
    assert_eq!(reply.status(), 200);
    assert!(reply.bytes().await.is_err());
    assert_eq!(ask(&sim, "generateContent").await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_dropped_server_answers_no_more() {
    let sim = server(Limits::new()).await;
    let url = sim.base_url();
    let client = reqwest::Client::new();
    assert_eq!(client.get(&url).send().await.unwrap().status(), 404);
    drop(sim);
    // The task is told to stop; it does so when it next runs.
    for _ in 0..1_000 {
        if client.get(&url).send().await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("still answered");
}

#[tokio::test]
async fn a_faulty_configuration_does_not_start() {
    let error = SimServer::start(SimConfig::new(), Arc::new(SystemClock)).await.unwrap_err();
    assert!(error.to_string().contains("models"), "{error}");
}

fn wire() -> WireRequest {
    let common = common::generate(&key(1));
    WireRequest {
        method: Method::POST,
        url: format!("http://sim.invalid{}", common.path),
        headers: common.headers,
        body: common.body.into(),
    }
}

#[test]
fn in_process_a_request_is_counted_when_it_is_sent_and_answered_when_the_clock_says() {
    let clock = ManualClock::at(at("2026-11-30T07:00:00Z"));
    let second = Duration::from_secs(1);
    let config = config(Limits::new().rpm(1)).with_latency(second, second);
    let transport = SimTransport::new(config, Arc::new(clock.clone())).unwrap();
    let mut first = transport.send(wire());
    assert!((&mut first).now_or_never().is_none());
    assert_eq!(transport.world().stats().served(), 1);
    clock.advance(second - Duration::from_millis(1));
    assert!((&mut first).now_or_never().is_none());
    clock.advance(Duration::from_millis(1));
    assert_eq!(first.now_or_never().unwrap().unwrap().status, 200);
    // A request that was sent counts, also when nobody waited for its answer.
    clock.advance(Duration::from_secs(60));
    let mut dropped = transport.send(wire());
    assert!((&mut dropped).now_or_never().is_none());
    drop(dropped);
    let mut refused = transport.send(wire());
    assert!((&mut refused).now_or_never().is_none());
    clock.advance(second);
    assert_eq!(refused.now_or_never().unwrap().unwrap().status, 429);
}

#[test]
fn in_process_a_reset_is_a_transport_error_that_may_have_been_sent() {
    let clock = ManualClock::at(at("2026-11-30T07:00:00Z"));
    let transport = SimTransport::new(config(Limits::new()), Arc::new(clock)).unwrap();
    transport.world().with(|world| {
        world.force(Fault::Reset, 1);
        world.force(Fault::Unreachable, 1);
        world.force(Fault::Broken, 1);
    });
    let error = transport.send(wire()).now_or_never().unwrap().unwrap_err();
    assert_eq!((error.kind, error.sent), (TransportKind::Interrupted, Sent::Maybe));
    let error = transport.send(wire()).now_or_never().unwrap().unwrap_err();
    assert_eq!((error.kind, error.sent), (TransportKind::Connect, Sent::No));
    let mut reply = transport.send(wire()).now_or_never().unwrap().unwrap();
    assert!(reply.body.next().now_or_never().unwrap().unwrap().is_ok());
    assert!(reply.body.next().now_or_never().unwrap().unwrap().is_err());
    let headers = HeaderMap::new();
    let foreign = WireRequest { url: "no url at all".into(), headers, ..wire() };
    assert_eq!(transport.send(foreign).now_or_never().unwrap().unwrap().status, 404);
}

#[test]
fn in_process_a_day_at_the_limit_takes_no_time() {
    let clock = ManualClock::at(at("2026-11-30T08:00:00Z"));
    let limits = Limits::new().rpm(1).rpd(1_000);
    let transport = SimTransport::new(config(limits), Arc::new(clock.clone())).unwrap();
    let mut served = 0;
    for _ in 0..24 * 60 {
        let reply = transport.send(wire()).now_or_never().unwrap().unwrap();
        served += u32::from(reply.status == 200);
        clock.advance(Duration::from_secs(60));
    }
    assert_eq!(served, 1_000);
    assert_eq!(transport.send(wire()).now_or_never().unwrap().unwrap().status, 200);
}
