//! The ladder, rung by rung, through real sockets: what each refusal says, what waits, and that nothing goes upstream but
//! what was let through.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{
    BATCH, MODEL, Served, Setup, TRIAGE,
    upstream::{Step, Upstream, answer},
};
use http::StatusCode;
use keywheel::{Clock as _, ManualClock};
use keywheel_sim::{Limits, ModelConfig};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// An answer that used 20 tokens.
const USED_20: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":10,"totalTokenCount":20}}"#;

/// Answers when it is told to.
async fn slow() -> Upstream {
    let answer = answer("application/json", USED_20);
    Upstream::that([Step::Wait, Step::Send(answer)]).await
}

async fn quick() -> Upstream {
    Upstream::answering("application/json", USED_20).await
}

fn noon() -> (Setup, ManualClock) {
    at("2026-11-30T20:00:00Z")
}

fn at(moment: &str) -> (Setup, ManualClock) {
    let clock = ManualClock::at(moment.parse().unwrap());
    (Setup { clock: Arc::new(clock.clone()), ..Setup::default() }, clock)
}

fn projects(setup: Setup, triage: &str, batch: &str) -> Setup {
    Setup { text: Setup::with_projects(triage, batch).text, ..setup }
}

/// A request that reserves so many tokens, and a few for its words.
fn ask(served: &Served, token: &str, output: u64) -> RequestBuilder {
    let mut body = common::prompt("Say hello");
    body["generationConfig"] = json!({ "maxOutputTokens": output });
    served
        .post(&format!("/v1beta/models/{MODEL}:generateContent"), &body)
        .header("x-goog-api-key", token)
}

fn chat(served: &Served, token: &str, output: u64) -> RequestBuilder {
    let body = json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": "Say hello" }],
        "max_tokens": output,
    });
    served.post("/v1beta/openai/chat/completions", &body).bearer_auth(token)
}

/// A refusal as a client of Google's dialect reads it.
#[derive(Debug, PartialEq)]
struct Refused {
    status: u16,
    reason: String,
    scope: String,
    reset_at: Option<String>,
    retry_after: Option<u64>,
    should_retry: Option<String>,
    rate_limit: Option<String>,
}

async fn refused(request: RequestBuilder) -> Refused {
    let answer = request.send().await.unwrap();
    let header =
        |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (retry_after, should_retry) = (header("retry-after"), header("x-should-retry"));
    let rate_limit = header("ratelimit");
    let status = answer.status().as_u16();
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let error = &body["error"];
    assert_eq!(error["code"], status, "{body}");
    assert!(error["message"].as_str().is_some_and(|told| !told.is_empty()), "{body}");
    let detail = &error["details"][0];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Refused {
        status,
        reason: text(&detail["reason"]).unwrap_or_else(|| panic!("{body}")),
        scope: text(&detail["metadata"]["scope"]).unwrap(),
        reset_at: text(&detail["metadata"]["reset_at"]),
        retry_after: retry_after.map(|seconds| seconds.parse().unwrap()),
        should_retry,
        rate_limit,
    }
}

async fn is_answered(request: RequestBuilder) -> reqwest::header::HeaderMap {
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let text = answer.text().await.unwrap();
    assert_eq!(status, StatusCode::OK, "{text}");
    headers
}

/// An answer that is waited for.
type Answer = JoinHandle<reqwest::Result<reqwest::Response>>;

/// A gateway at noon, and a provider that answers when it is told to. `triage` has room for one request of 700 tokens.
async fn narrow() -> (Upstream, Served, ManualClock) {
    let (setup, clock) = noon();
    let upstream = slow().await;
    let setup = projects(setup, "tokens_per_day = 1_000", "");
    let served = setup.start_before(&upstream.url()).await;
    (upstream, served, clock)
}

/// One of 700 tokens that has gone to the provider.
async fn gone(served: &Served, upstream: &Upstream) -> Answer {
    let first = tokio::spawn(ask(served, TRIAGE, 700).send());
    upstream.asked().await;
    first
}

/// Sends `request`, for which there is no room: it is the only one in line.
async fn waits<T: Send + 'static>(
    served: &Served,
    request: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let waiting = tokio::spawn(request);
    served.in_line(1).await;
    waiting
}

