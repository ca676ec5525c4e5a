//! `keywheel serve`: the gateway.

mod demo;
mod files;
mod greeting;
mod signals;

use keywheel_gateway::Gateway as Server;

use self::{demo::Demo, signals::Signals};
use crate::{
    exit::Exit,
    fault::Fault,
    output::say,
    settings::Settings,
    sources::{Gateway, RunFile},
};

/// What `serve` takes. Where it listens is not among it: an address that only the arguments know would escape the check of
/// a configuration that is read again, and with it a gateway without tokens could be left open to everybody.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run over a simulator with keys of its own: needs no key, and keeps nothing.
    #[arg(long)]
    demo: bool,
}

/// Runs until it is told to stop.
///
/// # Errors
/// The configuration or the keys are at fault, the ledger cannot be opened, or the address cannot be had.
pub(crate) async fn run(args: Args, settings: &Settings) -> Result<Exit, Fault> {
    files::raise_limit();
    let mut demo = None;
    let config = if args.demo {
        if let Some(file) = settings.file() {
            say(format!("{} is not read in a demo", file.display()));
        }
        let (started, config) = Demo::start().await?;
        demo = Some(started);
        config
    } else {
        settings.config()?
    };
    config.warnings.iter().for_each(|warning| say(format!("warning: {warning}")));
    // Before anything starts: a signal that comes early must not be lost.
    let mut signals = Signals::listen()?;
    let about = greeting::About::of(&config, args.demo);
    let state = config.client.state_path();
    let file = settings.file().map(|file| file.display().to_string());
    let running = Server::start(config).await.map_err(greeting::not_started)?;
    let address = running.address();
    // Before it says where it listens: whoever waits for that may want it to read its configuration again.
    let gateway = Gateway::here(address.to_string(), file);
    let held = state.filter(|_| demo.is_none()).map(|state| RunFile::hold(&state, &gateway));
    let held = held.transpose().unwrap_or_else(|error| {
        say(format!("warning: `keywheel reload` will not find this gateway: {error}"));
        None
    });
    say(about.text(address));
    signals.obey(&running, held, demo.is_none()).await;
    drop(demo);
    Ok(Exit::Fine)
}
