//! Serves the simulator on a port of this machine, for clients in any language.
//!
//! `cargo run --release --example simulator -- --config examples/sim.toml --port 8788`

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use clap::Parser;
use keywheel_core::{SystemClock, Tier};
use keywheel_sim::{SimConfig, SimServer};

const DEMO: &str = include_str!("sim.toml");

/// A stand-in for the Gemini API that enforces quotas.
#[derive(Parser)]
struct Args {
    /// What to simulate, in TOML. Defaults to the demonstration in `examples/sim.toml`, which `sim.toml` also
    /// names where there is no such file.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The port on the loopback interface. Defaults to a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    let text = match &args.config {
        // The one beside this program may be named from anywhere.
        Some(path) if path.as_os_str() == "sim.toml" && !path.exists() => DEMO.to_owned(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
        None => DEMO.to_owned(),
    };
    let config = SimConfig::from_toml(&text)?;
    let projects = config.projects.clone();
    let addr = SocketAddr::from(([127, 0, 0, 1], args.port));
    let sim = SimServer::start_on(addr, config, Arc::new(SystemClock)).await?;
    let url = sim.base_url();
    println!("Listening on {url}\n\nPoint clients at it:\n");
    println!("  export GEMINI_BASE_URL={url}         # keywheel");
    println!("  export GOOGLE_GEMINI_BASE_URL={url}  # Google's SDKs and the Gemini CLI");
    println!(
        "  export KEYWHEEL_STATE=/tmp/keywheel-sim.json   # what is learned here is not true of Google"
    );
    let keys =
        projects.iter().flat_map(|project| project.keys.iter().map(move |key| (project, key)));
    for (number, (project, key)) in (1..).zip(keys) {
        // These keys open nothing: they are written in the simulator's configuration.
        let (name, secret, state) = (&project.name, key.key.expose(), key.state);
        let paid = if project.tier == Tier::Paid { "PAID_" } else { "" };
        println!(
            "  export GEMINI_{paid}API_KEY_{number}={secret} GEMINI_PROJECT_{number}={name}   # {state:?}"
        );
    }
    println!();
    println!("Ctrl-C stops.");
    tokio::signal::ctrl_c().await?;
    let stats = sim.world().stats();
    println!("\n{} served, {} refused", stats.served(), stats.refused());
    Ok(())
}
