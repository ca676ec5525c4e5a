//! Two providers side by side: Gemini, and one that speaks OpenAI's API. Each has its own pool.
//!
//! `cargo run --example two_providers`

use keywheel::{Error, Gemini, KeyLoader, OpenAiApi};
use keywheel_examples::{
    demo::Failure,
    show,
    stand::{LITE, Stand},
};
use keywheel_sim::{Face, Limits, ModelConfig, SimConfig};

const LLAMA: &str = "llama-3.3-70b";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let google = Stand::start(1, |_| Limits::new().rpd(2)).await?;
    let gemini = google.client().build().await?;

    let config = SimConfig::new()
        .with_face(Face::OpenAi)
        .with_model(LLAMA, ModelConfig::free(Limits::new().rpm(30).rpd(3)));
    let keys = KeyLoader::new()
        .prefix("ACME_API_KEY")
        .environment([("ACME_API_KEY_1", "sk-EXAMPLE-acme-one")])
        .load()?
        .keys;
    let acme = Stand::with(config, keys).await?;
    let acme_url = format!("{}/v1", acme.server().base_url());
    let acme = acme.client().provider(OpenAiApi::new()).base_url(acme_url).build().await?;

    for number in 1..=6 {
        match either(&gemini, &acme, &format!("Question {number}")).await {
            Ok(line) => println!("{number}: {line}"),
            Err(error) => {
                let at = error.next_available_at().ok_or(error)?;
                println!("{number}: both are spent; the second one is back {}", show::moment(at));
            }
        }
    }
    Ok(())
}

/// Gemini's answer, or the other's where Gemini's quota is spent: the same calls, the same replies.
async fn either(gemini: &Gemini, other: &Gemini, prompt: &str) -> Result<String, Error> {
    let reply = match gemini.generate(LITE, prompt).await {
        Err(Error::Exhausted { .. }) => other.generate(LLAMA, prompt).await?,
        done => done?,
    };
    Ok(format!("{} by {}: {}", reply.model(), reply.served_by().unwrap_or("nobody"), reply.text()))
}
