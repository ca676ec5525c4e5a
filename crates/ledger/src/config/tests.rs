use super::*;

fn fault(text: &str) -> String {
    let fault = LedgerConfig::from_toml(text).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::Invalid);
    fault.to_string()
}

#[test]
fn every_word_is_read() {
    let config = LedgerConfig::from_toml(
        r#"
        path = "budget.db"
        storage = "require_existing"
        sweep_after_seconds = 60
        keep_days = 30
        zone = "Europe/Berlin"
        any_account = true
        charge_timeouts = false
        allowance = { tokens_total = 5, calls_total = 6 }
        [accounts.a]
        default_max_output = 100
        tokens_per_day = 1
        tokens_per_month = 2
        calls_per_day = 3
        calls_per_month = 4
        [accounts.a.models."m.1"]
        calls_per_day = 0
        "#,
    )
    .unwrap();
    assert_eq!(config.path, Some("budget.db".into()));
    assert_eq!(config.durability, Some(Durability::RequireExisting));
    assert_eq!(config.sweep_after, Some(Duration::from_secs(60)));
    assert_eq!(config.keep_rows, Some(Duration::from_hours(30 * 24)));
    let rules = config.rules;
    assert_eq!(rules.zone, chrono_tz::Europe::Berlin);
    assert!(rules.any_account && !rules.charge_timeouts);
    let whole = [Limit::tokens(Period::Total, 5), Limit::calls(Period::Total, 6)];
    assert_eq!(rules.allowance, whole);
    assert_eq!(rules.default_max_output("a"), 100);
    let own: Vec<_> = rules.accounts["a"].limits.iter().map(Limit::to_string).collect();
    let wanted = [
        "1 tokens a day",
        "2 tokens a month",
        "3 calls a day",
        "4 calls a month",
        "0 calls a day for m.1",
    ];
    assert_eq!(own, wanted);
}

#[test]
fn an_empty_section_is_the_default() {
    assert_eq!(LedgerConfig::from_toml("").unwrap(), LedgerConfig::default());
    let other = "[ledger]\n[listen]\nport = 1";
    assert_eq!(LedgerConfig::from_toml(other).unwrap(), LedgerConfig::default());
}

#[test]
fn a_file_is_named_in_its_faults_and_paths_are_seen_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("budget.toml");
    let read = |text: &str| {
        fs::write(&file, text).unwrap();
        LedgerConfig::from_file(&file)
    };
    let config = read("[ledger]\npath = \"data/ledger.db\"").unwrap();
    assert_eq!(config.path, Some(folder.path().join("data/ledger.db")));
    assert_eq!(read("path = \"/var/l.db\"").unwrap().path, Some("/var/l.db".into()));
    assert_eq!(read("").unwrap().path, None);
    for fault in [read("zone = 1"), LedgerConfig::from_file(folder.path().join("no.toml"))] {
        assert!(fault.unwrap_err().to_string().contains(".toml:"));
    }
}

#[test]
fn a_mistyped_limit_is_not_no_limit() {
    assert!(fault("[allowance]\ntokens_a_day = 1").contains("allowance.tokens_a_day"));
    assert!(fault("[accounts.a]\ntoken_per_day = 1").contains("accounts.a.token_per_day: is not"));
    assert!(fault("[accounts.a.models.m]\ndefault_max_output = 1").contains("models.m.default"));
    assert!(fault("[account.a]\ntokens_per_day = 1").contains("account: is not a setting"));
    assert!(fault("[ledger]\n[ledger.acounts.a]\n").contains("ledger.acounts"));
    // No call names such a model, so the limit would never hold.
    assert!(fault("[accounts.a.models.\"\"]\ntokens_per_day = 1").contains("is empty"));
    assert!(fault("[accounts.a.models.\"m \"]\ntokens_per_day = 1").contains("white space"));
}

