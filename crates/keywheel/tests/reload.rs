//! New keys for a client that runs: what is known of the old ones stays, and a broken file changes nothing.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{fs, path::PathBuf, time::Duration};

use common::{MODEL, bodies::day_spent, key, over, specs};
use keywheel::{Clock as _, Error, Gemini, GeminiBuilder, ManualClock, Pool, StateLocation};
use keywheel_provider::testing::{Script, Scripted};
use tempfile::TempDir;

struct Stand {
    _folder: TempDir,
    file: PathBuf,
    clock: ManualClock,
    script: Script,
    gemini: Gemini,
}

/// A client whose keys are in a file.
async fn stand(keys: &[usize], set: impl FnOnce(GeminiBuilder) -> GeminiBuilder) -> Stand {
    common::follow_rust_log();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.txt");
    write(&file, keys);
    let clock = ManualClock::at(common::at(common::NOON));
    let script = Script::new().with_clock(std::sync::Arc::new(clock.clone()));
    script.otherwise(|_| Scripted::text("Hello"));
    let builder = Gemini::builder()
        .key_loader(keywheel::KeyLoader::new().file(&file))
        .state(StateLocation::None)
        .clock(std::sync::Arc::new(clock.clone()))
        .transport(std::sync::Arc::new(script.clone()))
        .base_url("http://script.invalid")
        .without_daily_checks();
    let gemini = set(builder).build().await.unwrap();
    Stand { _folder: folder, file, clock, script, gemini }
}

fn write(file: &PathBuf, keys: &[usize]) {
    let lines: Vec<_> = keys.iter().map(|number| key(*number).expose().to_owned()).collect();
    fs::write(file, lines.join("\n")).unwrap();
}

fn loaded(gemini: &Gemini) -> Vec<keywheel_core::Fingerprint> {
    gemini.status().keys.iter().map(|key| key.fingerprint).collect()
}

fn fingerprints(keys: &[usize]) -> Vec<keywheel_core::Fingerprint> {
    keys.iter().map(|number| common::fingerprint(*number)).collect()
}

#[tokio::test]
async fn a_reload_takes_new_keys_and_keeps_what_is_known_of_the_others() {
    let stand = stand(&[1, 2], |it| it).await;
    stand.script.reply(day_spent(20));
    stand.gemini.generate(MODEL, "hi").await.unwrap();
    write(&stand.file, &[1, 3]);
    let report = stand.gemini.reload().await.unwrap();
    assert_eq!((report.added.len(), report.removed.len(), report.kept), (1, 1, 1));
    assert_eq!(loaded(&stand.gemini), fingerprints(&[1, 3]));
    // The first key is still spent, so nothing is sent with it.
    for _ in 0..3 {
        let reply = stand.gemini.generate(MODEL, "hi").await.unwrap();
        assert_eq!(reply.attempts()[0].fingerprint, common::fingerprint(3));
    }
}

#[tokio::test]
async fn a_broken_file_keeps_the_old_keys_and_says_so() {
    let stand = stand(&[1, 2], |it| it).await;
    for broken in ["your-key-here\n", "# nothing\n", "two words\n"] {
        fs::write(&stand.file, broken).unwrap();
        let error = stand.gemini.reload().await.unwrap_err();
        assert!(matches!(error, Error::Keys(_)), "{error}");
        assert_eq!(loaded(&stand.gemini), fingerprints(&[1, 2]), "{broken}");
    }
    fs::remove_file(&stand.file).unwrap();
    stand.gemini.reload().await.unwrap_err();
    stand.gemini.generate(MODEL, "hi").await.unwrap();
}

#[tokio::test]
async fn a_configuration_file_is_read_again_for_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("client.toml");
    let config = |keys: &[usize]| {
        let keys = keys.iter().map(|key| format!("[[key]]\nvariable = \"K{key}\"\n"));
        fs::write(&path, keys.collect::<String>()).unwrap();
    };
    config(&[1, 2]);
    let variables = (1..=3).map(|number| (format!("K{number}"), key(number).expose().to_owned()));
    let gemini = GeminiBuilder::from_config_with(&path, variables)
        .unwrap()
        .state(StateLocation::None)
        .without_daily_checks()
        .build()
        .await
        .unwrap();
    config(&[2, 3]);
    assert_eq!(gemini.reload().await.unwrap().kept, 1);
    assert_eq!(loaded(&gemini), fingerprints(&[2, 3]));
    fs::write(&path, "nonsense = true").unwrap();
    let error = gemini.reload().await.unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
    assert_eq!(loaded(&gemini), fingerprints(&[2, 3]));
}

#[test]
fn keys_that_were_given_in_code_are_replaced_in_code() {
    let pool = Pool::builder().keys(specs(2)).state(StateLocation::None).build().unwrap();
    let gemini = over(pool, Script::new(), |it| it);
    let error = futures_executor::block_on(gemini.reload()).unwrap_err();
    assert!(matches!(error, Error::Setting(_)), "{error}");
    assert_eq!(gemini.reload_keys(specs(3)).unwrap().added.len(), 1);
    assert_eq!(gemini.status().keys.len(), 3);
    gemini.reload_keys([]).unwrap_err();
    assert_eq!(gemini.status().keys.len(), 3, "no keys are no new keys");
}

/// Lets the watcher look once, and waits until it sleeps again.
async fn next_look(stand: &Stand) {
    let sleeps = || stand.clock.next_wake().is_some();
    while !sleeps() {
        tokio::task::yield_now().await;
    }
    stand.clock.advance(Duration::from_secs(30));
    while !sleeps() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn watched_keys_are_taken_when_they_change_and_a_fault_changes_nothing() {
    let stand = stand(&[1, 2], |it| it.watch_keys(Duration::from_secs(30))).await;
    next_look(&stand).await;
    assert_eq!(loaded(&stand.gemini), fingerprints(&[1, 2]));
    write(&stand.file, &[2, 3, 4]);
    next_look(&stand).await;
    assert_eq!(loaded(&stand.gemini), fingerprints(&[2, 3, 4]));
    fs::write(&stand.file, "your-key-here").unwrap();
    next_look(&stand).await;
    next_look(&stand).await;
    assert_eq!(loaded(&stand.gemini), fingerprints(&[2, 3, 4]));
    write(&stand.file, &[5]);
    next_look(&stand).await;
    assert_eq!(loaded(&stand.gemini), fingerprints(&[5]));
}

#[tokio::test]
async fn watching_ends_with_the_client() {
    let Stand { clock, gemini, _folder, .. } =
        stand(&[1], |it| it.watch_keys(Duration::from_secs(30))).await;
    while clock.next_wake().is_none() {
        tokio::task::yield_now().await;
    }
    let clone = gemini.clone();
    drop(gemini);
    tokio::task::yield_now().await;
    assert!(clock.next_wake().is_some(), "a clone lives");
    drop(clone);
    while clock.next_wake().is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(clock.now(), common::at(common::NOON));
}
