//! Three projects on one allowance of 10 M tokens a day. The batch job would eat 7.1 M of it in four hours; with a cap
//! of its own it is stopped there, and the others never notice. With `-- --shared` all draw on one pool, as before.
//!
//! `cargo run --release --example shared_allowance`

use std::{sync::Arc, time::Duration};

use keywheel::{
    Error, Gemini, GenerateRequest,
    ledger::{Ledger, Limit, Period},
};
use keywheel_examples::{demo::Failure, show, stand::LITE, virtual_time as time};
use keywheel_sim::Limits;

/// A project: its cap in tokens a day, its calls a minute, the hours that it works, and the size of its prompts.
type Project = (&'static str, u64, usize, u64, usize);

const PROJECTS: [Project; 3] = [
    ("triage", 3_000_000, 60, 8, 39),
    ("batch", 4_000_000, 120, 4, 181),
    ("chat", 2_000_000, 30, 8, 69),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let shared = std::env::args().any(|argument| argument == "--shared");
    let clock = time::monday();
    let day = |cap| Limit::tokens(Period::Day, cap);
    let mut builder = Ledger::builder().allowance([day(10_000_000)]);
    for (name, cap, ..) in PROJECTS {
        builder = builder.account(name, (!shared).then(|| day(cap)));
    }
    let ledger = builder.clock(Arc::new(clock.clone())).in_memory().open().await?;
    let gemini =
        time::client(4, Limits::new(), &clock)?.ledger(ledger.clone(), "chat").build().await?;

    println!("{:>6}  {:>24}  {:>24}  {:>24}", "hour", "triage", "batch", "chat");
    let mut denied = [0_u64; 3];
    for hour in 1..=8 {
        let before = denied;
        for _ in 0..60 {
            for (place, (name, _, calls, hours, words)) in PROJECTS.into_iter().enumerate() {
                if hour <= hours {
                    denied[place] += minute(&gemini, name, calls, words).await?;
                }
            }
            clock.advance(Duration::from_secs(60));
        }
        let mut line = format!("{hour:>6}");
        for (place, (name, ..)) in PROJECTS.into_iter().enumerate() {
            let used = show::grouped(ledger.usage(name).await?.day.tokens.used());
            let refused = show::grouped(denied[place] - before[place]);
            let note = if refused == "0" { String::new() } else { format!(" ({refused} denied)") };
            line += &format!("  {:>24}", used + &note);
        }
        println!("{line}");
    }
    let all = ledger.usage_of_all().await?.day.tokens.used();
    println!("\n{} of 10_000_000 tokens are used.", show::grouped(all));
    match (shared, denied[1], denied[0] + denied[2]) {
        (false, 1.., 0) => println!("The batch job met its own cap; the others never noticed."),
        (true, _, others @ 1..) => println!("{others} calls of the other two were denied."),
        _ => return Err(format!("denied: {denied:?}").into()),
    }
    Ok(())
}

/// A minute's calls; returns how many of them were denied.
async fn minute(gemini: &Gemini, who: &str, calls: usize, words: usize) -> Result<u64, Failure> {
    let mut denied = 0;
    for _ in 0..calls {
        let request = GenerateRequest::from("word ".repeat(words)).with_max_output_tokens(20);
        match gemini.generate(LITE, request).account(who).await {
            Err(Error::OverBudget { .. }) => denied += 1,
            answered => drop(answered?),
        }
    }
    Ok(denied)
}
