//! Several pools on one file.

use super::*;

#[test]
fn a_cooldown_of_another_pool_is_seen_within_a_quarter_second() {
    let (_folder, path) = folder();
    let (one, two) = (Desk::at(&path), Desk::at(&path));
    let causes = [
        Cause::PerDayRequests,
        Cause::PerDayTokens,
        Cause::PerMinuteRequests,
        Cause::PerMinuteTokens,
        Cause::UnspecifiedQuota,
    ];
    for cause in causes {
        two.rest();
        assert!(one.commit(cooled(cause, 60_000)));
        assert!(!two.has_heard(|file| has(file, cause)), "it looks now and then");
        two.advance(SOON);
        eventually(|| two.has_heard(|file| has(file, cause)));
    }
    assert!(
        two.fake.heard.lock().unwrap().as_ref().unwrap().1,
        "somebody else's change is a full one"
    );
}

/// <https://github.com/NousResearch/hermes-agent/issues/70147>: a write from an old copy erased
/// another process's cooldown.
#[test]
fn a_write_from_an_old_copy_loses_nobodys_cooldown() {
    let (_folder, path) = folder();
    let (one, two) = (Desk::at(&path), Desk::at(&path));
    assert!(one.commit(cooled(Cause::PerDayRequests, 60_000)));
    assert!(two.commit(cooled(Cause::PerMinuteTokens, 60_000)));
    assert!(one.commit(used(1)));
    let file = read(&path);
    assert!(has(&file, Cause::PerDayRequests) && has(&file, Cause::PerMinuteTokens));
}

#[test]
fn of_two_cooldowns_for_one_cause_the_later_end_wins() {
    for (first, second) in [(60_000, 120_000), (120_000, 60_000)] {
        let (_folder, path) = folder();
        let (one, two) = (Desk::at(&path), Desk::at(&path));
        let now_ms = SystemClock.unix_ms();
        assert!(one.commit(cooled(Cause::PerDayRequests, first)));
        assert!(two.commit(cooled(Cause::PerDayRequests, second)));
        let file = read(&path);
        let cooldowns = &file.bucket("p", "m").unwrap().cooldowns;
        let until = cooldowns.find(Cause::PerDayRequests.as_str()).unwrap().available_at.unwrap();
        assert!(until.ms() >= now_ms + 120_000);
        assert_eq!(cooldowns.len(), 1);
    }
}

#[test]
fn counts_of_pools_that_come_and_go_add_up_and_leave_no_crowd_behind() {
    let (_folder, path) = folder();
    let stays = Desk::at(&path);
    assert!(stays.commit(used(1)));
    for _ in 0..10 {
        assert!(Desk::at(&path).commit(used(2)));
    }
    assert!(stays.commit(used(3)));
    let file = read(&path);
    assert_eq!(requests(&file), 23);
    let day = file.bucket("p", "m").unwrap().day.as_ref().unwrap();
    assert_eq!((day.by.len(), file.writers.len()), (2, 1));
}

#[test]
fn a_writer_that_is_alive_is_never_folded_however_long_it_says_nothing() {
    let (_folder, path) = folder();
    let clock = ManualClock::at(Utc::now());
    let location = StateLocation::File(path.clone());
    let quiet = Desk::on(&location, Arc::new(clock.clone()));
    let busy = Desk::on(&location, Arc::new(clock.clone()));
    assert!(quiet.commit(used(5)));
    clock.advance(Duration::from_secs(48 * 3600));
    assert!(busy.commit(used(1)));
    assert_eq!(read(&path).writers.len(), 2);
    assert!(quiet.commit(used(6)));
    assert_eq!(requests(&read(&path)), 7);
}

#[test]
fn a_writer_whose_sign_of_life_somebody_removed_is_given_up_when_its_day_is_over() {
    let (_folder, path) = folder();
    let clock = ManualClock::at(Utc::now());
    let location = StateLocation::File(path.clone());
    let quiet = Desk::on(&location, Arc::new(clock.clone()));
    assert!(quiet.commit(used(5)));
    let live = format!("pool.json.{}.live", quiet.persister.writer());
    fs::remove_file(path.with_file_name(live)).unwrap();
    let busy = Desk::on(&location, Arc::new(clock.clone()));
    for (hours, writers) in [(20, 2), (6, 1)] {
        clock.advance(Duration::from_secs(hours * 3600));
        assert!(busy.commit(used(1)));
        assert_eq!((read(&path).writers.len(), requests(&read(&path))), (writers, 6));
    }
}

