//! Hazards of a process that is killed, with real processes: what is kept beside the state file is there.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    env,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use keywheel::{Gemini, KeySpec, ManualClock, Owners, StateLocation};

const ROLE: &str = "KEYWHEEL_TEST_ROLE";
const FILE: &str = "KEYWHEEL_TEST_FILE";
/// Before what a process says to the test that started it; the test harness prints lines of its own.
const SAYS: &str = "says: ";
/// How many turns a process makes before it waits to be killed.
const TURNS: u64 = 50;

/// What a process does that a test below started; nothing in the test run itself.
#[test]
fn process() {
    let (Ok(role), Some(file)) = (env::var(ROLE), env::var_os(FILE)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match role.as_str() {
        "recorder" => runtime.block_on(record_for_ever(Path::new(&file))),
        _ => runtime.block_on(take_turns(Path::new(&file))),
    }
}

async fn record_for_ever(file: &Path) {
    let owners = open(file);
    for number in 0.. {
        owners.record(&format!("files/{number}"), "alpha", None).await.unwrap();
        say(&number.to_string());
    }
}

async fn take_turns(file: &Path) {
    let gemini = client(file).await;
    (0..TURNS).for_each(|_| drop(gemini.turn("chat")));
    say("done");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

fn open(file: &Path) -> Owners {
    Owners::open(Some(file), Arc::new(ManualClock::at("2026-11-30T20:00:00Z".parse().unwrap())))
}

async fn client(file: &Path) -> Gemini {
    let key = keywheel::ApiKey::new("AQ.EXAMPLE-key-1").unwrap();
    Gemini::builder()
        .keys([KeySpec::new(key, "KEY_1")])
        .state(StateLocation::File(file.into()))
        .without_daily_checks()
        .build()
        .await
        .unwrap()
}

fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{SAYS}{word}").unwrap();
    out.flush().unwrap();
}

/// A process of ours; killed when it is dropped.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, file: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "process", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(FILE, file).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn hear(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some((_, said)) = line.trim_end().split_once(SAYS) {
                return Some(said.to_owned());
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn an_owner_that_was_told_to_be_recorded_is_there_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.json");
    for round in 1..=10 {
        let mut process = Process::start("recorder", &file);
        for _ in 0..round * 3 {
            process.hear().unwrap();
        }
        process.kill();
        // What it said before it died.
        let mut last = round * 3 - 1;
        while let Some(said) = process.hear() {
            last = said.parse().unwrap();
        }
        let owners = open(&file);
        for number in 0..=last {
            let owner = owners.owner(&format!("files/{number}")).await;
            assert_eq!(owner.as_deref(), Some("alpha"), "files/{number} of round {round}");
        }
    }
    let names = std::fs::read_dir(folder.path()).unwrap();
    let bad =
        names.filter(|name| name.as_ref().unwrap().file_name().to_str().unwrap().contains(".bad-"));
    assert_eq!(bad.count(), 0, "no file was torn");
}

#[tokio::test]
async fn turns_are_written_while_the_process_runs_and_outlive_its_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.json");
    let mut process = Process::start("turns", &file);
    assert_eq!(process.hear().as_deref(), Some("done"));
    let gemini = client(&file).await;
    let count = || gemini.turns().kind("chat").map_or(0, |chat| chat.turns);
    while count() < TURNS {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process.kill();
    assert_eq!(client(&file).await.turns().kind("chat").unwrap().turns, TURNS);
}
