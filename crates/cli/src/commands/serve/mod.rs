//! `keywheel serve`: the gateway.

mod demo;
mod greeting;
mod signals;

use std::net::SocketAddr;

use keywheel_gateway::{Config, Gateway as Server};

use self::{demo::Demo, signals::Signals};
use crate::{
    exit::Exit,
    fault::Fault,
    moment,
    output::say,
    settings::Settings,
    sources::{Gateway, RunFile},
};

/// What `serve` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where it listens: 127.0.0.1:8787 unless the configuration, KEYWHEEL_LISTEN or PORT say otherwise.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Run over a simulator with keys of its own: needs no key, and keeps nothing.
    #[arg(long)]
    demo: bool,
}

/// Runs until it is told to stop.
///
/// # Errors
/// The configuration or the keys are at fault, the ledger cannot be opened, or the address cannot be had.
pub(crate) async fn run(args: Args, settings: &Settings) -> Result<Exit, Fault> {
    let mut demo = None;
    let mut config = if args.demo {
        let (started, config) = Demo::start().await?;
        demo = Some(started);
        config
    } else {
        settings.config()?
    };
    if let Some(listen) = args.listen {
        listen_on(&mut config, listen)?;
    }
    config.warnings.iter().for_each(|warning| say(format!("warning: {warning}")));
    // Before anything starts: a signal that comes early must not be lost.
    let mut signals = Signals::listen()?;
    let about = greeting::About::of(&config);
    let state = config.client.state_path();
    let drain = config.settings.limits.drain_time;
    let file = settings.file().map(|file| file.display().to_string());
    let running = Server::start(config).await.map_err(greeting::not_started)?;
    let address = running.address();
    say(about.text(address, demo.is_some()));
    let gateway = Gateway {
        pid: std::process::id(),
        address: address.to_string(),
        config: file,
        started_at: moment::rfc3339(moment::now()),
    };
    let held = state.filter(|_| demo.is_none()).map(|state| RunFile::hold(&state, &gateway));
    if let Some(Err(error)) = &held {
        say(format!("warning: `keywheel reload` will not find this gateway: {error}"));
    }
    signals.obey(&running, drain).await;
    drop((held, demo));
    Ok(Exit::Fine)
}

/// What the arguments say of the address, with the same care as the configuration's own.
fn listen_on(config: &mut Config, listen: SocketAddr) -> Result<(), Fault> {
    if !listen.ip().to_canonical().is_loopback() && !config.settings.asks_for_tokens() {
        let what = format!("everybody who reaches {listen} could spend your quota");
        return Err(Fault::usage(what).hint(
            "give the projects tokens (`keywheel project add`), set KEYWHEEL_TOKEN, or listen on 127.0.0.1",
        ));
    }
    config.settings.listen = listen;
    Ok(())
}
