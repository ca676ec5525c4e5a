//! What does not fit into the budget is not sent, and neither is anything while the ledger cannot write.

#![cfg(feature = "ledger")]

mod common;

use std::sync::Arc;

use common::{
    MIDNIGHT, MODEL, OTHER_MODEL, Rig, at,
    bodies::{day_spent, part, reply},
    ledger::{APP, Charged, OUTPUT, gated::Gated, request},
};
use futures_util::{FutureExt as _, future::join_all};
use keywheel::{
    Error, Gemini, GeminiBuilder, Pool, SkipReason, StateLocation,
    ledger::{ErrorKind, Ledger, Limit, Outcome, Period, Scope},
};
use keywheel_provider::testing::Scripted;
use serde_json::json;

fn hello() -> Scripted {
    reply(200, &part("Hello", Some("STOP"), (8, 1)))
}

fn tokens(cap: u64) -> [Limit; 1] {
    [Limit::tokens(Period::Day, cap)]
}

#[test]
fn what_does_not_fit_is_not_sent_and_says_when_it_will() {
    let it = Charged::new(2, tokens(OUTPUT));
    let error = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap_err();
    let Error::OverBudget { denied, attempts, .. } = &error else { panic!("{error}") };
    assert!(attempts.is_empty());
    assert!(denied.never_fits(), "{denied}");
    assert_eq!(error.next_available_at(), None, "waiting does not make the request smaller");
    assert_eq!(it.rig.script.requests().len(), 0);
    assert_eq!(it.rig.counted(MODEL), 0, "the key goes back unused");
    it.assert_balanced();

    let it = Charged::new(2, tokens(2 * OUTPUT));
    it.rig.script.otherwise(|_| reply(200, &part("Hello", Some("STOP"), (90, 90))));
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    for _ in 0..3 {
        let error = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap_err();
        assert_eq!(error.next_available_at(), Some(at(MIDNIGHT)), "{error}");
        let stream = it.rig.run(it.rig.gemini.stream(MODEL, request())).unwrap_err();
        assert!(matches!(stream, Error::OverBudget { .. }), "{stream}");
    }
    assert_eq!((it.rig.script.requests().len(), it.rig.counted(MODEL)), (1, 1));
    it.assert_balanced();
    it.rig.clock.set(at(MIDNIGHT));
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
}

/// What was refused before is not charged, and the call tells of it.
#[test]
fn a_call_denied_after_its_first_attempt_tells_both() {
    let it = Charged::new(2, tokens(2 * OUTPUT));
    // While the first attempt is under way, somebody lowers the cap.
    let ledger = it.ledger.clone();
    it.rig.script.otherwise(move |_| {
        let rules = (*ledger.rules()).clone().account(APP, tokens(1)).unwrap();
        ledger.set_rules(rules);
        day_spent(20)
    });
    let error = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap_err();
    assert!(matches!(error, Error::OverBudget { .. }), "{error}");
    assert_eq!(error.attempts().len(), 1);
    assert_eq!(it.used(), 0);
    it.assert_balanced();
}

#[test]
fn a_limit_on_one_model_lets_another_answer() {
    let it = Charged::built(1, [Limit::calls(Period::Day, 0).for_model(MODEL)], |client| {
        client.fallback([OTHER_MODEL])
    });
    it.rig.script.otherwise(|_| hello());
    let reply = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    assert_eq!(reply.model(), OTHER_MODEL);
    let skipped = &reply.skipped()[0];
    assert_eq!((skipped.model.as_str(), skipped.reason), (MODEL, SkipReason::OverBudget));
    assert_eq!(&*it.rows()[0].model, OTHER_MODEL);
    // Alone, it is the end.
    let alone = it.rig.gemini.generate(MODEL, request()).without_fallback();
    assert!(matches!(it.rig.run(alone), Err(Error::OverBudget { .. })));
    it.assert_balanced();
}

