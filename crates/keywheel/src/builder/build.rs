//! From settings to a client.

use std::{path::PathBuf, sync::Arc};

use chrono::NaiveTime;
use keywheel_pool::{
    KeySpec, LimitKind,
    keys::{KeyLoader, KeyNote, LoadedKeys},
    reset::daily,
};
use keywheel_provider::{Dialect, Provider};

use super::{GeminiBuilder, plain_http, setting};
use crate::{
    Error, Gemini, Owners,
    attempt::{Breakers, Budget, Facts, Paces, SharedBudget},
    config::Environment,
    embed_cache::EmbedCache,
    gemini::Inner,
    reload::{KeysFrom, Place},
    turns::TurnBook,
};

impl GeminiBuilder {
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
        if let Some(host) = plain_http::public_host(upstream.base_url()) {
            let note = KeyNote::SentInTheClear(host);
            tracing::warn!("{note}");
            key_notes.push(note);
        }
        let (mut place, mut keys) = (Place::Code, Vec::new());
        let pool = match self.pool {
            Some(pool) => pool,
            None => {
                if let Some(provider) = self.provider.as_deref().filter(speaks_otherwise)
                    && self.keys.is_none()
                    && self.loader.is_none()
                {
                    // Google's keys are nobody else's business.
                    let name = provider.name();
                    let fault =
                        format!("{name} needs keys of its own: those of Gemini are not sent to it");
                    return Err(Error::Setting(fault));
                }
                place = place_of(self.keys.is_some(), &self.loader, self.config);
                let loaded = load(self.keys, self.loader)?;
                keys.clone_from(&loaded.keys);
                let mut builder = self.pool_builder.keys(loaded.keys).clock(self.clock);
                if upstream.dialect() != Dialect::Gemini && !self.day_is_set {
                    let midnight = daily(chrono_tz::UTC, NaiveTime::MIN);
                    builder = builder.reset_strategy(LimitKind::RequestsPerDay, midnight);
                }
                // Reading the state file blocks; the runtime's own threads are for other work.
                let pool = tokio::task::spawn_blocking(move || builder.build()).await;
                key_notes.extend(loaded.notes);
                key_sources = loaded.sources;
                pool.map_err(setting)??
            }
        };
        let clock = Arc::clone(pool.clock());
        #[cfg(feature = "ledger")]
        let purse = self.ledger.open(&clock).await?;
        #[cfg(not(feature = "ledger"))]
        let purse = crate::charging::Purse;
        let embed_cache = match self.embed_cache {
            Some(config) => Some(EmbedCache::open(config, &clock).await?),
            None => None,
        };
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
            embed_cache,
            purse,
            keys_from: KeysFrom::new(place, keys),
            pool,
            clock,
        });
        let gemini = if self.daily_checks { gemini.with_checks() } else { gemini };
        Ok(gemini.with_watch(self.watch_keys))
    }

    /// What [`build`](Self::build) would say of the keys, for whoever makes something before it that a client without
    /// keys has no use for.
    ///
    /// ```
    /// use keywheel::{ApiKey, Error, Gemini, KeyLoader, KeySpec};
    ///
    /// let none = Gemini::builder().key_loader(KeyLoader::new());
    /// assert!(matches!(none.try_keys(), Err(Error::NoKeys { .. } | Error::Keys(_))));
    /// let key = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1");
    /// Gemini::builder().keys([key]).try_keys()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`build`](Self::build), if there are no keys or faulty ones.
    pub fn try_keys(&self) -> Result<(), Error> {
        if self.pool.is_some() {
            return Ok(());
        }
        let Err(error) = load(self.keys.clone(), self.loader.clone()) else { return Ok(()) };
        // Which comes first there.
        self.upstream(|name| std::env::var(name).ok())?;
        Err(error)
    }

    /// Reads the keys, and leaves everything else.
    pub(crate) fn load_keys(self) -> Result<LoadedKeys, Error> {
        load(self.keys, self.loader)
    }
}

fn speaks_otherwise(provider: &&dyn Provider) -> bool {
    provider.dialect() != Dialect::Gemini
}

/// Where the keys can be read again. What was set in code wins, as it does for everything.
fn place_of(
    in_code: bool,
    loader: &Option<KeyLoader>,
    config: Option<(PathBuf, Environment)>,
) -> Place {
    match (config, loader) {
        _ if in_code => Place::Code,
        (Some((path, environment)), Some(_)) => Place::Config(path, environment),
        (_, Some(loader)) => Place::Loader(loader.clone()),
        (_, None) => Place::Loader(surroundings()),
    }
}

/// Where keys are looked for unless it is said otherwise.
fn surroundings() -> KeyLoader {
    KeyLoader::new().process_environment().dotenv(".env")
}

fn load(keys: Option<Vec<KeySpec>>, loader: Option<KeyLoader>) -> Result<LoadedKeys, Error> {
    match (keys, loader) {
        (Some(keys), _) => Ok(KeyLoader::new().keys(keys).load()?),
        (None, Some(loader)) => Ok(loader.load()?),
        (None, None) => Ok(surroundings().load()?),
    }
}
