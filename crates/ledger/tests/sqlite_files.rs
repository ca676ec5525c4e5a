//! Hazards of the file itself: damaged, foreign, locked, older, newer, missing, readable by others,
//! or in a place that a restart wipes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::disallowed_methods, reason = "measures how long real locks take")]

mod processes;

use std::{fs, path::Path, time::Duration};

use futures_util::future::{join, join_all};
use keywheel_ledger::{
    Durability, ErrorKind, LedgerError, LedgerStore, RowState, SqliteStore, StorageKind,
};
use processes::*;
use rusqlite::Connection;

fn open_as(file: &Path, durability: Durability) -> Result<SqliteStore, LedgerError> {
    block_on(SqliteStore::open(Some(file), durability, now()))
}

fn refused(file: &Path) -> LedgerError {
    open_as(file, Durability::Create).unwrap_err()
}

/// A ledger with one open row of 600 tokens and one settled at 120, closed in order.
fn ledger(file: &Path) {
    block_on(async {
        let store = open(file).await;
        let rules = rules(10_000);
        let row = reserve(&store, &rules, 800).await.unwrap().unwrap();
        settle(&store, row.id, 120).await.unwrap();
        reserve(&store, &rules, 600).await.unwrap();
    });
}

#[test]
fn what_was_written_is_there_when_it_is_opened_again() {
    let (_folder, file) = folder();
    ledger(&file);
    block_on(async {
        let store = open(&file).await;
        assert!(!store.storage().just_created);
        let total = all(&store).await.tokens;
        assert_eq!((total.settled, total.reserved), (120, 600));
        let rows = rows(&store).await;
        assert_eq!(rows.iter().map(|row| row.id.seq).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(rows[0].state, RowState::Settled);
    });
}

#[test]
fn a_path_with_odd_characters_is_a_file_like_any_other() {
    let (folder, _) = folder();
    for name in ["a?mode=memory", "50% of #1.db", "file:x.db", "\u{1f4d2} d'or.db"] {
        let file = folder.path().join(name);
        ledger(&file);
        assert!(file.is_file(), "{name}");
        assert_eq!(block_on(async { all(&open(&file).await).await }).tokens.used(), 720, "{name}");
    }
}

#[test]
fn closed_in_order_it_leaves_no_log_behind() {
    let (_folder, file) = folder();
    ledger(&file);
    assert!(!file.with_file_name("ledger.db-wal").exists());
    let closed: i64 = Connection::open(&file)
        .unwrap()
        .query_row("SELECT value FROM meta WHERE name = 'closed_in_order'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(closed, 1);
}

#[cfg(unix)]
#[test]
fn nobody_else_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, _) = folder();
    let inner = folder.path().join("state");
    let file = inner.join("ledger.db");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let store = open_as(&file, Durability::Create).unwrap();
    block_on(reserve(&store, &rules(10), 1)).unwrap();
    assert_eq!(mode(&inner), 0o700);
    let files = || fs::read_dir(&inner).unwrap().map(|entry| entry.unwrap().path());
    let names: Vec<_> = files().map(|path| path.file_name().unwrap().to_owned()).collect();
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    files().for_each(|path| assert_eq!(mode(&path), 0o600, "{path:?}"));
    drop(store);
    // One that somebody opened up is closed again.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let _store = open_as(&file, Durability::Create).unwrap();
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn a_file_that_is_no_ledger_is_refused_and_left_as_it_is() {
    let (_folder, file) = folder();
    let foreign = {
        let other = file.with_file_name("other.db");
        let other_db = Connection::open(&other).unwrap();
        other_db.execute_batch("CREATE TABLE ledger (id TEXT); PRAGMA user_version = 1;").unwrap();
        drop(other_db);
        fs::read(other).unwrap()
    };
    let text = b"id,tokens\n1,600\n".repeat(100);
    for (name, content) in [("a foreign database", foreign), ("text", text)] {
        fs::write(&file, &content).unwrap();
        let error = refused(&file);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
        assert!(error.to_string().contains(file.to_str().unwrap()), "{name}: {error}");
        assert_eq!(fs::read(&file).unwrap(), content, "{name}");
        assert!(!file.with_file_name("ledger.db-wal").exists(), "{name}");
    }
}

#[test]
fn damage_is_found_after_an_end_without_closing_and_the_file_left_as_it_is() {
    let (_folder, file) = folder();
    block_on(async {
        let store = open(&file).await;
        let rules = rules(1 << 40);
        join_all((0..200).map(|_| reserve(&store, &rules, 10))).await;
    });
    // The end of a power cut: half a page of a table is another one's, and nobody closed it.
    let db = Connection::open(&file).unwrap();
    db.execute("UPDATE meta SET value = 0 WHERE name = 'closed_in_order'", []).unwrap();
    drop(db);
    let mut bytes = fs::read(&file).unwrap();
    let (page, half) = (4_096, 2_048);
    let end = bytes.len() - page;
    for at in (page * 2..end).step_by(page) {
        bytes.copy_within(at..at + half, at + half);
    }
    fs::write(&file, &bytes).unwrap();
    let error = refused(&file);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("damaged"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), bytes);
}

