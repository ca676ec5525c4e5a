//! Housekeeping of the file: what is absurd, what is over, who is gone, what readers want to see.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chrono::NaiveDate;
use keywheel_core::{Cause, Fingerprint, QuotaDay, clock::from_unix_ms};

use super::{
    bounds::{SKEW_MS, Waits},
    format::{BucketEntry, Cooldowns, Counts, DayEntry, FOLDED, Quarantine, StateFile},
    time::At,
    words::Word,
};

const DAY_MS: i64 = 86_400_000;
/// How far the clocks of two processes may be apart before the later day of one is taken for a mistake.
const CLOCKS_APART_MS: i64 = 3_600_000;
/// More clears than that are a number that somebody made up; from here on there is room to count.
const HIGHEST_GENERATION: u64 = 1 << 53;
/// A minute, and half of one for a server that stamps arrival later than we stamp sending.
const MINUTE_KEPT_MS: i64 = 90_000;
/// How long a cooldown that is over is kept: the ladder of guesses looks back at the last one.
const COOLDOWN_KEPT_MS: i64 = 2 * DAY_MS;
/// How long keys that nobody has, and buckets that nobody uses, are kept.
const KEPT_MS: i64 = 30 * DAY_MS;
/// How many models are kept of which nothing is known but how often they were asked for, and as many of which more is
/// known: whoever asks can make names up, and an upstream may refuse whatever it is asked for.
const MOST_MODELS: usize = 256;

/// The latest days that can have begun by any clock that may be right.
struct LatestDays {
    date: NaiveDate,
    /// For days with a boundary of their own, and days by a strategy of the user's: they are named by
    /// the date on which they end.
    own_date: NaiveDate,
    began_at: At,
    pacific: bool,
}

impl LatestDays {
    fn at(now_ms: i64, waits: &Waits) -> Self {
        let latest_ms = now_ms.saturating_add(CLOCKS_APART_MS);
        let date = |ms| QuotaDay::containing(from_unix_ms(ms)).date();
        let longest_ms = waits.longest_ms(Cause::PerDayRequests);
        Self {
            date: date(latest_ms),
            own_date: date(latest_ms.saturating_add(longest_ms)),
            began_at: At(latest_ms),
            pacific: longest_ms == Waits::default().longest_ms(Cause::PerDayRequests),
        }
    }

    /// Drops days that have not begun: those that have count again then.
    fn cut(&self, bucket: &mut BucketEntry) {
        let begun = |day: &DayEntry| match day.began_at {
            Some(began_at) => began_at <= self.began_at && day.date <= self.own_date,
            None if self.pacific && day.ends_at.is_none() => day.date <= self.date,
            None => day.date <= self.own_date,
        };
        bucket.day_before = bucket.day_before.take().filter(|day| begun(day));
        bucket.day =
            bucket.day.take().filter(|day| begun(day)).or_else(|| bucket.day_before.take());
        let latest = bucket.day.as_ref().map(|day| day.order());
        bucket.day_before = bucket.day_before.take().filter(|day| Some(day.order()) < latest);
    }
}

/// Cuts what cannot be: moments in the future of a clock that once stood wrong. Done to every file
/// read.
pub(crate) fn make_sane(file: &mut StateFile, waits: &Waits, now_ms: i64) {
    let latest = At(now_ms.saturating_add(SKEW_MS));
    let not_later = |at: &mut At| {
        if *at > latest {
            *at = At(now_ms);
        }
    };
    // The later statement wins: one of the future loses to whatever was learned since the clock went back.
    let outweighed = |at: &mut At| {
        if *at > latest {
            *at = At(now_ms.saturating_sub(SKEW_MS));
        }
    };
    let days = LatestDays::at(now_ms, waits);

    for (_, writer) in file.writers.iter_mut() {
        not_later(&mut writer.seen_at);
    }
    for entry in file.keys.values_mut() {
        not_later(entry.seen_at.get_or_insert(At(now_ms)));
        entry.cleared_at.iter_mut().for_each(not_later);
        entry.generation = entry.generation.min(HIGHEST_GENERATION);
        entry.proved_free_at.iter_mut().for_each(not_later);
        bound_all(&mut entry.cooldowns, waits, now_ms);
        bound_quarantine(entry.quarantine.as_deref_mut(), latest, now_ms);
    }
    for entry in file.projects.values_mut() {
        entry.cleared_at.iter_mut().for_each(not_later);
        entry.generation = entry.generation.min(HIGHEST_GENERATION);
        bound_all(&mut entry.cooldowns, waits, now_ms);
        bound_quarantine(entry.quarantine.as_deref_mut(), latest, now_ms);
    }
    for bucket in file.buckets.values_mut() {
        bound_all(&mut bucket.cooldowns, waits, now_ms);
        bucket.cleared_at.iter_mut().for_each(not_later);
        bucket.generation = bucket.generation.min(HIGHEST_GENERATION);
        days.cut(bucket);
        for (_, limit) in bucket.limits.iter_mut() {
            outweighed(&mut limit.at);
        }
        if let Some(boundary) = &mut bucket.boundary {
            outweighed(&mut boundary.at);
            if boundary.turns_at.ms() > now_ms.saturating_add(2 * DAY_MS) {
                bucket.boundary = None;
            }
        }
    }
}

