//! `keywheel project list`: who there is, and what each may use.

use keywheel_gateway::Project;
use serde::Serialize;

use crate::{
    exit::Exit,
    fault::Fault,
    output::{self, Table, say},
    settings::Settings,
};

/// What `project list` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The document of `project list`.
#[derive(Debug, Serialize)]
struct List {
    config: Option<String>,
    asks_for_tokens: bool,
    projects: Vec<Line>,
    warnings: Vec<String>,
}

/// One project.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    /// How many tokens stand for it.
    tokens: usize,
    /// Its caps, each in words.
    limits: Vec<String>,
    requests_per_minute: Option<u32>,
    in_flight: Option<usize>,
    priority: u8,
    models: Vec<String>,
}

/// Shows the projects.
///
/// # Errors
/// The configuration is at fault.
pub(super) fn run(args: &Args, settings: &Settings) -> Result<Exit, Fault> {
    let config = settings.config()?;
    let list = List {
        config: settings.file().map(|file| file.display().to_string()),
        asks_for_tokens: config.settings.asks_for_tokens(),
        projects: config.settings.projects.iter().map(|project| Line::new(project)).collect(),
        warnings: config.warnings,
    };
    if args.json {
        output::json("project list", &list)?;
        return Ok(Exit::Fine);
    }
    let head = ["project", "tokens", "limits", "a minute", "at once", "priority", "models"];
    let mut table = Table::new(head);
    for line in &list.projects {
        let number = |number: Option<String>| number.unwrap_or_else(|| "-".into());
        table.row([
            line.name.clone(),
            line.tokens.to_string(),
            if line.limits.is_empty() { "-".into() } else { line.limits.join(", ") },
            number(line.requests_per_minute.map(|most| most.to_string())),
            number(line.in_flight.map(|most| most.to_string())),
            line.priority.to_string(),
            if line.models.is_empty() { "all".into() } else { line.models.join(", ") },
        ]);
    }
    output::write(&table.to_string())?;
    if !list.asks_for_tokens {
        say("no token is asked for: only this machine may use the gateway");
    }
    list.warnings.iter().for_each(|warning| say(format!("warning: {warning}")));
    Ok(Exit::Fine)
}

impl Line {
    fn new(project: &Project) -> Self {
        Self {
            name: project.name.to_string(),
            tokens: project.tokens.len(),
            limits: project.limits.iter().map(ToString::to_string).collect(),
            requests_per_minute: project.requests_per_minute,
            in_flight: project.in_flight,
            priority: project.priority,
            models: project.models.clone(),
        }
    }
}
