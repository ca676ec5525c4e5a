//! Hazards of the disk: full, not to be written, gone. The ledger fails closed, and goes on when it
//! can.
//!
//! <https://github.com/BerriAI/litellm/issues/26672>, <https://github.com/BerriAI/litellm/issues/40095>:
//! budgets that were not enforced while their store was in trouble.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod processes;

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use keywheel_ledger::{Durability, ErrorKind, LedgerStore, SqliteStore};
use processes::*;

/// How many callers there are at once.
const CALLERS: usize = 8;
const CAP: u64 = 1 << 40;

/// What a process does that a test below started; nothing in the test run itself.
#[test]
fn process() {
    let Some((role, file)) = role() else { return };
    assert_eq!(role, "filler");
    block_on(fill_the_disk(&file));
}

/// Reserves in a crowd until nothing can be written any more, and goes on when it can.
async fn fill_the_disk(file: &Path) {
    let store = Arc::new(open(file).await);
    let rules = rules(CAP);
    let mut granted = Vec::new();
    let mut error = None;
    while error.is_none() {
        let (all, failed) = crowd(&store, &rules).await;
        granted.extend(all);
        if granted.len() == 10 * CALLERS {
            say("at work");
        }
        error = failed;
        assert!(granted.len() < 100_000, "the disk is never full");
    }
    let error = error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
    assert!(error.to_string().contains("full"), "{error}");

    say("full");

    // Not a byte more: nothing is granted, and nothing that was granted is lost.
    eventually("not a byte more", || file.with_file_name("none").exists());
    let (none, failed) = crowd(&store, &rules).await;
    assert!(none.is_empty() && failed.is_some());
    assert!(settle(&*store, granted[0], 5).await.is_err());
    assert_eq!(all(&*store).await.tokens.reserved, 10 * granted.len() as u64);
    say("closed");

    // Somebody makes room.
    eventually("room", || file.with_file_name("room").exists());
    let (more, failed) = crowd(&store, &rules).await;
    assert!(failed.is_none(), "{failed:?}");
    assert_eq!(more.len(), CALLERS);
    granted.extend(more);
    for id in &granted {
        settle(&*store, *id, 7).await.unwrap();
    }
    let total = all(&*store).await.tokens;
    assert_eq!((total.settled, total.reserved), (7 * granted.len() as u64, 0));
    assert!(store.audit().await.unwrap().is_balanced());
    say(&format!("{}", granted.len()));
}

/// Several callers at once: what was granted, and one of the errors if there were any.
async fn crowd(
    store: &Arc<SqliteStore>,
    rules: &Arc<keywheel_ledger::LedgerRules>,
) -> (Vec<keywheel_ledger::RowId>, Option<keywheel_ledger::LedgerError>) {
    let asked = (0..CALLERS).map(|_| reserve(&**store, rules, 10));
    let (mut granted, mut failed) = (Vec::new(), None);
    for answer in futures_util::future::join_all(asked).await {
        match answer {
            Ok(row) => granted.push(row.unwrap().id),
            Err(error) => failed = Some(error),
        }
    }
    (granted, failed)
}

/// A full disk is played by the limit on the size of files, which needs no rights and, with its
/// signal ignored, makes writes fail in the same place as a full disk does.
fn fill(bytes: &str) {
    let (_folder, file) = folder();
    let mut process = Process::start("filler", &file, Some("trap '' XFSZ; exec"));
    process.expect("at work");
    process.limit_files(bytes);
    process.expect("full");
    process.limit_files("0");
    fs::write(file.with_file_name("none"), "").unwrap();
    process.expect("closed");
    process.limit_files("unlimited");
    fs::write(file.with_file_name("room"), "").unwrap();
    let written: u64 = process.hear().unwrap().parse().unwrap();
    process.end();
    block_on(async {
        let store = open(&file).await;
        assert_eq!(all(&store).await.tokens.settled, 7 * written);
        assert!(store.audit().await.unwrap().is_balanced());
    });
}

#[test]
fn a_disk_that_fills_up_under_load_fails_closed_and_recovers() {
    fill("600000");
}

#[test]
fn a_disk_that_takes_no_more_writes_under_load_fails_closed_and_recovers() {
    fill("0");
}

