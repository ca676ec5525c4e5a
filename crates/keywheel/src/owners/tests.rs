use std::path::PathBuf;

use keywheel_core::ManualClock;

use super::*;

const FILE: &str = "files/abc";
const ALICE: &str = "key:3fa1c09be2d4";

struct Fixture {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(at("2026-11-30T08:00:00Z")));
        Self { folder: tempfile::tempdir().unwrap(), clock }
    }

    /// As another process, or after a restart, would open it.
    fn open(&self) -> Owners {
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.clock);
        Owners::open(Some(&self.folder.path().join("pool.json")), clock)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("pool.owners.json")
    }

    fn hours(&self, hours: i64) -> Option<DateTime<Utc>> {
        Some(self.clock.now() + TimeDelta::hours(hours))
    }
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

#[tokio::test]
async fn an_owner_is_known_to_other_processes_and_after_a_restart_once_it_was_recorded() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.open(), fixture.open());
    assert_eq!(second.owner(FILE).await, None);
    first.record(FILE, ALICE, fixture.hours(48)).await.unwrap();
    assert_eq!(first.owner(FILE).await.as_deref(), Some(ALICE));
    assert_eq!(second.owner(FILE).await.as_deref(), Some(ALICE), "an earlier no is not believed");
    drop((first, second));
    assert_eq!(fixture.open().owner(FILE).await.as_deref(), Some(ALICE));
}

