//! Puts one pool's changes into the file as it is now. Pure: the lock is somebody else's business.
//!
//! The rules, in the order in which they matter:
//!
//! 1. Every writer stores its own absolute counts; only it changes them. The use of a bucket is the
//!    sum.
//! 2. A cooldown of a higher generation replaces those of a lower one; only a clear raises the
//!    generation. What anybody met after a clear holds all the same, whichever was written first.
//! 3. Within a generation, one cooldown per cause, and the later `available_at` wins.
//! 4. A day's exploration, and a free check that is due, belong to whoever wrote first.
//! 5. The two latest days are kept: by the clock of another process, today may be over.
//! 6. What the file has and a change does not mention stays.

use std::cmp::Ordering;

use chrono::NaiveDate;

use keywheel_core::Cause;

use super::{
    changes::{BucketChange, Changes, DayChange, KeyChange, Standing, Told},
    format::{
        BucketEntry, CooldownEntry, Cooldowns, Counts, DayEntry, KeyEntry, LimitEntry, MinuteEntry,
        Quarantine, StateFile,
    },
    time::At,
    words::Vocabulary,
};

/// `base` with the changes of `writer`.
///
/// The same changes again make no difference, except that a clear raises the generation each time.
#[must_use]
pub(crate) fn merge(mut base: StateFile, ours: &Changes, writer: &str, now_ms: i64) -> StateFile {
    for (fingerprint, change) in &ours.keys {
        let entry = base.keys.entry(*fingerprint).or_default();
        entry.label.clone_from(&change.label);
        entry.project.clone_from(&change.project);
        entry.seen_at = Some(At(now_ms));
        entry.proved_free_at = entry.proved_free_at.max(change.proved_free_at);
        merge_key_standing(entry, &change.standing, ours.told, (writer, now_ms));
    }
    for (project, standing) in &ours.projects {
        let entry = base.projects.entry((&**project).into()).or_default();
        let clears = (&mut entry.generation, &mut entry.cleared_at);
        let taken = Taken::of(clears, standing.generation, standing.cleared, ours.told, now_ms);
        merge_cooldowns(&mut entry.cooldowns, &standing.cooldowns, taken);
        let quarantine = standing.quarantine.as_ref();
        merge_quarantine(&mut entry.quarantine, quarantine, taken, (writer, now_ms));
    }
    for (bucket, change) in &ours.buckets {
        let entry = base.buckets.entry(bucket.clone()).or_default();
        merge_bucket(entry, change, writer, ours.told, now_ms);
    }
    base
}

/// True when a cooldown or quarantine in `ours` that is new will not be in the file after [`merge`]:
/// somebody cleared after it was met, and its writer has not heard of that.
///
/// What the writer has `heard` from the file is not new, nor is what it told before.
#[must_use]
pub(crate) fn loses_news(base: &StateFile, ours: &Changes, heard: &StateFile, now_ms: i64) -> bool {
    let told = ours.told;
    let lost = |cleared_at, since: At| {
        since >= told.before && !Taken::Newer(span_of_news(cleared_at, told, now_ms)).takes(since)
    };
    let lost_any = |cleared_at, cooldowns: &[(Cause, CooldownEntry)], heard: Option<&Cooldowns>| {
        cooldowns.iter().any(|(cause, cooldown)| {
            let there = heard.and_then(|heard| heard.find(cause.word()));
            lost(cleared_at, cooldown.since) && there.is_none_or(|it| it.since != cooldown.since)
        })
    };
    let lost_quarantine = |cleared_at, ours: Option<&Quarantine>, heard: Option<&Quarantine>| {
        let there = heard.map(|quarantine| quarantine.since);
        ours.is_some_and(|it| lost(cleared_at, it.since) && there != Some(it.since))
    };
    let behind =
        |ours: &Standing, generation| ours.cleared.is_none() && ours.generation < generation;
    ours.keys.iter().any(|(fingerprint, KeyChange { standing, .. })| {
        let Some(entry) = base.keys.get(fingerprint) else { return false };
        let (at, heard) = (entry.cleared_at, heard.keys.get(fingerprint));
        let quarantine = heard.and_then(|entry| entry.quarantine.as_deref());
        behind(standing, entry.generation)
            && (lost_any(at, &standing.cooldowns, heard.map(|entry| &entry.cooldowns))
                || lost_quarantine(at, standing.quarantine.as_ref(), quarantine))
    }) || ours.projects.iter().any(|(project, standing)| {
        let Some(entry) = base.projects.get(&**project) else { return false };
        let (at, heard) = (entry.cleared_at, heard.projects.get(&**project));
        let quarantine = heard.and_then(|entry| entry.quarantine.as_deref());
        behind(standing, entry.generation)
            && (lost_any(at, &standing.cooldowns, heard.map(|entry| &entry.cooldowns))
                || lost_quarantine(at, standing.quarantine.as_ref(), quarantine))
    }) || ours.buckets.iter().any(|(key, change)| {
        let Some(entry) = base.buckets.get(key) else { return false };
        let heard = heard.buckets.get(key).map(|entry| &entry.cooldowns);
        change.cleared.is_none()
            && change.generation < entry.generation
            && lost_any(entry.cleared_at, &change.cooldowns, heard)
    })
}

