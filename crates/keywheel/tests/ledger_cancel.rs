//! A call may be dropped at any await: what was sent is charged at its estimate, what was not is given back, and
//! nothing waits for the sweep.

#![cfg(feature = "ledger")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{pin::pin, sync::Arc, time::Duration};

use common::{
    MODEL,
    bodies::{day_spent, invalid_key, minute_full, overloaded, part, reply},
    ledger::{APP, Charged, gated::Gated, request},
    poll_times, spec,
};
use futures_util::StreamExt as _;
use keywheel::{
    Gemini, Pool, StateLocation,
    ledger::{Amount, Ledger, Limit, Outcome, Period, RowQuery, RowState},
};
use keywheel_provider::{
    Sent, TransportKind,
    testing::{Script, Scripted},
};
use tokio::runtime::{Builder, Runtime};

type Scenario = (&'static str, usize, fn() -> Vec<Scripted>);

fn hello() -> Scripted {
    reply(200, &part("Hello", Some("STOP"), (8, 1)))
}

fn scenarios() -> Vec<Scenario> {
    vec![
        ("an answer", 1, || vec![hello()]),
        ("refusals, then an answer", 4, || {
            vec![day_spent(20), invalid_key(), minute_full(15, 30), hello()]
        }),
        ("failures, then an answer", 1, || {
            let lost = Scripted::failure(TransportKind::Interrupted, Sent::Maybe);
            vec![overloaded(), lost, hello()]
        }),
        ("no connection, then an answer", 1, || {
            vec![Scripted::failure(TransportKind::Connect, Sent::No), hello()]
        }),
        ("a wait, then an answer", 1, || vec![minute_full(15, 30), hello()]),
    ]
}

/// Every operation of this store is pending before it works and after it.
fn slow(keys: usize, replies: Vec<Scripted>) -> Charged {
    let it = Charged::over(Arc::new(Gated::new()), keys, [], |client| client);
    for reply in replies {
        it.rig.script.reply(reply.after(Duration::from_millis(100)));
    }
    it
}

/// Lets what was left to the background come to its end.
fn settle_down(runtime: &Runtime) {
    runtime.block_on(async {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    });
}

/// What of a call is charged that was dropped: each of its rows once, and only what was sent.
fn assert_charged_once(it: &Charged, name: &str, polls: usize) {
    let sent = it.rig.script.requests().len();
    let rows = it.rows();
    let at = format!("{name}, dropped after {polls} polls, {sent} sent: {rows:?}");
    assert!(rows.len() <= sent + 1, "{at}");
    for (place, row) in rows.iter().enumerate() {
        let charged = row.charged.unwrap_or(Amount::ZERO).tokens;
        match row.outcome {
            // Given up before it was sent, or the first one where there is no connection.
            Some(Outcome::NotSent) => {
                assert_eq!(charged, 0, "{at}");
                assert!(place >= sent || (place == 0 && name.starts_with("no connection")), "{at}");
            }
            Some(Outcome::Refused | Outcome::ServerError) => assert_eq!(charged, 0, "{at}"),
            Some(Outcome::CutShort | Outcome::Lost) => {
                assert!(place < sent, "{at}");
                assert_eq!(charged, row.estimate.total(), "{at}");
            }
            Some(Outcome::Answered) => assert_eq!(charged, 9, "{at}"),
            // Only a reservation that nobody heard of may be left to the sweep, and it was not sent.
            None => assert!(row.state == RowState::Reserved && place >= sent, "{at}"),
        }
    }
    it.rig.clock.advance(Duration::from_secs(901));
    it.rig.run(it.ledger.sweep()).unwrap();
    it.assert_balanced();
}

#[test]
fn a_call_dropped_at_any_await_is_charged_what_was_sent_and_no_more() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    for (name, keys, replies) in scenarios() {
        let mut ended = false;
        for polls in 0..300 {
            let it = slow(keys, replies());
            let outcome = {
                let call = pin!(it.rig.gemini.generate(MODEL, request()).into_future());
                poll_times(&it.rig.clock, call, polls)
            };
            if let Some(outcome) = outcome {
                outcome.unwrap();
                it.assert_balanced();
                ended = true;
                break;
            }
            settle_down(&runtime);
            assert_charged_once(&it, name, polls);
        }
        assert!(ended, "{name} never ended");
    }
}

