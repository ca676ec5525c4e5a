//! What ends rows that nobody settles, and what removes old ones.

use std::{collections::HashSet, sync::Arc, time::Duration};

use crate::{
    Amount, ErrorKind, LedgerStore, Row, RowQuery, RowState, SettledHow, Span, builder::KEEP_ROWS,
    store::BATCH,
};

use super::desk::{AGE, Desk, at_once, of_account, tokens_of, used};

const MS: Duration = Duration::from_millis(1);

pub(super) async fn a_silent_row_is_charged_at_its_estimate(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    let row = desk.held(600).await;
    let settled = desk.held(100).await;
    desk.settled(settled.id, 100).await;
    desk.clock.advance(AGE);
    assert_eq!(desk.sweep().await, [], "not before it is older than that");

    desk.clock.advance(MS);
    let swept = desk.sweep().await;
    assert_eq!(swept.len(), 1);
    assert_eq!((swept[0].id, swept[0].state), (row.id, RowState::Swept));
    assert_eq!(swept[0].charged, Some(Amount::new(600, 1)));
    assert_eq!(swept[0].swept_at, Some(desk.now()));
    assert_eq!(desk.row(row.id).await.as_ref(), swept.first());
    let today = desk.today().await;
    assert_eq!((today.tokens.settled, today.tokens.reserved), (700, 0));
    assert_eq!(desk.sweep().await, [], "once");
    desk.denied("a", tokens_of(301)).await;
    desk.balanced().await;
}

/// A stream that lasts longer than the sweep's age.
pub(super) async fn a_row_that_is_renewed_is_left_alone(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    let row = desk.held(600).await;
    for _ in 0..5 {
        desk.clock.advance(AGE);
        assert_eq!(desk.store.renew(row.id, desk.now()).await.ok(), Some(RowState::Reserved));
        assert_eq!(desk.sweep().await, []);
    }
    assert_eq!(desk.row(row.id).await.expect("the row").renewed_at, Some(desk.now()));
    assert_eq!(desk.settled(row.id, 500).await.how, SettledHow::First);
    assert_eq!(desk.store.renew(row.id, desk.now()).await.ok(), Some(RowState::Settled));

    let row = desk.held(300).await;
    desk.clock.advance(AGE + MS);
    assert_eq!(desk.sweep().await.len(), 1);
    // Too late: it is said, and the row does not open again.
    assert_eq!(desk.store.renew(row.id, desk.now()).await.ok(), Some(RowState::Swept));
    assert_eq!(desk.row(row.id).await.expect("the row").renewed_at, None);
    desk.balanced().await;
}

pub(super) async fn a_late_settlement_books_the_true_figure_once(store: Arc<dyn LedgerStore>) {
    for (figure, state) in
        [(40, RowState::Settled), (0, RowState::Released), (900, RowState::Settled)]
    {
        let desk = Desk::with_cap(Arc::clone(&store), 100_000);
        let before = used(desk.today().await);
        let row = desk.held(600).await;
        desk.clock.advance(AGE + MS);
        desk.sweep().await;
        let late = desk.settled(row.id, figure).await;
        assert_eq!((late.how, late.charged.tokens), (SettledHow::AfterSweep, figure));
        assert_eq!(used(desk.today().await).tokens, before.tokens + figure);
        assert_eq!(desk.settled(row.id, figure).await.how, SettledHow::Again);
        let error = desk.settle(row.id, 600).await.expect_err("settled at another figure");
        assert_eq!(error.kind(), ErrorKind::SettledOtherwise);
        let row = desk.row(row.id).await.expect("the row");
        assert_eq!(row.state, state);
        assert!(row.swept_at.is_some(), "that it was swept stays known");
        desk.balanced().await;
    }
}

pub(super) async fn two_sweepers_end_each_row_once(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    for _ in 0..50 {
        desk.held(10).await;
    }
    desk.clock.advance(AGE + MS);
    let sweep = |_| {
        let desk = desk.clone();
        async move { desk.sweep().await }
    };
    let swept: Vec<_> = at_once(0..4, sweep).await.into_iter().flatten().collect();
    let different: HashSet<_> = swept.iter().map(|row| row.id).collect();
    assert_eq!((swept.len(), different.len()), (50, 50));
    let today = desk.today().await;
    assert_eq!((today.tokens.settled, today.tokens.reserved), (500, 0));
    desk.balanced().await;
}

