//! New keys for a client that runs: read again from where they came, by hand or by themselves.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use keywheel_core::Clock;
use keywheel_pool::{
    KeySpec, ReloadReport,
    keys::{KeyLoader, LoadedKeys},
};
use tokio::{runtime::Handle, task::AbortHandle};

use crate::{
    Error, Gemini,
    blocking::blocking,
    config::{self, Environment},
    gemini::Inner,
    time::rest,
};

impl Gemini {
    /// Reads the keys again from where they came: the environment, `.env`, key files, the configuration file.
    ///
    /// Keys that stay keep all that is known of them; calls under way end with the key that they have.
    ///
    /// # Errors
    /// [`Error::Keys`] or [`Error::Config`] with everything that is wrong, and [`Error::Setting`] if the keys were
    /// given in code ([`reload_keys`](Self::reload_keys) replaces those). The old keys stay in use then.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing, or everything.
    pub async fn reload(&self) -> Result<ReloadReport, Error> {
        reload(&self.inner).await
    }

    /// Uses these keys from now on, in place of those it had.
    ///
    /// ```
    /// # use futures_executor::block_on;
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, Pool, StateLocation, testing::Script};
    /// let key = |name: &str| KeySpec::new(ApiKey::new(format!("AQ.EXAMPLE-{name}")).unwrap(), name);
    /// # block_on(async {
    /// let pool = Pool::builder().keys([key("one"), key("two")]).state(StateLocation::None).build()?;
    /// let gemini = Gemini::builder()
    ///     .pool(pool)
    ///     .transport(Arc::new(Script::new()))
    ///     .without_daily_checks()
    ///     .build()
    ///     .await?;
    /// let report = gemini.reload_keys([key("two"), key("three")])?;
    /// assert_eq!((report.added, report.removed, report.kept), (vec!["three".into()], vec!["one".into()], 1));
    /// # Ok::<(), keywheel::Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Keys`] if there are none, or some are no keys. The old ones stay in use then.
    pub fn reload_keys(
        &self,
        keys: impl IntoIterator<Item = KeySpec>,
    ) -> Result<ReloadReport, Error> {
        let loaded = KeyLoader::new().keys(keys).load()?;
        Ok(take(&self.inner, loaded))
    }
}

/// Where a client's keys came from, to be read again.
pub(crate) struct KeysFrom {
    place: Place,
    /// What is in use, so that what has not changed is left alone.
    pub(crate) last: Mutex<Vec<KeySpec>>,
}

/// A place that keys are read from.
#[derive(Clone)]
pub(crate) enum Place {
    /// They were given in code, or with a pool.
    Code,
    Loader(KeyLoader),
    Config(PathBuf, Environment),
}

impl KeysFrom {
    pub(crate) const fn new(place: Place, keys: Vec<KeySpec>) -> Self {
        Self { place, last: Mutex::new(keys) }
    }
}

impl fmt::Debug for KeysFrom {
    /// Neither keys nor variables, which are keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.place {
            Place::Code => "KeysFrom(code)",
            Place::Loader(_) => "KeysFrom(loader)",
            Place::Config(..) => "KeysFrom(config)",
        })
    }
}

impl Place {
    fn load(&self) -> Result<LoadedKeys, Error> {
        match self {
            Self::Code => {
                let fault = "the keys were given in code, so there is nowhere to read them from";
                Err(Error::Setting(fault.to_owned()))
            }
            Self::Loader(loader) => Ok(loader.load()?),
            Self::Config(path, environment) => config::read(path, environment.clone())?.load_keys(),
        }
    }
}

async fn reload(inner: &Inner) -> Result<ReloadReport, Error> {
    let place = inner.keys_from.place.clone();
    let loaded = blocking(move || place.load()).await?;
    Ok(take(inner, loaded))
}

fn take(inner: &Inner, loaded: LoadedKeys) -> ReloadReport {
    let LoadedKeys { keys, notes, .. } = loaded;
    // Held to the end: two reloads at once must not leave the one's keys and the other's memory of them.
    let mut last = inner.keys_from.last.lock().unwrap_or_else(PoisonError::into_inner);
    let mut report = inner.pool.reload(keys.iter().cloned());
    *last = keys;
    report.notes.extend(notes.iter().map(ToString::to_string));
    let (added, removed) = (report.added.join(", "), report.removed.join(", "));
    tracing::info!(added, removed, kept = report.kept, "the keys were read again");
    report
}

/// Keys being watched in the background. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Watch(AbortHandle);

impl Watch {
    /// Starts to look every `interval`, if there is a tokio runtime to do so.
    pub(crate) fn start(inner: &Arc<Inner>, interval: Duration) -> Option<Self> {
        if matches!(inner.keys_from.place, Place::Code) {
            return None;
        }
        let runtime = Handle::try_current().ok()?;
        let clock = Arc::clone(&inner.clock);
        let task = runtime.spawn(watch(Arc::downgrade(inner), clock, interval));
        Some(Self(task.abort_handle()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn watch(inner: Weak<Inner>, clock: Arc<dyn Clock>, interval: Duration) {
    let mut said = String::new();
    loop {
        rest(&*clock, interval).await;
        let Some(inner) = inner.upgrade() else { return };
        look(&inner, &mut said).await;
    }
}

/// Takes what has changed. A fault is said once, and the old keys stay.
async fn look(inner: &Inner, said: &mut String) {
    let place = inner.keys_from.place.clone();
    match blocking(move || place.load()).await {
        Ok(loaded) => {
            said.clear();
            let last = inner.keys_from.last.lock().unwrap_or_else(PoisonError::into_inner);
            let same = *last == loaded.keys;
            drop(last);
            if !same {
                take(inner, loaded);
            }
        }
        Err(error) => {
            let error = error.to_string();
            if error != *said {
                tracing::warn!(error, "the keys cannot be read again, so those in use stay");
                *said = error;
            }
        }
    }
}
