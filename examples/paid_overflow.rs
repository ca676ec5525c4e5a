//! Free keys first; a paid one where the free ones would take too long, and only for calls that allow it.
//!
//! `cargo run --example paid_overflow`

use std::time::Duration;

use keywheel::KeyLoader;
use keywheel_examples::{
    demo::Failure,
    show,
    stand::{LITE, Stand},
};
use keywheel_sim::{Limits, ModelConfig, SimConfig};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let keys = KeyLoader::new()
        .environment([
            ("GEMINI_API_KEY_1", "AQ.EXAMPLE-free"),
            ("GEMINI_PAID_API_KEY_1", "AQ.EXAMPLE-paid"),
        ])
        .load()?
        .keys;
    let config = SimConfig::new().with_model(LITE, ModelConfig::free(Limits::new().rpd(2)));
    let stand = Stand::with(config, keys).await?;
    let gemini = stand.client().overflow_after(Duration::from_secs(5)).build().await?;

    for (number, important) in [(1, false), (2, true), (3, false), (4, true)] {
        let call = gemini.generate(LITE, format!("Question {number}"));
        let call = if important { call.allow_paid() } else { call };
        match call.await {
            Ok(reply) => println!("{number}: by {}", reply.served_by().unwrap_or("nobody")),
            Err(error) => {
                let at = error.next_available_at().ok_or(error)?;
                println!("{number}: waits until {}, since it may not cost money", show::moment(at));
            }
        }
    }
    Ok(())
}
