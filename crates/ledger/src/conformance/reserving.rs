//! What is granted, what is denied, and what a denial leaves.

use std::sync::Arc;

use keywheel_core::Fingerprint;

use crate::{
    Amount, Ask, ErrorKind, Estimate, LARGEST, LedgerRules, LedgerStore, Limit, Period, Reserving,
    RowQuery, RowState, Scope, Span, Unit,
};

use super::desk::{Desk, MODEL, account, moment, of_account, tokens_of, used};

pub(super) async fn a_cap_of_1000_takes_600_once(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    let row = desk.held(600).await;
    assert_eq!((row.state, row.charged), (RowState::Reserved, None));
    assert_eq!(row.day.to_string(), "2026-11-30");

    let denied = desk.denied("a", tokens_of(600)).await;
    assert_eq!((denied.settled, denied.reserved, denied.asked), (0, 600, 600));
    assert_eq!((denied.used(), denied.left()), (600, 400));
    assert_eq!(denied.limit, Limit::tokens(Period::Day, 1_000));
    assert_eq!(denied.scope, Scope::Account("a".parse().expect("a name")));
    assert_eq!(denied.retry_at, Some(moment("2026-12-01T08:00:00Z")));
    assert!(denied.may_fit_once_others_settle() && !denied.never_fits());

    desk.held(400).await;
    let denied = desk.denied("a", tokens_of(1)).await;
    assert_eq!(denied.left(), 0);
    assert_eq!(desk.balanced().await, 2);
}

pub(super) async fn what_a_settlement_gives_back_can_be_reserved_at_once(
    store: Arc<dyn LedgerStore>,
) {
    let desk = Desk::with_cap(store, 1_000);
    let row = desk.held(800).await;
    let settled = desk.settled(row.id, 120).await;
    assert_eq!((settled.charged, settled.overrun()), (Amount::new(120, 1), 0));
    let today = desk.today().await;
    assert_eq!((today.tokens.settled, today.tokens.reserved), (120, 0));

    let denied = desk.denied("a", tokens_of(881)).await;
    assert_eq!(denied.left(), 880);
    desk.held(800).await;
    let today = desk.today().await;
    assert_eq!((today.tokens.settled, today.tokens.reserved), (120, 800));
    desk.balanced().await;
}

pub(super) async fn a_denial_writes_nothing(store: Arc<dyn LedgerStore>) {
    // The account's own limits, which come first, let it through: only the last one does not.
    let own = [Limit::tokens(Period::Day, 1_000), Limit::calls(Period::Day, 5)];
    let rules = account(LedgerRules::new(), "a", own);
    let desk = Desk::new(store, rules.allowance([Limit::tokens(Period::Month, 100)]));
    let denied = desk.denied("a", tokens_of(101)).await;
    assert_eq!(denied.scope, Scope::Whole);
    assert_eq!(used(desk.today().await), Amount::ZERO);
    assert_eq!(desk.rows(RowQuery::default()).await, []);
    assert_eq!(desk.balanced().await, 0);
    // Nor does it take from what others may have.
    desk.held(100).await;
}

pub(super) async fn every_kind_of_limit_holds_alone(store: Arc<dyn LedgerStore>) {
    let mut desk = Desk::new(store, LedgerRules::new());
    for unit in [Unit::Tokens, Unit::Calls] {
        for period in [Period::Day, Period::Month, Period::Total] {
            for one_model in [true, false] {
                for whole in [true, false] {
                    let limit = Limit::new(unit, period, 10);
                    limit_holds_alone(&mut desk, limit, one_model, whole).await;
                }
            }
        }
    }
    desk.balanced().await;
}

async fn limit_holds_alone(desk: &mut Desk, mut limit: Limit, one_model: bool, whole: bool) {
    // Names of its own, so that the limits do not meet. What limits everything meets what the
    // others used, and stands on that.
    let own = format!("{limit} {one_model} {whole}");
    let other = format!("not {own}");
    if one_model {
        limit = limit.for_model(&own);
    }
    let rules = LedgerRules::new().any_account();
    if whole {
        let day = desk.reservation("x", tokens_of(1)).day;
        limit.cap += used(desk.total(limit.total_key(Scope::Whole, day)).await).of(limit.unit);
        desk.set_rules(rules.allowance([limit.clone()]));
    } else {
        desk.set_rules(account(rules, &own, [limit.clone()]));
    }
    let ask = |model: &str, size: u64| match limit.unit {
        Unit::Tokens => Ask::new(model, size),
        Unit::Calls => Ask::new(model, 1).calls(size),
    };
    desk.granted(&own, ask(&own, 6)).await;
    assert_eq!(desk.denied(&own, ask(&own, 5)).await.limit, limit, "{own}");
    // What it does not concern, it does not hold back.
    if one_model {
        desk.granted(&own, ask(&other, 5)).await;
    }
    if !whole {
        desk.granted(&other, ask(&own, 5)).await;
    }
    desk.granted(&own, ask(&own, 4)).await;
    desk.denied(&own, ask(&own, 1)).await;
}