#[test]
fn a_limit_on_all_models_is_the_end_whatever_the_chain() {
    let it = Charged::built(1, tokens(1), |client| client.fallback([OTHER_MODEL]));
    let error = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap_err();
    let Error::OverBudget { denied, .. } = error else { panic!("{error}") };
    assert_eq!(denied.limit.model, None);
    assert_eq!(it.rig.script.requests().len(), 0);
}

#[test]
fn the_callback_answers_for_a_spent_budget_and_is_told() {
    let it = Charged::built(1, tokens(2 * OUTPUT), |client| {
        client.on_exhausted(|context| async move {
            let denied = context.over_budget.expect("it was the budget");
            assert_eq!(context.exhausted.soonest, denied.retry_at);
            format!("{} of {} are left, {}", denied.left(), denied.limit.cap, context.model)
        })
    });
    it.rig.script.otherwise(|_| reply(200, &part("Hello", Some("STOP"), (90, 90))));
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    let reply = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    assert_eq!(reply.text(), format!("20 of 200 are left, {MODEL}"));
    assert_eq!(reply.degraded().unwrap().soonest, Some(at(MIDNIGHT)));
    assert_eq!(reply.over_budget().unwrap().scope, Scope::Account(APP.parse().unwrap()));
}

#[test]
fn a_call_may_name_the_account_that_pays() {
    let it = Charged::new(1, tokens(0));
    it.rig.script.otherwise(|_| hello());
    let paid = it.rig.gemini.generate(MODEL, request()).account("other");
    it.rig.run(paid).unwrap();
    assert_eq!(it.rows()[0].account.as_str(), "other");
    let error = it.rig.run(it.rig.gemini.generate(MODEL, "hi").account("nobody")).unwrap_err();
    let Error::Ledger { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), ErrorKind::UnknownAccount);
    assert_eq!(it.rig.script.requests().len(), 1);
    it.assert_balanced();
}

/// A name with a typing error must not be found out by the first user.
#[test]
fn an_unknown_account_fails_when_the_client_is_built() {
    let builder = Ledger::builder().account("triage", []).in_memory();
    let ledger = builder.open().now_or_never().unwrap().unwrap();
    let pool = Pool::builder().keys([common::spec(1)]).state(StateLocation::None).build().unwrap();
    let builder = Gemini::builder().pool(pool).without_daily_checks().ledger(ledger, "traige");
    let error = builder.build().now_or_never().unwrap().unwrap_err();
    assert!(error.to_string().contains("traige"), "{error}");
}

#[test]
fn while_the_ledger_cannot_write_nothing_is_sent() {
    let store = Gated::new();
    let it = Charged::over(Arc::new(store.clone()), 2, [], |client| client.fallback([OTHER_MODEL]));
    it.rig.script.otherwise(|_| hello());
    store.set_broken(true);
    for _ in 0..3 {
        let error = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap_err();
        let Error::Ledger { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.kind(), ErrorKind::Store);
        assert!(it.rig.run(it.rig.gemini.stream(MODEL, request())).is_err());
        assert!(it.rig.run(it.rig.gemini.embed("gemini-embedding-001", ["a"])).is_err());
    }
    assert_eq!(it.rig.script.requests().len(), 0);
    it.rig.assert_balanced();
    store.set_broken(false);
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    it.assert_balanced();
}

/// What was answered is handed out: it was spent already.
#[test]
fn a_ledger_that_fails_after_the_answer_keeps_the_estimate_charged() {
    let store = Gated::new();
    let it = Charged::over(Arc::new(store.clone()), 1, [], |client| client);
    let breaking = store.clone();
    it.rig.script.otherwise(move |_| {
        breaking.set_broken(true);
        hello()
    });
    it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    store.set_broken(false);
    let estimate = it.rows()[0].estimate.total();
    assert_eq!(it.used(), estimate);
    it.rig.clock.advance(std::time::Duration::from_secs(901));
    it.rig.run(it.ledger.sweep()).unwrap();
    assert_eq!(it.used(), estimate);
    it.assert_balanced();
}

