//! `keywheel check`.

use std::fs;

use keywheel::{ApiKey, Cause};
use keywheel_sim::{KeyState, Limits, ModelConfig, ProjectConfig, SimConfig};

use crate::common::{MODEL, Place, Sim, assert_form};

#[test]
fn living_and_dead_keys_are_told_apart_with_what_to_do_and_at_no_cost() {
    let sim = Sim::with_states(
        Limits::new().rpd(20),
        &[KeyState::Ok, KeyState::Invalid, KeyState::Leaked],
    );
    let place = Place::new().with_sim(&sim);
    let report = place.run(&["check", "--json"]).ends(5).json("check");
    assert_eq!(
        (&report["alive"], &report["dead"], &report["unknown"]),
        (&1.into(), &2.into(), &0.into())
    );
    let keys = report["keys"].as_array().unwrap();
    assert_eq!(keys[0]["health"], "alive");
    assert_eq!((&keys[1]["health"], &keys[1]["cause"]), (&"dead".into(), &"invalid_key".into()));
    assert_eq!(keys[2]["cause"], Cause::LeakedOrSuspendedKey.as_str());
    assert!(keys[1]["fix"].as_str().unwrap().contains("aistudio.google.com"));
    assert_form("check", &[&report]);
    place.run(&["check"]).ends(5).says("1 alive, 2 dead, 0 unknown").says("alive").says("dead");
    // https://github.com/tashfeenahmed/freellmapi/issues/882: checks that spend the quota.
    let stats = sim.server().world().stats();
    assert!(stats.buckets.is_empty(), "a check was counted against a model's quota");
}

/// A check by Bearer, or one that takes 429 for dead, throws good keys away
/// (<https://github.com/NousResearch/hermes-agent/issues/21058>).
#[test]
fn a_429_means_that_the_key_is_valid() {
    let server = tiny_http(
        429,
        r#"{"error":{"code":429,"message":"Resource has been exhausted","status":"RESOURCE_EXHAUSTED"}}"#,
    );
    let place =
        Place::new().with("GEMINI_BASE_URL", server).with("GEMINI_API_KEY_1", "AQ.EXAMPLE-busy");
    let report = place.run(&["check", "--json"]).ends(0).json("check");
    assert_eq!(report["keys"][0]["health"], "limited");
    assert_eq!((&report["alive"], &report["dead"]), (&1.into(), &0.into()));
}

/// No network is no verdict, and loses no key.
#[test]
fn an_unreachable_provider_makes_keys_unknown_and_none_is_thrown_away() {
    let place = Place::new()
        .with("GEMINI_BASE_URL", "http://127.0.0.1:9")
        .with("GEMINI_API_KEY_1", "AQ.EXAMPLE-offline");
    let report = place.run(&["check", "--prune", "keys.txt", "--json"]).ends(3).json("check");
    assert_eq!(report["keys"][0]["health"], "unknown");
    assert!(place.read("keys.txt").contains("could not be checked"));
    assert_eq!(place.read("keys.txt").lines().filter(|line| !line.starts_with('#')).count(), 1);
}

#[test]
fn the_living_keys_are_written_for_their_owner_alone_and_no_file_is_overwritten() {
    let sim = Sim::with_states(Limits::new(), &[KeyState::Ok, KeyState::Invalid, KeyState::Ok]);
    let place = Place::new().with_sim(&sim);
    place.run(&["check", "--prune", "keys.txt"]).ends(5).says("keys.txt");
    let text = place.read("keys.txt");
    let kept: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(kept == [sim.keys[0].as_str(), &sim.keys[2]], "not the living keys");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(place.path("keys.txt")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    place.run(&["check", "--prune", "keys.txt"]).ends(2).complains("already");
    assert!(place.read("keys.txt") == text, "it was overwritten");
}

/// Google retires them (<https://ai.google.dev/gemini-api/docs/api-key>).
#[test]
fn keys_of_the_old_form_are_pointed_out() {
    let old = "AIzaSyEXAMPLE0000000000000000000000000001";
    let own = ApiKey::new(old).unwrap();
    let config = SimConfig::new()
        .with_model(MODEL, ModelConfig::free(Limits::new()))
        .with_project(ProjectConfig::new("old").with_key(own));
    let sim = Sim::of(config, vec![old.to_owned()]);
    let place = Place::new().with_sim(&sim);
    place.run(&["check"]).ends(0).says("of the old form");
}

/// A key that was mended comes back for everybody who shares the state file.
#[test]
fn a_quarantined_key_that_works_again_returns_to_the_pool() {
    let dead = tiny_http(
        400,
        r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}"#,
    );
    let sim = Sim::new(1, Limits::new());
    let place = Place::new().with_sim(&sim).with("GEMINI_BASE_URL", dead);
    place.run(&["ask", "Say hello"]).ends(5);
    place.run(&["status"]).ends(5).says("quarantined");
    let place = place.with("GEMINI_BASE_URL", sim.base_url());
    place.run(&["check"]).ends(0).says("1 alive");
    place.run(&["status"]).ends(0).says("ready");
}

/// A server that gives every request one answer, for as long as the test runs.
fn tiny_http(status: u16, body: &'static str) -> String {
    use std::io::{Read as _, Write as _};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 8_192];
            let _ = stream.read(&mut head);
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    format!("http://{address}")
}
