//! The line of those for whom there is no room yet.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{
    BATCH, Setup, TRIAGE,
    upstream::{Step, Upstream, answer},
};
use http::StatusCode;
use serde_json::{Value, json};

const ANSWER: &str = r#"{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}],
    "usageMetadata":{"promptTokenCount":2,"candidatesTokenCount":3,"totalTokenCount":5}}"#;

/// A provider that answers when it is told to, and a budget for one request at a time.
async fn narrow() -> (Upstream, Arc<common::Served>) {
    let steps = [Step::Wait, Step::Send(answer("application/json", ANSWER))];
    let upstream = Upstream::that(steps).await;
    let setup = Setup::with_projects("tokens_per_day = 150", "tokens_per_day = 150")
        .text("[queue]\nwait = \"20s\"\ndepth = 2\n");
    let served = setup.start_before(&upstream.url()).await;
    (upstream, Arc::new(served))
}

/// An answer that is waited for: its status and its body.
type Answer = tokio::task::JoinHandle<(StatusCode, String)>;

fn ask(served: &Arc<common::Served>, token: &str) -> Answer {
    ask_for(served, token, "600")
}

/// The same of a client that waits for so many seconds.
fn ask_for(served: &Arc<common::Served>, token: &str, patience: &str) -> Answer {
    let mut body = common::prompt("Say hello");
    body["generationConfig"] = json!({ "maxOutputTokens": 80 });
    let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let ask = served.post(&path, &body).header("x-goog-api-key", token);
    let ask = ask.header("x-server-timeout", patience);
    tokio::spawn(async move {
        let answer = ask.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    })
}

/// One of `triage` goes to the provider, and `N` more wait behind it.
async fn one_goes<const N: usize>(
    upstream: &Upstream,
    served: &Arc<common::Served>,
) -> (Answer, [Answer; N]) {
    let first = ask(served, TRIAGE);
    upstream.asked().await;
    let waiting = std::array::from_fn(|_| ask(served, TRIAGE));
    served.in_line(N).await;
    (first, waiting)
}

#[tokio::test]
async fn a_request_that_fits_once_another_settles_waits_and_is_served() {
    let (upstream, served) = narrow().await;
    let (first, [second]) = one_goes(&upstream, &served).await;
    assert_eq!(upstream.requests().len(), 1, "there was no room for it");
    upstream.go_on();
    assert_eq!(first.await.unwrap().0, StatusCode::OK);
    upstream.go_on();
    assert_eq!(second.await.unwrap().0, StatusCode::OK);
    assert_eq!(served.balance().await, (10, 0));
}

#[tokio::test]
async fn a_client_gone_in_the_queue_leaves_its_place_and_costs_nothing() {
    let (upstream, served) = narrow().await;
    let (first, [second]) = one_goes(&upstream, &served).await;
    second.abort();
    served.in_line(0).await;
    upstream.go_on();
    assert_eq!(first.await.unwrap().0, StatusCode::OK);
    assert_eq!(served.balance().await, (5, 0));
    assert_eq!(upstream.requests().len(), 1);
}

/// <https://github.com/BerriAI/litellm/issues/18128>
#[tokio::test]
async fn a_project_whose_budget_is_full_does_not_hold_up_another() {
    let (upstream, served) = narrow().await;
    let (first, waiting) = one_goes::<2>(&upstream, &served).await;
    let other = ask(&served, BATCH);
    common::eventually("the other project waits", || upstream.requests().len() == 2).await;
    for _ in 0..4 {
        upstream.go_on();
    }
    for asked in [first, other].into_iter().chain(waiting) {
        assert_eq!(asked.await.unwrap().0, StatusCode::OK);
    }
    assert_eq!(served.balance().await, (20, 0));
}

/// <https://github.com/diegosouzapw/OmniRoute/issues/495>
#[tokio::test]
async fn a_queue_has_an_end_and_says_so() {
    let (upstream, served) = narrow().await;
    let (first, waiting) = one_goes::<2>(&upstream, &served).await;
    let (status, text) = ask(&served, TRIAGE).await.unwrap();
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(body["error"]["details"][0]["reason"], "QUEUE_FULL", "{body}");
    for _ in 0..3 {
        upstream.go_on();
    }
    for asked in [first].into_iter().chain(waiting) {
        assert_eq!(asked.await.unwrap().0, StatusCode::OK);
    }
}

/// Google's clients say how long they wait. Who waits for less than his turn may take is told so in time.
#[tokio::test]
async fn nobody_waits_in_line_for_longer_than_for_an_answer() {
    let (upstream, served) = narrow().await;
    let (first, [second]) = one_goes(&upstream, &served).await;
    let told = ask_for(&served, TRIAGE, "1");
    // The line itself has 20 s.
    let told = tokio::time::timeout(Duration::from_secs(15), told).await;
    let (status, text) = told.expect("it waits for its turn").unwrap();
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{text}");
    served.in_line(1).await;
    for _ in 0..2 {
        upstream.go_on();
    }
    for asked in [first, second] {
        assert_eq!(asked.await.unwrap().0, StatusCode::OK);
    }
    assert_eq!(served.balance().await, (10, 0));
}