#[test]
fn an_exploration_is_granted_to_one_pool_only() {
    let (_folder, path) = folder();
    let desks: Vec<_> = (0..4).map(|_| Desk::at(&path)).collect();
    let mut explore = used(0);
    explore.day.as_mut().unwrap().explore = true;
    let commits: Vec<_> = desks
        .iter()
        .map(|desk| {
            desk.say(explore.clone());
            desk.persister.commit()
        })
        .collect();
    assert!(desks.iter().zip(commits).all(|(desk, commit)| desk.wait(commit)));
    let granted = desks.iter().filter(|desk| {
        let heard = desk.fake.heard.lock().unwrap();
        let bucket = heard.as_ref().unwrap().0.bucket("p", "m").unwrap();
        bucket.day.as_ref().unwrap().explored_by.as_deref() == Some(desk.persister.writer())
    });
    assert_eq!(granted.count(), 1);
}

#[test]
fn a_clear_reaches_the_other_pools_and_stays() {
    let (_folder, path) = folder();
    let (one, two) = (Desk::at(&path), Desk::at(&path));
    let old = cooled(Cause::PerDayRequests, 60_000);
    assert!(one.commit(old.clone()));
    two.hears(|file| has(file, Cause::PerDayRequests));
    assert!(two.commit(clear(&SystemClock, 1)));
    one.hears(|file| file.bucket("p", "m").is_some_and(|bucket| bucket.generation == 1));
    // One has not taken it in yet and writes its old cooldown once more.
    one.commit(old);
    assert!(!has(&read(&path), Cause::PerDayRequests));
}

#[test]
fn a_cooldown_met_after_a_clear_of_which_its_pool_has_not_heard_holds() {
    for memory in [true, false] {
        let (_folder, path) = folder();
        let location = match memory {
            true => StateLocation::Memory(MemoryState::new()),
            false => StateLocation::File(path),
        };
        let clock = ManualClock::at(Utc::now());
        let met = || {
            let now_ms = clock.unix_ms();
            let available_at = Some(At(now_ms + 60_000));
            let entry = CooldownEntry { available_at, since: At(now_ms), ..<_>::default() };
            let cooldowns = vec![(Cause::PerDayRequests, entry)];
            BucketChange { cooldowns, ..BucketChange::default() }
        };
        let one = Desk::on(&location, Arc::new(clock.clone()));
        let two = Desk::on(&location, Arc::new(clock.clone()));
        let three = |clock: &ManualClock| Desk::on(&location, Arc::new(clock.clone())).found;
        let old = met();
        clock.advance(Duration::from_millis(1));
        assert!(two.commit(old.clone()));
        clock.advance(Duration::from_millis(2));
        assert!(one.commit(clear(&clock, 1)));
        // Two tells its old copy again, then what it met since.
        assert!(two.commit(old));
        assert!(!has(&three(&clock), Cause::PerDayRequests));
        clock.advance(Duration::from_millis(1));
        assert!(two.commit(met()));
        assert!(has(&three(&clock), Cause::PerDayRequests));
    }
}

/// A clear that is made now.
fn clear(clock: &dyn Clock, generation: u64) -> BucketChange {
    let cleared = Some(At(clock.unix_ms()));
    BucketChange { generation, cleared, ..BucketChange::default() }
}

/// A cooldown that is met now.
fn met(clock: &ManualClock, cause: Cause) -> BucketChange {
    let now_ms = clock.unix_ms();
    let available_at = Some(At(now_ms + 60_000));
    let entry = CooldownEntry { available_at, since: At(now_ms), ..CooldownEntry::default() };
    BucketChange { cooldowns: vec![(cause, entry)], ..BucketChange::default() }
}

