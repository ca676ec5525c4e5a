//! `keywheel serve`: makes running gateways read keys and projects again.

use crate::{exit::Exit, fault::Fault, settings::Settings};

/// What `serve` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: Args, _: &Settings) -> Result<Exit, Fault> {
    Err(Fault::new(Exit::Fault, "not built yet"))
}
