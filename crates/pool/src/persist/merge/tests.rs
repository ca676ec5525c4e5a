//! The merge rules as properties, over changes of three writers to two buckets.

use chrono::NaiveDate;
use proptest::{collection::vec, option, prelude::*, sample::select};

use keywheel_core::{Cause, Dimension};

use super::{
    super::{
        format::{Boundary, BucketKey, CooldownEntry, LimitEntry, StateFile, Use},
        tidy,
        words::WaitSource,
    },
    *,
};

const NOW: i64 = 1_796_000_000_000;
const WRITERS: [&str; 3] = ["wa", "wb", "wc"];

/// Everything about a cooldown follows from its end, so that two that end together are the same.
fn cooldown(available_at: i64) -> CooldownEntry {
    CooldownEntry {
        available_at: (available_at < 9).then_some(At(NOW + available_at)),
        source: WaitSource::Derived.into(),
        since: At(NOW),
        ..CooldownEntry::default()
    }
}

fn date(day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(2026, 11, day).unwrap()
}

fn bucket_change() -> impl Strategy<Value = BucketChange> {
    const CAUSES: [Cause; 3] = [Cause::PerDayRequests, Cause::PerMinuteRequests, Cause::ToolQuota];
    let day = (29_u32..31, option::of(0_i64..2), 0_u64..5, 0_u64..500, any::<bool>());
    let day = day.prop_map(|(day, began_at, requests, tokens, explore)| DayChange {
        date: date(day),
        began_at: began_at.map(At),
        ends_at: None,
        requests,
        tokens,
        explore,
    });
    let limit = (0_i64..3).prop_map(|at| {
        let value = Some(100 + at.unsigned_abs());
        let entry =
            LimitEntry { value, source: "learned".into(), at: At(at), ..LimitEntry::default() };
        (Dimension::Rpd, entry)
    });
    let boundary = (0_i64..3).prop_map(|at| Boundary {
        turns_at: At(at * 7),
        at: At(at),
        ..Boundary::default()
    });
    (
        0_u64..4,
        vec((select(&CAUSES[..]), 0_i64..10), 0..3),
        option::of(day),
        vec((0_i64..60_000, 1_u64..3, 0_u64..99), 0..3),
        vec(limit, 0..2),
        option::of(boundary),
    )
        .prop_map(|(generation, cooldowns, day, minute, limits, boundary)| BucketChange {
            generation,
            cleared: None,
            cooldowns: cooldowns.into_iter().map(|(cause, at)| (cause, cooldown(at))).collect(),
            day,
            minute: minute
                .into_iter()
                .map(|(at, n, tokens)| Use(At(NOW - at), n, tokens))
                .collect(),
            limits,
            boundary,
        })
}

fn changes() -> impl Strategy<Value = Changes> {
    let bucket = (select(&["m", "n"][..]), bucket_change());
    let bucket = bucket.prop_map(|(model, change)| (BucketKey::new("p", model), change));
    vec(bucket, 0..3).prop_map(|buckets| Changes { buckets, ..Changes::default() })
}

/// Changes by writer, one after the other.
fn history() -> impl Strategy<Value = Vec<(&'static str, Changes)>> {
    vec((select(&WRITERS[..]), changes()), 0..6)
}

fn apply(base: StateFile, history: &[(&str, Changes)]) -> StateFile {
    history.iter().fold(base, |file, (writer, ours)| merge(file, ours, writer, NOW))
}

/// Who was first is the one thing in which order matters.
/// Who was first has it, and may give it back before others ask.
fn without_exploration(mut file: StateFile) -> StateFile {
    file.buckets
        .values_mut()
        .flat_map(|it| [&mut it.day, &mut it.day_before])
        .flatten()
        .for_each(|day| (day.explored, day.explored_by) = (false, None));
    file
}

fn end(entry: &CooldownEntry) -> i64 {
    entry.available_at.map_or(i64::MAX, At::ms)
}

