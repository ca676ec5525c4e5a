use std::{collections::HashMap, sync::Arc};

use keywheel_core::{Clock, ManualClock, quota_day::PACIFIC};
use proptest::prelude::*;

use super::*;
use crate::{Ask, LARGEST, LedgerRules, Limit};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn noon() -> DateTime<Utc> {
    ManualClock::at(at("2026-11-30T20:00:00Z")).now()
}

fn reservation(rules: LedgerRules, ask: Ask) -> Reservation {
    Reservation::new("a".parse().unwrap(), ask, Arc::new(rules.any_account()), noon()).unwrap()
}

fn row(tokens: u64) -> Row {
    Row::reserved(RowId::fresh(1), &reservation(LedgerRules::new(), Ask::new("m", tokens)))
}

fn settlement(row: &Row, tokens: u64) -> Settlement {
    Settlement {
        id: row.id,
        charge: Charge::Tokens(tokens),
        outcome: Outcome::Answered,
        usage: None,
        note: None,
        now: noon(),
    }
}

#[test]
fn nothing_asked_of_a_limit_is_not_held_back_by_it() {
    let full = [Limit::calls(Period::Day, 0)];
    let rules = LedgerRules::new().allowance(full);
    let one_call = reservation(rules.clone(), Ask::new("m", 10));
    assert!(matches!(reserve(&one_call, |_| Total::default()), Ok(Decision::Denied(_))));
    let same_call = reservation(rules, Ask::new("m", 10).calls(0));
    assert!(matches!(reserve(&same_call, |_| Total::default()), Ok(Decision::Grant(..))));
}

/// Whoever drops a call in the middle of a failover has made it all the same.
#[test]
fn a_turnover_whose_next_attempt_is_given_up_leaves_what_a_settlement_would_have() {
    let next = reservation(LedgerRules::new(), Ask::new("m", 10));
    let usage = |total| Some(Usage { output: total, total, ..Usage::default() });
    for outcome in Outcome::ALL {
        for (charge, usage) in [
            (Charge::ByOutcome { charge_timeouts: true }, None),
            (Charge::ByOutcome { charge_timeouts: false }, None),
            (Charge::ByOutcome { charge_timeouts: true }, usage(7)),
            (Charge::ByOutcome { charge_timeouts: true }, usage(0)),
        ] {
            let row = row(10);
            let settlement = Settlement { charge, outcome, usage, ..settlement(&row, 0) };
            let (moved, _) = turn_over(&row, &settlement, &next, |_| Total::default()).unwrap();
            let plain = settle(&row, &settlement).unwrap();
            let (Settling::Write(moved, change, _), Settling::Write(plain, wanted, _)) =
                (moved, plain)
            else {
                panic!("an open row is written")
            };
            assert_eq!(moved.charged.unwrap().calls, 0);
            let back = take_call_back(&moved);
            let delta = back.as_ref().map_or(change, |(_, delta)| change.and(*delta));
            assert_eq!(back.map_or(*moved, |(row, _)| row), *plain, "{outcome}");
            assert_eq!(delta, wanted, "{outcome}");
            assert_eq!(take_call_back(&plain), None, "once");
        }
    }
    let row = row(10);
    let released = settlement(&row, 0);
    let (moved, _) = turn_over(&row, &released, &next, |_| Total::default()).unwrap();
    let Settling::Write(moved, ..) = moved else { panic!("an open row is written") };
    assert_eq!(take_call_back(&moved), None, "a release is no call");
}

#[test]
fn a_total_that_is_full_is_an_error_and_not_a_grant() {
    let mut full = Total::default();
    full.tokens.settled = i64::MAX as u64 - LARGEST + 1;
    let asked = reservation(LedgerRules::new(), Ask::new("m", LARGEST));
    let error = reserve(&asked, |_| full).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    full.tokens.settled -= 1;
    assert!(matches!(reserve(&asked, |_| full), Ok(Decision::Grant(..))));
}

#[test]
fn an_ask_out_of_range_is_refused_before_it_is_decided() {
    let make =
        |ask| Reservation::new("a".parse().unwrap(), ask, Arc::new(LedgerRules::new()), noon());
    for ask in [
        Ask::new("m", LARGEST + 1),
        Ask::new("m", u64::MAX),
        Ask::new("m", crate::Estimate::new(u64::MAX, u64::MAX)),
        Ask::new("m", 1).calls(LARGEST + 1),
        Ask::new("", 1),
        Ask::new("m\n", 1),
        Ask::new("m", 1).idempotent(""),
        Ask::new("m", 1).idempotent("k".repeat(257)),
    ] {
        assert_eq!(make(ask.clone()).unwrap_err().kind(), ErrorKind::Invalid, "{ask:?}");
    }
    assert!(make(Ask::new("m", LARGEST).idempotent("k".repeat(256))).is_ok());
}

