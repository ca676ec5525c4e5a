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

use keywheel_core::{ApiKey, Cause, Effect, ManualClock, Scope, Usage, Wait, Window};
use keywheel_pool::{Ask, KeySpec, Pool, Refusal, Reported, StateLocation};

const ROLE: &str = "KEYWHEEL_TEST_ROLE";
const FILE: &str = "KEYWHEEL_TEST_FILE";
/// Before what a process says to the test that started it; the test harness prints lines of its
/// own.
const SAYS: &str = "says: ";
/// After it: a process that is killed may have said half a line.
const ENDS: &str = " .";

/// Every process of a test lives at this moment, so that no quota day turns in its middle.
pub const NOW: &str = "2026-11-29T22:00:00Z";
/// The end of that quota day, before jitter.
pub const RESET: &str = "2026-11-30T08:00:00Z";

/// A process of ours; killed when it is dropped.
pub struct Process {
    child: std::process::Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the test `entry` of this program in `role`, on the state file at `file`.
    ///
    /// `shell` is put before the program, such as a limit that a shell sets; it ends in `exec`.
    pub fn start(entry: &str, role: &str, file: &Path, shell: Option<&str>) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut command = match shell {
            None => Command::new(program),
            Some(shell) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(format!("{shell} \"$0\" \"$@\"")).arg(program);
                command
            }
        };
        let command = command.args(["--exact", entry, "--nocapture", "--test-threads=1"]);
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

    /// Waits for its end, which has to be a good one.
    pub fn end(mut self) {
        while self.hear().is_some() {}
        assert!(self.child.wait().unwrap().success());
    }

    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").arg("-c").arg(kill).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a process that a test started: its role and the state file.
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

pub fn clock() -> ManualClock {
    ManualClock::at(NOW.parse().unwrap())
}

/// A pool of four keys on the state file at `file`.
pub fn pool(file: &Path) -> Pool {
    pool_at(file, &clock())
}

pub fn pool_at(file: &Path, clock: &ManualClock) -> Pool {
    let key = |number| ApiKey::new(format!("AQ.EXAMPLE-key-{number}")).unwrap();
    let keys = (1..=4).map(|number| KeySpec::new(key(number), format!("KEY_{number}")));
    let location = StateLocation::File(file.into());
    Pool::builder().keys(keys).state(location).clock(Arc::new(clock.clone())).build().unwrap()
}

/// One call that is served.
pub fn serve(pool: &Pool, model: &str) {
    let mut lease = pool.try_lease(&Ask::new(model)).unwrap();
    lease.sent();
    lease.served(&Usage::default());
}

/// One call that finds the day's requests spent; what the report came to, and how long it took.
pub fn refuse(pool: &Pool, model: &str) -> (Reported, Duration) {
    let mut lease = pool.try_lease(&Ask::new(model)).unwrap();
    lease.sent();
    let day = Effect::new(Scope::Bucket, Cause::PerDayRequests, Wait::Reset(Window::Day));
    let refusal = Refusal { named_quota: true, ..Refusal::new([day]) };
    let began = Instant::now();
    let reported = block_on(lease.refused(&refusal));
    (reported, began.elapsed())
}

/// The same, and stays until it is on disk, for which a report may not have the patience on a busy machine.
pub fn refuse_for_good(pool: &Pool, model: &str) {
    let _ = refuse(pool, model);
    flush(pool);
}

/// Everything said so far is on disk.
pub fn flush(pool: &Pool) {
    eventually("on disk", || block_on(pool.flush()).is_ok());
}

/// Requests to `model` today, over all keys.
pub fn requests(pool: &Pool, model: &str) -> u64 {
    let buckets = pool.status().buckets;
    buckets.iter().filter(|it| it.model == model).map(|it| it.day.requests).sum()
}

/// How many keys are out for `model`.
pub fn cooling(pool: &Pool, model: &str) -> usize {
    let buckets = pool.status().buckets;
    buckets.iter().filter(|it| it.model == model && !it.cooldowns.is_empty()).count()
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
