//! What is known of keys and quota projects, for every model: loaded or parked, quarantined, out of money.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use keywheel_core::{Cause, Fingerprint, Release, Tier};

use super::keys::{Key, Project};
use crate::{
    KeySpec, ReloadReport, UnknownKey,
    cooldown::{self, Cooldown},
};

/// How long after a check, or after the refusal, the next free check is due.
const CHECK_EVERY_MS: i64 = 24 * 3_600_000;
/// The same when the check itself failed.
const CHECK_AGAIN_MS: i64 = 3_600_000;

/// How long a reply that disproved a paid marking is believed.
const PROOF_MS: u64 = 24 * 3_600_000;

/// Keys and quota projects.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Loaded keys, in the order of loading.
    pub(crate) loaded: Vec<Arc<Key>>,
    by_label: HashMap<Arc<str>, Arc<Key>>,
    /// Every key that was ever heard of, loaded or only known from the state file.
    pub(crate) keys: BTreeMap<Fingerprint, KeyRow>,
    pub(crate) projects: BTreeMap<Arc<str>, ProjectRow>,
    pub(crate) notes: BTreeSet<String>,
    /// Has to be told to the state file.
    pub(crate) dirty_keys: BTreeSet<Fingerprint>,
    pub(crate) dirty_projects: BTreeSet<Arc<str>>,
    /// Told to the state file, which has not answered yet.
    pub(crate) told_keys: Vec<Fingerprint>,
    pub(crate) told_projects: Vec<Arc<str>>,
}

/// The quota projects that are loaded, in order.
#[derive(Debug, Default)]
pub(crate) struct Roster(pub(crate) Vec<Member>);

/// A quota project and its keys, in the order of loading.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) project: Arc<Project>,
    pub(crate) keys: Arc<[Arc<Key>]>,
}

#[derive(Debug, Default)]
pub(crate) struct KeyRow {
    /// `None`: parked, known from the state file or from before a reload.
    pub(crate) key: Option<Arc<Key>>,
    pub(crate) standing: Stand,
    /// The provider's name for its quota project.
    pub(crate) project_number: Option<String>,
    /// When a reply last named the free tier's quota for it, although it is marked as paid.
    pub(crate) proved_free_ms: Option<i64>,
}

impl KeyRow {
    /// Its marking as paid is disproved. For a day only: its owner may have begun to pay since, and a paid key
    /// taken for a free one costs money unasked, which is worse than a refusal a day.
    fn is_proved_free(&self, now_ms: i64) -> bool {
        self.proved_free_ms.is_some_and(|at_ms| at_ms.abs_diff(now_ms) < PROOF_MS)
    }
}

#[derive(Debug)]
pub(crate) struct ProjectRow {
    pub(crate) project: Arc<Project>,
    pub(crate) standing: Stand,
}

/// Whether a key or quota project may be used.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stand {
    pub(crate) generation: u64,
    /// When it was cleared, if since the state file was last told.
    pub(crate) cleared_ms: Option<i64>,
    /// A clear was told to the state file, which may count its generation otherwise.
    pub(crate) clear_told: bool,
    pub(crate) cooldowns: Vec<Cooldown>,
    pub(crate) quarantine: Option<Quarantined>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quarantined {
    pub(crate) cause: Cause,
    pub(crate) since_ms: i64,
    pub(crate) detail: String,
    pub(crate) next_check_ms: Option<i64>,
    /// The writer that runs the last check that was due, until the next one is.
    pub(crate) checked_by: Option<Box<str>>,
}

impl Quarantined {
    pub(crate) fn new(cause: Cause, now_ms: i64, detail: String) -> Self {
        let checked = cause.release() == Some(Release::DailyCheck);
        let next_check_ms = checked.then_some(now_ms.saturating_add(CHECK_EVERY_MS));
        Self { cause, since_ms: now_ms, detail, next_check_ms, checked_by: None }
    }