pub(super) async fn a_sweep_racing_settlements_leaves_the_true_figures(
    store: Arc<dyn LedgerStore>,
) {
    let desk = Desk::with(store, []);
    let mut rows = Vec::new();
    for _ in 0..64 {
        rows.push(desk.held(100).await);
    }
    desk.clock.advance(AGE + MS);
    let settle_or_sweep = |(i, row): (usize, Row)| {
        let desk = desk.clone();
        async move {
            if i % 8 == 0 {
                drop(desk.sweep().await);
            }
            desk.settled(row.id, 3).await
        }
    };
    at_once(rows.into_iter().enumerate(), settle_or_sweep).await;
    let today = desk.today().await;
    assert_eq!((today.tokens.settled, today.tokens.reserved), (64 * 3, 0));
    let states = desk.rows(RowQuery::default()).await;
    assert!(states.iter().all(|row| row.state == RowState::Settled));
    desk.balanced().await;
}

pub(super) async fn a_sweep_of_many_rows_comes_in_batches(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let reserve = |_| {
        let desk = desk.clone();
        async move {
            for _ in 0..(BATCH + 16) / 16 {
                desk.held(1).await;
            }
        }
    };
    at_once(0..16, reserve).await;
    desk.clock.advance(AGE + MS);
    let first = desk.sweep().await;
    assert_eq!(first.len(), BATCH);
    assert!(first.is_sorted_by_key(|row| row.id.seq), "oldest first");
    assert!((1..BATCH).contains(&desk.sweep().await.len()));
    assert_eq!(desk.sweep().await, []);
    desk.balanced().await;
}

pub(super) async fn pruning_changes_no_total(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    for i in 0..30 {
        let row = desk.held(100).await;
        desk.settled(row.id, i).await;
        desk.clock.advance(Duration::from_hours(12));
    }
    let ever = of_account("a", Span::Ever);
    let before = desk.total(ever.clone()).await;
    desk.clock.advance(KEEP_ROWS - Duration::from_hours(8 * 24));
    let pruned = desk.store.prune(desk.now(), KEEP_ROWS).await.expect("the store works");
    // Reserved 15 days ago and then every 12 hours: those of the first week are 90 days old.
    assert_eq!(pruned, 15);
    assert_eq!(desk.balanced().await, 15);
    let after = desk.total(ever).await;
    assert_eq!(used(after), used(before));
    assert_eq!(after.tokens.pruned, (0..15).sum::<u64>());
    let again = desk.store.prune(desk.now(), KEEP_ROWS).await;
    assert_eq!(again.expect("the store works"), 0);
    // Ids are never given twice.
    let newest = desk.rows(RowQuery::default()).await.last().expect("a row").id.seq;
    assert!(desk.held(1).await.id.seq > newest);
}

pub(super) async fn pruning_keeps_what_may_still_be_needed(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let open = desk.held(10).await;
    let swept = desk.held(20).await;
    let done = desk.held(30).await;
    let remembered = desk.granted("a", tokens_of(40).idempotent("k")).await;
    desk.settled(done.id, 30).await;
    desk.clock.advance(KEEP_ROWS);
    desk.store.renew(open.id, desk.now()).await.expect("the store works");
    desk.settled(remembered.id, 40).await;
    assert_eq!(desk.sweep().await.len(), 1);

    let prune = async || desk.store.prune(desk.now(), KEEP_ROWS).await.expect("the store works");
    assert_eq!(prune().await, 1, "only what was settled long ago");
    assert!(desk.row(done.id).await.is_none());
    desk.clock.advance(Duration::from_hours(24));
    assert_eq!(prune().await, 1, "the idempotency key is forgotten");
    assert!(desk.row(remembered.id).await.is_none());
    desk.clock.advance(Duration::from_hours(6 * 24) - MS);
    assert_eq!(prune().await, 0);
    // Just in time.
    assert_eq!(desk.settled(swept.id, 5).await.how, SettledHow::AfterSweep);
    desk.clock.advance(MS);
    assert_eq!(prune().await, 1);
    assert!(desk.row(open.id).await.is_some(), "never an open one");
    assert_eq!(used(desk.total(of_account("a", Span::Ever)).await).tokens, 10 + 5 + 30 + 40);
    assert_eq!(desk.balanced().await, 1);
}
