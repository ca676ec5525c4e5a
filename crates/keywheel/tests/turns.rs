//! What a turn costs: every request is counted once, in its step, whatever becomes of the call; and what follows
//! from it for a day.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{pin::pin, sync::Arc, time::Duration};

use common::{
    MIDNIGHT, MODEL, NOON, OTHER_MODEL, Rig, at,
    bodies::{day_spent, overloaded},
    poll_times, secs, specs,
};
use keywheel::{
    Gemini, Limits, ManualClock, Pool, PoolBuilder, StateLocation, TurnReport,
    embed_cache::EmbedCacheConfig,
};
use keywheel_provider::testing::{Recorded, Script, Scripted};

const EMBEDDING: &str = "gemini-embedding-001";

fn rpd(requests: u64) -> Limits {
    Limits { rpd: Some(requests), ..Limits::default() }
}

/// A text for each prompt, a vector for each text.
fn answer(request: &Recorded) -> Scripted {
    match request.json()["requests"].as_array() {
        Some(texts) => Scripted::embeddings(texts.iter().map(|_| [0.5_f32, 0.25])),
        None => Scripted::text("Hello"),
    }
}

fn call(rig: &Rig, gemini: &Gemini) {
    rig.run(gemini.generate(MODEL, "Hello")).unwrap();
}

fn step<'a>(report: &'a TurnReport, name: &str) -> &'a keywheel::turns::StepUse {
    &report.steps.iter().find(|step| step.step == name).unwrap().used
}

#[test]
fn twenty_one_keys_of_500_a_day_make_1_344_turns_of_7_8_attempts() {
    let rig = Rig::built(21, |pool| pool.limits(MODEL, rpd(500)), |client| client);
    rig.script.otherwise(answer);
    for calls in [7, 8, 8, 8, 8] {
        let turn = rig.gemini.turn("chat");
        (0..calls).for_each(|_| call(&rig, &turn.step("answer")));
        assert_eq!(turn.finish().total().attempts, calls);
    }
    let turns = rig.gemini.turns();
    let chat = turns.kind("chat").unwrap();
    let model = chat.model(MODEL).unwrap();
    assert!((model.per_turn.mean - 7.8).abs() < 1e-9);
    assert_eq!((model.per_turn.p50, model.per_turn.p95, model.per_turn.max), (8, 8, 8));
    assert_eq!(chat.capacity.turns_a_day, Some(1_344));
    assert_eq!(chat.capacity.bound_by.as_deref(), Some(MODEL));
    assert!(turns.to_string().contains("at most 1,344 turns a day"), "{turns}");
    assert!(turns.to_string().lines().next().unwrap().ends_with(" (Pacific)"), "{turns}");
}

#[test]
fn the_model_with_the_least_room_binds_and_unknown_limits_are_said_to_be_unknown() {
    let limits = |pool: PoolBuilder| pool.limits(MODEL, rpd(500)).limits(OTHER_MODEL, rpd(20));
    let rig = Rig::built(2, limits, |client| client);
    rig.script.otherwise(answer);
    let turn = rig.gemini.turn("chat");
    call(&rig, &turn.step("answer"));
    rig.run(turn.step("check").generate(OTHER_MODEL, "Hello")).unwrap();
    rig.run(turn.step("recall").embed(EMBEDDING, "a text")).unwrap();
    drop(turn);
    let turns = rig.gemini.turns();
    let chat = turns.kind("chat").unwrap();
    assert_eq!(chat.capacity.turns_a_day, Some(40));
    assert_eq!(chat.capacity.bound_by.as_deref(), Some(OTHER_MODEL));
    assert_eq!(chat.capacity.unknown, [EMBEDDING]);
    let embedding = chat.model(EMBEDDING).unwrap().capacity.unwrap();
    assert_eq!((embedding.quota_projects, embedding.unknown, embedding.turns_a_day), (2, 2, None));
}