proptest! {
    #[test]
    fn two_writers_come_to_the_same_file_in_either_order(
        base in history(), a in changes(), b in changes()
    ) {
        let base = apply(StateFile::empty(), &base);
        let ab = apply(base.clone(), &[("wa", a.clone()), ("wb", b.clone())]);
        let ba = apply(base, &[("wb", b), ("wa", a)]);
        prop_assert_eq!(without_exploration(ab), without_exploration(ba));
    }

    #[test]
    fn the_same_changes_again_make_no_difference(base in history(), a in changes()) {
        let once = merge(apply(StateFile::empty(), &base), &a, "wa", NOW);
        prop_assert_eq!(merge(once.clone(), &a, "wa", NOW), once);
    }

    #[test]
    fn a_generation_never_falls_and_a_clear_always_raises_it(
        base in history(), mut ours in bucket_change(), cleared: bool
    ) {
        ours.cleared = cleared.then_some(At(NOW));
        let base = apply(StateFile::empty(), &base);
        let before = base.bucket("p", "m").map_or(0, |bucket| bucket.generation);
        let (generation, cooldowns) = (ours.generation, ours.cooldowns.clone());
        let ours = only(ours);
        let after = merge(base, &ours, "wa", NOW);
        let after = after.bucket("p", "m").unwrap();
        prop_assert!(after.generation >= before && after.generation >= generation);
        if cleared {
            prop_assert!(after.generation > before);
        }
        if cleared || generation > before {
            // Nothing in the file is later than the clear.
            let named = |cause: Cause| cooldowns.iter().any(|(other, _)| *other == cause);
            prop_assert!(after.cooldowns.known().all(|(cause, _)| named(cause)));
        }
    }

    #[test]
    fn within_a_generation_no_cooldown_is_lost_and_none_gets_shorter(
        base in history(), ours in changes()
    ) {
        let base = apply(StateFile::empty(), &base);
        let after = merge(base.clone(), &ours, "wa", NOW);
        for (key, before) in &base.buckets {
            let after = &after.buckets[key];
            if after.generation > before.generation {
                continue;
            }
            for (cause, cooldown) in before.cooldowns.known() {
                prop_assert!(end(after.cooldowns.find(cause.as_str()).unwrap()) >= end(cooldown));
            }
        }
        for (key, change) in &ours.buckets {
            let after = &after.buckets[key];
            if after.generation > change.generation {
                continue;
            }
            for (cause, cooldown) in &change.cooldowns {
                prop_assert!(end(after.cooldowns.find(cause.as_str()).unwrap()) >= end(cooldown));
            }
        }
    }

    #[test]
    fn the_use_of_a_day_is_the_sum_of_what_each_writer_said_last(
        steps in vec((select(&WRITERS[..]), 0_u64..50), 1..20)
    ) {
        let mut last = std::collections::BTreeMap::new();
        let mut file = StateFile::empty();
        for (writer, requests) in steps {
            last.insert(writer, requests);
            file = merge(file, &used(requests), writer, NOW);
        }
        let day = |file: &StateFile| file.bucket("p", "m").unwrap().day.clone().unwrap_or_default();
        prop_assert_eq!(day(&file).others("").requests, last.values().sum::<u64>());
        // However many of them are dead by now.
        tidy::fold(&mut file, &["wa".into(), "wc".into()]);
        prop_assert_eq!(day(&file).others("").requests, last.values().sum::<u64>());
        last.remove("wb");
        prop_assert_eq!(day(&file).others("wb").requests, last.values().sum::<u64>());
    }

    #[test]
    fn absurd_numbers_do_not_overflow(requests: u64, tokens: u64, generation: u64, at: i64) {
        let mut file = StateFile::empty();
        for (index, writer) in WRITERS.into_iter().enumerate() {
            let mut ours = used(requests);
            let change = &mut ours.buckets[0].1;
            change.day.as_mut().unwrap().tokens = tokens;
            change.generation = generation;
            change.cleared = (index == 1).then_some(At(at));
            change.cooldowns = vec![(Cause::PerDayRequests, cooldown(0))];
            change.minute = vec![Use(At(at), requests, tokens)];
            file = merge(file, &ours, writer, at);
        }
        tidy::make_sane(&mut file, &super::super::bounds::Waits::default(), at);
        // The pool counts on from there.
        assert!(file.buckets.values().all(|bucket| bucket.generation <= 1 << 53));
        tidy::fold(&mut file, &WRITERS.map(Box::from));
        tidy::prune(&mut file, &std::collections::BTreeSet::default(), at);
        tidy::derive_available_at(&mut file, at);
        for day in file.buckets.values().filter_map(|bucket| bucket.day.as_ref()) {
            prop_assert_eq!(day.others("").requests, requests.saturating_mul(3));
        }
    }
}

fn only(change: BucketChange) -> Changes {
    Changes { buckets: vec![(BucketKey::new("p", "m"), change)], ..Changes::default() }
}

