//! A second place for vectors, which outlives the process.

use std::{error::Error, fmt};

use futures_util::future::BoxFuture;

use super::{EmbedKey, Vector};

/// Where vectors are kept beside memory: a file, a server. What fails here, or takes longer than two
/// seconds, is logged, and costs a request.
///
/// With the feature `embed-cache-disk`, `EmbedFile` keeps them in an SQLite file.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use keywheel::embed_cache::{EmbedKey, EmbedStore, StoreFault, Vector};
///
/// /// Remembers nothing.
/// #[derive(Debug)]
/// struct Sieve;
///
/// impl EmbedStore for Sieve {
///     fn get_many<'a>(
///         &'a self,
///         keys: &'a [EmbedKey],
///     ) -> BoxFuture<'a, Result<Vec<Option<Vector>>, StoreFault>> {
///         Box::pin(async move { Ok(vec![None; keys.len()]) })
///     }
///
///     fn put_many(&self, _: Vec<(EmbedKey, Vector)>) -> BoxFuture<'_, Result<(), StoreFault>> {
///         Box::pin(async { Ok(()) })
///     }
/// }
/// # let found = futures_executor::block_on(Sieve.get_many(&[])).unwrap();
/// # assert!(found.is_empty());
/// ```
pub trait EmbedStore: fmt::Debug + Send + Sync {
    /// What is known of each key, in their order.
    ///
    /// # Errors
    /// Whatever stands in the way.
    fn get_many<'a>(
        &'a self,
        keys: &'a [EmbedKey],
    ) -> BoxFuture<'a, Result<Vec<Option<Vector>>, StoreFault>>;

    /// Remembers vectors, and may forget others for them.
    ///
    /// # Errors
    /// Whatever stands in the way.
    fn put_many(&self, vectors: Vec<(EmbedKey, Vector)>) -> BoxFuture<'_, Result<(), StoreFault>>;
}

/// Why a store failed.
pub type StoreFault = Box<dyn Error + Send + Sync>;
