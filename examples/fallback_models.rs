//! When the model you want is spent, the next of a chain answers, and the reply says so.
//!
//! `cargo run --example fallback_models`

use keywheel_examples::{
    demo::Failure,
    show,
    stand::{FLASH, LITE, Stand},
};
use keywheel_sim::Limits;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let limits = |model: &str| Limits::new().rpd(if model == FLASH { 1 } else { 2 });
    let stand = Stand::start(2, limits).await?;
    let gemini = stand.client().fallback([LITE]).build().await?;

    for number in 1..=7 {
        match gemini.generate(FLASH, format!("Question {number}")).await {
            Ok(reply) => {
                println!("{number}: {} answered", reply.model());
                for skipped in reply.skipped() {
                    println!("   {skipped}");
                }
            }
            // The moment is the soonest of all models in the chain.
            Err(error) => {
                let at = error.next_available_at().ok_or(error)?;
                println!("{number}: all models are spent until {}", show::moment(at));
            }
        }
    }
    Ok(())
}
