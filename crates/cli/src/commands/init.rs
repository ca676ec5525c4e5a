//! `keywheel init`: a commented keywheel.toml.

use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    exit::Exit,
    fault::Fault,
    output::{self, say},
    settings::HERE,
};

/// What is written. The same as `examples/keywheel.toml`, in a place that is packaged; a test holds them together.
const TEMPLATE: &str = include_str!("init/keywheel.toml");

/// What `init` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to write, which must not be there; by default --config, else keywheel.toml in this folder.
    file: Option<PathBuf>,
    /// Print it, and write no file.
    #[arg(long, conflicts_with = "file")]
    print: bool,
}

/// Writes the file.
///
/// # Errors
/// It is there already, or cannot be written.
pub(crate) fn run(args: &Args, config: Option<&Path>) -> Result<Exit, Fault> {
    if args.print {
        output::write(TEMPLATE)?;
        return Ok(Exit::Fine);
    }
    let path = args.file.as_deref().or(config).unwrap_or(Path::new(HERE));
    let made = File::create_new(path).and_then(|mut file| {
        file.write_all(TEMPLATE.as_bytes())?;
        file.sync_all()
    });
    made.map_err(|error| {
        let fault = Fault::unmade(path, &error);
        match error.kind() {
            io::ErrorKind::AlreadyExists => {
                fault.hint("`keywheel init --print` shows what a new one holds")
            }
            _ => fault,
        }
    })?;
    output::print(path.display())?;
    say(
        "next: `keywheel project add <name>` gives an app its token, `keywheel serve` starts the gateway",
    );
    Ok(Exit::Fine)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_written_is_the_example_of_the_repository() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/keywheel.toml");
        // A published crate stands alone.
        if let Ok(example) = fs::read_to_string(example) {
            assert!(example == TEMPLATE, "cp examples/keywheel.toml crates/cli/src/commands/init/");
        }
    }
}