/// Lets the provider answer those that have come, or will.
async fn all_are_answered(upstream: &Upstream, answers: impl IntoIterator<Item = Answer>) {
    let answers: Vec<_> = answers.into_iter().collect();
    answers.iter().for_each(|_| upstream.go_on());
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn over_the_requests_of_a_minute_it_is_refused_at_once_until_the_oldest_is_a_minute_old() {
    let (setup, clock) = noon();
    let upstream = quick().await;
    let setup = projects(setup, "requests_per_minute = 2", "");
    let served = setup.start_before(&upstream.url()).await;
    let headers = is_answered(ask(&served, TRIAGE, 50)).await;
    assert_eq!(headers["ratelimit"], "\"requests-a-minute\";r=1;t=60");
    assert_eq!(headers["ratelimit-policy"], "\"requests-a-minute\";q=2;w=60");
    clock.advance(Duration::from_secs(20));
    is_answered(ask(&served, TRIAGE, 50)).await;
    for _ in 0..5 {
        let told = refused(ask(&served, TRIAGE, 50)).await;
        assert_eq!((told.status, &*told.reason), (429, "REQUESTS_PER_MINUTE"));
        assert_eq!((&*told.scope, told.retry_after), ("project triage", Some(40)));
        assert_eq!(told.rate_limit.as_deref(), Some("\"requests-a-minute\";r=0;t=40"));
        assert_eq!(told.reset_at.as_deref(), Some("2026-11-30T20:01:00Z"));
    }
    let answer = chat(&served, TRIAGE, 50).send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["retry-after"]),
        (429, &"40".parse().unwrap())
    );
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(body["error"]["code"], "requests_per_minute");
    assert_eq!(body["error"]["type"], "rate_limit_error");

    is_answered(ask(&served, BATCH, 50)).await;
    clock.advance(Duration::from_secs(40));
    is_answered(ask(&served, TRIAGE, 50)).await;
    assert_eq!(upstream.requests().len(), 4, "the refusals counted, or went upstream");
}

#[tokio::test]
async fn what_asks_for_more_than_the_whole_budget_is_the_request_s_fault() {
    let (setup, _clock) = noon();
    let upstream = quick().await;
    let setup = projects(setup, "tokens_per_day = 1_000", "");
    let served = setup.start_before(&upstream.url()).await;
    let told = refused(ask(&served, TRIAGE, 1_000)).await;
    assert_eq!((told.status, &*told.reason, &*told.scope), (400, "NEVER_FITS", "project triage"));
    assert_eq!((told.reset_at, told.should_retry.as_deref()), (None, Some("false")));
    assert_eq!(upstream.requests().len(), 0);
    is_answered(ask(&served, TRIAGE, 500)).await;
    assert_eq!(served.balance().await, (20, 0));
}

#[tokio::test]
async fn what_fits_goes_and_is_told_how_full_the_budget_is_with_a_warning_from_80_percent() {
    let (setup, _clock) = noon();
    let upstream = quick().await;
    let setup = projects(setup, "tokens_per_day = 100", "")
        .text("[allowance]\ntokens = 100_000\nperiod = \"month\"");
    let served = setup.start_before(&upstream.url()).await;
    // Reserved at 50 and more, each answer has cost 20: that is what counts.
    for (used, left) in [(20, 80), (40, 60_u64)] {
        let headers = is_answered(ask(&served, TRIAGE, 50)).await;
        let budget = headers["x-keywheel-budget"].to_str().unwrap();
        let start =
            format!("scope=project, period=day, unit=tokens, cap=100, used={used}, left={left}, ");
        assert!(budget.starts_with(&start), "{budget}");
        assert!(budget.ends_with("reset=\"2026-12-01T08:00:00Z\""), "{budget}");
        let limit = headers["ratelimit"].to_str().unwrap();
        assert_eq!(limit, format!("\"project-tokens-a-day\";r={left};t=43200"));
        let policy = "\"project-tokens-a-day\";q=100;qu=\"tokens\";w=86400";
        assert_eq!(headers["ratelimit-policy"], policy);
        assert!(!headers.contains_key("x-keywheel-warning"));
        assert_eq!(served.balance().await, (used, 0));
    }
    is_answered(ask(&served, TRIAGE, 10)).await;
    assert_eq!(served.balance().await, (60, 0));
    let headers = is_answered(ask(&served, TRIAGE, 10)).await;
    let warning = headers["x-keywheel-warning"].to_str().unwrap();
    assert!(warning.starts_with("80 % of the project's budget (100 tokens a day)"), "{warning}");

    // Who has no cap of its own is told of the allowance.
    let headers = is_answered(ask(&served, BATCH, 100)).await;
    let policy = "\"allowance-tokens-a-month\";q=100000;qu=\"tokens\";w=2592000";
    assert_eq!(headers["ratelimit-policy"], policy);
}

