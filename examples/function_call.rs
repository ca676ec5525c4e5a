//! A model that calls your functions, and gets its answers back.
//!
//! `cargo run --example function_call`

use keywheel::{
    Content, FunctionCall, FunctionResponse, GenerateRequest, Part, chat::FunctionResult,
};
use keywheel_examples::{
    demo::Failure,
    stand::{LITE, Stand},
};
use keywheel_sim::Limits;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let stand = Stand::start(2, |_| Limits::new().rpd(10)).await?;
    let gemini = stand.client().build().await?;
    let tool = json!({"functionDeclarations": [{
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "OBJECT",
            "properties": {"city": {"type": "STRING"}},
            "required": ["city"],
        },
    }]});

    // By itself: whatever the model wants called is called until it has its answer.
    let mut chat = gemini.chat(LITE).with_tool(tool.clone());
    let reply = chat
        .send_with_tools("How is the weather in Oslo?", |call| async move { weather(&call) })
        .await?;
    println!("{}", reply.text());

    // By hand, for those who want to look at each call first.
    let mut request = GenerateRequest::from("And how is the weather in Rome?").with_tool(tool);
    let reply = gemini.generate(LITE, request.clone()).await?;
    // The model's own turn goes back as it came: it may hold signatures.
    request.contents.extend(reply.content().cloned());
    for call in reply.function_calls() {
        println!("  the model wants {}", call.name);
        let response = json!({"forecast": "sun"}).into();
        let answer = FunctionResponse { id: call.id, name: call.name, response };
        request = request.with_content(Content::user([Part::from_function_response(&answer)]));
    }
    println!("{}", gemini.generate(LITE, request).await?.text());
    Ok(())
}

fn weather(call: &FunctionCall) -> FunctionResult {
    match (call.name.as_str(), call.args::<Asked>()) {
        ("weather", Ok(asked)) => {
            println!("  asked for the weather in {:?}", asked.city);
            Value::from("rain").into()
        }
        // The model is told, and may try again.
        ("weather", Err(fault)) => FunctionResult::error(fault.to_string()),
        (other, _) => FunctionResult::error(format!("there is no function {other}")),
    }
}

#[derive(serde::Deserialize)]
struct Asked {
    city: String,
}