#[test]
fn the_hash_of_an_ask_is_the_same_in_every_build() {
    let hash = |ask: Ask| ask.idempotency.unwrap().content;
    assert_eq!(hash(Ask::new("m", 1).idempotent_by("k", b"foobar")), 0x8594_4171_f739_67e8);
    // The correction of the estimate may have moved since the first ask.
    let ask = |factor| Ask::new("m", crate::Estimate::new(100, 50).corrected(factor));
    assert_eq!(hash(ask(1.0).idempotent("k")), hash(ask(1.7).idempotent("k")));
    let other = Ask::new("m", crate::Estimate::new(101, 50));
    assert_ne!(hash(ask(1.0).idempotent("k")), hash(other.idempotent("k")));
}

#[test]
fn times_at_the_ends_of_the_calendar_do_not_panic() {
    let ends = [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC, noon()];
    for from in ends {
        for to in ends {
            let open = Row { reserved_at: from, renewed_at: Some(from), ..row(10) };
            for age in [Duration::ZERO, Duration::MAX] {
                let _ = sweep(&open, to, age);
                let done = Row { settled_at: Some(from), swept_at: Some(from), ..open.clone() };
                let _ = prune(&done, to, age);
            }
            for period in [Period::Day, Period::Month, Period::Total] {
                let _ = begins_anew(period, to, PACIFIC);
            }
        }
    }
}

#[test]
fn a_row_from_the_future_is_swept_too() {
    let age = Duration::from_secs(900);
    let ahead = Row { reserved_at: noon() + TimeDelta::seconds(900), ..row(10) };
    assert_eq!(sweep(&ahead, noon(), age), None);
    let far_ahead = Row { reserved_at: noon() + TimeDelta::seconds(901), ..row(10) };
    assert!(sweep(&far_ahead, noon(), age).is_some());
}

#[test]
fn a_caller_who_went_away_costs_nothing_and_may_ask_again() {
    let ask = Ask::new("m", 100).idempotent("k");
    let asked = reservation(LedgerRules::new(), ask);
    let open = Row::reserved(RowId::fresh(1), &asked);
    assert!(repeats(Some(&open), &asked).unwrap().is_some());
    let (gone, delta) = abandon(&open, noon());
    assert_eq!((gone.state, gone.charged), (RowState::Released, Some(Amount::ZERO)));
    assert_eq!(gone.idempotency, None);
    assert_eq!(
        Total::default().after(Delta::reserving(open.amount())).after(delta),
        Total::default()
    );
}

#[test]
fn a_month_begins_anew_on_the_first() {
    let next = |from: &str, period| begins_anew(period, at(from), PACIFIC);
    assert_eq!(
        next("2026-02-10T00:00:00Z", Period::Month),
        Some(at("2026-03-01T08:00:00Z")),
        "28 days"
    );
    assert_eq!(
        next("2026-03-01T08:00:00Z", Period::Month),
        Some(at("2026-04-01T07:00:00Z")),
        "the clocks go forward in between"
    );
    assert_eq!(next("2027-01-01T07:59:59Z", Period::Month), Some(at("2027-01-01T08:00:00Z")));
    assert_eq!(next("2026-12-31T00:00:00Z", Period::Total), None);
}

/// What may happen to one row.
#[derive(Debug, Clone)]
enum Event {
    Settle(u64),
    By(Outcome, Option<u64>),
    Sweep,
    Renew,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let figure = prop_oneof![Just(0), Just(u64::MAX), 0..2_000_u64];
    let outcome = prop::sample::select(Outcome::ALL.to_vec());
    let event = prop_oneof![
        figure.clone().prop_map(Event::Settle),
        (outcome, prop::option::of(figure)).prop_map(|(outcome, seen)| Event::By(outcome, seen)),
        Just(Event::Sweep),
        Just(Event::Renew),
    ];
    prop::collection::vec(event, 0..8)
}

