use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use keywheel::{
    ApiKey, KeySpec, ManualClock, Pool, StateLocation,
    ledger::{Ask, Reserved},
};

use super::*;

const MODELS: [&str; 2] = ["m", "n"];

/// Three keys of a quota project each.
fn pool() -> Pool {
    let keys = (1..=3).map(|n| {
        KeySpec::new(ApiKey::new(format!("AQ.EXAMPLE-key-{n}")).unwrap(), format!("KEY_{n}"))
    });
    let clock = Arc::new(ManualClock::at("2026-11-30T20:00:00Z".parse().unwrap()));
    Pool::builder().keys(keys).clock(clock).state(StateLocation::None).build().unwrap()
}

/// Of this pool, once each of these has waited so many seconds for: a key, by its number, and a model.
async fn resting<const N: usize>(pool: &Pool, waits: [(usize, &str, u64); N]) -> PoolStatus {
    for (key, model, seconds) in waits {
        let wait = Some(Duration::from_secs(seconds));
        pool.mark_rate_limited(&format!("KEY_{key}"), model, wait).await.unwrap();
    }
    pool.status()
}

/// How many are ready, how many rest, and in how many seconds the next one can serve.
fn counted(status: &PoolStatus) -> (usize, usize, Option<i64>) {
    let keys = Keys::of(status);
    assert_eq!(keys.quarantined, 0);
    let next = keys.next_available_at.map(|at| (at - status.at).num_seconds());
    (keys.ready, keys.cooling, next)
}

#[test]
fn a_failure_of_the_ledger_keeps_requests_away_for_ten_seconds() {
    let failure = LedgerFailure::default();
    assert!(!failure.is_recent(1_000), "there was none");
    failure.note(1_000);
    assert!(failure.is_recent(10_999) && !failure.is_recent(11_000));
    failure.note(12_000);
    assert!(failure.is_recent(5_000), "a clock that was set back");
}

#[tokio::test]
async fn a_key_rests_while_it_can_serve_no_model_and_the_first_to_come_back_is_named() {
    let pool = pool();
    assert_eq!(counted(&pool.status()), (3, 0, None), "none was asked for anything");
    let [m, n] = MODELS;
    assert_eq!(counted(&resting(&pool, [(1, m, 90)]).await), (2, 1, None));
    let all = resting(&pool, [(2, m, 60), (3, m, 120)]).await;
    assert_eq!(counted(&all), (0, 3, Some(60)));
    // It is back when one of its models is.
    let soon = resting(&pool, [(1, n, 200), (2, n, 200), (3, n, 30)]).await;
    assert_eq!(counted(&soon), (0, 3, Some(30)));
    // One that is out for all models, until its account is in order, is so whatever its models say.
    let mut out = self::pool().status();
    out.keys[0].cooling_until = Some(out.at + TimeDelta::seconds(9));
    out.keys[1].cooling_until = Some(out.at);
    assert_eq!(counted(&out), (2, 1, None), "the second is back");
    let mut out = all;
    out.keys[0].cooling_until = Some(out.at + TimeDelta::seconds(9));
    assert_eq!(counted(&out), (0, 3, Some(9)));
    out.keys[0].cooling_until = Some(out.at + TimeDelta::seconds(900));
    out.keys[1].cooling_until = Some(out.at + TimeDelta::seconds(900));
    assert_eq!(counted(&out), (0, 3, Some(120)), "what their models could do is of no use");
}

#[tokio::test]
async fn one_of_its_models_is_enough_for_a_key_to_be_ready() {
    let pool = pool();
    let [m, n] = MODELS;
    let _lease = pool.try_lease(&keywheel::Ask::new(n)).unwrap();
    assert_eq!(counted(&resting(&pool, [(1, m, 60)]).await).0, 3);
}

#[tokio::test]
async fn the_pages_say_what_keeps_requests_away() {
    let ledger = Ledger::builder().in_memory().account("a", []).open().await.unwrap();
    let (ready, cooling) = (pool().status(), pool());
    let cooling = resting(&cooling, [(1, "m", 90), (2, "m", 60), (3, "m", 90)]).await;
    let mut gone = ready.clone();
    gone.keys.clear();
    let mut unsaved = ready.clone();
    unsaved.state.ok = false;
    let (serving, draining) = (Phase::Serving, Phase::Draining);
    for (phase, status, ledger_fails, word, why) in [
        (serving, &ready, false, "ok", None),
        (serving, &unsaved, false, "ok", None),
        // It can say so itself, and for how long.
        (serving, &cooling, false, "resting", None),
        (serving, &gone, false, "no_keys", Some("no key can be used")),
        (serving, &ready, true, "ledger_down", Some("the ledger could not be written")),
        (draining, &ready, false, "stopping", Some("stopping")),
    ] {
        let status = status.clone();
        let pool_state_ok = status.state.ok;
        let next = Keys::of(&status).next_available_at.map(|_| "2026-11-30T20:01:00.000Z");
        let now = Situation { phase, status, ledger_fails };
        let page = report(&now, &ledger).await.unwrap();
        assert_eq!(page["status"], word);
        assert_eq!(page["pool_state_ok"], pool_state_ok);
        assert_eq!(page["next_available_at"], json!(next), "{word}");
        let told = unready(&now, &ledger).await;
        assert_eq!(told.is_some(), why.is_some(), "{word}: {told:?}");
        assert!(why.is_none_or(|why| told.unwrap().starts_with(why)), "{word}");
    }
}

#[tokio::test]
async fn what_was_charged_is_told_of_all_days_and_without_what_is_reserved() {
    let clock = ManualClock::at("2026-11-30T20:00:00Z".parse().unwrap());
    let ledger = Ledger::builder().clock(Arc::new(clock.clone())).in_memory();
    let ledger = ledger.account("a", []).open().await.unwrap();
    let reserve = async || match ledger.reserve("a", Ask::new("m", 100)).await.unwrap() {
        Reserved::Held(hold) => hold,
        other => panic!("{other:?}"),
    };
    reserve().await.settle(70).await.unwrap();
    clock.advance(Duration::from_secs(86_400));
    let _hold = reserve().await;
    let (status, phase) = (pool().status(), Phase::Serving);
    let page = report(&Situation { phase, status, ledger_fails: false }, &ledger).await.unwrap();
    assert_eq!((&page["charged"], &page["ledger_rows"]), (&70.into(), &2.into()));
    assert_eq!(page["open_rows"], 1);
}
