//! The state as the state file has it: what changed goes out, what others wrote comes in.

use std::sync::Arc;

use keywheel_core::Cause;

use super::{
    State,
    boundary::{Boundary as OwnBoundary, LONGEST_DAY_MS},
    bucket::{Bucket, Explored},
    model::Model,
    table::{Quarantined, Stand, Table},
};
use crate::{
    Source,
    cooldown::{Cooldown, FOREVER},
    limits::LearnedLimit,
    persist::{
        At, Boundary, BucketChange, BucketEntry, BucketKey, Changes, CooldownEntry, Cooldowns,
        DayChange, KeyChange, LimitEntry, Quarantine, Shared, Standing, StateFile, Use, WaitSource,
    },
    window::{Amount, Entry},
};

impl State {
    /// Takes over what the file knew when the pool was opened.
    pub(crate) fn take_over(&self, file: &StateFile) {
        self.read(file);
    }

    fn read(&self, file: &StateFile) {
        let now_ms = self.clock.unix_ms();
        {
            let mut table = self.table();
            if read_table(&mut table, file, &self.writer, now_ms) {
                self.roster_changed(&table);
            }
            // Buckets of quota projects that are not loaded are kept, too: a reload may bring the keys back.
            for key in file.buckets.keys() {
                table.project(&key.project());
            }
        }
        let mut projects = Vec::with_capacity(file.buckets.len());
        {
            let table = self.table();
            for (key, entry) in &file.buckets {
                if let Some(row) = table.projects.get(&*key.project()) {
                    projects.push((key.model(), Arc::clone(&row.project), entry));
                }
            }
        }
        projects.sort_by_key(|(model, ..)| *model);
        for group in projects.chunk_by(|a, b| a.0 == b.0) {
            let pool = self.model(&group[0].0.into(), now_ms);
            let mut model = self.enter(&pool, now_ms);
            let known = model.buckets.len();
            model.buckets.reserve_exact(group.len().saturating_sub(known));
            for (_, project, entry) in group {
                let index = model.bucket_of(project);
                read_bucket(&mut model, index, entry, &self.writer, now_ms);
                if model.takes_part(index) {
                    model.place(index, now_ms, &self.rules);
                }
            }
            model.explore_anew();
            model.line.ring();
        }
    }
}

impl Shared for State {
    fn collect(&self) -> Changes {
        let now_ms = self.clock.unix_ms();
        let mut changes = Changes::default();
        {
            let mut table = self.table();
            collect_table(&mut table, &mut changes);
        }
        for pool in self.all_models() {
            let mut model = pool.lock();
            let day = *model.day();
            for index in std::mem::take(&mut model.dirty) {
                let bucket = &mut model.buckets[index as usize];
                bucket.dirty = false;
                bucket.advance(now_ms, &day);
                let key = BucketKey::new(&bucket.project.name, &pool.name);
                changes.buckets.push((key, change_of(bucket, now_ms)));
                model.told.push(index);
            }
        }
        changes
    }

    fn absorb(&self, merged: &StateFile, full: bool) {
        if full {
            return self.read(merged);
        }
        // Only what was collected can have changed: a generation, or an exploration that was granted.
        let now_ms = self.clock.unix_ms();
        for pool in self.all_models() {
            let mut model = pool.lock();
            for index in std::mem::take(&mut model.told) {
                let bucket = &model.buckets[index as usize];
                let Some(entry) = merged.bucket(&bucket.project.name, &pool.name) else { continue };
                read_bucket(&mut model, index, entry, &self.writer, now_ms);
            }
        }
        let mut table = self.table();
        let told = std::mem::take(&mut table.told_keys);
        for fingerprint in told {
            if let (Some(row), Some(entry)) =
                (table.keys.get_mut(&fingerprint), merged.keys.get(&fingerprint))
            {
                row.standing.generation = row.standing.generation.max(entry.generation);
                row.standing.clear_told = false;
            }
        }
        let told = std::mem::take(&mut table.told_projects);
        for name in told {
            if let (Some(row), Some(entry)) =
                (table.projects.get_mut(&name), merged.projects.get(&*name))
            {
                row.standing.generation = row.standing.generation.max(entry.generation);
                row.standing.clear_told = false;
            }
        }
    }
}

