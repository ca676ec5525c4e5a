//! `keywheel ask`.

use keywheel_sim::{KeyState, Limits};

use crate::common::{Place, Sim, assert_form};

#[test]
fn the_answer_alone_goes_to_standard_output() {
    let sim = Sim::new(1, Limits::new());
    let place = Place::new().with_sim(&sim);
    let ended = place.run(&["ask", "Say hello"]).ends(0).says("Say hello").says_no_more();
    assert!(ended.stdout.starts_with("Simulated answer") && ended.stdout.ends_with('\n'));
    place
        .run_with(&["ask", "-v"], "From a pipe")
        .ends(0)
        .says("From a pipe")
        .complains("by GEMINI_API_KEY_1");
    let answer = place.run(&["ask", "--json", "Say hello"]).ends(0).json("ask");
    assert_eq!(answer["key"], "GEMINI_API_KEY_1");
    assert!(answer["usage"]["total"].as_u64().unwrap() > 0);
    assert_form("ask", &[&answer]);
}

#[test]
fn a_dead_key_is_passed_over_and_none_at_all_is_told_apart_from_all_dead() {
    let sim = Sim::with_states(Limits::new(), &[KeyState::Invalid, KeyState::Ok]);
    let place = Place::new().with_sim(&sim);
    let answer = place.run(&["ask", "--json", "Say hello"]).ends(0).json("ask");
    assert_eq!(answer["attempts"][0]["kind"], "invalid_key");
    assert_eq!(answer["key"], "GEMINI_API_KEY_2");

    // https://github.com/NousResearch/hermes-agent/issues/40960
    let dead = Place::new().with_sim(&Sim::new(0, Limits::new()));
    dead.run(&["ask", "Say hello"]).ends(2).complains("GEMINI_API_KEY").complains("aistudio");
    let sim = Sim::with_states(Limits::new(), &[KeyState::Invalid]);
    let dead = Place::new().with_sim(&sim);
    dead.run(&["ask", "Say hello"]).ends(5).complains("keywheel check");
}

#[test]
fn a_question_that_is_none_and_a_model_that_is_not_there_are_the_askers_fault() {
    let sim = Sim::new(1, Limits::new());
    let place = Place::new().with_sim(&sim);
    place.run_with(&["ask"], "  \n").ends(2).complains("no question");
    place.run(&["ask", "-m", "gemini-none", "Say hello"]).ends(1);
}

/// A cap that a shell passes by is none.
#[test]
fn with_a_configuration_the_question_is_charged_to_a_project() {
    let sim = Sim::new(1, Limits::new());
    let place = Place::new().with_sim(&sim);
    place.write("keywheel.toml", "[projects.app]\n[projects.default]\ncalls_per_day = 1\n");
    place.run(&["ask", "Say hello"]).ends(0);
    place.run(&["ask", "Say hello"]).ends(3).complains("1 calls a day").complains("ledger usage");
    place.run(&["ask", "--project", "app", "Say hello"]).ends(0);
    place.run(&["ask", "--project", "none", "Say hello"]).ends(2).complains("app, default");
    let usage = place.run(&["ledger", "usage", "--json"]).ends(0).json("ledger usage");
    assert_eq!(usage["all"]["day"]["calls"], 2);
    let alone = Place::new().with_sim(&sim);
    alone.run(&["ask", "--project", "app", "Say hello"]).ends(2).complains("configuration");
}
