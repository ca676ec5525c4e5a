//! The handle: what callers see.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::{sync::Arc, time::Duration};

use chrono::DateTime;
use common::{Opened, actual, open, rows};

use keywheel_ledger::{
    Actual, Amount, Ask, ErrorKind, Estimate, ExportFormat, Fingerprint, GroupBy, Ledger,
    LedgerRules, LedgerStore, Limit, MemoryStore, Outcome, Period, Reserved, RowQuery, RowState,
    SettledHow, Usage,
};

const DAY: Period = Period::Day;

/// <https://github.com/envoyproxy/ai-gateway/issues/680>: tokens were limited only after the response.
#[tokio::test]
async fn a_cap_of_1000_refuses_the_second_600_in_plain_words() {
    let Opened { ledger, .. } = open([Limit::tokens(DAY, 1_000)]).await;
    let hold = ledger.reserve("a", Ask::new("m", 600)).await.unwrap().held().unwrap();
    let denied = ledger.reserve("a", Ask::new("m", 600)).await.unwrap().denied().unwrap();
    assert_eq!(
        denied.to_string(),
        "600 tokens do not fit into account a's 1000 tokens a day: 0 are spent and 600 reserved; \
         it begins anew at 2026-12-01T08:00:00Z"
    );
    hold.settle(120).await.unwrap();
    let denied = ledger.reserve("a", Ask::new("m", 1_001)).await.unwrap().denied().unwrap();
    assert_eq!(
        denied.to_string(),
        "1001 tokens do not fit into account a's 1000 tokens a day: that is more than the whole limit"
    );
    assert!(ledger.reserve("a", Ask::new("m", 880)).await.unwrap().held().is_some());
}

/// Settled at 120 of 800, 880 are left at once
/// (<https://github.com/Agenta-AI/agenta/issues/6341>).
#[tokio::test]
async fn what_was_reserved_too_much_is_free_at_once_and_shown_apart() {
    let Opened { ledger, .. } = open([Limit::tokens(DAY, 1_000)]).await;
    let hold = ledger.reserve("a", Ask::new("m", 800)).await.unwrap().held().unwrap();
    let usage = ledger.usage("a").await.unwrap();
    assert_eq!((usage.day.tokens.settled, usage.day.tokens.reserved), (0, 800));
    assert_eq!(hold.settle(120).await.unwrap().charged, Amount::new(120, 1));
    let usage = ledger.usage("a").await.unwrap();
    assert_eq!((usage.limits[0].sum.used(), usage.limits[0].left()), (120, 880));
    assert_eq!(usage.limits[0].begins_anew, Some("2026-12-01T08:00:00Z".parse().unwrap()));
    assert!(ledger.reserve("a", Ask::new("m", 800)).await.unwrap().held().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_threads_of_300_get_exactly_three() {
    let Opened { ledger, .. } = open([Limit::tokens(DAY, 1_000)]).await;
    let runtime = tokio::runtime::Handle::current();
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let (ledger, runtime) = (ledger.clone(), runtime.clone());
            std::thread::spawn(move || {
                runtime.block_on(ledger.reserve("a", Ask::new("m", 300))).unwrap().held().is_some()
            })
        })
        .collect();
    let held = threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|held| *held);
    assert_eq!(held.count(), 3);
}

/// A hundred retries of one failing call cannot pass the cap
/// (<https://github.com/BerriAI/litellm/issues/34732>).
#[tokio::test]
async fn a_hundred_calls_at_once_cannot_pass_the_cap() {
    let Opened { ledger, .. } = open([Limit::tokens(DAY, 10_000)]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let ledger = ledger.clone();
        tasks.spawn(async move {
            let mut charged = 0;
            for _ in 0..5 {
                let Some(hold) = ledger.reserve("a", Ask::new("m", 900)).await.unwrap().held()
                else {
                    break;
                };
                tokio::task::yield_now().await;
                charged += hold.settle(Outcome::Lost).await.unwrap().charged.tokens;
            }
            charged
        });
    }
    let charged: u64 = tasks.join_all().await.into_iter().sum();
    assert_eq!(charged, 9_900);
    assert_eq!(ledger.usage("a").await.unwrap().day.tokens.settled, charged);
}

