//! The virtual day: the same traffic for every strategy, and none of them cheats.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use keywheel_sim::day::{Plan, Report, Simple, Strategy, play};

/// As the default, but with fewer keys and calls: five keys of a hundred requests, twice the calls they serve.
fn plan() -> Plan {
    Plan { keys: 5, per_day: 100, rate: 0.025, ..Plan::default() }
}

#[test]
fn a_day_of_traffic_is_the_same_every_time() {
    let first = play(&plan(), &mut Simple::flat_60s());
    let second = play(&plan(), &mut Simple::flat_60s());
    assert_eq!(first, second);
    assert_ne!(first.delivered, 0);
}

#[test]
fn every_call_ends_exactly_once() {
    for report in comparison(&plan()) {
        let unfinished = (report.cut_by_restart + report.unfinished) as u64;
        assert_eq!(report.delivered + report.failed + unfinished, report.calls, "{}", report.name);
    }
}

#[test]
fn no_strategy_delivers_more_than_the_quotas_allow_and_capacity_is_the_same_for_all() {
    let reports = comparison(&plan());
    let capacity = reports[0].capacity;
    for report in reports {
        assert!(report.delivered <= report.capacity, "{} delivered too much", report.name);
        assert_eq!(report.capacity, capacity, "{}", report.name);
    }
}

#[test]
fn capacity_is_the_quota_of_both_days_without_what_failures_eat() {
    let whole = play(&Plan { overloaded: 0.0, ..plan() }, &mut Simple::flat_60s());
    assert_eq!(whole.capacity, 2 * 5 * 100);
    let eaten = play(&plan(), &mut Simple::flat_60s());
    // One in a hundred of a thousand, give or take three standard deviations.
    assert!((1..=20).contains(&(whole.capacity - eaten.capacity)), "{}", eaten.capacity);
}

#[test]
fn a_day_with_few_calls_has_no_more_capacity_than_calls() {
    let report = play(&Plan { rate: 0.001, ..plan() }, &mut Simple::flat_60s());
    assert_eq!(report.capacity, report.calls);
    assert_eq!(report.client_failures_before_exhaustion, report.failed);
}

#[test]
fn an_eager_strategy_is_refused_more_often_than_a_patient_one() {
    let patient = play(&plan(), &mut Simple::flat_60s());
    let eager = play(&plan(), &mut Simple::flat_5s());
    assert!(eager.refused > 2 * patient.refused, "{} and {}", eager.refused, patient.refused);
}

#[test]
fn three_strikes_lose_keys_that_still_have_quota() {
    let report = play(&plan(), &mut Simple::three_strikes());
    assert!(report.client_failures_before_exhaustion > 0);
    assert!(report.share() < 0.9, "{}", report.share());
}

/// The goals of the whole project: all of the quota delivered, and next to nothing refused.
#[cfg(feature = "day")]
#[test]
fn keywheel_delivers_the_days_quota_and_is_refused_once_a_limit_and_day() {
    let plan = Plan { keys: 21, rate: 0.1, bare_429: 0.0, ..plan() };
    let report = play(&plan, &mut keywheel_sim::day::Keywheel::default());
    assert!(report.share() >= 0.999, "{}", report.share());
    // Once for each of the two limits while learning, and once on the next day.
    assert!(report.refused_per_bucket_max <= 3, "{}", report.refused_per_bucket_max);
    // Calls that wait for midnight may find their minute over when it comes; nobody else fails early.
    let waiting = (plan.rate * plan.deadline.as_secs_f64()).ceil() as u64;
    let early = report.client_failures_before_exhaustion;
    assert!(early <= waiting, "{early} of {waiting}");
}

fn comparison(plan: &Plan) -> Vec<Report> {
    let strategies: [&mut dyn Strategy; 4] = [
        &mut Simple::flat_60s(),
        &mut Simple::flat_5s(),
        &mut Simple::three_strikes(),
        &mut Simple::three_strikes_hourly(),
    ];
    strategies.into_iter().map(|strategy| play(plan, strategy)).collect()
}