#[test]
fn every_request_is_counted_in_its_step_with_what_it_weighs() {
    let rig = Rig::built(3, |pool| pool, |client| client.embed_cache(EmbedCacheConfig::default()));
    for reply in [day_spent(500), overloaded(), Scripted::text("Hello")] {
        rig.script.reply(reply);
    }
    rig.script.otherwise(answer);
    let turn = rig.gemini.turn("chat");
    call(&rig, &turn.step("answer"));
    for _ in 0..2 {
        rig.run(turn.step("recall").embed(EMBEDDING, ["a", "b", "c"])).unwrap();
    }
    call(&rig, &turn.step("answer"));
    rig.script.reply(Scripted::stream(["Hel", "lo"]));
    rig.run(async {
        let mut stream = turn.step("tell").stream(MODEL, "Hello").await.unwrap();
        while stream.next().await.transpose().unwrap().is_some() {}
    });
    let report = turn.finish();

    let answer = step(&report, "answer");
    assert_eq!((answer.calls, answer.total().attempts, answer.total().retries), (2, 4, 2));
    let recall = step(&report, "recall");
    assert_eq!((recall.calls, recall.embedded, recall.cache_hits), (2, 3, 3));
    let embedding = recall.models[EMBEDDING];
    assert_eq!((embedding.attempts, embedding.requests), (1, 3), "a batch weighs its texts");
    assert_eq!(step(&report, "tell").total().attempts, 1);
    assert_eq!(report.total().attempts, rig.script.requests().len() as u64);
    assert!(report.to_string().contains("recall"), "{report}");
}

#[test]
fn names_of_turns_and_steps_break_no_table_and_tell_no_key() {
    const SECRET: &str = "AIzaSyEXAMPLE0000000000000000000000000001";
    let rig = Rig::new(1);
    rig.script.otherwise(answer);
    let turn = rig.gemini.turn(&format!("chat \u{1b}[2J\n{SECRET}"));
    for name in ["", "\u{1F600}", "a\nb\u{202E}", SECRET, "gr\u{fc}\u{df}e"] {
        call(&rig, &turn.step(name));
    }
    let report = turn.finish();
    assert_eq!(report.total().attempts, 5);
    let turns = rig.gemini.turns();
    for text in [report.to_string(), turns.to_string()] {
        assert!(!text.contains(['\u{1b}', '\u{202E}']), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with('b')), "{text:?}");
    }
    let told = format!("{report:?} {turns:?} {}", serde_json::to_string(&turns).unwrap());
    assert!(!told.contains("EXAMPLE0"), "a key was kept as a name");
}

#[test]
fn what_draws_on_no_models_quota_binds_no_turn() {
    let rig = Rig::built(1, |pool| pool.limits("*", rpd(10)), |client| client);
    rig.script.otherwise(|request| match request.model() {
        Some(_) if request.url.ends_with(":countTokens") => Scripted::token_count(3),
        _ => Scripted::text("Hello"),
    });
    let turn = rig.gemini.turn("chat");
    for _ in 0..50 {
        rig.run(turn.step("weigh").count_tokens(MODEL, "Hello")).unwrap();
    }
    call(&rig, &turn.step("answer"));
    drop(turn);
    let turns = rig.gemini.turns();
    let chat = turns.kind("chat").unwrap();
    assert_eq!(chat.capacity.turns_a_day, Some(10), "{turns}");
    let route = chat.models.iter().find(|model| model.model.starts_with("api:")).unwrap();
    assert_eq!((route.used.attempts, route.capacity), (50, None));
}

