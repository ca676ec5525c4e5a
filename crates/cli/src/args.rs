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

/// Lives on the Gemini free tier: a budgeted gateway for apps in any language, and what there is to know of its keys.
#[derive(Debug, Parser)]
#[command(name = "keywheel", version, after_help = exit::TABLE, propagate_version = true)]
#[command(subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// The configuration; without it keywheel.toml in this folder, if it is there, else the environment alone.
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
    /// Show keys, quotas and when they come back, from the state file.
    Status(status::Args),
    /// Ask Google whether each key works. Costs no quota.
    Check(check::Args),
    /// Ask a model, and print its answer as it comes.
    Ask(ask::Args),
    /// Say what an error reply means.
    Explain(explain::Args),
    /// Look at the budget's books.
    Ledger(ledger::Args),
    /// Say when the daily quota comes back, and whether a run crosses that moment.
    Window(window::Args),
    /// Say what the keys allow a day, in requests and in turns of your app.
    Capacity(capacity::Args),
    /// Take cooldowns and quarantines away.
    Clear(clear::Args),
    /// Make running gateways read keys and projects again.
    Reload(reload::Args),
    /// Wake a deployed gateway several times, and see that its ledger survives.
    Smoke(smoke::Args),
    /// Print completions for a shell.
    Completions(completions::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