pub(super) async fn a_limit_added_at_noon_knows_the_morning(store: Arc<dyn LedgerStore>) {
    let mut desk = Desk::with(store, []);
    let row = desk.held(700).await;
    desk.settled(row.id, 650).await;
    desk.held(50).await;
    for limit in [
        Limit::tokens(Period::Day, 1_000),
        Limit::tokens(Period::Month, 1_000).for_model(MODEL),
        Limit::tokens(Period::Total, 1_000),
    ] {
        desk.set_rules(account(LedgerRules::new(), "a", [limit.clone()]));
        let denied = desk.denied("a", tokens_of(301)).await;
        assert_eq!((denied.settled, denied.reserved), (650, 50), "{limit}");
        desk.set_rules(account(LedgerRules::new(), "a", []).allowance([limit]));
        assert_eq!(desk.denied("a", tokens_of(301)).await.used(), 700);
    }
    desk.set_rules(account(LedgerRules::new(), "a", [Limit::calls(Period::Day, 2)]));
    assert_eq!(desk.denied("a", tokens_of(1)).await.used(), 2);
}

pub(super) async fn a_cap_lowered_under_open_rows_denies_and_takes_nothing_back(
    store: Arc<dyn LedgerStore>,
) {
    let mut desk = Desk::with_cap(store, 1_000);
    let (one, two) = (desk.held(400).await, desk.held(500).await);
    desk.set_rules(account(LedgerRules::new(), "a", [Limit::tokens(Period::Day, 300)]));
    let denied = desk.denied("a", tokens_of(1)).await;
    assert_eq!((denied.used(), denied.left()), (900, 0));
    // Who holds may still settle, at more than the new cap, too.
    desk.settled(one.id, 350).await;
    assert_eq!(desk.denied("a", tokens_of(1)).await.used(), 850);
    desk.settled(two.id, 0).await;
    assert_eq!(desk.denied("a", tokens_of(1)).await.used(), 350);
    desk.set_rules(account(LedgerRules::new(), "a", [Limit::tokens(Period::Day, 351)]));
    desk.held(1).await;
    desk.balanced().await;
}

pub(super) async fn an_ask_larger_than_the_cap_never_fits(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(Arc::clone(&store), 1_000);
    let denied = desk.denied("a", tokens_of(1_001)).await;
    assert!(denied.never_fits());
    assert_eq!(denied.retry_at, None);

    let desk = Desk::with_cap(store, 0);
    assert!(desk.denied("a", tokens_of(1)).await.never_fits());
    assert_eq!(desk.balanced().await, 0);
}

pub(super) async fn of_several_limits_the_one_that_holds_longest_is_named(
    store: Arc<dyn LedgerStore>,
) {
    let limits =
        [Period::Day, Period::Total, Period::Month].map(|period| Limit::tokens(period, 100));
    let mut desk = Desk::with(store, limits);
    desk.held(60).await;
    let denied = desk.denied("a", tokens_of(60)).await;
    assert_eq!((denied.limit.period, denied.retry_at), (Period::Total, None));
    let limits = [Period::Day, Period::Month].map(|period| Limit::tokens(period, 100));
    desk.set_rules(account(LedgerRules::new(), "a", limits));
    let denied = desk.denied("a", tokens_of(60)).await;
    // The first of December, which is tomorrow for both: either is right, the moment is the same.
    assert_eq!(denied.retry_at, Some(moment("2026-12-01T08:00:00Z")));
}

