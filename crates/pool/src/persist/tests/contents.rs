//! What stands in the file and for how long, without a pool.

use std::collections::BTreeSet;

use keywheel_core::Fingerprint;

use super::{
    super::format::{Counts, DayEntry, KeyEntry},
    *,
};

#[test]
fn the_example_of_the_documentation_survives_a_rewrite_with_all_its_unknown_fields() {
    let mut written = Vec::new();
    layout::write(&parse(EXAMPLE.as_bytes()).unwrap(), &mut written).unwrap();
    let before: serde_json::Value = serde_json::from_str(EXAMPLE).unwrap();
    let after: serde_json::Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(after, before);
    assert_eq!(EXAMPLE.matches("later").count(), 12, "every level has an unknown field or word");
    // And it looks as it is shown.
    assert_eq!(String::from_utf8(written).unwrap(), EXAMPLE);
}

#[test]
fn ten_thousand_keys_fit_into_fifty_megabytes() {
    let mut written = Vec::new();
    let file = large();
    layout::write(&file, &mut written).unwrap();
    assert!(written.len() < 50_000_000, "{} bytes", written.len());
    let began = Instant::now();
    let back = parse(&written).unwrap();
    println!("FIGURE state_bytes={} parse_ms={}", written.len(), began.elapsed().as_millis());
    assert_eq!(back, file);
}

#[test]
fn keys_of_others_are_kept_for_thirty_days_after_they_were_last_seen() {
    let mut file = parse(EXAMPLE.as_bytes()).unwrap();
    let seen = At::parse("2026-11-30T07:12:03Z").unwrap().ms();
    let days = |days: i64| seen + days * 86_400_000;
    let nobody = BTreeSet::new();
    tidy::prune(&mut file, &nobody, days(29));
    assert_eq!(file.keys.len(), 1);
    let ours: BTreeSet<_> = file.keys.keys().copied().collect();
    tidy::prune(&mut file, &ours, days(31));
    assert_eq!(file.keys.len(), 1, "a key that this process has is never dropped");
    tidy::prune(&mut file, &nobody, days(60));
    assert_eq!(file.keys.len(), 1, "it was seen on day 31");
    tidy::prune(&mut file, &nobody, days(62));
    assert!(file.keys.is_empty() && file.buckets.is_empty() && file.projects.is_empty());
}

#[test]
fn models_that_somebody_made_up_do_not_fill_the_file() {
    let used = |requests| {
        let counts = Counts { requests, ..Counts::default() };
        let mut day = DayEntry { date: "2026-11-30".parse().unwrap(), ..DayEntry::default() };
        day.by.entry("writer").add(&counts);
        BucketEntry { day: Some(Box::new(day)), ..BucketEntry::default() }
    };
    let mut file = parse(EXAMPLE.as_bytes()).unwrap();
    let known: Vec<_> = file.buckets.keys().cloned().collect();
    let real = BucketKey::new("mine", "gemini-3.6-flash");
    file.buckets.insert(real.clone(), used(3));
    for number in 0..1_200 {
        for project in ["mine", "theirs"] {
            let made_up = BucketKey::new(project, &format!("made-up-{number}"));
            file.buckets.insert(made_up, used(1));
        }
    }
    let now_ms = At::parse("2026-11-30T07:12:03Z").unwrap().ms();
    tidy::prune(&mut file, &BTreeSet::new(), now_ms);
    for key in known.iter().chain([&real]) {
        assert!(file.buckets.contains_key(key), "{key:?} is no name that was made up");
    }
    let made_up = file.buckets.keys().filter(|key| key.model().starts_with("made-up"));
    assert_eq!(made_up.count(), 2 * (256 - 1), "all but the one that was used more");
}

