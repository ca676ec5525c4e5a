//! Vectors that are known already, so that no request is spent on them.
//!
//! A vector is served for the very same provider, model, task, number of dimensions, title and text, and for no
//! other. Callers that miss one text at the same time make one call: the first fetches, the others wait; if the
//! first fails, goes away or takes over two minutes, the next takes over.
//!
//! | to know | look in |
//! |---|---|
//! | what a vector is of | [`EmbedKey`] |
//! | how to switch it on | [`EmbedCacheConfig`] |
//! | how to keep vectors over restarts | [`EmbedStore`] |
//! | who fetches, and who waits | `flight` |

#[cfg(feature = "embed-cache-disk")]
mod disk;
mod flight;
mod key;
mod store;

#[cfg(feature = "embed-cache-disk")]
use std::{fmt, path::PathBuf};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use keywheel_core::Clock;
use moka::sync::Cache;
use serde::Serialize;

#[cfg(feature = "embed-cache-disk")]
pub use self::disk::{EmbedFile, EmbedFileError};
use self::flight::{Duty, Flights};
pub(crate) use self::{
    flight::{Claim, Wait},
    key::Space,
};
pub use self::{
    key::EmbedKey,
    store::{EmbedStore, StoreFault},
};
use crate::{
    Error,
    time::{from_now_ms, until},
};

/// An embedding.
pub type Vector = Arc<[f32]>;

/// What an entry weighs besides its numbers: its key, and what the cache keeps about it.
const OVERHEAD_BYTES: usize = 160;

/// How long a store is waited for: its vectors are worth no more than the requests that they save.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// How embeddings are remembered, see [`GeminiBuilder::embed_cache`](crate::GeminiBuilder::embed_cache).
///
/// ```
/// use keywheel::embed_cache::EmbedCacheConfig;
///
/// let config = EmbedCacheConfig::default().with_max_bytes(16 << 20); // 5,000 vectors of 768 numbers
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct EmbedCacheConfig {
    max_bytes: u64,
    store: Option<Arc<dyn EmbedStore>>,
    /// The store is a file that is not open yet, and so large at most.
    #[cfg(feature = "embed-cache-disk")]
    file: Option<(PathBuf, u64)>,
}

impl Default for EmbedCacheConfig {
    fn default() -> Self {
        Self {
            max_bytes: 64 << 20,
            store: None,
            #[cfg(feature = "embed-cache-disk")]
            file: None,
        }
    }
}

impl EmbedCacheConfig {
    /// How much memory vectors may take. Defaults to 64 MiB: 5,300 vectors of 3,072 numbers. What is asked for often
    /// is kept for longest.
    pub const fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Where vectors are kept beside memory. Defaults to nowhere: a restart forgets them.
    pub fn with_store(mut self, store: Arc<dyn EmbedStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// With the file at `path` as the store, of `max_bytes` at most, which is opened with the client.
    #[cfg(feature = "embed-cache-disk")]
    pub(crate) fn with_file(mut self, path: PathBuf, max_bytes: u64) -> Self {
        self.file = Some((path, max_bytes));
        self
    }
}

/// What the cache did so far, and holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EmbedCacheStats {
    /// Texts whose vector was in memory.
    pub hits: u64,
    /// Texts whose vector was in the store behind it.
    pub store_hits: u64,
    /// Texts whose vector somebody else was fetching, and brought.
    pub shared: u64,
    /// Texts whose vector had to be fetched.
    pub misses: u64,
    /// Vectors in memory.
    pub entries: u64,
    /// What they take, in bytes.
    pub bytes: u64,
}

/// Vectors by [`EmbedKey`]. Clones share one cache.
#[derive(Debug, Clone)]
pub(crate) struct EmbedCache {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    memory: Cache<EmbedKey, Vector>,
    flights: Flights,
    store: Option<Arc<dyn EmbedStore>>,
    clock: Arc<dyn Clock>,
    counts: Counts,
}

/// What the cache knows of some keys; the numbers are their places in the list that was asked for.
#[derive(Debug, Default)]
#[must_use = "claims that are dropped are given up"]
pub(crate) struct Looked {
    pub(crate) hits: Vec<(usize, Vector)>,
    /// To be fetched by the caller, and [filled](EmbedCache::fill).
    pub(crate) claims: Vec<(usize, Claim)>,
    /// Being fetched by others: to be waited for once no claims are left.
    pub(crate) waits: Vec<(usize, Wait)>,
}

impl EmbedCache {
    /// With the file open that `config` names, if it does.
    ///
    /// # Errors
    /// It cannot be opened.
    #[cfg(feature = "embed-cache-disk")]
    pub(crate) async fn open(
        mut config: EmbedCacheConfig,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        if let Some((path, max_bytes)) = config.file.take() {
            let fault = format!("embed_cache.file: {}", path.display());
            let fault = |error: &dyn fmt::Display| Error::Setting(format!("{fault}: {error}"));
            let its_clock = Arc::clone(clock);
            let open = move || EmbedFile::open_with(path, max_bytes, its_clock);
            // Disks block; the runtime's own threads are for other work.
            let file = tokio::task::spawn_blocking(open).await.map_err(|error| fault(&error))?;
            config = config.with_store(Arc::new(file.map_err(|error| fault(&error))?));
        }
        Ok(Self::new(config, Arc::clone(clock)))
    }

