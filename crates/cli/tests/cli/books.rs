//! `keywheel ledger`.

use std::{path::Path, time::Duration};

use chrono::{DateTime, Utc};
use keywheel::{
    Fingerprint,
    ledger::{Ask, Ledger, Limit, ManualClock, Period},
};
use tokio::runtime::Runtime;

use crate::common::{Ended, MODEL, Place, assert_form};

const CONFIG: &str = r#"
[allowance]
tokens_per_month = 10_000_000
[projects.triage]
tokens_per_day = 1_000
[projects.chat]
calls_per_day = 50
"#;

const KEY: &str = "AQ.EXAMPLE-key-of-the-books";

/// A ledger with two rows that are settled and one that is open, as of `now`.
fn fill(path: &Path, now: DateTime<Utc>) {
    let clock = std::sync::Arc::new(ManualClock::at(now));
    Runtime::new().unwrap().block_on(async {
        let ledger = Ledger::builder()
            .account("triage", [Limit::tokens(Period::Day, 1_000)])
            .account("chat", [])
            .clock(clock)
            .path(path)
            .durability(keywheel::ledger::Durability::EphemeralOk)
            .open()
            .await
            .unwrap();
        for (account, tokens) in [("triage", 120_u64), ("chat", 80)] {
            let ask = Ask::new(MODEL, tokens + 500);
            let hold = ledger.reserve(account, ask).await.unwrap().held().expect("it fits");
            let usage = keywheel::Usage::new(tokens / 2, tokens / 2);
            hold.settle(usage).await.unwrap();
        }
        let ask = Ask::new(MODEL, 300).key(Fingerprint::of(KEY));
        let open = ledger.reserve("triage", ask).await.unwrap();
        drop(open.held().expect("it fits"));
    });
}

fn filled(now: DateTime<Utc>) -> Place {
    let place = Place::new();
    place.write("keywheel.toml", CONFIG);
    fill(&place.path("ledger.db"), now);
    place
}

fn now() -> DateTime<Utc> {
    keywheel::Clock::now(&keywheel::SystemClock)
}

#[test]
fn usage_shows_limits_and_what_is_left_of_them() {
    let place = filled(now());
    let usage = place.run(&["ledger", "usage", "--json"]).ends(0).json("ledger usage");
    let accounts = usage["accounts"].as_array().unwrap();
    let triage = accounts.iter().find(|one| one["account"] == "triage").unwrap();
    assert_eq!(
        (&triage["day"]["tokens"], &triage["day"]["tokens_reserved"]),
        (&120.into(), &300.into())
    );
    let limit = &triage["limits"][0];
    assert_eq!((&limit["cap"], &limit["left"]), (&1_000.into(), &580.into()));
    assert_eq!(usage["all"]["month"]["tokens"], 200);
    assert_eq!((&usage["ledger"]["rows"], &usage["ledger"]["open"]), (&3.into(), &1.into()));
    assert_form("ledger-usage", &[&usage]);
    let told = place.run(&["ledger", "usage"]).ends(0);
    let told = told.says("triage").says("420").says("[####------]");
    // Somebody looks into another one than the gateway spends of, and sees no harm.
    told.says(&format!(" at {}, made ", place.path("ledger.db").display()));
    place.run(&["ledger", "usage", "--by", "account"]).ends(0).says("chat");
    let by = place
        .run(&["ledger", "usage", "--by", "day", "--zone", "UTC", "--json"])
        .ends(0)
        .json("ledger usage");
    assert_eq!(by["lines"][0]["tokens"], 200);
    assert_form("ledger-usage-by", &[&by]);
}

