//! How a [`Gemini`] is put together.

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
    keys::{KeyLoader, KeyNote, LoadedKeys},
};
use keywheel_provider::{
    Dialect, Provider, Transport,
    http::{HttpTransport, Timeouts},
    upstream::Upstream,
};

use crate::{
    Degraded, Error, Gemini, ModelFacts, OutOfQuota, Owners, RetryConfig, Wait,
    attempt::{Breakers, Budget, Facts, Paces, SharedBudget},
    config::{self, Environment},
    degrade::OnExhausted,
    embed_cache::{EmbedCache, EmbedCacheConfig},
    gemini::{COLLECTION, Defaults, Inner, bare, chain},
    turns::TurnBook,
    waits::OnWait,
};

/// Builds a [`Gemini`]. Every setting has a default; `build()` says what is wrong with the ones given.
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
#[must_use = "a builder does nothing until `build` is called"]
pub struct GeminiBuilder {
    keys: Option<Vec<KeySpec>>,
    loader: Option<KeyLoader>,
    pool: Option<Pool>,
    pool_builder: PoolBuilder,
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
    embed_cache: Option<EmbedCacheConfig>,
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
            embed_cache: None,
            notes: Vec::new(),
        }
    }
}

impl GeminiBuilder {
    /// Takes the settings of a TOML file; whatever is set afterwards wins.
    ///
    /// Every setting has a default, so an empty file gives what [`Gemini::from_env`] does. Relative paths are seen
    /// from the file, and so is `.env`. Keys are best left in the environment; the file may hold them.
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
    /// All settings are in `docs/configuration.md`.
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
    pub fn reset_strategy(
        mut self,
        kind: LimitKind,
        strategy: impl ResetStrategy + 'static,
    ) -> Self {
        self.pool_builder = self.pool_builder.reset_strategy(kind, strategy);
        self
    }

    /// The clock. Defaults to the machine's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How requests reach the network. Defaults to HTTPS by [`HttpTransport`].
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Who is asked, and so what is spoken. Defaults to Gemini's own API; with another one a
    /// [`base_url`](Self::base_url) has to be set.
    ///
    /// Files, caches and token counts are Gemini's alone.
    ///
    /// ```
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use keywheel::OpenAiApi;
    ///
    /// let groq = Gemini::builder()
    ///     .provider(OpenAiApi::new())
    ///     .base_url("https://api.groq.com/openai/v1")
    ///     .keys([KeySpec::new(ApiKey::new("gsk-EXAMPLE")?, "GROQ_KEY")])
    ///     .state(StateLocation::None)
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn provider(mut self, provider: impl Provider + 'static) -> Self {
        self.provider = Some(Arc::new(provider));
        self
    }

    /// Where the API is. Defaults to `GEMINI_BASE_URL`, then `GOOGLE_GEMINI_BASE_URL`, then Google.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// The API version in the path. Defaults to `v1beta`.
    pub fn api_version(mut self, version: impl Into<String>) -> Self {
        self.api_version = Some(version.into());
        self
    }

    /// Connect, first-byte and idle time limits of one attempt. Defaults to 10 s, 90 s and 90 s.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
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

    /// How long a call that allows paid keys waits for free ones before it uses one. Defaults to 30 s.
    pub fn overflow_after(mut self, patience: Duration) -> Self {
        self.defaults.overflow_after = patience;
        self
    }

    /// Leaves the daily check of quarantined keys to [`Gemini::run_due_checks`]. By default the client runs it by
    /// itself.
    pub fn without_daily_checks(mut self) -> Self {
        self.daily_checks = false;
        self
    }

    /// How the provider's own failures are retried. Defaults to two retries.
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
    /// The callback may decline by returning `None`.
    pub fn on_exhausted<F, Fut, A>(mut self, callback: F) -> Self
    where
        F: Fn(OutOfQuota) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = A> + Send + 'static,
        A: Into<Degraded>,
    {
        self.on_exhausted = Some(OnExhausted::new(callback));
        self
    }