/// Each attempt of a call that fails over is settled once, and it is one logical call
/// (<https://github.com/maximhq/bifrost/issues/5673>).
#[tokio::test]
async fn a_failover_over_three_keys_settles_each_attempt_once_and_is_one_call() {
    let Opened { ledger, .. } = open([Limit::tokens(DAY, 1_000), Limit::calls(DAY, 1)]).await;
    let ask = |key: &str| Ask::new("m", 800).key(Fingerprint::of(key));
    let first = ask("AQ.EXAMPLE-key-1").request_id("r1").note("why").idempotent("k");
    let hold = ledger.reserve("a", first).await.unwrap().held().unwrap();
    let turned = hold.turn_over(Outcome::Refused, ask("AQ.EXAMPLE-key-2")).await.unwrap();
    assert_eq!(turned.settled.charged, Amount::ZERO);
    let hold = turned.next.held().unwrap();
    let turned = hold.turn_over(Outcome::ServerError, ask("AQ.EXAMPLE-key-3")).await.unwrap();
    let hold = turned.next.held().unwrap();
    let usage = Usage { input: 100, output: 20, total: 120, ..Usage::default() };
    hold.settle(usage).await.unwrap();

    let rows = rows(&ledger).await;
    let charged: Vec<_> = rows.iter().map(|row| row.charged.unwrap()).collect();
    assert_eq!(charged, [Amount::ZERO, Amount::ZERO, Amount::new(120, 1)]);
    let outcomes: Vec<_> = rows.iter().map(|row| row.outcome.unwrap()).collect();
    assert_eq!(outcomes, [Outcome::Refused, Outcome::ServerError, Outcome::Answered]);
    assert!(rows.iter().all(|row| row.request_id == "r1" && row.note == "why"));
    let keys: std::collections::HashSet<_> = rows.iter().map(|row| row.key).collect();
    assert_eq!(keys.len(), 3);
    let today = ledger.usage("a").await.unwrap().day;
    assert_eq!((today.tokens.settled, today.calls.settled), (120, 1));
    assert!(ledger.audit().await.unwrap().is_balanced());
}

/// One broken figure in a reply must not lock an account for the rest of the month.
#[tokio::test]
async fn one_absurd_usage_spends_no_budget_and_teaches_no_estimate() {
    let Opened { ledger, .. } = open([Limit::tokens(DAY, 1_000_000)]).await;
    let absurd = Usage { input: 100, output: 1 << 50, total: 1 << 53, ..Usage::default() };
    for _ in 0..100 {
        let estimate = ledger.estimate("a", "m", 100, Some(100), 1);
        assert_eq!(estimate.total(), 200, "as if nothing had been answered");
        let hold = ledger.reserve("a", Ask::new("m", estimate)).await.unwrap().held().unwrap();
        let huge = Usage { input: 1 << 50, ..absurd };
        assert_eq!(hold.settle(huge).await.unwrap().charged, Amount::new(200, 1));
    }
    let hold = ledger.reserve("a", Ask::new("m", 800)).await.unwrap().held().unwrap();
    hold.settle(absurd).await.unwrap();
    assert_eq!(rows(&ledger).await.pop().unwrap().usage, Some(absurd), "kept for the audit");
    assert_eq!(ledger.usage("a").await.unwrap().limits[0].sum.used(), 20_800);
    assert!(ledger.audit().await.unwrap().is_balanced());
}

#[tokio::test]
async fn the_next_attempt_is_the_same_call_under_the_same_idempotency_key() {
    let Opened { ledger, .. } = open([Limit::calls(DAY, 3)]).await;
    let ask = || Ask::new("m", 100).calls(3).idempotent("order 17");
    let hold = ledger.reserve("a", ask()).await.unwrap().held().unwrap();
    // What the caller says of calls and keys does not matter.
    let other = Ask::new("n", 50).calls(9).idempotent("another").request_id("r2");
    let next = hold.turn_over(Outcome::ServerError, other).await.unwrap().next.held().unwrap();
    assert_eq!((next.reserved(), next.row().request_id.as_str()), (Amount::new(50, 3), "r2"));
    match ledger.reserve("a", ask()).await.unwrap() {
        Reserved::Replayed(replayed) => assert_eq!(replayed.id, next.id()),
        other => panic!("{other:?}"),
    }
    next.settle(20).await.unwrap();
    assert_eq!(ledger.usage("a").await.unwrap().day.calls.settled, 3);
}

