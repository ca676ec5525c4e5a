//! Hazards of the disk: full, read-only, damaged files; through the pool's own doors.
//!
//! <https://github.com/openclaw/openclaw/issues/88029>: a state file that was not replaced in one
//! step.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod processes;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use keywheel_core::ManualClock;
use keywheel_pool::{MemoryState, Pool, StateLocation};
use processes::*;
use tempfile::TempDir;

/// What a process does that a test below started; nothing in the test run itself.
#[test]
fn process() {
    let Some((_, file)) = role() else { return };
    fill_the_disk(&file);
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.json");
    (folder, file)
}

/// Fills a file that may have 16 KB, and goes on working.
fn fill_the_disk(file: &Path) {
    let clock = clock();
    let pool = pool_at(file, &clock);
    let mut written = 0;
    for number in 0.. {
        // It comes back, whatever the disk says.
        let _ = refuse(&pool, &format!("spent-{number}"));
        eventually("written, or known not to be", || {
            let state = pool.status().state;
            state.ok || state.last_error.is_some()
        });
        if !pool.status().state.ok {
            break;
        }
        written = number;
        assert!(number < 1_000, "the disk is never full");
    }
    say(&format!("{written}"));
    let state = pool.status().state;
    assert!(!state.ok && state.last_error.is_some());
    // Whoever does not write does not notice.
    serve(&pool, "other");
    // What was written last is still whole.
    let text = fs::read(file).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok());
    say("full");
    // A month later nearly everything in it is over, and it fits again.
    clock.advance(Duration::from_secs(40 * 86_400));
    eventually("fits again", || pool.status().state.ok);
    refuse_for_good(&pool, "spent-again");
    say("recovered");
}

/// A full disk is played by the limit on the size of files (`ulimit -f`), which needs no rights
/// and, with its signal ignored, makes writes fail in the same place as a full disk does.
#[test]
fn disk_full_blocks_nobody_keeps_the_old_file_whole_and_recovers() {
    let (_folder, file) = folder();
    // POSIX counts in units of 512 bytes, bash in 1024.
    let limit = "trap '' XFSZ; ulimit -f 16; exec";
    let mut process = Process::start("process", "filler", &file, Some(limit));
    let written: usize = process.hear().unwrap().parse().unwrap();
    process.expect("full");
    assert!(written > 3, "some of it fitted");
    let before = pool_on_copy(&file);
    for number in 0..=written {
        assert_eq!(cooling(&before, &format!("spent-{number}")), 1);
    }
    process.expect("recovered");
    process.end();
    let names = fs::read_dir(file.parent().unwrap()).unwrap();
    let temporary = names
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().ends_with(".tmp"));
    assert_eq!(temporary.count(), 0, "no half-written file stays behind");
}

/// What a process that starts now would know.
fn pool_on_copy(file: &Path) -> Pool {
    let copy = file.with_file_name("copy.json");
    fs::copy(file, &copy).unwrap();
    pool(&copy)
}

/// Permission bits do not stop root, and tests in containers run as root. What stops everybody is a
/// folder that cannot be made, because a regular file stands in its place.
#[test]
fn read_only_folder_blocks_nobody_and_is_reported() {
    let (folder, _) = folder();
    let blocker = folder.path().join("blocker");
    fs::write(&blocker, "").unwrap();
    let pool = pool(&blocker.join("keywheel").join("pool.json"));
    let state = pool.status().state;
    assert_eq!(state.notes.len(), 1, "{:?}", state.notes);
    assert!(!refuse(&pool, "spent").0.persisted);
    assert!(!pool.status().state.ok);
    // The cooldown holds all the same, and the other keys serve.
    assert_eq!(cooling(&pool, "spent"), 1);
    for _ in 0..30 {
        serve(&pool, "spent");
    }
    fs::remove_file(&blocker).unwrap();
    eventually("written once it can be", || pool.status().state.ok);
}

/// A folder in which nobody, root included, can make anything.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_made_is_told_at_the_start() {
    let pool = pool(Path::new("/proc/keywheel-test/pool.json"));
    let state = pool.status().state;
    let [note] = &state.notes[..] else { panic!("{:?}", state.notes) };
    assert!(note.contains("/proc/keywheel-test/pool.json cannot be written: "), "{note}");
    assert!(note.ends_with("what is learned now is lost at the next restart"), "{note}");
}

#[test]
fn a_damaged_file_is_kept_aside_and_reported_and_the_pool_starts_empty() {
    let (_folder, file) = folder();
    let first = pool(&file);
    refuse_for_good(&first, "spent");
    drop(first);
    let whole = fs::read(&file).unwrap();
    let damages: [(&str, Vec<u8>); 5] = [
        ("cut", whole[..whole.len() / 2].to_vec()),
        ("foreign", b"[1, 2, 3]".to_vec()),
        (
            "newer",
            String::from_utf8(whole).unwrap().replace("\"version\": 1", "\"version\": 7").into(),
        ),
        ("empty", Vec::new()),
        ("binary", vec![0xff; 100]),
    ];
    for (name, damage) in damages {
        fs::write(&file, &damage).unwrap();
        let pool = pool(&file);
        let notes = pool.status().state.notes;
        let [note] = &notes[..] else { panic!("{name}: one note was expected: {notes:?}") };
        let kept = note.split_whitespace().find(|word| word.contains(".bad-")).unwrap();
        assert_eq!(fs::read(kept).unwrap(), damage, "{name}");
        assert_eq!(cooling(&pool, "spent"), 0, "{name}");
        refuse_for_good(&pool, "spent");
    }
}

#[test]
fn a_far_future_in_the_file_keeps_nobody_out_for_longer_than_a_day() {
    let (_folder, file) = folder();
    let first = pool(&file);
    refuse_for_good(&first, "spent");
    drop(first);
    let text = fs::read_to_string(&file).unwrap();
    // Both the cooldown and the copy of it for readers.
    let far = text.replace("\"available_at\": \"2026-11-30", "\"available_at\": \"2999-11-30");
    assert_ne!(text, far);
    fs::write(&file, far).unwrap();
    let clock: ManualClock = clock();
    let pool = pool_at(&file, &clock);
    assert_eq!(cooling(&pool, "spent"), 1);
    clock.advance(Duration::from_secs(25 * 3_600 + 120));
    assert_eq!(cooling(&pool, "spent"), 0);
}

/// The state that only one test may have: none at all.
#[test]
fn without_a_state_file_nothing_claims_to_be_persisted() {
    let clock = clock();
    let key = keywheel_core::ApiKey::new("AQ.EXAMPLE-key-1").unwrap();
    let keys = [keywheel_pool::KeySpec::new(key, "KEY_1")];
    let pool = Pool::builder().keys(keys).state(StateLocation::None);
    let pool = pool.clock(std::sync::Arc::new(clock)).build().unwrap();
    assert!(!refuse(&pool, "spent").0.persisted);
}

#[test]
fn the_example_of_the_documentation_is_a_state_file_as_it_is_written() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/state-file.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, example) = page.split_once("```json\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let state = MemoryState::from_json(example.as_bytes()).unwrap();
    assert_eq!(state.json(), example);
}
