//! Hazards of several processes on one state file, with real processes.
//!
//! <https://github.com/NousResearch/hermes-agent/issues/70147>,
//! <https://github.com/NousResearch/hermes-agent/issues/8040>: updates of one process erased those
//! of another. <https://github.com/BerriAI/litellm/issues/40291>: each process counted for itself.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::disallowed_methods, reason = "measures how long real processes take")]

mod processes;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use processes::*;
use tempfile::TempDir;

/// How often a process is killed; `KEYWHEEL_KILL_ROUNDS` says more.
const KILL_ROUNDS: u64 = 15;
/// How many calls each process of the crowd makes.
const CALLS: u64 = 200;

/// What a process does that a test below started; nothing in the test run itself.
#[test]
fn process() {
    let Some((role, file)) = role() else { return };
    match role.as_str() {
        "reporter" => report_for_ever(&file),
        "locker" => hold_the_lock(&file),
        "counter" => count_twice(&file),
        crowd => work_in_a_crowd(crowd, &file),
    }
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.json");
    (folder, file)
}

/// Calls, and a refusal on a model of its own now and then. Ends well, or is killed at the end.
fn work_in_a_crowd(name: &str, file: &Path) {
    let pool = pool(file);
    say("ready");
    for call in 0..CALLS {
        serve(&pool, "shared");
        if call % 20 == 0 {
            let model = format!("spent-{name}-{call}");
            let _ = refuse(&pool, &model);
            say(&model);
        }
    }
    flush(&pool);
    say("done");
    if name.ends_with("to-be-killed") {
        wait_to_be_killed();
    }
}

fn hammer_with(count: usize) {
    let (_folder, file) = folder();
    let names = (0..count).map(|index| match index % 2 {
        0 => format!("p{index}"),
        _ => format!("p{index}-to-be-killed"),
    });
    let mut crowd: Vec<_> =
        names.map(|name| Process::start("process", &name, &file, None)).collect();
    let mut reported = Vec::new();
    for process in &mut crowd {
        while let Some(said) = process.hear() {
            // On a slow disk the lock may go round too slowly for some reports: written by the flush
            // at the end, at the latest.
            match said.as_str() {
                "done" => break,
                "ready" => {}
                model => reported.push(model.to_owned()),
            }
        }
    }
    for (index, process) in crowd.into_iter().enumerate() {
        if index % 2 == 0 { process.end() } else { drop(process.kill()) }
    }
    let after = pool(&file);
    assert_eq!(reported.len(), count * 10);
    for model in reported {
        assert_eq!(cooling(&after, &model), 1, "{model}: lost");
    }
    assert_eq!(requests(&after, "shared"), count as u64 * CALLS);
    // Those that ended handed their counts over; those that were killed are found dead.
    serve(&after, "shared");
    flush(&after);
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(json["writers"].as_object().unwrap().len(), 1);
    drop(after);
    assert_eq!(requests(&pool(&file), "shared"), count as u64 * CALLS + 1);
}

#[test]
fn two_processes_hammering_one_file_lose_no_cooldown_and_count_no_request_twice() {
    hammer_with(2);
}

#[test]
fn four_processes_hammering_one_file_lose_no_cooldown_and_count_no_request_twice() {
    hammer_with(4);
}

/// Reports one spent model after the other, and says when each is on disk.
fn report_for_ever(file: &Path) {
    let pool = pool(file);
    for number in 0.. {
        let model = format!("spent-{}-{number}", std::process::id());
        if refuse(&pool, &model).0.persisted {
            say(&model);
        }
    }
}

