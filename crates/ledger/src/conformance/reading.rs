//! What can be read.

use std::{sync::Arc, time::Duration};

use keywheel_core::{Fingerprint, Usage};

use crate::{
    Ask, LedgerRules, LedgerStore, Outcome, RowQuery, RowState, Scope, Settlement, Span, Total,
    TotalKey,
};

use super::desk::{AGE, Desk, MODEL, account, of_account};

pub(super) async fn rows_are_found_by_what_they_are(store: Arc<dyn LedgerStore>) {
    let rules = account(account(LedgerRules::new(), "a", []), "b", []);
    let desk = Desk::new(store, rules);
    let key = Fingerprint::of("AQ.EXAMPLE-key-1");
    let start = desk.now();
    let swept = desk.granted("a", Ask::new("m", 1)).await;
    desk.clock.advance(AGE * 2);
    desk.sweep().await;
    let settled = desk.granted("a", Ask::new("n", 2).key(key)).await;
    desk.settled(settled.id, 2).await;
    let other = desk.granted("b", Ask::new("m", 3).request_id("r-3")).await;
    let found = async |query: RowQuery| {
        desk.rows(query).await.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    let all = RowQuery::default();
    let account = Some("a".parse().expect("a name"));
    assert_eq!(found(all.clone()).await, [swept.id, settled.id, other.id]);
    assert_eq!(found(RowQuery { account, ..all.clone() }).await, [swept.id, settled.id]);
    let by_model = RowQuery { model: Some("m".into()), ..all.clone() };
    assert_eq!(found(by_model.clone()).await, [swept.id, other.id]);
    assert_eq!(found(RowQuery { key: Some(key), ..all.clone() }).await, [settled.id]);
    let by_state = RowQuery { state: Some(RowState::Swept), ..all.clone() };
    assert_eq!(found(by_state).await, [swept.id]);
    let by_request = RowQuery { request_id: Some("r-3".into()), ..all.clone() };
    assert_eq!(found(by_request).await, [other.id]);
    // From a moment on, and up to but not with one.
    let from = RowQuery { from: Some(desk.now()), ..all.clone() };
    assert_eq!(found(from).await, [settled.id, other.id]);
    let until = RowQuery { until: Some(desk.now()), ..all.clone() };
    assert_eq!(found(until).await, [swept.id]);
    let never = RowQuery { from: Some(start), until: Some(start), ..all };
    assert_eq!(found(never).await, []);
    // All of it together.
    let one = RowQuery { from: Some(start), state: Some(RowState::Reserved), ..by_model };
    assert_eq!(found(one).await, [other.id]);
}

pub(super) async fn rows_come_in_pages(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let mut ids = Vec::new();
    for _ in 0..25 {
        ids.push(desk.held(1).await.id);
    }
    assert!(ids.is_sorted(), "in the order in which they were reserved");
    let (mut query, mut read) = (RowQuery { limit: 10, ..RowQuery::default() }, Vec::new());
    loop {
        let page = desk.rows(query.clone()).await;
        assert!(page.len() <= 10);
        let Some(last) = page.last() else { break };
        query.after = last.id.seq;
        read.extend(page.into_iter().map(|row| row.id));
    }
    assert_eq!(read, ids);
    assert_eq!(desk.rows(RowQuery { limit: 0, ..RowQuery::default() }).await, []);
    let beyond = RowQuery { after: u64::MAX, ..RowQuery::default() };
    assert_eq!(desk.rows(beyond).await, []);
}

pub(super) async fn the_newest_answers_come_first(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let mut answered = Vec::new();
    for i in 0..10 {
        let row = desk.held(10).await;
        let usage = (i % 3 != 0).then(|| Usage { input: i, total: i, ..Usage::default() });
        let outcome = if i % 5 == 4 { Outcome::CutShort } else { Outcome::Answered };
        let settlement = Settlement { usage, outcome, ..desk.settlement(row.id, 5) };
        desk.store.settle(settlement).await.expect("the store works");
        if usage.is_some() && outcome == Outcome::Answered {
            answered.insert(0, row.id);
        }
    }
    desk.held(10).await;
    for count in [0, 2, 100] {
        let rows = desk.store.recent(count).await.expect("the store works");
        let ids: Vec<_> = rows.into_iter().map(|row| row.id).collect();
        assert_eq!(ids, answered[..count.min(answered.len())]);
    }
}

pub(super) async fn totals_come_in_the_order_asked_for(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let row = desk.held(70).await;
    desk.settled(row.id, 50).await;
    desk.held(7).await;
    let whole = TotalKey { scope: Scope::Whole, span: Span::Ever, model: Some(MODEL.into()) };
    let keys = vec![
        of_account("a", Span::Month(2026, 11)),
        of_account("nobody", Span::Ever),
        whole.clone(),
        TotalKey { model: Some("another".into()), ..whole.clone() },
        whole,
        of_account("a", Span::Month(2025, 11)),
    ];
    let totals = desk.store.totals(keys).await.expect("the store works");
    let used: Vec<_> = totals.iter().map(|one| (one.tokens.settled, one.tokens.reserved)).collect();
    assert_eq!(used, [(50, 7), (0, 0), (50, 7), (0, 0), (50, 7), (0, 0)]);
    assert_eq!(totals[1], Total::default());
    assert_eq!(desk.store.totals(Vec::new()).await.expect("the store works"), []);
}

pub(super) async fn the_store_knows_where_it_lies(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let open = desk.held(1).await;
    let row = desk.held(1).await;
    desk.settled(row.id, 1).await;
    let info = desk.store.info().await.expect("the store works");
    assert_eq!((info.rows, info.open), (2, 1));
    assert!(info.storage.just_created);
    assert!(!info.storage.ledger_id.is_empty());
    assert_eq!(desk.store.info().await.expect("the store works"), info, "asked again, the same");
    desk.settled(open.id, 1).await;
    desk.clock.advance(Duration::from_secs(1));
    assert_eq!(desk.store.info().await.expect("the store works").open, 0);
}
