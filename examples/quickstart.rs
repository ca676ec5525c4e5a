//! The main job in one go: several keys, one answer per call, and the exact moment of return when all is spent.
//!
//! `cargo run --example quickstart` talks to a simulator on this machine. Run it twice: the second run
//! starts from the state file. `-- --reset` starts over. `-- --live` makes three calls to Google with your keys.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use keywheel::Gemini;
use keywheel_examples::{
    demo::{self, Failure, MODEL},
    live, show,
};

#[derive(Parser)]
#[command(about = "keywheel against a simulator, or with --live against Google")]
struct Args {
    /// Use the keys of the environment or .env against Google: three requests at most.
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
async fn main() -> ExitCode {
    let args = Args::parse();
    let done = if args.live { live::run(&args.model).await } else { simulated(args).await };
    show::exit_code(done)
}

async fn simulated(args: Args) -> Result<(), Failure> {
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
        let spent = if number == 2 {
            show::stream(gemini.stream(MODEL, "Count to three").await?).await?
        } else {
            show::reply(&gemini.generate(MODEL, format!("Say hello {number}")).await?)
        };
        if spent {
            break;
        }
    }
    demo::print_learned(&gemini);
    println!(
        "\nRequests sent: {} served, {} refused.",
        demo::served(&server),
        demo::refused(&server)
    );
    gemini.flush().await?;
    Ok(())
}