/// Somebody, or a restored backup, makes the ledger a file that can only be read.
#[test]
fn a_file_that_can_only_be_read_under_load_fails_closed_and_recovers() {
    let (_folder, file) = folder();
    block_on(async {
        let store = Arc::new(open(&file).await);
        let rules = rules(CAP);
        let (mut granted, failed) = crowd(&store, &rules).await;
        assert!(failed.is_none(), "{failed:?}");
        let mut read_only = ReadOnly::by_attribute(&file);
        if read_only.is_none() {
            // Permissions count when a file is opened, and it is opened anew, for reading and for
            // writing, after it was away.
            let away = file.with_file_name("away");
            fs::rename(&file, &away).unwrap();
            assert!(store.info().await.is_err());
            assert!(crowd(&store, &rules).await.0.is_empty());
            fs::rename(&away, &file).unwrap();
            read_only = ReadOnly::by_permissions(&file);
        }
        let Some(read_only) = read_only else {
            // Full disks and disks that take no more writes are tested above in any case.
            eprintln!("NOT CHECKED: a file that can only be read; nothing keeps this user from it");
            return;
        };
        // The first may fail on the log that was open; the next one finds what the file is now.
        for _ in 0..3 {
            let (none, failed) = crowd(&store, &rules).await;
            assert!(none.is_empty());
            assert_eq!(failed.unwrap().kind(), ErrorKind::Store);
        }
        let error = settle(&*store, granted[0], 5).await.unwrap_err();
        assert!(error.to_string().contains("the ledger can only be read"), "{error}");
        assert_eq!(all(&*store).await.tokens.reserved, 10 * granted.len() as u64);

        drop(read_only);
        let (more, failed) = crowd(&store, &rules).await;
        assert!(failed.is_none(), "{failed:?}");
        granted.extend(more);
        for id in &granted {
            settle(&*store, *id, 7).await.unwrap();
        }
        let total = all(&*store).await.tokens;
        assert_eq!((total.settled, total.reserved), (7 * 2 * CALLERS as u64, 0));
        assert!(store.audit().await.unwrap().is_balanced());
    });
}

/// A ledger that can only be read, until it is dropped, for whoever has it open as well.
struct ReadOnly(Vec<PathBuf>);

impl ReadOnly {
    /// An attribute stops everybody, root and whoever has it open. `None` where the file system does not
    /// know it, or the user or his container has no right to set it.
    fn by_attribute(file: &Path) -> Option<Self> {
        let probe = file.with_file_name("probe");
        let mut opened = fs::File::create(&probe).unwrap();
        let probe = Self(vec![probe]);
        let is_possible = probe.attribute("+i") && opened.write_all(b"x").is_err();
        drop(probe);
        let files = Self(vec![file.to_owned(), file.with_file_name("ledger.db-wal")]);
        (is_possible && files.attribute("+i")).then_some(files)
    }

    /// Permissions stop everybody but root. `None` for him.
    fn by_permissions(file: &Path) -> Option<Self> {
        let files = Self(vec![file.to_owned()]);
        fs::set_permissions(file, fs::Permissions::from_mode(0o444)).unwrap();
        (fs::OpenOptions::new().append(true).open(file).is_err()).then_some(files)
    }

    fn attribute(&self, change: &str) -> bool {
        let done = Command::new("chattr").arg(change).args(&self.0).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        self.attribute("-i");
        let _ = fs::set_permissions(&self.0[0], fs::Permissions::from_mode(0o600));
    }
}

