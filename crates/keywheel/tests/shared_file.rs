//! One file for the ledger and for vectors: neither spoils the other, and both are there after a restart.

#![cfg(all(feature = "ledger", feature = "embed-cache-disk"))]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{path::Path, sync::Arc};

use common::{Rig, bodies::reply};
use keywheel::{
    Gemini,
    embed_cache::{EmbedCacheConfig, EmbedFile},
    ledger::{ErrorKind, Ledger, Limit, Period},
};
use serde_json::json;

const EMBED: &str = "gemini-embedding-001";

async fn open(path: &Path) -> Result<Ledger, keywheel::ledger::LedgerError> {
    let limit = Limit::tokens(Period::Total, 1_000);
    Ledger::builder().account("app", [limit]).path(path).open().await
}

/// A client that charges `ledger` and remembers vectors in the same file.
fn client(path: &Path, ledger: &Ledger) -> Rig {
    let vectors = EmbedFile::open(path, 1 << 20).unwrap();
    let config = EmbedCacheConfig::default().with_store(Arc::new(vectors));
    Rig::built(1, |pool| pool, |client| client.ledger(ledger.clone(), "app").embed_cache(config))
}

async fn used(ledger: &Ledger) -> u64 {
    ledger.usage("app").await.unwrap().ever.tokens.used()
}

async fn embed(gemini: &Gemini, text: &str) -> keywheel::embed::Embeddings {
    gemini.embed(EMBED, text).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_and_the_vectors_share_a_file_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let before = {
        let ledger = open(&path).await.unwrap();
        let rig = client(&path, &ledger);
        rig.script.otherwise(|_| reply(200, &json!({"embeddings": [{"values": [0.5, -1.0]}]})));
        for number in 0..20 {
            assert_eq!(embed(&rig.gemini, &format!("text {number}")).await.requests, 1);
        }
        assert!(ledger.audit().await.unwrap().is_balanced());
        used(&ledger).await
    };
    assert!(before > 0);
    // Whoever comes later finds both: what was spent, and vectors that cost nothing.
    let ledger = open(&path).await.unwrap();
    assert_eq!(used(&ledger).await, before);
    assert!(!ledger.info().await.unwrap().storage.just_created);
    let rig = client(&path, &ledger);
    let known = embed(&rig.gemini, "text 7").await;
    assert_eq!((known.requests, known.cache_hits), (0, 1));
    assert_eq!(known.vectors, [[0.5, -1.0]]);
    assert_eq!(used(&ledger).await, before);
    assert!(rig.script.requests().is_empty());
    assert!(ledger.audit().await.unwrap().is_balanced());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_made_for_vectors_becomes_a_ledger_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("both.db");
    let vectors = EmbedFile::open(&path, 1 << 20).unwrap();
    let spent = {
        let ledger = open(&path).await.unwrap();
        assert!(ledger.info().await.unwrap().storage.just_created);
        let rig = client(&path, &ledger);
        rig.script.otherwise(|_| reply(200, &json!({"embeddings": [{"values": [0.5, -1.0]}]})));
        embed(&rig.gemini, "a text").await;
        used(&ledger).await
    };
    assert!(spent > 0);
    drop(vectors);
    let ledger = open(&path).await.unwrap();
    assert_eq!(used(&ledger).await, spent);
    assert_eq!(embed(&client(&path, &ledger).gemini, "a text").await.cache_hits, 1);
}

/// A cap must not begin anew in a file whose rows are not its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_vectors_and_somebody_elses_tables_is_no_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vectors.db");
    drop(EmbedFile::open(&path, 1 << 20).unwrap());
    let theirs = rusqlite::Connection::open(&path).unwrap();
    theirs.execute_batch("CREATE TABLE embed_cache_notes (text)").unwrap();
    drop(theirs);
    assert_eq!(open(&path).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// SQLite would keep what is in `:memory:` nowhere, and read `file:` as a URI.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_a_path_whatever_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    // Only a path that is relative begins like that. All other paths here are absolute.
    let here = std::env::current_dir().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    for name in [":memory:", "file:x.db?mode=memory"] {
        let file = folder.path().join(name);
        let vectors = EmbedFile::open(name, 1 << 20).unwrap();
        let size = std::fs::metadata(&file).unwrap().len();
        assert!(size > 0, "vectors are in the file {name}");
        let ledger = open(Path::new(name)).await.unwrap();
        let again = open(&file).await.unwrap();
        assert!(!again.info().await.unwrap().storage.just_created, "{name}");
        drop((ledger, vectors));
    }
    std::env::set_current_dir(here).unwrap();
}
