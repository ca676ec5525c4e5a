//! Hazards of a process that dies: `kill -9` at any moment, under load.
//!
//! <https://github.com/SatcherInstitute/health-equity-tracker/issues/5170>: what a failed call had
//! reserved was never given back. <https://github.com/BerriAI/litellm/issues/26672>: budgets that did
//! not know what was spent before.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod processes;

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use keywheel_ledger::{LedgerStore, Reserving, Row, RowId, RowState};
use processes::*;

/// How often a process is killed; `KEYWHEEL_KILL_ROUNDS` says more.
const KILL_ROUNDS: u64 = 20;
/// How many callers each process has.
const CALLERS: u64 = 24;
/// More than is ever used.
const PLENTY: u64 = 1 << 40;

/// What a process does that a test below started; nothing in the test run itself.
#[test]
fn process() {
    let Some((_, file)) = role() else { return };
    block_on(load(&file));
}

/// Reserves, settles and turns over for ever, and says what was acknowledged.
async fn load(file: &Path) {
    let store = Arc::new(open(file).await);
    let rules = rules(PLENTY);
    let local = tokio::task::LocalSet::new();
    for caller in 0..CALLERS {
        let (store, rules) = (Arc::clone(&store), Arc::clone(&rules));
        local.spawn_local(async move {
            for turn in 0.. {
                let row = reserve(&*store, &rules, 100).await.unwrap().unwrap();
                say(&format!("reserved {}", row.id));
                let tokens = 40 + (turn + caller) % 100;
                match (turn + caller) % 7 {
                    // As a caller leaves it who is never heard of again.
                    0 => {}
                    1 => {
                        let next = reservation(&rules, 100);
                        let (_, next) =
                            store.turn_over(settlement(row.id, tokens), next).await.unwrap();
                        let Reserving::Granted(next, _) = next else { panic!("{next:?}") };
                        say(&format!("settled {} {tokens}", row.id));
                        say(&format!("reserved {}", next.id));
                    }
                    _ => {
                        settle(&*store, row.id, tokens).await.unwrap();
                        say(&format!("settled {} {tokens}", row.id));
                    }
                }
            }
        });
    }
    local.await;
}

/// What processes said was done.
#[derive(Default)]
struct Acknowledged {
    /// By id, what it was settled at.
    rows: HashMap<RowId, Option<u64>>,
}

impl Acknowledged {
    fn hear(&mut self, said: &str) {
        let words: Vec<_> = said.split(' ').collect();
        match words[..] {
            ["reserved", id] => {
                let before = self.rows.insert(id.parse().unwrap(), None);
                assert_eq!(before, None, "{id} was given twice");
            }
            ["settled", id, tokens] => {
                let tokens = Some(tokens.parse().unwrap());
                let before = self.rows.insert(id.parse().unwrap(), tokens);
                assert_eq!(before, Some(None), "{id}");
            }
            _ => panic!("{said:?}"),
        }
    }

    fn check(&self, rows: &[Row]) {
        let rows: HashMap<_, _> = rows.iter().map(|row| (row.id, row)).collect();
        for (id, settled) in &self.rows {
            let row = rows.get(id).unwrap_or_else(|| panic!("{id} was acknowledged and is lost"));
            match settled {
                Some(tokens) => assert_eq!(row.charged.unwrap().tokens, *tokens, "{id}"),
                // It may be settled without having been told.
                None => assert!(matches!(row.state, RowState::Reserved | RowState::Settled)),
            }
        }
    }
}

#[test]
fn kill_9_under_load_loses_nothing_acknowledged_and_counts_nothing_twice() {
    let (_folder, file) = folder();
    let rounds =
        std::env::var("KEYWHEEL_KILL_ROUNDS").map_or(KILL_ROUNDS, |it| it.parse().unwrap());
    let mut acknowledged = Acknowledged::default();
    for round in 0..rounds {
        let mut process = Process::start("load", &file, None);
        // At another place each time, and at any moment of a commit.
        for _ in 0..=(round * 37) % 400 {
            acknowledged.hear(&process.hear().unwrap());
        }
        std::thread::sleep(Duration::from_micros((round * 211) % 2_000));
        process.kill().iter().for_each(|said| acknowledged.hear(said));
    }
    block_on(async {
        // Opening it reads all of it: nobody closed it.
        let store = open(&file).await;
        acknowledged.check(&rows(&store).await);
        let report = store.audit().await.unwrap();
        assert!(report.is_balanced(), "{:?}", report.mismatches);
        let open = store.info().await.unwrap().open;
        assert_eq!(all(&store).await.tokens.reserved, open * 100);

        // What the dead had reserved is charged once, by the sweep, and nothing is left open.
        let mut swept = 0;
        loop {
            let ended = store.sweep(now() + chrono::TimeDelta::hours(1), Duration::from_secs(900));
            let ended = ended.await.unwrap().len();
            swept += ended as u64;
            if ended == 0 {
                break;
            }
        }
        assert_eq!(swept, open);
        assert_eq!(store.info().await.unwrap().open, 0);
        let rows = rows(&store).await;
        let charged: u64 = rows.iter().map(|row| row.charged.unwrap().tokens).sum();
        let total = all(&store).await.tokens;
        assert_eq!((total.settled, total.reserved), (charged, 0));
        assert!(rows.len() as u64 > rounds * 20, "{} rows: that was no load", rows.len());
    });
}

#[test]
fn a_neighbour_that_is_killed_in_its_turn_stops_nobody() {
    let (_folder, file) = folder();
    block_on(async {
        let store = open(&file).await;
        let rules = rules(PLENTY);
        let mut acknowledged = Acknowledged::default();
        for round in 0..8 {
            let mut process = Process::start("load", &file, None);
            for _ in 0..=round * 13 {
                acknowledged.hear(&process.hear().unwrap());
            }
            process.kill().iter().for_each(|said| acknowledged.hear(said));
            // Whoever waited for the dead would wait in vain, and end with an error.
            let row = reserve(&store, &rules, 100).await.unwrap().unwrap();
            settle(&store, row.id, 90).await.unwrap();
        }
        acknowledged.check(&rows(&store).await);
        assert!(store.audit().await.unwrap().is_balanced());
    });
}

/// Somebody tidies up after a crash. What only the log held cannot be known any more; but that there
/// was a ledger, and that it was not closed, is in the file itself.
#[test]
fn a_log_that_is_removed_after_a_kill_makes_no_new_ledger_of_it() {
    let (_folder, file) = folder();
    let mut process = Process::start("load", &file, None);
    process.hear().unwrap();
    drop(process.kill());
    std::fs::remove_file(file.with_file_name("ledger.db-wal")).unwrap();
    block_on(async {
        let store = open(&file).await;
        assert!(!store.storage().just_created);
        assert!(store.audit().await.unwrap().is_balanced());
    });
}
