use std::thread;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
const NOW_MS: i64 = 1_764_460_800_000;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counts {
    version: Version<1>,
    count: u64,
    #[serde(flatten)]
    extra: serde_json::Map<String, serde_json::Value>,
}

fn file() -> (tempfile::TempDir, SharedFile) {
    let folder = tempfile::tempdir().unwrap();
    let file = SharedFile::beside(&folder.path().join("new/pool.json"), "counts");
    (folder, file)
}

fn add_one(file: &SharedFile) -> u64 {
    let added = file.update(NOW_MS, PATIENCE, |counts: &mut Counts| {
        counts.count += 1;
        counts.count
    });
    added.unwrap()
}

fn names(file: &SharedFile) -> Vec<String> {
    let entries = fs::read_dir(folder(file.path())).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn whoever_changes_the_file_at_once_loses_nothing() {
    let (_folder, file) = file();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    add_one(&file);
                }
            });
        }
    });
    assert_eq!(file.read::<Counts>().unwrap().unwrap().count, 200);
    assert_eq!(names(&file), ["pool.counts.json", "pool.counts.json.lock"], "nothing else is left");
}

#[test]
fn a_file_cut_at_any_byte_is_kept_aside_and_another_begun() {
    let (_folder, file) = file();
    add_one(&file);
    let whole = fs::read(file.path()).unwrap();
    // The last bytes are white space: without them it is whole.
    for end in 0..whole.trim_ascii_end().len() {
        fs::write(file.path(), &whole[..end]).unwrap();
        assert_eq!(file.read::<Counts>().unwrap(), None, "cut at {end}");
        assert_eq!(add_one(&file), 1, "cut at {end}");
    }
    let kept = names(&file).into_iter().filter(|name| name.contains(".bad-20251130T000000Z"));
    assert_eq!(kept.count(), whole.trim_ascii_end().len(), "each was kept");
}

#[test]
fn a_file_of_another_version_is_not_overwritten() {
    let (_folder, file) = file();
    add_one(&file);
    let newer = r#"{ "version": 2, "count": 7 }"#;
    fs::write(file.path(), newer).unwrap();
    assert_eq!(add_one(&file), 1);
    let kept = names(&file).into_iter().find(|name| name.contains(".bad-")).unwrap();
    assert_eq!(fs::read_to_string(folder(file.path()).join(kept)).unwrap(), newer);
}

#[test]
fn fields_of_a_later_version_survive() {
    let (_folder, file) = file();
    add_one(&file);
    fs::write(file.path(), r#"{ "version": 1, "count": 7, "colour": "blue" }"#).unwrap();
    assert_eq!(add_one(&file), 8);
    assert!(fs::read_to_string(file.path()).unwrap().contains("\"colour\": \"blue\""));
}

#[test]
fn a_lock_that_is_held_is_waited_for_no_longer_than_was_said() {
    let (_folder, file) = file();
    add_one(&file);
    let lock = sibling(file.path(), ".lock");
    let held = Lock::take(&lock, PATIENCE, || false).unwrap().unwrap();
    let refused = file.update(NOW_MS, Duration::from_millis(5), |counts: &mut Counts| {
        counts.count = 99;
    });
    assert!(matches!(refused, Err(UpdateError::Locked)), "{refused:?}");
    assert_eq!(file.read::<Counts>().unwrap().unwrap().count, 1, "and reading needs no lock");
    drop(held);
    assert_eq!(add_one(&file), 2);
}

#[cfg(unix)]
#[test]
fn a_device_in_the_files_place_is_neither_read_nor_replaced() {
    let file = SharedFile::new("/dev/zero".into());
    assert!(file.read::<Counts>().is_err());
    let refused = file.update(NOW_MS, PATIENCE, |_: &mut Counts| {});
    assert!(matches!(refused, Err(UpdateError::Disk(..))), "{refused:?}");
}

#[test]
fn a_file_is_never_made_so_large_that_it_cannot_be_read_again() {
    let (_folder, file) = file();
    add_one(&file);
    let grown = file.update(NOW_MS, PATIENCE, |counts: &mut Counts| {
        counts.extra.insert("name".to_owned(), "x".repeat(MOST_BYTES as usize).into());
    });
    assert!(matches!(grown, Err(UpdateError::Disk(..))), "{grown:?}");
    assert_eq!(add_one(&file), 2, "and what was there is still there");
    assert_eq!(names(&file), ["pool.counts.json", "pool.counts.json.lock"]);
}

#[test]
fn a_file_named_without_its_folder_is_in_this_one() {
    for (path, expected) in [("pool.json", "."), ("a/pool.json", "a"), ("/pool.json", "/")] {
        assert_eq!(folder(Path::new(path)), Path::new(expected), "{path}");
    }
    sync_folder(Path::new("pool.json")).unwrap();
    make_folder(Path::new("pool.json")).unwrap();
}

#[test]
fn files_beside_different_state_files_are_different_files() {
    let beside = |state: &str| SharedFile::beside(Path::new(state), "owners").path().to_owned();
    for (state, expected) in [
        ("/s/pool.json", "/s/pool.owners.json"),
        ("/s/pool", "/s/pool.owners.json"),
        ("/s/team.a", "/s/team.a.owners.json"),
        ("/s/team.b", "/s/team.b.owners.json"),
        ("/s/pool.v1.json", "/s/pool.v1.owners.json"),
        ("/s/.json", "/s/.json.owners.json"),
        ("pool.state", "pool.state.owners.json"),
    ] {
        assert_eq!(beside(state), Path::new(expected), "{state}");
    }
}

#[cfg(unix)]
pub(crate) fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// What a look at the path finds can be replaced before it is opened.
#[cfg(unix)]
#[test]
fn a_pipe_that_took_the_place_of_a_file_after_it_was_looked_at_hangs_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool.json");
    make_pipe(&path);
    // Nobody ever opens its other end: without care this would not return.
    let opened = open(&path, File::options().read(true)).unwrap();
    assert!(!opened.metadata().unwrap().is_file());
    assert!(read(&path, MOST_BYTES).is_err());
}
