//! What signals do: SIGTERM and SIGINT stop, a second one at once; SIGHUP reads keys and projects again.

use keywheel_gateway::Running;

use crate::{fault::Fault, output::say, sources::RunFile};

#[cfg(unix)]
use {
    crate::{moment, sources::Reloaded},
    tokio::signal::unix::{Signal, SignalKind, signal},
};

/// The signals that are listened to.
#[cfg(unix)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

#[cfg(unix)]
impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(super) fn listen() -> Result<Self, Fault> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Does what they say, until the gateway has stopped; until then it has its file. A demo has nothing to read again.
    pub(super) async fn obey(&mut self, running: &Running, held: Option<RunFile>, reloads: bool) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => break,
                _ = self.interrupt.recv() => break,
                _ = self.hang_up.recv(), if reloads => {
                    // What it reads may be a drive that does not answer.
                    let reloaded = tokio::select! {
                        reloaded = reload(running) => reloaded,
                        _ = self.terminate.recv() => break,
                        _ = self.interrupt.recv() => break,
                    };
                    if let Some(Err(error)) = held.as_ref().map(|held| held.tell(&reloaded)) {
                        say(format!("warning: `keywheel reload` cannot be answered: {error}"));
                    }
                }
            }
        }
        say("stopping: requests under way are let to their end; once more ends them");
        tokio::select! {
            () = running.stop(running.drain_time()) => say("stopped"),
            _ = self.terminate.recv() => say("stopped at once; the ledger's sweep ends what was open"),
            _ = self.interrupt.recv() => say("stopped at once; the ledger's sweep ends what was open"),
        }
    }
}

#[cfg(unix)]
async fn reload(running: &Running) -> Reloaded {
    let began_at = moment::now();
    match running.reload().await {
        Ok(reloaded) => {
            let keys = &reloaded.keys;
            // What it warns of is in the log already.
            say(format!(
                "read again: {} projects; {} new keys, {} gone, {} as before",
                reloaded.projects,
                keys.added.len(),
                keys.removed.len(),
                keys.kept
            ));
            Reloaded { began_at, fault: None, needs_restart: reloaded.needs_restart }
        }
        Err(error) => {
            say(format!("nothing has changed: {error}"));
            Reloaded { began_at, fault: Some(error.to_string()), needs_restart: Vec::new() }
        }
    }
}

/// Where there is Ctrl-C alone.
#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn listen() -> Result<Self, Fault> {
        Ok(Self)
    }

    pub(super) async fn obey(&mut self, running: &Running, _held: Option<RunFile>, _reloads: bool) {
        let _ = tokio::signal::ctrl_c().await;
        say("stopping: requests under way are let to their end; once more ends them");
        tokio::select! {
            () = running.stop(running.drain_time()) => say("stopped"),
            _ = tokio::signal::ctrl_c() => say("stopped at once; the ledger's sweep ends what was open"),
        }
    }
}
