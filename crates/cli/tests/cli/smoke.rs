//! `keywheel smoke`.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::common::{Place, assert_form};

/// A gateway that answers `/health` by `page`, given how many requests came before.
fn gateway(page: impl Fn(usize) -> (u16, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 8_192];
            let _ = stream.read(&mut head);
            let (status, body) = page(asked.fetch_add(1, Ordering::SeqCst));
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    format!("http://{address}")
}

fn health(id: &str, rows: u64) -> String {
    format!(
        r#"{{"ledger_id":"{id}","created_at":"2026-11-01T00:00:00Z","ledger_rows":{rows},"storage":{{"kind":"ext4","vanishes":false}}}}"#
    )
}

fn smoke(url: &str, more: &[&str]) -> crate::common::Ended {
    let arguments = ["smoke", url, "--wakes", "3", "--every", "1ms", "--patience", "60s"];
    Place::new().run(&[&arguments, more].concat())
}

#[test]
fn the_spread_of_wakes_and_the_ledger_are_told() {
    let url = gateway(|asked| (200, health("ledger-a", 10 + asked as u64)));
    let told = smoke(&url, &["--json"]).ends(0).json("smoke");
    assert_eq!(told["wakes"].as_array().unwrap().len(), 3);
    assert!(told["fastest_ms"].as_u64() <= told["slowest_ms"].as_u64());
    assert_eq!(told["ledger"]["id"], "ledger-a");
    assert_eq!((&told["same_ledger"], &told["warnings"]), (&().into(), &serde_json::json!([])));
    smoke(&url, &[]).ends(0).says("--expect-ledger ledger-a");
    let same = smoke(&url, &["--expect-ledger", "ledger-a", "--json"]).ends(0).json("smoke");
    assert_eq!(same["same_ledger"], true);
    let new = smoke(&url, &["--expect-ledger", "ledger-b", "--json"]).ends(4).json("smoke");
    assert_eq!(new["same_ledger"], false);
    assert_form("smoke", &[&told, &same, &new, &slow()]);
}

/// Until the host has woken the program, it answers for it.
fn slow() -> serde_json::Value {
    let url =
        gateway(|asked| if asked == 0 { (502, String::new()) } else { (200, health("a", 1)) });
    let told = smoke(&url, &["--json"]).ends(0).json("smoke");
    assert_eq!(
        (&told["wakes"][0]["tries"], &told["wakes"][0]["before"]),
        (&2.into(), &"status 502".into())
    );
    told
}

#[test]
fn a_ledger_that_changes_between_wakes_is_new() {
    let url = gateway(|asked| (200, health(&format!("ledger-{asked}"), 0)));
    smoke(&url, &[]).ends(4).says("every start has its own caps");
    let url = gateway(|asked| (200, health("a", 10 - asked as u64)));
    smoke(&url, &[]).ends(4).says("fewer rows");
}

#[test]
fn a_page_without_ledger_rows_is_warned_about_and_is_not_the_expected_one() {
    let url = gateway(|_| (200, "{}".to_owned()));
    smoke(&url, &[]).ends(0).says("ledger_rows is missing");
    smoke(&url, &["--expect-ledger", "ledger-a"]).ends(4);
}

#[test]
fn what_does_not_wake_ends_with_3() {
    let arguments = ["smoke", "http://127.0.0.1:9", "--wakes", "1", "--patience", "10ms"];
    Place::new().run(&arguments).ends(3);
    Place::new().run(&["smoke", "gateway.example.com"]).ends(2).complains("https://");
    Place::new()
        .run(&["smoke", "http://127.0.0.1:9", "--every", "soon"])
        .ends(2)
        .complains("a duration such as");
}

#[cfg(unix)]
#[test]
fn the_script_wakes_the_host_that_it_is_given_and_passes_the_code_on() {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/smoke.sh");
    let url = gateway(|_| (200, health("ledger-a", 1)));
    let run = |host: Option<&str>, ledger: &str| {
        let mut command = std::process::Command::new("bash");
        command.arg(&script).args(["--wakes", "1"]).env_remove("DEMO_HOST");
        command.env("KEYWHEEL", env!("CARGO_BIN_EXE_keywheel")).env("EXPECT_LEDGER", ledger);
        command.envs(host.map(|host| ("DEMO_HOST", host)));
        crate::common::Ended::of(command.output().unwrap())
    };
    run(Some(&url), "").ends(0).says("--expect-ledger ledger-a");
    run(Some(&url), "ledger-a").ends(0).says("the same as before");
    run(Some(&url), "ledger-b").ends(4);
    run(None, "").ends(2).complains("DEMO_HOST");
}
