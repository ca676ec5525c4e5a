//! Far more clients at once than a budget has room for.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{collections::BTreeMap, sync::Arc};

use common::{Setup, TRIAGE};
use http::StatusCode;
use keywheel::ManualClock;
use serde_json::{Value, json};

const CAP: u64 = 2_000;

/// Time stands still, so that nobody's wait is over before it is his turn, however slow the machine.
fn at_noon(setup: Setup) -> Setup {
    let clock = ManualClock::at("2026-11-30T20:00:00Z".parse().unwrap());
    Setup { clock: Arc::new(clock), ..setup }
}

/// <https://github.com/BerriAI/litellm/issues/34732>
#[tokio::test(flavor = "multi_thread")]
async fn of_500_clients_at_once_none_spends_past_the_cap_and_each_is_told_how_it_ended() {
    let setup = Setup::with_projects(&format!("tokens_per_day = {CAP}"), "")
        .text("[queue]\nwait = \"5s\"\ndepth = 500\n");
    let served = Arc::new(at_noon(setup).start().await);
    let clients: Vec<_> = (0..500)
        .map(|_| {
            let served = Arc::clone(&served);
            tokio::spawn(async move {
                let mut body = common::prompt("Say hello");
                body["generationConfig"] = json!({ "maxOutputTokens": 20 });
                let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
                let ask = served.post(&path, &body).header("x-goog-api-key", TRIAGE);
                let answer = ask.send().await.unwrap();
                let (status, headers) = (answer.status(), answer.headers().clone());
                (status, headers, answer.text().await.unwrap())
            })
        })
        .collect();
    let mut ends = BTreeMap::<u16, u64>::new();
    for client in clients {
        let (status, headers, text) = client.await.unwrap();
        *ends.entry(status.as_u16()).or_default() += 1;
        if status == StatusCode::OK {
            assert!(headers.contains_key("x-keywheel-budget"), "{headers:?}");
            assert!(headers.contains_key("ratelimit"), "{headers:?}");
            continue;
        }
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{text}");
        assert!(headers.contains_key("retry-after"), "{headers:?}");
        assert_eq!(headers["x-should-retry"], "false");
        let body: Value = serde_json::from_str(&text).unwrap();
        let info = &body["error"]["details"][0];
        assert_eq!((&body["error"]["code"], &info["reason"]), (&429.into(), &"OVER_BUDGET".into()));
        assert_eq!(info["metadata"]["scope"], "project triage", "{body}");
    }
    let (charged, reserved) = served.balance().await;
    assert!(charged <= CAP, "{charged} of {CAP} were spent");
    assert!(charged > CAP * 8 / 10, "{charged} of {CAP} only: room was left that others wanted");
    assert_eq!(reserved, 0);
    assert_eq!(ends.values().sum::<u64>(), 500, "{ends:?}");
    assert_eq!(ends.get(&200), Some(&served.sim.world().stats().served()), "{ends:?}");
}

/// <https://github.com/maximhq/bifrost/issues/4790>
#[tokio::test]
async fn a_project_s_cap_on_requests_a_minute_refuses_the_next_at_once() {
    let setup = Setup::with_projects("requests_per_minute = 3", "");
    let served = at_noon(setup).start().await;
    let ask = || served.generate().header("x-goog-api-key", TRIAGE).send();
    for left in ["2", "1", "0"] {
        let answer = ask().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let limits = answer.headers()["ratelimit"].to_str().unwrap().to_owned();
        assert!(limits.contains(&format!("\"requests-a-minute\";r={left}")), "{limits}");
    }
    let answer = ask().await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    let seconds: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    let other = served.generate().header("x-goog-api-key", common::BATCH).send().await.unwrap();
    assert_eq!(other.status(), StatusCode::OK, "it is the other project's");
}

#[tokio::test]
async fn what_asks_for_more_than_the_whole_budget_is_refused_for_good() {
    let served = Setup::with_projects("tokens_per_day = 100", "").start().await;
    let answer = served.generate().header("x-goog-api-key", TRIAGE).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "its answer could have 8,192 tokens");
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(body["error"]["details"][0]["reason"], "NEVER_FITS", "{body}");
    assert_eq!(served.balance().await, (0, 0));
}
