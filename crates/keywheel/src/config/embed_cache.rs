//! `[embed_cache]`: whether embeddings are remembered, and where.

use std::path::PathBuf;

use keywheel_settings::{Section, words::path};

use super::read::Source;
use crate::{GeminiBuilder, embed_cache::EmbedCacheConfig};

/// Reads the section, which switches the cache on. What is wrong is noted in its faults.
pub(super) fn embed_cache(
    mut at: Section<'_>,
    source: &Source,
    to: GeminiBuilder,
) -> GeminiBuilder {
    let mut config = EmbedCacheConfig::default();
    if let Some(bytes) = at.number("max_bytes", 1) {
        config = config.with_max_bytes(bytes);
    }
    let has_file = at.has("file");
    let file = at.text_at("file", "a path", path);
    let bound_at = at.place_of("file_max_bytes");
    let bound = at.number("file_max_bytes", 1);
    if let (false, Some(bound_at)) = (has_file, bound_at) {
        at.fault(bound_at, "file_max_bytes", "needs a `file`");
    }
    if let Some((file_at, file)) = file {
        match kept(config.clone(), source.path(&file), bound) {
            Ok(kept) => config = kept,
            Err(fault) => at.fault(file_at, "file", fault),
        }
    }
    at.end();
    to.embed_cache(config)
}

#[cfg(feature = "embed-cache-disk")]
fn kept(
    config: EmbedCacheConfig,
    file: PathBuf,
    max_bytes: Option<u64>,
) -> Result<EmbedCacheConfig, &'static str> {
    // 80,000 vectors of 3,072 numbers.
    const MAX_BYTES: u64 = 1 << 30;
    Ok(config.with_file(file, max_bytes.unwrap_or(MAX_BYTES)))
}

/// What is forgotten must not pass for kept.
#[cfg(not(feature = "embed-cache-disk"))]
fn kept(_: EmbedCacheConfig, _: PathBuf, _: Option<u64>) -> Result<EmbedCacheConfig, &'static str> {
    Err(
        "this program was built without files of embeddings (keywheel's feature `embed-cache-disk`)",
    )
}