/// So many requests, today, by whoever merges it.
fn used(requests: u64) -> Changes {
    let day = DayChange {
        date: date(30),
        began_at: None,
        ends_at: None,
        requests,
        tokens: 0,
        explore: false,
    };
    let change = BucketChange { day: Some(day), ..BucketChange::default() };
    only(change)
}

fn explores(day: u32) -> Changes {
    let day = DayChange {
        date: date(day),
        began_at: None,
        ends_at: None,
        requests: 0,
        tokens: 0,
        explore: true,
    };
    let change = BucketChange { day: Some(day), ..BucketChange::default() };
    only(change)
}

fn cools(generation: u64, cleared: bool, ends: &[i64]) -> Changes {
    let cooldowns = ends.iter().map(|end| (Cause::PerDayRequests, cooldown(*end))).collect();
    let cleared = cleared.then_some(At(NOW));
    let change = BucketChange { generation, cleared, cooldowns, ..BucketChange::default() };
    only(change)
}

#[test]
fn the_first_under_the_lock_explores_once_a_day() {
    let file = apply(StateFile::empty(), &[("wa", explores(29)), ("wb", explores(29))]);
    let day = file.bucket("p", "m").unwrap().day.as_ref().unwrap();
    assert_eq!(day.explored_by.as_deref(), Some("wa"));
    let file = apply(file, &[("wb", explores(30)), ("wa", explores(30))]);
    let day = file.bucket("p", "m").unwrap().day.as_ref().unwrap();
    assert_eq!((day.explored, day.explored_by.as_deref()), (true, Some("wb")));
}

fn used_on(day: u32, requests: u64) -> Changes {
    let day = DayChange {
        date: date(day),
        began_at: None,
        ends_at: None,
        requests,
        tokens: 0,
        explore: false,
    };
    only(BucketChange { day: Some(day), ..BucketChange::default() })
}

#[test]
fn a_process_whose_clock_is_ahead_erases_nobodys_counts_of_today() {
    let ahead = ("wb", used_on(30, 1));
    let today = ("wa", used_on(29, 40));
    let first = ("wc", used_on(28, 7));
    for history in [[&first, &today, &ahead], [&ahead, &today, &first]] {
        let history = history.map(Clone::clone);
        let file = apply(StateFile::empty(), &history);
        let counts = |file: &StateFile, day| {
            let day = file.bucket("p", "m").unwrap().day_of((date(day), None))?;
            Some(day.others("").requests)
        };
        assert_eq!([28, 29, 30].map(|day| counts(&file, day)), [None, Some(40), Some(1)]);
        // Both are counted on, whoever is right.
        let mut file = apply(file, &[("wa", used_on(29, 45)), ("wb", used_on(30, 2))]);
        tidy::fold(&mut file, &["wa".into()]);
        assert_eq!([29, 30].map(|day| counts(&file, day)), [Some(45), Some(2)]);
    }
}

#[test]
fn a_refused_request_that_was_given_back_is_given_back_in_the_file_too() {
    let file = apply(StateFile::empty(), &[("wa", used(5)), ("wa", used(4))]);
    assert_eq!(file.bucket("p", "m").unwrap().day.as_ref().unwrap().others("").requests, 4);
}

#[test]
fn a_clear_against_an_old_copy_clears_what_is_there_now() {
    // The file has been cleared four times and has a new cooldown; whoever clears knows of one
    // clear.
    let file = apply(StateFile::empty(), &[("wa", cools(4, false, &[5]))]);
    let file = merge(file, &cools(2, true, &[]), "wb", NOW);
    let bucket = file.bucket("p", "m").unwrap();
    assert_eq!((bucket.generation, bucket.cooldowns.len()), (5, 0));
    // And a writer that has not heard of it does not bring the cooldown back.
    let file = merge(file, &cools(4, false, &[5]), "wa", NOW);
    assert_eq!(file.bucket("p", "m").unwrap().cooldowns.len(), 0);
}

#[test]
fn a_cleared_bucket_is_remembered_so_that_an_old_copy_cannot_bring_its_cooldown_back() {
    let mut file =
        apply(StateFile::empty(), &[("wa", cools(0, false, &[5])), ("wb", cools(0, true, &[]))]);
    let days = |days: i64| NOW + days * 86_400_000;
    tidy::prune(&mut file, &std::collections::BTreeSet::default(), days(29));
    assert_eq!(file.bucket("p", "m").unwrap().generation, 1);
    tidy::prune(&mut file, &std::collections::BTreeSet::default(), days(31));
    assert!(file.bucket("p", "m").is_none());
}

