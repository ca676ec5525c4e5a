//! Which gateways run on a state file: each holds a small file beside it, locked for as long as it lives.
//!
//! The state file's own writers will not do: they are pools of any program, and a signal would end most of them.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::moment;

/// What its file says of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gateway {
    /// Its process.
    pub(crate) pid: u32,
    /// Where that number means anything: this machine since its start, and the container. Empty where it cannot be
    /// told.
    pub(crate) machine: String,
    /// Where it listens.
    pub(crate) address: String,
    /// Its configuration, if it has a file.
    pub(crate) config: Option<String>,
    /// Since when.
    pub(crate) started_at: String,
    /// What came of the last SIGHUP. It stands in another file, which is not locked and can therefore be replaced.
    #[serde(default)]
    pub(crate) reloaded: Option<Reloaded>,
}

/// What came of reading the configuration again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// When it began. What was written to the file before is in it.
    pub(crate) began_at: DateTime<Utc>,
    /// Why nothing has changed; `null`: it has.
    pub(crate) fault: Option<String>,
    /// The settings that have changed and hold after a restart only.
    pub(crate) needs_restart: Vec<String>,
}

impl Gateway {
    /// This process, listening on `address`.
    pub(crate) fn here(address: String, config: Option<String>) -> Self {
        let started_at = moment::rfc3339(moment::now());
        Self { pid: process::id(), machine: machine(), address, config, started_at, reloaded: None }
    }

    /// True if its process can be reached from here by its number. In a container every gateway may be number 1.
    pub(crate) fn is_within_reach(&self) -> bool {
        self.machine == machine()
    }
}

/// The file of a gateway that runs. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct RunFile {
    path: PathBuf,
    _held: File,
}

impl RunFile {
    /// Says that `gateway` runs on the state file at `state`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn hold(state: &Path, gateway: &Gateway) -> io::Result<Self> {
        let folder = state.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        // Files of those that were killed go; a platform that kills would leave one for each start.
        gateways(state)?;
        // Not by the process's number: two containers on one volume have the same. Locked before it has its name, or
        // it would be taken for one that was left.
        let mut file = tempfile::Builder::new().prefix(BEGIN).suffix(".new").tempfile_in(folder)?;
        file.as_file().lock()?;
        file.write_all(&serde_json::to_vec(gateway)?)?;
        let path = file.path().with_extension(&END[1..]);
        let held = file.persist(&path).map_err(|error| error.error)?;
        Ok(Self { path, _held: held })
    }

    /// Says what came of reading the configuration again, to whoever asked for it.
    ///
    /// # Errors
    /// The folder cannot be written.
    #[cfg(unix)]
    pub(crate) fn tell(&self, reloaded: &Reloaded) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(BEGIN).suffix(".new").tempfile_in(folder)?;
        file.write_all(&serde_json::to_vec(reloaded)?)?;
        file.persist(self.path.with_extension(TOLD)).map_err(|error| error.error)?;
        Ok(())
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        // Whoever comes next would find it unlocked, and remove it.
        remove(&self.path);
    }
}

/// Every gateway that runs on the state file at `state`. Files of those that were killed are removed.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn gateways(state: &Path) -> io::Result<Vec<Gateway>> {
    let folder = state.parent().unwrap_or(Path::new("."));
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut running = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(BEGIN) || !name.ends_with(END) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        match file.try_lock_shared() {
            // Nobody holds it: its gateway was killed.
            Ok(()) => remove(&path),
            Err(TryLockError::WouldBlock) => running.extend(read(&path)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    running.sort_by_key(|gateway: &Gateway| gateway.pid);
    Ok(running)
}

/// What the file of a gateway says, and what it said of its last reload.
fn read(path: &Path) -> Option<Gateway> {
    let gateway: Gateway = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let told = fs::read(path.with_extension(TOLD)).ok();
    Some(Gateway { reloaded: told.and_then(|json| serde_json::from_slice(&json).ok()), ..gateway })
}

/// Removes the files of a gateway.
fn remove(path: &Path) {
    let _ = fs::remove_file(path.with_extension(TOLD));
    let _ = fs::remove_file(path);
}

/// The machine since its start, and the container: what a process's number is unique in.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let numbers = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), numbers.display()).trim().to_owned()
}

const BEGIN: &str = "gateway-";
const END: &str = ".run";
const TOLD: &str = "told";

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway() -> Gateway {
        Gateway::here("127.0.0.1:8787".into(), None)
    }

    #[test]
    fn a_gateway_is_seen_while_it_runs_and_not_after() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("pool.json");
        assert!(gateways(&state).unwrap().is_empty());
        // Two containers on one volume have the same number.
        let held = [(); 2].map(|()| RunFile::hold(&state, &gateway()).unwrap());
        let seen = gateways(&state).unwrap();
        assert_eq!(seen.len(), 2);
        assert!(seen.iter().all(Gateway::is_within_reach));
        drop(held);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn what_came_of_a_reload_is_seen_for_as_long_as_its_gateway() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("pool.json");
        let held = [(); 2].map(|()| RunFile::hold(&state, &gateway()).unwrap());
        let told = |fault| Reloaded { began_at: moment::now(), fault, needs_restart: Vec::new() };
        let [first, last] = [Some("no tokens".to_owned()), None].map(told);
        held[0].tell(&first).unwrap();
        held[0].tell(&last).unwrap();
        let seen: Vec<_> = gateways(&state).unwrap().into_iter().map(|one| one.reloaded).collect();
        assert!(seen.contains(&Some(last)) && seen.contains(&None), "{seen:?}");
        drop(held);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_gateway_left_goes_when_the_next_one_starts() {
        let folder = tempfile::tempdir().unwrap();
        for killed in ["gateway-1.run", "gateway-2.run", "gateway-2.told"] {
            fs::write(folder.path().join(killed), "{}").unwrap();
        }
        let _held = RunFile::hold(&folder.path().join("pool.json"), &gateway()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Its number is that of a stranger here.
    #[test]
    fn a_gateway_in_another_container_is_seen_and_not_within_reach() {
        let elsewhere = Gateway { machine: "another pid:[1]".into(), ..gateway() };
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("pool.json");
        let _held = RunFile::hold(&state, &elsewhere).unwrap();
        let seen = gateways(&state).unwrap();
        assert_eq!(seen, [elsewhere]);
        assert!(!seen[0].is_within_reach());
    }

    /// Its number may be somebody else's by now: a signal would end a stranger.
    #[test]
    fn the_file_of_a_killed_gateway_names_nobody_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("gateway-1.run");
        fs::write(&left, serde_json::to_vec(&Gateway { pid: 1, ..gateway() }).unwrap()).unwrap();
        assert!(gateways(&folder.path().join("pool.json")).unwrap().is_empty());
        assert!(!left.exists());
    }
}
