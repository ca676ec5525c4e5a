//! Puts one pool's changes into the file as it is now. Pure: the lock is somebody else's business.
//!
//! The rules, in the order in which they matter:
//!
//! 1. Every writer stores its own absolute counts; only it changes them. The use of a bucket is the
//!    sum.
//! 2. A cooldown of a higher generation replaces those of a lower one; only a clear raises the
//!    generation.
//! 3. Within a generation, one cooldown per cause, and the later `available_at` wins.
//! 4. A day's exploration belongs to whoever wrote first.
//! 5. What the file has and a change does not mention stays.

use keywheel_core::Cause;

use super::{
    changes::{BucketChange, Changes, DayChange, Standing},
    format::{
        BucketEntry, CooldownEntry, Cooldowns, Counts, DayEntry, KeyEntry, LimitEntry, MinuteEntry,
        Quarantine, StateFile,
    },
    time::At,
    words::{Small, Vocabulary},
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
        merge_key_standing(entry, &change.standing);
    }
    for (project, standing) in &ours.projects {
        let entry = base.projects.entry((&**project).into()).or_default();
        let taken = Taken::of(&mut entry.generation, standing.generation, standing.cleared);
        if taken == Taken::Ours {
            entry.cleared_at = Some(At(now_ms));
        }
        merge_cooldowns(&mut entry.cooldowns, &standing.cooldowns, taken);
        merge_quarantine(&mut entry.quarantine, standing.quarantine.as_ref(), taken);
    }
    for (bucket, change) in &ours.buckets {
        merge_bucket(base.buckets.entry(bucket.clone()).or_default(), change, writer, now_ms);
    }
    base
}

/// Puts `newer` over changes that could not be written yet.
#[must_use]
pub(crate) fn combine(older: Changes, newer: Changes) -> Changes {
    if older.is_empty() {
        return newer;
    }
    let mut out = older;
    combine_by(&mut out.keys, newer.keys, |old, new| {
        new.standing.cleared |= old.standing.cleared;
    });
    combine_by(&mut out.projects, newer.projects, |old, new| new.cleared |= old.cleared);
    combine_by(&mut out.buckets, newer.buckets, |old, new| {
        new.cleared |= old.cleared;
        match (&old.day, &mut new.day) {
            (Some(was), Some(is)) if (was.date, was.began_at) == (is.date, is.began_at) => {
                is.explore |= was.explore;
            }
            (Some(was), none @ None) => *none = Some(was.clone()),
            _ => {}
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
    /// Ours alone: a clear stands between the file's and ours.
    Ours,
    /// Both.
    Both,
    /// The file's alone: ours were cleared by somebody.
    Theirs,
}

impl Taken {
    /// Decides, and raises `generation` to what holds then.
    fn of(generation: &mut u64, ours: u64, cleared: bool) -> Self {
        if cleared {
            // Our copy may be old: whoever clears means what is in the file now, however often that
            // was cleared.
            *generation = ours.max(generation.saturating_add(1));
            return Self::Ours;
        }
        match ours.cmp(generation) {
            std::cmp::Ordering::Greater => {
                *generation = ours;
                Self::Ours
            }
            std::cmp::Ordering::Equal => Self::Both,
            std::cmp::Ordering::Less => Self::Theirs,
        }
    }
}

fn merge_key_standing(entry: &mut KeyEntry, ours: &Standing) {
    let taken = Taken::of(&mut entry.generation, ours.generation, ours.cleared);
    merge_cooldowns(&mut entry.cooldowns, &ours.cooldowns, taken);
    merge_quarantine(&mut entry.quarantine, ours.quarantine.as_ref(), taken);
}

fn merge_cooldowns(base: &mut Cooldowns, ours: &[(Cause, CooldownEntry)], taken: Taken) {
    match taken {
        Taken::Theirs => return,
        Taken::Ours => *base = Small::default(),
        Taken::Both => {}
    }
    for (cause, cooldown) in ours {
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

fn merge_quarantine(base: &mut Option<Box<Quarantine>>, ours: Option<&Quarantine>, taken: Taken) {
    match taken {
        Taken::Theirs => return,
        Taken::Ours => *base = None,
        Taken::Both => {}
    }
    let Some(ours) = ours else { return };
    let Some(there) = base else {
        *base = Some(Box::new(ours.clone()));
        return;
    };
    let next_check_at = there.next_check_at.max(ours.next_check_at);
    if weight(ours) > weight(there) {
        let extra = std::mem::take(&mut there.extra);
        **there = Quarantine { extra, ..ours.clone() };
    }
    there.next_check_at = next_check_at;
}

/// What only a hand can clear outweighs what a check may clear; then the later one.
fn weight(quarantine: &Quarantine) -> (bool, At) {
    let by_hand =
        quarantine.cause.known().and_then(Cause::release) == Some(keywheel_core::Release::ByHand);
    (by_hand, quarantine.since)
}

fn merge_bucket(entry: &mut BucketEntry, ours: &BucketChange, writer: &str, now_ms: i64) {
    let taken = Taken::of(&mut entry.generation, ours.generation, ours.cleared);
    if taken == Taken::Ours {
        entry.cleared_at = Some(At(now_ms));
    }
    merge_cooldowns(&mut entry.cooldowns, &ours.cooldowns, taken);
    if let Some(day) = &ours.day {
        merge_day(&mut entry.day, day, writer);
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

fn merge_day(base: &mut Option<Box<DayEntry>>, ours: &DayChange, writer: &str) {
    let used = ours.requests > 0 || ours.tokens > 0;
    let there = match base {
        Some(there) => there,
        // Nothing to tell.
        None if !used && !ours.explore => return,
        None => base.insert(Box::new(begin(ours))),
    };
    let order = (ours.date, ours.began_at);
    if there.order() > order {
        return;
    }
    if there.order() < order {
        let extra = std::mem::take(&mut there.extra);
        **there = DayEntry { extra, ..begin(ours) };
    }
    if used || there.by.find(writer).is_some() {
        // Ours replaces, it is not the larger that wins: a refused request is given back.
        let counts: &mut Counts = there.by.entry(writer);
        counts.requests = ours.requests;
        counts.tokens = ours.tokens;
    }
    if ours.explore && !there.explored {
        there.explored = true;
        there.explored_by = Some(writer.into());
    }
}

fn begin(ours: &DayChange) -> DayEntry {
    DayEntry { date: ours.date, began_at: ours.began_at, ..DayEntry::default() }
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
