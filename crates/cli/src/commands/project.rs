//! `keywheel project`: makes running gateways read keys and projects again.

use crate::{exit::Exit, fault::Fault};

/// What `project` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args, _: Option<&std::path::Path>) -> Result<Exit, Fault> {
    Err(Fault::new(Exit::Fault, "not built yet"))
}
