//! Hazards: limits that nobody announced: they are learned, they shrink, they are raised.
//! <https://github.com/snailyp/gemini-balance/issues/78>, <https://github.com/NousResearch/hermes-agent/issues/89415>

mod common;

use common::*;
use keywheel_core::{Cause, Dimension, LimitSeen, Usage, Wait};
use keywheel_pool::{Ask, ExhaustedKind, Limits, Refusal, Source};

/// A provider that serves `limit` requests a day, as the pool meets it through `lease`.
struct Provider {
    limit: u64,
    served: u64,
    refused: u64,
}

impl Provider {
    fn new(limit: u64) -> Self {
        Self { limit, served: 0, refused: 0 }
    }

    /// Midnight.
    fn new_day(&mut self, fixture: &Fixture, now: &str) {
        (self.served, self.refused) = (0, 0);
        fixture.clock.set(at(now));
    }

    /// One call by somebody who does not wait for tomorrow. False: exhausted.
    async fn call(&mut self, fixture: &Fixture) -> bool {
        let ask = Ask::new(MODEL).by(fixture.now() + seconds(1));
        let Ok(mut lease) = fixture.pool.lease(ask).await else { return false };
        lease.sent();
        fixture.advance(seconds(1));
        if self.served < self.limit {
            self.served += 1;
            lease.served(&Usage::default());
        } else {
            self.refused += 1;
            let _ = lease.refused(&day_spent(Some(self.limit))).await;
        }
        true
    }

    async fn call_until_exhausted(&mut self, fixture: &Fixture) {
        for _ in 0..10_000 {
            if !self.call(fixture).await {
                return;
            }
        }
        panic!("the pool never had enough");
    }
}

#[tokio::test]
async fn a_limit_that_shrinks_costs_one_refusal_and_is_kept() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut provider = Provider::new(50);
    provider.call_until_exhausted(&fixture).await;
    assert_eq!((provider.served, provider.refused), (50, 1), "learning costs one");

    provider.limit = 20;
    provider.new_day(&fixture, "2026-11-30T12:00:00Z");
    provider.call_until_exhausted(&fixture).await;
    assert_eq!((provider.served, provider.refused), (20, 1));

    provider.new_day(&fixture, "2026-12-01T12:00:00Z");
    provider.call_until_exhausted(&fixture).await;
    assert_eq!((provider.served, provider.refused), (20, 1), "the day's exploration");
}

#[tokio::test]
async fn a_limit_that_is_raised_is_found_within_two_days() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut provider = Provider::new(20);
    provider.call_until_exhausted(&fixture).await;
    // Raised in the evening of the day on which it was learned.
    provider.limit = 100;
    provider.call_until_exhausted(&fixture).await;
    assert_eq!(provider.served, 20, "today's answer stands");
    provider.new_day(&fixture, "2026-11-30T12:00:00Z");
    provider.call_until_exhausted(&fixture).await;
    assert_eq!((provider.served, provider.refused), (100, 1));
    let limits = &fixture.pool.status().buckets[0].limits;
    assert_eq!((limits[0].dimension, limits[0].value), (Dimension::Rpd, 100));
}

#[tokio::test]
async fn a_raised_limit_per_minute_is_found_within_two_days() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    fixture.refuse(&minute_spent(1, Some(2))).await;
    let mut days_until_found = 0;
    for day in ["2026-11-30T12:00:00Z", "2026-12-01T12:00:00Z"] {
        fixture.clock.set(at(day));
        fixture.serve();
        fixture.serve();
        days_until_found += 1;
        let ask = Ask::new(MODEL).by(fixture.now() + seconds(1));
        if let Ok(mut lease) = fixture.pool.lease(ask).await {
            assert!(lease.is_exploration());
            lease.sent();
            lease.served(&Usage::default());
            break;
        }
    }
    assert!(days_until_found <= 2);
    for _ in 0..5 {
        fixture.serve();
    }
    assert!(fixture.pool.status().buckets[0].limits.is_empty(), "what was learned is lifted");
}

