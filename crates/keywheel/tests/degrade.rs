//! What is answered when no key can: the degradation callback.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use common::{
    MIDNIGHT, MODEL, OTHER_MODEL, Rig, at,
    bodies::{bad_request, day_spent, invalid_key, minute_full, overloaded},
    key, label, secs,
};
use futures_util::FutureExt as _;
use keywheel::{
    Cause, Degraded, Error, ExhaustedKind, Gemini, GenerateRequest, GenerateResponse, KeySpec,
    OutOfQuota,
};
use keywheel_provider::testing::Scripted;

type Seen = Arc<Mutex<Vec<OutOfQuota>>>;

/// A client whose callback answers "resting" and keeps what it was told.
fn resting(keys: usize) -> (Rig, Seen) {
    let seen = Seen::default();
    let keep = Arc::clone(&seen);
    let rig = Rig::built(
        keys,
        |pool| pool,
        |client| {
            client.on_exhausted(move |told| {
                keep.lock().unwrap().push(told);
                async { "resting" }
            })
        },
    );
    (rig, seen)
}

#[test]
fn the_callback_answers_with_request_reasons_and_moment_in_its_hands() {
    let (rig, seen) = resting(2);
    rig.script.otherwise(|_| day_spent(20));
    let request = GenerateRequest::from("Say hello").with_system("Be brief");
    let reply = rig.run(rig.gemini.generate(MODEL, request.clone())).unwrap();
    assert_eq!(reply.text(), "resting");
    assert!(reply.finish_reason().is_some(), "it looks like a whole answer");
    let exhausted = reply.degraded().expect("marked as degraded");
    assert_eq!(reply.served_by(), None);
    assert_eq!(reply.attempts().len(), 2, "what was tried is told all the same");

    let seen = seen.lock().unwrap();
    let [told] = seen.as_slice() else { panic!("called {} times", seen.len()) };
    assert_eq!(told.model, MODEL);
    assert_eq!(*told.request, request);
    assert_eq!(&told.exhausted, exhausted);
    let back = told.next_available_at().unwrap();
    assert!(back >= at(MIDNIGHT) && back <= at(MIDNIGHT) + secs(6), "{back}");
    let causes: Vec<_> = told.exhausted.reasons.iter().map(|reason| reason.cause).collect();
    assert_eq!(causes, [Some(Cause::PerDayRequests); 2]);
    rig.assert_balanced();
}

#[test]
fn streams_degrade_to_a_stream_of_one_part() {
    let (rig, _) = resting(1);
    rig.script.otherwise(|_| day_spent(20));
    let mut stream = rig.run(rig.gemini.stream(MODEL, "hi")).unwrap();
    assert_eq!(stream.degraded().unwrap().kind, ExhaustedKind::Cooling);
    assert_eq!(stream.attempts().len(), 1);
    let part = rig.run(stream.next()).unwrap().unwrap();
    assert_eq!(part.text(), "resting");
    assert!(part.finish_reason().is_some());
    assert!(rig.run(stream.next()).is_none());
    assert!(rig.run(stream.next()).is_none(), "the end stays the end");
}

#[test]
fn dead_keys_degrade_too_and_name_no_moment() {
    let (rig, seen) = resting(2);
    rig.script.otherwise(|_| invalid_key());
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.text(), "resting");
    let told = seen.lock().unwrap().pop().unwrap();
    assert_eq!(told.exhausted.kind, ExhaustedKind::AllDead);
    assert_eq!(told.next_available_at(), None, "waiting does not help");
}