#[test]
fn models_that_somebody_made_up_and_the_provider_refused_do_not_fill_it_either() {
    let refused = |requests, until: &str| {
        let counts = Counts { requests, ..Counts::default() };
        let mut day = DayEntry { date: "2026-11-30".parse().unwrap(), ..DayEntry::default() };
        day.by.entry("writer").add(&counts);
        let out = cooldown_until(At::parse(until).unwrap());
        let cooldowns = [(Cause::UnspecifiedQuota.into(), out)].into_iter().collect();
        BucketEntry { day: Some(Box::new(day)), cooldowns, ..BucketEntry::default() }
    };
    let mut file = StateFile::default();
    let real = BucketKey::new("mine", "gemini-3.6-flash");
    file.buckets.insert(real.clone(), refused(3, "2026-11-30T08:00:00Z"));
    for number in 0..1_200 {
        let made_up = BucketKey::new("mine", &format!("made-up-{number}"));
        file.buckets.insert(made_up, refused(1, "2026-12-01T08:00:00Z"));
    }
    let now_ms = At::parse("2026-11-30T07:12:03Z").unwrap().ms();
    tidy::prune(&mut file, &BTreeSet::new(), now_ms);
    assert_eq!(file.buckets.len(), 256);
    assert!(file.buckets.contains_key(&real), "it was used more than they");
}

#[test]
fn available_at_of_a_key_is_the_soonest_over_its_buckets() {
    let at = |text: &str| At::parse(text).unwrap();
    let now_ms = at("2026-11-30T07:12:03Z").ms();
    let mut file = parse(EXAMPLE.as_bytes()).unwrap();
    let key = *file.keys.keys().next().unwrap();
    file.projects.clear();
    tidy::derive_available_at(&mut file, now_ms);
    assert_eq!(file.keys[&key].available_at, Some(at("2026-11-30T08:00:02Z")));
    // Another model that comes back sooner, in spite of a tool that does not.
    let mut other = file.buckets.values().next().unwrap().clone();
    other.cooldowns = [
        (Cause::PerMinuteRequests.into(), cooldown_until(at("2026-11-30T07:13:00Z"))),
        (Cause::ToolQuota.into(), cooldown_until(at("2026-11-30T08:12:00Z"))),
    ]
    .into_iter()
    .collect();
    file.buckets.insert(BucketKey::new("key:3fa1c09be2d4", "other"), other);
    tidy::derive_available_at(&mut file, now_ms);
    assert_eq!(file.keys[&key].available_at, Some(at("2026-11-30T07:13:00Z")));
    // A model that is free now.
    file.buckets.insert(BucketKey::new("key:3fa1c09be2d4", "free"), BucketEntry::default());
    tidy::derive_available_at(&mut file, now_ms);
    assert_eq!(file.keys[&key].available_at, None);
}

fn cooldown_until(until: At) -> CooldownEntry {
    CooldownEntry { available_at: Some(until), ..CooldownEntry::default() }
}

/// A file of 10,000 keys with 5 models each, all of them spent.
fn large() -> StateFile {
    let key = r#"{"label": "GEMINI_API_KEY_1234", "seen_at": "2026-11-30T07:12:03Z",
        "available_at": "2026-11-30T08:00:02Z", "quarantine": null}"#;
    let bucket = r#"{"generation": 2, "cooldowns": {"per_day_requests": {
            "since": "2026-11-29T22:40:11.123Z",
        "available_at": "2026-11-30T08:00:02Z", "source": "derived"}},
        "day": {"date": "2026-11-29", "explored": true, "explored_by": "w5f3a09c1d2",
            "by": {"w5f3a09c1d2": {"requests": 500, "tokens": 81234},
                "folded": {"requests": 9, "tokens": 1234}}},
        "minute": {"by": {"w5f3a09c1d2": [["2026-11-30T07:12:01.001Z", 1, 210]]}},
        "limits": {"rpd": {"value": 500, "source": "learned", "at": "2026-11-29T19:03:11.456Z"},
            "rpm": {"value": 15, "source": "learned", "at": "2026-11-29T19:03:11.456Z"}}}"#;
    let key: KeyEntry = serde_json::from_str(key).unwrap();
    let bucket: BucketEntry = serde_json::from_str(bucket).unwrap();
    let mut file = StateFile::empty();
    for index in 0..10_000 {
        let fingerprint = Fingerprint::of(&index.to_string());
        let project = format!("key:{fingerprint}");
        for model in
            ["gemini-3.5-flash-lite", "gemini-3.6-flash", "gemini-3.6-pro", "gemma-4", "embed-2"]
        {
            file.buckets.insert(BucketKey::new(&project, model), bucket.clone());
        }
        let key = KeyEntry { project: project.into(), ..key.clone() };
        file.keys.insert(fingerprint, key);
    }
    file
}
