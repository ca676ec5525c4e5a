//! New projects, budgets and keys for a gateway that runs: by hand, or when their file changes.
//!
//! Requests under way go on by the settings and with the key that they began with; what is reserved stays reserved.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use keywheel::{ConfigErrors, KeyLoader, KeySpec, ReloadReport, ledger::LedgerRules};
use tokio::sync::Mutex;

use crate::{
    config::{AtStart, Config, Limits, Settings},
    gateway::{App, Current},
    pinned,
    server::Phase,
};

/// What a reload changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// How many projects there are now.
    pub projects: usize,
    /// Keys that came, went and stayed.
    pub keys: ReloadReport,
    /// What is allowed and probably not meant, each in a sentence.
    pub warnings: Vec<String>,
    /// The settings that say something else than when the gateway started, and hold with its next start only, by their
    /// names (`retry.max_retries`).
    pub needs_restart: Vec<String>,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration has faults.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The keys have, or there are none.
    #[error(transparent)]
    Keys(#[from] keywheel::Error),
    /// Tokens are asked for, and would not be any more: the file says so, or was emptied. Or none are, and the address
    /// is one that others reach.
    #[error("the new file asks for no tokens; restart to turn them off")]
    NoTokens,
}

/// Where the settings and the keys in use came from. Locked while they change, so that two reloads do not mix.
#[derive(Debug)]
pub(crate) struct Source(Mutex<Sources>);

#[derive(Debug)]
struct Sources {
    file: Option<PathBuf>,
    looks: Looks,
    /// Where the gateway listens, whatever the settings say by now.
    address: SocketAddr,
    /// What was said when it started, and holds until it ends.
    at_start: AtStart,
    loader: KeyLoader,
    keys: Vec<KeySpec>,
}

/// What the file looked like.
#[derive(Debug, Default)]
struct Looks {
    /// When it was last read; `None`: read it whatever it looks like.
    read: Option<Stamp>,
    /// At the last look.
    last: Option<Stamp>,
}

impl Looks {
    /// True if a file that looks like this is to be read: it has changed, and no more since the last look. Some editors
    /// empty a file and then write it, and what is half written may be a whole file.
    fn has_settled(&mut self, now: Option<Stamp>) -> bool {
        let settled = now.is_some() && now != self.read && now == self.last;
        self.last = now;
        settled
    }
}

/// What a file looks like from outside. One that was replaced has another number, even within the clock's tick.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    number: u64,
}

impl Source {
    pub(crate) fn new(
        settings: &Settings,
        loader: KeyLoader,
        address: SocketAddr,
        at_start: AtStart,
    ) -> Self {
        let file = settings.file.clone();
        let stamp = file.as_deref().and_then(Stamp::of);
        let keys = loader.load().map(|loaded| loaded.keys).unwrap_or_default();
        let looks = Looks { last: stamp.clone(), read: stamp };
        Self(Mutex::new(Sources { file, looks, address, at_start, loader, keys }))
    }
}

/// Reads the configuration and the keys again, and goes by them from now on.
///
/// # Errors
/// Everything that is wrong; nothing has changed then.
pub(crate) async fn reload(app: &App) -> Result<Reloaded, ReloadError> {
    let mut sources = app.source.0.lock().await;
    whole(app, &mut sources).await
}

/// Looks every now and then whether the file or the keys have changed, until the gateway stops.
pub(crate) async fn watch(app: Weak<App>, every: Duration) {
    let mut said = String::new();
    loop {
        tokio::time::sleep(every).await;
        let Some(app) = app.upgrade().filter(|app| app.stage.now() == Phase::Serving) else {
            return;
        };
        match look(&app).await {
            Ok(()) => said.clear(),
            Err(error) => {
                let error = error.to_string();
                if error != said {
                    tracing::warn!(
                        error,
                        "the configuration cannot be read again; the old one stays"
                    );
                    said = error;
                }
            }
        }
    }
}

