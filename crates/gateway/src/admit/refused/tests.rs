use std::sync::Arc;

use keywheel::{
    Exhausted, ManualClock,
    ledger::{Ask, Ledger, Limit as Cap, Period, Reserved},
};

use super::*;
use crate::route::Dialect;

fn now() -> DateTime<Utc> {
    "2026-11-30T20:00:00Z".parse().unwrap()
}

/// In so many seconds.
fn in_s(seconds: i64) -> i64 {
    now().timestamp_millis() + seconds * 1_000
}

fn exhausted(kind: ExhaustedKind, soonest_ms: Option<i64>) -> Refused {
    let soonest = soonest_ms.and_then(DateTime::from_timestamp_millis);
    let exhausted =
        Exhausted { model: "m".to_owned(), kind, soonest, reasons: Vec::new(), omitted: 0 };
    let exhausted = Box::new(exhausted);
    Refused::Ended(Error::Exhausted { exhausted, attempts: Vec::new(), skipped: Vec::new() })
}

/// What is said of it: reason, whose limit, seconds to wait, and whether to try again.
fn said(refused: &Refused) -> (&'static str, String, String, Option<bool>) {
    let refusal = refused.refusal("a", now());
    let answer = refusal.response(Dialect::Native, now());
    let pause = answer.headers()["retry-after"].to_str().unwrap().to_owned();
    (refusal.reason.as_str(), refusal.scope, pause, refusal.should_retry)
}

#[test]
fn whatever_stood_in_the_way_is_named_with_whose_it_is_and_when_to_come_back() {
    let waited = Duration::from_secs(30);
    let met = |limit, until_ms| Some(Met { limit, until_ms, may_be_freed: true });
    let full = |met| Refused::QueueFull { depth: 3, met };
    let behind = |met| Refused::Behind { met, waited };
    let (own, day) = ("project a", Some(in_s(9)));
    for (refused, reason, scope, pause, should_retry) in [
        (Refused::PerMinute { cap: 2, reset_ms: in_s(40) }, "requests_per_minute", own, "40", None),
        (full(None), "queue_full", own, "5", None),
        (full(met(Limit::Own, day)), "queue_full", own, "9", None),
        (Refused::InFlight { waited }, "in_flight", own, "5", None),
        (behind(None), "queue_full", own, "5", None),
        (behind(met(Limit::Own, day)), "over_budget", own, "9", Some(false)),
        (behind(met(Limit::Allowance, None)), "over_budget", "allowance", "5", Some(false)),
        (behind(met(Limit::Keys, day)), "exhausted", "pool", "9", None),
        (Refused::Stopping, "stopping", "gateway", "5", None),
        (exhausted(ExhaustedKind::Busy, None), "exhausted", "pool", "5", None),
        (exhausted(ExhaustedKind::Busy, day), "exhausted", "pool", "9", Some(true)),
        (exhausted(ExhaustedKind::Cooling, None), "exhausted", "pool", "3600", Some(false)),
    ] {
        let expected = (reason, scope.to_owned(), pause.to_owned(), should_retry);
        assert_eq!(said(&refused), expected, "{refused:?}");
    }
}

#[tokio::test]
async fn a_refusal_says_in_its_headers_how_full_the_limit_is_that_it_met() {
    let marked = |refused: &Refused| {
        let mut headers = HeaderMap::new();
        refused.mark(&mut headers, now());
        headers
    };
    let headers = marked(&Refused::PerMinute { cap: 2, reset_ms: in_s(40) });
    assert_eq!(headers["ratelimit"], "\"requests-a-minute\";r=0;t=40");
    assert!(marked(&Refused::Stopping).is_empty());

    let ledger = Ledger::builder().clock(Arc::new(ManualClock::at(now()))).in_memory();
    let ledger = ledger.account("a", [Cap::tokens(Period::Day, 1_000)]).open().await.unwrap();
    let reserve = async |tokens| ledger.reserve("a", Ask::new("m", tokens)).await.unwrap();
    let Reserved::Held(settled) = reserve(300).await else { panic!("there is room") };
    settled.settle(300).await.unwrap();
    let _hold = reserve(500).await;
    let denied = async |tokens| {
        let Reserved::Denied(denied) = reserve(tokens).await else { panic!("there is no room") };
        let denied = Box::new(denied);
        let error = Error::OverBudget { denied, attempts: Vec::new(), skipped: Vec::new() };
        Refused::Ended(error)
    };
    let refused = denied(201).await;
    assert_eq!(
        marked(&refused)["x-keywheel-budget"],
        "scope=project, period=day, unit=tokens, cap=1000, used=800, left=200, \
         reset=\"2026-12-01T08:00:00Z\""
    );
    // What is reserved may come back; what is settled does not.
    for (tokens, pause) in [(201, "30"), (701, "43200")] {
        let told = ("over_budget", "project a".into(), pause.into(), Some(false));
        assert_eq!(said(&denied(tokens).await), told);
    }
}
