//! The program `keywheel`.
//!
//! | to know | look in |
//! |---|---|
//! | which commands there are, and what they take | `args` |
//! | what each does | `commands`, one file each |
//! | where settings, keys and files are found | `settings` |
//! | what goes to stdout and stderr, as text and as JSON | `output` |
//! | what arguments hold | `given`, `moment` |
//! | what ends how | `exit`, `fault` |

mod args;
mod commands;
mod exit;
mod fault;
mod given;
mod moment;
mod output;
mod settings;
mod sources;

use std::{env, process::ExitCode};

use clap::Parser as _;
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::EnvFilter;

use self::{
    args::{Cli, Command},
    exit::Exit,
    fault::Fault,
};

/// Requests are made on one thread and let go on another, which the system's allocator is slow at. Huge pages would
/// take ten megabytes more.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    log(&cli.command);
    let ended = runtime().and_then(|runtime| {
        let ended = runtime.block_on(commands::run(cli));
        // A prompt that waits on standard input, say, is not worth waiting for.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(exit) => exit.into(),
        Err(fault) if fault.is_reader_gone() => Exit::Fine.into(),
        Err(fault) => {
            output::say(format_args!("keywheel: {fault}"));
            fault.exit().into()
        }
    }
}

/// Says what is wrong with the arguments, or gives the help that they ask for.
fn refuse(error: &clap::Error) -> ExitCode {
    let arguments = env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    match given::without_secrets(&error.to_string(), arguments) {
        Some(told) => eprint!("{told}"),
        // Nobody listens: nothing that could be said of it.
        None => drop(error.print()),
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// One thread is enough to ask a question; a gateway has its own.
fn runtime() -> Result<Runtime, Fault> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Logs to standard error: what goes wrong, and for `serve` what happens. `RUST_LOG` says otherwise.
fn log(command: &Command) {
    let default = match command {
        Command::Serve(_) => "warn,keywheel=info,keywheel_gateway=info",
        // The commands say themselves what the libraries would warn of.
        _ => "error",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(output::stderr_is_colored())
        .with_target(false)
        // Else it says on standard error that it cannot write there, which is a panic.
        .log_internal_errors(false)
        .with_env_filter(filter);
    subscriber.init();
}
