use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;

use super::*;
use crate::turns::StepReport;

const MODEL: &str = "gemini-3.5-flash-lite";

fn date(text: &str) -> NaiveDate {
    text.parse().unwrap()
}

/// A turn of the kind `kind` that began at `start`, took `minutes`, and so many requests in one step.
fn turn(kind: &str, start: &str, minutes: i64, requests: u64) -> TurnReport {
    let started_at: DateTime<Utc> = start.parse().unwrap();
    let ended_at = started_at + TimeDelta::minutes(minutes);
    let used = ModelUse { attempts: requests, retries: 0, requests };
    let models = BTreeMap::from([(MODEL.to_owned(), used)]);
    TurnReport {
        kind: kind.into(),
        started_at,
        ended_at,
        straddled_reset: QuotaDay::straddles(started_at, ended_at),
        spent_at_start: BTreeMap::new(),
        steps: vec![StepReport {
            step: "answer".into(),
            used: StepUse { calls: 1, models, ..StepUse::default() },
        }],
    }
}

fn figures(turns: &[TurnReport]) -> Figures {
    let mut figures = Figures::default();
    turns.iter().for_each(|turn| figures.record(turn, date("2026-11-30")));
    figures
}

#[test]
fn mean_and_percentiles_are_those_of_the_turns_that_did_not_ask_the_model_too() {
    let requests = [7, 9, 8, 8, 7];
    let mut figures =
        figures(&requests.map(|requests| turn("chat", "2026-11-29T20:00:00Z", 1, requests)));
    let mut without = turn("chat", "2026-11-29T20:00:00Z", 1, 0);
    without.steps[0].used.models.clear();
    (0..5).for_each(|_| figures.record(&without, date("2026-11-30")));
    let kinds = figures.kinds();
    let (turns, model) = (kinds["chat"].turns, &kinds["chat"].models[MODEL]);
    assert_eq!((turns, model.used.requests, model.most), (10, 39, 9));
    let percentile = |percent| model.percentile(turns, percent);
    assert_eq!((percentile(50), percentile(60), percentile(95)), (0, 7, 9));
}

/// A reset falls into it: <https://ai.google.dev/gemini-api/docs/rate-limits> (midnight Pacific). On 2026-03-08 the
/// day has 23 hours, on 2026-11-01 it has 25, so that its end is not 24 hours after its beginning.
#[test]
fn turns_that_straddle_a_reset_are_counted_apart_also_on_the_days_of_23_and_25_hours() {
    let cases = [
        ("2026-11-30T07:59:00Z", 2, true),
        ("2026-11-30T08:00:00Z", 2, false),
        // Standard time ends the day at 08:00 UTC, summer time at 07:00.
        ("2026-03-09T06:59:00Z", 2, true),
        ("2026-03-09T07:59:00Z", 2, false),
        ("2026-11-02T07:59:00Z", 2, true),
        ("2026-11-02T06:59:00Z", 2, false),
        // A clock that is set back over a reset.
        ("2026-11-30T08:01:00Z", -2, true),
    ];
    for (start, minutes, straddles) in cases {
        let mut figures = figures(&[turn("chat", start, minutes, 8)]);
        figures.record(&turn("chat", "2026-11-29T20:00:00Z", 1, 5), date("2026-11-30"));
        let kinds = figures.kinds();
        let chat = &kinds["chat"];
        assert_eq!(chat.straddled, u64::from(straddles), "{start}");
        assert_eq!(chat.straddled_use.total().requests, if straddles { 8 } else { 0 }, "{start}");
        assert_eq!(chat.models[MODEL].used.requests, if straddles { 5 } else { 13 }, "{start}");
        assert_eq!(chat.turns, if straddles { 1 } else { 2 }, "{start}");
    }
}

#[test]
fn days_names_and_turns_are_bounded_whatever_the_app_calls_them() {
    let mut figures = Figures::default();
    let start: DateTime<Utc> = "2026-01-01T20:00:00Z".parse().unwrap();
    for day in 0..100 {
        let began = start + TimeDelta::days(day);
        let today = QuotaDay::containing(began).date();
        for user in 0..50 {
            figures.record(&turn(&format!("user-{user}"), &began.to_rfc3339(), 1, 1), today);
        }
    }
    assert_eq!((figures.days.len(), figures.recent.len()), (MOST_DAYS, MOST_RECENT));
    let kinds = figures.kinds();
    assert_eq!(kinds.len(), MOST_NAMES + 1);
    let turns: u64 = kinds.values().map(|kind| kind.turns).sum();
    assert_eq!(turns, 50 * MOST_DAYS as u64, "none is lost");
    assert_eq!(kinds[OTHER].turns, 30 * MOST_DAYS as u64);
    let text = serde_json::to_vec(&figures).unwrap();
    assert!(text.len() < 200_000, "{}", text.len());
}

