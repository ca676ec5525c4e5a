//! Files that are torn, foreign or in the way, locks that others hold, disks that say no.

use std::sync::mpsc;

use super::*;

/// Where the file that was kept aside is.
fn kept(desk: &Desk) -> (PathBuf, String) {
    let [StateNote::KeptAside { kept, fault }] = &desk.notes[..] else {
        panic!("one file kept aside was expected: {:?}", desk.notes)
    };
    (kept.clone(), fault.clone())
}

/// Opens a pool on a file of `content` and returns the fault it reports.
fn fault_of(content: &[u8]) -> String {
    let (_folder, path) = folder();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    let desk = Desk::at(&path);
    let (kept, fault) = kept(&desk);
    assert_eq!(fs::read(kept).unwrap(), content, "what is kept is what was there");
    assert!(desk.found.keys.is_empty() && desk.found.buckets.is_empty(), "it starts empty");
    assert!(desk.commit(used(1)), "and works");
    assert_eq!(requests(&read(&path)), 1);
    fault
}

#[test]
fn state_file_cut_at_every_byte() {
    let (_folder, path) = folder();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let whole = EXAMPLE.trim_end().as_bytes();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let location = StateLocation::File(path.clone());
        let (persister, found, notes) =
            Persister::open(&location, Waits::default(), Arc::new(SystemClock));
        let [StateNote::KeptAside { kept, .. }] = &notes[..] else {
            panic!("cut at byte {cut}: {notes:?}")
        };
        assert_eq!(fs::read(kept).unwrap(), &whole[..cut]);
        assert_eq!(*found, StateFile::empty(), "cut at byte {cut}");
        drop(persister);
    }
    // Nothing but the line end is missing.
    assert!(parse(whole).is_ok());
}

#[test]
fn a_foreign_file_is_kept_aside() {
    for foreign in [
        "{}",
        "[]",
        "null",
        "\"text\"",
        "3",
        "{\"version\": \"1\"}",
        "{\"version\": 1, \"keys\": 3}",
    ] {
        assert!(
            fault_of(foreign.as_bytes()).starts_with("was not written by keywheel"),
            "{foreign}"
        );
    }
    for torn in ["GEMINI_API_KEY_1=x", "---\nversion: 1", "\0\0\0\0", "{\"version\": 1}}"] {
        assert!(fault_of(torn.as_bytes()).starts_with("was torn"), "{torn}");
    }
}

#[test]
fn the_fault_never_quotes_the_file_which_may_be_somebodys_env() {
    let fault =
        fault_of(b"{\"version\": 1, \"keys\": \"AIzaSyEXAMPLE\", \"saved_at\": \"AIzaSyEXAMPLE\"}");
    assert!(!fault.contains("EXAMPLE"));
}

#[test]
fn a_file_of_a_newer_version_is_kept_aside_whatever_its_shape() {
    let newer = "{\"version\": 2, \"keys\": [\"another shape\"]}";
    assert!(fault_of(newer.as_bytes()).contains("newer"));
    let same_shape = EXAMPLE.replace("\"version\": 1", "\"version\": 2");
    assert!(fault_of(same_shape.as_bytes()).contains("format 2"));
}

#[test]
fn a_file_of_no_bytes_is_kept_aside() {
    assert_eq!(fault_of(b""), "was empty");
}

#[test]
fn a_file_that_is_not_utf8_is_kept_aside() {
    let mut bytes = EXAMPLE.as_bytes().to_vec();
    let at = EXAMPLE.find("GEMINI").unwrap();
    bytes[at] = 0xff;
    assert!(fault_of(&bytes).starts_with("was torn"));
}

#[test]
fn a_deeply_nested_file_is_kept_aside_and_overflows_no_stack() {
    let deep = "{\"version\": 1, \"later\": ".to_owned() + &"[".repeat(1_000_000);
    assert!(fault_of(deep.as_bytes()).starts_with("was torn"));
}

