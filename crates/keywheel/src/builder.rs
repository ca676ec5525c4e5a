//! How a [`Gemini`](crate::Gemini) is put together.

mod build;
mod chain;
mod plain_http;
mod upstream;

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use keywheel_core::{Clock, SystemClock};
use keywheel_pool::{
    KeySpec, LimitKind, Limits, Pool, PoolBuilder, ResetStrategy, Selection, StateLocation,
    keys::{KeyLoader, KeyNote},
};
use keywheel_provider::{Provider, Transport, http::Timeouts, upstream::Upstream};

use crate::{
    Degraded, Error, ModelFacts, OutOfQuota, RetryConfig,
    config::{self, Environment},
    degrade::OnExhausted,
    embed_cache::EmbedCacheConfig,
    gemini::{COLLECTION, Defaults},
    waits::OnWait,
};

/// Builds a [`Gemini`](crate::Gemini). Every setting has a default; `build()` says what is wrong with the ones given.
///
/// ```no_run
/// # async fn run() -> Result<(), keywheel::Error> {
/// use std::time::Duration;
///
/// let gemini = keywheel::Gemini::builder()
///     .deadline(Duration::from_secs(30))
///     .on_exhausted(|ctx| async move {
///         format!("Back at {}", ctx.next_available_at().map_or("?".into(), |at| at.to_string()))
///     })
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// How patient it is, and how it reaches Google:
///
/// ```no_run
/// # async fn run() -> Result<(), keywheel::Error> {
/// use std::time::Duration;
/// use keywheel::{Gemini, KeyLoader, RetryConfig, Selection, Timeouts};
///
/// let gemini = Gemini::builder()
///     .key_loader(KeyLoader::new().process_environment().file("keys.txt"))
///     .watch_keys(Duration::from_secs(60))
///     .selection(Selection::MostRemaining)
///     .exploration(false) // what is believed of limits is never put to the test
///     .api_version("v1")
///     .timeouts(Timeouts { connect: Duration::from_secs(3), ..Timeouts::default() })
///     .retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
///     .stream_deadline(Duration::from_secs(300))
///     .overflow_after(Duration::from_secs(5))
///     .fallback(["gemini-3.5-flash-lite"])
///     .fallback_after(Duration::from_secs(10))
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct GeminiBuilder {
    keys: Option<Vec<KeySpec>>,
    loader: Option<KeyLoader>,
    pool: Option<Pool>,
    pool_builder: PoolBuilder,
    /// The quota day was set.
    day_is_set: bool,
    clock: Arc<dyn Clock>,
    transport: Option<Arc<dyn Transport>>,
    provider: Option<Arc<dyn Provider>>,
    base_url: Option<String>,
    api_version: Option<String>,
    timeouts: Timeouts,
    defaults: Defaults,
    retry: RetryConfig,
    on_exhausted: Option<OnExhausted>,
    fallback: Option<Arc<[Arc<str>]>>,
    facts: HashMap<Arc<str>, ModelFacts>,
    on_wait: Option<OnWait>,
    daily_checks: bool,
    watch_keys: Option<Duration>,
    /// The file that the settings came from, and its keys.
    config: Option<(PathBuf, Environment)>,
    embed_cache: Option<EmbedCacheConfig>,
    #[cfg(feature = "ledger")]
    pub(crate) ledger: crate::ledger::Joining,
    /// What was noticed before the keys are loaded.
    notes: Vec<KeyNote>,
}

impl Default for GeminiBuilder {
    fn default() -> Self {
        Self {
            keys: None,
            loader: None,
            pool: None,
            pool_builder: Pool::builder(),
            day_is_set: false,
            clock: Arc::new(SystemClock),
            transport: None,
            provider: None,
            base_url: None,
            api_version: None,
            timeouts: Timeouts::default(),
            defaults: Defaults::default(),
            retry: RetryConfig::default(),
            on_exhausted: None,
            fallback: None,
            facts: HashMap::new(),
            on_wait: None,
            daily_checks: true,
            watch_keys: None,
            config: None,
            embed_cache: None,
            #[cfg(feature = "ledger")]
            ledger: crate::ledger::Joining::default(),
            notes: Vec::new(),
        }
    }
}