#[test]
fn a_clock_that_was_ahead_for_a_while_pushes_no_true_day_out() {
    let mut figures = Figures::default();
    for day in 10..24 {
        let start = format!("2026-11-{day}T20:00:00Z");
        figures.record(&turn("chat", &start, 1, 1), date("2026-11-24"));
    }
    figures.record(&turn("chat", "2031-01-01T20:00:00Z", 1, 1), date("2026-11-24"));
    assert_eq!(figures.days.len(), MOST_DAYS);
    assert_eq!(figures.days.last_key_value().unwrap().0, &date("2026-11-23"));
    // While it is ahead, one day goes for each of its own.
    figures.record(&turn("chat", "2031-01-01T20:00:00Z", 1, 1), date("2031-01-01"));
    assert_eq!(figures.days.first_key_value().unwrap().0, &date("2026-11-11"));
    figures.record(&turn("chat", "2026-11-24T20:00:00Z", 1, 1), date("2026-11-24"));
    assert_eq!(figures.days.last_key_value().unwrap().0, &date("2026-11-24"));
    assert_eq!(figures.days.len(), MOST_DAYS);
}

#[test]
fn the_file_reads_back_as_it_was_and_fields_of_later_versions_survive() {
    let mut written = figures(&[turn("chat", "2026-11-29T20:00:00Z", 1, 8)]);
    written.record_late(
        &turn("chat", "2026-11-29T20:00:00Z", 1, 8),
        &turn("chat", "2026-11-29T20:00:00Z", 1, 2).used(),
        date("2026-11-30"),
    );
    let text = serde_json::to_string(&written).unwrap();
    let read: Figures = serde_json::from_str(&text).unwrap();
    assert_eq!((&read.days, &read.recent), (&written.days, &written.recent));
    let later = text.replacen('{', r#"{"colour":"blue","#, 1).replacen(
        r#""turns":1"#,
        r#""shape":"round","turns":1"#,
        1,
    );
    let mut read: Figures = serde_json::from_str(&later).unwrap();
    read.add(&written, date("2026-11-30"));
    let text = serde_json::to_string(&read).unwrap();
    assert!(text.contains("blue") && text.contains("round"), "{text}");
}

proptest! {
    #[test]
    fn it_does_not_matter_who_adds_what_and_in_which_order(
        turns in prop::collection::vec((0..3_usize, 0..4_i64, 0..2_000_u64), 0..30),
        cut in 0..30_usize,
    ) {
        let turns: Vec<_> = turns
            .into_iter()
            .map(|(kind, day, requests)| {
                let start = format!("2026-11-{}T20:00:00Z", 20 + day);
                turn(["chat", "recall", "sum"][kind], &start, 1, requests)
            })
            .collect();
        let today = date("2026-11-30");
        let (first, second) = turns.split_at(cut.min(turns.len()));
        let mut added = figures(second);
        added.add(&figures(first), today);
        let together = figures(&turns);
        prop_assert_eq!(&added.days, &together.days);
        // Against a sum by hand.
        for (kind, summary) in together.kinds() {
            let mut requests: Vec<u64> =
                turns.iter().filter(|turn| turn.kind == kind).map(|turn| turn.total().requests).collect();
            requests.sort_unstable();
            prop_assert_eq!(summary.turns as usize, requests.len());
            let model = &summary.models[MODEL];
            prop_assert_eq!(model.used.requests, requests.iter().sum::<u64>());
            prop_assert_eq!(model.most, *requests.last().unwrap());
            for percent in [1, 50, 95, 100] {
                let rank = (requests.len() * percent).div_ceil(100).max(1);
                let (exact, told) = (requests[rank - 1], model.percentile(summary.turns, percent as u64));
                prop_assert!(exact <= told && told <= exact + exact / 16 && (exact > 128 || told == exact),
                    "{exact} was told as {told}");
            }
        }
    }
}