    #[cfg(not(feature = "embed-cache-disk"))]
    pub(crate) async fn open(
        config: EmbedCacheConfig,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        Ok(Self::new(config, Arc::clone(clock)))
    }

    fn new(config: EmbedCacheConfig, clock: Arc<dyn Clock>) -> Self {
        let memory = Cache::builder()
            .max_capacity(config.max_bytes)
            .weigher(|_: &EmbedKey, vector: &Vector| {
                u32::try_from(size_of_val::<[f32]>(vector) + OVERHEAD_BYTES).unwrap_or(u32::MAX)
            })
            .build();
        let (flights, counts) = (Flights::default(), Counts::default());
        let store = config.store;
        Self { shared: Arc::new(Shared { memory, flights, store, clock, counts }) }
    }

    /// What is known of `keys`, and whose duty the rest is.
    ///
    /// Fetch what is claimed, a part at a time if need be, and [`fill`](Self::fill) each part as it comes. Then wait
    /// for the others. Where a wait comes to nothing, look again.
    ///
    /// # Cancel safety
    /// Dropping the future gives all claims up.
    pub(crate) async fn look(&self, keys: &[EmbedKey]) -> Looked {
        let mut looked = Looked::default();
        for (place, key) in keys.iter().enumerate() {
            if let Some(vector) = self.shared.memory.get(key) {
                looked.hits.push((place, vector));
                continue;
            }
            match flight::claim(&self.shared, *key) {
                Duty::Known(vector) => looked.hits.push((place, vector)),
                Duty::Wait(wait) => looked.waits.push((place, wait)),
                Duty::Fetch(claim) => looked.claims.push((place, claim)),
            }
        }
        self.shared.counts.hits(looked.hits.len());
        self.look_further(&mut looked).await;
        self.shared.counts.misses(looked.claims.len());
        looked
    }

    /// Remembers what was fetched, and hands it to everybody who waits for it.
    ///
    /// # Cancel safety
    /// Everything is in memory once this was polled; dropping the future may leave it out of the store.
    pub(crate) async fn fill(&self, fetched: Vec<(Claim, Vector)>) {
        let mut kept = Vec::with_capacity(fetched.len());
        for (claim, vector) in fetched {
            kept.push((claim.key(), Arc::clone(&vector)));
            claim.fill(vector);
        }
        let Some(store) = &self.shared.store else { return };
        if let Err(fault) = self.in_time(store.put_many(kept)).await {
            tracing::warn!(%fault, "embeddings are not in the store");
        }
    }

    /// What it did, and holds.
    pub(crate) fn stats(&self) -> EmbedCacheStats {
        let Shared { memory, counts, .. } = &*self.shared;
        // Brings the figures of the cache up to date.
        memory.run_pending_tasks();
        EmbedCacheStats {
            hits: counts.hits.load(Relaxed),
            store_hits: counts.store_hits.load(Relaxed),
            shared: counts.shared.load(Relaxed),
            misses: counts.misses.load(Relaxed),
            entries: memory.entry_count(),
            bytes: memory.weighted_size(),
        }
    }

    /// What the store says, if it says so in time: others wait for what is claimed meanwhile.
    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, StoreFault>>,
    ) -> Result<T, StoreFault> {
        let clock = &*self.shared.clock;
        let end_ms = from_now_ms(clock, STORE_PATIENCE);
        let told = until(clock, Some(end_ms), asked).await;
        told.unwrap_or_else(|| Err("it did not answer in time".into()))
    }

    /// Asks the store for what is claimed. The claims are held meanwhile, so others ask neither it nor the provider.
    async fn look_further(&self, looked: &mut Looked) {
        let Some(store) = self.shared.store.as_ref().filter(|_| !looked.claims.is_empty()) else {
            return;
        };
        let keys: Vec<_> = looked.claims.iter().map(|(_, claim)| claim.key()).collect();
        let found = match self.in_time(store.get_many(&keys)).await {
            Ok(found) => found,
            Err(fault) => {
                tracing::warn!(%fault, "the store of embeddings cannot be read");
                return;
            }
        };
        let claims = std::mem::take(&mut looked.claims);
        let found = found.into_iter().chain(std::iter::repeat(None));
        for ((place, claim), vector) in claims.into_iter().zip(found) {
            let Some(vector) = vector else {
                looked.claims.push((place, claim));
                continue;
            };
            looked.hits.push((place, Arc::clone(&vector)));
            claim.fill(vector);
            self.shared.counts.store_hits.fetch_add(1, Relaxed);
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    store_hits: AtomicU64,
    shared: AtomicU64,
    misses: AtomicU64,
}

impl Counts {
    fn hits(&self, texts: usize) {
        self.hits.fetch_add(texts as u64, Relaxed);
    }

    fn misses(&self, texts: usize) {
        self.misses.fetch_add(texts as u64, Relaxed);
    }

    fn shared(&self) {
        self.shared.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