#[test]
fn a_folder_given_as_the_file_holds_it_and_is_never_moved() {
    let (_folder, path) = folder();
    let folder = path.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    for rounds in 1..3 {
        let desk = Desk::at(folder);
        assert!(desk.notes.is_empty(), "{:?}", desk.notes);
        assert!(desk.commit(used(1)));
        drop(desk);
        assert_eq!(requests(&read(&path)), rounds);
        fs::write(folder.join("precious"), "precious").unwrap();
    }
    // Nor one that takes the file's place while it is in use.
    let desk = Desk::at(&path);
    assert!(desk.commit(used(1)));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    desk.commit_in_vain(used(2));
    assert!(desk.persister.health().error.unwrap().contains("is a folder"));
    assert!(path.is_dir() && folder.join("precious").is_file());
}

/// What is read without end, or waits for its other end, would stop the thread that writes.
#[cfg(unix)]
#[test]
fn a_link_to_a_device_or_pipe_put_in_the_files_place_is_never_opened() {
    for target in ["/dev/zero", "/dev/null", "pipe"] {
        let (folder, path) = folder();
        let desk = Desk::at(&path);
        assert!(desk.commit(used(1)));
        let target = match target {
            "pipe" => {
                let pipe = folder.path().join("pipe");
                assert!(
                    std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success()
                );
                pipe
            }
            device => device.into(),
        };
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        desk.commit_in_vain(used(2));
        assert!(desk.persister.health().error.unwrap().contains("is a device"), "{target:?}");
        fs::remove_file(&path).unwrap();
        desk.eventually(|| desk.persister.health().error.is_none());
        assert_eq!(requests(&read(&path)), 2, "it goes on once the link is gone");
    }
}

#[cfg(unix)]
#[test]
fn a_loop_of_links_in_the_files_place_is_reported() {
    let (folder, _) = folder();
    let path = folder.path().join("loop.json");
    std::os::unix::fs::symlink("loop.json", &path).unwrap();
    let desk = Desk::at(&path);
    assert!(matches!(&desk.notes[..], [StateNote::Unusable { .. }]), "{:?}", desk.notes);
    assert!(!desk.commit(used(1)));
}

#[test]
fn two_files_kept_aside_in_one_second_keep_different_names() {
    let (_folder, path) = folder();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let clock = ManualClock::at("2026-11-30T07:12:04Z".parse().unwrap());
    for content in ["one", "two", "three"] {
        fs::write(&path, content).unwrap();
        let location = StateLocation::File(path.clone());
        let desk = Desk::on(&location, Arc::new(clock.clone()));
        assert_eq!(fs::read_to_string(kept(&desk).0).unwrap(), content);
    }
    let names = siblings(&path);
    assert!(names.contains(&"pool.json.bad-20261130T071204Z".to_owned()), "{names:?}");
}

#[test]
fn a_file_torn_under_a_running_pool_is_kept_aside_and_written_anew_with_all_it_knows() {
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    assert!(desk.commit(cooled(Cause::PerDayRequests, 60_000)));
    fs::write(&path, "torn").unwrap();
    desk.eventually(|| {
        fs::read(&path)
            .is_ok_and(|text| parse(&text).is_ok_and(|file| has(&file, Cause::PerDayRequests)))
    });
    assert!(siblings(&path).iter().any(|name| name.contains(".bad-")));
    let kept = |notes: &[StateNote]| matches!(notes, [StateNote::KeptAside { .. }]);
    desk.eventually(|| kept(&desk.persister.health().notes));
}

#[test]
fn whoever_keeps_writing_other_files_there_is_left_alone_and_reported() {
    let (_folder, path) = folder();
    let clock = ManualClock::at(Utc::now());
    let desk = Desk::on(&StateLocation::File(path.clone()), Arc::new(clock.clone()));
    for _ in 0..3 {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(desk.commit(used(1)));
    }
    fs::write(&path, "mine").unwrap();
    desk.commit_in_vain(used(2));
    assert!(desk.persister.health().error.unwrap().contains("something else writes there"));
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    // Once it is gone, everything is as before.
    fs::remove_file(&path).unwrap();
    desk.eventually(|| desk.persister.health().error.is_none());
    assert_eq!(requests(&read(&path)), 2);
    // And in an hour, one more is an accident again.
    clock.advance(Duration::from_secs(3_600));
    fs::write(&path, "mine").unwrap();
    assert!(desk.commit(used(3)));
    assert_eq!(requests(&read(&path)), 3);
}

