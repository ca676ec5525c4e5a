//! Hazards of several tasks, threads and processes on one ledger: the cap holds for all of them
//! together, to the last unit.
//!
//! <https://github.com/BerriAI/litellm/issues/34732>: concurrent calls overspend a budget that each
//! of them reads first. <https://github.com/maximhq/bifrost/issues/3547>,
//! <https://github.com/BerriAI/litellm/issues/40291>: each replica has a budget of its own.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::disallowed_methods, reason = "measures how long real processes take")]

mod processes;

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use keywheel_ledger::{ErrorKind, LedgerStore, SqliteStore};
use processes::*;

/// What a process does that a test below started; nothing in the test run itself.
#[test]
fn process() {
    let Some((role, file)) = role() else { return };
    match role.as_str() {
        "three hundred" => block_on(ask_for_three_hundred(&file)),
        "spender" => block_on(async { spend(&open(&file).await).await }),
        "hammer" => block_on(hammer(&file)),
        "holder" => hold_the_turn(&file),
        other => panic!("{other}"),
    }
}

async fn ask_for_three_hundred(file: &Path) {
    let store = open(file).await;
    say("ready");
    // All of them at once, as soon as the last is ready.
    eventually("told to go", || file.with_file_name("go").exists());
    let granted = reserve(&store, &rules(1_000), 300).await.unwrap();
    say(if granted.is_some() { "granted" } else { "denied" });
}

#[test]
fn ten_processes_asking_for_300_of_1000_give_exactly_three() {
    let (_folder, file) = folder();
    let mut crowd: Vec<_> = (0..10).map(|_| Process::start("three hundred", &file, None)).collect();
    crowd.iter_mut().for_each(|process| process.expect("ready"));
    fs::write(file.with_file_name("go"), "").unwrap();
    let said: Vec<_> = crowd.into_iter().flat_map(Process::end).collect();
    assert_eq!(said.len(), 10);
    assert_eq!(said.iter().filter(|said| *said == "granted").count(), 3);
    block_on(async {
        let store = open(&file).await;
        assert_eq!(all(&store).await.tokens.reserved, 900);
        assert!(reserve(&store, &rules(1_000), 100).await.unwrap().is_some());
        assert!(reserve(&store, &rules(1_000), 1).await.unwrap().is_none());
    });
}

#[test]
fn ten_threads_with_handles_of_their_own_asking_for_300_of_1000_give_exactly_three() {
    let (_folder, file) = folder();
    let start = std::sync::Barrier::new(10);
    let ask = || {
        block_on(async {
            let store = open(&file).await;
            start.wait();
            reserve(&store, &rules(1_000), 300).await.unwrap().is_some()
        })
    };
    let granted = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..10).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|granted| *granted).count()
    });
    assert_eq!(granted, 3);
}

/// The cap that everybody spends to its last unit.
const CAP: u64 = 30_000;

/// Spends until nothing fits any more: large and small asks, settled at less, at more, released, or
/// turned over. The total is checked all the time.
async fn spend(store: &dyn LedgerStore) {
    let rules = rules(CAP);
    let mut tokens = 97;
    for turn in 0_u64.. {
        let Some(row) = reserve(store, &rules, tokens).await.unwrap() else {
            // Ever smaller, to the last unit.
            match tokens {
                1 => return,
                _ => tokens = (tokens / 2).max(1),
            }
            continue;
        };
        match turn % 4 {
            0 => settle(store, row.id, tokens).await.unwrap(),
            1 => settle(store, row.id, tokens / 2 + 1).await.unwrap(),
            2 if tokens > 1 => settle(store, row.id, 0).await.unwrap(),
            _ => {
                let next = reservation(&rules, 1);
                store.turn_over(settlement(row.id, tokens), next).await.unwrap().0
            }
        };
        if turn % 8 == 0 {
            let used = all(store).await.tokens.used();
            assert!(used <= CAP, "{used} of {CAP} are used");
        }
    }
}

/// Whatever happened: the cap was not passed, and no unit of it is left unusable.
async fn check_spent(file: &Path) {
    let store = open(file).await;
    let report = store.audit().await.unwrap();
    assert!(report.is_balanced(), "{:?}", report.mismatches);
    let rules = rules(CAP);
    let left = CAP - all(&store).await.tokens.used();
    if left > 0 {
        assert!(reserve(&store, &rules, left + 1).await.unwrap().is_none());
        assert!(reserve(&store, &rules, left).await.unwrap().is_some());
    }
    assert_eq!(all(&store).await.tokens.used(), CAP);
    assert!(reserve(&store, &rules, 1).await.unwrap().is_none());
}

