//! A call waits if waiting can help in time, and says when it would help if it cannot.

mod common;

use std::time::Duration;

use common::{
    MIDNIGHT, MODEL, Rig, at,
    bodies::{day_spent, minute_full, overloaded},
    fingerprint, secs,
};
use keywheel::{Cause, Clock as _, Error, Kind, Limits};
use keywheel_provider::testing::Scripted;

/// <https://github.com/BerriAI/litellm/issues/3646>: all cooling, and the call failed instead of waiting.
#[test]
fn the_first_key_to_come_back_is_waited_for() {
    let rig = Rig::new(2);
    rig.script.reply(minute_full(15, 50));
    rig.script.reply(minute_full(15, 20));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let before = rig.clock.now();
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    let waited = rig.clock.now() - before;
    assert!(waited >= secs(20) && waited < secs(22), "{waited}");
    assert_eq!(reply.attempts().last().unwrap().fingerprint, fingerprint(2));
    rig.assert_balanced();
}

/// <https://github.com/UKGovernmentBEIS/inspect_ai/issues/5526>: backed off until the reset;
/// <https://github.com/google-gemini/gemini-cli/issues/2981>: nobody could tell when it comes back.
#[test]
fn a_wait_beyond_the_deadline_is_answered_at_once_with_the_moment_of_return() {
    let rig = Rig::new(3);
    rig.script.otherwise(|_| day_spent(20));
    let before = rig.clock.now();
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert_eq!(rig.clock.now(), before, "nobody waited");
    let Error::Exhausted { exhausted, attempts, .. } = &error else { panic!("{error}") };
    let back = error.next_available_at().unwrap();
    assert!(back >= at(MIDNIGHT) && back <= at(MIDNIGHT) + secs(6), "{back}");
    assert_eq!(attempts.len(), 3);
    assert_eq!(exhausted.reasons.len(), 3);
    assert!(exhausted.reasons.iter().all(|reason| reason.cause == Some(Cause::PerDayRequests)));
    assert_eq!(rig.gemini.next_available(MODEL), Some(back));
    assert!(error.to_string().contains(&back.format("%Y-%m-%dT%H:%M").to_string()), "{error}");

    // The moment is true: just before it nothing serves, at it something does.
    rig.script.otherwise(|_| Scripted::text("Hello"));
    rig.clock.set(back - chrono::TimeDelta::milliseconds(1));
    let early = rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::ZERO)).unwrap_err();
    assert_eq!(early.next_available_at(), Some(back));
    rig.clock.set(back);
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
}

#[test]
fn a_deadline_of_the_call_beats_the_clients() {
    let rig = Rig::built(1, |pool| pool, |client| client.deadline(Duration::from_secs(5)));
    rig.script.reply(minute_full(15, 20));
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let error = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(30))).unwrap();
}

#[test]
fn without_a_deadline_a_call_waits_for_the_next_quota_day() {
    let rig = Rig::new(2);
    rig.script.reply(day_spent(20));
    rig.script.reply(day_spent(20));
    rig.script.otherwise(|_| Scripted::text("Good morning"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi").no_deadline()).unwrap();
    assert_eq!(reply.text(), "Good morning");
    assert!(rig.clock.now() >= at(MIDNIGHT));
    assert!(rig.clock.now() <= at(MIDNIGHT) + secs(6));
}

#[test]
fn until_available_waits_for_the_reset_and_takes_nothing() {
    let rig = Rig::new(1);
    rig.script.reply(day_spent(20));
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap_err();
    rig.run(rig.gemini.until_available(MODEL)).unwrap();
    assert!(rig.clock.now() >= at(MIDNIGHT));
    assert_eq!(rig.script.requests().len(), 1);
    rig.assert_balanced();
}

#[test]
fn the_deadline_ends_an_attempt_in_its_middle() {
    let rig = Rig::new(2);
    rig.script.reply(Scripted::text("too late").after(Duration::from_secs(60)));
    let before = rig.clock.now();
    let error =
        rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(10))).unwrap_err();
    assert!(matches!(error, Error::DeadlineReached { .. }), "{error}");
    assert_eq!(rig.clock.now(), before + secs(10));
    assert_eq!(error.attempts().len(), 1);
    assert_eq!(error.attempts()[0].kind, None);
    assert_eq!(rig.counted(MODEL), 1, "it may have been received");
    rig.assert_balanced();
}

#[test]
fn the_deadline_ends_a_body_that_hangs() {
    let rig = Rig::new(1);
    rig.script.reply(Scripted::json(200, "{").hang());
    let error =
        rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(10))).unwrap_err();
    assert!(matches!(error, Error::DeadlineReached { .. }), "{error}");
    rig.assert_balanced();
}