#[test]
fn a_ledger_that_another_program_keeps_locked_fails_in_time_and_recovers() {
    let (_folder, file) = folder();
    let store = open_as(&file, Durability::Create).unwrap();
    let rules = rules(1_000);
    let shell = Connection::open(&file).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = std::time::Instant::now();
    let error = block_on(reserve(&store, &rules, 600)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("another program"), "{error}");
    // It came back though nobody let go, and not before its patience, of 5 s, had ended.
    assert!(began.elapsed() > Duration::from_secs(4), "{:?}", began.elapsed());
    shell.execute_batch("ROLLBACK").unwrap();
    assert!(block_on(reserve(&store, &rules, 600)).unwrap().is_some());
    assert!(block_on(reserve(&store, &rules, 600)).unwrap().is_none());
}

#[test]
fn a_ledger_of_an_older_keywheel_is_brought_up_to_date_with_all_it_holds() {
    let (_folder, file) = folder();
    Connection::open(&file).unwrap().execute_batch(include_str!("data/schema-1.sql")).unwrap();
    block_on(async {
        let store = open(&file).await;
        assert!(!store.storage().just_created);
        assert_eq!(store.storage().ledger_id, "00112233445566778899aabbccddeeff");
        let rows = rows(&store).await;
        assert_eq!(rows.len(), 2);
        let total = all(&store).await.tokens;
        assert_eq!((total.settled, total.reserved), (120, 600));
        let report = store.audit().await.unwrap();
        assert!(report.is_balanced(), "{:?}", report.mismatches);
        // What was open goes on.
        settle(&store, rows[1].id, 500).await.unwrap();
        assert_eq!(all(&store).await.tokens.used(), 620);
    });
    let db = Connection::open(&file).unwrap();
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 2);
}