#[test]
fn rows_are_chosen_and_paged() {
    let place = filled(now()).with("GEMINI_API_KEY_7", KEY);
    let rows = place.run(&["ledger", "rows", "--json"]).ends(0).json("ledger rows");
    assert_eq!(rows["rows"].as_array().unwrap().len(), 3);
    assert_form("ledger-rows", &[&rows]);
    let open = place.run(&["ledger", "rows", "--state", "reserved", "--json"]).json("ledger rows");
    assert_eq!(open["rows"][0]["account"], "triage");
    let first = place.run(&["ledger", "rows", "--limit", "2", "--json"]).json("ledger rows");
    assert_eq!(first["next_after"], 2);
    let rest = place.run(&["ledger", "rows", "--after", "2", "--json"]).json("ledger rows");
    assert_eq!((rest["rows"].as_array().unwrap().len(), &rest["next_after"]), (1, &().into()));
    place.run(&["ledger", "rows", "--limit", "1"]).ends(0).complains("--after 1");
    place.run(&["ledger", "rows", "--state", "open"]).ends(2).complains("reserved, settled");
    place.run(&["ledger", "rows", "--key", "nonsense"]).ends(2).complains("fingerprint");
}

#[test]
fn a_row_shows_what_its_key_is_called_where_that_is_known() {
    let place = filled(now());
    let fingerprint = Fingerprint::of(KEY).to_string();
    let rows = place.run(&["ledger", "rows"]).ends(0).says(&fingerprint);
    assert!(!rows.stdout.contains("GEMINI_API_KEY_7"));
    let place = place.with("GEMINI_API_KEY_7", KEY);
    let rows = place.run(&["ledger", "rows"]).ends(0).says("GEMINI_API_KEY_7");
    assert!(!rows.stdout.contains(&fingerprint));
    let rows = place.run(&["ledger", "rows", "--json"]).ends(0).json("ledger rows");
    let labels: Vec<_> = [0, 1, 2].iter().map(|row| &rows["rows"][row]["key_label"]).collect();
    assert_eq!(labels, [&().into(), &().into(), &serde_json::Value::from("GEMINI_API_KEY_7")]);
    assert_eq!(rows["rows"][2]["key"], fingerprint);
}

#[test]
fn an_export_has_every_row_and_overwrites_no_file() {
    let place = filled(now());
    let csv = place.run(&["ledger", "export"]).ends(0);
    assert_eq!(csv.stdout.lines().count(), 4);
    assert!(csv.stdout.starts_with("id,account,model,"));
    let lines = place.run(&["ledger", "export", "--format", "jsonl", "--account", "chat"]).ends(0);
    assert_eq!(lines.stdout.lines().count(), 1);
    place.run(&["ledger", "export", "--out", "rows.csv"]).ends(0).complains("rows.csv");
    assert_eq!(place.read("rows.csv"), csv.stdout);
    place.run(&["ledger", "export", "--out", "rows.csv"]).ends(2);
}