#[test]
fn a_cooldown_cleared_before_it_was_in_the_file_is_not_reported_as_persisted() {
    let (_folder, path) = folder();
    let clock = ManualClock::at(Utc::now());
    let location = StateLocation::File(path.clone());
    let one = Desk::on(&location, Arc::new(clock.clone()));
    let two = Desk::on(&location, Arc::new(clock.clone()));
    assert!(two.commit(used(1)));
    clock.advance(Duration::from_millis(1));
    let now_ms = clock.unix_ms();
    let available_at = Some(At(now_ms + 60_000));
    let entry = CooldownEntry { available_at, since: At(now_ms), ..CooldownEntry::default() };
    clock.advance(Duration::from_millis(1));
    assert!(one.commit(clear(&clock, 1)));
    let early = BucketChange { cooldowns: vec![(Cause::PerDayRequests, entry)], ..used(1) };
    assert!(!two.commit(early));
    assert!(!has(&read(&path), Cause::PerDayRequests));
    assert!(two.persister.health().error.is_none(), "nothing is wrong with the file");
    // What it only heard from the file, and tells again, is no news of its own.
    let heard = met(&clock, Cause::PerDayTokens);
    assert!(one.commit(BucketChange { generation: 1, ..heard.clone() }));
    two.hears(|file| has(file, Cause::PerDayTokens));
    clock.advance(Duration::from_millis(1));
    assert!(one.commit(clear(&clock, 2)));
    clock.advance(Duration::from_millis(1));
    let mut both = met(&clock, Cause::PerDayRequests);
    both.cooldowns.extend(heard.cooldowns);
    assert!(two.commit(BucketChange { generation: 1, ..both }));
    assert!(has(&read(&path), Cause::PerDayRequests) && !has(&read(&path), Cause::PerDayTokens));
}

#[test]
fn a_cooldown_met_after_a_clear_that_waits_for_the_lock_is_not_cleared_with_the_rest() {
    for _ in 0..8 {
        let (_folder, path) = folder();
        let clock = ManualClock::at(Utc::now());
        let location = StateLocation::File(path.clone());
        let [one, two] = [(); 2].map(|()| Desk::on(&location, Arc::new(clock.clone())));
        assert!(one.commit(met(&clock, Cause::PerDayRequests)));
        clock.advance(Duration::from_millis(1));
        let lock = path.with_file_name("pool.json.lock");
        let lock = Lock::take(&lock, Duration::from_secs(5), || false).unwrap().unwrap();
        two.say(clear(&clock, 1));
        let cleared = two.persister.commit();
        clock.advance(Duration::from_millis(1));
        one.say(met(&clock, Cause::PerDayTokens));
        let reported = one.persister.commit();
        clock.advance(Duration::from_millis(1));
        // Now one of them is first.
        drop(lock);
        assert!(one.wait(reported) && two.wait(cleared));
        let file = read(&path);
        assert!(has(&file, Cause::PerDayTokens) && !has(&file, Cause::PerDayRequests));
    }
}

#[test]
fn an_old_copy_put_back_under_a_running_pool_loses_nothing_of_that_pool() {
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    assert!(desk.commit(used(1)));
    let old = fs::read(&path).unwrap();
    assert!(desk.commit(used(4)));
    assert!(desk.commit(BucketChange {
        cooldowns: cooled(Cause::PerDayTokens, 60_000).cooldowns,
        ..used(5)
    }));
    fs::write(&path, old).unwrap();
    desk.eventually(|| requests(&read(&path)) == 5 && has(&read(&path), Cause::PerDayTokens));
}

#[test]
fn a_file_removed_under_a_running_pool_comes_back_whole_with_the_next_change() {
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    assert!(desk.commit(cooled(Cause::PerDayRequests, 60_000)));
    fs::remove_file(&path).unwrap();
    let mut change = used(2);
    change.cooldowns.clear();
    assert!(desk.commit(change));
    assert!(has(&read(&path), Cause::PerDayRequests));
    assert_eq!(requests(&read(&path)), 2);
}

#[cfg(unix)]
#[test]
fn pools_that_come_through_a_link_and_directly_share_one_lock_and_the_link_stays() {
    let (folder, path) = folder();
    let link = folder.path().join("link.json");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let (one, two) = (Desk::at(&link), Desk::at(&path));
    assert!(one.commit(used(2)));
    assert!(two.commit(used(3)));
    assert_eq!(requests(&read(&path)), 5);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(!siblings(&link).contains(&"link.json.lock".to_owned()));
}

#[test]
fn pools_in_one_memory_see_each_other_and_add_up() {
    let memory = MemoryState::new();
    let location = StateLocation::Memory(memory.clone());
    let one = Desk::on(&location, Arc::new(SystemClock));
    let two = Desk::on(&location, Arc::new(SystemClock));
    assert!(one.commit(used(2)));
    assert!(two.commit(cooled(Cause::PerDayRequests, 60_000)));
    two.say(used(3));
    two.persister.mark_dirty();
    one.persister.mark_dirty();
    one.hears(|file| has(file, Cause::PerDayRequests) && requests(file) == 5);
    drop((one, two));
    let after = Desk::on(&location, Arc::new(SystemClock));
    assert_eq!(requests(&after.found), 5);
    assert!(parse(memory.json().as_bytes()).unwrap().writers.is_empty());
}