#[tokio::test]
async fn a_repeat_says_in_plain_words_that_it_must_not_be_sent() {
    let Opened { ledger, clock } = open([]).await;
    let ask = || Ask::new("m", 100).idempotent("order 17");
    let hold = ledger.reserve("a", ask()).await.unwrap().held().unwrap();
    let told = async || match ledger.reserve("a", ask()).await.unwrap() {
        Reserved::Replayed(replayed) => replayed.to_string(),
        other => panic!("{other:?}"),
    };
    let id = hold.id();
    let wanted = |what: &str| {
        format!(
            "this request was made before under the same idempotency key and {what} (row {id}); \
             it must not be sent again"
        )
    };
    assert_eq!(told().await, wanted("is still under way"));
    drop(hold);
    clock.advance(Duration::from_secs(901));
    ledger.sweep().await.unwrap();
    assert_eq!(told().await, wanted("was not heard of again"));
    ledger.settle(id, 10).await.unwrap();
    assert_eq!(told().await, wanted("is settled"));
    let error = ledger.reserve("a", Ask::new("m", 101).idempotent("order 17")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DifferentAsk);
}

/// A hold dropped in silence stays charged, and the sweep makes it final
/// (<https://github.com/SatcherInstitute/health-equity-tracker/issues/5170>).
#[tokio::test]
async fn a_hold_dropped_in_silence_stays_charged_until_the_sweep() {
    let Opened { ledger, clock } = open([Limit::tokens(DAY, 1_000)]).await;
    let hold = ledger.reserve("a", Ask::new("m", 700)).await.unwrap().held().unwrap();
    let id = hold.id();
    drop(hold);
    assert!(ledger.reserve("a", Ask::new("m", 700)).await.unwrap().denied().is_some());
    clock.advance(Duration::from_secs(901));
    let swept = ledger.sweep().await.unwrap();
    assert_eq!((swept.rows, swept.tokens), (1, 700));
    assert_eq!(ledger.usage("a").await.unwrap().day.tokens.settled, 700);
    // Whoever had it turns up after all.
    assert_eq!(ledger.settle(id, 50).await.unwrap().how, SettledHow::AfterSweep);
    assert_eq!(ledger.usage("a").await.unwrap().day.tokens.settled, 50);
    assert_eq!(ledger.release(id).await.unwrap_err().kind(), ErrorKind::SettledOtherwise);
}

#[tokio::test]
async fn a_stream_longer_than_the_sweeps_age_renews() {
    let Opened { ledger, clock } = open([]).await;
    let hold = ledger.reserve("a", Ask::new("m", 700)).await.unwrap().held().unwrap();
    for _ in 0..4 {
        clock.advance(ledger.sweep_after() * 2 / 3);
        assert_eq!(hold.renew().await.unwrap(), RowState::Reserved);
        assert_eq!(ledger.sweep().await.unwrap().rows, 0);
    }
    assert_eq!(hold.settle(300).await.unwrap().how, SettledHow::First);
}

#[tokio::test]
async fn rules_change_while_rows_are_open() {
    let Opened { ledger, .. } = open([Limit::tokens(DAY, 1_000)]).await;
    let hold = ledger.reserve("a", Ask::new("m", 900)).await.unwrap().held().unwrap();
    let rules = LedgerRules::new().account("a", [Limit::tokens(DAY, 500)]).unwrap();
    assert!(ledger.set_rules(rules).is_empty());
    let denied = ledger.reserve("a", Ask::new("m", 1)).await.unwrap().denied().unwrap();
    assert_eq!((denied.used(), denied.left()), (900, 0));
    hold.settle(100).await.unwrap();
    let hold = ledger.reserve("a", Ask::new("m", 400)).await.unwrap().held().unwrap();
    // The account itself may go while somebody holds: what was spent is booked all the same.
    ledger.set_rules(LedgerRules::new());
    assert_eq!(
        ledger.reserve("a", Ask::new("m", 1)).await.unwrap_err().kind(),
        ErrorKind::UnknownAccount
    );
    hold.settle(399).await.unwrap();
    assert_eq!(ledger.usage("a").await.unwrap().ever.tokens.settled, 499);
}

