//! `keywheel completions`: so that a shell knows the commands.

use std::io;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{args::Cli, exit::Exit, fault::Fault};

/// What `completions` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

const EXAMPLE: &str = "\
For bash: keywheel completions bash > ~/.local/share/bash-completion/completions/keywheel";

/// Prints the completions of a shell.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run(args: &Args) -> Result<Exit, Fault> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "keywheel", &mut out);
    io::Write::write_all(&mut io::stdout().lock(), &out)?;
    Ok(Exit::Fine)
}