#[test]
fn a_declining_callback_leaves_the_error_as_it_was() {
    let rig =
        Rig::built(1, |pool| pool, |client| client.on_exhausted(|_| async { None::<String> }));
    rig.script.otherwise(|_| day_spent(20));
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert!(error.next_available_at().is_some());
    assert_eq!(error.attempts().len(), 1);
    let error = rig.run(rig.gemini.stream(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
}

#[test]
fn a_callback_may_answer_with_a_whole_response() {
    let cached = GenerateResponse { response_id: Some("cached".into()), ..Default::default() };
    let rig = Rig::built(
        1,
        |pool| pool,
        |client| {
            client.on_exhausted(move |_| {
                let cached = cached.clone();
                async move { Degraded::from(cached) }
            })
        },
    );
    rig.script.otherwise(|_| day_spent(20));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.response_id.as_deref(), Some("cached"));
    assert!(reply.degraded().is_some());
}

#[test]
fn real_answers_are_not_marked() {
    let (rig, seen) = resting(1);
    rig.script.reply(minute_full(15, 20));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert!(reply.degraded().is_none());
    assert_eq!(reply.served_by(), Some(label(1).as_str()));
    assert!(seen.lock().unwrap().is_empty());
}

/// A cached answer would hide a broken request, and a provider that is down is no matter of quota.
#[test]
fn faults_of_the_request_and_of_the_provider_do_not_degrade() {
    let (rig, seen) = resting(2);
    rig.script.reply(bad_request());
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error}");
    rig.script.otherwise(|_| overloaded());
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    let error = rig.run(rig.gemini.generate("no model", "hi")).unwrap_err();
    assert!(matches!(error, Error::Setting(_)), "{error}");
    assert!(seen.lock().unwrap().is_empty());
}

#[test]
fn a_callback_that_panics_does_no_harm_to_the_pool() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let rig = Rig::built(
        1,
        |pool| pool,
        |client| {
            client.on_exhausted(move |_| {
                let call = count.fetch_add(1, Ordering::Relaxed);
                assert!(call > 0, "the first one panics before it has a future");
                async move {
                    assert!(call > 1, "the second one panics inside it");
                    "resting"
                }
            })
        },
    );
    rig.script.otherwise(|_| day_spent(20));
    for _ in 0..2 {
        let call = AssertUnwindSafe(|| rig.run(rig.gemini.generate(MODEL, "hi")));
        assert!(catch_unwind(call).is_err());
        rig.assert_balanced();
    }
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.text(), "resting");
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

/// Asked again by its own call, it would ask without end, one poll inside the other, until the stack is full.
#[test]
fn a_callback_that_asks_its_own_client_is_not_asked_again() {
    let client = Arc::new(OnceLock::<Gemini>::new());
    let (same, asked) = (Arc::clone(&client), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let rig = Rig::built(
        1,
        |pool| pool,
        |builder| {
            builder.on_exhausted(move |_| {
                assert!(count.fetch_add(1, Ordering::Relaxed) < 10, "without end");
                let gemini = same.get().unwrap().clone();
                async move {
                    gemini.stream(OTHER_MODEL, "hi").await.expect_err("nobody answers");
                    gemini.generate(OTHER_MODEL, "hi").await.expect_err("nobody answers");
                    "resting"
                }
            })
        },
    );
    client.set(rig.gemini.clone()).unwrap();
    rig.script.otherwise(|_| day_spent(20));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(reply.text(), "resting");
    // The next call's is asked as ever.
    rig.run(rig.gemini.stream(MODEL, "hi")).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    rig.assert_balanced();
}

#[test]
fn a_callback_that_never_ends_holds_nothing() {
    let rig = Rig::built(
        1,
        |pool| pool,
        |client| client.on_exhausted(|_| std::future::pending::<&str>()),
    );
    rig.script.reply(minute_full(15, 600));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let mut stuck = rig.gemini.generate(MODEL, "hi").into_future();
    assert!((&mut stuck).now_or_never().is_none());
    rig.assert_balanced();
    // Others are served while it hangs.
    rig.clock.advance(std::time::Duration::from_secs(700));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.text(), "Hello");
    drop(stuck);
    rig.assert_balanced();
}

/// Exhausted, all dead and no keys are three errors with three remedies:
/// <https://github.com/NousResearch/hermes-agent/issues/40960>.
#[test]
fn only_paid_keys_and_none_allowed_is_an_error_of_its_own() {
    let paid = KeySpec::new(key(1), "paid").paid();
    let rig = Rig::built(0, |pool| pool.keys([paid]), |client| client);
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::NoKeys { .. }), "{error}");
    rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap();

    let none = Rig::new(0);
    let error = none.run(none.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::NoKeys { .. }), "{error}");
}
