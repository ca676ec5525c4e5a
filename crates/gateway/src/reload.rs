//! New projects, budgets and keys for a gateway that runs: by hand, or when their file changes.
//!
//! Requests under way go on by the settings and with the key that they began with; what is reserved stays reserved.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use keywheel::{ConfigErrors, KeyLoader, KeySpec, ReloadReport, ledger::LedgerRules};
use tokio::sync::Mutex;

use crate::{
    config::{Config, Settings},
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
    /// What is allowed and probably not meant, and what takes effect with the next start only; each in a sentence.
    pub warnings: Vec<String>,
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
}

/// Where the settings and the keys in use came from. Locked while they change, so that two reloads do not mix.
#[derive(Debug)]
pub(crate) struct Source(Mutex<Sources>);

#[derive(Debug)]
struct Sources {
    file: Option<PathBuf>,
    /// As the file was when it was last read; `None`: read it whatever it looks like.
    stamp: Option<Stamp>,
    loader: KeyLoader,
    keys: Vec<KeySpec>,
}

/// What a file looks like from outside. One that was replaced has another number, even within the clock's tick.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    number: u64,
}

impl Source {
    pub(crate) fn new(settings: &Settings, loader: KeyLoader) -> Self {
        let file = settings.file.clone();
        let stamp = file.as_deref().and_then(Stamp::of);
        let keys = loader.load().map(|loaded| loaded.keys).unwrap_or_default();
        Self(Mutex::new(Sources { file, stamp, loader, keys }))
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
        if stamp.is_some() && stamp != sources.stamp {
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
    sources.stamp = None;
    let (stamp, config) = blocking(move || {
        let stamp = stamp.as_deref().and_then(Stamp::of);
        let config = match file {
            Some(file) => Config::from_file(file),
            None => Config::from_env(),
        };
        (stamp, config)
    })
    .await;
    let Config { settings, keys: loader, ledger, mut warnings, .. } = config?;
    let loading = loader.clone();
    let loaded = blocking(move || loading.load()).await.map_err(keywheel::Error::from)?;
    // From here on nothing fails that has not failed before.
    let keys = app.gemini.reload_keys(loaded.keys.iter().cloned())?;
    let now = app.current();
    app.ledger.set_rules(with_those_who_left(ledger.rules, &app.ledger.rules()));
    warnings.extend(for_the_next_start(&now.settings, &settings));
    warnings.extend(pinned::warning(&settings, &app.gemini));
    let projects = settings.projects.iter().count();
    app.goes_by(Current::new(settings));
    *sources = Sources { file: sources.file.take(), stamp, loader, keys: loaded.keys };
    tracing::info!(projects, "the configuration was read again");
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(Reloaded { projects, keys, warnings })
}

/// Requests of a project that is gone may be under way, and have to be charged to the end; nobody can begin any.
fn with_those_who_left(mut rules: LedgerRules, before: &LedgerRules) -> LedgerRules {
    for account in before.accounts.keys() {
        rules.accounts.entry(account.clone()).or_default();
    }
    rules
}

/// What has changed and is only looked at when a gateway starts.
fn for_the_next_start(before: &Settings, after: &Settings) -> Vec<String> {
    let of_the_port = |settings: &Settings| {
        let limits = settings.limits;
        (limits.connections, limits.head_time, limits.idle_time)
    };
    let changed = [
        (before.listen != after.listen && before.listen.port() != 0, "listen"),
        (before.upstream != after.upstream, "[upstream]"),
        (of_the_port(before) != of_the_port(after), "[serve] connections, head_time or idle_time"),
        (before.watch != after.watch, "watch"),
    ];
    let changed = changed.into_iter().filter(|(changed, _)| *changed);
    changed
        .map(|(_, what)| format!("{what} has changed; it takes effect with the next start"))
        .collect()
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
