//! Two gateways on one state folder: one budget, one pool, one memory of uploads.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::sync::Arc;

use common::{Setup, TRIAGE};
use http::StatusCode;
use keywheel::SystemClock;
use keywheel_gateway::Gateway;
use keywheel_sim::{Limits, ModelConfig};
use serde_json::json;

const CAP: u64 = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn together_they_spend_no_more_than_one_budget() {
    let setup = Setup::with_projects(&format!("tokens_per_day = {CAP}"), "")
        .text("[queue]\nwait = \"2s\"\ndepth = 200\n");
    let served = setup.start().await;
    let config = served.setup.config(&served.sim.base_url());
    let other = Gateway::start_at(config, Arc::new(SystemClock)).await.unwrap();
    let mut body = common::prompt("Say hello");
    body["generationConfig"] = json!({ "maxOutputTokens": 20 });
    let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let clients: Vec<_> = (0..200)
        .map(|i| {
            let at = if i % 2 == 0 { served.running.address() } else { other.address() };
            let ask = served.client.post(format!("http://{at}{path}"));
            let ask = ask.header("x-goog-api-key", TRIAGE).body(body.to_string());
            tokio::spawn(async move {
                let answer = ask.send().await.unwrap();
                let status = answer.status();
                answer.bytes().await.unwrap();
                status
            })
        })
        .collect();
    let mut answered = 0;
    for client in clients {
        match client.await.unwrap() {
            StatusCode::OK => answered += 1,
            status => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS),
        }
    }
    let (charged, reserved) = served.balance().await;
    assert!(charged <= CAP && reserved == 0, "{charged} of {CAP}, {reserved} reserved");
    assert_eq!(answered, served.sim.world().stats().served());
    let of_other = other.ledger().usage_of_all().await.unwrap().ever.tokens.settled;
    assert_eq!(of_other, charged, "both see the same");
}

#[tokio::test]
async fn what_one_learned_of_a_key_the_other_knows() {
    let limits = Limits::new().rpd(1);
    let setup = Setup { keys: 1, ..Setup::default() }
        .text("exploration = false\n[queue]\nwait = \"100ms\"\n")
        .sim(|_| common::sim(1).with_model(common::MODEL, ModelConfig::free(limits)));
    let served = setup.start().await;
    let config = served.setup.config(&served.sim.base_url());
    let other = Gateway::start_at(config, Arc::new(SystemClock)).await.unwrap();
    for status in [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE] {
        let answer = served.generate().send().await.unwrap();
        assert_eq!(answer.status(), status);
        answer.bytes().await.unwrap();
    }
    let refused = served.sim.world().stats().refused();
    common::eventually("the other never heard of it", || {
        other.gemini().status().buckets.iter().any(|bucket| !bucket.ready)
    })
    .await;
    let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let ask = served.client.post(format!("http://{}{path}", other.address()));
    let answer = ask.body(common::prompt("hi").to_string()).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(served.sim.world().stats().refused(), refused, "it did not have to ask");
}