/// What is reserved is what can be used at most, so a request has to have a bound.
#[test]
fn a_request_without_a_bound_gets_the_accounts_that_field_alone() {
    let it = Charged::new(1, []);
    it.rig.script.otherwise(|_| reply(200, &part("Hel", Some("MAX_TOKENS"), (8, 1))));
    let plain = keywheel::GenerateRequest::from("hi").with_temperature(0.5);
    let reply = it.rig.run(it.rig.gemini.generate(MODEL, plain.clone())).unwrap();
    assert!(reply.output_was_capped());
    let sent = it.rig.script.requests()[0].json();
    let mut expected = serde_json::to_value(&plain).unwrap();
    expected["generationConfig"]["maxOutputTokens"] = json!(8_192);
    assert_eq!(sent, expected);
    assert_eq!(it.rows()[0].estimate.output, 8_192);

    // Its own bound is its own.
    let reply = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    assert!(!reply.output_was_capped());

    // The account's.
    let mut rules = (*it.ledger.rules()).clone();
    let account = rules.accounts.get_mut(APP).unwrap();
    account.default_max_output = Some(700);
    it.ledger.set_rules(rules);
    it.rig.run(it.rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(it.rows()[2].estimate.output, 700);
}

/// Reserving nothing for it would lead past any budget.
#[test]
fn a_bound_of_0_is_none() {
    let nothing = request().with_max_output_tokens(0);
    let it = Charged::new(1, []);
    it.rig.script.otherwise(|_| hello());
    it.rig.run(it.rig.gemini.generate(MODEL, nothing.clone())).unwrap();
    let sent = it.rig.script.requests()[0].json();
    assert_eq!(sent["generationConfig"]["maxOutputTokens"], 8_192);
    assert_eq!(it.rows()[0].estimate.output, 8_192);

    let as_it_is = Charged::built(1, [], GeminiBuilder::without_output_cap);
    as_it_is.rig.script.otherwise(|_| hello());
    as_it_is.rig.run(as_it_is.rig.gemini.generate(MODEL, nothing)).unwrap();
    let sent = as_it_is.rig.script.requests()[0].json();
    assert_eq!(sent["generationConfig"]["maxOutputTokens"], 0);
    assert_eq!(as_it_is.rows()[0].estimate.output, 65_536);
}

/// A model refuses more than it can write.
#[test]
fn the_bound_is_no_longer_than_the_models_own() {
    let facts = keywheel::ModelFacts { output_token_limit: Some(2_048), ..Default::default() };
    let it = Charged::built(1, [], |client| client.model_facts(MODEL, facts));
    it.rig.script.otherwise(|_| hello());
    it.rig.run(it.rig.gemini.generate(MODEL, "hi")).unwrap();
    let sent = it.rig.script.requests()[0].json();
    assert_eq!(sent["generationConfig"]["maxOutputTokens"], 2_048);
}

#[test]
fn with_the_setting_off_the_request_stays_as_it_is_and_the_models_limit_is_reserved() {
    let facts = keywheel::ModelFacts { output_token_limit: Some(2_048), ..Default::default() };
    let it =
        Charged::built(1, [], |client| client.without_output_cap().model_facts(OTHER_MODEL, facts));
    it.rig.script.otherwise(|_| hello());
    for model in [MODEL, OTHER_MODEL] {
        it.rig.run(it.rig.gemini.generate(model, "hi")).unwrap();
    }
    let sent = it.rig.script.requests();
    assert!(sent.iter().all(|sent| sent.json().get("generationConfig").is_none()));
    let outputs: Vec<_> = it.rows().iter().map(|row| row.estimate.output).collect();
    assert_eq!(outputs, [65_536, 2_048]);
}

/// A hundred callers who all try again at once: <https://github.com/BerriAI/litellm/issues/26803> lets each of them
/// read the counter before any of them writes it.
#[test]
fn a_hundred_calls_at_once_cannot_pass_the_cap() {
    let it = Charged::new(4, tokens(10 * (OUTPUT + 20)));
    it.rig.script.otherwise(|_| {
        reply(200, &part("Hello", Some("STOP"), (8, OUTPUT)))
            .after(std::time::Duration::from_secs(1))
    });
    let calls = (0..100).map(|_| it.rig.gemini.generate(MODEL, request()).into_future());
    let ended = it.rig.run(join_all(calls));
    let served = ended.iter().filter(|ended| ended.is_ok()).count() as u64;
    let denied = ended.iter().filter(|ended| matches!(ended, Err(Error::OverBudget { .. })));
    assert_eq!(served + denied.count() as u64, 100);
    assert_eq!(it.rig.script.requests().len() as u64, served, "the others sent nothing");
    assert_eq!(it.used(), served * (OUTPUT + 8));
    let estimate = it.rows()[0].estimate.total();
    assert!(it.used() <= 10 * (OUTPUT + 20));
    assert!(it.used() + estimate > 10 * (OUTPUT + 20), "what fits was let through: {served}");
    it.assert_balanced();
}

/// With estimates wrong by twice either way the counter is in the end what was used, and no further over than the
/// calls under way were wrong.
#[test]
fn estimates_wrong_by_two_either_way_end_at_what_was_used() {
    for (per_call, what) in [(2, "half of it"), (1, "twice as much")] {
        let cap = 20_000;
        let it = Charged::new(8, tokens(cap));
        // The estimate of these is about 2,100; they use half or twice as much.
        let text = "word ".repeat(1_600);
        let estimate = {
            let probe = Charged::new(1, []);
            probe.rig.script.reply(hello());
            let asked = request().with_content(keywheel::Content::user([text.as_str()]));
            probe.rig.run(probe.rig.gemini.generate(MODEL, asked)).unwrap();
            probe.rows()[0].estimate.total()
        };
        let actual = if per_call == 2 { estimate / 2 } else { estimate * 2 };
        it.rig.script.otherwise(move |_| {
            let body = part("Hello", Some("STOP"), (actual - 1, 1));
            reply(200, &body).after(std::time::Duration::from_secs(1))
        });
        let mut served = 0;
        let mut most_at_once = 0_u64;
        loop {
            let calls = (0..4).map(|_| {
                let asked = request().with_content(keywheel::Content::user([text.as_str()]));
                it.rig.gemini.generate(MODEL, asked).into_future()
            });
            let ended = it.rig.run(join_all(calls));
            let now = ended.iter().filter(|ended| ended.is_ok()).count() as u64;
            served += now;
            most_at_once = most_at_once.max(now);
            if now == 0 {
                break;
            }
        }
        assert!(served > 0);
        assert_eq!(it.used(), served * actual, "{what}: the sum of what was used");
        let error = actual.saturating_sub(estimate);
        assert!(it.used() <= cap + most_at_once * error, "{what}: {} of {cap}", it.used());
        assert!(it.used() + estimate > cap, "{what}: nothing that fits is refused");
        it.assert_balanced();
    }
}

/// What an answer used teaches how far estimates are off: the next ones are bounds again.
#[test]
fn estimates_learn_from_what_was_used() {
    let it = Charged::new(1, []);
    it.rig.script.otherwise(|_| reply(200, &part("Hello", Some("STOP"), (30, 1))));
    let mut first = None;
    for _ in 0..60 {
        it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
        first.get_or_insert(it.rows()[0].estimate.input);
    }
    let (first, last) = (first.unwrap(), it.rows().last().unwrap().estimate.input);
    assert!(first < 30 && last >= 30, "{first}, then {last}");
    assert!(it.rows().iter().all(|row| row.outcome == Some(Outcome::Answered)));
}

#[test]
fn the_name_of_a_call_is_in_its_rows_and_in_its_reply() {
    let it = Charged::new(1, []);
    it.rig.script.otherwise(|_| hello());
    let one = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    let other = it.rig.run(it.rig.gemini.generate(MODEL, request())).unwrap();
    assert_ne!(one.request_id(), other.request_id());
    let names: Vec<_> = it.rows().iter().map(|row| row.request_id.clone()).collect();
    assert_eq!(names, [one.request_id().unwrap(), other.request_id().unwrap()]);
    let plain = Rig::new(1);
    plain.script.reply(hello());
    let reply = plain.run(plain.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(reply.request_id(), None, "nobody is charged");
}