#[tokio::test]
async fn caps_that_give_out_over_nine_tenths_of_the_allowance_are_told() {
    let rules = |batch| {
        LedgerRules::new()
            .account("triage", [Limit::tokens(DAY, 3_000_000), Limit::calls(DAY, 60)])
            .unwrap()
            .account("batch", [Limit::tokens(DAY, batch)])
            .unwrap()
            .allowance([Limit::tokens(DAY, 10_000_000), Limit::tokens(Period::Month, 1)])
    };
    let Opened { ledger, .. } = open([]).await;
    assert_eq!(ledger.set_rules(rules(6_000_000)), [], "exactly nine tenths");
    let told = ledger.set_rules(rules(6_500_000));
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].given_out, told[0].percent()), (9_500_000, 95));
    assert_eq!(
        told[0].to_string(),
        "the accounts' caps add up to 9500000 tokens, which is 95 % of the allowance of \
         10000000 tokens a day"
    );
    assert_eq!(ledger.set_rules(rules(u64::MAX))[0].given_out, u64::MAX, "and do not wrap");
}

#[tokio::test]
async fn a_timeout_is_charged_as_its_owner_says() {
    let Opened { ledger, .. } = open([]).await;
    let mut rules = (*ledger.rules()).clone();
    rules.charge_timeouts = false;
    for (rules, charged) in [((*ledger.rules()).clone(), 700), (rules, 0)] {
        ledger.set_rules(rules);
        let hold = ledger.reserve("a", Ask::new("m", 700)).await.unwrap().held().unwrap();
        assert_eq!(hold.settle(Outcome::Lost).await.unwrap().charged.tokens, charged);
    }
}

/// <https://github.com/BerriAI/litellm/issues/40002>: a reservation that was not a bound.
#[tokio::test]
async fn estimates_learn_from_what_calls_really_used_and_outlive_the_ledger() {
    let store: Arc<dyn LedgerStore> = Arc::new(MemoryStore::new(DateTime::UNIX_EPOCH));
    let open = || Ledger::builder().account("a", []).store(Arc::clone(&store)).open();
    let ledger = open().await.unwrap();
    let estimate = |ledger: &Ledger| ledger.estimate("a", "m", 1_000, Some(500), 3);
    assert_eq!(estimate(&ledger), Estimate { guess: 1_000, input: 1_000, output: 1_500 });
    for i in 0..100 {
        let ask = Ask::new("m", estimate(&ledger));
        let hold = ledger.reserve("a", ask).await.unwrap().held().unwrap();
        hold.settle(actual(if i % 10 == 0 { 1_400 } else { 900 }, 10)).await.unwrap();
    }
    assert_eq!(ledger.correction("m"), 1.4);
    // An answer that was cut says nothing of its whole input.
    for _ in 0..100 {
        let hold = ledger.reserve("a", Ask::new("m", Estimate::new(10, 1))).await.unwrap();
        let cut = actual(1_000, 0);
        hold.held().unwrap().settle(cut.outcome(Outcome::CutShort)).await.unwrap();
    }
    assert_eq!(estimate(&ledger).input, 1_400);
    assert_eq!(estimate(&ledger).guess, 1_000, "what is compared stays uncorrected");

    assert_eq!(open().await.unwrap().correction("m"), 1.4);
}

#[tokio::test]
async fn an_answer_without_a_bound_is_taken_for_the_accounts_default() {
    let Opened { ledger, .. } = open([]).await;
    assert_eq!(ledger.estimate("a", "m", 10, None, 2).output, 2 * 8_192);
    assert_eq!(ledger.estimate("a", "m", 10, None, 0).output, 8_192);
    let mut rules = (*ledger.rules()).clone();
    rules.accounts.entry("a".parse().unwrap()).or_default().default_max_output = Some(100);
    ledger.set_rules(rules);
    assert_eq!(ledger.estimate("a", "m", 10, None, 1).total(), 110);
    assert_eq!(ledger.estimate("a", "m", u64::MAX, Some(u64::MAX), 9).total(), u64::MAX);
}

#[tokio::test]
async fn a_settlement_may_leave_a_note() {
    let Opened { ledger, .. } = open([]).await;
    let hold = ledger.reserve("a", Ask::new("m", 10).note("before")).await.unwrap().held().unwrap();
    let actual = Actual::from(Outcome::CutShort).note("the user closed the page");
    hold.settle(actual).await.unwrap();
    let row = rows(&ledger).await.remove(0);
    assert_eq!(
        (row.note.as_str(), row.outcome),
        ("the user closed the page", Some(Outcome::CutShort))
    );
    assert_eq!(row.settled_at, Some(row.reserved_at));
}