#[tokio::test]
async fn exploration_is_one_request_per_bucket_and_day_by_all_processes_together() {
    let one = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut provider = Provider::new(3);
    provider.call_until_exhausted(&one).await;
    provider.new_day(&one, "2026-11-30T12:00:00Z");
    let two = open(&one.clock, &one.state, |builder| builder.keys(keys(1)));
    for _ in 0..3 {
        one.serve();
    }
    two.flush().await.unwrap();
    let ask = Ask::new(MODEL).by(one.now() + seconds(1));
    let explores = one.pool.lease(ask.clone()).await.unwrap();
    assert!(explores.is_exploration());
    assert!(two.lease(ask.clone()).await.is_err(), "the other process has it");
    assert!(one.pool.lease(ask.clone()).await.is_err(), "and only once");
    drop(explores);
    let restarted = one.restart(|builder| builder.keys(keys(1)));
    assert!(restarted.pool.lease(ask).await.is_err(), "also after a restart");
}

#[tokio::test]
async fn exploration_waits_until_nothing_else_can_serve() {
    let fixture = Fixture::new(2, "2026-11-29T12:00:00Z");
    fixture.refuse(&day_spent(Some(1))).await;
    fixture.clock.set(at("2026-11-30T12:00:00Z"));
    for _ in 0..20 {
        let mut lease = fixture.pool.lease(Ask::new(MODEL)).await.unwrap();
        assert!(!lease.is_exploration());
        lease.sent();
        lease.served(&Usage::default());
    }
}

#[tokio::test]
async fn exploration_can_be_switched_off_and_never_passes_a_users_limit() {
    let set = Limits { rpd: Some(2), ..Limits::default() };
    for (explores, limits) in [(true, set), (false, Limits::default())] {
        let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
            builder.keys(keys(1)).limits("*", limits).exploration(explores)
        });
        fixture.refuse(&day_spent(Some(2))).await;
        fixture.clock.set(at("2026-11-30T12:00:00Z"));
        fixture.serve();
        fixture.serve();
        let ask = Ask::new(MODEL).by(fixture.now() + seconds(1));
        assert!(fixture.pool.lease(ask).await.is_err());
    }
}

#[tokio::test]
async fn a_model_without_a_free_tier_is_asked_again_once_a_day_and_never_waited_for() {
    // https://github.com/google-gemini/gemini-cli/issues/22486
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let no_free_tier = Refusal::new([bucket(Cause::FreeTierNotAvailable, Wait::None)]);
    assert_eq!(fixture.refuse(&no_free_tier).await.until, None);
    let exhausted = fixture.pool.lease(Ask::new(MODEL)).await.unwrap_err();
    assert_eq!((exhausted.kind, exhausted.soonest), (ExhaustedKind::Cooling, None));
    assert_eq!(exhausted.reasons[0].cause, Some(Cause::FreeTierNotAvailable));

    fixture.clock.set(at("2026-11-30T12:00:00Z"));
    assert!(fixture.lease().is_err(), "those who do not wait do not explore");
    let mut lease = fixture.pool.lease(Ask::new(MODEL)).await.unwrap();
    assert!(lease.is_exploration());
    lease.sent();
    let _ = lease.refused(&no_free_tier).await;
    assert!(fixture.pool.lease(Ask::new(MODEL)).await.is_err());

    fixture.clock.set(at("2026-12-01T12:00:00Z"));
    let mut lease = fixture.pool.lease(Ask::new(MODEL)).await.unwrap();
    lease.sent();
    lease.served(&Usage::default());
    fixture.serve();
}