/// Cuts what cannot be once more if the clock went back since the file was written: what it says of the
/// future would outweigh all that is learned now.
pub(crate) fn make_sane_again(file: &mut StateFile, waits: &Waits, now_ms: i64) {
    if file.saved_at.ms() > now_ms.saturating_add(SKEW_MS) {
        make_sane(file, waits, now_ms);
    }
}

/// Drops what is over: minutes, old cooldowns, keys that nobody has had for 30 days, buckets in
/// which nothing has happened for as long, models of which there are too many. `known` are the keys of this process: they are stamped
/// as seen now.
pub(crate) fn prune(file: &mut StateFile, known: &BTreeSet<Fingerprint>, now_ms: i64) {
    let oldest = At(now_ms.saturating_sub(KEPT_MS));
    file.keys.retain(|fingerprint, entry| {
        prune_cooldowns(&mut entry.cooldowns, now_ms);
        if known.contains(fingerprint) {
            entry.seen_at = Some(At(now_ms));
        }
        *entry.seen_at.get_or_insert(At(now_ms)) >= oldest
    });
    file.buckets.retain(|_, bucket| {
        prune_cooldowns(&mut bucket.cooldowns, now_ms);
        prune_minute(bucket, now_ms);
        last_event(bucket) >= oldest
    });
    prune_models(file);
    let in_use: BTreeSet<&str> = file.keys.values().map(|entry| &*entry.project).collect();
    file.projects.retain(|project, entry| {
        prune_cooldowns(&mut entry.cooldowns, now_ms);
        let since = entry.quarantine.as_ref().map(|quarantine| quarantine.since);
        let cooldowns = entry.cooldowns.iter().map(|(_, it)| it.since);
        let recent = since.into_iter().chain(entry.cleared_at).chain(cooldowns).max();
        in_use.contains(&**project) || recent.is_some_and(|at| at >= oldest)
    });
}

/// Adds the counts of `gone` writers to [`FOLDED`] and forgets the writers.
///
/// Only under the lock, and only for writers that cannot come back: one that did would be counted
/// twice.
pub(crate) fn fold(file: &mut StateFile, gone: &[Box<str>]) {
    if gone.is_empty() {
        return;
    }
    for bucket in file.buckets.values_mut() {
        for day in [&mut bucket.day, &mut bucket.day_before].into_iter().flatten() {
            fold_day(day, gone);
        }
    }
    for writer in gone {
        file.writers.remove(writer);
    }
}

fn fold_day(day: &mut DayEntry, gone: &[Box<str>]) {
    let mut sum = Counts::default();
    for writer in gone {
        if let Some(counts) = day.by.remove(writer) {
            sum.add(&counts);
        }
    }
    if sum.requests > 0 || sum.tokens > 0 {
        day.by.entry(FOLDED).add(&sum);
    }
}

/// Fills in each key's `available_at`: the soonest over its buckets, unless the key or its project
/// is out.
pub(crate) fn derive_available_at(file: &mut StateFile, now_ms: i64) {
    let mut soonest: BTreeMap<String, i64> = BTreeMap::new();
    for (key, bucket) in &file.buckets {
        let until = plain_end(&bucket.cooldowns, now_ms);
        let project = key.project();
        match soonest.get_mut(&*project) {
            Some(there) => *there = until.min(*there),
            None => {
                soonest.insert(project.into_owned(), until);
            }
        }
    }
    for entry in file.keys.values_mut() {
        let buckets = soonest.get(&*entry.project).copied().unwrap_or(i64::MIN);
        let project = file.projects.get(&*entry.project);
        let project = project.map_or(i64::MIN, |project| plain_end(&project.cooldowns, now_ms));
        let until = buckets.max(project).max(plain_end(&entry.cooldowns, now_ms));
        // No moment is known for a model without a free tier, and none is needed when it is
        // available now.
        entry.available_at = (until > now_ms && until < i64::MAX).then_some(At(until));
    }
}

