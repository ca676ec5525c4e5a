//! New settings for a gateway that runs, under load.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{BATCH, TRIAGE, upstream::Upstream};
use http::StatusCode;
use keywheel::SystemClock;
use keywheel_gateway::{Config, Gateway, ReloadError, Running, TokenHash};
use keywheel_sim::SimServer;

struct Kept {
    folder: tempfile::TempDir,
    url: String,
}

impl Kept {
    fn path(&self) -> PathBuf {
        self.folder.path().join("keywheel.toml")
    }

    /// Writes the file as editors do: aside, and into place.
    fn write(&self, projects: &str, keys: &[usize]) {
        let folder = self.folder.path();
        let keys: String = keys.iter().map(|key| common::key(*key) + "\n").collect();
        replace(&folder.join("keys.txt"), &keys);
        let text = format!(
            "state = \"pool.json\"\nwatch = \"50ms\"\n[upstream]\nbase_url = \"{}\"\n\
             [keys]\nfile = \"keys.txt\"\n[ledger]\npath = \"ledger.db\"\n{projects}",
            self.url
        );
        replace(&self.path(), &text);
    }

    async fn start(&self) -> Running {
        let mut config = Config::from_file(self.path()).unwrap();
        config.settings.listen = ([127, 0, 0, 1], 0).into();
        Gateway::start_at(config, Arc::new(SystemClock)).await.unwrap()
    }
}

fn replace(path: &Path, text: &str) {
    let aside = path.with_extension("new");
    fs::write(&aside, text).unwrap();
    fs::rename(aside, path).unwrap();
}

fn project(name: &str, token: &str) -> String {
    format!("[projects.{name}]\ntoken_sha256 = \"{}\"\n", TokenHash::of(token))
}

async fn status(running: &Running, client: &reqwest::Client, token: &str) -> StatusCode {
    let path = format!("/v1beta/models/{}:generateContent", common::MODEL);
    let ask = client
        .post(format!("http://{}{path}", running.address()))
        .header("x-goog-api-key", token)
        .body(common::prompt("hi").to_string());
    let answer = ask.send().await.unwrap();
    let status = answer.status();
    answer.bytes().await.unwrap();
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_tokens_and_keys_change_under_load_and_nobody_else_notices() {
    let sim = SimServer::start(common::sim(3), Arc::new(SystemClock)).await.unwrap();
    let kept = Kept { folder: tempfile::tempdir().unwrap(), url: sim.base_url() };
    kept.write(&project("triage", TRIAGE), &[1, 2]);
    let running = Arc::new(kept.start().await);
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (running, over) = (Arc::clone(&running), Arc::clone(&over));
            tokio::spawn(async move {
                let client = reqwest::Client::new();
                let mut asked = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(status(&running, &client, TRIAGE).await, StatusCode::OK);
                    asked += 1;
                }
                asked
            })
        })
        .collect();
    let client = reqwest::Client::new();
    assert_eq!(status(&running, &client, BATCH).await, StatusCode::UNAUTHORIZED);
    // By hand: another project, one key more, one less.
    kept.write(&(project("triage", TRIAGE) + &project("batch", BATCH)), &[2, 3]);
    let report = running.reload().await.unwrap();
    assert_eq!(report.projects, 2);
    assert_eq!(status(&running, &client, BATCH).await, StatusCode::OK);
    assert_eq!(running.gemini().status().keys.len(), 2);
    // By itself: the project is gone again.
    kept.write(&project("triage", TRIAGE), &[1, 2, 3]);
    for _ in 0..400 {
        if status(&running, &client, BATCH).await == StatusCode::UNAUTHORIZED {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(status(&running, &client, BATCH).await, StatusCode::UNAUTHORIZED);
    assert_eq!(running.gemini().status().keys.len(), 3);
    over.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.unwrap() > 0);
    }
    running.stop(Duration::from_secs(5)).await;
    assert!(running.ledger().audit().await.unwrap().is_balanced());
}