/// Permission bits do not stop root, who runs tests in containers. What stops everybody is a folder
/// that cannot be: its parent is a regular file.
#[test]
fn a_folder_that_cannot_be_written_blocks_nobody_and_is_used_once_it_can() {
    let (folder, _) = folder();
    let blocker = folder.path().join("blocker");
    fs::write(&blocker, "a file where a folder is wanted").unwrap();
    let path = blocker.join("state").join("pool.json");
    let desk = Desk::at(&path);
    assert!(matches!(&desk.notes[..], [StateNote::Unusable { .. }]), "{:?}", desk.notes);
    desk.commit_in_vain(used(7));
    let health = desk.persister.health();
    assert!(!health.persisted && health.error.is_some() && health.failing_since.is_some());

    fs::remove_file(&blocker).unwrap();
    desk.eventually(|| desk.persister.health().error.is_none());
    assert_eq!(requests(&read(&path)), 7, "nothing was lost meanwhile");
    assert!(desk.commit(used(8)));
}

#[test]
fn a_lock_that_somebody_holds_blocks_nobody_for_more_than_half_a_second() {
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    assert!(desk.commit(used(1)));
    let lock = locked(&path);
    for requests in 2..4 {
        desk.commit_in_vain(used(requests));
    }
    assert!(desk.persister.health().error.unwrap().contains("lock"));
    lock.unlock().unwrap();
    desk.eventually(|| desk.persister.health().persisted);
    assert_eq!(requests(&read(&path)), 3);
}

#[test]
fn a_removed_lock_file_does_not_let_two_in() {
    let (_folder, path) = folder();
    let (one, two) = (Desk::at(&path), Desk::at(&path));
    for round in 1..20 {
        fs::remove_file(path.with_file_name("pool.json.lock")).ok();
        let commits = [&one, &two].map(|desk| {
            desk.say(used(round));
            desk.persister.commit()
        });
        let [first, second] = commits;
        assert!(one.wait(first) && two.wait(second));
        assert_eq!(requests(&read(&path)), 2 * round);
    }
}

#[test]
fn dropping_the_pool_waits_half_a_second_at_most_for_a_lock_that_somebody_holds() {
    let (_folder, path) = folder();
    let desk = Desk::at(&path);
    assert!(desk.commit(used(1)));
    let lock = locked(&path);
    desk.say(used(2));
    desk.persister.mark_dirty();
    let time = Arc::clone(desk.time.as_ref().unwrap());
    let (gone, is_gone) = mpsc::channel();
    std::thread::spawn(move || {
        drop(desk);
        gone.send(()).unwrap();
    });
    eventually(|| time.is_stopping());
    time.advance(PATIENCE);
    is_gone.recv_timeout(HANG).expect("it waits for the lock");
    // Its counts are still its own; whoever comes next finds it dead and folds them.
    lock.unlock().unwrap();
    eventually(|| {
        let next = Desk::at(&path);
        assert!(next.commit(used(3)));
        read(&path).writers.len() == 1
    });
}

#[test]
fn a_cooldown_until_the_year_9999_is_bounded_when_it_is_read_and_in_the_file() {
    let (_folder, path) = folder();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let moved = EXAMPLE.replace("key:3fa1c09be2d4/gemini-3.5-flash-lite", "p/m");
    fs::write(&path, moved.replace("2026-11-30T08:00:02Z", "9999-11-30T08:00:02Z")).unwrap();
    let clock = ManualClock::at("2026-11-30T07:12:04Z".parse().unwrap());
    let desk = Desk::on(&StateLocation::File(path.clone()), Arc::new(clock));
    let latest = At::parse("2026-12-01T08:13:04Z").unwrap();
    let until = |file: &StateFile| {
        let cooldowns = &file.bucket("p", "m").unwrap().cooldowns;
        cooldowns.find(Cause::PerDayRequests.as_str()).unwrap().available_at
    };
    assert_eq!(until(&desk.found), Some(latest));
    assert!(desk.commit(BucketChange { generation: 2, ..used(1) }));
    assert_eq!(until(&read(&path)), Some(latest), "or the next restart would begin again");
}

