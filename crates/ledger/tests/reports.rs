//! What can be read out of a ledger afterwards.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::time::Duration;

use chrono_tz::{America::Los_Angeles, Asia::Kolkata};
use common::{Opened, actual, open};
use keywheel_ledger::{
    Ask, Estimate, ExportFormat, Fingerprint, GroupBy, Ledger, LedgerRules, Outcome, RowQuery,
    RowState, UsageLine,
};

async fn spend(ledger: &Ledger, account: &str, ask: Ask, input: u64, output: u64) {
    let hold = ledger.reserve(account, ask).await.unwrap().held().unwrap();
    hold.settle(actual(input, output)).await.unwrap();
}

async fn report(ledger: &Ledger, by: GroupBy) -> Vec<UsageLine> {
    ledger.report(by, RowQuery::default()).await.unwrap()
}

fn groups(lines: &[UsageLine]) -> Vec<(&str, u64)> {
    lines.iter().map(|line| (line.group.as_str(), line.tokens)).collect()
}

#[tokio::test]
async fn usage_is_added_up_by_account_model_and_key() {
    let Opened { ledger, clock } = open([]).await;
    ledger.set_rules(LedgerRules::new().any_account());
    let key = Fingerprint::of("AQ.EXAMPLE-key-1");
    spend(&ledger, "a", Ask::new("m", 200).key(key), 100, 50).await;
    spend(&ledger, "a", Ask::new("n", 100), 200, 10).await;
    spend(&ledger, "b", Ask::new("m", 500).key(key), 7, 0).await;
    drop(ledger.reserve("b", Ask::new("m", 40)).await.unwrap());
    clock.advance(Duration::from_secs(901));
    ledger.sweep().await.unwrap();
    drop(ledger.reserve("b", Ask::new("n", 41)).await.unwrap());

    let lines = report(&ledger, GroupBy::Account).await;
    assert_eq!(groups(&lines), [("a", 360), ("b", 47)]);
    let b = UsageLine {
        group: "b".into(),
        rows: 3,
        open: 1,
        swept: 1,
        calls: 2,
        tokens: 47,
        reserved: 41,
        input: 7,
        ..UsageLine::default()
    };
    assert_eq!(lines[1], b);
    assert_eq!((lines[0].overruns, lines[0].overrun_tokens), (1, 110));
    assert_eq!((lines[0].input, lines[0].output), (300, 60));
    assert_eq!(groups(&report(&ledger, GroupBy::Model).await), [("m", 197), ("n", 210)]);
    let by_key = report(&ledger, GroupBy::Key).await;
    assert_eq!(groups(&by_key), [("-", 250), (key.to_string().as_str(), 157)]);

    let over = ledger.overruns(RowQuery::default()).await.unwrap();
    assert_eq!(
        over.iter().map(|row| (&*row.model, row.overrun())).collect::<Vec<_>>(),
        [("n", 110)]
    );
    let swept = ledger.swept(RowQuery::default()).await.unwrap();
    assert_eq!(swept.len(), 1);
    // A late settlement does not make it forgotten that the row was swept.
    ledger.settle(swept[0].id, 1).await.unwrap();
    let swept = ledger.swept(RowQuery::default()).await.unwrap();
    assert_eq!(swept[0].state, RowState::Settled);
}

#[tokio::test]
async fn the_hour_that_comes_twice_is_two_hours_and_days_turn_in_any_zone() {
    let Opened { ledger, clock } = open([]).await;
    clock.set("2026-11-01T07:30:00Z".parse().unwrap());
    for _ in 0..4 {
        spend(&ledger, "a", Ask::new("m", 10), 10, 0).await;
        clock.advance(Duration::from_hours(1));
    }
    let hours = report(&ledger, GroupBy::Hour(Los_Angeles)).await;
    let wanted = [
        ("2026-11-01T00:00-07:00", 10),
        ("2026-11-01T01:00-07:00", 10),
        ("2026-11-01T01:00-08:00", 10),
        ("2026-11-01T02:00-08:00", 10),
    ];
    assert_eq!(groups(&hours), wanted);
    // Half an hour off the full one.
    let hours = report(&ledger, GroupBy::Hour(Kolkata)).await;
    assert_eq!(hours[0].group, "2026-11-01T13:00+05:30");
    clock.set("2026-11-01T18:30:00Z".parse().unwrap());
    spend(&ledger, "a", Ask::new("m", 1), 1, 0).await;
    let days = report(&ledger, GroupBy::Day(Kolkata)).await;
    assert_eq!(groups(&days), [("2026-11-01", 40), ("2026-11-02", 1)]);
    assert_eq!(groups(&report(&ledger, GroupBy::Day(Los_Angeles)).await), [("2026-11-01", 41)]);
}

#[tokio::test]
async fn reports_read_every_page_and_only_what_is_asked_for() {
    let Opened { ledger, clock } = open([]).await;
    for _ in 0..2_500 {
        spend(&ledger, "a", Ask::new("m", 1), 1, 0).await;
    }
    clock.advance(Duration::from_secs(1));
    let later = RowQuery { from: Some(keywheel_core::Clock::now(&clock)), ..RowQuery::default() };
    spend(&ledger, "a", Ask::new("m", 1), 5, 0).await;
    // The page of the query does not matter.
    let query = RowQuery { after: 2_000, limit: 1, ..RowQuery::default() };
    let all = ledger.report(GroupBy::Account, query).await.unwrap();
    assert_eq!((all[0].rows, all[0].tokens), (2_501, 2_505));
    let some = ledger.report(GroupBy::Account, later).await.unwrap();
    assert_eq!((some[0].rows, some[0].tokens), (1, 5));
}

