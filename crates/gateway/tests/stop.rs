//! A gateway that stops: nothing new, what is under way to its end, everything settled and written.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{
    Setup,
    upstream::{Step, Upstream, chunk, end, head},
};
use http::StatusCode;
use serde_json::Value;

const PIECE: &str =
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hel\"}]}}]}\r\n\r\n";
const LAST: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"lo\"}]},\
    \"finishReason\":\"STOP\"}],\"usageMetadata\":{\"totalTokenCount\":5,\
    \"promptTokenCount\":2,\"candidatesTokenCount\":3}}\r\n\r\n";

async fn streaming() -> (Upstream, common::Served, reqwest::Response) {
    let steps = [head("text/event-stream"), chunk(PIECE), Step::Wait, chunk(LAST), end()];
    let upstream = Upstream::that(steps).await;
    let served = Setup::default().start_before(&upstream.url()).await;
    let mut answer = served.stream().send().await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), PIECE);
    (upstream, served, answer)
}

#[tokio::test]
async fn what_is_under_way_comes_to_its_end_and_nothing_new_begins() {
    let (upstream, served, answer) = streaming().await;
    let stopping = served.running.stop(Duration::from_secs(60));
    let mut stopping = std::pin::pin!(stopping);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut stopping).await;
    assert!(early.is_err(), "a stream is under way");
    let new = reqwest::Client::new().get(served.url("/healthz")).send().await;
    assert!(new.is_err(), "nothing new is accepted");
    upstream.go_on();
    assert_eq!(answer.text().await.unwrap(), LAST);
    stopping.await;
    assert_eq!(served.balance().await, (5, 0));
}

#[tokio::test]
async fn a_stream_that_outlives_the_drain_ends_with_an_error_its_client_notices() {
    let (upstream, served, answer) = streaming().await;
    served.running.stop(Duration::from_millis(50)).await;
    let rest = answer.text().await.unwrap();
    let error: Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(error["error"]["status"], "UNAVAILABLE", "{rest}");
    upstream.left_alone().await;
    // Settled before the stop was over, not by a sweep a quarter of an hour later.
    let info = served.running.ledger().info().await.unwrap();
    assert_eq!(info.open, 0);
}

#[tokio::test]
async fn a_whole_answer_that_outlives_the_drain_is_refused_in_the_route_s_words() {
    let chat = serde_json::json!({
        "model": common::MODEL, "messages": [{ "role": "user", "content": "hi" }],
    });
    for is_chat in [false, true] {
        let upstream = Upstream::that([Step::Wait]).await;
        let served = Setup::default().start_before(&upstream.url()).await;
        let request =
            if is_chat { served.post("/v1/chat/completions", &chat) } else { served.generate() };
        let client = tokio::spawn(request.send());
        upstream.asked().await;
        served.running.stop(Duration::from_millis(50)).await;
        let answer = client.await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.headers().contains_key("retry-after"));
        let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        let (name, word) = if is_chat { ("code", "stopping") } else { ("status", "UNAVAILABLE") };
        assert_eq!(body["error"][name], word, "{body}");
        upstream.left_alone().await;
        let (charged, reserved) = served.balance().await;
        assert!(charged > 0 && reserved == 0, "it was sent, so it may have cost its estimate");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_and_started_again_under_load_it_has_lost_and_invented_nothing() {
    let setup = Setup::default();
    let folder = Arc::clone(&setup.folder);
    let served = Arc::new(setup.start().await);
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let served = Arc::clone(&served);
            tokio::spawn(async move {
                let (mut served_tokens, mut answers) = (0, 0_u64);
                // Until the port is closed.
                while let Ok(answer) = served.generate().send().await {
                    let (status, text) = (answer.status(), answer.text().await.unwrap());
                    if status != StatusCode::OK {
                        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
                        continue;
                    }
                    let body: Value = serde_json::from_str(&text).unwrap();
                    served_tokens += body["usageMetadata"]["totalTokenCount"].as_u64().unwrap();
                    answers += 1;
                }
                (served_tokens, answers)
            })
        })
        .collect();
    let is_load = || served.sim.world().stats().served() > 3 * 16;
    common::eventually("there never was a load", is_load).await;
    served.running.stop(common::HANG).await;
    let (mut tokens, mut answers) = (0, 0);
    for client in clients {
        let (its_tokens, its_answers) = client.await.unwrap();
        (tokens, answers) = (tokens + its_tokens, answers + its_answers);
    }
    assert!(answers > 2 * 16, "{answers}: that was no load");
    let before = served.running.ledger().info().await.unwrap();
    let id = before.storage.ledger_id.clone();
    assert_eq!(before.open, 0, "everything is settled when it has stopped");
    drop(Arc::try_unwrap(served).expect("every client has ended"));

    let again = Setup { folder, ..Setup::default() }.start().await;
    let after = again.running.ledger().info().await.unwrap();
    assert_eq!((after.storage.ledger_id, after.rows), (id, answers));
    assert_eq!(again.balance().await, (tokens, 0), "what clients were answered is what is charged");
}

#[tokio::test]
async fn what_clients_over_http2_do_not_read_is_settled_before_it_has_stopped() {
    const STREAMS: usize = 100;
    let more = PIECE.repeat(5_000);
    let steps = [head("text/event-stream"), chunk(PIECE), chunk(&more), Step::Wait];
    let upstream = Upstream::that(steps).await;
    let served = Setup::default().start_before(&upstream.url()).await;
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(1)
        .build()
        .unwrap();
    let mut answers = Vec::new();
    for _ in 0..STREAMS {
        let (_, ask) = served.stream().build_split();
        answers.push(client.execute(ask.unwrap()).await.unwrap());
    }
    assert!(answers.iter().all(|answer| answer.version() == http::Version::HTTP_2));
    served.running.stop(Duration::from_millis(50)).await;
    let ledger = served.running.ledger();
    let standing = ledger.info().await.unwrap();
    assert_eq!((standing.rows, standing.open), (STREAMS as u64, 0));
    assert!(ledger.audit().await.unwrap().is_balanced());
}