#[test]
fn a_retry_that_would_come_after_the_deadline_is_not_paused_for() {
    let rig = Rig::new(1);
    rig.script.otherwise(|_| overloaded());
    let before = rig.clock.now();
    let call = rig.gemini.generate(MODEL, "hi").deadline(Duration::from_millis(900));
    let error = rig.run(call).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    assert_eq!(rig.clock.now(), before);
    assert_eq!(error.attempts()[0].kind, Some(Kind::Refused(Cause::Overloaded)));
}

/// A key that comes free at the deadline sharp is of no use: nobody waits for the answer any more.
#[test]
fn nothing_is_sent_once_the_deadline_has_come() {
    let rig = Rig::new(1);
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let error = rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::ZERO)).unwrap_err();
    assert!(matches!(error, Error::DeadlineReached { .. }), "{error}");
    assert!(rig.script.requests().is_empty());
    assert_eq!(rig.counted(MODEL), 0);
    rig.assert_balanced();
}

/// A key that comes free with less time left than an answer takes would be spent for nothing.
#[test]
fn a_key_that_comes_free_too_late_for_an_answer_is_not_waited_for() {
    let answer = || Scripted::text("Hello").after(Duration::from_secs(5));
    let rig = Rig::new(1);
    for _ in 0..10 {
        rig.script.reply(answer());
        rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    }
    rig.script.reply(minute_full(15, 28));
    let before = rig.clock.now();
    let call = rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(30));
    let error = rig.run(call).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert_eq!(rig.clock.now(), before, "it is said at once");
    assert_eq!(rig.counted(MODEL), 10, "and takes nothing");
    rig.script.reply(answer());
    rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(60))).unwrap();
}

#[test]
fn deadlines_beyond_the_calendar_do_not_overflow() {
    let tomorrow = Duration::from_secs(86_400);
    for deadline in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_millis(u64::MAX)]
    {
        let rig = Rig::new(1);
        rig.script.reply(minute_full(15, 20));
        rig.script.reply(overloaded());
        rig.script.reply(Scripted::text("Hello").after(tomorrow));
        let reply = rig.run(rig.gemini.generate(MODEL, "hi").deadline(deadline)).unwrap();
        assert_eq!(reply.attempts().len(), 3);
        rig.script.reply(Scripted::stream(["Hello"]).after(tomorrow));
        rig.run(rig.gemini.stream(MODEL, "hi").deadline(deadline)).unwrap();
    }
    let rig = Rig::built(
        1,
        |pool| pool,
        |client| client.deadline(Duration::MAX).overflow_after(Duration::MAX),
    );
    rig.script.reply(Scripted::text("Hello"));
    rig.run(rig.gemini.generate(MODEL, "hi").allow_paid()).unwrap();
}

/// Two a minute: the third of three calls at once waits for the minute, and no 429 is met.
#[test]
fn known_limits_are_waited_for_without_a_refusal() {
    let limits = Limits { rpm: Some(2), ..Limits::default() };
    let rig = Rig::built(1, |pool| pool.limits("*", limits), |client| client);
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let before = rig.clock.now();
    for _ in 0..3 {
        let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        assert_eq!(reply.attempts().len(), 1);
    }
    let waited = rig.clock.now() - before;
    assert!(waited >= secs(60) && waited < secs(65), "{waited}");
}

/// One key is spent for the day, the other has all the calls in flight that an unknown limit allows: the third call
/// is served by it in seconds. The spent key's tomorrow is no reason to give up.
#[test]
fn a_key_that_is_only_busy_is_waited_for_although_the_others_are_out_until_tomorrow() {
    let rig = Rig::new(2);
    let spent = fingerprint(1);
    rig.script.otherwise(move |request| {
        let served = Scripted::text("Hello").after(Duration::from_secs(5));
        if request.key == Some(spent) { day_spent(20) } else { served }
    });
    let calls = (0..6).map(|_| rig.gemini.generate(MODEL, "hi").into_future());
    let replies = rig.run(futures_util::future::join_all(calls));
    for reply in replies {
        assert!(reply.is_ok(), "{}", reply.unwrap_err());
    }
    rig.assert_balanced();
}

#[test]
fn a_deadline_counts_from_the_first_await() {
    let rig = Rig::new(1);
    rig.script.otherwise(|_| Scripted::text("Hello"));
    let call = rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(10));
    rig.clock.advance(Duration::from_secs(3_600));
    rig.run(call).unwrap();
}
