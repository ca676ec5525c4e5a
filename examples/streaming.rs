//! An answer part by part, as it comes; then what it cost.
//!
//! `cargo run --example streaming`

use std::io::Write as _;

use keywheel_examples::{
    demo::Failure,
    show,
    stand::{LITE, Stand},
};
use keywheel_sim::Limits;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // The first key's day has room for one request, so the second stream has to begin with another key.
    let stand = Stand::start(2, |_| Limits::new().rpd(1)).await?;
    let gemini = stand.client().build().await?;

    for prompt in ["Count to ten", "Now count back"] {
        let mut stream = gemini.stream(LITE, prompt).await?;
        while let Some(part) = stream.next().await {
            // An error here means that the answer is not whole: what was printed is not to be relied on.
            print!("{}|", part?.text());
            std::io::stdout().flush()?;
        }
        println!();
        stream.attempts().iter().for_each(|made| println!("  {}", show::attempt(made)));
        if let Some(usage) = stream.usage() {
            println!("  {} tokens in, {} out", usage.input, usage.output);
        }
    }
    Ok(())
}
