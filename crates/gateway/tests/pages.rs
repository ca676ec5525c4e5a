//! The gateway's own pages, and browsers that ask whether they may ask.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::{Setup, TRIAGE};
use http::StatusCode;
use keywheel::ledger::RowQuery;
use keywheel_sim::{Fault, KeyState};
use serde_json::Value;

async fn health(served: &common::Served) -> Value {
    let page = served.client.get(served.url("/health")).send().await.unwrap();
    assert_eq!(page.headers()["content-type"], "application/json; charset=UTF-8");
    serde_json::from_str(&page.text().await.unwrap()).unwrap()
}

/// <https://github.com/juspay/clairvoyance/pull/569>
#[tokio::test]
async fn no_page_asks_the_provider_anything() {
    let served = Setup::default().start().await;
    for _ in 0..20 {
        for page in ["/healthz", "/readyz", "/health", "/metrics"] {
            let answer = served.client.get(served.url(page)).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{page}");
            answer.bytes().await.unwrap();
        }
    }
    assert_eq!(served.running.gemini().counters().attempts, 0);
    assert_eq!(served.sim.world().stats().served(), 0);
}

#[tokio::test]
async fn health_tells_the_ledger_and_the_keys_as_they_are() {
    let served = Setup::default().start().await;
    let before = health(&served).await;
    assert_eq!((&before["status"], &before["ledger_rows"]), (&"ok".into(), &0.into()));
    served.generate().send().await.unwrap().bytes().await.unwrap();
    let (charged, _) = served.balance().await;
    let after = health(&served).await;
    assert_eq!(after["ledger_id"], before["ledger_id"]);
    assert_eq!(after["created_at"], before["created_at"]);
    assert_eq!((&after["ledger_rows"], &after["open_rows"]), (&1.into(), &0.into()));
    assert_eq!(after["charged"], charged);
    assert_eq!(after["keys"]["ready"], 2);
    assert!(after["storage"]["kind"].is_string() && after["storage"]["vanishes"].is_boolean());
    assert!(after["next_available_at"].is_null());
}

#[tokio::test]
async fn a_gateway_whose_keys_are_all_dead_is_not_ready_and_says_so() {
    let served = Setup::default().start().await;
    let dead = |world: &mut keywheel_sim::World| {
        for key in [1, 2] {
            let key = keywheel::Fingerprint::of(&common::key(key));
            world.set_key_state(key, KeyState::Leaked);
        }
    };
    served.sim.world().with(dead);
    let answer = served.generate().send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let ready = served.client.get(served.url("/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
    let page = health(&served).await;
    assert_eq!((&page["status"], &page["keys"]["quarantined"]), (&"no_keys".into(), &2.into()));
    let alive = served.client.get(served.url("/healthz")).send().await.unwrap();
    assert_eq!(alive.status(), StatusCode::OK, "a restart would help nobody");
}

/// It can be read all the while.
#[tokio::test]
async fn a_gateway_whose_ledger_cannot_be_written_is_not_ready_and_says_so() {
    let served = Setup::default().start().await;
    assert_eq!(served.generate().send().await.unwrap().status(), StatusCode::OK);
    served.balance().await;
    std::fs::remove_file(served.setup.folder.path().join("ledger.db-wal")).unwrap();
    let answer = served.generate().send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let ready = served.client.get(served.url("/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(ready.text().await.unwrap().contains("could not be written"));
    assert_eq!(health(&served).await["status"], "ledger_down");
}

/// Whoever is told of a failure finds what was tried, and what it cost.
#[tokio::test]
async fn a_request_that_fails_has_its_name_in_the_ledger_too() {
    let served = Setup::default().start().await;
    let name = |answer: &reqwest::Response| {
        answer.headers()["x-keywheel-request-id"].to_str().unwrap().to_owned()
    };
    let whole = served.generate().send().await.unwrap();
    served.sim.world().with(|world| world.force(Fault::Overloaded, 100));
    let failed = served.generate().send().await.unwrap();
    assert_eq!(failed.status(), StatusCode::SERVICE_UNAVAILABLE);
    served.balance().await;
    for (answer, most) in [(whole, 1), (failed, 3)] {
        let request_id = Some(name(&answer));
        let query = RowQuery { request_id, ..RowQuery::default() };
        let rows = served.running.ledger().rows(query).await.unwrap();
        assert!((1..=most).contains(&rows.len()), "{}: {rows:?}", name(&answer));
    }
    let rows = served.running.ledger().info().await.unwrap().rows;
    assert!(rows > 2, "the failed one was tried again");
}

#[tokio::test]
async fn metrics_count_requests_and_name_no_secret() {
    let served = Setup::with_projects("", "").start().await;
    let ask = || served.generate().header("x-goog-api-key", TRIAGE);
    ask().send().await.unwrap().bytes().await.unwrap();
    served.generate().send().await.unwrap();
    served.sim.world().with(|world| world.force(Fault::Overloaded, 100));
    ask().send().await.unwrap().bytes().await.unwrap();
    served.balance().await;
    let metrics = served.client.get(served.url("/metrics"));
    assert_eq!(
        metrics.try_clone().unwrap().send().await.unwrap().status(),
        StatusCode::UNAUTHORIZED,
        "names of projects are not for strangers"
    );
    let answer = metrics.bearer_auth(TRIAGE).send().await.unwrap();
    let text = answer.text().await.unwrap();
    for line in [
        r#"keywheel_requests_total{project="triage",route="generate",outcome="ok"} 1"#,
        r#"keywheel_requests_total{project="",route="generate",outcome="no_token"} 1"#,
        r#"keywheel_requests_total{project="triage",route="generate",outcome="upstream_down"} 1"#,
        r#"keywheel_keys{state="ready"} 2"#,
        r#"keywheel_waiting{state="queue"} 0"#,
    ] {
        assert!(text.lines().any(|own| own == line), "{line} is not in\n{text}");
    }
    for secret in [TRIAGE, &common::key(1), &common::key(2)] {
        assert!(!text.contains(secret));
    }
}

#[tokio::test]
async fn a_page_that_is_let_in_may_ask_and_read_and_no_other() {
    let served = Setup::with_projects("", "")
        .text("[cors]\norigins = [\"https://app.example\"]\n")
        .start()
        .await;
    let url = served.url(&format!("/v1beta/models/{}:generateContent", common::MODEL));
    let ask_first = |origin: &'static str| {
        served
            .client
            .request(http::Method::OPTIONS, &url)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "x-goog-api-key,content-type")
            .send()
    };
    let answer = ask_first("https://app.example").await.unwrap();
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    assert_eq!(answer.headers()["access-control-allow-origin"], "https://app.example");
    let answer = ask_first("https://evil.example").await.unwrap();
    assert!(!answer.headers().contains_key("access-control-allow-origin"));
    let ask = |origin: &str| {
        served.generate().header("x-goog-api-key", TRIAGE).header("origin", origin.to_owned())
    };
    let answer = ask("https://app.example").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["access-control-allow-origin"], "https://app.example");
    let exposed = answer.headers()["access-control-expose-headers"].to_str().unwrap();
    assert!(exposed.contains("x-keywheel-key"), "{exposed}");
    let answer = ask("https://evil.example").send().await.unwrap();
    assert!(!answer.headers().contains_key("access-control-allow-origin"));
}
