use keywheel_core::ManualClock;

use super::{super::Space, *};

struct Fixture {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at("2026-11-30T08:00:00Z".parse().unwrap()));
        Self { folder: tempfile::tempdir().unwrap(), clock }
    }

    fn open(&self, max_bytes: u64) -> EmbedFile {
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.clock);
        EmbedFile::open_with(self.folder.path().join("ledger.db"), max_bytes, clock).unwrap()
    }
}

fn key(number: usize) -> EmbedKey {
    let space = Space {
        provider: "gcp.gemini",
        base_url: "https://example.com",
        model: "gemini-embedding-001",
        task: None,
        dimensions: None,
        title: None,
    };
    EmbedKey::new(&space, &number.to_string())
}

fn vector(number: usize) -> Vector {
    vec![number as f32, f32::MIN_POSITIVE, -0.0, 1.0 / 3.0].into()
}

async fn put(file: &EmbedFile, numbers: std::ops::Range<usize>) {
    file.put_many(numbers.map(|number| (key(number), vector(number))).collect()).await.unwrap();
}

async fn has(file: &EmbedFile, number: usize) -> bool {
    let found = file.get_many(&[key(number)]).await.unwrap().pop().unwrap();
    assert!(found.as_ref().is_none_or(|found| *found == vector(number)), "{number}: {found:?}");
    found.is_some()
}

async fn count(file: &EmbedFile) -> usize {
    let mut count = 0;
    for number in 0..1_000 {
        count += usize::from(has(file, number).await);
    }
    count
}

#[tokio::test]
async fn vectors_outlive_the_process_to_the_last_bit_and_others_see_them() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.open(1 << 20), fixture.open(1 << 20));
    put(&first, 0..10).await;
    assert!(has(&second, 3).await);
    drop((first, second));
    let file = fixture.open(1 << 20);
    let found = file.get_many(&[key(7), key(99), key(0)]).await.unwrap();
    assert_eq!(found, [Some(vector(7)), None, Some(vector(0))]);
}

#[tokio::test]
async fn the_file_is_bounded_and_what_was_not_used_for_longest_goes_first() {
    let fixture = Fixture::new();
    let bytes = 100 * (16 + OVERHEAD_BYTES);
    let file = fixture.open(bytes);
    put(&file, 0..50).await;
    fixture.clock.advance(Duration::from_hours(48));
    put(&file, 50..100).await;
    for number in 0..10 {
        assert!(has(&file, number).await, "used again: {number}");
    }
    fixture.clock.advance(Duration::from_hours(48));
    for number in 100..140 {
        put(&file, number..number + 1).await;
    }
    let left = count(&file).await;
    assert!((100..=107).contains(&left), "{left} are left");
    for number in (0..10).chain(50..140) {
        assert!(has(&file, number).await, "{number}");
    }
}

#[tokio::test]
async fn processes_that_write_at_once_lose_nothing_and_keep_the_bound_together() {
    let fixture = Fixture::new();
    let files = [fixture.open(1 << 20), fixture.open(1 << 20), fixture.open(1 << 20)];
    let tasks = (0..60).map(|number| {
        let file = files[number % 3].clone();
        tokio::spawn(async move { put(&file, number * 5..number * 5 + 5).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(count(&files[0]).await, 300);
}

#[tokio::test]
async fn a_file_that_is_somebody_elses_keeps_its_own_tables() {
    let fixture = Fixture::new();
    let path = fixture.folder.path().join("ledger.db");
    let ledger = Connection::open(path).unwrap();
    ledger.execute_batch("PRAGMA user_version = 7; CREATE TABLE rows (id INTEGER);").unwrap();
    let file = fixture.open(1 << 20);
    put(&file, 0..3).await;
    let version: i64 = ledger.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    let rows: i64 = ledger.query_row("SELECT count(*) FROM rows", [], |row| row.get(0)).unwrap();
    assert_eq!((version, rows), (7, 0));
}

#[tokio::test]
async fn a_damaged_vector_is_none() {
    let fixture = Fixture::new();
    let file = fixture.open(1 << 20);
    put(&file, 0..2).await;
    file.inner.connection().execute("UPDATE embed_cache SET vector = x'010203'", []).unwrap();
    assert!(!has(&file, 0).await);
    put(&file, 0..1).await;
    assert!(has(&file, 0).await, "and is mended by the next fetch");
}

#[tokio::test]
async fn while_others_write_or_the_disk_says_no_vectors_are_read() {
    let fixture = Fixture::new();
    let file = fixture.open(1 << 20);
    put(&file, 0..3).await;
    // Their last use is to be noted.
    fixture.clock.advance(Duration::from_hours(48));
    let other = Connection::open(fixture.folder.path().join("ledger.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(has(&file, 0).await);
    other.execute_batch("COMMIT").unwrap();
    file.inner.connection().pragma_update(None, "query_only", true).unwrap();
    assert!(has(&file, 1).await);
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_and_what_stands_beside_it_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    let file = fixture.open(1 << 20);
    put(&file, 0..3).await;
    let entries: Vec<_> = std::fs::read_dir(fixture.folder.path()).unwrap().collect();
    assert!(entries.len() > 1, "the write-ahead log is there, too");
    for entry in entries {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", entry.path().display());
    }
}

#[test]
fn what_is_no_database_is_said_and_left_alone() {
    let fixture = Fixture::new();
    let path = fixture.folder.path().join("notes.txt");
    let text = "Dear diary, this is no database. ".repeat(100);
    std::fs::write(&path, &text).unwrap();
    EmbedFile::open(&path, 1 << 20).unwrap_err();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}