#[test]
fn a_ledger_of_a_newer_keywheel_is_refused_and_left_as_it_is() {
    let (_folder, file) = folder();
    ledger(&file);
    Connection::open(&file).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let before = fs::read(&file).unwrap();
    let error = refused(&file);
    assert_eq!(error.kind(), ErrorKind::NewerSchema);
    assert!(error.to_string().contains("newer keywheel"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn a_cap_that_has_to_be_there_already_never_starts_anew() {
    let (folder, file) = folder();
    let missing = |file: &Path| {
        let error = open_as(file, Durability::RequireExisting).unwrap_err();
        assert!(!error.to_string().is_empty());
        error.kind()
    };
    assert_eq!(missing(&file), ErrorKind::Missing);
    assert_eq!(missing(&folder.path().join("not mounted/ledger.db")), ErrorKind::Missing);
    // Nothing was made: the next start must not find it "there".
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    fs::write(&file, "").unwrap();
    assert_eq!(missing(&file), ErrorKind::Missing, "an empty file is an empty cap");

    if vanishes(folder.path()) {
        return;
    }
    assert!(open_as(&file, Durability::Init).unwrap().storage().just_created);
    let again = open_as(&file, Durability::RequireExisting).unwrap();
    assert!(!again.storage().just_created);
}

#[test]
fn a_place_that_a_restart_wipes_is_told_and_refused_where_the_cap_has_to_stay() {
    let memory = Path::new("/dev/shm");
    if !cfg!(target_os = "linux") || !memory.is_dir() {
        return;
    }
    let folder = tempfile::tempdir_in(memory).unwrap();
    let file = folder.path().join("ledger.db");
    let init = open_as(&file, Durability::Init).unwrap_err();
    assert_eq!(init.kind(), ErrorKind::Vanishing, "{init}");
    for durability in [Durability::Create, Durability::EphemeralOk] {
        let store = open_as(&file, durability).unwrap();
        let storage = store.storage();
        assert_eq!((&storage.kind, storage.vanishes), (&StorageKind::Tmpfs, true));
    }
    let required = open_as(&file, Durability::RequireExisting).unwrap_err();
    assert_eq!(required.kind(), ErrorKind::Vanishing, "{required}");
    assert!(required.to_string().contains("tmpfs"), "{required}");
}

fn vanishes(folder: &Path) -> bool {
    let probe = folder.join("probe.db");
    open_as(&probe, Durability::Create).unwrap().storage().vanishes
}

#[test]
fn the_shell_answers_what_was_spent() {
    let (_folder, file) = folder();
    let _open = open_as(&file, Durability::Create).unwrap();
    ledger(&file);
    let db = Connection::open(&file).unwrap();
    let spent: i64 = db
        .query_row("SELECT SUM(COALESCE(actual, estimate)) FROM ledger", [], |row| row.get(0))
        .unwrap();
    assert_eq!(spent, 720);
    let first = db.query_row(
        "SELECT id, ts, estimate, actual, note FROM ledger ORDER BY ts, id LIMIT 1",
        [],
        |row| {
            let id: String = row.get(0)?;
            let (ts, note): (String, String) = (row.get(1)?, row.get(4)?);
            Ok((id, ts, row.get::<_, i64>(2)?, row.get::<_, Option<i64>>(3)?, note))
        },
    );
    let (id, ts, estimate, actual, note) = first.unwrap();
    assert!(id.starts_with("r1-"), "{id}");
    assert!(id.parse::<keywheel_ledger::RowId>().is_ok(), "{id}");
    assert_eq!(ts, "2026-11-29T22:00:00.000Z");
    assert_eq!((estimate, actual, note.as_str()), (800, Some(120), ""));
}

#[test]
fn rows_leave_in_batches_while_others_write_and_no_total_changes() {
    let (_folder, file) = folder();
    block_on(async {
        let store = open(&file).await;
        let rules = rules(1 << 40);
        for _ in 0..50 {
            let pairs = (0..50).map(async |_| {
                let row = reserve(&store, &rules, 10).await.unwrap().unwrap();
                settle(&store, row.id, 7).await.unwrap();
            });
            join_all(pairs).await;
        }
        let left = reserve(&store, &rules, 10).await.unwrap().unwrap();
        let before = all(&store).await;
        let later = now() + chrono::TimeDelta::days(91);
        let keep = Duration::from_secs(90 * 86_400);
        let prune = async {
            let mut removed = Vec::new();
            while removed.last() != Some(&0) {
                removed.push(store.prune(later, keep).await.unwrap());
            }
            removed
        };
        let write = async {
            for _ in 0..20 {
                let row = reserve(&store, &rules, 10).await.unwrap().unwrap();
                settle(&store, row.id, 0).await.unwrap();
            }
        };
        let (removed, ()) = join(prune, write).await;
        assert!(removed.len() > 2, "{removed:?}");
        let after = all(&store).await;
        assert_eq!((after.tokens.settled, after.tokens.reserved), (17_500, 10));
        assert_eq!(before.tokens.used(), after.tokens.used());
        let report = store.audit().await.unwrap();
        assert!(report.is_balanced(), "{:?}", report.mismatches);
        let info = store.info().await.unwrap();
        assert_eq!((info.rows, info.open), (rows(&store).await.len() as u64, 1));
        settle(&store, left.id, 0).await.unwrap();
        // A place is never given twice, even when the newest row has gone, and who gave it, too.
        store.prune(later, keep).await.unwrap();
        assert_eq!(rows(&store).await, []);
        drop(store);
        let store = open(&file).await;
        assert_eq!(store.info().await.unwrap().rows, 0);
        let next = reserve(&store, &rules, 1).await.unwrap().unwrap();
        assert_eq!(next.id.seq, 2_522);
    });
}
