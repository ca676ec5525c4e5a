//! Changes keywheel.toml, and leaves every comment where it is.

use std::path::Path;

use keywheel_gateway::{Config, Project, TokenHash};
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value, value};

use super::{cut, file::Held};
use crate::{exit::Exit, fault::Fault};

/// Limits of a project.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Limits {
    /// At most so many tokens a day, from midnight in California; `none` is no limit, here and below.
    #[arg(long, value_name = "TOKENS", value_parser = cap::<0>)]
    tokens_per_day: Option<Cap>,
    /// At most so many tokens a calendar month.
    #[arg(long, value_name = "TOKENS", value_parser = cap::<0>)]
    tokens_per_month: Option<Cap>,
    /// At most so many calls a day.
    #[arg(long, value_name = "CALLS", value_parser = cap::<0>)]
    calls_per_day: Option<Cap>,
    /// At most so many requests a minute.
    #[arg(long, value_name = "REQUESTS", value_parser = cap::<1>)]
    requests_per_minute: Option<Cap>,
    /// At most so many requests under way at once.
    #[arg(long, value_name = "REQUESTS", value_parser = cap::<1>)]
    in_flight: Option<Cap>,
    /// Whose waiting requests go first: 0 to 100, the highest first.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(..=100))]
    priority: Option<u64>,
    /// The models it may use: a,b,c, or `all`. A later one answers when those before it cannot.
    #[arg(long, value_delimiter = ',')]
    models: Vec<String>,
}

/// A number that is not gone beyond, or that there is none.
#[derive(Debug, Clone, Copy)]
enum Cap {
    None,
    At(u64),
}

/// A configuration being changed.
#[derive(Debug)]
pub(super) struct Edited {
    file: Held,
    document: DocumentMut,
    /// What comes behind it. A section that were inserted would come before the comments at the end of the file, and
    /// take over the settings among them that somebody turns on later.
    appended: String,
}

impl Edited {
    /// Reads the file at `path`, as soon as no other command changes it.
    ///
    /// # Errors
    /// It cannot be read, or is no TOML. No line of it is repeated: it may hold a key.
    pub(super) fn read(path: &Path) -> Result<Self, Fault> {
        let file = Held::open(path)?;
        let parsed = file.text().parse().map_err(|error: toml_edit::TomlError| {
            let at = error.span().map_or(0, |span| span.start);
            let (line, column) = keywheel::settings::position(file.text(), at);
            let what = error.message().trim_end().replace('\n', ", ");
            Fault::usage(format!("{}:{line}:{column}: {what}", path.display()))
        });
        Ok(Self { document: parsed?, appended: String::new(), file })
    }

    /// The same with another project.
    ///
    /// # Errors
    /// There is one of that name, or no project can be called so.
    pub(super) fn with_project(
        mut self,
        name: &str,
        token: &TokenHash,
        limits: &Limits,
    ) -> Result<Self, Fault> {
        Project::check_name(name).map_err(Fault::usage)?;
        if self.projects()?.is_some_and(|projects| projects.contains_key(name)) {
            let what = format!("there is a project {name} already");
            let hint = format!("`keywheel project rotate {name}` gives it a new token");
            return Err(Fault::usage(what).hint(hint));
        }
        let mut projects = Table::new();
        // Without a line `[projects]` of its own.
        projects.set_implicit(true);
        projects.insert(name, Item::Table(limits.table(token)));
        let mut section = DocumentMut::new();
        section.insert("projects", Item::Table(projects));
        self.appended = format!("\n{section}");
        Ok(self)
    }