#[test]
fn what_a_clock_wrote_from_the_future_does_not_outweigh_what_is_written_now() {
    let (_folder, path) = folder();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let moved = EXAMPLE.replace("key:3fa1c09be2d4/gemini-3.5-flash-lite", "p/m");
    fs::write(&path, moved.replace("2026-11-29", "2027-11-29")).unwrap();
    let clock = ManualClock::at("2026-11-30T07:12:04Z".parse().unwrap());
    let desk = Desk::on(&StateLocation::File(path.clone()), Arc::new(clock));
    assert!(desk.found.bucket("p", "m").unwrap().day.is_none());
    let mut change = used(4);
    change.day.as_mut().unwrap().date = NaiveDate::from_ymd_opt(2026, 11, 29).unwrap();
    assert!(desk.commit(change));
    assert_eq!(requests(&read(&path)), 4);
}

#[test]
fn after_a_clock_went_a_day_ahead_and_back_today_counts_again() {
    let (_folder, path) = folder();
    let location = StateLocation::File(path);
    let now: DateTime<Utc> = "2026-11-29T20:00:00Z".parse().unwrap();
    let clock = ManualClock::at(now);
    let date = |day| NaiveDate::from_ymd_opt(2026, 11, day).unwrap();
    let used_on = |day, requests| {
        let mut change = used(requests);
        change.day.as_mut().unwrap().date = date(day);
        change
    };
    let open = |clock: &ManualClock| Desk::on(&location, Arc::new(clock.clone()));
    let day = |desk: &Desk| {
        let day = desk.found.bucket("p", "m").unwrap().day.clone().unwrap();
        (day.date, day.others("").requests)
    };
    assert!(open(&clock).commit(used_on(29, 40)));
    clock.set(now + chrono::TimeDelta::days(1));
    let desk = open(&clock);
    assert!(desk.commit(used_on(30, 1)));
    drop(desk);
    clock.set(now + chrono::TimeDelta::seconds(20));
    let desk = open(&clock);
    assert_eq!(day(&desk), (date(29), 40));
    assert!(desk.commit(used_on(29, 5)));
    drop(desk);
    assert_eq!(day(&open(&clock)), (date(29), 45));
    // The day of another process whose clock is half an hour ahead stays.
    let desk = open(&clock);
    clock.set("2026-11-30T07:30:00Z".parse().unwrap());
    assert!(desk.commit(used_on(30, 2)));
    drop(desk);
    assert_eq!(day(&open(&clock)), (date(30), 2));
}

#[test]
fn unknown_fields_are_kept_up_to_a_megabyte_and_reported_beyond() {
    let (_folder, path) = folder();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = |many: usize| {
        let numbers = vec!["1"; many].join(",");
        EXAMPLE.replacen("{", &format!("{{\"many\": {{\"numbers\": [{numbers}]}}, "), 1)
    };
    for (many, kept) in [(50_000, true), (1_000_000, false)] {
        fs::write(&path, file(many)).unwrap();
        let desk = Desk::at(&path);
        let dropped = matches!(&desk.notes[..], [StateNote::FieldsDropped { .. }]);
        assert_eq!(dropped, !kept, "{:?}", desk.notes);
        assert!(desk.commit(used(1)));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.contains("numbers"), kept);
        assert!(text.len() < 2_000_000, "{} bytes", text.len());
    }
}

#[test]
fn ids_of_writers_in_the_file_cannot_name_other_files() {
    let (folder, path) = folder();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let precious = folder.path().join("precious.live");
    fs::write(&precious, "precious").unwrap();
    fs::write(&path, EXAMPLE.replace("\"w5f3a\": {\"pid\"", "\"w/../../precious\": {\"pid\""))
        .unwrap();
    let desk = Desk::at(&path);
    assert!(desk.commit(used(1)));
    assert!(precious.exists());
}

#[test]
fn the_faults_in_words() {
    assert_eq!(parse(b"{\"version\": 1, \"sav"), Err(Fault::Torn(1, 19)));
    assert_eq!(parse(b"{\"version\": 0}"), Err(Fault::Foreign(1, 1)));
    assert_eq!(parse(b"{\"version\": 9}"), Err(Fault::Newer(9)));
}