fn change_of(bucket: &mut Bucket, now_ms: i64) -> BucketChange {
    let cleared = bucket.take_cleared().map(At);
    bucket.clear_told |= cleared.is_some();
    let active = bucket.cooldowns.iter_mut().filter(|known| known.is_active(now_ms));
    let cooldowns = active.map(told).collect();
    let minute =
        bucket.window.own().map(|entry| Use(At(entry.at_ms), entry.requests, entry.tokens));
    let limits = bucket.learned.iter().map(|limit| {
        let source = if limit.value.is_some() { "learned" } else { "lifted" };
        let entry = LimitEntry {
            value: limit.value,
            source: source.into(),
            at: At(limit.at_ms),
            ..LimitEntry::default()
        };
        (limit.dimension, entry)
    });
    BucketChange {
        generation: bucket.generation,
        cleared,
        cooldowns,
        day: Some(DayChange {
            date: bucket.day.span.date,
            began_at: bucket.day.own_span.then_some(At(bucket.day.span.from_ms)),
            ends_at: (!bucket.day.span.is_pacific).then_some(At(bucket.day.span.end_ms)),
            requests: bucket.day.own.requests,
            tokens: bucket.day.own.tokens,
            explore: matches!(bucket.day.explored, Explored::Claimed | Explored::Ours),
        }),
        minute: minute.collect(),
        limits: limits.collect(),
        boundary: bucket.boundary().map(|own| Boundary {
            turns_at: At(own.turns_at_ms),
            at: At(own.stated_ms),
            ..Boundary::default()
        }),
    }
}

/// The cooldown as the file has it; it counts as told from now on.
fn told(known: &mut Cooldown) -> (Cause, CooldownEntry) {
    known.unsaved = false;
    let source = match known.source {
        Source::Stated => WaitSource::Stated,
        Source::Derived | Source::Counted => WaitSource::Derived,
        Source::Guessed => WaitSource::Guessed,
    };
    let entry = CooldownEntry {
        available_at: (known.until_ms != FOREVER).then_some(At(known.until_ms)),
        source: source.into(),
        since: At(known.since_ms),
        step: known.step.into(),
        ..CooldownEntry::default()
    };
    (known.cause, entry)
}

fn read_bucket(model: &mut Model, index: u32, entry: &BucketEntry, writer: &str, now_ms: i64) {
    let (set, span) = (model.set, *model.day());
    let bucket = &mut model.buckets[index as usize];
    if let Some(stated) = &entry.boundary
        && bucket.boundary().is_none_or(|own| own.stated_ms < stated.at.ms())
        && stated.turns_at.ms().saturating_sub(now_ms) <= LONGEST_DAY_MS
    {
        let (turns_at_ms, stated_ms) = (stated.turns_at.ms(), stated.at.ms());
        bucket.set_boundary(OwnBoundary { turns_at_ms, stated_ms }, &span);
    }
    bucket.advance(now_ms, &span);
    read_cooldowns(bucket, entry, now_ms);
    for (dimension, limit) in entry.limits.known() {
        // A zero in a file that somebody edited would shut the bucket for good.
        let value = limit.value.filter(|value| *value > 0);
        bucket.learned.put(LearnedLimit { dimension, value, at_ms: limit.at.ms() });
    }
    let own = bucket.day.own_span.then_some(At(bucket.day.span.from_ms));
    if let Some(day) = entry.day_of((bucket.day.span.date, own)) {
        let others = day.others(writer);
        bucket.day.others = Amount::new(others.requests, others.tokens);
        let ours = day.explored_by.as_deref() == Some(writer);
        bucket.day.explored = match bucket.day.explored {
            // Given back while the claim was written: the file will hear of it.
            Explored::No if day.explored && ours => Explored::No,
            _ if day.explored && ours => Explored::Ours,
            _ if day.explored => Explored::Others,
            Explored::Others => Explored::No,
            own => own,
        };
    }
    let minute = entry.minute.iter().flat_map(|minute| minute.others(writer));
    let entries = minute.map(|Use(at, requests, tokens)| Entry {
        at_ms: at.ms(),
        requests: *requests,
        tokens: *tokens,
    });
    bucket.window.set_others(entries, now_ms);
    bucket.refresh(&set);
}

fn read_cooldowns(bucket: &mut Bucket, entry: &BucketEntry, now_ms: i64) {
    if entry.generation < bucket.generation {
        return;
    }
    if entry.generation > bucket.generation {
        bucket.generation = entry.generation;
        if !std::mem::take(&mut bucket.clear_told) {
            bucket.clears += 1;
            bucket.forget_trouble();
        }
        bucket.cooldowns.retain(|known| known.unsaved);
    } else {
        bucket.clear_told = false;
    }
    for cooldown in cooldowns_of(&entry.cooldowns, now_ms) {
        let known = bucket.cooldowns.iter().find(|known| known.cause == cooldown.cause);
        if known.is_none_or(|known| known.until_ms < cooldown.until_ms) {
            bucket.put_cooldown(cooldown);
            bucket.resume_ladder(&cooldown);
        }
    }
}

/// The cooldowns in a file that still hold.
fn cooldowns_of(entries: &Cooldowns, now_ms: i64) -> impl Iterator<Item = Cooldown> {
    entries.known().map(cooldown_of).filter(move |cooldown| cooldown.is_active(now_ms))
}

