//! Projects beside each other: whose token opens what, and what of a request never goes upstream.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::{
    BATCH, Setup, TRIAGE,
    upstream::{Step, Upstream},
};
use http::StatusCode;
use serde_json::Value;

const OTHERS: [(&str, &str); 4] = [
    ("x-goog-api-key", TRIAGE),
    ("authorization", "Bearer triage-token-EXAMPLE-1"),
    ("authorization", "bearer triage-token-EXAMPLE-1"),
    ("x-goog-api-key", " triage-token-EXAMPLE-1 "),
];

async fn reason(answer: reqwest::Response) -> String {
    let text = answer.text().await.unwrap();
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"));
    body["error"]["details"][0]["reason"].as_str().unwrap_or(&text).to_owned()
}

/// <https://github.com/BerriAI/litellm/issues/18604>
#[tokio::test]
async fn a_token_is_taken_as_header_as_query_and_as_bearer_and_never_goes_upstream() {
    let upstream = Upstream::answering("application/json", r#"{"candidates":[{}]}"#).await;
    let served = Setup::with_projects("", "").start_before(&upstream.url()).await;
    for (name, value) in OTHERS {
        let answer = served.generate().header(name, value).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{name}");
    }
    let path = format!("/v1beta/models/{}:generateContent?key={TRIAGE}", common::MODEL);
    let answer = served.post(&path, &common::prompt("hi")).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let requests = upstream.requests();
    assert_eq!(requests.len(), OTHERS.len() + 1);
    for request in requests {
        assert!(!request.contains(TRIAGE), "the gateway's token went upstream");
        assert_eq!(request.matches("x-goog-api-key: ").count(), 1, "exactly one credential");
        assert!(!request.to_lowercase().contains("authorization"), "exactly one credential");
    }
}

#[tokio::test]
async fn strangers_and_two_tokens_are_refused_and_cost_nothing() {
    let served = Setup::with_projects("", "").start().await;
    let refused = |request: reqwest::RequestBuilder| async {
        let answer = request.send().await.unwrap();
        (answer.status(), reason(answer).await)
    };
    assert_eq!(refused(served.generate()).await, (StatusCode::UNAUTHORIZED, "NO_TOKEN".to_owned()));
    let unknown = served.generate().header("x-goog-api-key", "nobody-token-EXAMPLE");
    assert_eq!(refused(unknown).await, (StatusCode::UNAUTHORIZED, "UNKNOWN_TOKEN".to_owned()));
    let two = served.generate().header("x-goog-api-key", TRIAGE).bearer_auth(BATCH);
    assert_eq!(refused(two).await, (StatusCode::BAD_REQUEST, "TWO_CREDENTIALS".to_owned()));
    let path = format!("/v1beta/models/{}:generateContent?key={BATCH}", common::MODEL);
    let smuggled = served.post(&path, &common::prompt("hi")).header("x-goog-api-key", TRIAGE);
    assert_eq!(refused(smuggled).await, (StatusCode::BAD_REQUEST, "TWO_CREDENTIALS".to_owned()));
    assert_eq!(served.balance().await, (0, 0));
    assert_eq!(served.running.gemini().counters().attempts, 0, "nobody asked the provider");
}

#[tokio::test]
async fn a_token_opens_its_own_project_and_no_other() {
    let served = Setup::with_projects("", "").start().await;
    let asked = |project: &str, prefix: bool| {
        let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
        let path = if prefix { format!("/p/{project}{path}") } else { path };
        let request = served.post(&path, &common::prompt("hi")).header("x-goog-api-key", TRIAGE);
        if prefix { request } else { request.header("x-keywheel-project", project) }
    };
    for prefix in [true, false] {
        let own = asked("triage", prefix).send().await.unwrap();
        assert_eq!(own.status(), StatusCode::OK);
        let other = asked("batch", prefix).send().await.unwrap();
        assert_eq!(other.status(), StatusCode::NOT_FOUND);
        let other = reason(other).await;
        // Whether a project exists is not told to who has no token for it.
        let none = asked("nobody", prefix).send().await.unwrap();
        assert_eq!((none.status(), reason(none).await), (StatusCode::NOT_FOUND, other));
    }
    served.balance().await;
    let ledger = served.running.ledger();
    assert!(ledger.usage("triage").await.unwrap().ever.tokens.used() > 0);
    assert_eq!(ledger.usage("batch").await.unwrap().ever.tokens.used(), 0);
}

#[tokio::test]
async fn what_would_act_for_somebody_else_never_goes_upstream() {
    let upstream = Upstream::answering("application/json", r#"{"candidates":[{}]}"#).await;
    let served = Setup::with_projects("", "").start_before(&upstream.url()).await;
    let smuggled = [
        ("x-http-method-override", "DELETE"),
        ("x-goog-user-project", "victim"),
        ("cookie", "session=1"),
        ("connection", "keep-alive, x-secret"),
        ("x-secret", "1"),
        ("x-keywheel-project", "triage"),
        ("x-forwarded-for", "10.0.0.1"),
    ];
    let mut request = served.generate().header("x-goog-api-key", TRIAGE);
    for name in ["api-key", "x-api-key", "x-of-mine"] {
        request = request.header(name, TRIAGE);
    }
    for (name, value) in smuggled {
        request = request.header(name, value);
    }
    // Whatever else a client says is handed on.
    let answer = request.header("api-revision", "7").header("x-new", "a").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let seen = upstream.requests().concat().to_lowercase();
    for (name, _) in smuggled.iter().filter(|(name, _)| *name != "connection") {
        assert!(!seen.contains(&format!("\r\n{name}:")), "{name} went upstream");
    }
    assert!(!seen.contains(&TRIAGE.to_lowercase()), "the gateway's token went upstream");
    assert!(seen.contains("\r\napi-revision: 7") && seen.contains("\r\nx-new: a"), "{seen}");
    assert!(seen.starts_with("post /v1beta/models/"), "{seen}");
}

#[tokio::test]
async fn a_key_that_the_provider_repeats_in_a_header_stays_here() {
    let (key, body) = (common::key(1), r#"{"candidates":[{}]}"#);
    let said = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         x-echo: {key}\r\nlink: <https://a.example/?key={key}>\r\nx-goog-upload-url: https://a.example/upload/?key={key}\r\n\
         x-kept: a\r\n\r\n{body}",
        body.len()
    );
    let upstream = Upstream::that([Step::Send(said.into_bytes())]).await;
    let setup = Setup { keys: 1, ..Setup::with_projects("", "") };
    let served = setup.start_before(&upstream.url()).await;
    let answer = served.generate().header("x-goog-api-key", TRIAGE).send().await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["x-kept"]),
        (StatusCode::OK, &"a".parse().unwrap())
    );
    let told = format!("{:?}", answer.headers());
    assert!(!told.contains(&key), "a key came with an answer");
    assert_eq!(answer.text().await.unwrap(), body);
}

