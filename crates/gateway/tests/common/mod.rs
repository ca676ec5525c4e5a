//! A gateway on a port in front of a simulated Google on a port.

#![allow(dead_code, unused_imports, reason = "each test uses some of it")]

pub(crate) mod upstream;

use std::{sync::Arc, time::Duration};

use keywheel::{ApiKey, Clock, SystemClock};
use keywheel_gateway::{Config, Gateway, Running};
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimServer};
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) const MODEL: &str = "gemini-3.5-flash-lite";
/// What the gateway knows projects by in these tests.
pub(crate) const TRIAGE: &str = "triage-token-EXAMPLE-1";
pub(crate) const BATCH: &str = "batch-token-EXAMPLE-22";
/// Long enough for any machine; only a hang meets it.
pub(crate) const HANG: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) sim: SimConfig,
    pub(crate) text: String,
    pub(crate) keys: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) folder: Arc<tempfile::TempDir>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            sim: sim(2),
            text: String::new(),
            keys: 2,
            clock: Arc::new(SystemClock),
            folder: Arc::new(tempfile::tempdir().unwrap()),
        }
    }
}

impl Setup {
    /// Two projects with tokens, `triage` and `batch`, with these settings of theirs.
    pub(crate) fn with_projects(triage: &str, batch: &str) -> Self {
        let hash = |token| keywheel_gateway::TokenHash::of(token);
        let text = format!(
            "[projects.triage]\ntoken_sha256 = \"{}\"\n{triage}\n\
             [projects.batch]\ntoken_sha256 = \"{}\"\n{batch}\n",
            hash(TRIAGE),
            hash(BATCH)
        );
        Self { text, ..Self::default() }
    }

    pub(crate) fn text(mut self, before: &str) -> Self {
        self.text = format!("{before}\n{}", self.text);
        self
    }

    pub(crate) fn sim(mut self, change: impl FnOnce(SimConfig) -> SimConfig) -> Self {
        self.sim = change(self.sim);
        self
    }

    pub(crate) fn config(&self, base_url: &str) -> Config {
        let folder = self.folder.path().display();
        let text = format!(
            "state = \"{folder}/pool.json\"\n{}\n[ledger]\npath = \"{folder}/ledger.db\"\n",
            self.text
        );
        let base = ("GEMINI_BASE_URL".to_owned(), base_url.to_owned());
        let keys = (1..=self.keys).map(|i| (format!("GEMINI_API_KEY_{i}"), key(i)));
        let path = self.folder.path().join("keywheel.toml");
        let mut config = Config::parse(path, &text, keys.chain([base])).unwrap();
        config.settings.listen = ([127, 0, 0, 1], 0).into();
        config
    }

    pub(crate) async fn start(self) -> Served {
        let sim = SimServer::start(self.sim.clone(), Arc::clone(&self.clock)).await.unwrap();
        let base_url = sim.base_url();
        self.before(&base_url, sim).await
    }

    /// In front of `base_url`; the simulated Google is there and asked nothing.
    pub(crate) async fn start_before(self, base_url: &str) -> Served {
        let sim = SimServer::start(self.sim.clone(), Arc::clone(&self.clock)).await.unwrap();
        self.before(base_url, sim).await
    }

    async fn before(self, base_url: &str, sim: SimServer) -> Served {
        let config = self.config(base_url);
        let running = Gateway::start_at(config, Arc::clone(&self.clock)).await.unwrap();
        Served { sim, running, setup: self, client: reqwest::Client::new() }
    }
}

pub(crate) fn key(i: usize) -> String {
    format!("AQ.EXAMPLE-key-{i}")
}

/// A simulated Google with `keys` keys, each in a project of its own.
pub(crate) fn sim(keys: usize) -> SimConfig {
    let mut config = SimConfig::new().with_model(MODEL, ModelConfig::free(Limits::new()));
    for i in 1..=keys {
        let project = ProjectConfig::new(format!("google-{i}"));
        config = config.with_project(project.with_key(ApiKey::new(key(i)).unwrap()));
    }
    config
}

#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) sim: SimServer,
    pub(crate) running: Running,
    pub(crate) setup: Setup,
    pub(crate) client: reqwest::Client,
}

impl Served {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running.address())
    }

    pub(crate) fn generate(&self) -> reqwest::RequestBuilder {
        self.post(&format!("/v1beta/models/{MODEL}:generateContent"), &prompt("Say hello"))
    }

    pub(crate) fn stream(&self) -> reqwest::RequestBuilder {
        let path = format!("/v1beta/models/{MODEL}:streamGenerateContent?alt=sse");
        self.post(&path, &prompt("Say hello"))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.client
            .post(self.url(path))
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// Waits until so many requests wait in line.
    pub(crate) async fn in_line(&self, count: usize) {
        let line = format!("keywheel_waiting{{state=\"queue\"}} {count}");
        let began = Instant::now();
        while began.elapsed() < HANG {
            let page = self.client.get(self.url("/metrics")).bearer_auth(TRIAGE).send();
            let page = page.await.unwrap().text().await.unwrap();
            if page.lines().any(|own| own == line) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("there never were {count} in line");
    }

    /// Waits until everything that was sent is settled, and returns what the ledger has charged and reserved.
    pub(crate) async fn balance(&self) -> (u64, u64) {
        let ledger = self.running.ledger();
        let began = Instant::now();
        while ledger.info().await.unwrap().open > 0 && began.elapsed() < HANG {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let all = ledger.usage_of_all().await.unwrap();
        assert!(ledger.audit().await.unwrap().is_balanced(), "rows and totals differ");
        (all.ever.tokens.settled, all.ever.tokens.reserved)
    }
}

pub(crate) fn prompt(text: &str) -> Value {
    json!({ "contents": [{ "role": "user", "parts": [{ "text": text }] }] })
}

/// Waits, for as long as a slow machine may need, until `holds`.
pub(crate) async fn eventually(or_else: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while began.elapsed() < HANG {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{or_else}");
}
