//! Takes a refusal apart: what it means for the bucket, the key, the quota project and the host.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use keywheel_core::{Cause, Effect, LimitSeen, Scope, Tier, Wait, clock::from_unix_ms};

use crate::{
    Refusal,
    cooldown::{self, FOREVER, Facts, Trouble},
    core::Core,
    hint,
    state::{
        bucket::{Bucket, Need},
        keys::Key,
        model::ModelPool,
        table::{Quarantined, Table},
    },
};

/// Longer details are cut: they are for a reader's eye.
const LONGEST_DETAIL: usize = 300;

/// Where a refusal comes from.
pub(crate) struct From<'a> {
    pub(crate) model: &'a ModelPool,
    pub(crate) key: &'a Arc<Key>,
    pub(crate) index: u32,
    pub(crate) tools: bool,
    pub(crate) sent_ms: i64,
    /// How often the bucket and the key had been cleared when it was leased; `None`: the report is of now.
    pub(crate) bucket_clears: Option<u32>,
    pub(crate) key_clears: Option<u32>,
}

/// What a report did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    /// There is something to be written before the report is durable.
    pub(crate) changed: bool,
    pub(crate) until: Option<DateTime<Utc>>,
    pub(crate) held: bool,
}

impl Core {
    /// Takes a refusal. `settle` ends the call in its bucket first, so that what it gives back counts.
    pub(crate) fn report(
        &self,
        from: &From<'_>,
        refusal: &Refusal,
        settle: impl FnOnce(&mut Bucket),
    ) -> Done {
        let now_ms = self.state.clock.unix_ms();
        self.take_host_effects(&refusal.effects, from.sent_ms, now_ms);
        let mut changed = self.report_to_bucket(from, refusal, settle, now_ms);
        if from.key_clears.is_none_or(|clears| clears == from.key.clears()) {
            changed |= self.report_to_table(from, refusal, now_ms);
        }
        let (until, held) = self.until(from, now_ms);
        Done { changed, until, held }
    }

