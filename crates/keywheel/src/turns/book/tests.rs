use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use keywheel_core::ManualClock;

use super::*;

struct Fixture {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at("2026-11-29T20:00:00Z".parse().unwrap()));
        Self { folder: tempfile::tempdir().unwrap(), clock }
    }

    /// As another process, or after a restart, would open it.
    fn open(&self) -> TurnBook {
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.clock);
        TurnBook::open(Some(&self.folder.path().join("pool.json")), clock)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("pool.turns.json")
    }

    fn turn(&self) -> TurnReport {
        let now = self.clock.now();
        TurnReport {
            kind: "chat".into(),
            started_at: now,
            ended_at: now,
            straddled_reset: false,
            spent_at_start: BTreeMap::new(),
            steps: Vec::new(),
        }
    }
}

fn count(book: &TurnBook) -> u64 {
    book.figures().kinds().get("chat").map_or(0, |chat| chat.turns)
}

#[test]
fn turns_are_told_at_once_and_outlive_the_process() {
    let fixture = Fixture::new();
    let book = fixture.open();
    book.record(&fixture.turn());
    assert_eq!(count(&book), 1, "before anything is written");
    book.flush().unwrap();
    book.record(&fixture.turn());
    assert_eq!(count(&book), 2, "one is in the file, one is not");
    drop(book);
    assert_eq!(count(&fixture.open()), 2, "dropping writes the rest");
}

#[test]
fn the_thread_writes_by_itself_and_ends_with_the_book() {
    let fixture = Fixture::new();
    let book = fixture.open();
    book.record(&fixture.turn());
    let inner = Arc::downgrade(&book.inner);
    // As a process that is killed: nothing is dropped, nothing flushed.
    let watcher = fixture.open();
    soon("it is in the file", || count(&watcher) == 1);
    drop(book);
    soon("the thread has ended", || inner.strong_count() == 0);
}

/// Waits for what another thread does: half a minute at most, on whatever machine.
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let came = (0..1_500).any(|_| {
        is_so() || {
            thread::sleep(Duration::from_millis(20));
            false
        }
    });
    assert!(came, "it never came: {what}");
}

#[test]
fn processes_that_count_at_once_lose_nothing_and_count_nothing_twice() {
    let fixture = Fixture::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let book = fixture.open();
                for number in 0..50 {
                    book.record(&fixture.turn());
                    if number % 10 == 0 {
                        // Another may have the lock for too long: what was not written stays to be written.
                        let _ = book.flush();
                    }
                    assert!(count(&book) > number, "its own turns are there at every moment");
                }
                while book.flush().is_err() {}
            });
        }
    });
    assert_eq!(count(&fixture.open()), 200);
}

#[test]
fn at_no_moment_is_a_turn_missing_or_told_twice() {
    let fixture = Fixture::new();
    let (book, done) = (fixture.open(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                book.flush().unwrap();
            }
        });
        for number in 1..=1_000 {
            book.record(&fixture.turn());
            let told = count(&book);
            done.store(told != number || number == 1_000, Relaxed);
            assert_eq!(told, number);
        }
    });
}

#[test]
fn while_the_disk_says_no_figures_are_kept_and_written_later() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.file()).unwrap();
    let book = fixture.open();
    book.record(&fixture.turn());
    book.flush().unwrap_err();
    book.record(&fixture.turn());
    assert_eq!(count(&book), 2);
    fs::remove_dir(fixture.file()).unwrap();
    book.flush().unwrap();
    assert_eq!((count(&book), count(&fixture.open())), (2, 2));
}

#[test]
fn a_torn_file_is_kept_aside_and_another_begun() {
    let fixture = Fixture::new();
    let book = fixture.open();
    book.record(&fixture.turn());
    book.flush().unwrap();
    let text = fs::read(fixture.file()).unwrap();
    fs::write(fixture.file(), &text[..text.len() / 2]).unwrap();
    assert_eq!(count(&book), 0);
    book.record(&fixture.turn());
    book.flush().unwrap();
    assert_eq!(count(&fixture.open()), 1);
    let names = fs::read_dir(fixture.folder.path()).unwrap();
    let kept = names.filter(|entry| {
        entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("pool.turns.json.bad-")
    });
    assert_eq!(kept.count(), 1);
}

#[test]
fn without_a_state_file_it_counts_in_memory_without_a_thread() {
    let fixture = Fixture::new();
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&fixture.clock);
    let book = TurnBook::open(None, clock);
    book.record(&fixture.turn());
    book.flush().unwrap();
    assert_eq!(count(&book), 1);
    assert!(book.bell.get().is_none());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the thread's pause is real time")]
fn turns_that_end_do_not_shorten_the_pause_after_a_failure() {
    let (bell, rings) = sync_channel(1);
    let pause = Duration::from_millis(300);
    let rested = thread::scope(|scope| {
        // Rings without end, as a busy program does; it hears when the pause is over.
        let (over, is_over) = sync_channel(1);
        let ringing = scope.spawn(move || {
            let mut rung = 0_u64;
            while is_over.try_recv().is_err() {
                rung += u64::from(bell.try_send(()).is_ok());
                thread::yield_now();
            }
            rung
        });
        let begun = Instant::now();
        let rested = rest(&rings, pause);
        assert!(begun.elapsed() >= pause);
        over.send(()).unwrap();
        assert!(ringing.join().unwrap() > 1, "it rang again and again");
        rested
    });
    assert!(rested, "the book is there");
    assert!(!rest(&rings, pause), "a book that is gone is not waited for");
}
