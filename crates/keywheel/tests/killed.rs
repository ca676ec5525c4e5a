//! Hazards of a process that is killed, with real processes: what is kept beside the state file is there.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

/// The pool's, for its own tests of the same kind.
#[path = "../../pool/tests/processes/mod.rs"]
mod processes;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use keywheel::{Gemini, Owners};
use processes::{Process, clock, eventually, pool, role, say, wait_to_be_killed};

/// How many turns a process makes before it waits to be killed.
const TURNS: u64 = 50;

/// What a process does that a test below started; nothing in the test run itself.
#[test]
fn process() {
    let Some((role, file)) = role() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match role.as_str() {
        "recorder" => runtime.block_on(record_for_ever(&file)),
        _ => runtime.block_on(take_turns(&file)),
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
    wait_to_be_killed();
}

fn open(file: &Path) -> Owners {
    Owners::open(Some(file), Arc::new(clock()))
}

async fn client(file: &Path) -> Gemini {
    Gemini::builder().pool(pool(file)).without_daily_checks().build().await.unwrap()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.json");
    (folder, file)
}

#[tokio::test]
async fn an_owner_that_was_told_to_be_recorded_is_there_after_kill_9() {
    let (folder, file) = folder();
    for round in 1..=10 {
        let mut process = Process::start("process", "recorder", &file, None);
        let heard = round * 3;
        (0..heard).for_each(|_| drop(process.hear().unwrap()));
        // And what it said before it died.
        let told = heard + process.kill().len();
        let owners = open(&file);
        for number in 0..told {
            let owner = owners.owner(&format!("files/{number}")).await;
            assert_eq!(owner.as_deref(), Some("alpha"), "files/{number} of round {round}");
        }
        // The next round begins anew, or it would find what this one recorded.
        fs::remove_file(folder.path().join("pool.owners.json")).unwrap();
    }
    let names = fs::read_dir(folder.path()).unwrap();
    let bad =
        names.filter(|name| name.as_ref().unwrap().file_name().to_str().unwrap().contains(".bad-"));
    assert_eq!(bad.count(), 0, "no file was torn");
}

#[tokio::test]
async fn turns_are_written_while_the_process_runs_and_outlive_its_kill_9() {
    let (_folder, file) = folder();
    let mut process = Process::start("process", "turns", &file, None);
    process.expect("done");
    let gemini = client(&file).await;
    let count = || gemini.turns().kind("chat").map_or(0, |chat| chat.turns);
    eventually("all turns are in the file", || count() == TURNS);
    process.kill();
    assert_eq!(client(&file).await.turns().kind("chat").unwrap().turns, TURNS);
}
