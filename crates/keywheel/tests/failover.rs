//! A key that cannot serve costs a call nothing: the next one does, at once.

mod common;

use std::collections::HashSet;

use common::{
    MODEL, OTHER_MODEL, Rig, account,
    bodies::{
        bad_gateway, bare_429, day_spent, day_spent_body, internal, invalid_key, leaked_key,
        minute_full, overloaded, part, reply, suspended,
    },
    fingerprint, key, label, spec,
};
use futures_util::future::join;
use keywheel::{Cause, Clock as _, Error, RetryConfig, Selection};
use keywheel_provider::{Sent, TransportKind, testing::Scripted};

/// No retries at all: whoever needs one fails.
fn without_retries(keys: usize) -> Rig {
    let none = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    Rig::built(keys, |pool| pool, |client| client.retry(none))
}

/// <https://github.com/yym68686/uni-api/issues/140>: a bad key is a 400, which looks like the request's fault.
#[test]
fn a_key_that_is_not_valid_hands_over_at_once_and_is_never_tried_again() {
    let rig = without_retries(2);
    rig.script.reply(invalid_key());
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let before = rig.clock.now();
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.text(), "Hello");
    assert_eq!(
        account(reply.attempts()),
        [(label(1).as_str(), "invalid_key"), (label(2).as_str(), "served")]
    );
    assert_eq!(reply.served_by(), Some(label(2).as_str()));
    assert_eq!(rig.clock.now(), before, "nobody paused");
    for _ in 0..5 {
        rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        rig.run(rig.gemini.generate(OTHER_MODEL, "hi")).unwrap();
    }
    let dead = rig.keys_used().iter().filter(|&&used| used == fingerprint(1)).count();
    assert_eq!(dead, 1, "the dead key was sent again");
    rig.assert_balanced();
}

/// <https://github.com/continuedev/continue/issues/10513>, <https://github.com/tbphp/gpt-load/issues/317>
#[test]
fn leaked_and_suspended_keys_hand_over_at_once() {
    for (dead, kind) in [
        (leaked_key(), Cause::LeakedOrSuspendedKey),
        (suspended(&key(1)), Cause::LeakedOrSuspendedKey),
    ] {
        let rig = without_retries(2);
        rig.script.reply(dead);
        rig.script.otherwise(|_| Scripted::text("Hello"));
        let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        assert_eq!(reply.attempts()[0].kind, Some(keywheel::Kind::Refused(kind)));
        assert_eq!(reply.attempts()[0].available_at, None, "no wait brings it back");
        assert_eq!(reply.served_by(), Some(label(2).as_str()));
        let status = rig.gemini.status();
        assert_eq!(status.keys[0].quarantine.as_ref().map(|it| it.cause), Some(kind));
        assert!(status.keys[1].quarantine.is_none());
    }
}

/// <https://github.com/poenl/gemini-api/issues/8>: a suspended project takes all its keys with it.
#[test]
fn a_suspended_project_takes_its_other_keys_out() {
    let rig = Rig::built(
        0,
        |pool| pool.keys([spec(1).with_project("p"), spec(2).with_project("p"), spec(3)]),
        |client| client,
    );
    rig.script.reply(suspended(&key(1)));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.served_by(), Some(label(3).as_str()));
    assert_eq!(rig.keys_used(), [fingerprint(1), fingerprint(3)]);
}

/// <https://github.com/maximhq/bifrost/issues/5876>,
/// <https://github.com/NousResearch/hermes-agent/issues/16830>: rotation that counts retries never reaches them.
/// Asked for within one app: <https://github.com/janhq/jan/issues/8406>,
/// <https://github.com/BerriAI/litellm/issues/7669>, <https://github.com/openclaw/openclaw/issues/36119>.
#[test]
fn eleven_spent_keys_do_not_hide_the_twelfth() {
    let rig = without_retries(12);
    let good = fingerprint(12);
    rig.script.otherwise(move |request| {
        if request.key == Some(good) { Scripted::text("Hello") } else { day_spent(20) }
    });
    let before = rig.clock.now();
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.served_by(), Some(label(12).as_str()));
    assert_eq!(rig.clock.now(), before, "nobody paused");
    let used: HashSet<_> = rig.keys_used().into_iter().collect();
    assert_eq!(used.len(), rig.keys_used().len(), "a spent key was tried twice");
    for attempt in &reply.attempts()[..reply.attempts().len() - 1] {
        assert_eq!(attempt.kind, Some(keywheel::Kind::Refused(Cause::PerDayRequests)));
        let until = attempt.available_at.expect("the day ends");
        let late = until - common::at(common::MIDNIGHT);
        assert!((0..=5).contains(&late.num_seconds()), "until {until}");
    }
}

