//! What one turn of your app takes of the quota, and how many fit into a day.
//!
//! `cargo run --example turns`

use keywheel::{Gemini, Limits, embed_cache::EmbedCacheConfig};
use keywheel_examples::{
    demo::Failure,
    stand::{EMBEDDING, FLASH, LITE, Stand},
};
use keywheel_sim::Limits as SimLimits;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let stand = Stand::start(3, |_| SimLimits::new().rpd(500)).await?;
    let a_day = Limits { rpd: Some(500), ..Limits::default() };
    let gemini =
        stand.client().limits("*", a_day).embed_cache(EmbedCacheConfig::default()).build().await?;

    for question in ["What is due today?", "And tomorrow?", "What is due today?"] {
        let turn = gemini.turn("question");
        answer(&turn, question).await?;
        println!("{}", turn.finish());
    }
    // Over all turns so far, those of earlier runs included where there is a state file.
    println!("{}", gemini.turns());
    Ok(())
}

/// Every step is a client that counts: whatever takes a `Gemini` can be measured.
async fn answer(turn: &keywheel::Turn, question: &str) -> Result<(), keywheel::Error> {
    turn.step("recall").embed(EMBEDDING, question).await?;
    let plan = plan(&turn.step("plan"), question).await?;
    turn.step("answer").generate(FLASH, format!("{plan}\n\n{question}")).await?;
    Ok(())
}

async fn plan(gemini: &Gemini, question: &str) -> Result<String, keywheel::Error> {
    let draft = gemini.generate(LITE, format!("Plan: {question}")).await?;
    let checked = gemini.generate(LITE, format!("Check: {}", draft.text())).await?;
    Ok(checked.text().into_owned())
}
