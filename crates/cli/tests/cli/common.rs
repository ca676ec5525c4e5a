//! A place for each test, the program in it, and what it said.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
    time::Duration,
};

use keywheel::{ApiKey, SystemClock};
use keywheel_sim::{
    KeyState, Limits, ModelConfig, ProjectConfig, SimConfig, SimServer, UnknownKeys,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The model that tests ask for.
pub(crate) const MODEL: &str = "gemini-3.5-flash-lite";

/// A folder of its own, with the program's state in it, and nothing of the tester's environment.
pub(crate) struct Place {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// With this variable in the program's environment.
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// With the simulator's keys and address.
    pub(crate) fn with_sim(self, sim: &Sim) -> Self {
        let mut place = self.with("GEMINI_BASE_URL", sim.base_url());
        for (number, key) in sim.keys.iter().enumerate() {
            place = place.with(&format!("GEMINI_API_KEY_{}", number + 1), key.clone());
        }
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The program, not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keywheel"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .env("KEYWHEEL_STATE", self.path("pool.json"))
            .env("KEYWHEEL_LEDGER", self.path("ledger.db"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        // The suite that looks for secrets runs everything at full volume.
        for name in ["RUST_LOG", "RUST_BACKTRACE"] {
            if let Ok(value) = std::env::var(name) {
                command.env(name, value);
            }
        }
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments).output().unwrap())
    }

    /// Runs it to its end with `input` on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Not by a file: what tests hand in may be a key. Small enough for a pipe.
        let written = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        written.unwrap();
        Ended::of(output)
    }
}

/// What a run left.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Nothing that it says holds a key or a token.
    pub(crate) fn of(output: Output) -> Self {
        let ended = Self::with_token(output);
        assert!(!holds_token(&ended.stdout), "a token on standard output");
        ended
    }

    /// The same for those that show a token, once, on standard output.
    pub(crate) fn with_token(output: Output) -> Self {
        let ended = Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        for text in [&ended.stdout, &ended.stderr] {
            for secret in ["AQ.EXAMPLE", "AIzaSyEXAMPLE"] {
                assert!(!text.contains(secret), "a key in what it said");
            }
        }
        assert!(!holds_token(&ended.stderr), "a token on standard error");
        ended
    }

    /// It ended with `code`.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        let Self { code: found, stdout, stderr } = &self;
        assert_eq!(*found, code, "stdout: {stdout}\nstderr: {stderr}");
        self
    }

    /// It said nothing on standard error, unless its log was turned up.
    #[track_caller]
    pub(crate) fn says_no_more(self) -> Self {
        let loud = std::env::var_os("RUST_LOG").is_some();
        assert!(loud || self.stderr.is_empty(), "{}", self.stderr);
        self
    }

    /// Its standard output, a document of `command`.
    #[track_caller]
    pub(crate) fn json(&self, command: &str) -> Value {
        let json: Value =
            serde_json::from_str(&self.stdout).expect("standard output is JSON alone");
        assert_eq!((&json["schema"], &json["command"]), (&1.into(), &command.into()));
        json
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "{text:?} is not in\n{}", self.stdout);
        self
    }

    #[track_caller]
    pub(crate) fn complains(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{text:?} is not in\n{}", self.stderr);
        self
    }
}

fn holds_token(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.match_indices("kw_")
        .any(|(at, _)| text[at + 3..].chars().take_while(|c| plain(*c)).count() >= 43)
}

/// A simulator in this process, and the keys that it knows.
pub(crate) struct Sim {
    runtime: Runtime,
    server: SimServer,
    pub(crate) keys: Vec<String>,
}

impl Sim {
    /// With `keys` living keys, each of its own project with `limits`.
    pub(crate) fn new(keys: usize, limits: Limits) -> Self {
        Self::with_states(limits, &vec![KeyState::Ok; keys])
    }

    /// With a key for each of `states`.
    pub(crate) fn with_states(limits: Limits, states: &[KeyState]) -> Self {
        let mut config = SimConfig::new().with_model(MODEL, ModelConfig::free(limits));
        config.unknown_keys = UnknownKeys::Invalid;
        let mut keys = Vec::new();
        for (number, state) in states.iter().enumerate() {
            let key = format!("AQ.EXAMPLE-cli-{}", number + 1);
            let project = ProjectConfig::new(format!("sim-{}", number + 1));
            let own = ApiKey::new(key.as_str()).unwrap();
            config = config.with_project(project.with_key_in_state(own, *state));
            keys.push(key);
        }
        Self::of(config, keys)
    }

    /// With a world of its own.
    pub(crate) fn of(config: SimConfig, keys: Vec<String>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(SimServer::start(config, Arc::new(SystemClock))).unwrap();
        Self { runtime, server, keys }
    }

    pub(crate) fn base_url(&self) -> String {
        self.server.base_url()
    }

    pub(crate) const fn server(&self) -> &SimServer {
        &self.server
    }

    /// As [`new`](Self::new) without limits, and so slow that requests are under way together.
    pub(crate) fn slow(keys: usize, latency: Duration) -> Self {
        let names: Vec<_> = (1..=keys).map(|number| format!("AQ.EXAMPLE-slow-{number}")).collect();
        let mut config = SimConfig::new()
            .with_model(MODEL, ModelConfig::free(Limits::new()))
            .with_latency(latency, latency);
        for (number, key) in names.iter().enumerate() {
            let project = ProjectConfig::new(format!("slow-{}", number + 1));
            config = config.with_project(project.with_key(ApiKey::new(key.as_str()).unwrap()));
        }
        Self::of(config, names)
    }

    /// Until so many requests have come.
    pub(crate) async fn until_asked(&self, count: u64) {
        while self.server.world().stats().keys.values().map(|tally| tally.counted).sum::<u64>()
            < count
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(future)
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// The form of a document, a line for each field: what scripts may rely on. Compared with the file of that name in
/// `golden`, and with `docs/cli.md`, which shows it.
#[track_caller]
pub(crate) fn assert_form(name: &str, documents: &[&Value]) {
    let mut lines = std::collections::BTreeMap::new();
    documents.iter().for_each(|document| form("", document, &mut lines));
    let found: String = lines
        .into_iter()
        .map(|(path, kinds)| format!("{path}: {}\n", Vec::from_iter(kinds).join(" | ")))
        .collect();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli/golden/{name}.txt"));
    if std::env::var_os("KEYWHEEL_UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &found).unwrap();
    }
    let wanted = fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(found, wanted, "the JSON of {name} has another form than {}", golden.display());
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    // A published crate stands alone.
    if let Ok(docs) = fs::read_to_string(docs) {
        assert!(docs.contains(&wanted), "docs/cli.md shows another form for {name}");
    }
}

type Kinds = std::collections::BTreeMap<String, std::collections::BTreeSet<&'static str>>;

fn form(path: &str, value: &Value, into: &mut Kinds) {
    let mut note = |kind| {
        into.entry(path.to_owned()).or_default().insert(kind);
    };
    match value {
        Value::Null => note("null"),
        Value::Bool(_) => note("true/false"),
        Value::Number(_) => note("number"),
        Value::String(_) => note("text"),
        Value::Array(items) => {
            if items.is_empty() {
                note("list");
            }
            items.iter().for_each(|item| form(&format!("{path}[]"), item, into));
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                form(&path, value, into);
            }
        }
    }
}