#[tokio::test]
async fn what_a_settlement_makes_room_for_waits_and_goes() {
    let (upstream, served, clock) = narrow().await;
    let first = gone(&served, &upstream).await;
    let second = waits(&served, ask(&served, TRIAGE, 700).send()).await;
    // Others are not in its way.
    let other = tokio::spawn(ask(&served, BATCH, 700).send());
    common::eventually("the other project waits, too", || upstream.requests().len() == 2).await;
    assert!(!second.is_finished());
    all_are_answered(&upstream, [first, second, other]).await;
    assert_eq!(upstream.requests().len(), 3);
    assert_eq!(served.balance().await, (60, 0));
    assert_eq!(clock.now().to_rfc3339(), "2026-11-30T20:00:00+00:00", "no time passed");
}

#[tokio::test]
async fn what_waits_in_vain_is_refused_with_the_moment_and_without_a_wish_to_see_it_again() {
    let (upstream, served, clock) = narrow().await;
    let first = gone(&served, &upstream).await;
    let second = waits(&served, refused(ask(&served, TRIAGE, 700))).await;
    clock.advance(Duration::from_secs(30));
    let told = second.await.unwrap();
    assert_eq!((told.status, &*told.reason), (429, "OVER_BUDGET"));
    assert_eq!(told.reset_at.as_deref(), Some("2026-12-01T08:00:00Z"));
    // What stands in its way is under way, and settles.
    assert_eq!(told.retry_after, Some(30));
    assert_eq!(told.should_retry.as_deref(), Some("false"));
    all_are_answered(&upstream, [first]).await;
    assert_eq!(upstream.requests().len(), 1);
}