proptest! {
    /// However a row gets there: its totals hold what it is charged, or its estimate, and nothing
    /// else.
    #[test]
    fn a_rows_deltas_add_up_to_what_it_is_charged(estimate in 0..=LARGEST, events in events()) {
        let mut row = row(estimate);
        let mut total = Total::default().after(Delta::reserving(row.amount()));
        let mut figures = 0;
        for event in events {
            let settlement = match event {
                Event::Settle(tokens) => settlement(&row, tokens),
                Event::By(outcome, seen) => Settlement {
                    charge: Charge::ByOutcome { charge_timeouts: true },
                    outcome,
                    usage: seen.map(|total| Usage { total, ..Usage::default() }),
                    ..settlement(&row, 0)
                },
                Event::Sweep => {
                    if let Some((swept, delta)) = sweep(&row, noon() + TimeDelta::days(1), Duration::ZERO) {
                        total = total.after(delta);
                        row = swept;
                    }
                    continue;
                }
                Event::Renew => {
                    row = renew(&row, noon()).unwrap_or(row);
                    continue;
                }
            };
            match settle(&row, &settlement) {
                Ok(Settling::Write(settled, delta, told)) => {
                    figures += 1;
                    prop_assert_eq!(settled.charged, Some(told.charged));
                    total = total.after(delta);
                    row = *settled;
                }
                Ok(Settling::Nothing(told)) => prop_assert_eq!(Some(told.charged), row.charged),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::SettledOtherwise),
            }
        }
        prop_assert!(figures <= 1, "a row takes one figure");
        let wanted = match row.charged {
            None => Delta::reserving(row.amount()),
            Some(charged) => Delta::settling(charged),
        };
        prop_assert_eq!(total, Total::default().after(wanted));
    }

    /// Whatever stands in the totals: what is granted fits into every limit, and what is denied
    /// does not fit into the limit that is named.
    #[test]
    fn a_grant_fits_and_a_denial_does_not(
        caps in prop::collection::vec((0..6_usize, any::<bool>(), 0..2_000_u64), 0..6),
        sums in prop::collection::vec((0..1_500_u64, 0..1_500_u64), 12),
        asked in (0..1_000_u64, 0..3_u64),
    ) {
        let limits = caps.iter().map(|(kind, model, cap)| {
            let unit = [Unit::Tokens, Unit::Calls][kind % 2];
            let period = [Period::Day, Period::Month, Period::Total][kind / 2];
            let limit = Limit::new(unit, period, *cap);
            if *model { limit.for_model("m") } else { limit }
        });
        let limits: Vec<_> = limits.collect();
        let (own, whole) = limits.split_at(limits.len() / 2);
        let rules = LedgerRules::new().account("a", own.to_vec()).unwrap().allowance(whole.to_vec());
        let reservation = reservation(rules, Ask::new("m", asked.0).calls(asked.1));
        let keys = TotalKey::all_of(&reservation.account, &"m".into(), reservation.day);
        let totals: HashMap<_, _> = keys.into_iter().zip(&sums).map(|(key, (settled, reserved))| {
            let sum = Sum { settled: *settled, reserved: *reserved, pruned: 0 };
            (key, Total { tokens: sum, calls: sum })
        }).collect();
        let over = |scope: Scope, limit: &Limit| {
            let used = totals[&limit.total_key(scope, reservation.day)].of(limit.unit).used();
            let asked = reservation.ask.amount().of(limit.unit);
            asked > 0 && used + asked > limit.cap
        };
        let account = Scope::Account(reservation.account.clone());
        let any_over = own.iter().any(|limit| over(account.clone(), limit))
            || whole.iter().any(|limit| over(Scope::Whole, limit));
        match reserve(&reservation, |key| totals[key]).unwrap() {
            Decision::Grant(delta, fullest) => {
                prop_assert!(!any_over);
                let after = |scope: &Scope, limit: &Limit| {
                    totals[&limit.total_key(scope.clone(), reservation.day)].after(delta).of(limit.unit)
                };
                let own = own.iter().map(|limit| (account.clone(), limit));
                let all = own.chain(whole.iter().map(|limit| (Scope::Whole, limit)));
                let concerned = all.filter(|(_, limit)| reservation.ask.amount().of(limit.unit) > 0);
                let full = |sum: Sum, cap: u64| sum.used() as f64 / cap as f64;
                let shares = concerned.map(|(scope, limit)| full(after(&scope, limit), limit.cap));
                let most = shares.fold(None, |most: Option<f64>, one| Some(most.map_or(one, |most| most.max(one))));
                prop_assert_eq!(fullest.as_ref().map(|one| full(one.sum, one.limit.cap)), most);
                if let Some(fullest) = fullest {
                    prop_assert_eq!(fullest.sum, after(&fullest.scope, &fullest.limit));
                }
            }
            Decision::Denied(denied) => prop_assert!(over(denied.scope, &denied.limit)),
        }
    }
}