    /// The models that may answer when the one that was asked for cannot, the first before the second. Defaults to
    /// none. A call can [say otherwise](Generate::fallback).
    ///
    /// The model that was asked for is used if it can serve now or within [`fallback_after`](Self::fallback_after);
    /// then the first of these that can serve now; then whichever can first. A model is passed over when it is out of
    /// quota beyond the deadline, fails after its retries, is left alone after failures, is gone or has no free tier,
    /// or cannot read so much. [`Reply::model`](crate::Reply::model) says who answered, and
    /// [`Reply::skipped`](crate::Reply::skipped) who did not, and why.
    ///
    /// Embeddings never change the model, nor do requests that build on a cache: it is one model's.
    ///
    /// ```
    /// # use futures_executor::block_on;
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, Pool, SkipReason, StateLocation, testing::{Script, Scripted}};
    /// let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "one");
    /// let script = Script::new();
    /// script.reply(Scripted::json(404, r#"{"error": {"code": 404, "status": "NOT_FOUND", "message":
    ///     "models/gemini-9 is not found for API version v1beta, or is not supported for generateContent."}}"#));
    /// script.reply(Scripted::text("Hello"));
    /// # block_on(async {
    /// let gemini = Gemini::builder()
    ///     .pool(Pool::builder().keys([key]).state(StateLocation::None).build()?)
    ///     .transport(Arc::new(script))
    ///     .fallback(["gemini-3.5-flash", "gemini-3.5-flash-lite"])
    ///     .without_daily_checks()
    ///     .build()
    ///     .await?;
    /// let reply = gemini.generate("gemini-9", "Say hello").await?;
    /// assert_eq!(reply.model(), "gemini-3.5-flash");
    /// assert_eq!(reply.skipped()[0].reason, SkipReason::NotFound);
    /// # Ok::<(), keywheel::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn fallback<M: Into<Arc<str>>>(mut self, models: impl IntoIterator<Item = M>) -> Self {
        self.fallback = chain(models);
        self
    }

    /// How long the model that was asked for is waited for before another one of the
    /// [chain](Self::fallback) takes over. Defaults to 2 s: a pause within the minute is no reason to change models.
    pub fn fallback_after(mut self, patience: Duration) -> Self {
        self.defaults.fallback_after = patience;
        self
    }

    /// What `model` can read and write, where you know it. Goes before what the provider says
    /// ([`Gemini::model`](crate::Gemini::model) asks it). Requests that are surely larger end with
    /// [`Error::TooLarge`] before they are sent.
    pub fn model_facts(mut self, model: impl Into<Arc<str>>, facts: ModelFacts) -> Self {
        self.facts.insert(bare(model.into()), facts);
        self
    }

    /// Is told when a call has to wait: for a key, for a retry, for a model that is left alone. Defaults to nobody.
    ///
    /// Called where the call is polled, so it should be quick. A wait that is over sooner is not told of, and one call
    /// may tell of several.
    ///
    /// ```no_run
    /// let builder = keywheel::Gemini::builder()
    ///     .on_wait(|wait| println!("waiting for {} until {}", wait.model, wait.until));
    /// ```
    pub fn on_wait(mut self, hook: impl Fn(&Wait) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(OnWait::new(hook));
        self
    }

    /// Loads the keys and the state, and starts the pool.
    ///
    /// Without a [`pool`](Self::pool) of its own it needs a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Keys`] names every faulty variable; [`Error::Pool`] and [`Error::Setting`] the faulty setting.
    ///
    /// # Cancel safety
    /// Dropping the future sends and takes nothing. A state file that is being read is read to its end, and let go.
    pub async fn build(self) -> Result<Gemini, Error> {
        let upstream = self.upstream(|name| std::env::var(name).ok())?;
        let (mut key_notes, mut key_sources) = (self.notes, Vec::new());
        let pool = match self.pool {
            Some(pool) => pool,
            None => {
                let loaded = load(self.keys, self.loader)?;
                let builder = self.pool_builder.keys(loaded.keys).clock(self.clock);
                // Reading the state file blocks; the runtime's own threads are for other work.
                let pool = tokio::task::spawn_blocking(move || builder.build()).await;
                key_notes.extend(loaded.notes);
                key_sources = loaded.sources;
                pool.map_err(setting)??
            }
        };
        let clock = Arc::clone(pool.clock());
        let gemini = Gemini::from_inner(Inner {
            turns: Arc::new(TurnBook::open(pool.state_file(), Arc::clone(&clock))),
            owners: Owners::open(pool.state_file(), Arc::clone(&clock)),
            upstream,
            defaults: self.defaults,
            retry: self.retry,
            paces: Paces::default(),
            fallback: self.fallback,
            budget: SharedBudget::new(Budget::new(&self.retry, clock.unix_ms())),
            breakers: Breakers::new(Arc::clone(&clock), self.retry.breaker_after),
            facts: Facts::new(self.facts),
            counters: Arc::default(),
            on_wait: self.on_wait,
            on_exhausted: self.on_exhausted,
            key_notes,
            key_sources,
            embed_cache: self.embed_cache.map(EmbedCache::new),
            pool,
            clock,
        });
        Ok(if self.daily_checks { gemini.with_checks() } else { gemini })
    }

    /// Adds to [`Gemini::key_notes`].
    pub(crate) fn note(&mut self, note: KeyNote) {
        self.notes.push(note);
    }

    fn upstream(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Upstream, Error> {
        let transport = match &self.transport {
            Some(transport) => Arc::clone(transport),
            None => Arc::new(HttpTransport::new(&self.timeouts).map_err(setting)?),
        };
        let upstream = match (&self.provider, &self.base_url) {
            (Some(provider), Some(url)) => {
                let upstream = Upstream::new(url, transport).map_err(setting)?;
                upstream.with_provider(Arc::clone(provider))
            }
            (Some(provider), None) if provider.dialect() != Dialect::Gemini => {
                // The variables name a place where Gemini is spoken.
                let name = provider.name();
                return Err(Error::Setting(format!(
                    "{name} needs a base URL: nobody can guess it"
                )));
            }
            (provider, url) => {
                let url = url.clone().or_else(|| Upstream::base_url_from(variable));
                let upstream = match &url {
                    Some(url) => Upstream::new(url, transport).map_err(setting)?,
                    None => Upstream::google(transport),
                };
                match provider {
                    Some(provider) => upstream.with_provider(Arc::clone(provider)),
                    None => upstream,
                }
            }
        };
        match &self.api_version {
            Some(version) => upstream.with_version(version).map_err(setting),
            None => Ok(upstream),
        }
    }
}

fn setting(fault: impl fmt::Display) -> Error {
    Error::Setting(fault.to_string())
}

fn load(keys: Option<Vec<KeySpec>>, loader: Option<KeyLoader>) -> Result<LoadedKeys, Error> {
    match (keys, loader) {
        (Some(keys), _) => Ok(KeyLoader::new().keys(keys).load()?),
        (None, Some(loader)) => Ok(loader.load()?),
        (None, None) => Ok(KeyLoader::new().process_environment().dotenv(".env").load()?),
    }
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
            .field("embed_cache", &self.embed_cache)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}