#[test]
fn a_value_out_of_range_is_named() {
    assert!(fault("[allowance]\ntokens_per_day = -1").contains("allowance.tokens_per_day"));
    assert!(fault("[allowance]\ntokens_per_day = \"1M\"").contains("allowance.tokens_per_day"));
    assert!(fault("[allowance]\ntokens_per_day = 1.5").contains("allowance.tokens_per_day"));
    assert!(fault("[allowance]\ntokens_per_day = 99999999999999999999").contains("whole number"));
    assert!(fault("zone = \"Mars\"").contains("zone: must be"));
    assert!(fault("storage = \"disk\"").contains("ephemeral_ok"));
    assert!(fault("any_account = \"yes\"").contains("any_account: must be true or false"));
    assert!(fault("path = \"\"").contains("path: must not be empty"));
    assert!(fault("sweep_after_seconds = 0").contains("from 1 on"));
    assert!(fault("[accounts.\"\"]").contains("empty"));
    assert!(fault("[accounts]\na = 1").contains("accounts.a: must be a section"));
    assert!(fault("[accounts.a]\nmodels = 1").contains("accounts.a.models"));
    assert!(fault("[ledger]\nzone = 1\n[other]\nx = 1").contains("ledger.zone"));
    assert!(fault("ledger = 1").contains("ledger: must be a section"));
    let largest = format!("[allowance]\ntokens_total = {}", u64::MAX);
    let config = LedgerConfig::from_toml(&largest).unwrap();
    assert_eq!(config.rules.allowance, [Limit::tokens(Period::Total, u64::MAX)]);
}

#[test]
fn every_fault_is_told_at_once_with_its_line() {
    let told = fault(
        "zone = \"Mars\"\n[allowance]\n  tokens_per_dya = 5\n[accounts.a]\ncalls_total = -3\n\
         [accounts.a.models.m]\ncalls_total = true\n[accounts.\" b\"]\nstorage = 1\n",
    );
    let places: Vec<_> = told.lines().skip(1).map(|line| line.split(' ').nth(4).unwrap()).collect();
    assert!(told.starts_with("6 things are wrong:"), "{told}");
    let wanted =
        ["configuration:1:8:", "configuration:3:3:", "configuration:5:15:", "configuration:7:15:"];
    assert_eq!(places[..4], wanted, "{told}");
    assert_eq!(places.len(), 6, "{told}");
}

/// The section may stand in one file with keys, and faults go to logs.
#[test]
fn no_fault_repeats_a_key_that_stands_in_the_file() {
    const KEY: &str = "AIzaSyEXAMPLE0000000000000000000000000001";
    let texts = [
        format!("[[keys]]\nkey = \"{KEY}\" oops\n"),
        format!("[[keys]]\nkey = \"{KEY}\n"),
        format!("{KEY}\n"),
        format!("{KEY} = 1\n"),
        format!("zone = \"{KEY}\"\n"),
        format!("storage = \"{KEY}\"\n"),
        format!("[accounts.a]\n{KEY} = 1\n"),
        format!("[accounts.{KEY}]\ntokens_per_day = -1\n"),
        format!("[accounts.a.models.{KEY}]\ntokens_per_day = -1\n"),
        format!("tokens = {KEY}\n"),
        format!("[a]\n{KEY} = 1\n{KEY} = 2\n"),
    ];
    for text in texts {
        let told = fault(&text);
        assert!(!told.contains(&KEY[4..20]), "a fault repeats what stands in its line");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keywheel.toml");
        fs::write(&file, &text).unwrap();
        let error = LedgerConfig::from_file(&file).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(&KEY[4..20]), "from a file");
    }
}

#[test]
fn what_is_no_toml_is_told_with_its_place() {
    let told = fault("zone = \"UTC\"\nno toml");
    assert!(told.contains("configuration:2:"), "{told}");
    assert!(LedgerConfig::from_toml("\u{feff}zone = \"UTC\"").is_ok());
}
