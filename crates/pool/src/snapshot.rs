//! Takes the snapshot that [`status`](crate::status) describes.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use keywheel_core::{Cause, Dimension, Tier, clock::from_unix_ms};

use crate::{
    LimitSource, PoolStatus,
    cooldown::FOREVER,
    core::Core,
    limits::Limits,
    state::{
        bucket::{Bucket, Explored, FIRST_CAP, Need, Place},
        keys::Key,
        model::ModelPool,
        table::Table,
    },
    status::{
        BucketStatus, CooldownStatus, KeyStatus, LimitStatus, ProjectLimits, QuarantineStatus,
        SameProjectHint, StateStatus, Used, Waiting,
    },
    window::{Amount, NOW},
};

/// What says of a quota project that it has no quota for a model at all.
const NO_QUOTA: [Cause; 2] = [Cause::FreeTierNotAvailable, Cause::ModelNotFound];

impl Core {
    pub(crate) fn status(&self) -> PoolStatus {
        let now_ms = self.state.clock.unix_ms();
        let (keys, notes, mut same_project) = {
            let table = self.state.table();
            let keys = table.loaded.iter().map(|key| key_status(key, &table, now_ms));
            (keys.collect(), table.notes.iter().cloned().collect(), proven(&table))
        };
        let mut models = self.state.all_models();
        models.sort_by(|a, b| a.name.cmp(&b.name));
        let (mut buckets, mut waiting) = (Vec::new(), Vec::new());
        for pool in models {
            let mut model = self.state.enter(&pool, now_ms);
            let (set, day) = (model.set, *model.day());
            for bucket in &mut model.buckets {
                if !bucket.keys.is_empty() {
                    bucket.advance(now_ms, &day);
                    buckets.push(bucket_status(&pool, bucket, &set, now_ms));
                }
            }
            let hints = model.hints.pairs().map(|((a, b), meetings)| {
                probable(&model.buckets[a as usize], &model.buckets[b as usize], &pool, meetings)
            });
            same_project.extend(hints);
            if !model.line.is_empty() {
                let waiters = model.line.len();
                waiting.push(Waiting { model: pool.name.as_ref().into(), waiters });
            }
        }
        PoolStatus {
            at: from_unix_ms(now_ms),
            selection: self.state.rules.selection,
            keys,
            buckets,
            waiting,
            host_blocked_until: self.state.host.blocked_until_ms(now_ms).map(from_unix_ms),
            same_project,
            notes,
            state: self.state_status(),
        }
    }

    pub(crate) fn limits(&self, pool: &ModelPool) -> Vec<ProjectLimits> {
        let now_ms = self.state.clock.unix_ms();
        let mut model = self.state.enter(pool, now_ms);
        let (set, day) = (model.set, *model.day());
        let may_serve = |bucket: &Bucket| {
            let never = bucket
                .cooldowns
                .iter()
                .any(|known| known.is_active(now_ms) && NO_QUOTA.contains(&known.cause));
            bucket.is_alive() && bucket.place != Place::Out && !never
        };
        let limits = model.buckets.iter_mut().filter(|bucket| may_serve(bucket)).map(|bucket| {
            bucket.advance(now_ms, &day);
            let learned = |dimension| bucket.learned.of(dimension);
            ProjectLimits {
                quota_project: Arc::clone(&bucket.project.name),
                tier: if bucket.project.is_paid() { Tier::Paid } else { Tier::Free },
                set,
                learned: Limits {
                    rpm: learned(Dimension::Rpm),
                    tpm: learned(Dimension::Tpm),
                    rpd: learned(Dimension::Rpd),
                    tpd: learned(Dimension::Tpd),
                },
                day: used(bucket.day.used()),
            }
        });
        limits.collect()
    }

    pub(crate) fn day_counts(&self) -> Vec<(Arc<str>, u64)> {
        let now_ms = self.state.clock.unix_ms();
        let count = |pool: Arc<ModelPool>| {
            let mut model = self.state.enter(&pool, now_ms);
            let day = *model.day();
            let counts = model.buckets.iter_mut().map(|bucket| {
                bucket.advance(now_ms, &day);
                bucket.day.used().requests
            });
            let count = counts.fold(0, u64::saturating_add);
            (Arc::clone(&pool.name), count)
        };
        self.state.all_models().into_iter().map(count).filter(|(_, count)| *count > 0).collect()
    }

    fn state_status(&self) -> StateStatus {
        let health = self.persister.health();
        StateStatus {
            path: health.path.map(|path| path.display().to_string()),
            ok: health.error.is_none(),
            last_saved: health.saved_at,
            last_error: health.error,
            notes: self.notes.iter().chain(&health.notes).map(ToString::to_string).collect(),
        }
    }
}

