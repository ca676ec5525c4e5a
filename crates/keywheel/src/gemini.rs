//! The client: one call in, one answer out.

mod call;

use std::{borrow::Cow, path::Path, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use keywheel_core::{Clock, scrub::scrub};
use keywheel_pool::{
    Exhausted, Pool, PoolStatus,
    keys::{KeyNote, KeySource},
};
use keywheel_provider::{api::GenerateRequest, upstream::Upstream};

pub(crate) use self::call::{CallOptions, OnSent, call_options, fallback_options};
pub use self::call::{Generate, Stream};
use crate::{
    Counters, Error, GeminiBuilder, Owners, RetryConfig, attempt,
    blocking::blocking,
    charging::{Payer, Purse},
    checks::{self, Checks},
    degrade::OnExhausted,
    embed_cache::{EmbedCache, EmbedCacheStats},
    observe::Counting,
    reload::{KeysFrom, Watch},
    turns::{StepRecorder, TurnBook},
    waits::OnWait,
};

/// A Gemini client over a pool of keys. Cheap to clone; clones share the pool.
///
/// While it lives, and runs on tokio, it gives quarantined keys their daily check
/// ([`run_due_checks`](Self::run_due_checks)).
///
/// Models go by either of their names: `gemini-x` and `models/gemini-x` are one.
///
/// ```no_run
/// # async fn run() -> Result<(), keywheel::Error> {
/// let gemini = keywheel::Gemini::from_env().await?;
/// let reply = gemini.generate("gemini-3.5-flash-lite", "Say hello").await?;
/// println!("{}", reply.text());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Gemini {
    pub(crate) inner: Arc<Inner>,
    /// Counts what this client does, for the step of a turn.
    recorder: Option<Arc<StepRecorder>>,
    /// Ends with the last clone of this client.
    _checks: Option<Arc<Checks>>,
    _watch: Option<Arc<Watch>>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) pool: Pool,
    pub(crate) upstream: Upstream,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) defaults: Defaults,
    pub(crate) retry: RetryConfig,
    pub(crate) paces: attempt::Paces,
    /// The models that may take over where a call does not say otherwise.
    pub(crate) fallback: Option<Arc<[Arc<str>]>>,
    pub(crate) budget: attempt::SharedBudget,
    pub(crate) breakers: Arc<attempt::Breakers>,
    pub(crate) facts: attempt::Facts,
    pub(crate) counters: Arc<Counting>,
    pub(crate) on_wait: Option<OnWait>,
    pub(crate) keys_from: KeysFrom,
    pub(crate) on_exhausted: Option<OnExhausted>,
    pub(crate) key_notes: Vec<KeyNote>,
    pub(crate) key_sources: Vec<KeySource>,
    pub(crate) turns: Arc<TurnBook>,
    pub(crate) owners: Owners,
    pub(crate) embed_cache: Option<EmbedCache>,
    /// What its calls are charged to.
    pub(crate) purse: Purse,
}

/// What a call takes from the client unless it says otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) deadline: Option<Duration>,
    /// To the end of a stream.
    pub(crate) stream_end: Option<Duration>,
    pub(crate) overflow_after: Duration,
    /// How long the preferred model is waited for before another one takes over.
    pub(crate) fallback_after: Duration,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            deadline: Some(Duration::from_secs(120)),
            // Google ends streams after 20 minutes itself, by a comment in its Python SDK (google-genai 3.6.1).
            stream_end: Some(Duration::from_secs(20 * 60)),
            overflow_after: Duration::from_secs(30),
            fallback_after: Duration::from_secs(2),
        }
    }
}

impl Gemini {
    /// A client with the keys of the environment and of `.env`, and the state file of this machine's user.
    ///
    /// Reads `GEMINI_API_KEY_*` and the other names of [`KeyLoader`](crate::KeyLoader), `GEMINI_BASE_URL`
    /// (or `GOOGLE_GEMINI_BASE_URL`) and `KEYWHEEL_STATE`.
    ///
    /// # Errors
    /// [`Error::Keys`] names every variable at fault, or says where keys were looked for.
    ///
    /// # Cancel safety
    /// As [`GeminiBuilder::build`].
    pub async fn from_env() -> Result<Self, Error> {
        Self::builder().build().await
    }