/// When the last cooldown that holds plain requests back ends; `i64::MAX` if no moment is known.
fn plain_end(cooldowns: &Cooldowns, now_ms: i64) -> i64 {
    let plain =
        cooldowns.iter().filter(|(cause, _)| !matches!(cause, Word::Known(Cause::ToolQuota)));
    let ends = plain.map(|(_, entry)| entry.available_at.map_or(i64::MAX, At::ms));
    ends.filter(|end| *end > now_ms).max().unwrap_or(i64::MIN)
}

fn bound_all(cooldowns: &mut Cooldowns, waits: &Waits, now_ms: i64) {
    for (cause, entry) in cooldowns.iter_mut() {
        waits.bound(cause, entry, now_ms);
    }
}

fn bound_quarantine(quarantine: Option<&mut Quarantine>, latest: At, now_ms: i64) {
    let Some(quarantine) = quarantine else { return };
    if quarantine.since > latest {
        quarantine.since = At(now_ms);
    }
    let latest_check = At(now_ms.saturating_add(DAY_MS));
    quarantine.next_check_at = quarantine.next_check_at.map(|at| at.min(latest_check));
}

/// Of the models of which only counts are known, keeps those that were used last and most; and as many of the others.
fn prune_models(file: &mut StateFile) {
    // There are no more models than buckets.
    if file.buckets.len() <= MOST_MODELS {
        return;
    }
    let mut models: HashMap<&str, Worth> = HashMap::new();
    for (key, bucket) in &file.buckets {
        models.entry(key.model()).or_default().add(bucket);
    }
    let (known, plain): (Vec<_>, Vec<_>) =
        models.into_iter().partition(|(_, worth)| worth.has_news);
    let mut dropped: HashSet<Box<str>> = HashSet::new();
    for group in [known, plain] {
        let mut group: Vec<_> =
            group.into_iter().map(|(model, it)| (it.date, it.requests, model)).collect();
        group.sort_unstable_by(|a, b| b.cmp(a));
        dropped.extend(group.into_iter().skip(MOST_MODELS).map(|(.., model)| model.into()));
    }
    if !dropped.is_empty() {
        file.buckets.retain(|key, _| !dropped.contains(key.model()));
    }
}

/// What would be lost with a model.
#[derive(Debug, Default)]
struct Worth {
    /// Something that counting cannot bring back.
    has_news: bool,
    /// The last day on which it was used, and how often.
    date: Option<NaiveDate>,
    requests: u64,
}

impl Worth {
    fn add(&mut self, bucket: &BucketEntry) {
        self.has_news |= bucket.generation > 0
            || bucket.cleared_at.is_some()
            || bucket.boundary.is_some()
            || !bucket.cooldowns.is_empty()
            || !bucket.limits.is_empty()
            || bucket.days().any(|day| day.explored)
            || bucket.extra.iter().next().is_some();
        let Some(day) = bucket.days().next() else { return };
        if Some(day.date) > self.date {
            (self.date, self.requests) = (Some(day.date), 0);
        }
        if Some(day.date) == self.date {
            let used = day.by.iter().map(|(_, counts)| counts.requests);
            self.requests = used.fold(self.requests, u64::saturating_add);
        }
    }
}

fn prune_cooldowns(cooldowns: &mut Cooldowns, now_ms: i64) {
    let oldest = At(now_ms.saturating_sub(COOLDOWN_KEPT_MS));
    cooldowns.retain(|_, entry| entry.available_at.is_none_or(|end| end >= oldest));
}

fn prune_minute(bucket: &mut BucketEntry, now_ms: i64) {
    let Some(minute) = &mut bucket.minute else { return };
    let (oldest, latest) =
        (now_ms.saturating_sub(MINUTE_KEPT_MS), now_ms.saturating_add(MINUTE_KEPT_MS));
    minute.by.retain(|_, uses| {
        uses.retain(|used| (oldest..=latest).contains(&used.0.ms()));
        !uses.is_empty()
    });
    if minute.by.is_empty() {
        bucket.minute = None;
    }
}

/// The last moment at which something happened in a bucket.
fn last_event(bucket: &BucketEntry) -> At {
    let day = bucket.days().next().and_then(|day| day.date.and_hms_opt(0, 0, 0));
    let day = day.map(|midnight| At::from(midnight.and_utc()));
    let cooldowns =
        bucket.cooldowns.iter().map(|(_, entry)| entry.available_at.max(Some(entry.since)));
    let limits = bucket.limits.iter().map(|(_, limit)| Some(limit.at));
    let boundary = bucket.boundary.as_ref().map(|boundary| boundary.at);
    let uses = bucket.minute.iter().flat_map(|minute| minute.by.iter().flat_map(|(_, uses)| uses));
    let minute = uses.map(|used| used.0).max();
    let rest = [day, boundary, minute, bucket.cleared_at];
    cooldowns.chain(limits).chain(rest).flatten().max().unwrap_or_default()
}