impl GeminiBuilder {
    /// Takes the settings of a TOML file; whatever is set afterwards wins.
    ///
    /// Every setting has a default, so an empty file gives what [`Gemini::from_env`](crate::Gemini::from_env) does.
    /// Relative paths are seen from the file, and so is `.env`. Keys are best left in the environment; the file may
    /// hold them.
    ///
    /// ```toml
    /// state = "pool.json"
    /// deadline = "30s"
    ///
    /// [[key]]
    /// variable = "CHAT_KEY"
    /// project = "chat"
    ///
    /// [limits."gemini-3.5-flash-lite"]
    /// rpd = 500
    /// ```
    ///
    /// All settings are in `docs/configuration.md` of the repository.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), keywheel::Error> {
    /// let gemini = keywheel::GeminiBuilder::from_config("keywheel-client.toml")?
    ///     .on_exhausted(|_| async { "The assistant is resting." })
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] with everything that is wrong in the file, each fault with its line. Faults in the `.env`
    /// and key files that it names are found by [`build`](Self::build).
    pub fn from_config(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(config::read(path.as_ref(), Environment::Process)?)
    }

    /// The same with `variables` in place of the environment of the process. What they do not say about the state
    /// file is left to [`StateLocation::Default`].
    ///
    /// ```
    /// use keywheel::GeminiBuilder;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("keywheel.toml");
    /// std::fs::write(&path, "state = \"none\"\n[[key]]\nvariable = \"CHAT_KEY\"\n")?;
    /// let gemini = GeminiBuilder::from_config_with(&path, [("CHAT_KEY", "AQ.EXAMPLE-key-1")])?
    ///     .without_daily_checks()
    ///     .build()
    ///     .await?;
    /// assert_eq!(gemini.status().keys.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`from_config`](Self::from_config).
    pub fn from_config_with<N, V>(
        path: impl AsRef<Path>,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, Error>
    where
        N: Into<String>,
        V: Into<String>,
    {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Ok(config::read(path.as_ref(), Environment::Given(variables.collect()))?)
    }

    /// Uses these keys. Defaults to those of the environment and `.env`, see [`KeyLoader`].
    pub fn keys(mut self, keys: impl IntoIterator<Item = KeySpec>) -> Self {
        self.keys = Some(keys.into_iter().collect());
        self
    }

    /// Loads keys with this loader: another prefix, a key file, another `.env`.
    pub fn key_loader(mut self, loader: KeyLoader) -> Self {
        self.loader = Some(loader);
        // Those of a file are not asked for any more.
        self.config = None;
        self
    }

    /// Reads the keys again every `interval` from where they came, and takes what has changed: keys that stay keep
    /// all that is known of them. Defaults to never. Needs a tokio runtime at [`build`](Self::build), and ends with
    /// the client.
    ///
    /// What is wrong is logged once, and the old keys stay in use.
    pub fn watch_keys(mut self, interval: Duration) -> Self {
        self.watch_keys = Some(interval.max(Duration::from_secs(1)));
        self
    }

    /// Uses a pool that was built elsewhere, with its own keys, clock, state and limits.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Where the pool keeps its state. Defaults to `KEYWHEEL_STATE`, else the platform's state folder.
    pub fn state(mut self, location: StateLocation) -> Self {
        self.pool_builder = self.pool_builder.state(location);
        self
    }

    /// The state file's path: short for [`state`](Self::state) with [`StateLocation::File`].
    pub fn state_file(self, path: impl Into<PathBuf>) -> Self {
        self.state(StateLocation::File(path.into()))
    }

    /// The file that the pool's state will be kept in, by the environment as it is now; opens nothing. `None`: in
    /// memory, or nowhere.
    ///
    /// ```
    /// use keywheel::{Gemini, StateLocation};
    ///
    /// assert_eq!(Gemini::builder().state(StateLocation::None).state_path(), None);
    /// ```
    #[must_use]
    pub fn state_path(&self) -> Option<PathBuf> {
        self.pool_builder.location().path()
    }

    /// Limits known beforehand, for `model` (`*` for every model). Defaults to none: they are learned.
    pub fn limits(mut self, model: &str, limits: Limits) -> Self {
        let model = model.strip_prefix(COLLECTION).unwrap_or(model);
        self.pool_builder = self.pool_builder.limits(model, limits);
        self
    }

    /// How keys are chosen. Defaults to [`Selection::RoundRobin`].
    pub fn selection(mut self, selection: Selection) -> Self {
        self.pool_builder = self.pool_builder.selection(selection);
        self
    }

    /// Whether one request per free bucket and quota day may go beyond what is believed, to find out whether it
    /// still holds. Defaults to true.
    pub fn exploration(mut self, on: bool) -> Self {
        self.pool_builder = self.pool_builder.exploration(on);
        self
    }

    /// Replaces the strategy that says how long a spent limit stays spent.
    ///
    /// Days end at midnight Pacific time for Gemini, and at midnight UTC for another [`provider`](Self::provider),
    /// unless a strategy for [`LimitKind::RequestsPerDay`] is set here.
    pub fn reset_strategy(
        mut self,
        kind: LimitKind,
        strategy: impl ResetStrategy + 'static,
    ) -> Self {
        self.day_is_set |= kind == LimitKind::RequestsPerDay;
        self.pool_builder = self.pool_builder.reset_strategy(kind, strategy);
        self
    }

    /// The clock. Defaults to the machine's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How long a call may take in all, waiting for quota included; a stream, to its first part. Defaults to
    /// 2 minutes.
    ///
    /// A call whose quota comes back later than that is answered at once.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.defaults.deadline = Some(deadline);
        self
    }

    /// How long a stream may take to its end. Defaults to 20 minutes, when Google ends it itself.
    pub fn stream_deadline(mut self, deadline: Duration) -> Self {
        self.defaults.stream_end = Some(deadline);
        self
    }

    /// Lets calls and streams take as long as it takes, to the next quota day if need be.
    pub fn no_deadline(mut self) -> Self {
        self.defaults.deadline = None;
        self.defaults.stream_end = None;
        self
    }

    /// How long a call that allows paid keys waits for free ones before it uses one, those of the other models of its
    /// [chain](Self::fallback) included. Defaults to 30 s. A model that fails is never a reason to pay.
    pub fn overflow_after(mut self, patience: Duration) -> Self {
        self.defaults.overflow_after = patience;
        self
    }

    /// Leaves the daily check of quarantined keys to [`Gemini::run_due_checks`](crate::Gemini::run_due_checks). By
    /// default the client runs it by itself.
    pub fn without_daily_checks(mut self) -> Self {
        self.daily_checks = false;
        self
    }

    /// How the provider's own failures are retried: how often a call may, how often all calls together, and when a
    /// model that fails again and again is left alone. See [`RetryConfig`] for the defaults.
    pub fn retry(mut self, retry: RetryConfig) -> Self {
        self.retry = retry;
        self
    }

    /// Remembers embeddings, so that the same text is not asked for twice. Defaults to no cache.
    ///
    /// A vector is served again for the same provider, model, task, dimensions, title and text only. Callers that
    /// need one text at the same time make one request.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), keywheel::Error> {
    /// use keywheel::{Gemini, embed_cache::EmbedCacheConfig};
    ///
    /// let gemini = Gemini::builder().embed_cache(EmbedCacheConfig::default()).build().await?;
    /// gemini.embed("gemini-embedding-001", ["a text"]).await?;
    /// gemini.embed("gemini-embedding-001", ["a text"]).await?; // no request
    /// assert_eq!(gemini.embed_cache_stats().unwrap().hits, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn embed_cache(mut self, config: EmbedCacheConfig) -> Self {
        self.embed_cache = Some(config);
        self
    }

    /// Answers calls that no key can serve in time. Defaults to an [`Error::Exhausted`] with the same facts.
    ///
    /// The callback may decline by returning `None`. It may call this client, say for another model: it is not asked
    /// again for what it calls itself, which ends with the error instead.
    pub fn on_exhausted<F, Fut, A>(mut self, callback: F) -> Self
    where
        F: Fn(OutOfQuota) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = A> + Send + 'static,
        A: Into<Degraded>,
    {
        self.on_exhausted = Some(OnExhausted::new(callback));
        self
    }

    /// Adds to [`Gemini::key_notes`](crate::Gemini::key_notes).
    pub(crate) fn note(&mut self, note: KeyNote) {
        self.notes.push(note);
    }

    /// Remembers the file that the settings came from.
    pub(crate) fn came_from(&mut self, path: PathBuf, environment: Environment) {
        self.config = Some((path, environment));
    }
}

fn setting(fault: impl fmt::Display) -> Error {
    Error::Setting(fault.to_string())
}

/// Every setting. What cannot be shown is counted or said to be there.
impl fmt::Debug for GeminiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One that cannot be used may hold a password.
        let usable = |url: &&str| Upstream::check_base_url(url).is_ok();
        f.debug_struct("GeminiBuilder")
            .field("keys", &self.keys)
            .field("loader", &self.loader)
            .field("pool", &self.pool.is_some())
            .field("pool_builder", &self.pool_builder)
            .field("transport", &self.transport.is_some())
            .field("provider", &self.provider)
            .field("base_url", &self.base_url.as_deref().filter(usable))
            .field("api_version", &self.api_version)
            .field("timeouts", &self.timeouts)
            .field("defaults", &self.defaults)
            .field("retry", &self.retry)
            .field("on_exhausted", &self.on_exhausted.is_some())
            .field("fallback", &self.fallback)
            .field("facts", &self.facts)
            .field("on_wait", &self.on_wait.is_some())
            .field("daily_checks", &self.daily_checks)
            .field("watch_keys", &self.watch_keys)
            .field("embed_cache", &self.embed_cache)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}
