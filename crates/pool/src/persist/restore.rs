//! What one writer has to say about everything it knows, for when the file forgot it.

use super::{
    changes::{BucketChange, Changes, DayChange, KeyChange, Standing},
    format::{BucketEntry, Cooldowns, Quarantine, StateFile},
    words::{Vocabulary, Word},
};

/// `known` as the changes of `writer`: its own counts, and every cooldown, quarantine and limit.
///
/// Put over an old copy of the file, it brings back what the copy lacks and counts nothing twice.
#[must_use]
pub(super) fn own_part(known: &StateFile, writer: &str) -> Changes {
    let keys = known.keys.iter().map(|(fingerprint, entry)| {
        let standing = standing(entry.generation, &entry.cooldowns, entry.quarantine.as_deref());
        let (label, project) = (entry.label.clone(), entry.project.clone());
        let proved_free_at = entry.proved_free_at;
        (*fingerprint, KeyChange { label, project, proved_free_at, standing })
    });
    let projects = known.projects.iter().map(|(project, entry)| {
        let quarantine = entry.quarantine.as_deref();
        ((&**project).into(), standing(entry.generation, &entry.cooldowns, quarantine))
    });
    let buckets = known.buckets.iter().map(|(key, entry)| (key.clone(), bucket(entry, writer)));
    Changes {
        keys: keys.collect(),
        projects: projects.collect(),
        buckets: buckets.collect(),
        ..Changes::default()
    }
}

fn standing(generation: u64, cooldowns: &Cooldowns, quarantine: Option<&Quarantine>) -> Standing {
    let quarantine = quarantine.cloned();
    Standing { generation, cleared: None, cooldowns: all(cooldowns), quarantine }
}

fn bucket(entry: &BucketEntry, writer: &str) -> BucketChange {
    // The latest in which it counted; of the others' there is nothing of its own to bring back.
    let counted = |day: &&super::format::DayEntry| day.by.find(writer).is_some();
    let day = entry.days().find(counted).or(entry.day.as_deref()).map(|day| {
        let counts = day.by.find(writer).cloned().unwrap_or_default();
        DayChange {
            date: day.date,
            began_at: day.began_at,
            ends_at: day.ends_at,
            requests: counts.requests,
            tokens: counts.tokens,
            explore: day.explored_by.as_deref() == Some(writer),
        }
    });
    let minute = entry.minute.as_ref().and_then(|minute| minute.by.find(writer));
    BucketChange {
        generation: entry.generation,
        cleared: None,
        cooldowns: all(&entry.cooldowns),
        day,
        minute: minute.cloned().unwrap_or_default(),
        limits: entry.limits.known().map(|(dimension, limit)| (dimension, limit.clone())).collect(),
        boundary: entry.boundary.as_deref().cloned(),
    }
}

fn all<T: Vocabulary, V: Clone>(entries: &super::words::Small<Word<T>, V>) -> Vec<(T, V)> {
    entries.known().map(|(word, entry)| (word, entry.clone())).collect()
}