#[test]
fn sixty_four_tasks_never_pass_the_cap_and_leave_no_unit_unusable() {
    let (_folder, file) = folder();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(open(&file).await);
        let spender = |_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { spend(&*store).await })
        };
        let tasks: Vec<_> = (0..64).map(spender).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    block_on(check_spent(&file));
}

#[test]
fn ten_threads_with_handles_of_their_own_never_pass_the_cap_and_leave_no_unit_unusable() {
    let (_folder, file) = folder();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| block_on(async { spend(&open(&file).await).await }));
        }
    });
    block_on(check_spent(&file));
}

#[test]
fn four_processes_never_pass_the_cap_and_leave_no_unit_unusable() {
    let (_folder, file) = folder();
    let crowd: Vec<_> = (0..4).map(|_| Process::start("spender", &file, None)).collect();
    crowd.into_iter().for_each(|process| drop(process.end()));
    block_on(check_spent(&file));
}

/// The locks beside the file are for taking turns; what counts is inside it.
#[test]
fn lock_files_that_are_removed_cost_nobody_his_cap() {
    let (_folder, file) = folder();
    block_on(async {
        let first = open(&file).await;
        for lock in ["turn", "queue", "open"] {
            fs::remove_file(file.with_file_name(format!("ledger.db.{lock}"))).unwrap();
        }
        let second = open(&file).await;
        futures_util::future::join(spend(&first), spend(&second)).await;
    });
    block_on(check_spent(&file));
}

/// Writes for a second, and says how often.
async fn hammer(file: &Path) {
    let store = open(file).await;
    let rules = rules(1 << 40);
    say("ready");
    eventually("told to go", || file.with_file_name("go").exists());
    let began = Instant::now();
    let mut pairs = 0;
    while began.elapsed() < Duration::from_secs(1) {
        let row = reserve(&store, &rules, 10).await.unwrap().unwrap();
        settle(&store, row.id, 9).await.unwrap();
        pairs += 1;
    }
    say(&format!("{pairs}"));
}

/// SQLite's own waiting starved two of four writers for seconds.
#[test]
fn four_processes_get_their_turns_alike() {
    let (_folder, file) = folder();
    let mut crowd: Vec<_> = (0..4).map(|_| Process::start("hammer", &file, None)).collect();
    crowd.iter_mut().for_each(|process| process.expect("ready"));
    fs::write(file.with_file_name("go"), "").unwrap();
    let pairs = crowd.into_iter().flat_map(Process::end);
    let pairs: Vec<u64> = pairs.map(|said| said.parse().unwrap()).collect();
    let all: u64 = pairs.iter().sum();
    assert!(pairs.iter().all(|own| own * 12 > all), "{pairs:?}");
}

/// Has its turn, and never ends it.
fn hold_the_turn(file: &Path) {
    let turn = file.with_file_name("ledger.db.turn");
    let turn = fs::File::options().write(true).open(turn).unwrap();
    turn.lock().unwrap();
    say("locked");
    wait_to_be_killed();
}

#[test]
fn a_process_that_stops_in_its_turn_makes_the_others_fail_and_not_hang() {
    let (_folder, file) = folder();
    block_on(async {
        let store = open(&file).await;
        let rules = rules(1_000);
        let mut holder = Process::start("holder", &file, None);
        holder.expect("locked");
        let began = Instant::now();
        let opening = SqliteStore::open(Some(&file), keywheel_ledger::Durability::Create, now());
        let (reserved, opened) =
            futures_util::future::join(reserve(&store, &rules, 10), opening).await;
        let error = reserved.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        assert!(error.to_string().contains("another process"), "{error}");
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::Store);
        // Nobody let go of the turn: that both came back at all is their patience, of 5 s, and no luck.
        assert!(began.elapsed() > Duration::from_secs(4), "{:?}", began.elapsed());
        // Reports go on meanwhile.
        assert_eq!(all(&store).await.tokens.used(), 0);

        drop(holder.kill());
        assert!(reserve(&store, &rules, 10).await.unwrap().is_some());
        assert_eq!(all(&store).await.tokens.used(), 10);
    });
}
