//! What the places hold that a [`KeyLoader`](super::KeyLoader) was told about, and what becomes of it.

use std::{
    collections::{BTreeMap, HashMap, btree_map},
    env, fs, io,
    path::Path,
};

use keywheel_core::{Fingerprint, Tier};

use super::{
    KeySpec, LoadedKeys, dotenv,
    names::{Names, Role},
    natural,
    report::{KeyFault, KeyNote, KeySource, KeysError, NoKeys, Place, Problem, SourceKind, shown},
    value,
};

/// What has been gathered so far.
pub(super) struct Load {
    names: Names,
    /// By name. What the environment sets stands here before any `.env` file is read.
    assignments: BTreeMap<String, Assignment>,
    /// The environment of the process was looked at.
    process: bool,
    keys: Vec<KeySpec>,
    by_fingerprint: HashMap<Fingerprint, usize>,
    faults: Vec<KeyFault>,
    notes: Vec<KeyNote>,
    sources: Vec<KeySource>,
}

impl Load {
    pub(super) fn new(names: Names) -> Self {
        Self {
            names,
            assignments: BTreeMap::new(),
            process: false,
            keys: Vec::new(),
            by_fingerprint: HashMap::new(),
            faults: Vec::new(),
            notes: Vec::new(),
            sources: Vec::new(),
        }
    }

    pub(super) fn environment(&mut self, given: &[(String, String)], process: bool) {
        let source = self.source(SourceKind::Environment, true);
        for (name, value) in given {
            self.variable(name, value.clone(), source);
        }
        if !process {
            return;
        }
        self.process = true;
        // Not `env::vars`, which panics on a variable that is not UTF-8, whoever it belongs to.
        for (name, value) in env::vars_os() {
            let Some(name) = name.to_str() else { continue };
            match value.into_string() {
                Ok(value) => self.variable(name, value, source),
                Err(_) if self.names.role(name) == Role::Other => {}
                Err(_) => self.fault(Place::Variable(shown(name)), Problem::NotUtf8),
            }
        }
    }

    fn variable(&mut self, name: &str, value: String, source: usize) {
        if self.names.role(name) == Role::Other {
            return;
        }
        let place = Place::Variable(shown(name));
        let assignment = Assignment { value, place, source };
        self.assignments.entry(name.into()).or_insert(assignment);
    }

