//! `keywheel status`, `capacity` and `clear`: the state file, looked at and cleared.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use keywheel_sim::{KeyState, Limits};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{MODEL, Place, Sim, assert_form};

/// A quota of two a day, spent by asking.
fn spent() -> (Sim, Place) {
    let sim = Sim::new(1, Limits::new().rpd(2));
    let place = Place::new().with_sim(&sim);
    for code in [0, 0, 3] {
        place.run(&["ask", "Say hello"]).ends(code);
    }
    (sim, place)
}

/// <https://github.com/google-gemini/gemini-cli/issues/2981>
#[test]
fn a_spent_key_is_shown_with_its_limit_where_that_is_from_and_when_it_comes_back() {
    let (_sim, place) = spent();
    let status = place.run(&["status", "--json"]).ends(3).json("status");
    assert_eq!(status["keys"][0]["state"], "cooling");
    assert_eq!(status["keys"][0]["here"], true);
    let bucket = &status["buckets"][0];
    assert_eq!((&bucket["model"], &bucket["ready"]), (&MODEL.into(), &false.into()));
    assert_eq!(bucket["day_requests"], 2);
    let limit = &bucket["limits"][0];
    assert_eq!((&limit["dimension"], &limit["value"]), (&"rpd".into(), &2.into()));
    assert_eq!(limit["source"], "learned");
    assert_eq!(bucket["cooldowns"][0]["cause"], "per_day_requests");
    assert!(bucket["available_at"].is_string());
    place
        .run(&["status"])
        .ends(3)
        .says("2 of 2")
        .says("[##########]")
        .says("rpd 2 (learned)")
        .says("per_day_requests");

    let fresh = Place::new().with("GEMINI_API_KEY_1", "AQ.EXAMPLE-fresh");
    let fresh = fresh.run(&["status", "--json"]).ends(0).json("status");
    assert_form("status", &[&status, &fresh, &dead()]);
}

fn dead() -> Value {
    let sim = Sim::with_states(Limits::new(), &[KeyState::Expired]);
    let place = Place::new().with_sim(&sim);
    place.run(&["ask", "Say hello"]).ends(5);
    let place = place.with("GEMINI_API_KEY_1", "");
    place.run(&["status", "--json"]).ends(5).json("status")
}

/// The gateway's keys are in the environment of a service; whoever looks from a shell sees them all the same.
#[test]
fn a_shell_without_the_keys_sees_what_the_file_knows() {
    let (_sim, place) = spent();
    let place = place.with("GEMINI_API_KEY_1", "");
    let status = place.run(&["status", "--json"]).ends(3).json("status");
    assert_eq!(status["keys"][0]["label"], "GEMINI_API_KEY_1");
    assert_eq!(
        (&status["keys"][0]["here"], &status["keys"][0]["state"]),
        (&false.into(), &"cooling".into())
    );
    let bucket = &status["buckets"][0];
    assert_eq!((&bucket["day_requests"], &bucket["ready"]), (&2.into(), &false.into()));
    assert_eq!(bucket["limits"][0]["value"], 2);
    place.run(&["status"]).ends(3).says("only in the state file");
}

#[test]
fn looking_writes_nothing() {
    let (_sim, place) = spent();
    let files = || {
        let mut files: Vec<_> =
            fs::read_dir(place.path(".")).unwrap().flatten().map(|e| e.file_name()).collect();
        files.sort();
        files
    };
    let (before, listed) = (place.read("pool.json"), files());
    for arguments in [&["status"][..], &["status", "--json"], &["capacity"], &["window"]] {
        place.run(arguments);
    }
    assert_eq!(place.read("pool.json"), before);
    assert_eq!(files(), listed);
    let fresh = Place::new();
    fresh.run(&["status"]).ends(0).says("not there yet");
    assert!(!fresh.path("pool.json").exists());
}

#[test]
fn a_state_file_that_is_none_is_named_and_left_alone() {
    let place = Place::new();
    place.write("pool.json", "{\"version\": 1, \"keys\": tor");
    place.run(&["status"]).ends(1).complains("pool.json");
    assert!(place.read("pool.json").ends_with("tor"));
}

/// <https://github.com/tashfeenahmed/freellmapi/issues/878>
#[test]
fn a_cleared_model_is_ready_again_and_what_has_no_name_clears_nothing() {
    let (_sim, place) = spent();
    place.run(&["clear", "--model", "another-model"]).ends(0).says("nothing was held back");
    place.run(&["clear", "--key", "GEMINI_API_KEY_9"]).ends(2).complains("GEMINI_API_KEY_1");
    place.run(&["status"]).ends(3);
    let cleared =
        place.run(&["clear", "--key", "GEMINI_API_KEY_1", "--json"]).ends(0).json("clear");
    assert_eq!(cleared["cleared"], 1);
    assert_form("clear", &[&cleared]);
    let status = place.run(&["status", "--json"]).ends(0).json("status");
    assert_eq!(
        (&status["keys"][0]["state"], &status["buckets"][0]["ready"]),
        (&"ready".into(), &true.into())
    );
    assert_eq!(status["buckets"][0]["day_requests"], 2, "what was counted is true");
    place.run(&["clear", "--all", "--model", MODEL]).ends(2);
}

#[test]
fn capacity_says_what_a_day_holds_and_what_is_not_known_yet() {
    let (_sim, place) = spent();
    let capacity = place.run(&["capacity", "--per-turn", "2", "--json"]).ends(0).json("capacity");
    let model = &capacity["models"][0];
    assert_eq!((&model["model"], &model["used_today"]), (&MODEL.into(), &2.into()));
    assert_eq!((&model["requests_a_day"], &model["turns_a_day"]), (&2.into(), &1.into()));
    let unknown = place
        .run(&["capacity", "--model", "models/never-asked", "--json"])
        .ends(0)
        .json("capacity");
    let model = &unknown["models"][0];
    assert_eq!((&model["model"], &model["requests_a_day"]), (&"never-asked".into(), &().into()));
    assert_eq!((&model["quota_projects"], &model["unknown"]), (&1.into(), &1.into()));
    place.run(&["capacity"]).ends(0).says("no turns were measured");
    assert_form("capacity", &[&capacity, &unknown]);
}

#[test]
fn a_watch_shows_it_again_and_again_until_it_is_interrupted() {
    let place = Place::new().with("GEMINI_API_KEY_1", "AQ.EXAMPLE-watch");
    let arguments = ["status", "--watch", "--every", "1", "--json"];
    let mut command = place.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let (first, second) = (next(), next());
    assert_eq!((&first["command"], &first["schema"]), (&"status".into(), &1.into()));
    assert!(first["at"].as_str() < second["at"].as_str());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