    /// The same with other limits of the project; those that are not named stay.
    ///
    /// # Errors
    /// There is no such project.
    pub(super) fn with_limits(mut self, name: &str, limits: &Limits) -> Result<Self, Fault> {
        // Where there are no remarks.
        let is_within_braces = self.is_within_braces(name);
        for (setting, new) in limits.settings() {
            let project = self.project(name)?;
            match (new, project.get_mut(setting)) {
                // A remark behind it stays.
                (Some(new), Some(old)) => replace(old, new),
                (Some(new), None) => drop(project.insert(setting, new)),
                (None, None) => {}
                (None, Some(_)) if is_within_braces => drop(project.remove(setting)),
                (None, Some(_)) => self.cut(|text| cut::setting(text, name, setting))?,
            }
        }
        Ok(self)
    }

    /// The same without the project, of which there must be others.
    ///
    /// # Errors
    /// There is no such project, it is the last one, or it is not written as a section.
    pub(super) fn without_project(mut self, name: &str) -> Result<Self, Fault> {
        self.project(name)?;
        let projects = self.projects()?.expect("the project is one of them");
        if projects.len() == 1 {
            let what = "it is the last project; without any the gateway asks nobody for a token";
            return Err(Fault::usage(what)
                .hint("`keywheel project rotate` ends its token; add another project first"));
        }
        if projects.get(name).and_then(Item::as_table).is_none_or(Table::is_dotted) {
            let what = "it is not written as a section, and what belongs to it cannot be told";
            return Err(Fault::usage(what).hint("take its lines out of the file by hand"));
        }
        self.cut(|text| cut::project(text, name))?;
        Ok(self)
    }

    /// The same with another token of the project; with `keep` besides those that it has.
    ///
    /// # Errors
    /// There is no such project.
    pub(super) fn with_token(
        mut self,
        name: &str,
        token: &TokenHash,
        keep: bool,
    ) -> Result<Self, Fault> {
        let project = self.project(name)?;
        let mut tokens = Array::new();
        if keep {
            match project.get(TOKEN).and_then(Item::as_value) {
                Some(Value::Array(old)) => old.iter().for_each(|old| tokens.push(old.clone())),
                Some(old) => tokens.push(old.clone().decorated(" ", "")),
                None => {}
            }
        }
        tokens.push(token.to_string());
        tokens.fmt();
        let new = if keep { value(tokens) } else { value(token.to_string()) };
        match project.get_mut(TOKEN) {
            Some(old) => replace(old, new),
            None => drop(project.insert(TOKEN, new)),
        }
        Ok(self)
    }

    /// Replaces the file in one step; its owner, its permissions and the ends of its lines stay.
    ///
    /// # Errors
    /// The gateway would refuse what is new in it, or it cannot be written; then it is as it was.
    pub(super) fn write(self) -> Result<(), Fault> {
        let text = self.text();
        let faults = new_faults(self.file.path(), self.file.text(), &text);
        if !faults.is_empty() {
            let (path, faults) = (self.file.path().display(), faults.join("\n  "));
            let what = format!("{path} is as it was: the gateway would refuse this:\n  {faults}");
            return Err(Fault::usage(what));
        }
        self.file.replace(text)
    }

    fn text(&self) -> String {
        let mut text = self.document.to_string();
        let is_open = !text.is_empty() && !text.ends_with('\n');
        if is_open && !self.appended.is_empty() {
            text.push('\n');
        }
        text + &self.appended
    }

    /// Changes the text as a whole.
    fn cut(
        &mut self,
        change: impl FnOnce(&str) -> Result<String, toml_edit::TomlError>,
    ) -> Result<(), Fault> {
        let changed = change(&self.document.to_string()).and_then(|text| text.parse());
        // What was TOML before is so without one of its lines.
        let unfit = |_| Fault::new(Exit::Fault, "its lines cannot be told apart from others");
        self.document = changed.map_err(unfit)?;
        Ok(())
    }

    fn project(&mut self, name: &str) -> Result<&mut dyn TableLike, Fault> {
        let projects = self.projects()?;
        let names = projects.iter().flat_map(|projects| projects.iter().map(|(name, _)| name));
        let names: Vec<_> = names.map(str::to_owned).collect();
        let project = projects.and_then(|projects| projects.get_mut(name)?.as_table_like_mut());
        project.ok_or_else(|| {
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let what = format!("there is no project of that name; there is {names}");
            Fault::usage(what).hint("`keywheel project add <name>` makes one")
        })
    }

