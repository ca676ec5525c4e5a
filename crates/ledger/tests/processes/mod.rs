//! Real processes for tests about processes: this test program, started again in another role.

#![allow(dead_code, unreachable_pub, reason = "every test program uses its own part of this")]
#![allow(clippy::disallowed_methods, reason = "measures how long real processes take")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use keywheel_ledger::{
    Ask, Charge, Durability, LedgerError, LedgerRules, LedgerStore, Limit, Outcome, Period,
    Reservation, Reserving, Row, RowId, Scope, Settled, Settlement, Span, SqliteStore, Total,
    TotalKey, Usage,
};
use tempfile::TempDir;

const ROLE: &str = "KEYWHEEL_TEST_ROLE";
const FILE: &str = "KEYWHEEL_TEST_FILE";
/// Before what a process says to the test that started it; the test harness prints lines of its
/// own.
const SAYS: &str = "says: ";
/// After it: a process that is killed may have said half a line.
const ENDS: &str = " .";

pub const ACCOUNT: &str = "triage";
pub const MODEL: &str = "gemini-3.5-flash-lite";

/// A process of ours; killed when it is dropped.
pub struct Process {
    child: std::process::Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the test `process` of this program in `role`, on the ledger at `file`.
    ///
    /// `shell` is put before the program, such as a limit that a shell sets; it ends in `exec`.
    pub fn start(role: &str, file: &Path, shell: Option<&str>) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut command = match shell {
            None => Command::new(program),
            Some(shell) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(format!("{shell} \"$0\" \"$@\"")).arg(program);
                command
            }
        };
        let command = command.args(["--exact", "process", "--nocapture", "--test-threads=1"]);
        let command = command.env(ROLE, role).env(FILE, file).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The next thing it says; `None` when it has ended.
    pub fn hear(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The harness may have begun the line.
            let said = line.trim_end().split_once(SAYS).map(|(_, said)| said);
            if let Some(said) = said.and_then(|said| said.strip_suffix(ENDS)) {
                return Some(said.to_owned());
            }
        }
    }

    /// Waits until it has said `word`.
    pub fn expect(&mut self, word: &str) {
        while let Some(said) = self.hear() {
            if said == word {
                return;
            }
        }
        panic!("a process ended without saying {word:?}");
    }

    /// `kill -9`; what it had said and nobody had heard yet.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.hear()).collect()
    }

    /// Waits for its end, which has to be a good one; what it had said and nobody had heard yet.
    pub fn end(mut self) -> Vec<String> {
        let said = std::iter::from_fn(|| self.hear()).collect();
        assert!(self.child.wait().unwrap().success());
        said
    }

    pub fn signal(&self, name: &str) {
        self.sh(&format!("kill -{name}"), "");
    }

    /// Sets how large a file this process may write, in bytes.
    pub fn limit_files(&self, bytes: &str) {
        self.sh("prlimit --pid", &format!("--fsize={bytes}:"));
    }

    fn sh(&self, before: &str, after: &str) {
        let command = format!("{before} {} {after}", self.child.id());
        assert!(Command::new("sh").arg("-c").arg(command).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a process that a test started: its role and the ledger's file.
pub fn role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(FILE)?.into()))
}

/// In a process that a test started: tells it something.
pub fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    // In one piece, so that half of it is no other message.
    out.write_all(format!("{SAYS}{what}{ENDS}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// In a process that a test started: waits to be killed.
pub fn wait_to_be_killed() -> ! {
    loop {
        std::thread::park();
    }
}

/// Long enough for any machine; only a hang meets it.
const HANG: Duration = Duration::from_secs(120);

/// Waits for something that another thread or process does.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < HANG, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    (folder, file)
}

/// Every process of a test lives at this moment, so that no day turns in its middle.
pub fn now() -> DateTime<Utc> {
    "2026-11-29T22:00:00Z".parse().unwrap()
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

pub async fn open(file: &Path) -> SqliteStore {
    SqliteStore::open(Some(file), Durability::Create, now()).await.unwrap()
}

/// One account with `cap` tokens in total.
pub fn rules(cap: u64) -> Arc<LedgerRules> {
    let limits = [Limit::tokens(Period::Total, cap)];
    Arc::new(LedgerRules::new().account(ACCOUNT, limits).unwrap())
}

pub fn reservation(rules: &Arc<LedgerRules>, tokens: u64) -> Reservation {
    let ask = Ask::new(MODEL, tokens);
    Reservation::new(ACCOUNT.parse().unwrap(), ask, Arc::clone(rules), now()).unwrap()
}

/// Reserves; `None` if that is denied.
pub async fn reserve(
    store: &dyn LedgerStore,
    rules: &Arc<LedgerRules>,
    tokens: u64,
) -> Result<Option<Row>, LedgerError> {
    match store.reserve(reservation(rules, tokens)).await? {
        Reserving::Granted(row, _) => Ok(Some(*row)),
        Reserving::Denied(_) => Ok(None),
        Reserving::Replayed(_) => panic!("no idempotency key was given"),
    }
}

pub fn settlement(id: RowId, tokens: u64) -> Settlement {
    let usage = Usage { output: tokens, total: tokens, ..Usage::default() };
    let outcome = Outcome::Answered;
    let (charge, usage) = (Charge::Tokens(tokens), Some(usage));
    Settlement { id, charge, outcome, usage, note: None, now: now() }
}

pub async fn settle(
    store: &dyn LedgerStore,
    id: RowId,
    tokens: u64,
) -> Result<Settled, LedgerError> {
    store.settle(settlement(id, tokens)).await
}

/// Everything that was ever charged or is reserved.
pub async fn all(store: &dyn LedgerStore) -> Total {
    let key = TotalKey { scope: Scope::Whole, span: Span::Ever, model: None };
    store.totals(vec![key]).await.unwrap()[0]
}

/// Every row.
pub async fn rows(store: &dyn LedgerStore) -> Vec<Row> {
    let query = keywheel_ledger::RowQuery { limit: usize::MAX, ..Default::default() };
    store.rows(query).await.unwrap()
}
