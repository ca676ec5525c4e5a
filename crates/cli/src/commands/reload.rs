//! `keywheel reload`: makes running gateways read keys and projects again.

use serde::Serialize;

use crate::{
    exit::Exit,
    fault::Fault,
    output::{self, say},
    settings::Settings,
    sources::{Gateway, gateways},
};

/// What `reload` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The document of `reload`.
#[derive(Debug, Serialize)]
struct Told {
    /// Those that were told.
    gateways: Vec<Gateway>,
    /// Those that cannot be told from here: in another container. They look at their file by themselves.
    elsewhere: Vec<Gateway>,
}

/// Tells every gateway on the state file that the settings name. The configuration is read here first: a faulty one
/// is told to whoever sits here, and to no gateway.
///
/// # Errors
/// The configuration is at fault, no gateway runs, or one cannot be told.
pub(crate) fn run(args: &Args, settings: &Settings) -> Result<Exit, Fault> {
    let Some(state) = settings.client()?.state_path() else {
        let hint = "send SIGHUP to its process instead";
        return Err(Fault::usage("without a state file no gateway can be found").hint(hint));
    };
    let gateways = gateways(&state)?;
    if gateways.is_empty() {
        let what = format!("no gateway runs on {}", state.display());
        return Err(Fault::new(Exit::Fault, what)
            .hint("`reload` needs the configuration, or the KEYWHEEL_STATE, of the gateway"));
    }
    let (gateways, elsewhere): (Vec<_>, Vec<_>) =
        gateways.into_iter().partition(Gateway::is_within_reach);
    gateways.iter().try_for_each(tell)?;
    for gateway in &elsewhere {
        let Gateway { pid, address, .. } = gateway;
        say(format!("process {pid} on {address} is in another container: send it SIGHUP there"));
    }
    let exit = if elsewhere.is_empty() { Exit::Fine } else { Exit::Fault };
    if args.json {
        output::json("reload", &Told { gateways, elsewhere })?;
        return Ok(exit);
    }
    for gateway in &gateways {
        output::print(format_args!(
            "told process {} on {} to read its keys and projects again; its log says what came of it",
            gateway.pid, gateway.address
        ))?;
    }
    Ok(exit)
}

#[cfg(unix)]
fn tell(gateway: &Gateway) -> Result<(), Fault> {
    use rustix::process::{Pid, Signal, kill_process};

    let pid = i32::try_from(gateway.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Fault::new(Exit::Fault, "its file names no process"))?;
    kill_process(pid, Signal::HUP).map_err(|error| {
        let what = format!("process {} cannot be told: {error}", gateway.pid);
        Fault::new(Exit::Fault, what)
    })
}

#[cfg(not(unix))]
fn tell(_: &Gateway) -> Result<(), Fault> {
    Err(Fault::new(Exit::Fault, "there are no signals here")
        .hint("a gateway looks at its file every few seconds by itself"))
}
