//! How buckets, keys and quota projects come back: by hand, or by the daily free check.

use std::sync::Arc;

use keywheel_core::{Cause, Fingerprint};

use crate::{
    CheckResult, Selector,
    core::Core,
    state::{
        keys::Key,
        table::{Quarantined, Table},
    },
};

impl Core {
    /// Clears what `selector` is for; returns how many buckets, keys and quota projects were held back.
    pub(crate) fn clear(&self, selector: &Selector) -> usize {
        let now_ms = self.state.clock.unix_ms();
        if matches!(selector, Selector::All) {
            self.state.host.clear();
        }
        let (mut cleared, projects) = {
            let mut table = self.state.table();
            let (cleared, projects) = clear_table(&mut table, selector, now_ms);
            if cleared > 0 {
                self.state.roster_changed(&table);
            }
            (cleared, projects)
        };
        let only_model = match selector {
            Selector::Model(model) | Selector::Bucket { model, .. } => Some(model.as_str()),
            _ => None,
        };
        for pool in self.state.all_models() {
            if only_model.is_some_and(|model| model != &*pool.name) {
                continue;
            }
            let mut model = self.state.enter(&pool, now_ms);
            let set = model.set;
            for index in 0..u32::try_from(model.buckets.len()).unwrap_or(u32::MAX) {
                let bucket = &mut model.buckets[index as usize];
                if !projects.contains(&bucket.project.name) || !bucket.can_be_cleared(now_ms) {
                    continue;
                }
                bucket.clear(&set, now_ms);
                cleared += 1;
                model.mark(index);
                model.place(index, now_ms, &self.state.rules);
            }
            model.explore_anew();
            model.line.ring();
        }
        cleared
    }

    /// Takes one cooldown back. The generation is raised, or the state file would bring it back.
    pub(crate) fn withdraw(&self, quota_project: &str, model: &str, cause: Cause) -> bool {
        let now_ms = self.state.clock.unix_ms();
        let Some(pool) = self.state.known_model(model) else { return false };
        let mut model = self.state.enter(&pool, now_ms);
        let set = model.set;
        let Some(index) = model.find_bucket(quota_project) else { return false };
        if !model.buckets[index as usize].withdraw(cause, &set, now_ms) {
            return false;
        }
        model.mark(index);
        model.changed(index, now_ms, &self.state.rules);
        true
    }

    pub(crate) fn check_result(&self, key: Fingerprint, result: CheckResult) {
        let now_ms = self.state.clock.unix_ms();
        let mut table = self.state.table();
        let Some(key) = table.find(&key.to_string()) else { return };
        if key.quarantined().is_none() {
            return;
        }
        match result {
            CheckResult::Alive => {
                table.clear_key(&key, now_ms);
                self.state.roster_changed(&table);
            }
            CheckResult::Unknown => table.checked(&key, false, now_ms),
            CheckResult::StillDead(cause) => still_dead(&mut table, &key, cause, now_ms),
        }
        drop(table);
        self.persister.mark_dirty();
    }
}

fn still_dead(table: &mut Table, key: &Key, cause: Cause, now_ms: i64) {
    table.checked(key, true, now_ms);
    let row = table.keys.get(&key.key.fingerprint());
    let known = row.and_then(|row| row.standing.quarantine.as_ref());
    if let Some(known) = known
        && cause.release().is_some()
    {
        // Since when it is out stays true; only a graver cause changes how it comes back.
        let why = Quarantined::new(cause, now_ms, known.detail.clone());
        table.quarantine_key(key.key.fingerprint(), why);
    }
}

/// Clears keys and quota projects; also returns the quota projects whose buckets are meant.
fn clear_table(table: &mut Table, selector: &Selector, now_ms: i64) -> (usize, Vec<Arc<str>>) {
    let keys: Vec<_> = match selector {
        Selector::All => table.loaded.clone(),
        Selector::Key(fingerprint) => table.find(&fingerprint.to_string()).into_iter().collect(),
        Selector::Label(label) => table.find(label).into_iter().collect(),
        Selector::QuotaProject(name) => {
            table.loaded.iter().filter(|key| *key.project.name == **name).cloned().collect()
        }
        Selector::Model(_) => return (0, table.projects.keys().cloned().collect()),
        Selector::Bucket { quota_project, .. } => {
            let names = table.projects.keys();
            return (0, names.filter(|name| ***name == **quota_project).cloned().collect());
        }
    };
    let cleared = keys.iter().filter(|key| table.clear_key(key, now_ms)).count();
    let projects = match selector {
        Selector::All => table.projects.keys().cloned().collect(),
        _ => keys.iter().map(|key| Arc::clone(&key.project.name)).collect(),
    };
    (cleared, projects)
}
