//! The TOML format, and its faults.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::time::Duration;

use keywheel_core::Tier;
use keywheel_sim::{
    DayHint, KeyState, Limits, ProjectState, Signatures, SimConfig, UnknownKeys, Windows,
};

const WHOLE: &str = r#"
seed = 7
windows = "fixed"
day_hint = "hours"
latency_ms = [200, 800]
chunk_pause_ms = 20
unknown_keys = "own_project"
cache_min_tokens = 10
gzip = true

[files]
lifetime_hours = 1
processing_ms = 5
chunk_bytes = 1024

[[outages]]
model = "gemini-3.5-flash-lite"
from = 2026-11-30T07:00:00Z
until = "2026-11-30T07:10:00Z"

[models."gemini-3.5-flash-lite"]
internal_name = "gemini-3.5-flash-lite-001"
free = { rpm = 15, tpm = 250000, rpd = 500 }
paid = { rpm = 4000 }
continue_after = 100
signatures = "given"
latency_ms = 7
faults = { cut = 1.0 }

[models."gemini-embedding-001"]
embeds = true
free = { rpm = 100 }

[[projects]]
name = "alpha"
state = "suspended"
reset_late_s = -5
reset_zone = "Asia/Kolkata"
closed_models = ["gemini-embedding-001"]
refuses_caches = true
limits."gemini-3.5-flash-lite" = { rpm = 3 }
keys = ["AQ.EXAMPLE-1", { key = "AQ.EXAMPLE-2", state = "expired" }]

[[projects]]
name = "beta"
tier = "paid"

[faults]
overloaded = 0.01
split = 1.0
"#;

#[test]
fn everything_can_be_set() {
    let config = SimConfig::from_toml(WHOLE).unwrap();
    assert_eq!(config.seed, 7);
    assert_eq!(config.windows, Windows::Fixed);
    assert_eq!(config.day_hint, DayHint::Hours);
    assert_eq!(config.latency, (Duration::from_millis(200), Duration::from_millis(800)));
    assert_eq!(config.chunk_pause, Duration::from_millis(20));
    assert_eq!(config.unknown_keys, UnknownKeys::OwnProject);
    assert_eq!(config.cache_min_tokens, 10);
    assert!(config.gzip);
    assert_eq!(config.files.lifetime, Duration::from_secs(3_600));
    assert_eq!(config.files.processing, Duration::from_millis(5));
    assert_eq!(config.files.chunk_bytes, 1_024);
    let outage = &config.outages[0];
    assert_eq!((outage.until - outage.from).num_minutes(), 10);
    let lite = &config.models["gemini-3.5-flash-lite"];
    assert_eq!(lite.free, Limits::new().rpm(15).tpm(250_000).rpd(500));
    assert_eq!(lite.paid, Limits::new().rpm(4_000));
    assert_eq!(lite.internal_name.as_deref(), Some("gemini-3.5-flash-lite-001"));
    assert_eq!(lite.continue_after, Some(100));
    assert_eq!(lite.signatures, Signatures::Given);
    assert_eq!(lite.latency, Some((Duration::from_millis(7), Duration::from_millis(7))));
    let own = lite.faults.as_ref().map(|faults| faults.rates().filter(|(_, rate)| *rate > 0.0));
    assert_eq!(own.unwrap().collect::<Vec<_>>(), [("cut", 1.0)]);
    let embedding = &config.models["gemini-embedding-001"];
    assert!(embedding.embeds);
    assert_eq!(embedding.input_token_limit, 2_048);
    let alpha = &config.projects[0];
    assert_eq!(alpha.state, ProjectState::Suspended);
    assert!(alpha.refuses_caches);
    assert_eq!(alpha.reset_late_s, -5);
    assert_eq!(alpha.reset_zone, chrono_tz::Asia::Kolkata);
    assert_eq!(alpha.closed_models, ["gemini-embedding-001"]);
    assert_eq!(alpha.limits["gemini-3.5-flash-lite"], Limits::new().rpm(3));
    assert_eq!(alpha.keys[0].state, KeyState::Ok);
    assert_eq!(alpha.keys[1].state, KeyState::Expired);
    assert_eq!(config.projects[1].tier, Tier::Paid);
    assert!((config.faults.overloaded - 0.01).abs() < f64::EPSILON);
}

