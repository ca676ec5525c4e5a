use std::{collections::BTreeSet, fs};

use crate::Config;

fn read(text: &str) -> Config {
    let config = Config::parse("/etc/keywheel/keywheel.toml", text, [("A_1", "AQ.EXAMPLE-key-1")]);
    config.unwrap_or_else(|errors| panic!("{errors}"))
}

/// The names of what needs a restart when `before` becomes `after`.
fn changed(before: &str, after: &str) -> Vec<String> {
    read(before).at_start.changed(&read(after).at_start)
}

/// What only a start looks at, each with something else than its default.
const AT_START: &str = r#"
listen = "127.0.0.1:9000"
watch = "6s"
state = "s/pool.json"
selection = "failover"
deadline = "none"
stream_deadline = "21m"
overflow_after = "31s"
fallback = ["a"]
fallback_after = "3s"
exploration = false
daily_checks = false
[upstream]
kind = "openai"
base_url = "https://api.example"
api_version = "v1"
[keys]
prefix = "A_"
[serve]
head_time = "11s"
idle_time = "61s"
connections = 9
threads = 3
[ledger]
path = "l.db"
storage = "require_existing"
sweep_after_seconds = 901
keep_days = 91
[limits."a"]
rpm = 1
rpd = 2
tpm = 3
tpd = 4
[reset]
requests_per_minute = "hourly"
requests_per_day = "hourly"
tokens_per_minute = "hourly"
tokens_per_day = "hourly"
tool = "hourly"
billing = "hourly"
unspecified = "hourly"
[model_facts."a"]
input_token_limit = 1
output_token_limit = 2
[timeouts]
connect = "11s"
first_byte = "91s"
idle = "92s"
[retry]
max_retries = 3
first_pause = "2s"
max_pause = "21s"
budget_percent = 11
budget_reserve = 12
breaker_after = 6
"#;

/// What a reload applies, likewise.
const AT_ONCE: &str = r#"
auth = "tokens"
hosts = ["gateway.internal"]
[upstream]
key_prefix = "A_"
[allowance]
calls = 7
period = "total"
[projects.a]
token_sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
in_flight = 4
[unbounded]
images = 8
[queue]
wait = "5s"
depth = 3
[degraded]
text = "later"
[cors]
origins = ["https://app.example"]
[stateful]
quota_project = "alpha"
[serve]
largest_body = "1 MB"
largest_upload = "3 GB"
drain_time = "1s"
[ledger]
zone = "UTC"
charge_timeouts = false
[keys]
dotenv = "a.env"
[[key]]
key = "AQ.EXAMPLE-key-2"
"#;

/// The settings of `text` by their names, sections of the user's own among them: `limits.a.rpm`.
fn names(text: &str) -> BTreeSet<String> {
    let mut section = String::new();
    let mut names = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if line.starts_with('[') {
            section = line.replace(['[', ']', '"'], "") + ".";
        } else {
            names.insert(section.clone() + line.split_once(" =").unwrap().0);
        }
    }
    names
}

#[test]
fn each_setting_that_only_a_start_looks_at_is_named_and_no_other() {
    let mut wanted = names(AT_START);
    wanted.remove("keys.prefix");
    assert_eq!(changed("", AT_START), Vec::from_iter(wanted.clone()));
    assert_eq!(changed(AT_START, ""), Vec::from_iter(wanted), "and when it is taken away");
    assert_eq!(changed("", AT_ONCE), [""; 0]);
    assert_eq!(changed(AT_START, AT_START), [""; 0]);
}

/// Whoever moves a line or writes a default out changes nothing.
#[test]
fn what_says_the_same_in_other_words_has_not_changed() {
    for (before, after) in [
        ("", "# a remark\ndeadline = \"120s\"\nexploration = true\n[retry]\nmax_retries = 0x2"),
        ("[retry]\nmax_retries = 5\n[queue]", "[queue]\n[retry]\nmax_retries = 5"),
        ("retry = { max_retries = 5 }", "[retry]\nmax_retries = 5\nmax_pause = \"20000ms\""),
        ("fallback = [\"a\", \"b\"]", "fallback = [\n  \"a\", # the best\n  \"b\",\n]"),
        (
            "",
            "[limits.\"a\"]\n[upstream]\nbase_url = \"https://generativelanguage.googleapis.com\"",
        ),
        (
            "[projects.a]\ntokens_per_day = 5",
            "[projects.a]\ntokens_per_day = 0xffff_ffff_ffff_ffff",
        ),
    ] {
        assert_eq!(changed(before, after), [""; 0], "{after}");
    }
    assert_eq!(changed("fallback = [\"a\", \"b\"]", "fallback = [\"b\", \"a\"]"), ["fallback"]);
}

/// A name that the user chose may be a key in the wrong place.
#[test]
fn a_key_in_the_place_of_a_name_is_not_repeated() {
    assert_eq!(changed("", "[limits.\"AQ.EXAMPLE-key-1\"]\nrpm = 1"), ["limits.(a name).rpm"]);
}

#[test]
fn the_page_says_of_each_setting_whether_a_reload_applies_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = fs::read_to_string(path).unwrap();
    let row = |head: &str| {
        let row = page.lines().find_map(|line| line.strip_prefix(head)).unwrap();
        let row: BTreeSet<_> = row.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        row
    };
    // As the page calls it: by its section, if all of it is treated alike.
    let listed = |name: &str, row: &BTreeSet<String>| {
        let section = name.split_once('.').map(|(section, _)| section);
        row.contains(name)
            || section.is_some_and(|section| {
                row.contains(&format!("[{section}]")) || row.contains(&format!("[[{section}]]"))
            })
    };
    let (now, later) = (row("| at once |"), row("| after a restart |"));
    for (text, row, other) in [(AT_ONCE, &now, &later), (AT_START, &later, &now)] {
        for name in names(text).iter().filter(|name| !name.starts_with("keys.")) {
            assert!(listed(name, row) && !listed(name, other), "{name}");
        }
        for called in row.iter().filter(|called| *called != "[keys]") {
            let own = called.replace(['[', ']'], "");
            let is_there = names(text).iter().any(|name| {
                *name == own || called.starts_with('[') && name.starts_with(&format!("{own}."))
            });
            assert!(is_there, "{called} is no setting of that kind");
        }
    }
    // Nothing that the example shows is left out.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/keywheel.toml");
    let example = fs::read_to_string(path).unwrap();
    let lines = example.lines().filter_map(|line| line.strip_prefix('#'));
    let settings: Vec<_> =
        lines.filter(|line| !line.starts_with(' ') && !line.is_empty()).collect();
    assert!(settings.len() > 80, "{}", settings.len());
    for name in names(&settings.join("\n")) {
        assert!(listed(&name, &now) || listed(&name, &later), "{name} is in neither row");
    }
}