async fn look(app: &App) -> Result<(), ReloadError> {
    let mut sources = app.source.0.lock().await;
    if let Some(file) = sources.file.clone() {
        let stamp = blocking(move || Stamp::of(&file)).await;
        if sources.looks.has_settled(stamp) {
            return whole(app, &mut sources).await.map(drop);
        }
    }
    let loader = sources.loader.clone();
    let loaded = blocking(move || loader.load()).await.map_err(keywheel::Error::from)?;
    if loaded.keys != sources.keys {
        app.gemini.reload_keys(loaded.keys.iter().cloned())?;
        sources.keys = loaded.keys;
    }
    Ok(())
}

async fn whole(app: &App, sources: &mut Sources) -> Result<Reloaded, ReloadError> {
    let file = sources.file.clone();
    // Before it is read: what changes meanwhile is read again.
    let stamp = file.clone();
    sources.looks.read = None;
    let (stamp, config) = blocking(move || {
        let stamp = stamp.as_deref().and_then(Stamp::of);
        let config = match file {
            Some(file) => Config::from_file(file),
            None => Config::from_env(),
        };
        (stamp, config)
    })
    .await;
    let Config { settings, keys: loader, ledger, mut warnings, at_start, .. } = config?;
    let is_reached = !sources.address.ip().to_canonical().is_loopback();
    let guarded = is_reached || app.current().settings.asks_for_tokens();
    if guarded && !settings.asks_for_tokens() {
        return Err(ReloadError::NoTokens);
    }
    let loading = loader.clone();
    let loaded = blocking(move || loading.load()).await.map_err(keywheel::Error::from)?;
    // From here on nothing fails that has not failed before.
    let keys = app.gemini.reload_keys(loaded.keys.iter().cloned())?;
    let now = app.current();
    app.ledger.set_rules(with_those_who_left(ledger.rules, &app.ledger.rules()));
    warnings.extend(pinned::warning(&settings, &app.gemini));
    let projects = settings.projects.iter().count();
    app.goes_by(Current::new(with_what_stays(settings, &now.settings)));
    sources.looks.read = stamp;
    (sources.loader, sources.keys) = (loader, loaded.keys);
    tracing::info!(projects, "the configuration was read again");
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let needs_restart = sources.at_start.changed(&at_start);
    if !needs_restart.is_empty() {
        tracing::warn!("changed, and in effect after a restart only: {}", needs_restart.join(", "));
    }
    Ok(Reloaded { projects, keys, warnings, needs_restart })
}

/// Requests of a project that is gone may be under way, and have to be charged to the end; nobody can begin any.
fn with_those_who_left(mut rules: LedgerRules, before: &LedgerRules) -> LedgerRules {
    for account in before.accounts.keys() {
        rules.accounts.entry(account.clone()).or_default();
    }
    rules
}

/// `settings`, but for what holds as long as the gateway runs: neither the client nor the port could follow.
fn with_what_stays(settings: Settings, now: &Settings) -> Settings {
    let Limits { body, upload, drain_time, .. } = settings.limits;
    Settings {
        listen: now.listen,
        upstream: now.upstream,
        base_url: now.base_url.clone(),
        api_version: now.api_version.clone(),
        limits: Limits { body, upload, drain_time, ..now.limits },
        watch: now.watch,
        ..settings
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let data = fs::metadata(path).ok()?;
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(&data);
        #[cfg(not(unix))]
        let number = 0;
        Some(Self { modified: data.modified().ok(), length: data.len(), number })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Begins to watch, if the settings say so.
pub(crate) fn begin(app: &Arc<App>) -> Option<tokio::task::AbortHandle> {
    let every = app.current().settings.watch?;
    Some(tokio::spawn(watch(Arc::downgrade(app), every)).abort_handle())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(length: u64) -> Option<Stamp> {
        Some(Stamp { modified: None, length, number: 1 })
    }

    #[test]
    fn a_file_is_read_once_it_looks_the_same_twice() {
        let mut looks = Looks { read: stamp(9), last: stamp(9) };
        assert!(!looks.has_settled(stamp(9)), "nothing has changed");
        assert!(!looks.has_settled(stamp(0)), "it was emptied, and is about to be written");
        assert!(!looks.has_settled(stamp(5)), "half of it is there");
        assert!(!looks.has_settled(None));
        assert!(!looks.has_settled(stamp(12)));
        assert!(looks.has_settled(stamp(12)));
        looks.read = None;
        assert!(looks.has_settled(stamp(12)), "what could not be read is read again");
    }
}
