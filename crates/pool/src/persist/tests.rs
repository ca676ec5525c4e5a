//! The state file through [`Persister`], on real files, with a stand-in for the pool, in a time of the tests' own.

#![expect(clippy::disallowed_methods, reason = "these tests measure real threads and disks")]

use std::{
    fs,
    path::{Path, PathBuf},
    pin::{Pin, pin},
    sync::{Arc, LazyLock, Mutex},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use chrono::NaiveDate;
use futures_block::block_on;
use keywheel_core::{Cause, Clock, ManualClock, QuotaDay, SystemClock};
use tempfile::TempDir;

use super::{
    file::{Fault, parse},
    *,
};

mod contents;
mod faults;
mod sharing;

/// Within which a change is seen, here and elsewhere.
const SOON: Duration = Duration::from_millis(250);
/// How long a commit waits for the disk, and dropping the pool for the last write.
const PATIENCE: Duration = Duration::from_millis(500);
/// Shorter than all of them.
const A_BIT: Duration = Duration::from_millis(10);
/// Long enough for any machine; only a hang meets it.
const HANG: Duration = Duration::from_secs(120);

/// What the documentation shows, with a field of a later version on every level.
const EXAMPLE: &str = include_str!("tests/example.json");

/// A pool that says what it is told to, and remembers what it hears.
#[derive(Default)]
struct Fake {
    next: Mutex<Changes>,
    heard: Mutex<Option<(StateFile, bool)>>,
}

impl Shared for Fake {
    fn collect(&self) -> Changes {
        std::mem::take(&mut self.next.lock().unwrap())
    }

    fn absorb(&self, merged: &StateFile, full: bool) {
        *self.heard.lock().unwrap() = Some((merged.clone(), full));
    }
}

/// A pool on a file. Its time stands still, but for what a test lets go by.
struct Desk {
    persister: Persister,
    fake: Arc<Fake>,
    found: Arc<StateFile>,
    notes: Vec<StateNote>,
    /// `None`: without a file nothing takes time.
    time: Option<Arc<desk::Desk>>,
}

impl Desk {
    fn at(path: &Path) -> Self {
        Self::on(&StateLocation::File(path.into()), Arc::new(SystemClock))
    }

    fn on(location: &StateLocation, clock: Arc<dyn Clock>) -> Self {
        let (persister, found, notes) = Persister::open(location, Waits::default(), clock);
        let time = persister.desk();
        time.iter().for_each(|time| time.stop_time());
        let fake = Arc::new(Fake::default());
        let weak = Arc::downgrade(&fake);
        persister.start(weak);
        Self { persister, fake, found, notes, time }
    }

    /// Changes bucket `p/m`.
    fn say(&self, change: BucketChange) {
        self.fake.next.lock().unwrap().buckets.push((BucketKey::new("p", "m"), change));
    }

    fn commit(&self, change: BucketChange) -> bool {
        self.say(change);
        self.wait(self.persister.commit())
    }

    fn wait(&self, answer: impl Future<Output = bool>) -> bool {
        let mut answer = pin!(answer);
        let mut told = Poll::Pending;
        self.eventually(|| {
            told = poll(answer.as_mut());
            told.is_ready()
        });
        told == Poll::Ready(true)
    }

    /// Commits what cannot be committed: whoever waits hears so after half a second, and not before.
    fn commit_in_vain(&self, change: BucketChange) {
        let time = self.time.as_ref().unwrap();
        let late = time.now() + PATIENCE;
        self.say(change);
        let mut commit = pin!(self.persister.commit());
        // For the fault to be known; it takes no longer than the pauses between attempts.
        self.eventually(|| self.persister.health().error.is_some());
        time.advance(late - Duration::from_millis(1) - time.now());
        assert_eq!(poll(commit.as_mut()), Poll::Pending);
        time.advance(Duration::from_millis(1));
        let mut told = Poll::Pending;
        eventually(|| {
            told = poll(commit.as_mut());
            told.is_ready()
        });
        assert_eq!(told, Poll::Ready(false), "nothing is durable");
    }

    fn has_heard(&self, wanted: impl Fn(&StateFile) -> bool) -> bool {
        self.fake.heard.lock().unwrap().as_ref().is_some_and(|(file, _)| wanted(file))
    }

    /// Waits for the pool to hear something of which `wanted` is true.
    fn hears(&self, wanted: impl Fn(&StateFile) -> bool) {
        self.eventually(|| self.has_heard(&wanted));
    }

    fn advance(&self, time: Duration) {
        self.time.iter().for_each(|own| own.advance(time));
    }

    /// Waits for the thread to have nothing to do at this moment.
    fn rest(&self) {
        eventually(|| self.time.iter().all(|time| time.is_at_rest()));
    }

    /// Waits until `done`. Time goes by only when the thread has nothing else to do, so that no machine is too slow.
    fn eventually(&self, mut done: impl FnMut() -> bool) {
        eventually(|| {
            let done = done();
            if !done && self.time.iter().all(|time| time.is_at_rest()) {
                self.advance(A_BIT);
            }
            done
        });
    }
}

fn poll(future: Pin<&mut impl Future<Output = bool>>) -> Poll<bool> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for what the threads do without any time going by.
fn eventually(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < HANG, "it never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The state file's lock, as another process holds it.
fn locked(path: &Path) -> fs::File {
    let lock = fs::File::open(path.with_file_name("pool.json.lock")).unwrap();
    lock.lock().unwrap();
    lock
}

fn used(requests: u64) -> BucketChange {
    // One date for the whole run, also across midnight; the Pacific one, by which the file is kept.
    static TODAY: LazyLock<NaiveDate> =
        LazyLock::new(|| QuotaDay::containing(SystemClock.now()).date());
    let day = DayChange {
        date: *TODAY,
        began_at: None,
        ends_at: None,
        requests,
        tokens: 7 * requests,
        explore: false,
    };
    BucketChange { day: Some(day), ..BucketChange::default() }
}

fn cooled(cause: Cause, for_ms: i64) -> BucketChange {
    let now_ms = SystemClock.unix_ms();
    let entry = CooldownEntry {
        available_at: Some(At(now_ms + for_ms)),
        source: WaitSource::Stated.into(),
        since: At(now_ms),
        ..CooldownEntry::default()
    };
    BucketChange { cooldowns: vec![(cause, entry)], ..BucketChange::default() }
}

fn read(path: &Path) -> StateFile {
    parse(&fs::read(path).unwrap()).unwrap()
}

fn requests(file: &StateFile) -> u64 {
    let day = file.bucket("p", "m").and_then(|bucket| bucket.day.as_ref());
    day.map_or(0, |day| day.others("").requests)
}

fn has(file: &StateFile, cause: Cause) -> bool {
    file.bucket("p", "m").is_some_and(|bucket| bucket.cooldowns.find(cause.as_str()).is_some())
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state").join("pool.json");
    (folder, path)
}

/// Names beside the state file that begin like it.
fn siblings(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// One poll at a time on this thread, without a runtime: the pool works on any executor.
mod futures_block {
    use std::{
        future::Future,
        pin::pin,
        sync::Arc,
        task::{Context, Poll, Wake, Waker},
        thread::{self, Thread},
    };

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    }
}

#[test]
fn unknown_fields_survive_a_merge_of_our_own_changes() {
    let (_folder, path) = folder();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let moved = EXAMPLE.replace("key:3fa1c09be2d4/gemini-3.5-flash-lite", "p/m");
    fs::write(&path, moved).unwrap();
    let clock = ManualClock::at("2026-11-30T07:12:04Z".parse().unwrap());
    let desk = Desk::on(&StateLocation::File(path.clone()), Arc::new(clock));
    let mut change = used(3);
    let date = NaiveDate::from_ymd_opt(2026, 11, 29).unwrap();
    change.day.as_mut().unwrap().date = date;
    change.generation = 2;
    change.minute = vec![Use(At::parse("2026-11-30T07:12:03Z").unwrap(), 1, 7)];
    assert!(desk.commit(change));
    let text = fs::read_to_string(&path).unwrap();
    // The writer of the example, which has no sign of life and was seen just now, is not ours to
    // bury.
    assert_eq!(text.matches("later").count(), 12, "{text}");
    assert_eq!(requests(&read(&path)), 503);
}

#[test]
fn what_commit_confirms_is_on_disk() {
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    assert!(desk.commit(cooled(Cause::PerDayRequests, 60_000)));
    assert!(has(&read(&path), Cause::PerDayRequests));
    assert!(desk.persister.health().persisted);
    assert!(desk.persister.health().saved_at.is_some());
}

#[test]
fn counters_are_on_disk_within_a_quarter_second_without_anybody_waiting() {
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    assert!(desk.commit(used(1)));
    for round in 2..7 {
        desk.rest();
        let lock = locked(&path);
        desk.say(used(round));
        // It comes back, though nothing can be written.
        desk.persister.mark_dirty();
        assert_eq!(requests(&read(&path)), round - 1);
        drop(lock);
        desk.advance(SOON);
        eventually(|| requests(&read(&path)) == round);
    }
}

#[test]
fn a_hundred_commits_at_once_share_a_few_writes() {
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    assert!(desk.commit(used(1)));
    let before = saves(&path, &desk);
    let commits: Vec<_> = (0..100).map(|_| desk.persister.commit()).collect();
    desk.say(used(2));
    assert!(commits.into_iter().all(|commit| desk.wait(commit)));
    assert!(desk.commit(used(3)));
    assert!(saves(&path, &desk) - before <= 5);
}

fn saves(path: &Path, desk: &Desk) -> u64 {
    read(path).writers.find(desk.persister.writer()).unwrap().saves
}

#[test]
fn dropping_the_pool_writes_what_is_left_and_hands_its_counts_over() {
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    assert!(desk.commit(used(1)));
    desk.say(used(2));
    desk.persister.mark_dirty();
    drop(desk);
    let file = read(&path);
    assert_eq!(requests(&file), 2);
    assert!(file.writers.is_empty());
    assert_eq!(siblings(&path), ["pool.json", "pool.json.lock"]);
}

#[test]
fn a_pool_that_only_looks_writes_nothing() {
    let (_folder, path) = folder();
    drop(Desk::at(&path));
    assert!(!path.parent().unwrap().exists());
}

#[test]
fn the_threads_end_by_themselves_when_the_pools_state_is_gone() {
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    let time = Arc::clone(desk.time.as_ref().unwrap());
    desk.rest();
    let Desk { persister, fake, time: of_the_test, .. } = desk;
    drop((fake, of_the_test));
    time.advance(SOON);
    // But for the test and the persister, only the threads hold on to it.
    eventually(|| Arc::strong_count(&time) == 2);
    let answer = poll(pin!(persister.commit()));
    assert_eq!(answer, Poll::Ready(false), "nobody waits for a thread that is gone");
}

#[test]
fn the_pools_last_handle_may_be_dropped_on_the_thread_itself() {
    struct Owner(Mutex<Option<Persister>>);
    impl Shared for Owner {
        fn collect(&self) -> Changes {
            // What happens when the pool goes while its state is being looked at.
            drop(self.0.lock().unwrap().take());
            Changes::default()
        }

        fn absorb(&self, _: &StateFile, _: bool) {}
    }
    let (_folder, path) = folder();
    let location = StateLocation::File(path);
    let (persister, _, _) = Persister::open(&location, Waits::default(), Arc::new(SystemClock));
    let owner = Arc::new(Owner(Mutex::default()));
    let weak = Arc::downgrade(&owner);
    persister.start(weak);
    let commit = {
        // Held, so that the thread does not come before there is something to drop.
        let mut owned = owner.0.lock().unwrap();
        let commit = persister.commit();
        *owned = Some(persister);
        commit
    };
    block_on(commit);
    eventually(|| owner.0.try_lock().is_ok_and(|it| it.is_none()));
}

#[cfg(unix)]
#[test]
fn the_file_is_its_owners_alone_and_so_is_a_folder_that_was_made_for_it() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    assert!(desk.commit(used(1)));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for name in siblings(&path) {
        assert_eq!(mode(&path.with_file_name(name)), 0o600);
    }
}