#[tokio::test]
async fn a_faulty_file_changes_nothing_and_says_where_it_is_at_fault() {
    let upstream = Upstream::answering("application/json", r#"{"candidates":[{}]}"#).await;
    let kept = Kept { folder: tempfile::tempdir().unwrap(), url: upstream.url() };
    kept.write(&project("triage", TRIAGE), &[1]);
    let running = kept.start().await;
    replace(&kept.path(), "listen = 5\n[projects.triage]\ntoken_per_day = 1\n");
    let error = running.reload().await.unwrap_err().to_string();
    assert!(error.contains("listen") && error.contains("token_per_day"), "{error}");
    let client = reqwest::Client::new();
    assert_eq!(status(&running, &client, TRIAGE).await, StatusCode::OK);
}

#[tokio::test]
async fn a_lowered_budget_holds_at_once() {
    let upstream = Upstream::answering("application/json", r#"{"candidates":[{}]}"#).await;
    let kept = Kept { folder: tempfile::tempdir().unwrap(), url: upstream.url() };
    kept.write(&project("triage", TRIAGE), &[1]);
    let running = kept.start().await;
    let client = reqwest::Client::new();
    assert_eq!(status(&running, &client, TRIAGE).await, StatusCode::OK);
    kept.write(&(project("triage", TRIAGE) + "tokens_per_day = 10\n"), &[1]);
    running.reload().await.unwrap();
    assert_eq!(status(&running, &client, TRIAGE).await, StatusCode::BAD_REQUEST);
    let used = running.ledger().usage("triage").await.unwrap();
    assert!(used.day.tokens.used() > 10, "what was spent stays spent");
}

/// What only a start looks at is named until it is as it was, and nothing of it holds by halves.
#[tokio::test]
async fn what_a_reload_does_not_apply_is_named() {
    let upstream = Upstream::answering("application/json", r#"{"candidates":[{}]}"#).await;
    let kept = Kept { folder: tempfile::tempdir().unwrap(), url: upstream.url() };
    kept.write(&project("triage", TRIAGE), &[1]);
    let running = kept.start().await;
    let client = reqwest::Client::new();
    let start = fs::read_to_string(kept.path()).unwrap();
    let other = "deadline = \"1s\"\n[upstream]\nkind = \"openai\"\napi_version = \"v9\"";
    let later = start.replace("[upstream]", other)
        + "[retry]\nmax_retries = 5\n[serve]\nthreads = 1\ndrain_time = \"1s\"\n";
    replace(&kept.path(), &later);
    // Told again as long as it is so.
    for _ in 0..2 {
        let Ok(reloaded) = running.reload().await else { panic!("it was refused") };
        assert_eq!(
            reloaded.needs_restart,
            [
                "deadline",
                "retry.max_retries",
                "serve.threads",
                "upstream.api_version",
                "upstream.kind",
            ]
        );
        assert_eq!(reloaded.warnings, [""; 0]);
        // The client speaks as it did, and is spoken to so.
        assert_eq!(status(&running, &client, TRIAGE).await, StatusCode::OK);
        assert_eq!(running.drain_time(), Duration::from_secs(1));
    }
    replace(&kept.path(), &(start + "# And a remark.\n[queue]\ndepth = 3\n"));
    assert_eq!(running.reload().await.unwrap().needs_restart, [""; 0]);
}

/// Nothing could serve a file or a cache then, and each refusal would look like a spent quota.
#[tokio::test]
async fn a_quota_project_that_no_key_belongs_to_is_warned_about() {
    let upstream = Upstream::answering("application/json", r#"{"candidates":[{}]}"#).await;
    let kept = Kept { folder: tempfile::tempdir().unwrap(), url: upstream.url() };
    let stateful =
        |name: &str| format!("{}[stateful]\nquota_project = {name:?}\n", project("triage", TRIAGE));
    kept.write(&project("triage", TRIAGE), &[1]);
    let running = kept.start().await;
    kept.write(&stateful("nobody"), &[1]);
    let warnings = running.reload().await.unwrap().warnings;
    let [warning] = &*warnings else { panic!("{warnings:?}") };
    assert!(warning.starts_with("stateful.quota_project: no key belongs to nobody"), "{warning}");
    let own = running.gemini().status().keys[0].quota_project.clone();
    assert!(warning.contains(&own), "{warning}");
    kept.write(&stateful(&own), &[1]);
    assert!(running.reload().await.unwrap().warnings.is_empty());
}

/// A file that was emptied for a moment would open a gateway that asks for tokens.
#[tokio::test]
async fn no_reload_turns_tokens_off() {
    let upstream = Upstream::answering("application/json", r#"{"candidates":[{}]}"#).await;
    let kept = Kept { folder: tempfile::tempdir().unwrap(), url: upstream.url() };
    let triage = project("triage", TRIAGE);
    kept.write(&triage, &[1]);
    let running = kept.start().await;
    let client = reqwest::Client::new();
    let with_off = "[projects.triage]\n".to_owned();
    for projects in [with_off.clone(), String::new()] {
        kept.write(&projects, &[1]);
        let error = running.reload().await.unwrap_err();
        assert!(matches!(error, ReloadError::NoTokens), "{error}");
        assert_eq!(status(&running, &client, "no-token-EXAMPLE").await, StatusCode::UNAUTHORIZED);
        assert_eq!(status(&running, &client, TRIAGE).await, StatusCode::OK);
    }
    kept.write(&triage, &[1]);
    running.reload().await.unwrap();
    // Whoever began without them may go on without, on an address that is his machine's alone.
    drop(running);
    kept.write(&with_off, &[1]);
    kept.start().await.reload().await.unwrap();
}
