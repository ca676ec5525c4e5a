//! Caches belong to the project that made them, and whoever names one asks that project.

mod common;

use std::time::Duration;

use common::{
    MODEL, Rig,
    bodies::overloaded,
    key,
    sim::{SimRig, world},
};
use keywheel::{
    Error, GenerateRequest,
    caches::{CachedContent, Expiry},
};
use keywheel_provider::{Sent, TransportKind, testing::Scripted};
use keywheel_sim::ProjectConfig;

fn book() -> CachedContent {
    CachedContent::new(MODEL, ["a long book ".repeat(2_000)])
        .with_expiry(Expiry::After(Duration::from_secs(600)))
}

fn naming(cache: &CachedContent) -> GenerateRequest {
    GenerateRequest { cached_content: cache.name.clone(), ..GenerateRequest::from("Who did it?") }
}

#[test]
fn whoever_names_a_cache_uses_a_key_of_the_project_that_made_it() {
    let rig = SimRig::new(3, world(3));
    let cache = rig.run(rig.gemini.caches().create(book())).unwrap();
    let owner = rig.line.sent()[0].key;
    for _ in 0..3 {
        let reply = rig.run(rig.gemini.generate(MODEL, naming(&cache))).unwrap();
        assert!(reply.usage().unwrap().cached > 1_000);
        assert_eq!(rig.line.sent().last().unwrap().key, owner);
    }
    rig.assert_counts_agree(MODEL);
}

#[test]
fn a_cache_is_looked_at_kept_for_longer_listed_and_deleted() {
    let rig = SimRig::new(2, world(2));
    let (one, two) = (
        rig.run(rig.gemini.caches().create(book())).unwrap(),
        rig.run(rig.gemini.caches().create(book())).unwrap(),
    );
    assert_ne!(rig.line.sent()[0].key, rig.line.sent()[1].key);
    let folder = tempfile::tempdir().unwrap();
    let other = rig.again(2, &folder.path().join("pool.json"));
    for cache in [&one, &two] {
        let name = cache.name.as_deref().unwrap();
        assert_eq!(other.run(other.gemini.caches().get(name)).unwrap().name, cache.name);
        let longer = Expiry::After(Duration::from_secs(7_200));
        let kept = other.run(other.gemini.caches().update(name, longer)).unwrap();
        assert!(kept.expires_at() > cache.expires_at());
    }
    assert_eq!(other.run(other.gemini.caches().list()).unwrap().len(), 2);
    let name = one.name.as_deref().unwrap();
    other.run(other.gemini.caches().delete(name)).unwrap();
    assert!(matches!(other.run(other.gemini.caches().get(name)), Err(Error::Rejected { .. })));
    assert_eq!(other.run(other.gemini.caches().list()).unwrap().len(), 1);
}

/// A second cache would cost as much as the first.
#[test]
fn a_cache_that_may_have_been_made_is_not_made_again() {
    let rig = Rig::new(2);
    rig.script.reply(Scripted::failure(TransportKind::Timeout, Sent::Maybe));
    let error = rig.run(rig.gemini.caches().create(book())).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    assert_eq!(rig.script.requests().len(), 1);
    rig.script.reply(overloaded());
    rig.script.reply(Scripted::json(200, r#"{"name":"cachedContents/1"}"#));
    rig.run(rig.gemini.caches().create(book())).unwrap();
    assert_eq!(rig.script.requests().len(), 3, "an overloaded model has made none");
}

/// Nothing stays out for it: not the model, nor caches of another one.
#[test]
fn a_project_that_may_cache_nothing_is_passed_over_and_goes_on_answering() {
    let mut poor = ProjectConfig::new("p1").with_key(key(1));
    poor.refuses_caches = true;
    let rig = SimRig::new(
        2,
        world(0).with_project(poor).with_project(ProjectConfig::new("p2").with_key(key(2))),
    );
    let cache = rig.run(rig.gemini.caches().create(book())).unwrap();
    assert_eq!(rig.line.sent().len(), 2, "the first has no room for it");
    rig.run(rig.gemini.generate(MODEL, naming(&cache))).unwrap();
    for _ in 0..2 {
        rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    }
    let used: std::collections::BTreeSet<_> =
        rig.line.sent().iter().skip(2).map(|r| r.key).collect();
    assert_eq!(used.len(), 2, "both answer");
}
