//! Days, months, zones, and clocks that step.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};

use crate::{Amount, LedgerRules, LedgerStore, Limit, Period, Reserving, Span};

use super::desk::{AGE, Desk, account, moment, of_account, tokens_of, used};

async fn day(desk: &Desk, day: &str) -> Amount {
    let span = Span::Day(day.parse().expect("a day"));
    used(desk.total(of_account("a", span)).await)
}

pub(super) async fn a_row_counts_in_the_day_in_which_it_was_reserved(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with_cap(store, 1_000);
    // A millisecond before midnight on the last day of the month in California.
    desk.clock.set(moment("2026-12-01T07:59:59.999Z"));
    let (one, two) = (desk.held(600).await, desk.held(300).await);
    assert_eq!(one.day.to_string(), "2026-11-30");
    desk.clock.advance(Duration::from_millis(1));
    // The new day is empty, whatever is in flight from the old one.
    let new = desk.held(1_000).await;
    assert_eq!(new.day.to_string(), "2026-12-01");
    desk.settled(one.id, 700).await;
    desk.clock.advance(AGE + Duration::from_millis(1));
    assert_eq!(desk.sweep().await.len(), 2);
    desk.settled(two.id, 50).await;

    assert_eq!(day(&desk, "2026-11-30").await, Amount::new(750, 2));
    assert_eq!(day(&desk, "2026-12-01").await, Amount::new(1_000, 1));
    let month = desk.total(of_account("a", Span::Month(2026, 11))).await;
    assert_eq!(used(month), Amount::new(750, 2));
    desk.denied("a", tokens_of(1)).await;
    desk.balanced().await;
}

pub(super) async fn a_new_day_and_a_new_month_need_no_job(store: Arc<dyn LedgerStore>) {
    let limits = [
        Limit::tokens(Period::Day, 100),
        Limit::tokens(Period::Month, 150),
        Limit::tokens(Period::Total, 260),
    ];
    let desk = Desk::with(store, limits);
    desk.clock.set(moment("2026-11-29T20:00:00Z"));
    let mut granted = Vec::new();
    // By 50 tokens at noon of each day, until nothing will come any more.
    for _ in 0..4 {
        let mut today = 0;
        for _ in 0..3 {
            match desk.ask("a", tokens_of(50)).await.expect("the store works") {
                Reserving::Granted(..) => today += 50,
                Reserving::Denied(_) => {}
                Reserving::Replayed(replayed) => panic!("{replayed}"),
            }
        }
        granted.push(today);
        desk.clock.advance(Duration::from_hours(24));
    }
    // 29 and 30 November, then December: the month and then the total hold.
    assert_eq!(granted, [100, 50, 100, 0]);
    let denied = desk.denied("a", tokens_of(50)).await;
    assert_eq!((denied.limit.period, denied.retry_at), (Period::Total, None));
}

/// The promise of `retry_at`: a millisecond before it the same ask is denied, at it it fits.
pub(super) async fn at_the_moment_it_names_the_same_ask_fits(store: Arc<dyn LedgerStore>) {
    let starts = [
        ("2026-11-30T20:00:00Z", Period::Day),
        ("2026-03-08T09:59:00Z", Period::Day), // a minute before the clocks go forward
        ("2026-11-01T08:30:00Z", Period::Day), // in the hour that comes twice
        ("2026-11-01T09:30:00Z", Period::Month),
        ("2028-02-29T12:00:00Z", Period::Month),
        ("2026-12-31T23:00:00Z", Period::Month),
    ];
    for (i, (start, period)) in starts.into_iter().enumerate() {
        let mut desk = Desk::with(Arc::clone(&store), []);
        let name = format!("a{i}");
        desk.set_rules(account(LedgerRules::new(), &name, [Limit::tokens(period, 100)]));
        desk.clock.set(moment(start));
        desk.granted(&name, tokens_of(80)).await;
        let denied = desk.denied(&name, tokens_of(80)).await;
        let at = denied.retry_at.expect("it begins anew");
        assert!(at > desk.now(), "{start}");
        desk.clock.set(at - TimeDelta::milliseconds(1));
        assert_eq!(desk.denied(&name, tokens_of(80)).await, denied, "{start}");
        desk.clock.set(at);
        desk.granted(&name, tokens_of(80)).await;
    }
    desk_balanced(store).await;
}

