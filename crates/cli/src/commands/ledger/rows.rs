//! `keywheel ledger rows`: attempt by attempt.

use std::collections::HashMap;

use keywheel::ledger::Row;
use serde::Serialize;

use super::filter::Filter;
use crate::{
    exit::Exit,
    fault::Fault,
    moment,
    output::{self, Table, say},
    settings::Settings,
    sources::{Snapshot, looking},
};

/// What `ledger rows` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = moment::FORMS)]
pub(super) struct Args {
    #[command(flatten)]
    filter: Filter,
    /// At most so many rows.
    #[arg(long, default_value_t = 100, value_name = "ROWS")]
    limit: usize,
    /// Begin after the row with this number, which stands in its id.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    after: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The document of `ledger rows`.
#[derive(Debug, Serialize)]
struct Rows {
    rows: Vec<Line>,
    /// What to give to `--after` for the next ones; `null`: these were the last.
    next_after: Option<u64>,
}

/// A row, and what its key is called here.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    row: Row,
    /// `null`: no key, or none that is known here.
    key_label: Option<String>,
}

impl Line {
    fn new(row: Row, labels: &HashMap<String, String>) -> Self {
        let key_label = row.key.and_then(|key| labels.get(&key.to_string()).cloned());
        Self { row, key_label }
    }
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
    let labels = labels(settings).await;
    let rows: Vec<_> = rows.into_iter().map(|row| Line::new(row, &labels)).collect();
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

/// What keys are called, by their fingerprints: those of the settings, and those that the state file remembers. None of
/// them has to be there to read the books.
async fn labels(settings: &Settings) -> HashMap<String, String> {
    let Ok(snapshot) = Snapshot::take(settings) else { return HashMap::new() };
    let here = snapshot.pool(settings).await.ok().flatten();
    let here = here.into_iter().flat_map(|pool| pool.keys);
    let here = here.map(|key| (key.fingerprint.to_string(), key.label));
    let remembered = snapshot.file.keys.into_iter().map(|(key, entry)| (key, entry.label));
    remembered.filter(|(_, label)| !label.is_empty()).chain(here).collect()
}

fn table(rows: &[Line]) -> Table {
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
    for Line { row, key_label } in rows {
        let key = || row.key.map_or_else(|| "-".into(), |key| key.to_string());
        table.row([
            row.id.seq.to_string(),
            moment::rfc3339(row.reserved_at),
            row.account.to_string(),
            row.model.to_string(),
            key_label.clone().unwrap_or_else(key),
            row.state.to_string(),
            row.estimate.total().to_string(),
            row.charged.map_or_else(|| "-".into(), |charged| charged.tokens.to_string()),
            row.outcome.map_or_else(|| "-".into(), |outcome| outcome.to_string()),
        ]);
    }
    table
}
