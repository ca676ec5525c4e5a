//! What the program takes.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{
    commands::{
        ask, capacity, check, clear, completions, explain, init, ledger, project, reload, serve,
        smoke, status, window,
    },
    exit,
};

/// Several apps on one set of Gemini keys, each with a budget of its own: the gateway, and what there is to know of
/// its keys.
#[derive(Debug, Parser)]
#[command(name = "keywheel", version, after_help = after_help(), propagate_version = true)]
#[command(subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// The configuration file; by default keywheel.toml in this folder if there is one, else the environment alone.
    #[arg(long, value_name = "FILE", env = "KEYWHEEL_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway.
    Serve(serve::Args),
    /// Write a commented keywheel.toml.
    Init(init::Args),
    /// Add, change, remove and list the projects, and renew their tokens.
    Project(project::Args),
    /// Show keys, quotas and when they come back, as the state file knows them.
    Status(status::Args),
    /// Ask Google whether each key works. Costs no quota.
    Check(check::Args),
    /// Ask a model, and print its answer as it comes.
    Ask(ask::Args),
    /// Say what an error reply means.
    Explain(explain::Args),
    /// Show what was used of the budgets, and look after the ledger that keeps it.
    Ledger(ledger::Args),
    /// Say when the daily quota comes back, and whether a run crosses that moment.
    Window(window::Args),
    /// Say what the keys allow a day, in requests and in turns of your app.
    Capacity(capacity::Args),
    /// Let keys be used again that are held back: take cooldowns and quarantines away.
    Clear(clear::Args),
    /// Make running gateways read their configuration and keys again, and say what needs a restart.
    Reload(reload::Args),
    /// Wake a deployed gateway several times, and see that its ledger survives.
    Smoke(smoke::Args),
    /// Print completions for a shell.
    Completions(completions::Args),
}

/// What stands below the commands.
fn after_help() -> String {
    format!("{BEGIN}\n\n{}", exit::TABLE)
}

const BEGIN: &str = "\
To begin: `keywheel init`, `keywheel project add <name>`, `keywheel serve`; or `keywheel serve --demo`, without keys.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
