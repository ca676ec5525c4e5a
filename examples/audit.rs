//! Where the tokens went: by account, by hour, by key; how good the estimates were; every row for other programs.
//!
//! `cargo run --example audit`

use std::sync::Arc;

use keywheel::{
    GenerateRequest,
    ledger::{ExportFormat, GroupBy, Ledger, Limit, Period, RowQuery},
};
use keywheel_core::quota_day::PACIFIC;
use keywheel_examples::{demo::Failure, stand::LITE, virtual_time as time};
use keywheel_sim::Limits;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let clock = time::monday();
    let ledger = Ledger::builder()
        .account("triage", [Limit::tokens(Period::Day, 100_000)])
        .account("chat", [Limit::tokens(Period::Day, 100_000)])
        .clock(Arc::new(clock.clone()))
        .in_memory() // yours goes into a file: leave this line out
        .open()
        .await?;
    let gemini = time::client(2, Limits::new().rpm(4), &clock)?
        .ledger(ledger.clone(), "triage")
        .build()
        .await?;

    for number in 0..24_u64 {
        let account = if number % 3 == 0 { "chat" } else { "triage" };
        let words = "Ticket: the printer is on fire again. ".repeat(1 + number as usize % 4);
        let request = GenerateRequest::from(words).with_max_output_tokens(120);
        // The stream of every eighth call is left by its reader.
        if number % 8 == 7 {
            time::passing(&clock, gemini.stream(LITE, request).account(account)).await?;
        } else {
            time::passing(&clock, gemini.generate(LITE, request).account(account)).await?;
        }
        clock.advance(std::time::Duration::from_secs(300));
    }

    let all = RowQuery::default;
    for (title, by) in [
        ("By account", GroupBy::Account),
        ("By hour, in California", GroupBy::Hour(PACIFIC)),
        ("By key", GroupBy::Key),
    ] {
        println!("{title}:");
        for line in ledger.report(by, all()).await? {
            let (group, rows, calls, tokens) = (line.group, line.rows, line.calls, line.tokens);
            println!("  {group:<24} {rows:>3} attempts {calls:>3} calls {tokens:>6} tokens");
        }
    }
    println!("Estimates:");
    for line in ledger.estimates(all()).await? {
        let error = line.input_error_p99.unwrap_or_default();
        println!(
            "  {}: {} reserved, {} charged; input at most {error:.2} times the guess",
            line.model, line.estimated, line.actual
        );
    }
    let (overruns, swept) = (ledger.overruns(all()).await?.len(), ledger.swept(all()).await?.len());
    println!("  {overruns} used more than was reserved, {swept} were never heard of again");

    let audit = ledger.audit().await?;
    let wrong = audit.mismatches.len();
    println!("Audit: {} totals over {} rows, {wrong} wrong.", audit.totals, audit.rows);

    let mut export = ledger.export(ExportFormat::Csv, all());
    let text = export.next().await?.unwrap_or_default();
    let columns = text.lines().next().unwrap_or_default().split(',').count();
    println!(
        "As CSV: {} lines of {columns} columns. From a shell, of a ledger in a file:",
        text.lines().count()
    );
    println!("  sqlite3 ledger.db 'SELECT date(ts), SUM(actual) FROM ledger GROUP BY 1'");
    if audit.is_balanced() { Ok(()) } else { Err("the books do not balance".into()) }
}