/// Puts `newer` over changes that could not be written yet.
#[must_use]
pub(crate) fn combine(older: Changes, newer: Changes) -> Changes {
    if older.is_empty() {
        return newer;
    }
    let mut out = older;
    combine_by(&mut out.keys, newer.keys, |old, new| {
        new.standing.cleared = new.standing.cleared.max(old.standing.cleared);
    });
    combine_by(&mut out.projects, newer.projects, |old, new| {
        new.cleared = new.cleared.max(old.cleared);
    });
    combine_by(&mut out.buckets, newer.buckets, |old, new| {
        new.cleared = new.cleared.max(old.cleared);
        // A claim on an exploration that is not in the newer day was given back.
        if new.day.is_none() {
            new.day.clone_from(&old.day);
        }
        if new.boundary.is_none() {
            new.boundary.clone_from(&old.boundary);
        }
    });
    out
}

fn combine_by<K: Ord + Clone, C>(
    older: &mut Vec<(K, C)>,
    newer: Vec<(K, C)>,
    keep: impl Fn(&C, &mut C),
) {
    let mut all: std::collections::BTreeMap<K, C> = older.drain(..).collect();
    for (key, mut change) in newer {
        if let Some(old) = all.get(&key) {
            keep(old, &mut change);
        }
        all.insert(key, change);
    }
    older.extend(all);
}

/// Whose cooldowns hold after a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Ours: a clear stands between the file's and ours. Of the file's, what was set later than the
    /// first moment, which is that of our clear, and no later than the second.
    Ours(Option<(At, At)>),
    /// Both.
    Both,
    /// The file's, and of ours what came after the clear that we have not heard of: set later than
    /// the first moment, and no later than the second.
    Newer((At, At)),
}

impl Taken {
    /// Decides, and raises the generation to what holds then.
    fn of(
        (generation, cleared_at): (&mut u64, &mut Option<At>),
        ours: u64,
        cleared: Option<At>,
        told: Told,
        now_ms: i64,
    ) -> Self {
        let raised = if cleared.is_some() {
            // Our copy may be old: whoever clears means what is in the file now, however often that
            // was cleared.
            ours.max(generation.saturating_add(1))
        } else {
            ours
        };
        if cleared.is_some() || raised > *generation {
            *generation = raised;
            let at = cleared.or(told.now).unwrap_or(At(now_ms));
            *cleared_at = (*cleared_at).max(Some(at));
            // The lock may have been long in coming: what others met since is not what was cleared.
            return Self::Ours(cleared.map(|at| (at, At(now_ms))));
        }
        if raised == *generation {
            return Self::Both;
        }
        Self::Newer(span_of_news(*cleared_at, told, now_ms))
    }

    /// Whether what was set at `since` on our side holds.
    fn takes(self, since: At) -> bool {
        match self {
            Self::Ours(_) | Self::Both => true,
            Self::Newer(span) => is_within(span, since),
        }
    }

    /// Whether what was set at `since` in the file holds.
    fn leaves(self, since: At) -> bool {
        match self {
            Self::Ours(span) => span.is_some_and(|span| is_within(span, since)),
            Self::Both | Self::Newer(_) => true,
        }
    }
}

fn is_within((after, until): (At, At), since: At) -> bool {
    after < since && since <= until
}

/// When news must have been set to come after a clear.
///
/// What was told before is an old copy, whenever it was set: the clear may have been made by hand,
/// without a moment. What is ahead of the clock proves nothing.
fn span_of_news(cleared_at: Option<At>, told: Told, now_ms: i64) -> (At, At) {
    let told_before = At(told.before.ms().saturating_sub(1));
    (cleared_at.unwrap_or(At(i64::MAX)).max(told_before), At(now_ms))
}

fn merge_key_standing(entry: &mut KeyEntry, ours: &Standing, told: Told, by: (&str, i64)) {
    let clears = (&mut entry.generation, &mut entry.cleared_at);
    let taken = Taken::of(clears, ours.generation, ours.cleared, told, by.1);
    merge_cooldowns(&mut entry.cooldowns, &ours.cooldowns, taken);
    merge_quarantine(&mut entry.quarantine, ours.quarantine.as_ref(), taken, by);
}

fn merge_cooldowns(base: &mut Cooldowns, ours: &[(Cause, CooldownEntry)], taken: Taken) {
    base.retain(|_, there| taken.leaves(there.since));
    for (cause, cooldown) in ours.iter().filter(|(_, cooldown)| taken.takes(cooldown.since)) {
        match base.find_mut(cause.word()) {
            None => base.insert((*cause).into(), cooldown.clone()),
            Some(there) if lasts_longer(cooldown, there) => {
                let extra = std::mem::take(&mut there.extra);
                *there = CooldownEntry { extra, ..cooldown.clone() };
            }
            Some(_) => {}
        }
    }
}

/// True when `ours` ends after `there`. A cooldown without an end is the longest.
fn lasts_longer(ours: &CooldownEntry, there: &CooldownEntry) -> bool {
    let end = |entry: &CooldownEntry| entry.available_at.map_or(i64::MAX, At::ms);
    end(ours) > end(there)
}