/// Rows of a gateway that lets its holders be silent for long are not charged because somebody looks.
#[test]
fn looking_at_the_books_sweeps_nothing() {
    let place = filled(now() - Duration::from_secs(3_600));
    for arguments in [&["usage"][..], &["rows"], &["export"], &["audit"]] {
        place.run(&[&["ledger"], arguments].concat()).ends(0);
    }
    let open = place.run(&["ledger", "rows", "--state", "reserved", "--json"]).json("ledger rows");
    assert_eq!(open["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn a_sweep_ends_what_is_overdue_once_and_the_books_balance() {
    let place = filled(now() - Duration::from_secs(3_600));
    let swept = place.run(&["ledger", "sweep", "--json"]).ends(0).json("ledger sweep");
    assert_eq!((&swept["rows"], &swept["tokens"]), (&1.into(), &300.into()));
    assert_form("ledger-sweep", &[&swept]);
    place.run(&["ledger", "sweep"]).ends(0).says("0 reservations");
    let audit = place.run(&["ledger", "audit", "--json"]).ends(0).json("ledger audit");
    assert_eq!((&audit["balanced"], &audit["rows"]), (&true.into(), &3.into()));
    assert_form("ledger-audit", &[&audit]);
}

#[test]
fn old_rows_are_pruned_and_totals_stay() {
    let place = filled(now() - Duration::from_secs(100 * 86_400));
    place.run(&["ledger", "sweep"]).ends(0).says("1 reservations");
    let pruned = place.run(&["ledger", "prune", "--json"]).ends(0).json("ledger prune");
    // The one that was swept just now is kept for a week.
    assert_eq!(pruned["rows"], 2);
    assert_form("ledger-prune", &[&pruned]);
    let usage = place.run(&["ledger", "usage", "--json"]).ends(0).json("ledger usage");
    assert_eq!(usage["all"]["ever"]["tokens"], 500);
    place.run(&["ledger", "audit"]).ends(0).says("0 of them wrong");
}

/// A fresh ledger has fresh caps: nobody makes one by looking.
#[test]
fn where_there_is_no_ledger_none_is_made_and_the_code_says_so() {
    let place = Place::new();
    for command in ["usage", "rows", "export", "audit", "sweep", "prune"] {
        place.run(&["ledger", command]).ends(4).complains("no ledger").complains("ledger.db");
    }
    assert!(!place.path("ledger.db").exists());
}

/// Who looks because the disk is full is to see the books: those of a ledger that was closed, those that only the log of a
/// killed gateway holds, and those of a gateway that runs.
#[cfg(unix)]
#[test]
fn the_books_can_be_read_on_a_full_disk() {
    let closed = filled(now());
    let killed = Place::new();
    killed.write("keywheel.toml", CONFIG);
    let runtime = Runtime::new().unwrap();
    let running = runtime.block_on(async {
        let path = closed.path("ledger.db");
        let ledger = Ledger::builder().account("chat", []).path(&path).open().await.unwrap();
        let hold = ledger.reserve("chat", Ask::new(MODEL, 7)).await.unwrap().held().unwrap();
        hold.settle(keywheel::Usage::new(3, 4)).await.unwrap();
        for name in ["ledger.db", "ledger.db-wal"] {
            std::fs::copy(closed.path(name), killed.path(name)).unwrap();
        }
        ledger
    });
    let audit = ["ledger", "audit"];
    for place in [&closed, &killed] {
        on_a_full_disk(place, &audit).ends(0).says("over 4 rows, 0 of them wrong");
    }
    assert!(killed.path("ledger.db-wal").exists(), "the log is left to whoever can write it back");
    drop(running);
    for _ in 0..2 {
        on_a_full_disk(&closed, &audit).ends(0).says("over 4 rows, 0 of them wrong");
        on_a_full_disk(&closed, &["ledger", "usage"]).ends(0).says("triage");
    }
    for place in [&closed, &killed] {
        place.run(&audit).ends(0).says("over 4 rows, 0 of them wrong");
    }
}

/// A folder that can only be read is played by a name so long that the ledger's other files cannot have it with an ending:
/// permissions do not stop root.
#[cfg(unix)]
#[test]
fn the_books_can_be_read_where_nothing_can_be_written() {
    let place = filled(now());
    let name = "x".repeat(253);
    std::fs::rename(place.path("ledger.db"), place.path(&name)).unwrap();
    let ledger = place.path(&name).display().to_string();
    let place = place.with("KEYWHEEL_LEDGER", &ledger);
    place.run(&["ledger", "audit"]).ends(0).says("over 3 rows, 0 of them wrong");
    place.run(&["ledger", "usage"]).ends(0).says("triage");
    let rows = place.run(&["ledger", "rows", "--json"]).ends(0).json("ledger rows");
    assert_eq!(rows["rows"].as_array().unwrap().len(), 3);
    // What changes the books needs more.
    place.run(&["ledger", "sweep"]).ends(1).complains("the ledger needs files beside it");
}

/// A full disk is played by the limit on the size of files, with its signal ignored.
#[cfg(unix)]
fn on_a_full_disk(place: &Place, arguments: &[&str]) -> Ended {
    let command = place.command(arguments);
    let mut shell = std::process::Command::new("/bin/sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(command.get_current_dir().unwrap())
        .stdin(std::process::Stdio::null());
    Ended::of(shell.output().unwrap())
}