#[test]
fn a_call_dropped_at_any_await_leaves_as_many_attempts_as_requests_were_sent() {
    let mut seen = [false; 4];
    for polls in 0.. {
        let rig = Rig::new(3);
        for reply in [day_spent(500), overloaded(), Scripted::text("Hello")] {
            rig.script.reply(reply.after(Duration::from_millis(100)));
        }
        let turn = rig.gemini.turn("chat");
        let ended = {
            let gemini = turn.step("answer");
            let call = pin!(gemini.generate(MODEL, "Hello").into_future());
            poll_times(&rig.clock, call, polls).is_some()
        };
        let sent = rig.script.requests().len();
        seen[sent] = true;
        assert_eq!(turn.finish().total().attempts, sent as u64, "after {polls} polls");
        let turns = rig.gemini.turns();
        let chat = turns.kind("chat").unwrap();
        assert_eq!((chat.turns, chat.late.total().attempts), (1, 0), "after {polls} polls");
        if ended {
            break;
        }
    }
    assert_eq!(seen, [true; 4], "it was dropped after each request");
}

#[test]
fn what_comes_after_the_end_of_its_turn_is_told_apart() {
    let rig = Rig::new(1);
    rig.script.otherwise(answer);
    let turn = rig.gemini.turn("chat");
    let straggler = turn.step("answer");
    call(&rig, &straggler);
    assert_eq!(turn.report().total().attempts, 1, "a report of a turn that goes on");
    drop(turn);
    call(&rig, &straggler);
    call(&rig, &straggler.clone());
    drop(straggler);
    let turns = rig.gemini.turns();
    let chat = turns.kind("chat").unwrap();
    let counted = chat.model(MODEL).unwrap().used.attempts;
    assert_eq!((chat.turns, counted, chat.late.total().attempts), (1, 1, 2));
    assert!(turns.to_string().contains("2 attempts came after"), "{turns}");
}

#[test]
fn a_turn_that_straddles_a_reset_is_flagged_with_what_was_spent_before() {
    let rig = Rig::new(2);
    rig.script.otherwise(answer);
    (0..5).for_each(|_| call(&rig, &rig.gemini));
    rig.clock.set(at(MIDNIGHT) - secs(30));
    let turn = rig.gemini.turn("chat");
    call(&rig, &turn.step("answer"));
    rig.clock.set(at(MIDNIGHT) + secs(30));
    for _ in 0..9 {
        call(&rig, &turn.step("answer"));
    }
    let report = turn.finish();
    assert!(report.straddled_reset);
    assert_eq!(report.spent_at_start[MODEL], 5);
    assert!(report.to_string().contains("straddled"), "{report}");

    let turn = rig.gemini.turn("chat");
    call(&rig, &turn.step("answer"));
    let within = turn.finish();
    assert!(!within.straddled_reset);
    assert_eq!(within.spent_at_start[MODEL], 9, "the new day's count");

    let turns = rig.gemini.turns();
    let chat = turns.kind("chat").unwrap();
    assert_eq!((chat.turns, chat.straddled), (1, 1));
    assert_eq!(chat.straddled_use.total().requests, 10);
    assert_eq!(chat.model(MODEL).unwrap().per_turn.max, 1, "figures are those of whole days");
    assert_eq!(turns.recent.len(), 2);
}

#[test]
fn figures_outlive_the_process_and_are_those_of_all_that_share_the_state_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.json");
    let now = ManualClock::at(at(NOON));
    let clock = || Arc::new(now.clone());
    let open = || {
        let script = Script::new().with_clock(clock());
        script.otherwise(answer);
        let pool = Pool::builder()
            .keys(specs(2))
            .clock(clock())
            .state(StateLocation::File(file.clone()))
            .build()
            .unwrap();
        common::over(pool, script, |client| client)
    };
    let (first, second) = (open(), open());
    for gemini in [&first, &second] {
        let turn = gemini.turn("chat");
        common::run(&now, turn.step("answer").generate(MODEL, "Hello")).unwrap();
    }
    futures_executor::block_on(first.flush()).unwrap();
    assert_eq!(second.turns().kind("chat").unwrap().turns, 2);
    drop((first, second));
    let turns = open().turns();
    assert_eq!(turns.kind("chat").unwrap().turns, 2);
    assert_eq!(turns.recent.len(), 2);
    assert!(folder.path().join("pool.turns.json").exists());
}
