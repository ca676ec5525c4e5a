//! The cache of embeddings that a file switches on.

use std::sync::Arc;

use keywheel::{Error, StateLocation};
use keywheel_provider::testing::{Script, Scripted};

use super::{Folder, built, common::key};

#[tokio::test]
async fn embeddings_are_kept_over_restarts_where_the_file_says() {
    let folder = Folder::new("[embed_cache]\nfile = 'embeddings.db'\nfile_max_bytes = 1_000_000");
    let variables = [("GEMINI_API_KEY", key(1))];
    let variables = variables.each_ref().map(|(name, key)| (*name, key.expose()));
    for (requests, store_hits) in [(1, 0), (0, 1)] {
        let (gemini, script) = built(folder.with(&variables).unwrap()).await;
        script.otherwise(|_| Scripted::embeddings([vec![0.5, 0.5]]));
        gemini.embed("gemini-embedding-001", ["a text"]).await.unwrap();
        assert_eq!(script.requests().len(), requests);
        assert_eq!(gemini.embed_cache_stats().unwrap().store_hits, store_hits);
    }
    assert!(folder.0.path().join("embeddings.db").is_file());
}

#[tokio::test]
async fn a_file_of_embeddings_that_cannot_be_opened_is_named_when_the_client_is_built() {
    let folder = Folder::new("[embed_cache]\nfile = 'keys.txt'");
    let keys = "AQ.EXAMPLE-key-of-somebody\n".repeat(90);
    folder.put("keys.txt", &keys);
    let variables = [("GEMINI_API_KEY", key(1))];
    let variables = variables.each_ref().map(|(name, key)| (*name, key.expose()));
    let builder = folder.with(&variables).unwrap().state(StateLocation::None);
    let builder = builder.transport(Arc::new(Script::new())).without_daily_checks();
    let error = builder.build().await.unwrap_err();
    let file = folder.0.path().join("keys.txt");
    let begin = format!("embed_cache.file: {}: ", file.display());
    assert!(matches!(&error, Error::Setting(fault) if fault.starts_with(&begin)), "{error}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), keys, "it was written over");
}