fn key_status(key: &Key, table: &Table, now_ms: i64) -> KeyStatus {
    let row = table.keys.get(&key.key.fingerprint());
    let project = table.projects.get(&key.project.name);
    // The quota project's quarantine is the key's, too.
    let standings = [row.map(|row| &row.standing), project.map(|row| &row.standing)];
    let mut quarantines =
        standings.into_iter().flatten().filter_map(|standing| standing.quarantine.as_ref());
    let quarantine = quarantines.find_map(|known| {
        Some(QuarantineStatus {
            cause: known.cause,
            since: from_unix_ms(known.since_ms),
            release: known.cause.release()?,
            next_check: known.next_check_ms.map(from_unix_ms),
            detail: known.detail.clone(),
        })
    });
    KeyStatus {
        fingerprint: key.key.fingerprint(),
        label: key.label.as_ref().into(),
        quota_project: key.project.name.as_ref().into(),
        tier: key.tier(),
        quarantine,
        cooling_until: later(key.project.until_ms(now_ms), now_ms),
        project_number: row.and_then(|row| row.project_number.clone()),
    }
}

fn bucket_status(pool: &ModelPool, bucket: &Bucket, set: &Limits, now_ms: i64) -> BucketStatus {
    let at_ms = bucket.free_at(&Need::LEAST, now_ms);
    let cooldowns = bucket.cooldowns.iter().filter(|known| known.is_active(now_ms));
    BucketStatus {
        quota_project: bucket.project.name.as_ref().into(),
        model: pool.name.as_ref().into(),
        labels: bucket.keys.iter().map(|key| key.label.as_ref().into()).collect(),
        generation: bucket.generation,
        in_flight: bucket.in_flight,
        in_flight_cap: bucket
            .limits
            .rate_is_unknown()
            .then(|| bucket.cap.max(FIRST_CAP).saturating_add(bucket.answering)),
        minute: used(bucket.window.used()),
        day: used(bucket.day.used()),
        date: bucket.day.span.date,
        day_ends_at: from_unix_ms(bucket.day.span.end_ms),
        explored: bucket.day.explored != Explored::No,
        limits: limits(bucket, set),
        cooldowns: cooldowns
            .map(|known| CooldownStatus {
                cause: known.cause,
                until: later(known.until_ms, now_ms),
                source: known.source,
                since: from_unix_ms(known.since_ms),
            })
            .collect(),
        available_at: later(at_ms, now_ms),
        ready: at_ms == NOW && bucket.is_alive() && bucket.place != Place::Out,
    }
}

fn limits(bucket: &Bucket, set: &Limits) -> Vec<LimitStatus> {
    let limit = |dimension| {
        if let Some(value) = set.of(dimension) {
            return Some(LimitStatus { dimension, value, source: LimitSource::Set, at: None });
        }
        let known = bucket.learned.iter().find(|limit| limit.dimension == dimension)?;
        Some(LimitStatus {
            dimension,
            value: known.value?,
            source: LimitSource::Learned,
            at: Some(from_unix_ms(known.at_ms)),
        })
    };
    Dimension::ALL.into_iter().filter_map(limit).collect()
}

fn used(amount: Amount) -> Used {
    Used { requests: amount.requests, tokens: amount.tokens }
}

fn later(at_ms: i64, now_ms: i64) -> Option<DateTime<Utc>> {
    (at_ms > now_ms && at_ms != FOREVER).then(|| from_unix_ms(at_ms))
}

/// Keys for which replies named the same project number although they are thought separate.
fn proven(table: &Table) -> Vec<SameProjectHint> {
    let mut by_number: BTreeMap<&str, Vec<&Key>> = BTreeMap::new();
    for key in &table.loaded {
        let row = table.keys.get(&key.key.fingerprint());
        if let Some(number) = row.and_then(|row| row.project_number.as_deref()) {
            by_number.entry(number).or_default().push(key);
        }
    }
    let mut hints = Vec::new();
    for (number, keys) in by_number {
        let mut names: Vec<String> =
            keys.iter().map(|key| key.project.name.as_ref().into()).collect();
        names.sort();
        names.dedup();
        if names.len() > 1 {
            hints.push(SameProjectHint {
                quota_projects: names,
                labels: keys.iter().map(|key| key.label.as_ref().into()).collect(),
                proven: true,
                evidence: format!("replies named {number} for all of them"),
            });
        }
    }
    hints
}

fn probable(a: &Bucket, b: &Bucket, pool: &ModelPool, meetings: u32) -> SameProjectHint {
    let labels = a.keys.iter().chain(b.keys.iter()).map(|key| key.label.as_ref().into());
    SameProjectHint {
        quota_projects: vec![a.project.name.as_ref().into(), b.project.name.as_ref().into()],
        labels: labels.collect(),
        proven: false,
        evidence: format!(
            "refused for {} within seconds of each other, well below their own counts, {meetings} times",
            pool.name
        ),
    }
}