/// <https://github.com/snailyp/gemini-balance/issues/367>: told "0s" for a spent day, the same key again all day.
#[test]
fn a_spent_day_with_a_short_hint_is_not_tried_again_that_day() {
    let rig = without_retries(2);
    let spent = fingerprint(1);
    rig.script.otherwise(move |request| {
        if request.key == Some(spent) { day_spent(20) } else { Scripted::text("Hello") }
    });
    for _ in 0..20 {
        rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        rig.clock.advance(std::time::Duration::from_secs(1_200));
    }
    let tries = rig.keys_used().iter().filter(|&&used| used == spent).count();
    assert_eq!(tries, 1);
}

/// <https://github.com/openclaw/openclaw/issues/3231>: one model's 429 cooled the whole provider.
#[test]
fn one_models_refusal_does_not_touch_another() {
    let rig = without_retries(1);
    let spent = format!("/{MODEL}:");
    rig.script.otherwise(move |request| {
        if request.url.contains(&spent) { day_spent(20) } else { Scripted::text("Hello") }
    });
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    let reply = rig.run(rig.gemini.generate(OTHER_MODEL, "hi")).unwrap();
    assert_eq!(account(reply.attempts()), [(label(1).as_str(), "served")]);
    assert_eq!(rig.counted(MODEL), 0, "a 429 is given back");
    assert_eq!(rig.counted(OTHER_MODEL), 1);
}

#[test]
fn a_full_minute_hands_over_and_is_back_after_it() {
    let rig = without_retries(2);
    rig.script.reply(minute_full(15, 30));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(
        account(reply.attempts()),
        [(label(1).as_str(), "per_minute_requests"), (label(2).as_str(), "served")]
    );
    let back = reply.attempts()[0].available_at.unwrap();
    assert!(back >= rig.clock.now() + common::secs(30), "never earlier than the hint");
    for _ in 0..4 {
        let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        assert_eq!(reply.served_by(), Some(label(2).as_str()));
    }
    rig.clock.set(back);
    let mut served = HashSet::new();
    for _ in 0..4 {
        let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        served.insert(reply.served_by().unwrap().to_owned());
    }
    assert_eq!(served.len(), 2, "the first key serves again");
}