#[test]
fn kill_9_right_after_report_returned_persisted_loses_no_cooldown() {
    let (_folder, file) = folder();
    let rounds =
        std::env::var("KEYWHEEL_KILL_ROUNDS").map_or(KILL_ROUNDS, |it| it.parse().unwrap());
    let mut reported = Vec::new();
    for round in 0..rounds {
        let mut process = Process::start("process", "reporter", &file, None);
        // At once after the first report, then later and later, in whatever the process is doing, and anew.
        reported.push(process.hear().unwrap());
        std::thread::sleep(Duration::from_micros(700 * (round % 50)));
        reported.extend(process.kill());
    }
    let after = pool(&file);
    assert!(after.status().state.notes.is_empty(), "{:?}", after.status().state.notes);
    for model in &reported {
        assert_eq!(cooling(&after, model), 1, "{model}: lost");
    }
    // What the killed left lying about is tidied up.
    serve(&after, "other");
    flush(&after);
    let entries = fs::read_dir(file.parent().unwrap()).unwrap();
    let names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| name.ends_with(".live")).count(), 1, "{names:?}");
    assert!(!names.iter().any(|name| name.ends_with(".tmp")), "{names:?}");
}

fn hold_the_lock(file: &Path) {
    let lock = file.with_file_name("pool.json.lock");
    let lock = fs::File::options().write(true).create(true).truncate(false).open(lock).unwrap();
    lock.lock().unwrap();
    say("locked");
    wait_to_be_killed();
}

#[test]
fn lock_held_by_a_stopped_process_blocks_nobody() {
    let (_folder, file) = folder();
    let mut locker = Process::start("process", "locker", &file, None);
    locker.expect("locked");
    locker.signal("STOP");

    let pool = pool(&file);
    for model in ["spent-1", "spent-2"] {
        // It comes back though nobody lets go of the lock, and after its patience: half a second.
        let (reported, took) = refuse(&pool, model);
        assert!(!reported.persisted && took >= Duration::from_millis(500), "{took:?}");
    }
    let state = pool.status().state;
    assert!(!state.ok && state.last_error.unwrap().contains("lock"));
    // Nobody else notices. The quickest of them: a busy machine keeps some of them waiting, the lock would keep all.
    let quickest = (0..100).map(|_| {
        let began = std::time::Instant::now();
        serve(&pool, "other");
        began.elapsed()
    });
    let quickest = quickest.min().unwrap();
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");

    // It recovers by itself, and nothing was lost.
    drop(locker.kill());
    eventually("written after all", || pool.status().state.ok);
    refuse_for_good(&pool, "spent-3");
    let other = processes::pool(&file);
    for model in ["spent-1", "spent-2", "spent-3"] {
        assert_eq!(cooling(&other, model), 1);
    }
    assert_eq!(requests(&other, "other"), 100);
}

fn count_twice(file: &Path) {
    let pool = pool(file);
    for _ in 0..2 {
        for _ in 0..5 {
            serve(&pool, "shared");
        }
        flush(&pool);
        say("counted");
        // Or it might be stopped in its next write, with the lock in its hand.
        eventually("told to go on", || file.with_file_name("go-on").exists());
    }
}

#[test]
fn a_stopped_process_is_not_taken_for_dead_and_counted_twice_when_it_goes_on() {
    let (_folder, file) = folder();
    let mut counter = Process::start("process", "counter", &file, None);
    counter.expect("counted");
    counter.signal("STOP");
    let pool = pool(&file);
    for _ in 0..3 {
        serve(&pool, "shared");
        flush(&pool);
    }
    counter.signal("CONT");
    fs::write(file.with_file_name("go-on"), "").unwrap();
    counter.end();
    eventually("all counts seen", || requests(&pool, "shared") == 13);
    drop(pool);
    assert_eq!(requests(&processes::pool(&file), "shared"), 13);
}

/// <https://github.com/BerriAI/litellm/issues/2730>, <https://github.com/BerriAI/litellm/issues/40025>: siblings did
/// not see it.
#[test]
fn a_cooldown_of_one_process_holds_in_another() {
    let (_folder, file) = folder();
    let pool = pool(&file);
    let mut reporter = Process::start("process", "reporter", &file, None);
    for _ in 0..5 {
        let model = reporter.hear().unwrap();
        eventually("seen", || cooling(&pool, &model) == 1);
    }
}