    /// Takes over what the state file says of the next check. A check of `writer` that is not in the file yet was
    /// taken from somebody who was faster, if one is under way or was done.
    pub(crate) fn hear_of_checks(&mut self, theirs: &Self, writer: &str, now_ms: i64) {
        let mine = |known: &Self| known.checked_by.as_deref() == Some(writer);
        let taken = mine(self) && !mine(theirs) && theirs.next_check_ms > Some(now_ms);
        if taken || theirs.next_check_ms > self.next_check_ms {
            self.next_check_ms = theirs.next_check_ms;
            self.checked_by.clone_from(&theirs.checked_by);
        }
    }
}

impl Stand {
    /// True when a clear would change something.
    pub(crate) fn can_be_cleared(&self, now_ms: i64) -> bool {
        self.quarantine.is_some() || self.cooldowns.iter().any(|known| known.is_active(now_ms))
    }

    pub(crate) fn clear(&mut self, now_ms: i64) {
        self.generation = self.generation.saturating_add(1);
        self.cleared_ms = Some(now_ms);
        self.cooldowns.clear();
        self.quarantine = None;
    }

    /// The cooldown that keeps it out the longest.
    fn out(&self) -> Option<&Cooldown> {
        self.cooldowns.iter().max_by_key(|known| known.until_ms)
    }
}

impl Table {
    /// Replaces the loaded keys. Keys that stay keep all that is known of them; keys that go are parked.
    pub(crate) fn load(
        &mut self,
        specs: impl IntoIterator<Item = KeySpec>,
        now_ms: i64,
    ) -> ReloadReport {
        let mut report = ReloadReport::default();
        let before: BTreeSet<_> = self.loaded.iter().map(|key| key.key.fingerprint()).collect();
        let mut seen = BTreeSet::new();
        let specs: Vec<_> = specs
            .into_iter()
            .filter(|spec| {
                let first = seen.insert(spec.fingerprint());
                if !first {
                    report.notes.push(format!("{} is a duplicate and was left out", spec.label));
                }
                first
            })
            .collect();
        self.by_label.clear();
        for key in self.loaded.drain(..) {
            let fingerprint = key.key.fingerprint();
            if !seen.contains(&fingerprint) {
                report.removed.push(key.label.as_ref().into());
            }
            self.keys.entry(fingerprint).or_default().key = None;
        }
        // Billing belongs to the quota project: one paid key makes all of its keys paid.
        let paid: BTreeSet<String> =
            specs.iter().filter(|spec| spec.tier == Tier::Paid).map(project_name).collect();
        for spec in specs {
            let fingerprint = spec.fingerprint();
            let name = project_name(&spec);
            let project = Arc::clone(self.project(&name));
            project.set_paid(paid.contains(&name));
            let row = self.keys.entry(fingerprint).or_default();
            let key = Arc::new(Key::new(spec.key, spec.label.as_str().into(), project));
            key.dead().set(row.standing.quarantine.as_ref());
            if before.contains(&fingerprint) {
                report.kept += 1;
            } else {
                report.added.push(spec.label);
            }
            row.key = Some(Arc::clone(&key));
            self.by_label.entry(Arc::clone(&key.label)).or_insert_with(|| Arc::clone(&key));
            self.loaded.push(key);
            self.dirty_keys.insert(fingerprint);
        }
        self.believe_proofs(now_ms);
        report
    }

    /// Takes paid markings back that a reply disproved. True when there were any.
    pub(crate) fn believe_proofs(&mut self, now_ms: i64) -> bool {
        let mut any = false;
        for key in &self.loaded {
            let row = self.keys.get(&key.key.fingerprint());
            if key.tier() == Tier::Paid && row.is_some_and(|row| row.is_proved_free(now_ms)) {
                key.project.set_paid(false);
                let label = &key.label;
                self.notes
                    .insert(format!("{label} is marked as paid, but its quota is the free tier's"));
                any = true;
            }
        }
        any
    }

    /// The quota projects in the order of their first key.
    pub(crate) fn roster(&self) -> Roster {
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(self.loaded.len());
        let mut out: Vec<(Arc<Project>, Vec<Arc<Key>>)> = Vec::new();
        for key in &self.loaded {
            let place = *places.entry(&key.project.name).or_insert_with(|| {
                out.push((Arc::clone(&key.project), Vec::with_capacity(1)));
                out.len() - 1
            });
            out[place].1.push(Arc::clone(key));
        }
        let member = |(project, keys): (_, Vec<_>)| Member { project, keys: keys.into() };
        Roster(out.into_iter().map(member).collect())
    }