#[tokio::test]
async fn a_long_guess_is_doubted_after_an_hour() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    for _ in 0..4 {
        let until = fixture.refuse(&bare()).await.until.unwrap();
        if (until - fixture.now()).num_minutes() < 120 {
            fixture.clock.set(until);
        }
    }
    let ask = |fixture: &Fixture| Ask::new(MODEL).by(fixture.now() + seconds(1));
    fixture.advance(seconds(59 * 60));
    assert!(fixture.pool.lease(ask(&fixture)).await.is_err());
    fixture.advance(seconds(61));
    let mut lease = fixture.pool.lease(ask(&fixture)).await.unwrap();
    assert!(lease.is_exploration());
    lease.sent();
    lease.served(&Usage::default());
    fixture.serve();
}

#[tokio::test]
async fn a_minute_that_no_id_names_met_again_right_after_its_delay_becomes_a_day() {
    // https://github.com/tashfeenahmed/freellmapi/issues/92
    let unnamed = Refusal { named_quota: false, ..minute_spent(30, None) };
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let until = fixture.refuse(&unnamed).await.until.unwrap();
    fixture.clock.set(until);
    let until = fixture.refuse(&unnamed).await.until.unwrap();
    assert!(until >= at("2026-11-30T08:00:00Z"));
    assert_eq!(fixture.lease().unwrap_err().reasons[0].source, Source::Guessed);

    // By id, or with a success between, it stays a minute.
    for named in [true, false] {
        let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
        let refusal = Refusal { named_quota: named, ..unnamed.clone() };
        for _ in 0..4 {
            let until = fixture.refuse(&refusal).await.until.unwrap();
            assert_eq!((until - fixture.now()).num_seconds(), 30);
            fixture.clock.set(until);
            if !named {
                fixture.serve();
                fixture.advance(seconds(1));
            }
        }
    }
}

#[tokio::test]
async fn our_own_counters_are_enough_to_stop_before_the_refusal() {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        let limits = Limits { rpd: Some(3), tpm: Some(1_000), ..Limits::default() };
        builder.keys(keys(1)).limits("gemini-*", limits)
    });
    let ask = Ask::new(MODEL).with_tokens(600);
    let mut lease = fixture.pool.try_lease(&ask).unwrap();
    assert!(fixture.pool.try_lease(&ask).is_err(), "leased counts before it is sent");
    lease.sent();
    lease.served(&Usage { input: 100, ..Usage::default() });
    let mut lease = fixture.pool.try_lease(&ask).unwrap();
    lease.sent();
    lease.served(&Usage::default());
    assert!(fixture.pool.try_lease(&ask).is_err(), "100 as measured and 600 as estimated");
    fixture.serve();
    let exhausted = fixture.lease().unwrap_err();
    assert_eq!((exhausted.reasons[0].cause, exhausted.reasons[0].source), (None, Source::Counted));
    assert!(exhausted.soonest.unwrap() >= at("2026-11-30T08:00:00Z"));
}

#[tokio::test]
async fn a_batch_counts_each_of_its_requests() {
    // https://github.com/garrytan/gbrain/issues/1922
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        builder.keys(keys(1)).limits("*", Limits { rpm: Some(100), ..Limits::default() })
    });
    let batch = Ask::new(MODEL).with_requests(60);
    let mut lease = fixture.pool.try_lease(&batch).unwrap();
    lease.sent();
    lease.served(&Usage::default());
    assert!(fixture.pool.try_lease(&batch).is_err());
    assert!(fixture.pool.try_lease(&Ask::new(MODEL).with_requests(40)).is_ok());
}

#[tokio::test]
async fn an_ask_above_the_minute_runs_alone() {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        let limits = Limits { rpm: Some(10), tpm: Some(1_000), ..Limits::default() };
        builder.keys(keys(1)).limits("*", limits)
    });
    let huge = Ask::new(MODEL).with_tokens(5_000);
    let mut lease = fixture.pool.try_lease(&huge).unwrap();
    lease.sent();
    assert!(fixture.lease().is_err(), "nothing beside it");
    lease.served(&Usage { input: 5_000, ..Usage::default() });
    let soonest = fixture.pool.try_lease(&huge).unwrap_err().soonest.unwrap();
    fixture.clock.set(soonest);
    assert!(fixture.pool.try_lease(&huge).is_ok());
}