#[tokio::test]
async fn bad_values_are_told_when_the_ledger_is_opened() {
    let bad = [
        Ledger::builder().account("", []),
        Ledger::builder().account("a", []).account(" b", []),
        Ledger::builder().sweep_after(Duration::ZERO),
    ];
    for builder in bad {
        let error = builder.in_memory().open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let Opened { ledger, .. } = open([]).await;
    let error = ledger.reserve("b", Ask::new("m", 1)).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no account b; known: a");
    assert_eq!(ledger.rows(RowQuery::default()).await.unwrap(), []);
    // Of thousands, the error names some.
    let many = (0..1_000).fold(LedgerRules::new(), |rules, i| {
        rules.account(&format!("project {i:03}"), []).unwrap()
    });
    ledger.set_rules(many);
    let error = ledger.reserve("b", Ask::new("m", 1)).await.unwrap_err().to_string();
    assert!(error.ends_with(", project 009 and 990 more"), "{error}");
}

/// The whole over many accounts: each has a cap, and together they have one.
#[tokio::test]
async fn the_allowance_is_everybodys() {
    let rules = LedgerRules::new()
        .account("a", [Limit::tokens(DAY, 800)])
        .unwrap()
        .account("b", [Limit::tokens(DAY, 800)])
        .unwrap()
        .allowance([Limit::tokens(DAY, 1_000)]);
    let Opened { ledger, clock } = open([]).await;
    ledger.set_rules(rules);
    let held = ledger.reserve("a", Ask::new("m", 700)).await.unwrap().held().unwrap();
    let denied = ledger.reserve("b", Ask::new("m", 301)).await.unwrap().denied().unwrap();
    assert!(denied.to_string().contains("the whole allowance's 1000 tokens a day"), "{denied}");
    let second = ledger.reserve("b", Ask::new("m", 300)).await.unwrap().held().unwrap();
    held.settle(100).await.unwrap();
    second.settle(250).await.unwrap();
    let all = ledger.usage_of_all().await.unwrap();
    assert_eq!((all.day.tokens.used(), all.limits[0].left()), (350, 650));
    let b = ledger.usage("b").await.unwrap();
    let left: Vec<_> = b.limits.iter().map(keywheel_ledger::LimitStanding::left).collect();
    assert_eq!(left, [550, 650]);
    clock.advance(Duration::from_hours(24));
    assert_eq!(ledger.usage("b").await.unwrap().day.tokens.used(), 0);
    assert_eq!(ledger.usage("b").await.unwrap().ever.tokens.used(), 250);
}

#[tokio::test]
async fn every_future_can_be_spawned() {
    fn spawnable<T: Send>(_: T) {}
    let Opened { ledger, .. } = open([]).await;
    let all = RowQuery::default;
    spawnable(Ledger::builder().open());
    spawnable(ledger.reserve("a", Ask::new("m", 1)));
    let hold = || async { ledger.reserve("a", Ask::new("m", 1)).await.unwrap().held().unwrap() };
    let one = hold().await;
    spawnable(one.renew());
    spawnable(ledger.settle(one.id(), 1));
    spawnable(ledger.release(one.id()));
    spawnable(one.turn_over(Outcome::Refused, Ask::new("m", 1)));
    spawnable(hold().await.settle(1));
    spawnable(hold().await.release());
    spawnable((ledger.sweep(), ledger.prune(), ledger.audit(), ledger.info()));
    spawnable((ledger.usage("a"), ledger.usage_of_all(), ledger.rows(all())));
    spawnable((ledger.report(GroupBy::Key, all()), ledger.estimates(all())));
    spawnable((ledger.overruns(all()), ledger.swept(all())));
    spawnable(ledger.export(ExportFormat::Csv, all()).next());
}

#[tokio::test]
async fn a_call_that_does_not_fit_is_told_as_one() {
    let calls = Limit::calls(Period::Day, 0);
    let ledger = Ledger::builder().account("a", [calls]).in_memory().open().await.unwrap();
    let denied = ledger.reserve("a", Ask::new("m", 1)).await.unwrap().denied().unwrap();
    assert_eq!(
        denied.to_string(),
        "the call does not fit into account a's 0 calls a day: that is more than the whole limit"
    );
}