pub(super) async fn a_grant_names_the_fullest_limit_with_itself_counted_in(
    store: Arc<dyn LedgerStore>,
) {
    let limits = [Limit::tokens(Period::Month, 10_000), Limit::tokens(Period::Day, 1_000)];
    let rules = account(account(LedgerRules::new(), "a", limits), "b", []);
    let desk = Desk::new(store, rules.allowance([Limit::calls(Period::Day, 10)]));
    let fullest = async |account, ask| match desk.ask(account, ask).await {
        Ok(Reserving::Granted(row, fullest)) => (row, fullest.expect("there are limits")),
        other => panic!("not granted: {other:?}"),
    };
    let (row, own) = fullest("a", tokens_of(250)).await;
    assert_eq!(own.limit, Limit::tokens(Period::Day, 1_000));
    assert_eq!((own.sum.settled, own.sum.reserved, own.percent()), (0, 250, 25));
    assert_eq!(own.begins_anew, Some(moment("2026-12-01T08:00:00Z")));
    desk.settled(row.id, 100).await;

    // The allowance's, once others have used more of it.
    fullest("b", tokens_of(1).calls(3)).await;
    let (_, whole) = fullest("a", tokens_of(100)).await;
    assert_eq!((whole.sum.used(), whole.percent(), whole.scope), (5, 50, Scope::Whole));

    // One of whose unit nothing is asked says nothing; as full as another, the first of the rules.
    let (row, month) = fullest("a", tokens_of(0).calls(1)).await;
    assert_eq!((month.limit.unit, month.sum.used()), (Unit::Calls, 6));
    let (_, own) = fullest("a", tokens_of(400).calls(0)).await;
    assert_eq!(
        (own.scope.clone(), own.sum.used(), own.left()),
        (Scope::Account(row.account), 600, 400)
    );

    // In a turnover, with what it gives back left out.
    let (row, own) = fullest("a", tokens_of(400).calls(0)).await;
    assert_eq!(own.percent(), 100);
    let next = desk.reservation("a", tokens_of(300).calls(0));
    let turned = desk.store.turn_over(desk.settlement(row.id, 0), next).await;
    let Ok((_, Reserving::Granted(_, Some(own)))) = turned else { panic!("{turned:?}") };
    assert_eq!((own.sum.settled, own.sum.reserved), (100, 800));
}

pub(super) async fn numbers_near_the_largest_neither_wrap_nor_slip_through(
    store: Arc<dyn LedgerStore>,
) {
    let mut desk = Desk::with_cap(store, u64::MAX);
    let row = desk.held(LARGEST).await;
    let settled = desk.settled(row.id, u64::MAX).await;
    assert_eq!(settled.charged.tokens, LARGEST, "bounded");
    assert_eq!(desk.settled(row.id, u64::MAX).await.charged, settled.charged, "the same again");
    desk.held(LARGEST).await;
    assert_eq!(desk.today().await.tokens.used(), 2 * LARGEST);

    for cap in [2 * LARGEST, 3 * LARGEST - 1] {
        desk.set_rules(account(LedgerRules::new(), "a", [Limit::tokens(Period::Day, cap)]));
        desk.denied("a", tokens_of(LARGEST)).await;
    }
    desk.set_rules(account(LedgerRules::new(), "a", [Limit::tokens(Period::Day, 3 * LARGEST)]));
    desk.held(LARGEST).await;
    desk.denied("a", tokens_of(1)).await;
    assert_eq!(desk.balanced().await, 3);
}

pub(super) async fn an_unknown_account_is_an_error_and_writes_nothing(store: Arc<dyn LedgerStore>) {
    let mut desk = Desk::with_cap(store, 1_000);
    let error = desk.ask("b", tokens_of(1)).await.expect_err("no such account");
    assert_eq!(error.kind(), ErrorKind::UnknownAccount);
    assert_eq!(desk.balanced().await, 0);
    desk.set_rules(LedgerRules::new().any_account());
    desk.granted("b", tokens_of(1)).await;
}

pub(super) async fn a_row_keeps_what_was_asked(store: Arc<dyn LedgerStore>) {
    let desk = Desk::new(store, account(LedgerRules::new(), "Größe 'n\" \\", []));
    let key = Fingerprint::of("AQ.EXAMPLE-key-1");
    let ask = Ask::new("models/m-ü", Estimate::new(1_000, 8_192).corrected(1.5))
        .calls(3)
        .key(key)
        .request_id("req-1; DROP TABLE rows")
        .note("line 1\nline 2 \u{1f511} =1+1")
        .idempotent("k");
    let row = desk.granted("Größe 'n\" \\", ask.clone()).await;
    let found = desk.rows(RowQuery::default()).await;
    assert_eq!(found, std::slice::from_ref(&row));
    assert_eq!(row.estimate, Estimate { guess: 1_000, input: 1_500, output: 8_192 });
    assert_eq!((row.calls, row.key, &row.request_id), (3, Some(key), &ask.request_id));
    assert_eq!((&row.note, &row.idempotency), (&ask.note, &ask.idempotency));
    assert_eq!((row.reserved_at, row.renewed_at, row.settled_at), (desk.now(), None, None));
    // With a number that needs all bits, in every total.
    let key = of_account("Größe 'n\" \\", Span::Ever);
    assert_eq!(used(desk.total(key).await), Amount::new(9_692, 3));
    assert!(matches!(
        desk.ask("Größe 'n\" \\", ask).await.expect("the store works"),
        Reserving::Replayed(_)
    ));
}