fn merge_quarantine(
    base: &mut Option<Box<Quarantine>>,
    ours: Option<&Quarantine>,
    taken: Taken,
    (writer, now_ms): (&str, i64),
) {
    *base = base.take().filter(|there| taken.leaves(there.since));
    let Some(ours) = ours.filter(|ours| taken.takes(ours.since)) else { return };
    let Some(there) = base else {
        *base = Some(Box::new(ours.clone()));
        return;
    };
    // A check that is not due any more is somebody else's, or done.
    let claims = |quarantine: &Quarantine| quarantine.checked_by.as_deref() == Some(writer);
    let too_late = claims(ours) && !claims(there) && there.next_check_at > Some(At(now_ms));
    let later = if too_late || there.next_check_at > ours.next_check_at { &**there } else { ours };
    let (next_check_at, checked_by) = (later.next_check_at, later.checked_by.clone());
    if weight(ours) > weight(there) {
        let extra = std::mem::take(&mut there.extra);
        **there = Quarantine { extra, ..ours.clone() };
    }
    there.next_check_at = next_check_at;
    there.checked_by = checked_by;
}

/// What only a hand can clear outweighs what a check may clear; then the later one.
fn weight(quarantine: &Quarantine) -> (bool, At) {
    let by_hand =
        quarantine.cause.known().and_then(Cause::release) == Some(keywheel_core::Release::ByHand);
    (by_hand, quarantine.since)
}

fn merge_bucket(
    entry: &mut BucketEntry,
    ours: &BucketChange,
    writer: &str,
    told: Told,
    now_ms: i64,
) {
    let clears = (&mut entry.generation, &mut entry.cleared_at);
    let taken = Taken::of(clears, ours.generation, ours.cleared, told, now_ms);
    merge_cooldowns(&mut entry.cooldowns, &ours.cooldowns, taken);
    if let Some(day) = &ours.day {
        merge_day(entry, day, writer);
    }
    merge_minute(&mut entry.minute, ours, writer);
    for (dimension, limit) in &ours.limits {
        match entry.limits.find_mut(dimension.word()) {
            None => entry.limits.insert((*dimension).into(), limit.clone()),
            Some(there) if there.at < limit.at => {
                let extra = std::mem::take(&mut there.extra);
                *there = LimitEntry { extra, ..limit.clone() };
            }
            Some(_) => {}
        }
    }
    if let Some(boundary) = &ours.boundary
        && entry.boundary.as_ref().is_none_or(|there| there.at < boundary.at)
    {
        entry.boundary = Some(Box::new(boundary.clone()));
    }
}

fn merge_day(entry: &mut BucketEntry, ours: &DayChange, writer: &str) {
    let used = ours.requests > 0 || ours.tokens > 0;
    let order = (ours.date, ours.began_at);
    // Nothing to tell.
    if !used && !ours.explore && entry.day_of(order).is_none() {
        return;
    }
    let Some(there) = day_at(entry, order) else { return };
    there.ends_at = there.ends_at.max(ours.ends_at);
    if used || there.by.find(writer).is_some() {
        // Ours replaces, it is not the larger that wins: a refused request is given back.
        let counts: &mut Counts = there.by.entry(writer);
        counts.requests = ours.requests;
        counts.tokens = ours.tokens;
    }
    if ours.explore && !there.explored {
        there.explored = true;
        there.explored_by = Some(writer.into());
    } else if !ours.explore && there.explored_by.as_deref() == Some(writer) {
        // Given back while it was written: nobody sent anything.
        there.explored = false;
        there.explored_by = None;
    }
}

/// The day of `order`, begun if need be; `None` when it is earlier than the two that are kept.
///
/// Two, since it is not known whose clock is right: by one that is an hour ahead, today is over.
fn day_at(entry: &mut BucketEntry, order: (NaiveDate, Option<At>)) -> Option<&mut DayEntry> {
    let begin = || {
        let (date, began_at) = order;
        Box::new(DayEntry { date, began_at, ..DayEntry::default() })
    };
    let latest = entry.day.get_or_insert_with(begin);
    match order.cmp(&latest.order()) {
        Ordering::Equal => return entry.day.as_deref_mut(),
        Ordering::Greater => {
            entry.day_before = entry.day.replace(begin());
            return entry.day.as_deref_mut();
        }
        Ordering::Less => {}
    }
    let before = entry.day_before.get_or_insert_with(begin);
    match order.cmp(&before.order()) {
        Ordering::Equal => {}
        Ordering::Greater => *before = begin(),
        Ordering::Less => return None,
    }
    Some(before)
}

fn merge_minute(base: &mut Option<Box<MinuteEntry>>, ours: &BucketChange, writer: &str) {
    if !ours.minute.is_empty() {
        base.get_or_insert_default().by.insert(writer.into(), ours.minute.clone());
        return;
    }
    let Some(there) = base else { return };
    there.by.remove(writer);
    if there.by.is_empty() {
        *base = None;
    }
}

#[cfg(test)]
mod tests;
