//! Changes keywheel.toml, and leaves every comment where it is.

use std::{fs, io::Write as _, path::Path};

use keywheel_gateway::TokenHash;
use toml_edit::{Array, DocumentMut, Item, Table, Value, value};

use crate::{exit::Exit, fault::Fault};

/// Limits that a project can begin with.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Limits {
    /// At most so many tokens a day, by Google's clock.
    #[arg(long, value_name = "TOKENS")]
    tokens_per_day: Option<u64>,
    /// At most so many tokens a month.
    #[arg(long, value_name = "TOKENS")]
    tokens_per_month: Option<u64>,
    /// At most so many calls a day.
    #[arg(long, value_name = "CALLS")]
    calls_per_day: Option<u64>,
    /// At most so many requests a minute.
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
    requests_per_minute: Option<u64>,
    /// At most so many requests under way at once.
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
    in_flight: Option<u64>,
    /// Whose queued requests go first: 0 to 100.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=100))]
    priority: Option<u64>,
    /// The models it may use: a,b,c. A later one answers when those before it cannot.
    #[arg(long, value_delimiter = ',')]
    models: Vec<String>,
}

/// A configuration being changed.
#[derive(Debug)]
pub(super) struct Edited {
    document: DocumentMut,
    /// What comes behind it. A section that were inserted would come before the comments at the end of the file, and
    /// take over the settings among them that somebody turns on later.
    appended: String,
}

impl Edited {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or is no TOML. No line of it is repeated: it may hold a key.
    pub(super) fn read(path: &Path) -> Result<Self, Fault> {
        let text = fs::read_to_string(path)
            .map_err(|error| Fault::usage(format!("{}: {error}", path.display())))?;
        let parsed = text.parse().map_err(|error: toml_edit::TomlError| {
            let at = error.span().map_or(0, |span| span.start);
            let (line, column) = keywheel::settings::position(&text, at);
            let what = error.message().trim_end().replace('\n', ", ");
            Fault::usage(format!("{}:{line}:{column}: {what}", path.display()))
        });
        Ok(Self { document: parsed?, appended: String::new() })
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
        check_name(name)?;
        let projects = self.projects()?;
        if projects.contains_key(name) {
            let what = format!("there is a project {name} already");
            let hint = format!("`keywheel project rotate {name}` gives it a new token");
            return Err(Fault::usage(what).hint(hint));
        }
        let mut added = implicit();
        added.insert(name, Item::Table(limits.table(token)));
        let mut section = DocumentMut::new();
        section.insert("projects", Item::Table(added));
        self.appended = format!("\n{section}");
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
        let projects = self.projects()?;
        let known: Vec<_> = projects.iter().map(|(name, _)| name.to_owned()).collect();
        let Some(project) = projects.get_mut(name).and_then(Item::as_table_like_mut) else {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let what = format!("there is no project of that name; there is {known}");
            return Err(Fault::usage(what).hint("`keywheel project add <name>` makes one"));
        };
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
            // A comment behind it stays.
            Some(old) => {
                let decor = old.as_value().map(|old| old.decor().clone());
                *old = new;
                if let (Some(decor), Some(new)) = (decor, old.as_value_mut()) {
                    *new.decor_mut() = decor;
                }
            }
            None => drop(project.insert(TOKEN, new)),
        }
        Ok(self)
    }

    /// Replaces the file at `path` in one step; its permissions stay.
    ///
    /// # Errors
    /// It cannot be written; then it is as it was.
    pub(super) fn write(&self, path: &Path) -> Result<(), Fault> {
        let unwritten = |error: std::io::Error| {
            Fault::new(Exit::Fault, format!("{} cannot be written: {error}", path.display()))
        };
        // A link stays a link.
        let target = fs::canonicalize(path).map_err(unwritten)?;
        let folder = target.parent().unwrap_or(Path::new("/"));
        let mut file = tempfile::Builder::new()
            .prefix(".keywheel.toml.")
            .tempfile_in(folder)
            .map_err(unwritten)?;
        file.write_all(self.text().as_bytes()).map_err(unwritten)?;
        let permissions = fs::metadata(&target).map_err(unwritten)?.permissions();
        file.as_file().set_permissions(permissions).map_err(unwritten)?;
        file.as_file().sync_all().map_err(unwritten)?;
        file.persist(&target).map_err(|error| unwritten(error.error))?;
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = self.document.to_string();
        let is_open = !text.is_empty() && !text.ends_with('\n');
        if is_open && !self.appended.is_empty() {
            text.push('\n');
        }
        text + &self.appended
    }

    fn projects(&mut self) -> Result<&mut Table, Fault> {
        let projects = self.document.entry("projects").or_insert_with(|| Item::Table(implicit()));
        projects.as_table_mut().ok_or_else(|| {
            Fault::usage("`projects` is not written as sections")
                .hint("write each project as a section: [projects.<name>]")
        })
    }
}

/// `projects` with nothing in it, and no line `[projects]` of its own.
fn implicit() -> Table {
    let mut projects = Table::new();
    projects.set_implicit(true);
    projects
}

impl Limits {
    fn table(&self, token: &TokenHash) -> Table {
        let mut table = Table::new();
        table.insert(TOKEN, value(token.to_string()));
        for (name, limit) in [
            ("tokens_per_day", self.tokens_per_day),
            ("tokens_per_month", self.tokens_per_month),
            ("calls_per_day", self.calls_per_day),
            ("requests_per_minute", self.requests_per_minute),
            ("in_flight", self.in_flight),
            ("priority", self.priority),
        ] {
            if let Some(limit) = limit {
                table.insert(name, value(i64::try_from(limit).unwrap_or(i64::MAX)));
            }
        }
        if !self.models.is_empty() {
            let models: Array = self.models.iter().map(String::as_str).collect();
            table.insert("models", value(models));
        }
        table
    }
}

/// The setting that keeps a token's hash.
const TOKEN: &str = "token_sha256";

/// What the gateway would say of it, said before the file is changed.
fn check_name(name: &str) -> Result<(), Fault> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let looks_like_a_secret = name.starts_with("AIza") || name.starts_with("kw_");
    let fits = !name.is_empty() && name.len() <= 128;
    if fits && name.chars().all(plain) && !name.starts_with('.') && !looks_like_a_secret {
        return Ok(());
    }
    Err(Fault::usage(
        "a project's name is made of letters, digits, dots, dashes and underscores, 128 at most",
    ))
}