#[tokio::test]
async fn asks_of_absurd_size_do_not_upset_the_sums() {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        let limits = Limits { rpm: Some(100), tpm: Some(1_000), ..Limits::default() };
        builder.keys(keys(1)).limits("*", limits)
    });
    let absurd = Ask { tokens: u64::MAX, requests: 0, ..Ask::new(MODEL) };
    let mut lease = fixture.pool.try_lease(&absurd).unwrap();
    lease.sent();
    lease.served(&Usage { input: u64::MAX, tool: u64::MAX, ..Usage::default() });
    fixture.clock.set(fixture.soonest());
    let mut lease = fixture.pool.try_lease(&absurd).unwrap();
    lease.sent();
    let _ = lease.refused(&minute_spent(1, None)).await;
    fixture.advance(seconds(1));
    assert_eq!(fixture.pool.status().buckets[0].minute.tokens, 0);
    assert!(fixture.pool.try_lease(&Ask::new(MODEL).with_tokens(1_000)).is_ok());
}

#[tokio::test]
async fn limits_named_by_a_served_reply_are_learned_too() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut lease = fixture.lease().unwrap();
    lease.sent();
    lease.served_with(&Usage::default(), &[LimitSeen::new(Dimension::Rpm, 1)]);
    assert!(fixture.lease().is_err());
}

#[tokio::test]
async fn who_asks_for_limits_hears_of_every_project_that_may_serve_and_of_no_other() {
    let limits = Limits { rpm: Some(15), ..Limits::default() };
    let fixture =
        Fixture::with("2026-11-29T12:00:00Z", |builder| builder.keys(keys(3)).limits("*", limits));
    let mut lease = fixture.lease().unwrap();
    lease.sent();
    let spent = lease.quota_project().to_owned();
    let _ = lease.refused(&day_spent(Some(500))).await;
    let mut lease = fixture.lease().unwrap();
    lease.sent();
    let dead = lease.quota_project().to_owned();
    let _ = lease.refused(&Refusal::new([bucket(Cause::FreeTierNotAvailable, Wait::None)])).await;

    let known = fixture.pool.limits(MODEL);
    assert_eq!(known.len(), 2, "without a free tier it has no quota to tell of: {known:?}");
    assert!(known.iter().all(|project| *project.quota_project != dead && project.set == limits));
    for project in &known {
        let learned = (*project.quota_project == spent).then_some(500);
        assert_eq!((project.learned.rpd, project.believed().rpd), (learned, learned));
        assert_eq!(project.believed().rpm, Some(15));
    }
    let day: u64 = known.iter().map(|project| project.day.requests).sum();
    assert_eq!(day, 0, "a refusal is given back");
    fixture.serve();
    let known = fixture.pool.limits(MODEL);
    assert_eq!(known.iter().map(|project| project.day.requests).sum::<u64>(), 1);
    assert!(fixture.pool.limits("api:files").iter().all(|it| it.believed() == Limits::default()));
}

#[tokio::test]
async fn who_does_not_wait_for_a_key_makes_the_days_exploration_all_the_same() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let no_free_tier = Refusal::new([bucket(Cause::FreeTierNotAvailable, Wait::None)]);
    let _ = fixture.refuse(&no_free_tier).await;
    fixture.clock.set(at("2026-11-30T12:00:00Z"));
    let now = || fixture.pool.lease(Ask::new(MODEL).by(fixture.now()));
    let mut lease = now().await.unwrap();
    assert!(lease.is_exploration());
    lease.sent();
    let _ = lease.refused(&no_free_tier).await;
    let exhausted = now().await.unwrap_err();
    assert_eq!(exhausted.kind, ExhaustedKind::Cooling, "once a day");
}
