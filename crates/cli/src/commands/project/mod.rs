//! `keywheel project`: the apps that share the allowance, and their tokens.

mod cut;
mod edit;
mod file;
mod list;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use keywheel_gateway::{Config, Token};
use serde::Serialize;

use self::edit::{Edited, Limits};
use crate::{
    exit::Exit,
    fault::Fault,
    output::{self, say},
    settings::{HERE, Settings},
};

/// What `project` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// What is to be done with the projects.
#[derive(Debug, Subcommand)]
enum Command {
    /// Add a project to the configuration, and print its token: this once, for it is kept nowhere.
    Add(LimitsArgs),
    /// Give a project a new token, and print it. The old one ends at once, or stays with --keep.
    Rotate(RotateArgs),
    /// Change the limits of a project; those that are not given stay.
    Set(LimitsArgs),
    /// Take a project out of the configuration. What it has used stays in the ledger.
    Remove(NameArgs),
    /// Show the projects and their limits.
    List(list::Args),
}

#[derive(Debug, clap::Args)]
struct NameArgs {
    /// The project's name: letters (a-z, A-Z), digits, dots, dashes and underscores.
    name: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct LimitsArgs {
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    project: NameArgs,
}

#[derive(Debug, clap::Args)]
struct RotateArgs {
    /// Let the tokens that it has work, too, until the next rotation: so that clients can change over.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    project: NameArgs,
}

/// The document of `project add` and `project rotate`.
#[derive(Debug, Serialize)]
struct Issued<'a> {
    project: &'a str,
    /// Shown here, and nowhere else ever.
    token: &'a str,
    config: String,
}

/// The document of `project set` and `project remove`.
#[derive(Debug, Serialize)]
struct Changed<'a> {
    project: &'a str,
    config: String,
}

/// Does what was asked for.
///
/// # Errors
/// There is no configuration, it cannot be read or written, or the project is there already or not at all.
pub(crate) fn run(args: Args, config: Option<&Path>) -> Result<Exit, Fault> {
    match args.command {
        Command::Add(LimitsArgs { limits, project }) => {
            let (path, token) = (place(config)?, token()?);
            let edited = Edited::read(&path)?;
            edited.with_project(&project.name, &token.hash(), &limits)?.write()?;
            issue("project add", &project, &token, &path)
        }
        Command::Rotate(RotateArgs { keep, project }) => {
            let (path, token) = (place(config)?, token()?);
            Edited::read(&path)?.with_token(&project.name, &token.hash(), keep)?.write()?;
            issue("project rotate", &project, &token, &path)
        }
        Command::Set(LimitsArgs { limits, project }) => {
            if limits.is_empty() {
                return Err(Fault::usage("no limit is named")
                    .hint("`keywheel project set --help` lists them"));
            }
            let path = place(config)?;
            Edited::read(&path)?.with_limits(&project.name, &limits)?.write()?;
            changed("project set", &project, &path, "has other limits now in")
        }
        Command::Remove(project) => {
            let path = place(config)?;
            Edited::read(&path)?.without_project(&project.name)?.write()?;
            let exit = changed("project remove", &project, &path, "is no more in")?;
            say("what it has used stays in the ledger, and counts against the allowance");
            Ok(exit)
        }
        Command::List(args) => list::run(&args, &Settings::find(config.map(Path::to_path_buf))?),
    }
}

/// The file that is edited.
fn place(config: Option<&Path>) -> Result<PathBuf, Fault> {
    let path = config.unwrap_or(Path::new(HERE)).to_path_buf();
    if path.is_file() {
        return Ok(path);
    }
    let what = format!("there is no configuration at {}", path.display());
    let hint = "`keywheel init` writes one; --config names another";
    Err(Fault::usage(what).hint(hint))
}

fn token() -> Result<Token, Fault> {
    Token::random().map_err(|error| Fault::new(Exit::Fault, error.to_string()))
}

/// Shows the token, and what is still wrong.
fn issue(command: &str, project: &NameArgs, token: &Token, path: &Path) -> Result<Exit, Fault> {
    let NameArgs { name, json } = project;
    let config = path.display().to_string();
    if *json {
        output::json(command, &Issued { project: name, token: token.expose(), config })?;
    } else {
        output::print(token.expose())?;
    }
    say(format!(
        "the token of {name}, shown this once; {} keeps its SHA-256. Clients show it as their API key.",
        path.display()
    ));
    after(path);
    Ok(Exit::Fine)
}

/// Says what was changed, and what is still wrong.
fn changed(command: &str, project: &NameArgs, path: &Path, what: &str) -> Result<Exit, Fault> {
    let NameArgs { name, json } = project;
    let config = path.display().to_string();
    if *json {
        output::json(command, &Changed { project: name, config })?;
    } else {
        output::print(format_args!("{name} {what} {config}"))?;
    }
    after(path);
    Ok(Exit::Fine)
}

/// What the gateway will say of the file, and when.
fn after(path: &Path) {
    match Config::from_file(path) {
        Ok(read) => {
            read.warnings.iter().for_each(|warning| say(format!("warning: {warning}")));
            say(match read.settings.watch {
                Some(_) => "a running gateway takes it in seconds, or now by `keywheel reload`",
                None => "a running gateway takes it by `keywheel reload`",
            });
        }
        Err(faults) => say(format!(
            "no gateway takes the file as it is; one that runs goes on as before:\n{faults}"
        )),
    }
}