#[test]
fn a_stream_dropped_at_any_await_is_charged_what_was_sent_and_no_more() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    let parts = || {
        let parts = [part("Hel", None, (8, 1)), part("lo", Some("STOP"), (8, 1))];
        let parts = parts.map(|part| format!("data: {part}\r\n\r\n"));
        let [first, last] = parts;
        let reply = Scripted::events(Vec::<String>::new()).piece(first);
        vec![day_spent(20), reply.pause(Duration::from_millis(50)).piece(last)]
    };
    let mut ended = false;
    for polls in 0..300 {
        let it = slow(2, parts());
        let outcome = {
            let read = pin!(async {
                let stream = it.rig.gemini.stream(MODEL, request()).await.unwrap();
                stream.collect::<Vec<_>>().await.len()
            });
            poll_times(&it.rig.clock, read, polls)
        };
        if outcome.is_some() {
            it.assert_balanced();
            ended = true;
            break;
        }
        settle_down(&runtime);
        assert_charged_once(&it, "a stream", polls);
    }
    assert!(ended, "it never ended");
}

/// The same with a file, whose thread goes its own way: in real time, with calls dropped at random moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_dropped_at_any_moment_leave_a_file_in_balance() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::builder()
        .account(APP, [Limit::tokens(Period::Day, 1_000_000)])
        .path(folder.path().join("ledger.db"))
        .durability(keywheel::ledger::Durability::EphemeralOk)
        .open()
        .await
        .unwrap();
    let script = Script::new();
    script.otherwise(|_| hello().after(Duration::from_millis(3)));
    let pool = Pool::builder().keys((1..=8).map(spec)).state(StateLocation::None).build().unwrap();
    let builder = Gemini::builder().pool(pool).transport(Arc::new(script.clone()));
    let builder = builder.without_daily_checks().base_url("http://script.invalid");
    let gemini = builder.ledger(ledger.clone(), APP).build().await.unwrap();
    let (mut finished, mut round) = (0, 0_u64);
    // On a machine with much else to do nobody ends so soon: then with more patience.
    while round < 200 || (finished == 0 && round < 2_000) {
        let call = gemini.generate(MODEL, request()).into_future();
        let patience = Duration::from_micros(50 * (round % 160) * (1 + round / 200));
        finished += u64::from(tokio::time::timeout(patience, call).await.is_ok());
        round += 1;
    }
    assert!((1..round).contains(&finished), "{finished} of {round} came to their end");
    // What was dropped is settled by the ledger's own thread, in its next batch.
    let open = RowQuery { state: Some(RowState::Reserved), ..RowQuery::default() };
    let all_settled = async {
        // Reading is a turn of that thread's, too: each look lets it go on.
        while !ledger.rows(open.clone()).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all_settled).await.expect("they are settled");
    assert_eq!(ledger.rows(open).await.unwrap(), [], "nothing waits for the sweep");
    assert!(ledger.audit().await.unwrap().is_balanced());
    let rows = ledger.rows(RowQuery::default()).await.unwrap();
    let answered = rows.iter().filter(|row| row.outcome == Some(Outcome::Answered)).count() as u64;
    assert!(answered >= finished, "{answered} answers for {finished} calls");
    let charged = |row: &&keywheel::ledger::Row| row.charged.is_some_and(|c| c.tokens > 0);
    let sent = script.requests().len();
    assert!(rows.iter().filter(charged).count() <= sent, "nothing is charged that was not sent");
    let used = ledger.usage(APP).await.unwrap().day.tokens.used();
    assert_eq!(used, rows.iter().map(|row| row.charged.unwrap().tokens).sum::<u64>());
    common::assert_balanced(&gemini);
}