#[test]
fn all_faults_are_told_at_once_each_with_its_place() {
    let text = r#"
windows = "weekly"
latency_ms = [9, 3]
colour = "blue"

[models.a]
free = { rpm = "many", rph = 3 }
pay = {}
latency_ms = [9, 3]
faults = { cut = 1.5, never = 1 }

[[projects]]
keys = [7, "two words", { key = "AQ.EXAMPLE-1", state = "sleepy" }, "AQ.EXAMPLE-1"]
reset_zone = "Mars"
closed_models = ["b"]

[[projects]]
name = "p"
[[projects]]
name = "p"
limits.c = { rpm = 1 }

[[outages]]
model = "b"
from = 2026-11-30T07:00:00Z
until = 2026-11-30T07:00:00Z
[[outages]]
from = "soon"

[files]
chunk_bytes = "many"

[faults]
overloaded = 0.7
internal = 0.6
html = 2.0
reset = "often"
"#;
    let said = SimConfig::from_toml(text).unwrap_err().to_string();
    for place in [
        "windows: ",
        "latency_ms: ",
        "colour: ",
        "models.a.free.rpm: ",
        "models.a.free.rph: ",
        "models.a.pay: ",
        "models.a.latency_ms: ",
        "models.a.faults.never: ",
        "models.a.faults.cut: ",
        "models.a.faults: the rates",
        "projects[1].name: ",
        "projects[1].keys[1]: ",
        "projects[1].keys[2]: ",
        "projects[1].keys[3].state: ",
        "projects[1].keys: the key ",
        "projects[1].reset_zone: ",
        "projects[1].closed_models: ",
        "projects[3].name: ",
        "projects[3].limits: ",
        "outages[1].model: there is no model",
        "outages[1].until: ",
        "outages[2].model: ",
        "outages[2].from: ",
        "outages[2].until: ",
        "files.chunk_bytes: ",
        "faults.html: ",
        "faults.reset: ",
        "faults: the rates",
    ] {
        assert!(said.contains(place), "{place:?} is missing in:\n{said}");
    }
}

#[test]
fn no_key_shows_in_an_error() {
    let secret = ["AIza", "SyEXAMPLE0000000000000000000000000001"].concat();
    for text in [
        format!("[[projects]]\nname = \"a\"\nkeys = [\"{secret} x\"]"),
        format!("[[projects]]\nname = \"a\"\nkeys = [\"{secret}\", \"{secret}\"]"),
        format!("[[projects]]\nname = \"a\"\nkeys = [\"{secret}"),
        format!("windows = \"{secret}\""),
        format!("seed = \"{secret}\""),
    ] {
        let error = SimConfig::from_toml(&text).unwrap_err();
        let leaks = error.to_string().contains(&secret) || format!("{error:?}").contains(&secret);
        assert!(!leaks, "a key stands in an error");
    }
}

#[test]
fn a_fault_of_the_syntax_names_its_line() {
    let said = SimConfig::from_toml("seed = 1\n\nwindows = \n").unwrap_err().to_string();
    assert!(said.contains("line 3"), "{said}");
}

/// The commented example is the format's reference: it has to load, and to name every fault.
#[test]
fn the_published_example_loads() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sim.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let config = SimConfig::from_toml(&text).unwrap();
    assert!(config.projects.len() > 3 && config.models.len() > 3);
    let faults = text.split_once("[faults]").unwrap().1;
    assert_eq!(faults.lines().filter(|line| line.contains(" = ")).count(), 20);
}
