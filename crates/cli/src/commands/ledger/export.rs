//! `keywheel ledger export`: every row, for other programs.

use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
};

use clap::ValueEnum;
use keywheel::ledger::ExportFormat;

use super::filter::Filter;
use crate::{exit::Exit, fault::Fault, moment, output::say, settings::Settings, sources::looking};

/// What `ledger export` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = moment::FORMS)]
pub(super) struct Args {
    /// The form of the rows.
    #[arg(long, default_value = "csv")]
    format: Format,
    /// The file to write, which must not be there; by default standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    filter: Filter,
}

/// The forms there are.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Comma-separated values with a head line.
    Csv,
    /// One JSON object a line.
    Jsonl,
}

/// Writes the rows, a thousand at a time.
///
/// # Errors
/// There is no ledger, it cannot be read, or the rows cannot be written.
pub(super) async fn run(args: &Args, settings: &Settings) -> Result<Exit, Fault> {
    let ledger = looking(settings.ledger()?).await?;
    let format = match args.format {
        Format::Csv => ExportFormat::Csv,
        Format::Jsonl => ExportFormat::JsonLines,
    };
    let mut export = ledger.export(format, args.filter.query()?);
    let mut out: Box<dyn Write> = match &args.out {
        Some(path) => {
            Box::new(File::create_new(path).map_err(|error| Fault::unmade(path, &error))?)
        }
        None => Box::new(io::stdout()),
    };
    while let Some(text) = export.next().await? {
        out.write_all(text.as_bytes())?;
    }
    out.flush()?;
    if let Some(path) = &args.out {
        say(format!("written to {}", path.display()));
    }
    Ok(Exit::Fine)
}