fn cooldown_of((cause, entry): (Cause, &CooldownEntry)) -> Cooldown {
    let source = match entry.source.known() {
        Some(WaitSource::Stated) => Source::Stated,
        Some(WaitSource::Derived) => Source::Derived,
        Some(WaitSource::Guessed) | None => Source::Guessed,
    };
    Cooldown {
        cause,
        until_ms: entry.available_at.map_or(FOREVER, At::ms),
        source,
        since_ms: entry.since.ms(),
        step: u8::try_from(entry.step).unwrap_or(0).min(5),
        unsaved: false,
    }
}

fn collect_table(table: &mut Table, changes: &mut Changes) {
    for fingerprint in std::mem::take(&mut table.dirty_keys) {
        let Some(row) = table.keys.get_mut(&fingerprint) else { continue };
        let Some(key) = &row.key else { continue };
        let (label, project) = (key.label.as_ref().into(), key.project.name.as_ref().into());
        let standing = standing_of(&mut row.standing);
        let proved_free_at = row.proved_free_ms.map(At);
        changes.keys.push((fingerprint, KeyChange { label, project, proved_free_at, standing }));
        table.told_keys.push(fingerprint);
    }
    for name in std::mem::take(&mut table.dirty_projects) {
        let Some(row) = table.projects.get_mut(&name) else { continue };
        changes.projects.push((Arc::clone(&name), standing_of(&mut row.standing)));
        table.told_projects.push(name);
    }
}

fn standing_of(stand: &mut Stand) -> Standing {
    let cleared = stand.cleared_ms.take().map(At);
    stand.clear_told |= cleared.is_some();
    Standing {
        generation: stand.generation,
        cleared,
        cooldowns: stand.cooldowns.iter_mut().map(told).collect(),
        quarantine: stand.quarantine.as_ref().map(|known| Quarantine {
            cause: known.cause.into(),
            since: At(known.since_ms),
            detail: (!known.detail.is_empty()).then(|| known.detail.as_str().into()),
            next_check_at: known.next_check_ms.map(At),
            checked_by: known.checked_by.clone(),
            ..Quarantine::default()
        }),
    }
}

/// True when a key or quota project died or came back to life.
fn read_table(table: &mut Table, file: &StateFile, writer: &str, now_ms: i64) -> bool {
    let mut changed = false;
    for (fingerprint, entry) in &file.keys {
        let row = table.keys.entry(*fingerprint).or_default();
        row.proved_free_ms = row.proved_free_ms.max(entry.proved_free_at.map(At::ms));
        let news = read_stand(
            &mut row.standing,
            entry.generation,
            &entry.cooldowns,
            entry.quarantine.as_deref(),
            (writer, now_ms),
        );
        if news {
            if let Some(key) = &row.key {
                key.was_cleared();
            }
            table.settle_key(*fingerprint);
            changed = true;
        }
    }
    for (name, entry) in &file.projects {
        table.project(name);
        let Some(row) = table.projects.get_mut(&**name) else { continue };
        let news = read_stand(
            &mut row.standing,
            entry.generation,
            &entry.cooldowns,
            entry.quarantine.as_deref(),
            (writer, now_ms),
        );
        if news {
            table.settle_project(name);
            changed = true;
        }
    }
    changed | table.believe_proofs(now_ms)
}

fn read_stand(
    stand: &mut Stand,
    generation: u64,
    cooldowns: &Cooldowns,
    quarantine: Option<&Quarantine>,
    (writer, now_ms): (&str, i64),
) -> bool {
    if generation < stand.generation {
        return false;
    }
    let before = (stand.quarantine.clone(), stand.cooldowns.len());
    let mut changed = false;
    if generation > stand.generation {
        stand.generation = generation;
        if !std::mem::take(&mut stand.clear_told) {
            stand.quarantine = None;
            stand.cooldowns.retain(|known| known.unsaved);
        }
    }
    for cooldown in cooldowns.known().map(cooldown_of) {
        let known = stand.cooldowns.iter_mut().find(|known| known.cause == cooldown.cause);
        match known {
            Some(known) if known.until_ms >= cooldown.until_ms => {}
            Some(known) => {
                *known = cooldown;
                changed = true;
            }
            None => stand.cooldowns.push(cooldown),
        }
    }
    if let Some(theirs) = quarantine.and_then(quarantined) {
        match &mut stand.quarantine {
            Some(known) if !super::table::outweighs(&theirs, Some(known)) => {
                known.hear_of_checks(&theirs, writer, now_ms);
            }
            quarantine => *quarantine = Some(theirs),
        }
    }
    changed || before != (stand.quarantine.clone(), stand.cooldowns.len())
}

/// A quarantine for a cause that this version does not know is one that only a hand can lift.
fn quarantined(entry: &Quarantine) -> Option<Quarantined> {
    let cause = entry.cause.known().unwrap_or(Cause::LeakedOrSuspendedKey);
    cause.release()?;
    Some(Quarantined {
        cause,
        since_ms: entry.since.ms(),
        detail: entry.detail.as_deref().unwrap_or_default().into(),
        next_check_ms: entry.next_check_at.map(At::ms),
        checked_by: entry.checked_by.clone(),
    })
}
