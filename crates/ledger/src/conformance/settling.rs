//! What a settlement changes, and what it must not.

use std::sync::Arc;

use keywheel_core::Usage;

use crate::{
    Amount, Charge, ErrorKind, LedgerRules, LedgerStore, Limit, Outcome, Period, Reserving, RowId,
    RowState, Settled, SettledHow, Settlement, charge::charge,
};

use super::desk::{Desk, account, tokens_of, used};

pub(super) async fn settled_again_at_the_same_figure_nothing_changes(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    let row = desk.held(300).await;
    let first = desk.settled(row.id, 200).await;
    assert_eq!(first.how, SettledHow::First);
    let before = desk.row(row.id).await.expect("the row");
    assert_eq!((before.state, before.charged), (RowState::Settled, Some(Amount::new(200, 1))));

    desk.clock.advance(std::time::Duration::from_secs(1));
    let again = desk.settled(row.id, 200).await;
    assert_eq!(again, Settled { how: SettledHow::Again, ..first });
    assert_eq!(desk.row(row.id).await.expect("the row"), before);
    assert_eq!(used(desk.today().await), Amount::new(200, 1));
    desk.balanced().await;
}

pub(super) async fn settled_again_at_another_figure_is_an_error(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    let row = desk.held(300).await;
    desk.settled(row.id, 200).await;
    for other in [0, 199, 201, u64::MAX] {
        let error = desk.settle(row.id, other).await.expect_err("settled already");
        assert_eq!(error.kind(), ErrorKind::SettledOtherwise, "{other}");
    }
    let released = desk.held(300).await;
    desk.settled(released.id, 0).await;
    let error = desk.settle(released.id, 300).await.expect_err("released already");
    assert_eq!(error.kind(), ErrorKind::SettledOtherwise);
    assert_eq!(used(desk.today().await), Amount::new(200, 1));
    desk.balanced().await;
}

pub(super) async fn more_than_was_reserved_is_charged_and_told(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    let row = desk.held(900).await;
    let settled = desk.settled(row.id, 1_700).await;
    assert_eq!((settled.charged.tokens, settled.overrun()), (1_700, 800));
    assert_eq!(desk.row(row.id).await.expect("the row").overrun(), 800);
    let denied = desk.denied("a", tokens_of(1)).await;
    assert_eq!((denied.used(), denied.left()), (1_700, 0));
    desk.balanced().await;
}

pub(super) async fn a_release_charges_neither_tokens_nor_the_call(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, [Limit::calls(Period::Day, 1)]);
    let row = desk.held(300).await;
    desk.denied("a", tokens_of(300)).await;
    let released = desk.settled(row.id, 0).await;
    assert_eq!(released.charged, Amount::ZERO);
    assert_eq!(desk.row(row.id).await.expect("the row").state, RowState::Released);
    assert_eq!(used(desk.today().await), Amount::ZERO);
    desk.held(300).await;
    desk.balanced().await;
}

pub(super) async fn an_id_that_no_row_has_is_an_error(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    let row = desk.held(300).await;
    let unknown = [
        RowId { nonce: row.id.nonce ^ 1, ..row.id },
        RowId { nonce: row.id.nonce ^ (1 << 127), ..row.id },
        RowId { seq: row.id.seq + 1, ..row.id },
        RowId { seq: 0, nonce: 0 },
        RowId { seq: u64::MAX, ..row.id },
    ];
    for id in unknown {
        let error = desk.settle(id, 100).await.expect_err("no such row");
        assert_eq!(error.kind(), ErrorKind::UnknownId, "{id}");
        let error = desk.store.renew(id, desk.now()).await.expect_err("no such row");
        assert_eq!(error.kind(), ErrorKind::UnknownId, "{id}");
    }
    assert_eq!(used(desk.today().await), Amount::new(300, 1));
    desk.settled(row.id, 100).await;
}

pub(super) async fn every_outcome_is_charged_by_the_table(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let usage = Usage { input: 90, cached: 30, output: 20, thinking: 10, tool: 1, total: 121 };
    let mut sum = Amount::ZERO;
    for outcome in Outcome::ALL {
        for seen in [None, Some(usage), Some(Usage { total: 500, ..usage })] {
            for charge_timeouts in [true, false] {
                let row = desk.held(400).await;
                let settlement = Settlement {
                    charge: Charge::ByOutcome { charge_timeouts },
                    outcome,
                    usage: seen,
                    note: Some(format!("{outcome}")),
                    ..desk.settlement(row.id, 0)
                };
                let settled = desk.store.settle(settlement).await.expect("the store works");
                let wanted = charge(outcome, row.amount(), seen.as_ref(), charge_timeouts);
                assert_eq!(settled.charged, wanted, "{outcome} {seen:?} {charge_timeouts}");
                let row = desk.row(row.id).await.expect("the row");
                assert_eq!((row.outcome, row.usage), (Some(outcome), seen));
                assert_eq!((row.charged, row.note), (Some(wanted), outcome.to_string()));
                sum = Amount::new(sum.tokens + wanted.tokens, sum.calls + wanted.calls);
            }
        }
    }
    assert_eq!(used(desk.today().await), sum);
    desk.balanced().await;
}

