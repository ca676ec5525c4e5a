//! What becomes of an ask that is made twice.

use std::{sync::Arc, time::Duration};

use crate::{
    Amount, ErrorKind, LedgerRules, LedgerStore, Replayed, Reserving, RowState,
    decide::KEEP_IDEMPOTENCY,
};

use super::desk::{AGE, Desk, account, at_once, tokens_of, used};

fn keyed(tokens: u64) -> crate::Ask {
    tokens_of(tokens).idempotent("order 17")
}

async fn replayed(desk: &Desk, tokens: u64) -> Replayed {
    match desk.ask("a", keyed(tokens)).await.expect("the store works") {
        Reserving::Replayed(replayed) => replayed,
        other => panic!("not told that it is a repeat: {other:?}"),
    }
}

pub(super) async fn a_repeat_is_told_and_never_granted(store: Arc<dyn LedgerStore>) {
    let mut desk = Desk::with_cap(store, 1_000);
    let row = desk.granted("a", keyed(600)).await;
    let open = Replayed { id: row.id, state: RowState::Reserved, charged: None };
    assert_eq!(replayed(&desk, 600).await, open);
    assert_eq!(used(desk.today().await), Amount::new(600, 1));

    desk.settled(row.id, 120).await;
    let done =
        Replayed { state: RowState::Settled, charged: Some(Amount::new(120, 1)), ..open.clone() };
    assert_eq!(replayed(&desk, 600).await, done);
    // Also where the limit would not let it through any more.
    desk.set_rules(account(LedgerRules::new(), "a", [crate::Limit::tokens(crate::Period::Day, 1)]));
    assert_eq!(replayed(&desk, 600).await, done);

    // Keys are an account's own.
    desk.set_rules(account(desk.rules.as_ref().clone(), "b", []));
    desk.granted("b", keyed(600)).await;
    // A denial leaves no trace: the same key may be granted later.
    desk.denied("a", tokens_of(500).idempotent("another")).await;
    desk.set_rules(account(LedgerRules::new(), "a", []));
    desk.granted("a", tokens_of(500).idempotent("another")).await;
    assert_eq!(desk.balanced().await, 3);
}

pub(super) async fn a_repeat_is_recognised_for_24_hours_after_settlement(
    store: Arc<dyn LedgerStore>,
) {
    let day = Duration::from_secs(KEEP_IDEMPOTENCY.num_seconds().unsigned_abs());
    let desk = Desk::with(store, []);
    let row = desk.granted("a", keyed(600)).await;
    // As long as it is open, however long that is.
    for _ in 0..5 {
        desk.clock.advance(day);
        desk.store.renew(row.id, desk.now()).await.expect("the store works");
        assert_eq!(replayed(&desk, 600).await.state, RowState::Reserved);
    }
    desk.clock.advance(AGE * 2);
    desk.sweep().await;
    assert_eq!(replayed(&desk, 600).await.state, RowState::Swept);
    desk.clock.advance(AGE);
    desk.settled(row.id, 0).await;
    desk.clock.advance(day - Duration::from_millis(1));
    assert_eq!(replayed(&desk, 600).await.state, RowState::Released);
    desk.clock.advance(Duration::from_millis(1));
    let second = desk.granted("a", keyed(600)).await;
    assert_ne!(second.id, row.id);
    assert_eq!(replayed(&desk, 600).await.id, second.id, "the newest one counts");
    desk.balanced().await;
}

pub(super) async fn the_same_key_for_something_else_is_an_error(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let row = desk.granted("a", keyed(600)).await;
    let error = desk.ask("a", keyed(601)).await.expect_err("another ask");
    assert_eq!(error.kind(), ErrorKind::DifferentAsk);
    desk.settled(row.id, 600).await;
    let error = desk.ask("a", tokens_of(600).idempotent_by("order 17", b"{}")).await;
    assert_eq!(error.expect_err("another ask").kind(), ErrorKind::DifferentAsk);
    assert_eq!(desk.balanced().await, 1);
}

pub(super) async fn of_many_repeats_at_once_one_is_granted(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let ask = |_| {
        let desk = desk.clone();
        async move { desk.ask("a", keyed(10)).await.expect("the store works") }
    };
    let answers = at_once(0..32, ask).await;
    let granted = answers.iter().filter(|one| matches!(one, Reserving::Granted(..))).count();
    let replayed = answers.iter().filter(|one| matches!(one, Reserving::Replayed(_))).count();
    assert_eq!((granted, replayed), (1, 31));
    assert_eq!(desk.balanced().await, 1);
}

pub(super) async fn a_key_moves_on_with_its_call(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let first = desk.granted("a", keyed(600)).await;
    let next = desk.reservation("a", keyed(600));
    let turned = desk.store.turn_over(desk.settlement(first.id, 0), next).await;
    let (_, Reserving::Granted(next, _)) = turned.expect("the store works") else {
        panic!("a turnover does not look the key up");
    };
    let told = replayed(&desk, 600).await;
    assert_eq!((told.id, told.state), (next.id, RowState::Reserved), "the latest attempt counts");
    desk.settled(next.id, 50).await;
    assert_eq!(replayed(&desk, 600).await.charged, Some(Amount::new(50, 1)));
}
