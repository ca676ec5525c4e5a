//! `keywheel reload`: makes running gateways read keys and projects again.

use std::{path::Path, thread, time::Duration};

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::{
    exit::Exit,
    fault::Fault,
    moment,
    output::{self, say},
    settings::Settings,
    sources::{Gateway, Reloaded, gateways},
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
    /// Those on this machine, with what came of it.
    gateways: Vec<Gateway>,
    /// Those that cannot be told from here: in another container. They look at their file by themselves.
    elsewhere: Vec<Gateway>,
}

/// Tells every gateway on the state file that the settings name, and waits for what comes of it. The configuration is
/// read here first: a faulty one is told to whoever sits here, and to no gateway.
///
/// # Errors
/// The configuration is at fault, or no gateway runs.
pub(crate) fn run(args: &Args, settings: &Settings) -> Result<Exit, Fault> {
    let Some(state) = settings.client()?.state_path() else {
        let hint = "send SIGHUP to its process instead";
        return Err(Fault::usage("without a state file no gateway can be found").hint(hint));
    };
    let running = gateways(&state)?;
    if running.is_empty() {
        let what = format!("no gateway runs on {}", state.display());
        return Err(Fault::new(Exit::Fault, what)
            .hint("`reload` needs the configuration, or the KEYWHEEL_STATE, of the gateway"));
    }
    let (within_reach, elsewhere): (Vec<_>, Vec<_>) =
        running.into_iter().partition(Gateway::is_within_reach);
    let asked_at = moment::now();
    // One that has just ended, or is another user's, keeps no other from hearing of it.
    let (mut told, untold): (Vec<_>, Vec<_>) = within_reach.into_iter().partition(|gateway| {
        let told = tell(gateway);
        if let Err(fault) = &told {
            say(format!("process {} on {} cannot be told: {fault}", gateway.pid, gateway.address));
        }
        told.is_ok()
    });
    for gateway in &elsewhere {
        let Gateway { pid, address, .. } = gateway;
        say(format!("process {pid} on {address} is in another container: send it SIGHUP there"));
    }
    wait(&mut told, &state, asked_at)?;
    let has_taken =
        |gateway: &Gateway| gateway.reloaded.as_ref().is_some_and(|it| it.fault.is_none());
    let all_have = elsewhere.is_empty() && untold.is_empty() && told.iter().all(has_taken);
    let exit = if all_have { Exit::Fine } else { Exit::Fault };
    if args.json {
        told.extend(untold);
        output::json("reload", &Told { gateways: told, elsewhere })?;
        return Ok(exit);
    }
    told.iter().try_for_each(show)?;
    Ok(exit)
}

/// Shows what came of it: what was taken on standard output, and all else beside it.
fn show(gateway: &Gateway) -> Result<(), Fault> {
    let who = format!("process {} on {}", gateway.pid, gateway.address);
    match &gateway.reloaded {
        None => say(format!(
            "{who} was told, and has not answered: it may have ended; its log says what came of it"
        )),
        Some(Reloaded { fault: Some(fault), .. }) => {
            say(format!("{who} goes on as before: {fault}"));
        }
        Some(Reloaded { needs_restart, .. }) => {
            output::print(format_args!("{who} has read its keys and projects again"))?;
            if !needs_restart.is_empty() {
                let names = needs_restart.join(", ");
                output::print(format_args!(
                    "  changed, and in effect after a restart only: {names}"
                ))?;
            }
        }
    }
    Ok(())
}

/// Waits until each of `told` has said what came of what it was told at `asked_at`, or is gone, or ten seconds are over.
fn wait(told: &mut [Gateway], state: &Path, asked_at: DateTime<Utc>) -> Result<(), Fault> {
    const A_MOMENT: Duration = Duration::from_millis(20);
    // What is known so far was about other times.
    told.iter_mut().for_each(|gateway| gateway.reloaded = None);
    for _ in 0..500 {
        let running = gateways(state)?;
        let mut waits = false;
        for gateway in told.iter_mut().filter(|gateway| gateway.reloaded.is_none()) {
            let is_it = |now: &&Gateway| now.pid == gateway.pid && now.address == gateway.address;
            if let Some(now) = running.iter().find(is_it) {
                let answer = now.reloaded.clone();
                gateway.reloaded = answer.filter(|answer| answer.began_at >= asked_at);
                waits |= gateway.reloaded.is_none();
            }
        }
        if !waits {
            break;
        }
        thread::sleep(A_MOMENT);
    }
    Ok(())
}

#[cfg(unix)]
fn tell(gateway: &Gateway) -> Result<(), Fault> {
    use rustix::process::{Pid, Signal, kill_process};

    let pid = i32::try_from(gateway.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Fault::new(Exit::Fault, "its file names no process"))?;
    kill_process(pid, Signal::HUP).map_err(|error| Fault::new(Exit::Fault, error.to_string()))
}

#[cfg(not(unix))]
fn tell(_: &Gateway) -> Result<(), Fault> {
    Err(Fault::new(Exit::Fault, "there are no signals here")
        .hint("a gateway looks at its file every few seconds by itself"))
}
