//! `keywheel ledger rows`: attempt by attempt.

use keywheel::ledger::Row;
use serde::Serialize;

use super::filter::Filter;
use crate::{
    exit::Exit,
    fault::Fault,
    moment,
    output::{self, Table, say},
    settings::Settings,
    sources::looking,
};

/// What `ledger rows` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    filter: Filter,
    /// At most so many.
    #[arg(long, default_value_t = 100, value_name = "ROWS")]
    limit: usize,
    /// From the row after this one: the number in its id.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    after: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The document of `ledger rows`.
#[derive(Debug, Serialize)]
struct Rows {
    rows: Vec<Row>,
    /// What to give to `--after` for the next ones; `null`: these were the last.
    next_after: Option<u64>,
}

/// Shows rows, oldest first.
///
/// # Errors
/// There is no ledger, or it cannot be read.
pub(super) async fn run(args: &Args, settings: &Settings) -> Result<Exit, Fault> {
    let ledger = looking(settings.ledger()?).await?;
    let mut query = args.filter.query()?;
    query.after = args.after;
    // One more, to know whether there are more.
    query.limit = args.limit.saturating_add(1);
    let mut rows = ledger.rows(query).await?;
    let more = rows.len() > args.limit;
    rows.truncate(args.limit);
    let next_after = rows.last().filter(|_| more).map(|last| last.id.seq);
    if args.json {
        output::json("ledger rows", &Rows { rows, next_after })?;
        return Ok(Exit::Fine);
    }
    output::write(&table(&rows).to_string())?;
    if let Some(after) = next_after {
        say(format!("there are more: --after {after}"));
    }
    Ok(Exit::Fine)
}

fn table(rows: &[Row]) -> Table {
    let head = [
        "row",
        "reserved at",
        "account",
        "model",
        "key",
        "state",
        "estimate",
        "charged",
        "outcome",
    ];
    let mut table = Table::new(head);
    for row in rows {
        table.row([
            row.id.seq.to_string(),
            moment::rfc3339(row.reserved_at),
            row.account.to_string(),
            row.model.to_string(),
            row.key.map_or_else(|| "-".into(), |key| key.to_string()),
            row.state.to_string(),
            row.estimate.total().to_string(),
            row.charged.map_or_else(|| "-".into(), |charged| charged.tokens.to_string()),
            row.outcome.map_or_else(|| "-".into(), |outcome| outcome.to_string()),
        ]);
    }
    table
}