#[test]
fn what_could_not_be_written_is_not_lost_under_what_came_after() {
    let first = apply_change(explores(30), |change| change.cleared = Some(At(NOW)));
    let both = combine(first, cools(3, false, &[5]));
    let (_, change) = &both.buckets[0];
    assert!(change.cleared.is_some() && change.day.as_ref().unwrap().explore);
    assert_eq!(change.cooldowns.len(), 1);
}

fn apply_change(mut changes: Changes, change: impl Fn(&mut BucketChange)) -> Changes {
    changes.buckets.iter_mut().for_each(|(_, bucket)| change(bucket));
    changes
}

/// Another process reports while whoever clears waits for the lock.
#[test]
fn what_was_met_after_a_clear_holds_whichever_was_written_first() {
    let met_at = |since: i64| {
        let entry = CooldownEntry { since: At(NOW + since), ..cooldown(8) };
        let change = BucketChange {
            cooldowns: vec![(Cause::PerDayRequests, entry)],
            ..BucketChange::default()
        };
        only(change)
    };
    let clear = only(BucketChange {
        generation: 1,
        cleared: Some(At(NOW + 10)),
        ..BucketChange::default()
    });
    for (since, holds) in [(9, false), (10, false), (11, true), (20, true), (21, false)] {
        let file = merge(StateFile::empty(), &met_at(since), "wa", NOW + 20);
        let file = merge(file, &clear, "wb", NOW + 20);
        let bucket = file.bucket("p", "m").unwrap();
        assert_eq!(bucket.cooldowns.len(), usize::from(holds), "met at {since}");
        assert_eq!((bucket.generation, bucket.cleared_at), (1, Some(At(NOW + 10))));
    }
}

#[test]
fn an_exploration_given_back_while_it_was_written_is_given_back_in_the_file_too() {
    let explored = |file: &StateFile| file.bucket("p", "m").unwrap().day.clone().unwrap().explored;
    let file = apply(StateFile::empty(), &[("wa", explores(30)), ("wb", used(1))]);
    assert!(explored(&file), "nobody gives back what is another's");
    let file = apply(file, &[("wa", used(0))]);
    assert!(!explored(&file));
    let file = apply(file, &[("wb", explores(30)), ("wa", used(0))]);
    assert!(explored(&file));
}

#[test]
fn of_two_who_want_a_check_that_is_due_the_first_under_the_lock_has_it() {
    let fingerprint = keywheel_core::Fingerprint::of("AQ.EXAMPLE-key-1");
    let told = |next: i64, checked_by: Option<&str>| {
        let quarantine = Quarantine {
            cause: Cause::ExpiredKey.into(),
            since: At(NOW - 100),
            next_check_at: Some(At(NOW + next)),
            checked_by: checked_by.map(Box::from),
            ..Quarantine::default()
        };
        let standing = Standing { quarantine: Some(quarantine), ..Standing::default() };
        let keys = vec![(fingerprint, KeyChange { standing, ..KeyChange::default() })];
        Changes { keys, ..Changes::default() }
    };
    let next = |file: &StateFile| {
        let quarantine = file.keys[&fingerprint].quarantine.clone().unwrap();
        (quarantine.next_check_at.unwrap().ms() - NOW, quarantine.checked_by)
    };
    let due = merge(StateFile::empty(), &told(0, None), "wa", NOW - 100);
    let claimed = merge(due, &told(60, Some("wa")), "wa", NOW);
    // A moment later, and its hour would be over later, too.
    let file = merge(claimed.clone(), &told(61, Some("wb")), "wb", NOW + 1);
    assert_eq!(next(&file), (60, Some("wa".into())));
    // Whoever has it tells what came of it; who comes late then has nothing to do.
    let done = merge(file, &told(1_000, None), "wa", NOW + 2);
    let file = merge(done, &told(62, Some("wb")), "wb", NOW + 2);
    assert_eq!(next(&file), (1_000, None));
    // Who took it and told nothing, loses it when it is due again.
    let file = merge(claimed, &told(120, Some("wb")), "wb", NOW + 60);
    let file = merge(file, &told(60, Some("wa")), "wa", NOW + 61);
    assert_eq!(next(&file), (120, Some("wb".into())));
}