    pub(super) fn dotenv(&mut self, path: &Path) {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.source(SourceKind::DotEnv(path.into()), false);
                return;
            }
            Err(error) => {
                self.fault(Place::File(path.into()), Problem::Unreadable(error.kind()));
                return;
            }
        };
        let Some(text) = self.text(path, bytes) else { return };
        let source = self.source(SourceKind::DotEnv(path.into()), true);
        let mut lines = HashMap::new();
        for entry in dotenv::parse(&text) {
            let place =
                Place::DotEnv { name: shown(&entry.name), path: path.into(), line: entry.line };
            let ours = self.names.role(&entry.name) != Role::Other;
            match entry.value {
                None if ours => self.fault(place, Problem::Malformed),
                None => self.notes.push(KeyNote::Malformed(nameless(place))),
                Some(_) if !ours => {
                    let is_set = |name: &str| self.process && env::var_os(name).is_some();
                    if self.names.is_for_the_environment(&entry.name) && !is_set(&entry.name) {
                        self.notes.push(KeyNote::NotFromDotEnv(place));
                    }
                }
                Some(_) if entry.refers && !self.assignments.contains_key(&entry.name) => {
                    self.fault(place, Problem::Reference);
                }
                Some(value) => {
                    let first = *lines.entry(entry.name.clone()).or_insert(entry.line);
                    self.dotenv_variable(entry.name, Assignment { value, place, source }, first);
                }
            }
        }
    }

    /// `first`: the line on which this file sets the variable for the first time.
    fn dotenv_variable(&mut self, name: String, new: Assignment, first: usize) {
        let old = match self.assignments.entry(name) {
            btree_map::Entry::Vacant(entry) => {
                entry.insert(new);
                return;
            }
            btree_map::Entry::Occupied(entry) => entry.into_mut(),
        };
        if value::trimmed(&old.value) == value::trimmed(&new.value) {
            return;
        }
        if old.source == new.source {
            self.fault(new.place, Problem::SetTwice { first });
        } else {
            self.notes.push(KeyNote::Hidden(new.place));
        }
    }

    /// Makes keys of the variables, in the order in which they are to be used.
    pub(super) fn assign(&mut self) {
        let mut assignments: Vec<_> = std::mem::take(&mut self.assignments).into_iter().collect();
        let names = self.names.clone();
        assignments.sort_by(|(a, _), (b, _)| {
            let (a, b) = (rank(names.role(a)), rank(names.role(b)));
            a.0.cmp(&b.0).then_with(|| natural::compare(a.1, b.1))
        });
        let mut projects = Projects::default();
        for (name, assignment) in &assignments {
            if let Role::Project { suffix } = names.role(name) {
                self.project(suffix, assignment, &mut projects);
            }
        }
        for (name, assignment) in &assignments {
            match names.role(name) {
                Role::Key { suffix } => {
                    self.single(name, suffix, assignment, Tier::Free, &mut projects)
                }
                Role::Paid { suffix } => {
                    self.single(name, suffix, assignment, Tier::Paid, &mut projects)
                }
                Role::Google => {
                    self.single(name, GOOGLE_SUFFIX, assignment, Tier::Free, &mut projects)
                }
                Role::List => self.list(name, assignment),
                Role::NoSuffix => self.fault(assignment.place.clone(), Problem::NoSuffix),
                Role::NearMiss => self.notes.push(KeyNote::NotRead(assignment.place.clone())),
                Role::Project { .. } | Role::Other => {}
            }
        }
        for (place, name, used) in projects.by_suffix.into_values() {
            // Names of quota projects are shown, so a key that slipped into one must not get
            // through.
            if self.keys.iter().any(|spec| spec.key.expose() == name) {
                self.fault(place, Problem::ProjectName);
            } else if !used {
                self.notes.push(KeyNote::ProjectWithoutKey(place));
            }
        }
    }

    fn project(&mut self, suffix: &str, assignment: &Assignment, projects: &mut Projects) {
        let name = value::trimmed(&assignment.value);
        let place = assignment.place.clone();
        if name.is_empty() {
            self.notes.push(KeyNote::Empty(place));
        } else if shown(name) != name
            || name.starts_with("AQ.")
            || name.starts_with("key:")
            || name.contains(char::is_control)
        {
            self.fault(place, Problem::ProjectName);
        } else {
            projects.by_suffix.insert(suffix.into(), (place, name.into(), false));
        }
    }

    fn single(
        &mut self,
        name: &str,
        suffix: &str,
        assignment: &Assignment,
        tier: Tier,
        projects: &mut Projects,
    ) {
        let place = &assignment.place;
        match value::key(&assignment.value, &self.names.several()) {
            None => self.notes.push(KeyNote::Empty(place.clone())),
            Some(Err(problem)) => self.fault(place.clone(), problem),
            Some(Ok(key)) => {
                let project = projects.of(suffix);
                self.add(
                    KeySpec { key, label: shown(name), project, tier },
                    place,
                    assignment.source,
                );
                return;
            }
        }
        // The project is not without a key: its key is the one that is at fault, or switched off.
        projects.of(suffix);
    }

    fn list(&mut self, name: &str, assignment: &Assignment) {
        let found = value::list(&assignment.value);
        if found.is_empty() {
            self.notes.push(KeyNote::Empty(assignment.place.clone()));
        }
        for (n, item) in found {
            let label = format!("{}#{n}", shown(name));
            let mut place = assignment.place.clone();
            if let Place::Variable(name) | Place::DotEnv { name, .. } = &mut place {
                name.clone_from(&label);
            }
            match item {
                Ok(key) => self.add(KeySpec::new(key, label), &place, assignment.source),
                Err(problem) => self.fault(place, problem),
            }
        }
    }

    pub(super) fn file(&mut self, path: &Path) {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.fault(Place::File(path.into()), Problem::Unreadable(error.kind()));
                return;
            }
        };
        let Some(text) = self.text(path, bytes) else { return };
        let source = self.source(SourceKind::File(path.into()), true);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let place = Place::Line { path: path.into(), line: i + 1 };
            match value::key(line, "a line for each") {
                None => {}
                Some(Err(problem)) => self.fault(place, problem),
                Some(Ok(key)) => {
                    self.add(KeySpec::new(key, format!("{file}:{}", i + 1)), &place, source);
                }
            }
        }
    }

    pub(super) fn code(&mut self, keys: &[KeySpec]) {
        if keys.is_empty() {
            return;
        }
        let source = self.source(SourceKind::Code, true);
        for spec in keys {
            let place = Place::Code(shown(&spec.label));
            if value::is_example(&spec.key) {
                self.fault(place, Problem::Placeholder);
            } else {
                self.add(spec.clone(), &place, source);
            }
        }
    }

    /// Takes the key, unless it is there already.
    fn add(&mut self, new: KeySpec, place: &Place, source: usize) {
        let Some(&index) = self.by_fingerprint.get(&new.fingerprint()) else {
            self.by_fingerprint.insert(new.fingerprint(), self.keys.len());
            self.keys.push(new);
            if let Some(keys) = &mut self.sources[source].keys {
                *keys += 1;
            }
            return;
        };
        let old = &mut self.keys[index];
        let (label, place) = (old.label.clone(), place.clone());
        if new.project.is_some() && old.project.is_some() && new.project != old.project {
            self.notes.push(KeyNote::TwoProjects { label: label.clone(), place: place.clone() });
        }
        old.project = old.project.take().or(new.project);
        if new.tier == old.tier {
            self.notes.push(KeyNote::Duplicate { label, place });
        } else {
            old.tier = Tier::Paid;
            self.notes.push(KeyNote::FreeAndPaid { label, place });
        }
    }

    /// The file as text. What is not UTF-8 in it spoils only the values it stands in; the other
    /// encoding that editors write, UTF-16, spoils everything.
    fn text(&mut self, path: &Path, bytes: Vec<u8>) -> Option<String> {
        if bytes.starts_with(&[0xff, 0xfe])
            || bytes.starts_with(&[0xfe, 0xff])
            || bytes.contains(&0)
        {
            self.fault(Place::File(path.into()), Problem::NotUtf8);
            return None;
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn source(&mut self, kind: SourceKind, exists: bool) -> usize {
        self.sources.push(KeySource { kind, keys: exists.then_some(0) });
        self.sources.len() - 1
    }

    fn fault(&mut self, place: Place, problem: Problem) {
        self.faults.push(KeyFault { place, problem });
    }

    pub(super) fn finish(self) -> Result<LoadedKeys, KeysError> {
        let Self { names, keys, faults, notes, sources, .. } = self;
        if !faults.is_empty() {
            return Err(KeysError::Faults(faults));
        }
        if keys.is_empty() {
            return Err(KeysError::NoKeys(NoKeys {
                looked_for: names.looked_for(),
                sources,
                notes,
            }));
        }
        Ok(LoadedKeys { keys, notes, sources })
    }
}

/// One variable as it will be used.
struct Assignment {
    value: String,
    place: Place,
    /// Index into the sources.
    source: usize,
}

/// No variable's suffix: `GOOGLE_API_KEY` has no quota project of its own.
const GOOGLE_SUFFIX: &str = "=";

/// Names of quota projects by suffix, with where they stand and whether a key asked for them.
#[derive(Default)]
struct Projects {
    by_suffix: BTreeMap<String, (Place, String, bool)>,
}

impl Projects {
    fn of(&mut self, suffix: &str) -> Option<String> {
        let (_, name, used) = self.by_suffix.get_mut(suffix)?;
        *used = true;
        Some(name.clone())
    }
}

/// Where a variable stands in the order of keys.
fn rank(role: Role<'_>) -> (u8, &str) {
    match role {
        Role::Key { suffix: "" } => (1, ""),
        Role::Key { suffix } => (0, suffix),
        Role::List => (2, ""),
        Role::Google => (3, ""),
        Role::Paid { suffix: "" } => (5, ""),
        Role::Paid { suffix } => (4, suffix),
        Role::Project { suffix } => (6, suffix),
        Role::NoSuffix | Role::NearMiss | Role::Other => (7, ""),
    }
}

/// A malformed line may begin with anything, a key included.
fn nameless(place: Place) -> Place {
    match place {
        Place::DotEnv { path, line, .. } => Place::DotEnv { name: String::new(), path, line },
        place => place,
    }
}