    /// A client with the settings of a TOML file, see [`GeminiBuilder::from_config`].
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), keywheel::Error> {
    /// let gemini = keywheel::Gemini::from_config("keywheel.toml").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] with everything that is wrong in the file, each fault with its line; and those of
    /// [`GeminiBuilder::build`].
    ///
    /// # Cancel safety
    /// As [`GeminiBuilder::build`].
    pub async fn from_config(path: impl AsRef<Path>) -> Result<Self, Error> {
        GeminiBuilder::from_config(path)?.build().await
    }

    /// A client built step by step.
    pub fn builder() -> GeminiBuilder {
        GeminiBuilder::default()
    }

    pub(crate) fn from_inner(inner: Inner) -> Self {
        Self { inner: Arc::new(inner), recorder: None, _checks: None, _watch: None }
    }

    /// Reads the keys again every `interval`, while a clone of this client lives.
    pub(crate) fn with_watch(self, interval: Option<Duration>) -> Self {
        let watch = interval.and_then(|interval| Watch::start(&self.inner, interval));
        Self { _watch: watch.map(Arc::new), ..self }
    }

    pub(crate) fn with_checks(self) -> Self {
        Self { _checks: Checks::start(&self.inner).map(Arc::new), ..self }
    }

    /// The same client, counting for `recorder`.
    pub(crate) fn recording(&self, recorder: Arc<StepRecorder>) -> Self {
        Self { recorder: Some(recorder), ..self.clone() }
    }

    pub(crate) fn turn_book(&self) -> &Arc<TurnBook> {
        &self.inner.turns
    }

    /// One answer from `model`. Await it, or set something first: `.deadline(…)`, `.allow_paid()`.
    ///
    /// Keys that are spent or dead are passed over, refusals move on to the next key, and the provider's own
    /// failures are retried twice, all within the deadline. Where the client or the call names
    /// [other models](GeminiBuilder::fallback), one of them answers when this one cannot.
    ///
    /// An answer that the provider gives in several hops (`CONTINUATION`) comes whole; each hop is a request that
    /// counts.
    ///
    /// # Errors
    /// See [`Error`]: each variant asks for something else.
    ///
    /// # Cancel safety
    /// Dropping the future ends the upstream request. An attempt that was under way counts against the
    /// key's quota, since the provider may have counted it.
    pub fn generate(
        &self,
        model: impl Into<Arc<str>>,
        request: impl Into<GenerateRequest>,
    ) -> Generate {
        Generate {
            gemini: self.clone(),
            model: bare(model.into()),
            request: request.into(),
            options: self.options(),
        }
    }

    /// The same as a stream of parts.
    ///
    /// The first part is looked at before the stream is handed out: until then another key can take over. A first
    /// part that is not there 2 s after the head of the reply is not waited for.
    ///
    /// # Errors
    /// See [`Error`]. What goes wrong after the first part is an item of the stream, the deadline included.
    ///
    /// # Cancel safety
    /// As [`generate`](Self::generate); dropping the stream itself ends the upstream request, too.
    pub fn stream(
        &self,
        model: impl Into<Arc<str>>,
        request: impl Into<GenerateRequest>,
    ) -> Stream {
        Stream {
            gemini: self.clone(),
            model: bare(model.into()),
            request: request.into(),
            options: self.options(),
        }
    }

    /// Waits until a call of `model` can be served, without a deadline: by this model, or by another one of the
    /// client's [fallback chain](GeminiBuilder::fallback). The day's reset, if need be.
    ///
    /// [`pool`](Self::pool)`().available(…)` waits for one model, whatever the chain.
    ///
    /// A job that may run when there is quota, be it tomorrow:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::text("Hello"));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script.clone()))
    /// #     .build()
    /// #     .await?;
    /// use keywheel::Error;
    ///
    /// loop {
    ///     gemini.until_available("gemini-3.5-flash").await?;
    ///     match gemini.generate("gemini-3.5-flash", "Say hello").await {
    ///         Err(Error::Exhausted { .. }) => {} // others were faster
    ///         reply => break assert_eq!(reply?.text(), "Hello"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Exhausted`] when waiting will not help: no keys, or all of them dead.
    ///
    /// # Cancel safety
    /// Nothing is taken; drop it any time.
    pub async fn until_available(&self, model: impl Into<Arc<str>>) -> Result<(), Exhausted> {
        attempt::until_available(&self.inner, bare(model.into())).await
    }

    /// When a call of `model` can be served, by it or by another one of the client's chain: now or later, `None`
    /// when no wait helps.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::day_spent(20));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script.clone()))
    /// #     .build()
    /// #     .await?;
    /// let error = gemini.generate("gemini-3.5-flash", "Say hello").await.unwrap_err();
    /// let until = gemini.next_available("gemini-3.5-flash");
    /// assert_eq!(error.exhausted().and_then(|exhausted| exhausted.soonest), until);
    /// assert!(until.is_some(), "midnight in California");
    /// assert!(gemini.next_available("gemini-3.5-flash-lite") < until);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn next_available(&self, model: &str) -> Option<DateTime<Utc>> {
        attempt::next_available(&self.inner, bare(model.into()))
    }

    /// What this client and its clones have done since it was built. Needs no registry.
    ///
    /// ```no_run
    /// # async fn run(gemini: keywheel::Gemini) {
    /// let counters = gemini.counters();
    /// println!("{} calls, {} requests", counters.calls, counters.attempts);
    /// # }
    /// ```
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.counters.snapshot()
    }

    /// The pool, for status, manual marks and clears.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// Which quota project made which file or cache: kept beside the pool's state file.
    #[must_use]
    pub fn owners(&self) -> &Owners {
        &self.inner.owners
    }

    /// What the embedding cache did so far; `None` without one
    /// ([`GeminiBuilder::embed_cache`]).
    #[must_use]
    pub fn embed_cache_stats(&self) -> Option<EmbedCacheStats> {
        self.inner.embed_cache.as_ref().map(EmbedCache::stats)
    }

    /// A snapshot of keys, limits, cooldowns and counts. Holds no secret.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        self.inner.pool.status()
    }

    /// What was noticed about the keys: duplicates, names without keys, plain `http` over the internet. What is wrong
    /// with the state file is in [`status`](Self::status).
    #[must_use]
    pub fn key_notes(&self) -> &[KeyNote] {
        &self.inner.key_notes
    }

    /// Where keys were looked for, and how many came from each place: print them to say what is in use. Holds no
    /// secret. Empty for a client over a [`pool`](GeminiBuilder::pool) that was built elsewhere.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script.clone()))
    /// #     .build()
    /// #     .await?;
    /// for source in gemini.key_sources() {
    ///     println!("{source:?}");
    /// }
    /// for note in gemini.key_notes() {
    ///     println!("{note}");
    /// }
    /// assert_eq!(gemini.key_sources().len(), 1); // they were given in code
    /// assert!(gemini.key_notes().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key_sources(&self) -> &[KeySource] {
        &self.inner.key_sources
    }

    /// Asks the provider about each quarantined key whose daily check is due, by `GET models`, which costs no
    /// quota (<https://ai.google.dev/gemini-api/docs/billing>). Keys found working return to the pool.
    ///
    /// Returns how many did. Called by the client itself once an hour, unless it was built
    /// [`without_daily_checks`](GeminiBuilder::without_daily_checks).
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use keywheel::{
    ///     ApiKey, Gemini, KeySpec, ManualClock, StateLocation, testing::{Script, Scripted},
    /// };
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), keywheel::Error> {
    /// let script = Script::new();
    /// script.reply(Scripted::invalid_key());
    /// script.otherwise(|_| Scripted::json(200, r#"{"models":[]}"#));
    /// let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
    /// let gemini = Gemini::builder()
    ///     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1")])
    ///     .clock(Arc::new(clock.clone()))
    ///     .state(StateLocation::None)
    ///     .transport(Arc::new(script))
    ///     .without_daily_checks()
    ///     .build()
    ///     .await?;
    /// assert!(gemini.generate("gemini-3.5-flash", "Say hello").await.is_err());
    ///
    /// clock.advance(Duration::from_secs(2 * 24 * 3600));
    /// assert_eq!(gemini.run_due_checks().await, 1); // it works again
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Keys that were not checked any more are due again later.
    pub async fn run_due_checks(&self) -> usize {
        checks::run_due(&self.inner).await
    }

    /// Writes what has been counted to the state file now.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::text("Hello"));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script.clone()))
    /// #     .build()
    /// #     .await?;
    /// gemini.generate("gemini-3.5-flash", "Say hello").await?;
    /// gemini.flush().await?; // before the process is ended from outside
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The state file cannot be written; says why.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: what has been counted is written in the background.
    pub async fn flush(&self) -> Result<(), keywheel_pool::StateError> {
        self.inner.pool.flush().await?;
        let turns = Arc::clone(&self.inner.turns);
        let flushed = blocking(move || turns.flush()).await;
        flushed.map_err(|fault| keywheel_pool::StateError::new(format!("turns: {fault}")))
    }

    pub(crate) fn options(&self) -> CallOptions {
        let Defaults { deadline, stream_end, .. } = self.inner.defaults;
        let recorder = self.recorder.clone();
        let fallback = self.inner.fallback.clone();
        let payer = Payer::default();
        CallOptions {
            deadline,
            stream_end,
            patience: None,
            on_sent: None,
            allow_paid: false,
            owner: None,
            fallback,
            recorder,
            payer,
            earned: false,
        }
    }
}

/// Google's own prefix of model names.
pub(crate) const COLLECTION: &str = "models/";

/// The model under its shorter name, so that its quota is not kept twice. A key in its place, as when two arguments
/// are exchanged, is taken out: names of models stand in errors, spans and files.
pub(crate) fn bare(model: Arc<str>) -> Arc<str> {
    if let Cow::Owned(without_key) = scrub(&model, &[]) {
        return without_key.into();
    }
    match model.strip_prefix(COLLECTION) {
        Some(name) => name.into(),
        None => model,
    }
}

/// The models of a fallback chain by their shorter names; `None` if there are none.
pub(crate) fn chain<M: Into<Arc<str>>>(
    models: impl IntoIterator<Item = M>,
) -> Option<Arc<[Arc<str>]>> {
    let models: Arc<[Arc<str>]> = models.into_iter().map(|model| bare(model.into())).collect();
    (!models.is_empty()).then_some(models)
}