    pub(crate) fn take_host_effects(&self, effects: &[Effect], sent_ms: i64, now_ms: i64) {
        let mut any = false;
        for effect in effects.iter().filter(|effect| effect.scope == Scope::Host) {
            let stated_ms = match effect.wait {
                Wait::Stated(wait) => Some(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)),
                Wait::None => continue,
                Wait::Reset(_) | Wait::Ladder => None,
            };
            self.state.host.block(sent_ms, stated_ms, now_ms);
            any = true;
        }
        if any {
            self.state.ring();
        }
    }

    fn report_to_bucket(
        &self,
        from: &From<'_>,
        refusal: &Refusal,
        settle: impl FnOnce(&mut Bucket),
        now_ms: i64,
    ) -> bool {
        let rules = &self.state.rules;
        let mut model = self.state.enter(from.model, now_ms);
        let jitter_ms = model.jitter_ms();
        let (set, day) = (model.set, *model.day());
        let bucket = &mut model.buckets[from.index as usize];
        bucket.advance(now_ms, &day);
        settle(bucket);
        let current = from.bucket_clears.is_none_or(|clears| clears == bucket.clears);
        let mut early = None;
        if current {
            early = hint::early(&refusal.limits, bucket.window.used(), bucket.day.used());
            bucket.refuse(refusal, from.sent_ms, jitter_ms, (now_ms, &rules.strategies, &set));
        }
        if let Some(cause) = early {
            model.hints.met_early(from.index, cause, now_ms);
        }
        model.explore_anew();
        model.changed(from.index, now_ms, rules);
        model.mark(from.index);
        drop(model);
        self.persister.mark_dirty();
        current
            && refusal.effects.iter().any(|effect| {
                matches!(effect.scope, Scope::Bucket | Scope::Tool) || !refusal.limits.is_empty()
            })
    }

    fn report_to_table(&self, from: &From<'_>, refusal: &Refusal, now_ms: i64) -> bool {
        let concerns_key =
            |effect: &&Effect| matches!(effect.scope, Scope::Key | Scope::QuotaProject);
        let proves_free = from.key.tier() == Tier::Paid && refusal.limits.iter().any(is_free_tier);
        let tells_number = refusal.project_number.is_some();
        if !proves_free && !tells_number && !refusal.effects.iter().any(|e| concerns_key(&e)) {
            return false;
        }
        let project = &from.key.project;
        let mut table = self.state.table();
        let mut changed = false;
        if let Some(number) = &refusal.project_number {
            let fingerprint = from.key.key.fingerprint();
            table.keys.entry(fingerprint).or_default().project_number = Some(number.clone());
        }
        if proves_free {
            let fingerprint = from.key.key.fingerprint();
            table.keys.entry(fingerprint).or_default().proved_free_ms = Some(now_ms);
            table.dirty_keys.insert(fingerprint);
            table.believe_proofs(now_ms);
            changed = true;
        }
        for effect in refusal.effects.iter().filter(concerns_key) {
            if effect.cause.release().is_some() {
                changed |= quarantine(&mut table, from, effect, &refusal.detail, now_ms);
            } else {
                changed |= self.cool_project(&mut table, from, effect, now_ms);
            }
        }
        if proves_free {
            self.state.roster_changed(&table);
        } else if changed {
            self.state.project_changed(&table, project, now_ms);
        }
        changed
    }

    /// Money, or a quota of the key for every model.
    fn cool_project(
        &self,
        table: &mut Table,
        from: &From<'_>,
        effect: &Effect,
        now_ms: i64,
    ) -> bool {
        let name = &from.key.project.name;
        let known = table.projects.get(name).and_then(|row| {
            row.standing.cooldowns.iter().find(|known| known.cause == effect.cause).copied()
        });
        let strategies = &self.state.rules.strategies;
        // A quota project remembers no ladder of its own: each guess is the first.
        let (mut trouble, jitter_ms) = (Trouble::default(), fastrand::i64(1_000..=5_000));
        let facts = Facts {
            now_ms,
            sent_ms: from.sent_ms,
            named_quota: true,
            day: strategies.day(now_ms),
            day_is_spent: true,
            jitter_ms,
            strategies,
        };
        let Some(decided) = cooldown::decide(effect, known.as_ref(), &mut trouble, &facts) else {
            return false;
        };
        table.cool_project(name, decided.cooldown);
        true
    }

    /// When the key serves the model again, and whether it is kept from it now.
    fn until(&self, from: &From<'_>, now_ms: i64) -> (Option<DateTime<Utc>>, bool) {
        if from.key.quarantined().is_some() {
            return (None, true);
        }
        let model = self.state.enter(from.model, now_ms);
        let bucket = &model.buckets[from.index as usize];
        let need = Need { tools: from.tools, ..Need::LEAST };
        let at_ms = bucket.free_at(&need, now_ms).max(self.state.host.until_ms());
        let until = (at_ms > now_ms && at_ms != FOREVER).then(|| from_unix_ms(at_ms));
        // Calls in flight are no reason to come back: they end without anything having changed.
        let held = until.is_some() || bucket.reason(&need, now_ms).0.is_some();
        (until, held)
    }
}

fn quarantine(
    table: &mut Table,
    from: &From<'_>,
    effect: &Effect,
    detail: &str,
    now_ms: i64,
) -> bool {
    let detail: String = detail.chars().take(LONGEST_DETAIL).collect();
    let why = Quarantined::new(effect.cause, now_ms, detail);
    if effect.scope == Scope::Key {
        table.quarantine_key(from.key.key.fingerprint(), why)
    } else {
        table.quarantine_project(&from.key.project.name, why)
    }
}

fn is_free_tier(seen: &LimitSeen) -> bool {
    seen.tier == Some(Tier::Free)
}

/// Whether the provider counted the request against the bucket's windows all the same.
///
/// Google counts failed 400 and 500 ("the request will still count against your quota",
/// <https://ai.google.dev/gemini-api/docs/billing>); what a quota refuses, or what never reached the
/// quota project because the key is no good, it does not.
pub(crate) fn is_counted(refusal: &Refusal) -> bool {
    let counted = |effect: &Effect| {
        matches!(
            effect.cause,
            Cause::RequestTooLarge
                | Cause::ModelNotFound
                | Cause::Overloaded
                | Cause::ServerError
                | Cause::Deadline
                | Cause::Cancelled
                | Cause::BadRequest
        )
    };
    !refusal.effects.is_empty() && refusal.effects.iter().all(counted)
}
