//! A hundred callers who all try again at once cannot pass the cap: the reservation is one step, not a look and a leap.
//!
//! `cargo run --example retry_storm`

use std::sync::Arc;

use futures_util::future::join_all;
use keywheel::{
    Clock as _, Error, GenerateRequest,
    ledger::{Ledger, Limit, Period},
};
use keywheel_examples::{demo::Failure, stand::LITE, virtual_time as time};
use keywheel_sim::Limits;

/// What all callers together may use.
const CAP: u64 = 10_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let clock = time::monday();
    let ledger = Ledger::builder()
        .account("webhook", [Limit::tokens(Period::Day, CAP)])
        .clock(Arc::new(clock.clone()))
        .in_memory()
        .open()
        .await?;
    // So few requests a minute that most of the first attempts are refused.
    let gemini = time::client(3, Limits::new().rpm(5), &clock)?
        .ledger(ledger.clone(), "webhook")
        .build()
        .await?;

    let call = |number: u64| {
        let (gemini, clock) = (gemini.clone(), clock.clone());
        let text = format!("Event {number}: {}", "data ".repeat(100));
        async move {
            let (mut attempts, mut tries) = (0, 0);
            loop {
                let request = GenerateRequest::from(&*text).with_max_output_tokens(350);
                tries += 1;
                match gemini.generate(LITE, request).await {
                    Ok(reply) => return Ok((attempts + reply.attempts().len(), tries)),
                    Err(Error::OverBudget { denied, .. })
                        if denied.may_fit_once_others_settle() =>
                    {
                        let later = clock.unix_ms() + 1_000;
                        clock.manual_sleep(later).ok_or(attempts)?.await;
                    }
                    Err(Error::OverBudget { .. }) => return Err(attempts),
                    // Whatever else it is, this caller does not give up.
                    Err(error) => attempts += error.attempts().len(),
                }
            }
        }
    };
    let ended = time::passing(&clock, join_all((0..100).map(call))).await;
    let served = ended.iter().filter(|ended| ended.is_ok()).count();
    let attempts: usize = ended.iter().map(|ended| ended.map_or_else(|n| n, |(n, _)| n)).sum();
    let tries: usize = ended.iter().flatten().map(|(_, tries)| tries).sum();

    let day = ledger.usage("webhook").await?.day;
    println!("With reservations: {served} of 100 were answered, until nothing was left.");
    println!("  {tries} calls of theirs took {attempts} requests, refusals included");
    println!("  {} tokens are charged of {CAP}, {} calls", day.tokens.used(), day.calls.used());
    if day.tokens.used() > CAP || day.tokens.reserved > 0 {
        return Err("the cap was passed, or something is still reserved".into());
    }
    Ok(())
}