    fn is_within_braces(&self, name: &str) -> bool {
        let projects = self.document.get("projects");
        projects.and_then(|projects| projects.get(name)).is_some_and(Item::is_inline_table)
    }

    /// All of them. `None`: the file names none.
    fn projects(&mut self) -> Result<Option<&mut Table>, Fault> {
        let Some(projects) = self.document.get_mut("projects") else { return Ok(None) };
        projects.as_table_mut().map(Some).ok_or_else(|| {
            Fault::usage("`projects` is not written as sections")
                .hint("write each project as a section: [projects.<name>]")
        })
    }
}

/// What the gateway would find wrong with `after` and does not with `before`, the file at `path`.
fn new_faults(path: &Path, before: &str, after: &str) -> Vec<String> {
    // Projects get their tokens one by one, and those that still have none are no reason not to go on. Other variables
    // change nothing that a project could.
    let variables = [("KEYWHEEL_TOKEN", "a-token-that-opens-nothing")];
    let faults = |text| {
        let read = Config::parse(path, text, variables);
        let faults = read.err().map(|errors| errors.faults().to_vec()).unwrap_or_default();
        faults.into_iter().map(|fault| fault.what).collect::<Vec<_>>()
    };
    let known = faults(before);
    let mut new = faults(after);
    // One that was there may name a line that has moved.
    new.retain(|fault| {
        known.is_empty() || fault.starts_with("projects.") && !known.contains(fault)
    });
    new
}

/// Puts `new` in the place of `old`, and keeps the remark behind it.
fn replace(old: &mut Item, new: Item) {
    let decor = old.as_value().map(|old| old.decor().clone());
    *old = new;
    if let (Some(decor), Some(new)) = (decor, old.as_value_mut()) {
        *new.decor_mut() = decor;
    }
}

impl Limits {
    /// True if none is named.
    pub(super) fn is_empty(&self) -> bool {
        self.settings().next().is_none()
    }

    fn table(&self, token: &TokenHash) -> Table {
        let mut table = Table::new();
        table.insert(TOKEN, value(token.to_string()));
        for (name, limit) in self.settings() {
            if let Some(limit) = limit {
                table.insert(name, limit);
            }
        }
        table
    }

    /// Those that are named, as settings of the file; `None`: it is not to stand there.
    fn settings(&self) -> impl Iterator<Item = (&'static str, Option<Item>)> {
        let caps = [
            ("tokens_per_day", self.tokens_per_day),
            ("tokens_per_month", self.tokens_per_month),
            ("calls_per_day", self.calls_per_day),
            ("requests_per_minute", self.requests_per_minute),
            ("in_flight", self.in_flight),
            ("priority", self.priority.map(Cap::At)),
        ];
        let number = |cap| match cap {
            Cap::None => None,
            Cap::At(most) => Some(value(i64::try_from(most).unwrap_or(i64::MAX))),
        };
        let caps = caps.into_iter().filter_map(move |(name, cap)| Some((name, number(cap?))));
        let models = (!self.models.is_empty()).then(|| {
            let any = self.models == ["all"];
            let named = || value(self.models.iter().map(String::as_str).collect::<Array>());
            ("models", (!any).then(named))
        });
        caps.chain(models)
    }
}

fn cap<const LEAST: u64>(text: &str) -> Result<Cap, String> {
    match text.parse() {
        Ok(most) if most >= LEAST => Ok(Cap::At(most)),
        _ if text == "none" => Ok(Cap::None),
        _ => Err(format!("it must be a whole number from {LEAST} on, or `none`")),
    }
}

/// The setting that keeps a token's hash.
const TOKEN: &str = "token_sha256";
