//! One file for each command.

pub(crate) mod ask;
pub(crate) mod capacity;
pub(crate) mod check;
pub(crate) mod clear;
pub(crate) mod completions;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod ledger;
pub(crate) mod project;
pub(crate) mod reload;
pub(crate) mod serve;
pub(crate) mod smoke;
pub(crate) mod status;
pub(crate) mod window;

use crate::{
    args::{Cli, Command},
    exit::Exit,
    fault::Fault,
    settings::Settings,
};

/// Does what was asked for.
///
/// # Errors
/// What went wrong, with the code to end with.
pub(crate) async fn run(cli: Cli) -> Result<Exit, Fault> {
    let settings = || Settings::find(cli.config.clone());
    match cli.command {
        // Those that need no settings come first: a faulty file must not be in their way.
        Command::Completions(args) => completions::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Window(args) => window::run(&args),
        Command::Smoke(args) => smoke::run(&args).await,
        Command::Init(args) => init::run(&args, cli.config.as_deref()),
        Command::Project(args) => project::run(args, cli.config.as_deref()),
        Command::Serve(args) => serve::run(args, &settings()?).await,
        Command::Status(args) => status::run(&args, &settings()?).await,
        Command::Check(args) => check::run(&args, &settings()?).await,
        Command::Ask(args) => ask::run(args, &settings()?).await,
        Command::Ledger(args) => ledger::run(args, &settings()?).await,
        Command::Capacity(args) => capacity::run(&args, &settings()?).await,
        Command::Clear(args) => clear::run(args, &settings()?).await,
        Command::Reload(args) => reload::run(&args, &settings()?),
    }
}
