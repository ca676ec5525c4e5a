//! `keywheel check`: does each key work? Asks for the list of models, which costs no quota.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use futures_util::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use keywheel::{KeyCheck, KeyHealth, Tier};
use serde::Serialize;

use crate::{
    exit::Exit,
    fault::Fault,
    moment,
    output::{self, Paint, Table, say},
    settings::Settings,
};

/// What `check` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the living keys to this file, which must not be there: one a line, readable by you alone.
    #[arg(long, value_name = "FILE")]
    prune: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The document of `check`.
#[derive(Debug, Serialize)]
struct Report {
    at: String,
    keys: Vec<Line>,
    alive: usize,
    dead: usize,
    unknown: usize,
    /// Labels of keys that a reply named one project for, or that met one quota together.
    same_project: Vec<Vec<String>>,
    /// Where the living keys were written.
    pruned_to: Option<String>,
}

/// One key.
#[derive(Debug, Serialize)]
struct Line {
    label: String,
    fingerprint: String,
    tier: Tier,
    /// `alive`, `limited` (alive, and refused for now), `dead` or `unknown`.
    health: &'static str,
    cause: Option<String>,
    status: Option<u16>,
    message: String,
    /// What its owner can do.
    fix: Option<String>,
    old_style: bool,
    project_number: Option<String>,
}

/// Checks every key, four at a time.
///
/// # Errors
/// No keys, faulty settings, or a file of living keys that cannot be written.
pub(crate) async fn run(args: &Args, settings: &Settings) -> Result<Exit, Fault> {
    if let Some(path) = args.prune.as_ref().filter(|path| path.exists()) {
        let what = format!("{} is there already, and stays as it is", path.display());
        return Err(Fault::usage(what).hint("name a new file for the living keys"));
    }
    let gemini = settings.client()?.build().await?;
    for note in gemini.key_notes() {
        say(note);
    }
    let status = gemini.status();
    let progress = progress(status.keys.len());
    let mut found = Vec::new();
    let mut checks = std::pin::pin!(gemini.check_keys());
    while let Some(check) = checks.next().await {
        progress.inc(1);
        progress.set_message(check.spec.label.clone());
        found.push(check);
    }
    progress.finish_and_clear();
    // Keys that came back are to be seen by others, too.
    if let Err(fault) = gemini.flush().await {
        say(format!("keywheel: the state file was not written: {fault}"));
    }
    let hints = status.same_project.into_iter().map(|hint| hint.labels);
    let mut report = Report::new(&found, hints.collect());
    if let Some(path) = &args.prune {
        prune(path, &found)?;
        report.pruned_to = Some(path.display().to_string());
    }
    if args.json {
        output::json("check", &report)?;
    } else {
        output::write(&report.text(Paint::stdout()))?;
    }
    Ok(report.exit())
}

impl Report {
    fn new(found: &[KeyCheck], mut same_project: Vec<Vec<String>>) -> Self {
        let mut by_number: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for check in found {
            if let Some(number) = &check.project_number {
                by_number.entry(number).or_default().push(check.spec.label.clone());
            }
        }
        same_project.extend(by_number.into_values().filter(|labels| labels.len() > 1));
        let count = |wanted: fn(KeyHealth) -> bool| {
            found.iter().filter(|check| wanted(check.health)).count()
        };
        Self {
            at: moment::rfc3339(moment::now()),
            alive: count(is_alive),
            dead: count(|health| matches!(health, KeyHealth::Dead(_))),
            unknown: count(|health| !is_alive(health) && !matches!(health, KeyHealth::Dead(_))),
            keys: found.iter().map(Line::new).collect(),
            same_project,
            pruned_to: None,
        }
    }

    /// A dead key is for somebody to act on; without any answer, time may help.
    const fn exit(&self) -> Exit {
        match (self.dead, self.alive) {
            (0, 0) => Exit::NotNow,
            (0, _) => Exit::Fine,
            _ => Exit::DeadKey,
        }
    }

    fn text(&self, paint: Paint) -> String {
        let mut table = Table::new(["key", "fingerprint", "", "why", "to do"]);
        for line in &self.keys {
            let health = match line.health {
                "alive" => paint.good("alive"),
                "limited" => paint.good("alive, limited"),
                "dead" => paint.bad("dead"),
                other => paint.waiting(other),
            };
            let mut why = line.cause.clone().unwrap_or_default();
            if line.health != "alive" && !line.message.is_empty() {
                why = format!("{why} {}", shortened(&line.message)).trim().to_owned();
            }
            let fix = line.fix.clone().unwrap_or_default();
            table.row([line.label.clone(), line.fingerprint.clone(), health, why, fix]);
        }
        let mut text = table.to_string();
        text += &format!("{} alive, {} dead, {} unknown\n", self.alive, self.dead, self.unknown);
        let old: Vec<_> = self.keys.iter().filter(|line| line.old_style).collect();
        if !old.is_empty() {
            let labels: Vec<_> = old.iter().map(|line| line.label.as_str()).collect();
            text += &format!(
                "of the old form (AIza…), which Google retires: {}; make new ones in AI Studio\n",
                labels.join(", ")
            );
        }
        for labels in &self.same_project {
            text += &format!(
                "probably one project, and one quota: {}; GEMINI_PROJECT_<SUFFIX> says so to keywheel\n",
                labels.join(", ")
            );
        }
        if let Some(path) = &self.pruned_to {
            text += &format!("the living keys are in {path}\n");
        }
        text
    }
}

impl Line {
    fn new(check: &KeyCheck) -> Self {
        let (health, cause) = match check.health {
            KeyHealth::Alive => ("alive", None),
            KeyHealth::Limited(cause) => ("limited", Some(cause)),
            KeyHealth::Dead(cause) => ("dead", Some(cause)),
            _ => ("unknown", None),
        };
        Self {
            label: check.spec.label.clone(),
            fingerprint: check.spec.fingerprint().to_string(),
            tier: check.spec.tier,
            health,
            cause: cause.map(|cause| cause.to_string()),
            status: check.status,
            message: check.message.clone(),
            fix: check.fix.map(str::to_owned),
            old_style: check.is_old_style(),
            project_number: check.project_number.clone(),
        }
    }
}

const fn is_alive(health: KeyHealth) -> bool {
    matches!(health, KeyHealth::Alive | KeyHealth::Limited(_))
}

/// Writes the living keys, and those of which nothing is known: a network that is down is no reason to lose keys.
fn prune(path: &Path, found: &[KeyCheck]) -> Result<(), Fault> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(|error| Fault::unmade(path, &error))?;
    for check in found {
        match check.health {
            KeyHealth::Dead(_) => {}
            health => {
                let why = if is_alive(health) { "" } else { " (could not be checked)" };
                let (label, key) = (&check.spec.label, check.spec.key.expose());
                writeln!(file, "# {label}{why}\n{key}")?;
            }
        }
    }
    Ok(file.sync_all()?)
}

fn shortened(message: &str) -> String {
    const LONGEST: usize = 100;
    let line = message.replace('\n', " ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A bar where somebody sees it.
fn progress(keys: usize) -> ProgressBar {
    if !output::stderr_is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("checking {bar:20} {pos}/{len} {msg}");
    let bar = ProgressBar::new(keys as u64);
    match style {
        Ok(style) => bar.with_style(style.progress_chars("##-")),
        Err(_) => bar,
    }
}