#[test]
fn a_file_that_is_removed_or_emptied_under_load_fails_closed() {
    let (_folder, file) = folder();
    let kept = file.with_file_name("kept.db");
    block_on(async {
        let store = open(&file).await;
        let rules = rules(1_000);
        assert!(reserve(&store, &rules, 600).await.unwrap().is_some());
        // All that was spent is gone with it: an empty cap would let 600 through again.
        fs::rename(&file, &kept).unwrap();
        assert!(reserve(&store, &rules, 10).await.is_err());
        assert!(store.info().await.is_err(), "nor is the past reported as the present");
        fs::write(&file, "").unwrap();
        let error = reserve(&store, &rules, 10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
        // Put back, it goes on where it was.
        fs::rename(&kept, &file).unwrap();
        assert!(reserve(&store, &rules, 500).await.unwrap().is_none());
        assert!(reserve(&store, &rules, 400).await.unwrap().is_some());
        assert!(store.audit().await.unwrap().is_balanced());
    });
}

/// An older installation, or that of somebody else, is moved to where this one's ledger lies: its cap
/// has room again, and its rows are not those of the calls in flight.
#[test]
fn another_ledger_in_its_place_is_never_used_until_the_right_one_is_back() {
    let (_folder, file) = folder();
    let [kept, other, copy] = ["kept.db", "other.db", "copy.db"].map(|it| file.with_file_name(it));
    block_on(async {
        drop(open(&other).await);
        let before = fs::read(&other).unwrap();
        let store = open(&file).await;
        // A second handle leaves the ledger's name in the log, too, which stays beside the file.
        let second = open(&file).await;
        let rules = rules(1_000);
        let held = reserve(&store, &rules, 600).await.unwrap().unwrap();
        fs::rename(&file, &kept).unwrap();
        fs::rename(&other, &file).unwrap();
        for _ in 0..2 {
            let error = reserve(&store, &rules, 10).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
            let told = format!("another ledger lies at {}", file.display());
            assert!(error.to_string().contains(&told), "{error}");
            assert!(settle(&store, held.id, 5).await.is_err());
            let error = store.info().await.unwrap_err();
            assert!(error.to_string().contains(&told), "nor is it reported: {error}");
            assert!(reserve(&second, &rules, 10).await.is_err());
        }
        assert!(fs::read(&file).unwrap() == before, "what is somebody else's stays as it is");
        fs::rename(&kept, &file).unwrap();
        assert!(reserve(&store, &rules, 500).await.unwrap().is_none());
        assert!(reserve(&second, &rules, 400).await.unwrap().is_some());
        drop((store, second));

        // The same ledger in another file is the same one.
        fs::copy(&file, &copy).unwrap();
        let store = open(&file).await;
        fs::rename(&copy, &file).unwrap();
        assert!(reserve(&store, &rules, 10).await.unwrap().is_none());
        assert_eq!(all(&store).await.tokens.reserved, 1_000);
    });
}

/// Somebody tidies up what lies beside the ledger. Two processes with a log each gave out 1,800 of
/// 1,000.
#[test]
fn a_log_that_is_removed_in_use_costs_neither_the_cap_nor_what_it_holds() {
    for removed in [&["-wal"][..], &["-shm"], &["-wal", "-shm"]] {
        let (_folder, file) = folder();
        block_on(async {
            let store = open(&file).await;
            let rules = rules(1_000);
            assert!(reserve(&store, &rules, 600).await.unwrap().is_some());
            for ending in removed {
                fs::remove_file(file.with_file_name(format!("ledger.db{ending}"))).unwrap();
            }
            let another = SqliteStore::open(Some(&file), Durability::Create, now()).await;
            let error = another.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{removed:?}: {error}");
            let error = reserve(&store, &rules, 100).await.unwrap_err();
            assert!(error.to_string().contains("was removed while it was in use"), "{error}");
            drop(store);
            let store = open(&file).await;
            assert_eq!(all(&store).await.tokens.reserved, 600, "{removed:?}");
            assert!(reserve(&store, &rules, 500).await.unwrap().is_none());
            assert!(reserve(&store, &rules, 400).await.unwrap().is_some());
            assert!(store.audit().await.unwrap().is_balanced());
        });
    }
}

/// An empty file in the ledger's place would be taken for one that was emptied, or for a new one.
#[test]
fn a_start_that_is_refused_leaves_no_empty_ledger() {
    for removed in [&[""][..], &["", "-wal"], &["", "-wal", "-shm"]] {
        let (_folder, file) = folder();
        block_on(async {
            let store = open(&file).await;
            assert!(reserve(&store, &rules(1_000), 600).await.unwrap().is_some());
            for ending in removed {
                fs::remove_file(file.with_file_name(format!("ledger.db{ending}"))).unwrap();
            }
            for _ in 0..2 {
                let another = SqliteStore::open(Some(&file), Durability::Create, now()).await;
                let error = another.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{removed:?}: {error}");
                assert!(!file.exists(), "{removed:?}: an empty file is left");
            }
        });
    }
}

/// Permission bits do not stop root, and tests in containers run as root. What stops everybody is a
/// folder that cannot be made, because a regular file stands in its place.
#[test]
fn a_folder_that_cannot_be_made_is_an_error_that_names_it() {
    let (folder, _) = folder();
    let blocker = folder.path().join("blocker");
    fs::write(&blocker, "").unwrap();
    let path = blocker.join("keywheel").join("ledger.db");
    let opened = block_on(SqliteStore::open(Some(&path), Durability::Create, now()));
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("blocker"), "{error}");
}

/// On a medium that can only be read, or in somebody else's folder. Permission bits do not stop root; what stops everybody is
/// a name so long that none of the ledger's other files can have it with an ending.
#[test]
fn a_ledger_that_was_closed_can_be_looked_at_where_nothing_can_be_made_beside_it() {
    let (folder, file) = folder();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let long = closed.join(format!("{:x<253}", "100% of #1? &immutable=0 "));
    block_on(async {
        let store = open(&file).await;
        assert!(reserve(&store, &rules(1_000), 600).await.unwrap().is_some());
        drop(store);
        fs::rename(&file, &long).unwrap();
        let error = SqliteStore::open(Some(&long), Durability::Create, now()).await.unwrap_err();
        assert!(error.to_string().contains("needs files beside it"), "{error}");

        let before = fs::read(&long).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
        let store = SqliteStore::open_to_look(Some(&long)).await.unwrap();
        assert_eq!(all(&store).await.tokens.reserved, 600);
        assert!(store.audit().await.unwrap().is_balanced());
        assert!(reserve(&store, &rules(1_000), 100).await.is_err());
        drop(store);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(fs::read(&long).unwrap() == before);
        assert_eq!(fs::read_dir(&closed).unwrap().count(), 1, "something was made beside it");
    });
}

/// A log says more than the file; without it, what was spent last would be missing.
#[test]
fn a_ledger_is_not_looked_at_without_its_log_and_the_error_says_what_is_wrong() {
    let (folder, file) = folder();
    block_on(async {
        drop(open(&file).await);
        let log = file.with_file_name("ledger.db-wal");
        assert!(!log.exists(), "it was closed");
        // Is there, and cannot be opened, by root neither.
        fs::create_dir(&log).unwrap();
        let error = SqliteStore::open_to_look(Some(&file)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        let told = error.to_string();
        assert!(told.contains("its log and the index of it"), "{told}");
        assert!(told.contains(&format!("the folder {}", folder.path().display())), "{told}");
        fs::remove_dir(&log).unwrap();
        assert!(SqliteStore::open_to_look(Some(&file)).await.is_ok());
    });
}
