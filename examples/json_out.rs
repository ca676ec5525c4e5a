//! Answers as values of your own types.
//!
//! `cargo run --example json_out`

use keywheel::Error;
use keywheel_examples::{
    demo::Failure,
    stand::{LITE, Stand},
};
use keywheel_sim::Limits;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
struct Recipe {
    name: String,
    /// From start to table.
    minutes: u32,
    course: Course,
    ingredients: Vec<Ingredient>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Course {
    Starter,
    Main,
    Dessert,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Ingredient {
    name: String,
    grams: Option<f64>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let stand = Stand::start(2, |_| Limits::new().rpd(10)).await?;
    let gemini = stand.client().build().await?;

    let recipe = gemini.generate_json::<Recipe>(LITE, "A quick breakfast").await?;
    println!("{} in {} minutes, a {:?}", recipe.name, recipe.minutes, recipe.course);
    for Ingredient { name, grams } in &recipe.ingredients {
        println!("  {name}{}", grams.map_or_else(String::new, |it| format!(", {it} g")));
    }

    // An answer that is cut at the limit of tokens is no value, and the error says so.
    let brief = keywheel::GenerateRequest::from("A long menu").with_max_output_tokens(8);
    match gemini.generate_json::<Vec<Recipe>>(LITE, brief).await {
        Err(error @ Error::WrongShape { .. }) => println!("{error}"),
        other => return Err(format!("expected half an answer, got {other:?}").into()),
    }
    Ok(())
}
