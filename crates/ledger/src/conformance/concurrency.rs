//! Many at once, on several threads.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use crate::{
    Amount, Ask, LedgerError, LedgerRules, LedgerStore, Limit, Period, Reserving, Row, RowQuery,
    RowState, Span, store::StoreFuture,
};

use super::desk::{AGE, Desk, account, at_once, of_account, tokens_of, used};

/// Asks with every one of `asks` at once, each from a task of its own.
async fn all_at_once(desk: &Desk, asks: Vec<(String, Ask)>) -> Vec<Reserving> {
    let ask = |(name, ask): (String, Ask)| {
        let desk = desk.clone();
        async move { desk.ask(&name, ask).await.expect("the store works") }
    };
    at_once(asks, ask).await
}

fn granted(answers: Vec<Reserving>) -> Vec<Row> {
    let rows = answers.into_iter().filter_map(|one| match one {
        Reserving::Granted(row, _) => Some(*row),
        Reserving::Denied(_) | Reserving::Replayed(_) => None,
    });
    rows.collect()
}

pub(super) async fn ten_callers_of_300_get_exactly_three(store: Arc<dyn LedgerStore>) {
    for round in 0..20 {
        let mut desk = Desk::with(Arc::clone(&store), []);
        let name = format!("a{round}");
        desk.set_rules(account(LedgerRules::new(), &name, [Limit::tokens(Period::Day, 1_000)]));
        let asks = (0..10).map(|_| (name.clone(), tokens_of(300))).collect();
        assert_eq!(granted(all_at_once(&desk, asks).await).len(), 3, "round {round}");
        let total = desk.total(of_account(&name, Span::Ever)).await;
        assert_eq!(used(total), Amount::new(900, 3));
        desk.balanced().await;
    }
}

pub(super) async fn sixty_four_tasks_never_pass_a_cap_and_leave_no_unit_unusable(
    store: Arc<dyn LedgerStore>,
) {
    const CAP: u64 = 1_000;
    let desk = Desk::with_cap(store, CAP);
    let spend = |seed| {
        let desk = desk.clone();
        async move {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut kept = 0;
            for round in 0..20 {
                let Ok(Reserving::Granted(row, _)) = desk.ask("a", tokens_of(rng.u64(1..90))).await
                else {
                    continue;
                };
                let today = desk.today().await.tokens;
                assert!(today.used() <= CAP, "{} of {CAP} are used", today.used());
                // Most give all of it back; some keep a little.
                let tokens = if round % 10 == 0 { row.amount().tokens.min(3) } else { 0 };
                kept += desk.settled(row.id, tokens).await.charged.tokens;
            }
            kept
        }
    };
    let kept: u64 = at_once(0..64, spend).await.into_iter().sum();
    let today = desk.today().await.tokens;
    assert_eq!((today.settled, today.reserved), (kept, 0));
    // What is left can be had to the last unit.
    desk.held(CAP - kept).await;
    desk.denied("a", tokens_of(1)).await;
    desk.balanced().await;
}

pub(super) async fn every_limit_holds_at_once_under_load(store: Arc<dyn LedgerStore>) {
    let own = |calls| [Limit::tokens(Period::Day, 500), Limit::calls(Period::Month, calls)];
    let rules = account(account(LedgerRules::new(), "a", own(100)), "b", own(7));
    let rules = account(rules, "c", own(100));
    let whole = [Limit::tokens(Period::Total, 900), Limit::calls(Period::Day, 40).for_model("m")];
    let desk = Desk::new(store, rules.allowance(whole));
    let asks = (0..192).map(|i| {
        let name = ["a", "b", "c"][i % 3];
        (name.to_owned(), Ask::new(if i % 2 == 0 { "m" } else { "n" }, 10 + i as u64 % 4))
    });
    let rows = granted(all_at_once(&desk, asks.collect()).await);
    let sum = |name: &str| {
        let rows = rows.iter().filter(|row| name.is_empty() || row.account.as_str() == name);
        rows.fold(Amount::ZERO, |sum, row| Amount {
            tokens: sum.tokens + row.amount().tokens,
            calls: sum.calls + 1,
        })
    };
    let (a, b, c, all) = (sum("a"), sum("b"), sum("c"), sum(""));
    assert!(a.tokens <= 500 && c.tokens <= 500, "{a:?} {c:?}");
    assert_eq!(b.calls, 7);
    // No more than the allowance, and no room in it for even the smallest ask.
    assert!((887..=900).contains(&all.tokens), "{all:?}");
    assert!(rows.iter().filter(|row| &*row.model == "m").count() <= 40);
    assert_eq!(desk.balanced().await, rows.len() as u64);
}

pub(super) async fn a_denial_spoils_nothing_beside_it(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    // Every other ask is too large, has no account, or repeats a key for something else.
    desk.granted("a", tokens_of(4).idempotent("k")).await;
    let ask = |i: u64| {
        let desk = desk.clone();
        async move {
            let answer = match i % 4 {
                0 => desk.ask("a", tokens_of(5_000)).await,
                1 => desk.ask("nobody", tokens_of(1)).await,
                2 => desk.ask("a", tokens_of(i).idempotent("k")).await,
                _ => desk.ask("a", tokens_of(10)).await,
            };
            (i % 4, answer)
        }
    };
    for (kind, answer) in at_once(0..120, ask).await {
        match (kind, answer) {
            (0, Ok(Reserving::Denied(denied))) => assert!(denied.never_fits()),
            (1 | 2, Err(_)) | (3, Ok(Reserving::Granted(..))) => {}
            (kind, answer) => panic!("{kind}: {answer:?}"),
        }
    }
    assert_eq!(used(desk.today().await), Amount::new(304, 31));
    assert_eq!(desk.balanced().await, 31);
}

/// One poll, and what came of it.
fn polled<T>(future: &mut StoreFuture<'_, T>) -> Option<Result<T, LedgerError>> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => Some(ready),
        Poll::Pending => None,
    }
}

/// Each future is dropped before its first poll, after it, or after some time.
pub(super) async fn callers_who_go_away_leave_nothing_behind(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 10_000);
    for polls in 0..60 {
        let mut reserving = desk.store.reserve(desk.reservation("a", tokens_of(100)));
        let mut answer = None;
        for _ in 0..polls % 3 {
            answer = polled(&mut reserving);
            if answer.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(reserving);
        // Who got an answer settles, and may go away in that, too.
        if let Some(Ok(Reserving::Granted(row, _))) = answer {
            let mut settling = desk.store.settle(desk.settlement(row.id, 1));
            if polls % 2 == 0 {
                let _ = polled(&mut settling);
            }
        }
    }
    // Whatever the store does about it, the sweep ends it, and all adds up.
    let last = desk.held(1).await;
    desk.settled(last.id, 1).await;
    desk.clock.advance(AGE * 2);
    while !desk.sweep().await.is_empty() {}
    desk.balanced().await;
    let open = RowQuery { state: Some(RowState::Reserved), ..RowQuery::default() };
    assert_eq!(desk.rows(open).await, []);
    assert_eq!(desk.today().await.tokens.reserved, 0);
}
