//! `[keys]` and `[[key]]`: where keys are looked for, and those that the file lists.

use keywheel_core::{ApiKey, Tier, scrub::scrub};
use keywheel_pool::{KeySpec, keys::KeyLoader};

use keywheel_settings::{Section, words::path};

use super::read::{Source, literal};

/// What a prefix is.
pub(super) const PREFIX: &str = "the beginning of variables' names";

/// What the file says about keys.
pub(super) struct Keys {
    pub(super) loader: KeyLoader,
    /// At least one key stands in the file itself.
    pub(super) in_the_file: bool,
    /// The file says which keys: a prefix, a key file, or a list.
    pub(super) are_named: bool,
}

/// Reads both sections. `[keys]` goes first: it says which `.env` file the variables are in.
///
/// `given` is a prefix that stands elsewhere.
pub(super) fn keys(
    at: &mut Section<'_>,
    source: &mut Source,
    given: Option<(usize, String)>,
) -> Keys {
    let (mut prefix, mut file) = (None, None);
    if let Some(mut keys) = at.table("keys") {
        prefix = keys.text("prefix", PREFIX, variable_name);
        if let (Some(_), Some((place, _))) = (&prefix, &given) {
            at.faults().add(*place, "upstream.key_prefix: keys.prefix says it, too; one is enough");
        }
        file = keys.text("file", "a path", path).map(|path| source.path(&path));
        if let Some(path) = keys.text("dotenv", "a path", path) {
            source.set_dotenv(source.path(&path));
        }
        keys.end();
    }
    let prefix = prefix.or(given.map(|(_, prefix)| prefix));
    let listed = at.tables("key");
    let are_named = prefix.is_some() || file.is_some() || !listed.is_empty();
    let variables_wanted = prefix.is_some() || (file.is_none() && listed.is_empty());
    let mut loader = if variables_wanted { source.variables() } else { KeyLoader::new() };
    if let Some(prefix) = prefix {
        loader = loader.prefix(prefix);
    }
    if let Some(file) = file {
        loader = loader.file(file);
    }
    let mut found = Listed::default();
    for section in listed {
        found.read(section, source);
    }
    found.check_names(at);
    Keys { loader: loader.keys(found.specs), in_the_file: found.in_the_file, are_named }
}

/// The keys of `[[key]]`.
#[derive(Default)]
struct Listed {
    specs: Vec<KeySpec>,
    in_the_file: bool,
    /// What people will see, and where it stands.
    labels: Vec<(usize, String)>,
    projects: Vec<(usize, String)>,
}

impl Listed {
    fn read(&mut self, mut at: Section<'_>, source: &Source) {
        let label = at.text_at("label", "a name", name);
        let project = at.text_at("project", "a name", name);
        let paid = at.boolean("paid") == Some(true);
        match (at.has("variable"), at.has("key")) {
            (true, true) => at.own_fault("has a variable and a key; only one of them can count"),
            (false, false) => at.own_fault("has no key: name its variable"),
            _ => {}
        }
        self.in_the_file |= at.has("key");
        let (faults, section_at) = (at.faults(), at.at());
        let in_variable = at.text("variable", "the name of a variable", |text| {
            let name = variable_name(text)?;
            source.variable(&name).map(|key| (key, name))
        });
        let in_file = at.text("key", "a key", |text| {
            // As it stands, too: a faulty one is no less a secret.
            ApiKey::new(text.trim()).into_iter().for_each(|key| faults.keep_secret(key));
            literal(text)
        });
        let place = || format!("{}:{}", source.name, faults.line(section_at));
        let found = in_variable.or_else(|| Some((in_file?, place())));
        at.end();
        let Some((key, default_label)) = found else { return };
        faults.keep_secret(key.clone());
        self.specs.push(KeySpec {
            key,
            label: label.as_ref().map_or(default_label, |(_, label)| label.clone()),
            project: project.as_ref().map(|(_, project)| project.clone()),
            tier: if paid { Tier::Paid } else { Tier::Free },
        });
        self.labels.extend(label);
        self.projects.extend(project);
    }

    /// Names are shown, so none may be a key; and a label that two keys have is nobody's. To be asked once all keys
    /// are known.
    fn check_names(&self, at: &Section<'_>) {
        let faults = at.faults();
        for (names, setting) in [(&self.labels, "key.label"), (&self.projects, "key.project")] {
            for (at, _) in names.iter().filter(|(_, name)| faults.is_secret(name)) {
                faults.add(*at, format!("{setting}: {}", no_name()));
            }
        }
        for (i, (at, label)) in self.labels.iter().enumerate() {
            if let Some((first, _)) = self.labels[..i].iter().find(|(_, first)| first == label) {
                let line = faults.line(*first);
                faults.add(*at, format!("key.label: is that of the key on line {line} already"));
            }
        }
    }
}

/// A name that people will see.
fn name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let looks_like_a_key = scrub(name, &[]) != name || name.starts_with("AQ.");
    if name.is_empty()
        || looks_like_a_key
        || name.starts_with("key:")
        || name.contains(char::is_control)
    {
        return Err(no_name());
    }
    Ok(name.to_owned())
}

fn no_name() -> String {
    "must be a name; this is empty, looks like a key, begins with \"key:\" or has control characters"
        .to_owned()
}

/// The name of a variable. Faults never repeat it: it may be the key itself.
pub(super) fn variable_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) || scrub(name, &[]) != name {
        return Err("must be letters, digits and underscores, and not the key itself".to_owned());
    }
    Ok(name.to_owned())
}
