//! Serves the simulator on a port of this machine, for clients in any language.
//!
//! `cargo run --example simulator -- --config examples/sim.toml --port 8788`

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use clap::Parser;
use keywheel_core::SystemClock;
use keywheel_examples::{demo::Failure, show, sim};
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
    show::exit_code(serve(Args::parse()).await)
}

async fn serve(args: Args) -> Result<(), Failure> {
    let file = args.config.unwrap_or_else(|| "sim.toml".into());
    // The one beside this program may be named from anywhere.
    let text = if file.as_os_str() == "sim.toml" && !file.exists() {
        DEMO.to_owned()
    } else {
        std::fs::read_to_string(&file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?
    };
    let config =
        SimConfig::from_toml(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let told = config.clone();
    let addr = SocketAddr::from(([127, 0, 0, 1], args.port));
    let server = SimServer::start_on(addr, config, Arc::new(SystemClock)).await?;
    let url = server.base_url();
    let run = format!("{}-{}", server.addr().port(), std::process::id());
    println!("Listening on {url}\n");
    println!("{}", sim::exports(&url, &told, &run));
    println!("{}", sim::by_hand(&url, &told));
    println!("{}", sim::rules(&told));
    println!("Ctrl-C stops.");
    tokio::signal::ctrl_c().await?;
    let stats = server.world().stats();
    println!("\n{} served, {} refused", stats.served(), stats.refused());
    Ok(())
}
