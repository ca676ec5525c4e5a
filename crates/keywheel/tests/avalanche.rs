//! One bad request does not take the pool out; keys that are spent or dead one by one still do not hide the next.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::{
    MODEL, Rig, account,
    bodies::{bare_429, day_spent, invalid_key, leaked_key, reply, suspended},
    fingerprint, key, label,
};
use http::Method;
use keywheel::{Cause, Error};
use keywheel_provider::testing::{Recorded, Scripted};
use serde_json::json;

fn models() -> Scripted {
    reply(200, &json!({"models": [{"name": format!("models/{MODEL}")}]}))
}

fn assert_handed_back(rig: &Rig, cause: Cause) {
    let error = rig.run(rig.gemini.generate(MODEL, "poison")).unwrap_err();
    let Error::Rejected { rejected, attempts, .. } = error else { panic!("{error}") };
    assert_eq!(rejected.cause, cause);
    assert_eq!(attempts.len(), 3);
    assert!(attempts.iter().all(|attempt| attempt.available_at.is_none()), "{attempts:?}");
    let status = rig.gemini.status();
    assert!(status.keys.iter().all(|key| key.quarantine.is_none()), "{:?}", status.keys);
    assert!(status.buckets.iter().all(|bucket| bucket.ready), "{:?}", status.buckets);
    // Nobody is held back for it.
    rig.script.otherwise(|_| Scripted::text("Hello"));
    for _ in 0..5 {
        let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        assert_eq!(reply.attempts().len(), 1);
    }
    rig.assert_balanced();
}

#[test]
fn three_bare_429_to_one_request_are_the_requests_fault() {
    let rig = Rig::new(5);
    rig.script.otherwise(|_| bare_429());
    assert_handed_back(&rig, Cause::UnspecifiedQuota);
}

/// The free check finds the keys in order, so it was the request that made them look dead.
#[test]
fn three_keys_that_only_look_dead_are_checked_and_stay_in_use() {
    let dead: [(fn() -> Scripted, Cause); 3] = [
        (invalid_key, Cause::InvalidKey),
        (leaked_key, Cause::LeakedOrSuspendedKey),
        (|| suspended(&key(1)), Cause::LeakedOrSuspendedKey),
    ];
    for (dead, cause) in dead {
        let rig = Rig::new(5);
        rig.script.otherwise(
            move |request| {
                if request.method == Method::GET { models() } else { dead() }
            },
        );
        assert_handed_back(&rig, cause);
    }
}

/// Three keys that are dead one by one: one free check says so, and the call goes on.
#[test]
fn keys_that_are_truly_dead_do_not_hide_the_next() {
    let rig = Rig::new(7);
    let good = fingerprint(7);
    rig.script.otherwise(move |request| {
        if request.key == Some(good) { Scripted::text("Hello") } else { invalid_key() }
    });
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.served_by(), Some(label(7).as_str()));
    let requests = rig.script.requests();
    let checks = requests.iter().filter(|request: &&Recorded| request.method == Method::GET);
    assert_eq!(checks.count(), 1, "one check is enough");
    let quarantined =
        rig.gemini.status().keys.iter().filter(|key| key.quarantine.is_some()).count();
    assert_eq!(quarantined, 6);
    rig.assert_balanced();
}

/// A check that tells nothing, or hangs, is no reason to doubt the answers; nor does it outlive the deadline.
#[test]
fn a_check_that_tells_nothing_leaves_the_keys_out() {
    for check in [Scripted::status(500), Scripted::json(200, "{").hang()] {
        let rig = Rig::new(3);
        rig.script.otherwise(move |request| {
            if request.method == Method::GET { check.clone() } else { invalid_key() }
        });
        let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
        assert!(matches!(error, Error::AllKeysDead { .. }), "{error}");
        rig.assert_balanced();
    }
}

/// Named quotas are spent one by one, and so is what is not said alike or not in a row.
#[test]
fn spent_keys_are_no_avalanche() {
    let rig = Rig::new(12);
    for _ in 0..4 {
        rig.script.reply(day_spent(20));
    }
    rig.script.reply(bare_429());
    rig.script.reply(bare_429());
    rig.script.reply(day_spent(20));
    rig.script.reply(bare_429());
    rig.script.reply(invalid_key());
    rig.script.reply(leaked_key());
    rig.script.reply(day_spent(20));
    rig.script.reply(Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.served_by(), Some(label(12).as_str()));
    assert_eq!(account(reply.attempts()).len(), 12);
    assert_eq!(rig.script.requests().len(), 12, "nothing had to be checked");
}

/// Two keys of one quota project are one witness.
#[test]
fn keys_of_one_quota_project_count_once() {
    let rig = Rig::built(
        0,
        |pool| {
            pool.keys((1..=6).map(|n| common::spec(n).with_project(format!("p{}", n.min(4) / 4))))
        },
        |client| client,
    );
    rig.script.otherwise(|_| invalid_key());
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::AllKeysDead { .. }), "{error}");
    assert_eq!(error.attempts().len(), 6);
    assert_eq!(rig.script.requests().len(), 6, "two quota projects: no check");
}