#[tokio::test]
async fn processes_that_record_at_once_lose_nothing() {
    let fixture = Fixture::new();
    let processes: Vec<_> = (0..4).map(|_| fixture.open()).collect();
    let tasks = (0..40).map(|number| {
        let (owners, until) = (processes[number % 4].clone(), fixture.hours(48));
        tokio::spawn(async move {
            owners.record(&format!("files/{number}"), ALICE, until).await.unwrap();
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let owners = fixture.open();
    for number in 0..40 {
        assert!(owners.owner(&format!("files/{number}")).await.is_some(), "files/{number}");
    }
}

#[tokio::test]
async fn what_was_polled_is_recorded_although_nobody_waited_for_it() {
    let fixture = Fixture::new();
    let owners = fixture.open();
    {
        let mut record = Box::pin(owners.record(FILE, ALICE, None));
        let polled = futures_util::FutureExt::now_or_never(&mut record);
        assert!(polled.is_none(), "it was not there yet when it was dropped");
    }
    // Waits for its turn behind what was dropped.
    loop {
        owners.record("files/other", ALICE, None).await.unwrap();
        if fixture.open().owner(FILE).await.is_some() {
            break;
        }
    }
}

#[tokio::test]
async fn what_has_expired_is_dropped_and_a_clock_that_steps_by_hours_drops_nothing_alive() {
    let fixture = Fixture::new();
    let owners = fixture.open();
    owners.record(FILE, ALICE, fixture.hours(48)).await.unwrap();
    owners.record("cachedContents/xyz", ALICE, fixture.hours(1)).await.unwrap();
    // Ahead by less than a day, and back.
    fixture.clock.set(at("2026-12-02T20:00:00Z"));
    owners.record("files/2", ALICE, fixture.hours(48)).await.unwrap();
    fixture.clock.set(at("2026-11-30T08:00:00Z"));
    assert_eq!(fixture.open().owner(FILE).await.as_deref(), Some(ALICE));
    assert_eq!(fixture.open().owner("cachedContents/xyz").await, None);

    fixture.clock.set(at("2026-12-04T00:00:00Z"));
    owners.record("files/3", ALICE, fixture.hours(48)).await.unwrap();
    assert_eq!(fixture.open().owner(FILE).await, None);
    assert_eq!(owners.owner(FILE).await, None, "nor does memory grow for ever");
}

#[tokio::test]
async fn what_is_gone_is_forgotten_and_the_rest_stays() {
    let fixture = Fixture::new();
    let owners = fixture.open();
    owners.record(FILE, ALICE, None).await.unwrap();
    owners.record("files/2", ALICE, None).await.unwrap();
    owners.forget(FILE).await.unwrap();
    assert_eq!(owners.owner(FILE).await, None);
    assert_eq!(fixture.open().owner("files/2").await.as_deref(), Some(ALICE));
}

#[tokio::test]
async fn a_torn_file_is_kept_aside_and_fields_of_later_versions_survive() {
    let fixture = Fixture::new();
    let later = r#"{ "version": 1, "colour": "blue",
        "owners": { "files/abc": { "quota_project": "key:3fa1c09be2d4", "shape": "round" } } }"#;
    std::fs::write(fixture.file(), later).unwrap();
    let owners = fixture.open();
    assert_eq!(owners.owner(FILE).await.as_deref(), Some(ALICE));
    owners.record("files/2", ALICE, None).await.unwrap();
    let text = std::fs::read_to_string(fixture.file()).unwrap();
    assert!(text.contains("\"blue\"") && text.contains("\"round\""), "{text}");

    std::fs::write(fixture.file(), &text[..text.len() / 2]).unwrap();
    assert_eq!(fixture.open().owner(FILE).await, None);
    owners.record("files/3", ALICE, None).await.unwrap();
    let names = std::fs::read_dir(fixture.folder.path()).unwrap();
    let kept = names
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().contains(".bad-"));
    assert_eq!(kept.count(), 1);
    assert_eq!(fixture.open().owner("files/3").await.as_deref(), Some(ALICE));
}

#[tokio::test]
async fn without_a_state_file_or_a_disk_it_is_remembered_as_long_as_the_process_lives() {
    let fixture = Fixture::new();
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&fixture.clock);
    let owners = Owners::open(None, clock);
    owners.record(FILE, ALICE, None).await.unwrap();
    assert_eq!(owners.clone().owner(FILE).await.as_deref(), Some(ALICE));

    std::fs::create_dir(fixture.file()).unwrap();
    let owners = fixture.open();
    owners.record(FILE, ALICE, None).await.unwrap_err();
    assert_eq!(owners.owner(FILE).await.as_deref(), Some(ALICE), "the caller is told, and served");
}

#[test]
fn without_a_runtime_it_works_on_the_callers_thread() {
    let fixture = Fixture::new();
    let owners = fixture.open();
    futures_executor::block_on(async {
        owners.record(FILE, ALICE, None).await.unwrap();
        assert_eq!(fixture.open().owner(FILE).await.as_deref(), Some(ALICE));
    });
}

#[test]
fn of_too_many_those_that_end_soonest_are_forgotten() {
    let fixture = Fixture::new();
    let owned =
        |hours| Owned { quota_project: ALICE.into(), expires_at: hours, extra: Map::default() };
    let mut owners: BTreeMap<_, _> =
        (0..MOST).map(|number| (format!("files/{number}"), owned(None))).collect();
    owners.insert("files/soon".into(), owned(fixture.hours(1)));
    owners.insert("files/later".into(), owned(fixture.hours(2)));
    tidy(&mut owners, fixture.clock.now());
    assert_eq!(owners.len(), MOST);
    assert!(!owners.contains_key("files/soon") && !owners.contains_key("files/later"));
}

#[tokio::test]
async fn a_name_without_end_is_not_remembered() {
    let fixture = Fixture::new();
    let owners = fixture.open();
    owners.record(FILE, ALICE, None).await.unwrap();
    let long = format!("files/{}", "x".repeat(70 << 20));
    owners.record(&long, ALICE, None).await.unwrap();
    assert_eq!(owners.owner(&long).await, None);
    assert_eq!(fixture.open().owner(FILE).await.as_deref(), Some(ALICE));
    assert!(std::fs::metadata(fixture.file()).unwrap().len() < 1_000);
}

#[tokio::test]
async fn what_others_recorded_does_not_pile_up_in_memory() {
    let fixture = Fixture::new();
    fixture.open().record(FILE, ALICE, fixture.hours(48)).await.unwrap();
    let owners = fixture.open();
    let owned = Owned { quota_project: ALICE.into(), expires_at: None, extra: Map::default() };
    owners.known().extend((0..MOST).map(|number| (format!("files/{number}"), owned.clone())));
    assert_eq!(owners.owner(FILE).await.as_deref(), Some(ALICE));
    assert_eq!(owners.known().len(), MOST);
}

#[tokio::test]
async fn a_clock_a_day_ahead_and_back_forgets_nothing_that_lives() {
    let fixture = Fixture::new();
    let owners = fixture.open();
    owners.record("cachedContents/xyz", ALICE, fixture.hours(1)).await.unwrap();
    for step in ["2026-12-01T08:00:00Z", "2026-11-29T08:00:00Z", "1970-01-01T00:00:00Z"] {
        fixture.clock.set(at(step));
        owners.record(FILE, ALICE, fixture.hours(48)).await.unwrap();
    }
    fixture.clock.set(at("2026-11-30T08:00:00Z"));
    let owner = fixture.open().owner("cachedContents/xyz").await;
    assert_eq!(owner.as_deref(), Some(ALICE));
}
