//! `keywheel ledger audit | sweep | prune`: what keeps the books in order.

use keywheel::ledger::{LedgerStore as _, store::BATCH};
use serde::Serialize;

use crate::{
    exit::Exit,
    fault::Fault,
    moment, output,
    settings::Settings,
    sources::{LedgerPlace, looking},
};

/// What `ledger audit` takes.
#[derive(Debug, clap::Args)]
pub(super) struct AuditArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What `ledger sweep` takes.
#[derive(Debug, clap::Args)]
pub(super) struct SweepArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What `ledger prune` takes.
#[derive(Debug, clap::Args)]
pub(super) struct PruneArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The document of `ledger audit`.
#[derive(Debug, Serialize)]
struct Audit {
    balanced: bool,
    rows: u64,
    totals: u64,
    mismatches: Vec<String>,
}

/// The document of `ledger sweep`.
#[derive(Debug, Serialize)]
struct Swept {
    rows: u64,
    tokens: u64,
}

/// The document of `ledger prune`.
#[derive(Debug, Serialize)]
struct Pruned {
    rows: u64,
}

/// Compares rows and totals.
///
/// # Errors
/// There is no ledger, or it cannot be read.
pub(super) async fn audit(args: &AuditArgs, settings: &Settings) -> Result<Exit, Fault> {
    let report = looking(settings.ledger()?).await?.audit().await?;
    let balanced = report.is_balanced();
    let mismatches: Vec<_> = report.mismatches.iter().map(|wrong| format!("{wrong:?}")).collect();
    let audit = Audit { balanced, rows: report.rows, totals: report.totals, mismatches };
    if args.json {
        output::json("ledger audit", &audit)?;
    } else {
        output::print(format_args!(
            "{} totals over {} rows, {} of them wrong",
            audit.totals,
            audit.rows,
            audit.mismatches.len()
        ))?;
        for wrong in &audit.mismatches {
            output::print(wrong)?;
        }
    }
    Ok(if balanced { Exit::Fine } else { Exit::Fault })
}

/// Ends what is overdue.
///
/// # Errors
/// There is no ledger, or it cannot be written.
pub(super) async fn sweep(args: &SweepArgs, settings: &Settings) -> Result<Exit, Fault> {
    let place = LedgerPlace::find(settings.ledger()?)?;
    let store = place.store().await?;
    let mut swept = Swept { rows: 0, tokens: 0 };
    loop {
        let rows = store.sweep(moment::now(), place.sweep_after()).await?;
        swept.rows += rows.len() as u64;
        let tokens = rows.iter().map(|row| row.estimate.total());
        swept.tokens = tokens.fold(swept.tokens, u64::saturating_add);
        if rows.len() < BATCH {
            break;
        }
    }
    if args.json {
        output::json("ledger sweep", &swept)?;
    } else {
        output::print(format_args!(
            "{} reservations ended that were silent for over {} s, charged at {} tokens",
            swept.rows,
            place.sweep_after().as_secs(),
            swept.tokens
        ))?;
    }
    Ok(Exit::Fine)
}

/// Removes what is old.
///
/// # Errors
/// There is no ledger, or it cannot be written.
pub(super) async fn prune(args: &PruneArgs, settings: &Settings) -> Result<Exit, Fault> {
    let rows = LedgerPlace::find(settings.ledger()?)?.open().await?.prune().await?;
    if args.json {
        output::json("ledger prune", &Pruned { rows })?;
    } else {
        output::print(format_args!("{rows} rows removed; no total has changed"))?;
    }
    Ok(Exit::Fine)
}
