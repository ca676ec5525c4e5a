//! Which gateways run on a state file: each holds a small file beside it, locked for as long as it lives.
//!
//! The state file's own writers will not do: they are pools of any program, and a signal would end most of them.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
    process,
};

use serde::{Deserialize, Serialize};

/// What its file says of a gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Gateway {
    /// Its process.
    pub(crate) pid: u32,
    /// Where it listens.
    pub(crate) address: String,
    /// Its configuration, if it has a file.
    pub(crate) config: Option<String>,
    /// Since when.
    pub(crate) started_at: String,
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
        let path = folder.join(format!("{}{}{}", BEGIN, process::id(), END));
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        file.lock()?;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&serde_json::to_vec(gateway)?)?;
        Ok(Self { path, _held: file })
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        // Whoever comes next would find it unlocked, and remove it.
        let _ = fs::remove_file(&self.path);
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
            Ok(()) => drop(fs::remove_file(&path)),
            Err(TryLockError::WouldBlock) => {
                let gateway = fs::read(&path).ok();
                running.extend(gateway.and_then(|json| serde_json::from_slice(&json).ok()));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    running.sort_by_key(|gateway: &Gateway| gateway.pid);
    Ok(running)
}

const BEGIN: &str = "gateway-";
const END: &str = ".run";

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway() -> Gateway {
        Gateway {
            pid: process::id(),
            address: "127.0.0.1:8787".into(),
            config: None,
            started_at: "2026-11-30T07:12:03Z".into(),
        }
    }

    #[test]
    fn a_gateway_is_seen_while_it_runs_and_not_after() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("pool.json");
        assert!(gateways(&state).unwrap().is_empty());
        let held = RunFile::hold(&state, &gateway()).unwrap();
        assert_eq!(gateways(&state).unwrap()[0].address, "127.0.0.1:8787");
        drop(held);
        assert!(gateways(&state).unwrap().is_empty());
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
