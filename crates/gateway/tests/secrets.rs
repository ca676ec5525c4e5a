//! No key of the provider's and no token of the gateway's own in any log, header, body, metric or file.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex},
};

use common::{BATCH, Setup, TRIAGE};
use http::StatusCode;
use keywheel::Fingerprint;
use keywheel_sim::{Fault, KeyState};
use tracing_subscriber::fmt::MakeWriter;

/// Everything that is logged.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

const PROMPT: &str = "a prompt that is nobody's business";

/// All texts in a folder's files.
fn texts(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            all += &String::from_utf8_lossy(&std::fs::read(path).unwrap());
        }
    }
    all
}

/// <https://github.com/constellation-works/orbit/pull/490>
#[test]
fn nothing_that_leaves_the_gateway_holds_a_key_a_token_a_prompt_or_a_query() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (told, folder) = runtime.block_on(ask_for_everything());
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    // What other crates say at these levels of what they are given is not ours to keep quiet.
    let ours: Vec<_> = logged.lines().filter(|line| line.contains("keywheel")).collect();
    assert!(ours.iter().any(|line| line.contains("keywheel::access")), "nothing was logged");
    let (ours, kept) = (ours.join("\n"), texts(folder.path()));
    for (place, text) in [("an answer", &told), ("the log", &ours), ("a file", &kept)] {
        for secret in [TRIAGE, BATCH, &common::key(1), &common::key(2), "a-stranger-s-secret"] {
            assert!(!text.contains(secret), "a secret is in {place}");
        }
    }
    for (place, text) in [("the log", &ours), ("a file", &kept)] {
        assert!(!text.contains(PROMPT), "the prompt is in {place}");
        assert!(!text.contains("?key="), "a query is in {place}");
    }
}

/// Asks for all sorts of things; everything that came back, heads included.
async fn ask_for_everything() -> (String, Arc<tempfile::TempDir>) {
    let setup = Setup::with_projects("requests_per_minute = 100", "");
    let setup = setup.text("[retry]\nmax_retries = 0\n[queue]\nwait = \"50ms\"\n");
    let served = setup.start().await;
    let folder = Arc::clone(&served.setup.folder);
    let unary = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let stream = format!("/v1beta/models/{}:streamGenerateContent?alt=sse", common::MODEL);
    let prompt = common::prompt(PROMPT);
    let with = |path: &str| served.post(path, &prompt).header("x-goog-api-key", TRIAGE);
    let get = |path: &str| served.client.get(served.url(path)).bearer_auth(TRIAGE);
    let mut told = String::new();
    let mut hear = async |request: reqwest::RequestBuilder| {
        let answer = request.send().await.unwrap();
        let status = answer.status();
        told += &format!("{:?}\n", answer.headers());
        told += &answer.text().await.unwrap_or_default();
        status
    };
    assert_eq!(hear(with(&unary)).await, StatusCode::OK);
    assert_eq!(hear(with(&stream)).await, StatusCode::OK);
    let in_query = format!("{unary}?key={TRIAGE}");
    assert_eq!(hear(served.post(&in_query, &prompt)).await, StatusCode::OK);
    let strange = format!("{unary}?key=a-stranger-s-secret");
    assert_eq!(hear(served.post(&strange, &prompt)).await, StatusCode::UNAUTHORIZED);
    hear(served.post(&format!("/v9/%2e%2e/?key={TRIAGE}"), &prompt)).await;
    hear(with("/v1beta/models/x:generateContent").bearer_auth(BATCH)).await;
    for fault in [Fault::ErrorMidway, Fault::Cut, Fault::Overloaded, Fault::Html, Fault::Reset] {
        served.sim.world().with(|world| world.force(fault, 2));
        hear(with(&stream)).await;
        hear(with(&unary)).await;
    }
    for page in ["/health", "/metrics", "/readyz", "/v1beta/models", "/v1beta/files"] {
        hear(get(page)).await;
    }
    // Google's own words for this one repeat the key.
    for i in [1, 2] {
        let key = Fingerprint::of(&common::key(i));
        served.sim.world().with(|world| world.set_key_state(key, KeyState::Leaked));
    }
    hear(with(&unary)).await;
    hear(get("/health")).await;
    hear(get("/metrics")).await;
    served.running.stop(std::time::Duration::from_secs(5)).await;
    (told, folder)
}
