//! The main job in one go: several keys, one answer per call, and the exact moment of return when all is spent.
//!
//! `cargo run --release --example quickstart` talks to a simulator on this machine. Run it twice: the second run
//! starts from the state file. `-- --reset` starts over. `-- --live` makes three calls to Google with your keys.

use std::path::PathBuf;

use clap::Parser;
use keywheel::{Gemini, GeminiStream, Reply};
use keywheel_examples::{
    demo::{self, Failure, MODEL},
    show,
};

#[derive(Parser)]
#[command(about = "keywheel against a simulator, or with --live against Google")]
struct Args {
    /// Use the keys of the environment or .env against Google: three calls, never to exhaustion.
    #[arg(long)]
    live: bool,
    /// Forget what earlier runs learned.
    #[arg(long)]
    reset: bool,
    /// The folder of the demo's state file. Defaults to one of its own in the platform's state folder.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The model for --live.
    #[arg(long, default_value = MODEL)]
    model: String,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args = Args::parse();
    if args.live {
        return live(&args.model).await;
    }
    let server = demo::start().await?;
    let state = args.state.unwrap_or_else(demo::state_folder).join("pool.json");
    if args.reset && state.exists() {
        std::fs::remove_file(&state)?;
    }
    println!("Talking to a simulator on this machine ({}), not to Google.", server.base_url());
    println!("State file: {}", state.display());

    let gemini = Gemini::builder()
        .keys(demo::keys()?)
        .state_file(state)
        .base_url(server.base_url())
        .on_exhausted(|spent| async move {
            spent.next_available_at().map(|at| format!("Resting until {}.", show::moment(at)))
        })
        .build()
        .await?;
    demo::print_known(&gemini);

    println!("\nCalls until nothing is left, the second one as a stream:");
    for number in 1.. {
        let done = if number == 2 {
            print_stream(gemini.stream(MODEL, "Count to three").await?).await?
        } else {
            print_reply(&gemini.generate(MODEL, format!("Say hello {number}")).await?)
        };
        if done {
            break;
        }
    }
    demo::print_learned(&gemini);
    let (served, refused) = (demo::served(&server), demo::refused(&server));
    println!("\nRequests sent: {served} served, {refused} refused.");
    gemini.flush().await?;
    Ok(())
}

/// Prints how an answer came about; true if no model gave it.
fn print_reply(reply: &Reply) -> bool {
    reply.attempts().iter().for_each(|attempt| println!("  {}", show::attempt(attempt)));
    if reply.degraded().is_some() {
        println!("  no key can serve; the callback answered: {}", reply.text());
    }
    reply.degraded().is_some()
}

/// The same for a stream.
async fn print_stream(mut stream: GeminiStream) -> Result<bool, Failure> {
    stream.attempts().iter().for_each(|attempt| println!("  {}", show::attempt(attempt)));
    let (mut parts, mut text) = (0, String::new());
    while let Some(part) = stream.next().await {
        text.push_str(&part?.text());
        parts += 1;
    }
    match stream.degraded() {
        None => println!("    in {parts} parts: {}", text.trim()),
        Some(_) => println!("  no key can serve; the callback answered: {text}"),
    }
    Ok(stream.degraded().is_some())
}

async fn live(model: &str) -> Result<(), Failure> {
    let gemini = Gemini::from_env().await?;
    println!("Talking to Google with {} keys: three calls.", gemini.status().keys.len());
    for prompt in ["Say hello", "Say goodbye"] {
        let reply = gemini.generate(model, prompt).await?;
        print_reply(&reply);
        println!("  {}", reply.text().trim());
    }
    print_stream(gemini.stream(model, "Count to three").await?).await?;
    Ok(())
}