/// <https://github.com/PostHog/posthog/pull/82310>: clients need the reason, whose it is and when it ends, for programs.
#[tokio::test]
async fn what_is_spent_is_refused_at_once_until_the_day_turns_and_before_that_it_waits_for_it() {
    let (setup, clock) = at("2026-12-01T07:59:00Z");
    let upstream = quick().await;
    // One answer of 20 tokens leaves no room for anything that asks for some output.
    let setup = projects(setup, "tokens_per_day = 119", "");
    let served = setup.start_before(&upstream.url()).await;
    is_answered(ask(&served, TRIAGE, 100)).await;
    let told = refused(ask(&served, TRIAGE, 100)).await;
    assert_eq!((told.status, &*told.reason, told.retry_after), (429, "OVER_BUDGET", Some(60)));
    assert_eq!(told.rate_limit.as_deref(), Some("\"project-tokens-a-day\";r=99;t=60"));
    assert_eq!(told.reset_at.as_deref(), Some("2026-12-01T08:00:00Z"));
    let answer = chat(&served, TRIAGE, 100).send().await.unwrap();
    assert_eq!(answer.headers()["x-should-retry"], "false");
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(body["error"]["type"], "insufficient_quota");

    clock.advance(Duration::from_secs(40));
    let waiting = waits(&served, ask(&served, TRIAGE, 100).send()).await;
    assert_eq!(upstream.requests().len(), 1);
    clock.advance(Duration::from_secs(20));
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_cap_on_those_under_way_holds_until_an_answer_has_come_to_its_end() {
    let (setup, clock) = noon();
    let upstream = slow().await;
    let setup = projects(setup, "in_flight = 2", "").text("[queue]\ndepth = 1\n");
    let served = setup.start_before(&upstream.url()).await;
    let mut going: Vec<_> = (0..2).map(|_| tokio::spawn(ask(&served, TRIAGE, 50).send())).collect();
    common::eventually("two go at once", || upstream.requests().len() == 2).await;
    let waiting = waits(&served, ask(&served, TRIAGE, 50).send()).await;
    let told = refused(ask(&served, TRIAGE, 50)).await;
    assert_eq!((told.status, &*told.reason), (429, "QUEUE_FULL"));
    // Places come back with each answer: worth another try, not worth one at once.
    assert_eq!((told.should_retry, told.retry_after), (None, Some(5)));

    // Whoever goes away leaves his place in the queue.
    waiting.abort();
    served.in_line(0).await;
    going.push(waits(&served, ask(&served, TRIAGE, 50).send()).await);
    assert_eq!(upstream.requests().len(), 2);
    all_are_answered(&upstream, going).await;

    // Nobody ends in time.
    let _going: Vec<_> = (0..2).map(|_| tokio::spawn(ask(&served, TRIAGE, 50).send())).collect();
    common::eventually("two go at once", || upstream.requests().len() == 5).await;
    let late = waits(&served, refused(ask(&served, TRIAGE, 50))).await;
    clock.advance(Duration::from_secs(30));
    let told = late.await.unwrap();
    assert_eq!((told.status, &*told.reason, &*told.scope), (429, "IN_FLIGHT", "project triage"));
}

#[tokio::test]
async fn budgets_of_several_projects_share_one_allowance_by_priority() {
    let (setup, _clock) = noon();
    let upstream = slow().await;
    let setup = projects(setup, "priority = 1", "priority = 9")
        .text("[allowance]\ntokens = 1_000\nperiod = \"day\"");
    let served = setup.start_before(&upstream.url()).await;
    let first = gone(&served, &upstream).await;
    let low = waits(&served, ask(&served, TRIAGE, 701).send()).await;
    let high = tokio::spawn(ask(&served, BATCH, 702).send());
    served.in_line(2).await;
    // There is room for this one, but not before those who matter more.
    let small = tokio::spawn(ask(&served, TRIAGE, 10).send());
    served.in_line(3).await;
    for (count, output) in [(2, "702"), (3, "701"), (4, "10")] {
        upstream.go_on();
        common::eventually("nobody goes", || upstream.requests().len() >= count).await;
        let went = &upstream.requests()[count - 1];
        assert!(went.contains(&format!("\"maxOutputTokens\":{output}")), "{went}");
        if count == 3 {
            break; // the small one has room beside it
        }
    }
    all_are_answered(&upstream, [first, low, high, small]).await;
    assert_eq!(served.balance().await, (80, 0));
}

#[tokio::test]
async fn a_key_that_comes_back_in_time_is_waited_for_and_one_that_does_not_is_a_503() {
    let (setup, clock) = noon();
    let limits = Limits::new().rpm(1);
    let setup = projects(Setup { keys: 1, ..setup }, "", "");
    let model = ModelConfig::free(limits);
    let served = setup.sim(|_| common::sim(1).with_model(MODEL, model)).start().await;
    is_answered(ask(&served, TRIAGE, 50)).await;
    let told = refused(ask(&served, TRIAGE, 50)).await;
    assert_eq!((told.status, &*told.reason, &*told.scope), (503, "EXHAUSTED", "pool"));
    let seconds = told.retry_after.unwrap();
    assert!((31..=62).contains(&seconds), "{told:?}");
    assert!(told.reset_at.is_some());

    clock.advance(Duration::from_secs(seconds - 10));
    let waiting = waits(&served, ask(&served, TRIAGE, 50).send()).await;
    clock.advance(Duration::from_secs(10));
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
}

/// One process's look-then-send lets each of many callers see room that the others take:
/// <https://github.com/BerriAI/litellm/issues/34732>
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_clients_at_once_never_pass_a_cap() {
    let setup = Setup::with_projects("calls_per_day = 120\nin_flight = 20", "")
        .text("[queue]\nwait = \"20s\"\ndepth = 150\n");
    let upstream = quick().await;
    let served = Arc::new(setup.start_before(&upstream.url()).await);
    let clients: Vec<_> = (0..500)
        .map(|_| {
            let request = ask(&served, TRIAGE, 50);
            tokio::spawn(async move {
                let answer = request.send().await.unwrap();
                let status = answer.status().as_u16();
                answer.bytes().await.unwrap();
                status
            })
        })
        .collect();
    let mut by_status = std::collections::BTreeMap::new();
    for client in clients {
        *by_status.entry(client.await.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(by_status, [(200, 120), (429, 380)].into());
    assert_eq!(upstream.requests().len(), 120);
    assert_eq!(served.balance().await, (120 * 20, 0));
    assert_eq!(served.running.ledger().info().await.unwrap().rows, 120);
}

#[tokio::test]
async fn another_gateway_on_the_same_ledger_frees_what_this_one_waits_for() {
    let upstream = slow().await;
    let setup = Setup::with_projects("tokens_per_day = 1_000", "");
    let folder = Arc::clone(&setup.folder);
    let one = setup.start_before(&upstream.url()).await;
    let setup = Setup { folder, ..Setup::with_projects("tokens_per_day = 1_000", "") };
    let other = setup.start_before(&upstream.url()).await;
    let first = gone(&one, &upstream).await;
    let second = waits(&other, ask(&other, TRIAGE, 700).send()).await;
    all_are_answered(&upstream, [first, second]).await;
    assert_eq!(other.balance().await, (40, 0));
}

#[tokio::test]
async fn who_waits_when_the_gateway_stops_is_told_so_at_once() {
    let (upstream, served, _clock) = narrow().await;
    let first = gone(&served, &upstream).await;
    let second = waits(&served, refused(ask(&served, TRIAGE, 700))).await;
    let stopping = served.running.stop(Duration::from_secs(20));
    let told = async {
        let told = second.await.unwrap();
        assert_eq!((told.status, &*told.reason), (503, "STOPPING"));
        all_are_answered(&upstream, [first]).await;
    };
    tokio::join!(stopping, told);
}
