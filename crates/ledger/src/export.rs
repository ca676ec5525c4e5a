//! Rows for other programs.

use std::fmt::Write;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::{ErrorKind, Ledger, LedgerError, Row, RowQuery, report::PAGE};

/// In which form rows are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportFormat {
    /// Comma-separated values with a head line, as RFC 4180 has it. A text that a spreadsheet would
    /// take for a formula gets an apostrophe in front.
    Csv,
    /// One JSON object a line.
    JsonLines,
}

/// Rows being exported, a thousand at a time.
#[derive(Debug)]
#[must_use]
pub struct Export {
    ledger: Ledger,
    query: RowQuery,
    format: ExportFormat,
    begun: bool,
    ended: bool,
}

impl Ledger {
    /// Exports the rows that `query` asks for, oldest first. The query's page does not matter: all
    /// are exported. Rows that are written meanwhile may be in it or not.
    ///
    /// ```
    /// # use keywheel_ledger::{ExportFormat, Ledger, LedgerError, RowQuery};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// # let ledger = Ledger::builder().in_memory().open().await?;
    /// let mut export = ledger.export(ExportFormat::Csv, RowQuery::default());
    /// while let Some(text) = export.next().await? {
    ///     print!("{text}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn export(&self, format: ExportFormat, query: RowQuery) -> Export {
        let query = RowQuery { after: 0, limit: PAGE, ..query };
        Export { ledger: self.clone(), query, format, begun: false, ended: false }
    }
}

impl Export {
    /// The next piece of text: whole lines. `None` at the end.
    ///
    /// # Errors
    /// Whatever keeps the store from reading. It may be called again.
    ///
    /// # Cancel safety
    /// May be dropped and called again: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<String>, LedgerError> {
        if self.ended {
            return Ok(None);
        }
        let rows = self.ledger.rows(self.query.clone()).await?;
        let mut text = String::new();
        if !self.begun && self.format == ExportFormat::Csv {
            text.push_str(&COLUMNS.join(","));
            text.push_str("\r\n");
        }
        for row in &rows {
            match self.format {
                ExportFormat::Csv => csv_line(row, &mut text),
                ExportFormat::JsonLines => json_line(row, &mut text)?,
            }
        }
        self.begun = true;
        self.ended = rows.len() < PAGE;
        self.query.after = rows.last().map_or(self.query.after, |row| row.id.seq);
        Ok((!text.is_empty()).then_some(text))
    }
}

const COLUMNS: [&str; 24] = [
    "id",
    "account",
    "model",
    "key",
    "request_id",
    "day",
    "state",
    "outcome",
    "estimate_tokens",
    "estimate_input",
    "estimate_output",
    "reserved_calls",
    "charged_tokens",
    "charged_calls",
    "input",
    "cached",
    "output",
    "thinking",
    "tool",
    "reserved_at",
    "renewed_at",
    "swept_at",
    "settled_at",
    "note",
];

fn csv_line(row: &Row, out: &mut String) {
    let number = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
    let usage = row.usage;
    let fields: [String; COLUMNS.len()] = [
        row.id.to_string(),
        text(row.account.as_str()),
        text(&row.model),
        row.key.map(|key| key.to_string()).unwrap_or_default(),
        text(&row.request_id),
        row.day.to_string(),
        row.state.to_string(),
        row.outcome.map(|outcome| outcome.to_string()).unwrap_or_default(),
        row.estimate.total().to_string(),
        row.estimate.input.to_string(),
        row.estimate.output.to_string(),
        row.calls.to_string(),
        number(row.charged.map(|charged| charged.tokens)),
        number(row.charged.map(|charged| charged.calls)),
        number(usage.map(|usage| usage.input)),
        number(usage.map(|usage| usage.cached)),
        number(usage.map(|usage| usage.output)),
        number(usage.map(|usage| usage.thinking)),
        number(usage.map(|usage| usage.tool)),
        time(Some(row.reserved_at)),
        time(row.renewed_at),
        time(row.swept_at),
        time(row.settled_at),
        text(&row.note),
    ];
    out.push_str(&fields.join(","));
    out.push_str("\r\n");
}

/// A cell of somebody else's text. What a spreadsheet would run is made text
/// (<https://owasp.org/www-community/attacks/CSV_Injection>).
fn text(value: &str) -> String {
    // Full-width forms begin formulas in East Asian versions.
    let formula = value
        .trim_start_matches(' ')
        .starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '|', '%', '＝', '＋', '－', '＠']);
    let value = if formula { format!("'{value}") } else { value.into() };
    // Many programs take a NUL for the end of the text, or of the file.
    let value = value.replace('\0', "\u{fffd}");
    if value.contains([',', '"', '\r', '\n', '\'', ';', '\t']) {
        format!("\"{}\"", value.replace('"', "\"\""))
    } else {
        value
    }
}

fn time(at: Option<DateTime<Utc>>) -> String {
    at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true)).unwrap_or_default()
}

fn json_line(row: &Row, out: &mut String) -> Result<(), LedgerError> {
    let broken = |error: serde_json::Error| {
        LedgerError::new(ErrorKind::Invalid, "a row cannot be written as JSON").caused_by(error)
    };
    let line = serde_json::to_string(row).map_err(broken)?;
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{line}");
    Ok(())
}