#[tokio::test]
async fn estimates_are_compared_with_what_was_used() {
    let Opened { ledger, .. } = open([]).await;
    for i in 1..=100 {
        spend(&ledger, "a", Ask::new("m", Estimate::new(100, 50)), i * 2, 10).await;
    }
    spend(&ledger, "a", Ask::new("n", 80), 100, 0).await;
    // Without usage there is nothing to compare.
    let hold = ledger.reserve("a", Ask::new("m", 10)).await.unwrap().held().unwrap();
    hold.settle(Outcome::Lost).await.unwrap();
    let lines = ledger.estimates(RowQuery::default()).await.unwrap();
    let [m, n] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((m.model.as_str(), m.rows, m.estimated, m.actual), ("m", 100, 15_000, 11_100));
    assert_eq!((m.input_error_median, m.input_error_p99), (Some(1.0), Some(1.98)));
    assert_eq!((n.rows, n.estimated, n.actual, n.input_error_p99), (1, 80, 100, None));
}

async fn exported(ledger: &Ledger, format: ExportFormat) -> String {
    let mut export = ledger.export(format, RowQuery::default());
    let mut text = String::new();
    while let Some(more) = export.next().await.unwrap() {
        text.push_str(&more);
    }
    text
}

#[tokio::test]
async fn csv_has_a_line_for_each_row_and_runs_nothing_in_a_spreadsheet() {
    let Opened { ledger, .. } = open([]).await;
    ledger.set_rules(LedgerRules::new().any_account());
    for (note, cell) in [
        ("=HYPERLINK(\"http://x\")", "\"'=HYPERLINK(\"\"http://x\"\")\""),
        ("@SUM(1+1)", "\"'@SUM(1+1)\""),
        (" +1", "\"' +1\""),
        ("-1", "\"'-1\""),
        ("\tx", "\"'\tx\""),
        ("a, \"b\"\r\nc", "\"a, \"\"b\"\"\r\nc\""),
        ("a\0b", "a\u{fffd}b"),
        ("plain", "plain"),
        ("", ""),
    ] {
        let ask = Ask::new("m", Estimate::new(10, 20)).note(note);
        spend(&ledger, "=1+1", ask, 12, 3).await;
        let text = exported(&ledger, ExportFormat::Csv).await;
        let last = format!(
            ",\"'=1+1\",m,,,2026-11-30,settled,answered,30,10,20,1,15,1,12,0,3,0,0,\
             2026-11-30T20:00:00.000Z,,,2026-11-30T20:00:00.000Z,{cell}\r\n"
        );
        assert!(text.ends_with(&last), "{text}");
    }
    let text = exported(&ledger, ExportFormat::Csv).await;
    let head = text.lines().next().unwrap();
    assert!(head.starts_with("id,account,model,key,") && head.ends_with(",note"));
    assert_eq!(head.split(',').count(), 24);
}

#[tokio::test]
async fn json_lines_are_one_object_for_each_row_over_all_pages() {
    let Opened { ledger, .. } = open([]).await;
    assert_eq!(exported(&ledger, ExportFormat::JsonLines).await, "");
    spend(&ledger, "a", Ask::new("m", 10).note("line\nbreak"), 1, 1).await;
    for _ in 1..2_000 {
        spend(&ledger, "a", Ask::new("m", 10), 1, 1).await;
    }
    let text = exported(&ledger, ExportFormat::JsonLines).await;
    assert_eq!(text.lines().count(), 2_000);
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["note"], "line\nbreak");
    assert_eq!((&first["state"], &first["charged"]["tokens"]), (&"settled".into(), &2.into()));
    assert_eq!(first["usage"]["input"], 1);
    assert_eq!(first["day"], "2026-11-30");
    assert!(first["id"].as_str().is_some_and(|id| id.starts_with("r1-")));
}

#[tokio::test]
async fn an_audit_names_the_total_that_is_wrong() {
    let Opened { ledger, .. } = open([]).await;
    spend(&ledger, "a", Ask::new("m", 10), 5, 1).await;
    let report = ledger.audit().await.unwrap();
    assert_eq!((report.rows, report.totals, report.is_balanced()), (1, 12, true));

    // The same row, and a total that somebody changed by hand.
    let mut auditor = keywheel_ledger::audit::Auditor::default();
    let row = ledger.rows(RowQuery::default()).await.unwrap().remove(0);
    auditor.row(&row);
    for key in row.total_keys().into_iter().skip(1) {
        let total = keywheel_ledger::Total {
            tokens: keywheel_ledger::Sum { settled: 6, ..Default::default() },
            calls: keywheel_ledger::Sum { settled: 1, reserved: 1, ..Default::default() },
        };
        let right = keywheel_ledger::Total {
            calls: keywheel_ledger::Sum { settled: 1, ..Default::default() },
            ..total
        };
        let by_hand = key.scope == keywheel_ledger::Scope::Whole && key.model.is_none();
        auditor.total(key, if by_hand { total } else { right });
    }
    let wrong = auditor.finish().mismatches;
    let told: Vec<_> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 4, "three by hand, and one that is not there: {told:#?}");
    assert!(told[0].starts_with("the whole allowance in 2026-11-30: 6 + 0 tokens and 1 + 1 calls"));
    assert!(told[3].starts_with("account a in 2026-11-30: 0 + 0 tokens"), "{told:#?}");
}