#[test]
fn every_attempt_is_noted_in_its_order() {
    let rig = Rig::new(5);
    for refusal in [invalid_key(), leaked_key(), day_spent(20), bare_429()] {
        rig.script.reply(refusal);
    }
    rig.script.reply(Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    let kinds: Vec<_> = account(reply.attempts()).into_iter().map(|(_, kind)| kind).collect();
    let expected = [
        "invalid_key",
        "leaked_or_suspended_key",
        "per_day_requests",
        "unspecified_quota",
        "served",
    ];
    assert_eq!(kinds, expected);
    let statuses: Vec<_> = reply.attempts().iter().map(|attempt| attempt.status).collect();
    assert_eq!(statuses, [400, 403, 429, 429, 200].map(Some));
    for (attempt, used) in reply.attempts().iter().zip(rig.keys_used()) {
        assert_eq!(attempt.fingerprint, used);
    }
}

/// <https://github.com/diegosouzapw/OmniRoute/issues/4177>: an error inside a 200 was passed on as success.
#[test]
fn an_error_inside_a_success_is_the_error_it_is() {
    let mut beside_an_answer = part("Hel", None, (8, 1));
    beside_an_answer["error"] = day_spent_body(20)["error"].clone();
    let bodies = [day_spent_body(20), serde_json::json!([day_spent_body(20)]), beside_an_answer];
    for body in bodies {
        let rig = without_retries(2);
        rig.script.reply(reply(200, &body));
        rig.script.reply(Scripted::text("Hello"));
        let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        assert_eq!(
            account(reply.attempts()),
            [(label(1).as_str(), "per_day_requests"), (label(2).as_str(), "served")]
        );
        rig.assert_balanced();
    }
}

#[test]
fn the_true_count_of_tokens_replaces_the_estimate() {
    let rig = without_retries(1);
    rig.script.reply(reply(200, &part("Hello", Some("STOP"), (1_234, 1))));
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!((rig.counted(MODEL), rig.counted_tokens(MODEL)), (1, 1_234));
}

#[test]
fn both_names_of_a_model_are_one_quota() {
    let rig = without_retries(1);
    rig.script.reply(day_spent(20));
    let long = format!("models/{MODEL}");
    let error = rig.run(rig.gemini.generate(long.as_str(), "hi")).unwrap_err();
    let back = error.next_available_at().unwrap();
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert_eq!(error.next_available_at(), Some(back));
    assert_eq!(rig.gemini.next_available(&long), Some(back));
    assert_eq!(rig.script.requests().len(), 1);
}

/// For those who must not add quotas up: nothing is handed over while the one project cools.
#[test]
fn failover_selection_stays_with_one_project_while_it_cools() {
    let rig = Rig::built(2, |pool| pool.selection(Selection::Failover), |client| client);
    rig.script.reply(day_spent(20));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert_eq!(rig.keys_used(), [fingerprint(1)]);
}

#[test]
fn a_paid_key_serves_only_where_it_is_allowed_and_free_keys_take_too_long() {
    let built = || Rig::built(1, |pool| pool.keys([spec(1), spec(2).paid()]), |client| client);
    // Allowed, but the free key can serve.
    let rig = built();
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap();
    assert_eq!(reply.served_by(), Some(label(1).as_str()));

    // Back in 20 s, which is less than 30: the free key is waited for.
    let rig = built();
    rig.script.reply(minute_full(15, 20));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap();
    assert_eq!(reply.served_by(), Some(label(1).as_str()));

    // Back in 50 s: the paid key serves at once.
    let rig = built();
    rig.script.reply(minute_full(15, 50));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let before = rig.clock.now();
    let reply = rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap();
    assert_eq!(reply.served_by(), Some(label(2).as_str()));
    assert_eq!(rig.clock.now(), before);

    // Not allowed: the paid key is not touched, whatever the wait.
    let rig = built();
    rig.script.otherwise(|_| day_spent(20));
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert_eq!(rig.keys_used(), [fingerprint(1)]);
}

/// A model that is overloaded for a free key is overloaded for a paid one: money would buy nothing.
#[test]
fn a_paid_key_is_never_used_because_the_provider_fails() {
    let failures: [fn() -> Scripted; 4] = [overloaded, internal, bad_gateway, || {
        Scripted::failure(TransportKind::Interrupted, Sent::Maybe)
    }];
    for failure in failures {
        let rig = Rig::built(
            1,
            |pool| pool.keys([spec(1), spec(2).paid()]),
            |client| client.retry(RetryConfig { breaker_after: 0, ..RetryConfig::default() }),
        );
        rig.script.otherwise(move |_| failure());
        for _ in 0..3 {
            let error = rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap_err();
            assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
        }
        assert_eq!(rig.keys_used(), [fingerprint(1); 9], "two retries for each call");
    }
}

/// <https://github.com/BerriAI/litellm/pull/34836>: a cooldown held from the next ten seconds on.
#[test]
fn two_calls_at_once_do_not_send_the_same_spent_key_twice_each() {
    let rig = without_retries(4);
    let good = fingerprint(4);
    rig.script.otherwise(move |request| {
        if request.key == Some(good) { Scripted::text("Hello") } else { day_spent(20) }
    });
    let both = join(
        rig.gemini.generate(MODEL, "hi").into_future(),
        rig.gemini.generate(MODEL, "hi").into_future(),
    );
    let (first, second) = rig.run(both);
    assert!(first.is_ok() && second.is_ok());
    let sent = rig.script.requests().len();
    assert!(sent <= 3 + 2, "{sent} requests for three spent keys and two answers");
    rig.assert_balanced();
}