pub(super) async fn the_days_of_23_and_25_hours_are_one_day_each(store: Arc<dyn LedgerStore>) {
    for (first, hours, next) in [
        ("2026-03-08T08:00:00Z", 23, "2026-03-09T07:00:00Z"),
        ("2026-11-01T07:00:00Z", 25, "2026-11-02T08:00:00Z"),
    ] {
        let desk = Desk::with_cap(Arc::clone(&store), 100);
        let (first, next): (DateTime<Utc>, _) = (moment(first), moment(next));
        assert_eq!(next - first, TimeDelta::hours(hours));
        desk.clock.set(first);
        desk.held(60).await;
        // Every hour of it is the same day, the one that comes twice, too.
        for _ in 1..hours {
            desk.clock.advance(Duration::from_hours(1));
            assert_eq!(desk.denied("a", tokens_of(60)).await.retry_at, Some(next));
        }
        desk.clock.advance(Duration::from_hours(1));
        desk.held(60).await;
    }
    desk_balanced(store).await;
}

pub(super) async fn days_turn_where_the_rules_say(store: Arc<dyn LedgerStore>) {
    let rules = LedgerRules::new().zone(chrono_tz::Asia::Kolkata);
    let mut desk = Desk::new(store, account(rules.clone(), "a", [Limit::tokens(Period::Day, 100)]));
    desk.clock.set(moment("2026-11-30T18:29:00Z"));
    let row = desk.held(60).await;
    assert_eq!(row.day.to_string(), "2026-11-30");
    let denied = desk.denied("a", tokens_of(60)).await;
    assert_eq!(denied.retry_at, Some(moment("2026-11-30T18:30:00Z")));
    desk.clock.advance(Duration::from_mins(1));
    assert_eq!(desk.held(60).await.day.to_string(), "2026-12-01");

    // Another zone from here on: open rows stay in the day in which they were reserved.
    let pacific = rules.zone(keywheel_core::quota_day::PACIFIC);
    desk.set_rules(account(pacific, "a", [Limit::tokens(Period::Day, 100)]));
    assert_eq!(desk.denied("a", tokens_of(60)).await.used(), 60);
    desk.settled(row.id, 1).await;
    assert_eq!(day(&desk, "2026-11-30").await.tokens, 1);
    assert_eq!(desk.held(60).await.day.to_string(), "2026-11-30");
    assert_eq!(day(&desk, "2026-12-01").await.tokens, 60);
    desk.balanced().await;
}

pub(super) async fn a_clock_that_steps_leaves_the_sums_right(store: Arc<dyn LedgerStore>) {
    let desk = Desk::with(store, []);
    let hours = [1, -3, 48, -24, -24 * 400, 24 * 800, -24 * 400];
    let mut open = Vec::new();
    for step in hours {
        open.push(desk.held(100).await);
        open.push(desk.held(10).await);
        desk.clock.set(desk.now() + TimeDelta::hours(step));
        // Settled before it was reserved, swept before, renewed before: as the clock has it.
        if let Some(row) = open.pop() {
            desk.settled(row.id, 7).await;
        }
        let kept = open[0].id;
        desk.store.renew(kept, desk.now()).await.expect("the store works");
        desk.sweep().await;
        desk.store.prune(desk.now(), Duration::from_hours(24)).await.expect("the store works");
        desk.balanced().await;
    }
    // A row from the future is not left to lie there until then: only the one just renewed is.
    desk.sweep().await;
    let ever = desk.total(of_account("a", Span::Ever)).await;
    assert_eq!(used(ever), Amount::new(7 * 107, 14));
    assert_eq!(ever.tokens.reserved, 100);
    desk.settled(open[0].id, 0).await;
    desk.balanced().await;
}

async fn desk_balanced(store: Arc<dyn LedgerStore>) {
    Desk::with(store, []).balanced().await;
}
