//! Files, and what else belongs to one quota project: uploads by signed addresses, and a clear answer when the one
//! that keeps them cannot serve.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{BATCH, Setup, TRIAGE};
use http::StatusCode;
use keywheel::{Fingerprint, ManualClock};
use keywheel_sim::KeyState;
use serde_json::{Value, json};

const CONTENT: &str = "The lighthouse was built in 1880.";

/// Begins an upload; the address that it goes on at.
async fn begin(served: &common::Served) -> String {
    let begin = served
        .client
        .post(served.url("/upload/v1beta/files"))
        .header("x-goog-api-key", TRIAGE)
        .header("x-goog-upload-protocol", "resumable")
        .header("x-goog-upload-command", "start")
        .header("x-goog-upload-header-content-length", CONTENT.len())
        .header("x-goog-upload-header-content-type", "text/plain")
        .body("{}");
    let answer = begin.send().await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    assert_eq!(status, StatusCode::OK, "{}", answer.text().await.unwrap());
    for name in ["x-goog-upload-url", "x-goog-upload-control-url"] {
        let url = headers[name].to_str().unwrap();
        assert!(url.starts_with(&served.url("/upload/")), "{name} leads past the gateway: {url}");
    }
    headers["x-goog-upload-url"].to_str().unwrap().to_owned()
}

/// As Python's client does: without any key.
fn go_on(served: &common::Served, url: &str) -> reqwest::RequestBuilder {
    served
        .client
        .post(url)
        .header("x-goog-upload-command", "upload, finalize")
        .header("x-goog-upload-offset", 0)
        .body(CONTENT)
}

async fn reason(answer: reqwest::Response) -> String {
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    body["error"]["details"][0]["reason"].as_str().unwrap_or_default().to_owned()
}

/// <https://github.com/QuantumNous/new-api/issues/2078>
#[tokio::test]
async fn an_upload_goes_through_and_its_file_can_be_used_whichever_key_is_next() {
    let served = Setup::with_projects("", "").start().await;
    let url = begin(&served).await;
    let answer = go_on(&served, &url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["x-goog-upload-status"], "final");
    let file: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let uri = file["file"]["uri"].as_str().unwrap();
    let prompt = json!({ "contents": [{ "role": "user", "parts": [
        { "fileData": { "mimeType": "text/plain", "fileUri": uri } }, { "text": "When?" },
    ] }] });
    // Keys take turns, and one of them only knows the file.
    for _ in 0..4 {
        let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
        let ask = served.post(&path, &prompt).header("x-goog-api-key", TRIAGE);
        let answer = ask.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{}", answer.text().await.unwrap());
        assert_eq!(answer.headers()["x-keywheel-key"], "GEMINI_API_KEY_1");
    }
    let name = file["file"]["name"].as_str().unwrap();
    let path = format!("/v1beta/{name}");
    let get = served.client.get(served.url(&path)).header("x-goog-api-key", TRIAGE);
    assert_eq!(get.send().await.unwrap().status(), StatusCode::OK);
}

/// JavaScript's and Go's clients put their base URL before the address, and send their key again.
#[tokio::test]
async fn an_upload_goes_on_with_its_project_s_key_and_with_no_other_s() {
    let served = Setup::with_projects("", "").start().await;
    let url = begin(&served).await;
    let other = go_on(&served, &url).header("x-goog-api-key", BATCH).send().await.unwrap();
    assert_eq!(other.status(), StatusCode::NOT_FOUND);
    let own = go_on(&served, &format!("{url}&key={TRIAGE}")).send().await.unwrap();
    assert_eq!(own.status(), StatusCode::OK, "{}", own.text().await.unwrap());
}

#[tokio::test]
async fn an_address_that_was_changed_opens_nothing() {
    let served = Setup::with_projects("", "").start().await;
    let url = begin(&served).await;
    let (bare, token) = url.split_once("&kw_upload=").unwrap();
    let (_, mac) = token.split_once('.').unwrap();
    for (changed, key) in [
        (bare.to_owned(), ""),
        // An id alone is Google's own credential: not ours, not even with a token.
        (bare.to_owned(), BATCH),
        (format!("{bare}&kw_upload=a.{mac}"), ""),
        (format!("{bare}&kw_upload={}", &token[..token.len() - 2]), TRIAGE),
        (url.replace("upload_id=", "upload_id=x"), ""),
        (url.replace("/v1beta/", "/v1/"), ""),
    ] {
        let mut ask = go_on(&served, &changed);
        if !key.is_empty() {
            ask = ask.header("x-goog-api-key", key);
        }
        let answer = ask.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{changed}");
    }
    let whole = go_on(&served, &url).send().await.unwrap();
    assert_eq!(whole.status(), StatusCode::OK, "none of it did any harm");
}

#[tokio::test]
async fn an_address_ends_after_a_day() {
    let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
    let setup = Setup::with_projects("", "");
    let served = Setup { clock: Arc::new(clock.clone()), ..setup }.start().await;
    let url = begin(&served).await;
    clock.advance(Duration::from_secs(24 * 3600));
    let answer = go_on(&served, &url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(reason(answer).await, "UNKNOWN_TOKEN");
}

#[tokio::test]
async fn when_the_keeper_cannot_serve_the_answer_names_it() {
    let served = Setup::with_projects("", "").start().await;
    let first = Fingerprint::of(&common::key(1));
    served.sim.world().with(|world| world.set_key_state(first, KeyState::Leaked));
    for _ in 0..2 {
        let files = served.client.get(served.url("/v1beta/files"));
        let answer = files.header("x-goog-api-key", TRIAGE).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains("are kept by the quota project"), "{message}");
        let scope = &body["error"]["details"][0]["metadata"]["scope"];
        assert!(scope.as_str().unwrap().starts_with("quota project key:"), "{scope}");
    }
    let answer = served.generate().header("x-goog-api-key", TRIAGE).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "all else goes on with the other key");
}
