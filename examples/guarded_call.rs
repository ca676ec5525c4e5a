//! A budget of tokens a day: what a call may cost is reserved before it is sent, and what it did cost is charged.
//!
//! `cargo run --example guarded_call`

use std::sync::Arc;

use keywheel::{
    Error, GenerateRequest,
    ledger::{Ledger, Limit, Period, RowQuery},
};
use keywheel_examples::{demo::Failure, show, stand::LITE, virtual_time as time};
use keywheel_sim::Limits;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let clock = time::monday();
    let ledger = Ledger::builder()
        .account("triage", [Limit::tokens(Period::Day, 2_000), Limit::calls(Period::Day, 50)])
        .clock(Arc::new(clock.clone()))
        .in_memory() // yours goes into a file: leave this line out
        .open()
        .await?;
    let gemini =
        time::client(1, Limits::new(), &clock)?.ledger(ledger.clone(), "triage").build().await?;
    let ask = |text: &str| GenerateRequest::from(text).with_max_output_tokens(300);

    println!("Two calls, each of which may answer with 300 tokens:");
    for _ in 0..2 {
        let reply = time::passing(&clock, gemini.generate(LITE, ask("What is a ledger?"))).await?;
        let id = reply.request_id().unwrap_or_default().to_owned();
        for row in ledger.rows(RowQuery { request_id: Some(id), ..RowQuery::default() }).await? {
            let charged = row.charged.map_or(0, |charged| charged.tokens);
            let outcome = row.outcome.map_or("open", |outcome| outcome.as_str());
            println!("  reserved {}, charged {charged}: {outcome}", row.estimate.total());
        }
    }

    println!("A stream that its reader leaves after the first part:");
    let mut stream = time::passing(&clock, gemini.stream(LITE, ask("Tell me all of it"))).await?;
    time::passing(&clock, stream.next()).await.transpose()?;
    drop(stream);
    let last = ledger.rows(RowQuery::default()).await?.pop().ok_or("no row")?;
    println!("  charged {}: nobody knows where it ended", last.charged.map_or(0, |it| it.tokens));

    println!("A request that is larger than what is left:");
    let long = ask(&"a long story ".repeat(450));
    match gemini.generate(LITE, long).await {
        Err(error @ Error::OverBudget { .. }) => {
            println!("  not sent: {error}");
            let again = error.next_available_at();
            println!("  again at {}", again.map_or_else(|| "no time".to_owned(), show::moment));
        }
        other => return Err(format!("it was let through: {other:?}").into()),
    }

    let day = ledger.usage("triage").await?.day;
    println!(
        "\nUsed today: {} tokens of 2000, {} calls of 50.",
        day.tokens.used(),
        day.calls.used()
    );
    Ok(())
}
