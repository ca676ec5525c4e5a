//! `keywheel ledger`: the budget's books.

mod change;
mod export;
mod filter;
mod rows;
mod usage;

use clap::Subcommand;

use crate::{exit::Exit, fault::Fault, settings::Settings};

/// What `ledger` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// What is to be done with the books. Reading commands change nothing, not even what is overdue.
#[derive(Debug, Subcommand)]
enum Command {
    /// Show what was used, and how full the limits are.
    Usage(usage::Args),
    /// Show the rows: one for each request that was sent, or was about to be.
    Rows(rows::Args),
    /// Write the rows as CSV or JSON, for other programs.
    Export(export::Args),
    /// Check that the books balance: that the rows add up to the totals which limits go by.
    Audit(change::AuditArgs),
    /// End reservations whose holders are gone, charged at their estimates.
    Sweep(change::SweepArgs),
    /// Remove rows older than the ledger keeps them; no total changes.
    Prune(change::PruneArgs),
}

/// Does what was asked for.
///
/// # Errors
/// There is no ledger, or it cannot be read or written.
pub(crate) async fn run(args: Args, settings: &Settings) -> Result<Exit, Fault> {
    match args.command {
        Command::Usage(args) => usage::run(&args, settings).await,
        Command::Rows(args) => rows::run(&args, settings).await,
        Command::Export(args) => export::run(&args, settings).await,
        Command::Audit(args) => change::audit(&args, settings).await,
        Command::Sweep(args) => change::sweep(&args, settings).await,
        Command::Prune(args) => change::prune(&args, settings).await,
    }
}