#[tokio::test]
async fn a_model_that_is_not_allowed_is_refused_in_either_dialect() {
    let models = r#"models = ["gemini-other", "m2", "m3", "m4", "m5", "m6", "m7"]"#;
    let served = Setup::with_projects(models, "").start().await;
    let answer = served.generate().header("x-goog-api-key", TRIAGE).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert_eq!(reason(answer).await, "MODEL_NOT_ALLOWED");
    let body = serde_json::json!({ "model": common::MODEL, "messages": [] });
    let chat = served.post("/v1beta/openai/chat/completions", &body).bearer_auth(TRIAGE);
    let answer = chat.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(body["error"]["code"], "model_not_allowed");
    let told = format!(
        "the project triage may not use {}; it may use gemini-other, m2, m3, m4, m5 and 2 more",
        common::MODEL
    );
    assert_eq!(body["error"]["message"], told);
    assert_eq!(served.balance().await, (0, 0));
}

#[tokio::test]
async fn a_list_of_models_has_those_that_the_project_may_use() {
    let native = r#"{"models":[{"name":"models/m2","inputTokenLimit":9},{"name":"models/m9"}],"nextPageToken":"p"}"#;
    let openai = r#"{"object":"list","data":[{"id":"models/m9"},{"id":"models/m2"},{"id":"m3"}]}"#;
    let native_of_triage =
        r#"{"models":[{"name":"models/m2","inputTokenLimit":9}],"nextPageToken":"p"}"#;
    let openai_of_triage = r#"{"object":"list","data":[{"id":"models/m2"},{"id":"m3"}]}"#;
    for (path, list, of_triage) in [
        ("/v1beta/models?pageSize=2", native, native_of_triage),
        ("/v1beta/openai/models", openai, openai_of_triage),
    ] {
        let upstream = Upstream::answering("application/json", list).await;
        let setup = Setup::with_projects(r#"models = ["m2", "m3"]"#, "");
        let served = setup.start_before(&upstream.url()).await;
        let ask = async |token| {
            let asked = served.client.get(served.url(path)).bearer_auth(token);
            let answer = asked.header("accept-encoding", "gzip").send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            answer.text().await.unwrap()
        };
        let told: Value = serde_json::from_str(&ask(TRIAGE).await).unwrap();
        assert_eq!(told, serde_json::from_str::<Value>(of_triage).unwrap());
        assert!(upstream.requests()[0].contains("accept-encoding: identity"), "it is read here");
        assert_eq!(ask(BATCH).await, list, "byte for byte for whoever may use all");
    }
}

#[tokio::test]
async fn what_cannot_be_bounded_is_refused_to_a_budgeted_project_without_a_fixed_charge() {
    let upstream = Upstream::answering("application/json", r#"{"name":"operations/1"}"#).await;
    let budget = "tokens_per_day = 1000000";
    let batch = format!("{budget}\n[projects.batch.unbounded]\nvideos = 5000\n");
    let served = Setup::with_projects(budget, &batch).start_before(&upstream.url()).await;
    let path = "/v1beta/models/veo-3:predictLongRunning";
    let ask = |token| {
        let body = serde_json::json!({ "instances": [{ "prompt": "a lighthouse" }] });
        served.post(path, &body).header("x-goog-api-key", token).send()
    };
    let answer = ask(TRIAGE).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(reason(answer).await, "UNBOUNDED_ROUTE");
    assert!(upstream.requests().is_empty());
    let answer = ask(BATCH).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{}", answer.text().await.unwrap());
    answer.bytes().await.unwrap();
    assert_eq!(served.balance().await, (5_000, 0));
}

/// What the refusal tells to set is let through, and a token more is not.
#[tokio::test]
async fn a_request_without_a_bound_is_told_which_one_fits_the_whole_budget() {
    let served = Setup::with_projects("tokens_per_day = 5_000", "").start().await;
    let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let ask = async |bound: Option<u64>| {
        let mut body = common::prompt("Say hello");
        if let Some(bound) = bound {
            body["generationConfig"] = serde_json::json!({ "maxOutputTokens": bound });
        }
        let request = served.post(&path, &body).header("x-goog-api-key", TRIAGE);
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        (status, body["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let (status, told) = ask(None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(told.contains("8192 kept for an answer because it sets no maxOutputTokens"), "{told}");
    let most = told.split("at most ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let most: u64 = most.parse().unwrap();
    let (status, told) = ask(Some(most + 1)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(told.ends_with(&format!("set maxOutputTokens to at most {most}")), "{told}");
    assert_eq!(ask(Some(most)).await, (StatusCode::OK, String::new()));
}

/// It would be charged to nobody's cap, and pass the list of models.
#[tokio::test]
async fn a_body_that_names_no_model_is_refused_where_it_has_to() {
    let upstream = Upstream::answering("application/json", r#"{"id":"a"}"#).await;
    let limits = "models = [\"m\"]\ntokens_per_day = 1_000_000";
    let served = Setup::with_projects(limits, "").start_before(&upstream.url()).await;
    let ask = async |path: &str, body: &str| {
        let request = served.client.post(served.url(path)).bearer_auth(TRIAGE);
        let answer = request.body(body.to_owned()).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    for path in [
        "/v1beta/openai/chat/completions",
        "/chat/completions",
        "/v1beta/openai/completions",
        "/v1beta/openai/embeddings",
        "/v1beta/interactions",
    ] {
        let unnamed = ["", "{}", r#"{"input":"hi","messages":[]}"#, r#"{"model":null}"#];
        // The upstream may find another one in them.
        let no_json = [r#"{"model":"m",}"#, r#"{"model":"m"} {"model":"another"}"#];
        for body in unnamed.into_iter().chain(no_json) {
            let (status, text) = ask(path, body).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path} {body}: {text}");
            let is_said = text.contains("bad_body") || text.contains("BAD_BODY");
            assert!(is_said, "{path} {body}: {text}");
        }
    }
    assert!(upstream.requests().is_empty(), "{:?}", upstream.requests());
}