    /// The quota project called `name`, made if need be.
    pub(crate) fn project(&mut self, name: &str) -> &Arc<Project> {
        if !self.projects.contains_key(name) {
            let name: Arc<str> = name.into();
            let project = Arc::new(Project::new(Arc::clone(&name), false));
            self.projects
                .insert(Arc::clone(&name), ProjectRow { project, standing: Stand::default() });
        }
        &self.projects[name].project
    }

    /// The loaded key that is called `name`: by label or fingerprint.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Key>> {
        let found = self.by_label.get(name).or_else(|| {
            let fingerprint: Fingerprint = name.parse().ok()?;
            self.keys.get(&fingerprint)?.key.as_ref()
        });
        found.map(Arc::clone)
    }

    /// As [`find`](Self::find), with an error that names those there are.
    pub(crate) fn known(&self, name: &str) -> Result<Arc<Key>, UnknownKey> {
        self.find(name).ok_or_else(|| {
            let labels = self.loaded.iter().map(|key| key.label.as_ref().into());
            UnknownKey::new(labels.take(UnknownKey::MOST_LABELS).collect(), self.loaded.len())
        })
    }

    /// Puts a key out of use. True when it was in use, or the new cause outweighs the old.
    pub(crate) fn quarantine_key(&mut self, fingerprint: Fingerprint, why: Quarantined) -> bool {
        let row = self.keys.entry(fingerprint).or_default();
        if !outweighs(&why, row.standing.quarantine.as_ref()) {
            return false;
        }
        row.standing.quarantine = Some(why);
        self.dirty_keys.insert(fingerprint);
        self.settle_key(fingerprint);
        true
    }

    /// Puts a quota project out of use, with all its keys.
    pub(crate) fn quarantine_project(&mut self, name: &Arc<str>, why: Quarantined) -> bool {
        self.project(name);
        let Some(row) = self.projects.get_mut(name) else { return false };
        if !outweighs(&why, row.standing.quarantine.as_ref()) {
            return false;
        }
        row.standing.quarantine = Some(why);
        self.dirty_projects.insert(Arc::clone(name));
        self.settle_project(name);
        true
    }

    /// Keeps a quota project out for a while.
    pub(crate) fn cool_project(&mut self, name: &Arc<str>, cooldown: Cooldown) {
        self.project(name);
        let Some(row) = self.projects.get_mut(name) else { return };
        cooldown::put(&mut row.standing.cooldowns, cooldown);
        self.dirty_projects.insert(Arc::clone(name));
        self.settle_project(name);
    }

    /// Brings what calls see of a key up to date with its row.
    pub(crate) fn settle_key(&self, fingerprint: Fingerprint) {
        if let Some(row) = self.keys.get(&fingerprint)
            && let Some(key) = &row.key
        {
            key.dead().set(row.standing.quarantine.as_ref());
        }
    }

    /// Brings what calls see of a quota project up to date with its row.
    pub(crate) fn settle_project(&self, name: &str) {
        if let Some(row) = self.projects.get(name) {
            row.project.dead().set(row.standing.quarantine.as_ref());
            row.project.set_out(row.standing.out());
        }
    }

    /// Keys whose free check is due. Each is claimed by `writer` for an hour: whoever checks says more by then, or
    /// somebody else checks again. The claim holds once the state file has it, see
    /// [`has_check`](Self::has_check).
    pub(crate) fn due_checks(&mut self, writer: &str, now_ms: i64) -> Vec<Arc<Key>> {
        let mut due = Vec::new();
        for key in &self.loaded {
            let fingerprint = key.key.fingerprint();
            let project = self.projects.get_mut(&key.project.name);
            let stands = self.keys.get_mut(&fingerprint).map(|row| &mut row.standing);
            for (stand, of_project) in
                [(stands, false), (project.map(|row| &mut row.standing), true)]
            {
                let Some(quarantine) = stand.and_then(|stand| stand.quarantine.as_mut()) else {
                    continue;
                };
                // After a clock that was ahead, it would be due when that clock comes true.
                let latest_ms = now_ms.saturating_add(CHECK_EVERY_MS);
                quarantine.next_check_ms = quarantine.next_check_ms.map(|at| at.min(latest_ms));
                if quarantine.next_check_ms.is_none_or(|at| now_ms < at) {
                    continue;
                }
                quarantine.next_check_ms = Some(now_ms.saturating_add(CHECK_AGAIN_MS));
                quarantine.checked_by = Some(writer.into());
                if of_project {
                    self.dirty_projects.insert(Arc::clone(&key.project.name));
                } else {
                    self.dirty_keys.insert(fingerprint);
                }
                due.push(Arc::clone(key));
                break;
            }
        }
        due
    }

    /// True while the check of `key`, or of its quota project, is `writer`'s.
    pub(crate) fn has_check(&self, key: &Key, writer: &str) -> bool {
        let row = self.keys.get(&key.key.fingerprint()).map(|row| &row.standing);
        let project = self.projects.get(&key.project.name).map(|row| &row.standing);
        row.into_iter().chain(project).any(|stand| {
            let quarantine = stand.quarantine.as_ref();
            quarantine.is_some_and(|known| known.checked_by.as_deref() == Some(writer))
        })
    }

    /// A key was checked: the next check is due in a day, or in an hour if the check itself failed.
    pub(crate) fn checked(&mut self, key: &Key, found_dead: bool, now_ms: i64) {
        let wait_ms = if found_dead { CHECK_EVERY_MS } else { CHECK_AGAIN_MS };
        let next_ms = now_ms.saturating_add(wait_ms);
        let fingerprint = key.key.fingerprint();
        let row = self.keys.get_mut(&fingerprint).map(|row| &mut row.standing);
        if let Some(quarantine) = row.and_then(|stand| stand.quarantine.as_mut()) {
            quarantine.next_check_ms = quarantine.next_check_ms.map(|_| next_ms);
            quarantine.checked_by = None;
            self.dirty_keys.insert(fingerprint);
        }
        let row = self.projects.get_mut(&key.project.name).map(|row| &mut row.standing);
        if let Some(quarantine) = row.and_then(|stand| stand.quarantine.as_mut()) {
            quarantine.next_check_ms = quarantine.next_check_ms.map(|_| next_ms);
            quarantine.checked_by = None;
            self.dirty_projects.insert(Arc::clone(&key.project.name));
        }
    }

    /// Lifts the quarantines of a key and of its quota project. True when there was any.
    pub(crate) fn clear_key(&mut self, key: &Key, now_ms: i64) -> bool {
        let fingerprint = key.key.fingerprint();
        let mut any = false;
        if let Some(row) = self.keys.get_mut(&fingerprint)
            && row.standing.can_be_cleared(now_ms)
        {
            row.standing.clear(now_ms);
            key.was_cleared();
            self.dirty_keys.insert(fingerprint);
            self.settle_key(fingerprint);
            any = true;
        }
        self.clear_project(&key.project.name, now_ms) || any
    }

    /// Lifts what holds back a quota project as a whole. True when there was anything.
    pub(crate) fn clear_project(&mut self, name: &Arc<str>, now_ms: i64) -> bool {
        let Some(row) = self.projects.get_mut(name) else { return false };
        if !row.standing.can_be_cleared(now_ms) {
            return false;
        }
        row.standing.clear(now_ms);
        row.project.was_cleared();
        self.dirty_projects.insert(Arc::clone(name));
        self.settle_project(name);
        true
    }
}

/// The name of a key's quota project: as told, else the key stands alone.
pub(crate) fn project_name(spec: &KeySpec) -> String {
    spec.project.clone().unwrap_or_else(|| format!("key:{}", spec.fingerprint()))
}

/// What only a hand can lift outweighs what a check may lift; the same again is no news.
pub(crate) fn outweighs(new: &Quarantined, old: Option<&Quarantined>) -> bool {
    let by_hand = |known: &Quarantined| known.cause.release() == Some(Release::ByHand);
    old.is_none_or(|old| by_hand(new) && !by_hand(old))
}