/// The cap bounds reservations: what is used beyond it is at most the error of the calls that were
/// in flight when it was reached.
pub(super) async fn estimates_wrong_by_twice_either_way_leave_the_actual_sum(
    store: Arc<dyn LedgerStore>,
) {
    const CAP: u64 = 10_000;
    for (round, wrong) in
        [|estimate: u64| estimate / 2, |estimate: u64| estimate * 2].into_iter().enumerate()
    {
        let mut desk = Desk::with(Arc::clone(&store), []);
        let name = format!("a{round}");
        desk.set_rules(account(LedgerRules::new(), &name, [Limit::tokens(Period::Day, CAP)]));
        let (mut in_flight, mut actual, mut worst) = (Vec::new(), 0, 0);
        for i in 0..1_000 {
            match desk.ask(&name, tokens_of(100 + i % 7)).await.expect("the store works") {
                Reserving::Granted(row, _) => in_flight.push(row),
                Reserving::Denied(_) if in_flight.is_empty() => break,
                Reserving::Denied(_) => {}
                Reserving::Replayed(replayed) => panic!("{replayed}"),
            }
            if in_flight.len() < 8 && i < 900 {
                continue;
            }
            let error = in_flight.iter().map(|row| {
                let estimate = row.amount().tokens;
                wrong(estimate).saturating_sub(estimate)
            });
            worst = worst.max(error.sum::<u64>());
            let row = in_flight.remove(0);
            let tokens = wrong(row.amount().tokens);
            actual += desk.settled(row.id, tokens).await.charged.tokens;
        }
        for row in in_flight {
            let tokens = wrong(row.amount().tokens);
            actual += desk.settled(row.id, tokens).await.charged.tokens;
        }
        let key = super::desk::of_account(&name, crate::Span::Ever);
        let total = desk.total(key).await;
        assert_eq!((total.tokens.settled, total.tokens.reserved), (actual, 0));
        assert!(actual <= CAP + worst, "{actual} used of {CAP}, errors in flight {worst}");
        assert!(actual > CAP * 9 / 10, "{actual} used of {CAP}");
        desk.balanced().await;
    }
}

pub(super) async fn a_turnover_has_room_for_what_it_gives_back(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    let first = desk.held(800).await;
    let next = desk.reservation("a", tokens_of(900));
    let (settled, next) =
        desk.store.turn_over(desk.settlement(first.id, 100), next).await.expect("the store works");
    assert_eq!((settled.charged.tokens, settled.how), (100, SettledHow::First));
    let Reserving::Granted(next, _) = next else { panic!("not granted: {next:?}") };
    let today = desk.today().await;
    assert_eq!((today.tokens.settled, today.tokens.reserved), (100, 900));
    desk.settled(next.id, 50).await;
    assert_eq!(desk.balanced().await, 2);
}

pub(super) async fn a_turnover_moves_the_logical_call_on(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, [Limit::calls(Period::Day, 1)]);
    let mut row = desk.held(100).await;
    for attempt in 0..3 {
        let settlement = Settlement {
            charge: Charge::ByOutcome { charge_timeouts: true },
            outcome: Outcome::ServerError,
            ..desk.settlement(row.id, 0)
        };
        let next = desk.reservation("a", tokens_of(100));
        let (settled, next) = desk.store.turn_over(settlement, next).await.expect("it works");
        assert_eq!(settled.charged, Amount::ZERO, "attempt {attempt}");
        let Reserving::Granted(next, _) = next else { panic!("not granted: {next:?}") };
        row = *next;
    }
    desk.settled(row.id, 70).await;
    assert_eq!(used(desk.today().await), Amount::new(70, 1));
    desk.denied("a", tokens_of(1)).await;
    desk.balanced().await;
}

pub(super) async fn a_turnover_that_is_denied_settles_all_the_same(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    let first = desk.held(800).await;
    let settlement = Settlement {
        charge: Charge::ByOutcome { charge_timeouts: true },
        outcome: Outcome::Lost,
        ..desk.settlement(first.id, 0)
    };
    let next = desk.reservation("a", tokens_of(201));
    let (settled, next) = desk.store.turn_over(settlement, next).await.expect("the store works");
    // No next attempt took the call over, so it stays with this one.
    assert_eq!(settled.charged, Amount::new(800, 1));
    let Reserving::Denied(denied) = next else { panic!("not denied: {next:?}") };
    assert_eq!((denied.settled, denied.reserved, denied.asked), (800, 0, 201));
    assert_eq!(used(desk.today().await), Amount::new(800, 1));
    assert_eq!(desk.balanced().await, 1);
}

pub(super) async fn a_turnover_in_error_changes_nothing(store: Arc<dyn LedgerStore>) {
    let mut desk = Desk::with_cap(store, 1_000);
    let (settled, open) = (desk.held(100).await, desk.held(200).await);
    desk.settled(settled.id, 100).await;
    let next = || desk.reservation("a", tokens_of(10));

    let error = desk.store.turn_over(desk.settlement(settled.id, 99), next()).await;
    assert_eq!(error.expect_err("another figure").kind(), ErrorKind::SettledOtherwise);
    let unknown = RowId { nonce: open.id.nonce ^ 1, ..open.id };
    let error = desk.store.turn_over(desk.settlement(unknown, 99), next()).await;
    assert_eq!(error.expect_err("no such row").kind(), ErrorKind::UnknownId);
    // The account is gone from the rules: the attempt that ended must not be lost with it.
    desk.set_rules(LedgerRules::new());
    let next = desk.reservation("a", tokens_of(10));
    let error = desk.store.turn_over(desk.settlement(open.id, 99), next).await;
    assert_eq!(error.expect_err("no such account").kind(), ErrorKind::UnknownAccount);

    assert_eq!(used(desk.today().await), Amount::new(300, 2));
    assert_eq!(desk.row(open.id).await.expect("the row"), open);
    assert_eq!(desk.balanced().await, 2);
    desk.settled(open.id, 150).await;
}
