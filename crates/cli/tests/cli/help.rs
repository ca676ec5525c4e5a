//! What holds for every command: help, codes, completions, colours, an output that nobody reads.

use std::{fs, process::Stdio};

use crate::common::{Ended, Place};

const COMMANDS: [&str; 14] = [
    "serve",
    "init",
    "project",
    "status",
    "check",
    "ask",
    "explain",
    "ledger",
    "window",
    "capacity",
    "clear",
    "reload",
    "smoke",
    "completions",
];

#[test]
fn the_help_names_every_command_and_every_exit_code() {
    let place = Place::new();
    let help = place.run(&["--help"]).ends(0);
    for command in COMMANDS {
        assert!(help.stdout.contains(&format!("\n  {command}")), "{command}");
        place.run(&[command, "--help"]).ends(0);
    }
    for code in 0..=5 {
        assert!(help.stdout.contains(&format!("\n  {code}  ")), "{code}");
    }
    place.run(&["--version"]).ends(0).says(env!("CARGO_PKG_VERSION"));
}

#[test]
fn what_is_not_understood_ends_with_2_and_says_so_on_standard_error() {
    let place = Place::new();
    for arguments in [&["nonsense"][..], &["status", "--nonsense"], &["clear"], &[]] {
        let ended = place.run(arguments).ends(2);
        assert!(ended.stdout.is_empty() && !ended.stderr.is_empty(), "{arguments:?}");
    }
    place.run(&["--config", "missing.toml", "status"]).ends(2).complains("keywheel init");
}

/// People put keys where a label or a fingerprint belongs. Each run looks for one in what is said.
#[test]
fn what_is_not_understood_is_not_repeated_if_it_may_be_a_secret() {
    let place = Place::new();
    let token = format!("kw_EXAMPLE{}", "x".repeat(36));
    for secret in ["AIzaSyEXAMPLE0000000000000000000000001", "AQ.EXAMPLE-key-1", &token] {
        let by_value = format!("--key={secret}");
        for arguments in [
            &["ledger", "rows", "--key", secret][..],
            &["ledger", "rows", &by_value],
            &["window", "--at", secret],
            &["status", secret],
            &[secret],
        ] {
            place.run(arguments).ends(2).complains("…");
        }
    }
    place.run(&["status", "nonsense"]).ends(2).complains("'nonsense'");
}

#[test]
fn faults_of_arguments_say_what_is_wanted() {
    let place = Place::new();
    fs::write(place.path("no-text"), [0xff, 0xfe]).unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    let complaints: [(&[&str], &str); 16] = [
        (&["status", "--every", "5"], "--watch"),
        (&["status", "--watch", "--every", "2m"], "a number of seconds from 1 to 3600"),
        (&["capacity", "--per-turn", "0"], "a whole number from 1 on"),
        (&["smoke", "http://127.0.0.1:1", "--wakes", "0"], "a whole number from 1 on"),
        (&["smoke", "http://127.0.0.1:1", "--every", "5"], "a duration such as"),
        (&["smoke", "gateway.example.com"], "keywheel smoke https://"),
        (&["window", "--at", "tomorrow"], "2026-11-30T07:30:00Z"),
        (&["ledger", "usage", "--by", "day", "--zone", "Nowhere"], "such as UTC or Europe/Berlin"),
        (&["ledger", "usage", "--model", "a"], "add --by"),
        (&["explain", "missing"], "there is no file missing"),
        (&["explain", "folder"], "folder is a folder; a file is wanted"),
        (&["--config", "folder", "status"], "folder is a folder; a file is wanted"),
        (&["--config", "no-text", "project", "add", "a"], "no-text is not UTF-8 text"),
        (&["init", "folder"], "is there already, and stays as it is"),
        (&["ask", "--project", "a", "hi"], "--config names it"),
        (&["project", "add", "a"], "`keywheel init` writes one"),
    ];
    for (arguments, complaint) in complaints {
        place.run(arguments).ends(2).complains(complaint);
    }
    place.run(&["init", "missing/keywheel.toml"]).ends(1).complains("cannot be made");
}

#[test]
fn completions_know_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ended = place.run(&["completions", shell]).ends(0);
        assert!(COMMANDS.iter().all(|command| ended.stdout.contains(command)), "{shell}");
    }
}

/// Neither colours nor bars reach a file, with or without `NO_COLOR`.
#[test]
fn what_is_not_a_terminal_gets_plain_text() {
    let place = Place::new().with("GEMINI_API_KEY_1", "AQ.EXAMPLE-plain");
    for place in [place.with("NO_COLOR", "1"), Place::new()] {
        for arguments in [&["status"][..], &["window"], &["--help"]] {
            let ended = place.run(arguments);
            assert!(!ended.stdout.contains('\u{1b}') && !ended.stderr.contains('\u{1b}'));
        }
    }
}

/// `keywheel ledger export | head` is no fault.
#[test]
fn an_output_that_nobody_reads_any_more_ends_quietly() {
    let place = Place::new();
    let mut child = place
        .command(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    Ended::of(child.wait_with_output().unwrap()).ends(0).says_no_more();
}

/// All at once, each with its place (<https://github.com/hydropix/TranslateBooksWithLLMs/issues/163> was one key read
/// out of several, in silence).
#[test]
fn every_fault_of_a_configuration_is_listed_with_its_line() {
    let place = Place::new();
    place.write("keywheel.toml", "listn = \"127.0.0.1:1\"\n[projects.app]\ntokens_per_day = -1\n");
    let ended = place.run(&["status"]).ends(2);
    assert!(ended.stderr.contains("keywheel.toml:1:1:"), "{}", ended.stderr);
    assert!(ended.stderr.contains("keywheel.toml:3:"), "{}", ended.stderr);
}
