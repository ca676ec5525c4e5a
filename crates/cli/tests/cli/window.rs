//! `keywheel window`.

use crate::common::{Place, assert_form};

const NOW: &str = "2026-11-30T07:12:03Z";

/// A process far from Google sees the reset by three clocks
/// (<https://github.com/google-gemini/gemini-cli/issues/2981>).
#[test]
fn the_quota_day_is_told_on_three_clocks() {
    // India, without the zone files that a small machine may not have.
    let place = Place::new().with("TZ", "IST-5:30");
    let window = place.run(&["window", "--at", NOW, "--json"]).ends(0).json("window");
    assert_eq!(window["date"], "2026-11-29", "still Sunday evening in California");
    assert_eq!(window["ends_at"]["utc"], "2026-11-30T08:00:00Z");
    assert_eq!(window["ends_at"]["pacific"], "2026-11-30T00:00:00-08:00");
    assert_eq!(window["ends_at"]["local"], "2026-11-30T13:30:00+05:30");
    assert_eq!((&window["hours"], &window["ends_in_seconds"]), (&24.into(), &2_877.into()));
    place
        .run(&["window", "--at", NOW])
        .ends(0)
        .says("13:30:00+05:30")
        .says("comes back  in 47 min 57 s");
}

#[test]
fn a_run_across_the_reset_is_flagged_and_one_within_a_day_is_not() {
    let place = Place::new();
    let run = |from: &str, to: &str| {
        let arguments = ["window", "--at", NOW, "--from", from, "--to", to, "--json"];
        place.run(&arguments).ends(0).json("window")
    };
    let across = run("2026-11-30T07:30:00Z", "2026-11-30T08:30:00Z");
    assert_eq!(across["run"]["straddles"], true);
    assert_eq!(across["run"]["resets"][0], "2026-11-30T08:00:00Z");
    let within = run("2026-11-30T08:00:00Z", "2026-12-01T07:59:59Z");
    assert_eq!(within["run"]["straddles"], false);
    assert_eq!(within["run"]["resets"], serde_json::json!([]));
    assert_form("window", &[&across, &within]);
}

#[test]
fn the_day_of_25_hours_is_told_as_such() {
    let place = Place::new();
    place.run(&["window", "--at", "2026-11-01T12:00:00Z"]).ends(0).says("25 hours long");
}

#[test]
fn what_is_no_time_and_a_run_that_ends_before_it_begins_are_refused() {
    let place = Place::new();
    place.run(&["window", "--at", "tomorrow"]).ends(2).complains("2026-11-30T07:30");
    place.run(&["window", "--from", NOW]).ends(2).complains("--to");
    let backwards = ["window", "--from", NOW, "--to", "2026-11-29T00:00:00Z"];
    place.run(&backwards).ends(2).complains("ends before it begins");
}
