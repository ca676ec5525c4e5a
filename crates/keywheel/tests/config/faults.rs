//! What is wrong in a file: said with its place, all at once, and without a key.

use keywheel::{Error, Gemini, GeminiBuilder};

use super::{Folder, built, chmod, common::key};

const MUST_BE_TIME: &str = "must be a duration such as \"90s\", \"2m\" or \"1h30m\"";
const NO_NAME: &str = "must be a name; this is empty, looks like a key, begins with \"key:\" or has \
                       control characters";

#[test]
fn every_fault_has_its_line_and_column() {
    let time = |place: &str| format!("{place}: {MUST_BE_TIME}");
    let cases: Vec<(&str, String)> = vec![
        // Names.
        ("\ndeadlin = '2m'", "2:1: deadlin: is not a setting; did you mean \"deadline\"?".into()),
        ("[retry]\n  max-retries = 1", "2:3: retry.max-retries: is not a setting; did you mean \"max_retries\"?".into()),
        ("[retry]\nfoo = 1", "2:1: retry.foo: is not a setting; there are max_retries, first_pause, max_pause, \
             budget_percent, budget_reserve, breaker_after".into()),
        ("[timeouts]\ndeadline = '2m'", "2:1: timeouts.deadline: is not a setting; it belongs to the whole file: put it above the first section".into()),
        ("fallback = 'b'", "1:12: fallback: must be a list of models, each in quotes: [\"…\", \"…\"]".into()),
        ("fallback = ['b', 'a b']", "1:18: fallback: must be the name of a model".into()),
        ("base_url = 'https://x.invalid'\nprovider = 'openai'", "2:12: provider: needs keys of its own: set a prefix or a file in [keys], or add a [[key]]".into()),
        ("provider = 'openai'\nkeys.prefix = 'X_KEY'", "1:12: provider: needs a base_url: nobody can guess it".into()),
        ("[time-outs]\n", "1:2: time-outs: is not a setting; did you mean \"timeouts\"?".into()),
        ("[[key]]\nvariable = 'V'\nlable = 'A'", "3:1: key.lable: is not a setting; did you mean \"label\"?".into()),
        ("[limits.a]\nrpn = 5", "2:1: limits.a.rpn: is not a setting; did you mean \"rpd\"?".into()),
        // Types.
        ("state = 5", "1:9: state: must be a path, in quotes".into()),
        ("deadline = 120", format!("1:12: deadline: {MUST_BE_TIME}, in quotes")),
        ("exploration = 'yes'", "1:15: exploration: must be true or false, without quotes".into()),
        ("keys = 'A'", "1:8: keys: must be a section: write [keys]".into()),
        ("[key]\nvariable = 'V'", "1:1: key: must be a list: write [[key]]".into()),
        ("key = ['V']", "1:8: key: must be a section: write [[key]]".into()),
        ("limits.'*' = 5", "1:14: limits.*: must be a section: write [limits.\"<model>\"]".into()),
        // Values.
        ("state = ' '", "1:9: state: must not be empty".into()),
        ("state = '~/pool.json'", "1:9: state: ~ is not understood here; write the whole path".into()),
        ("base_url = 'x.invalid'", "1:12: base_url: the base URL does not begin with http:// or https://".into()),
        ("api_version = '../v1'", "1:15: api_version: the API version is no plain path segment such as v1beta".into()),
        ("selection = 'roundrobin'", "1:13: selection: must be one of \"round_robin\", \"most_remaining\", \"failover\"; did you mean \"round_robin\"?".into()),
        ("selection = 'random'", "1:13: selection: must be one of \"round_robin\", \"most_remaining\", \"failover\"".into()),
        ("deadline = 'soon'", time("1:12: deadline") + ", or \"none\""),
        ("deadline = '0s'", "1:12: deadline: must be more than no time, or \"none\"".into()),
        ("overflow_after = '1.5m'", time("1:18: overflow_after")),
        ("[timeouts]\nconnect = '0s'", "2:11: timeouts.connect: must be more than no time".into()),
        ("[timeouts]\nidle = '10'", time("2:8: timeouts.idle")),
        ("[retry]\nmax_retries = -1", "2:15: retry.max_retries: must be a whole number from 0 on, without quotes".into()),
        ("[retry]\nmax_retries = 1.5", "2:15: retry.max_retries: must be a whole number from 0 on, without quotes".into()),
        ("[limits.'*']\nrpm = 0", "2:7: limits.*.rpm: must be a whole number from 1 on, without quotes".into()),
        ("[limits.'a*b']\nrpm = 1", "1:9: limits.a*b: must be a model, a beginning such as \"gemini-3.5-*\", or \"*\"".into()),
        ("[limits.gemini-3.5-flash]\nrpm = 1", "1:9: limits.gemini-3: a model's name with a dot needs quotes: [limits.\"<model>\"]".into()),
        ("[model_facts.'a b']\n", "1:14: model_facts.(a name): must be the name of a model".into()),
        ("[model_facts.gemini-3.5-flash]\n", "1:14: model_facts.gemini-3: a model's name with a dot needs quotes: [model_facts.\"<model>\"]".into()),
        ("[model_facts.a]\noutput_token_limit = 0", "2:22: model_facts.a.output_token_limit: must be a whole number from 1 on, without quotes".into()),
        ("[embed_cache]\nmax_bytes = 0", "2:13: embed_cache.max_bytes: must be a whole number from 1 on, without quotes".into()),
        ("[embed_cache]\nfile = ''", "2:8: embed_cache.file: must not be empty".into()),
        ("[embed_cache]\nfile_max_bytes = 5", "2:18: embed_cache.file_max_bytes: needs a `file`".into()),
        ("[embed_cache]\nmax_byte = 5", "2:1: embed_cache.max_byte: is not a setting; did you mean \"max_bytes\"?".into()),
        ("[reset]\nbilling = 'weekly'", "2:11: reset.billing: must be \"pacific_midnight\", \"hourly\", \"daily 00:00 UTC\", \"fixed 60s\" or \"rolling 24h\"".into()),
        ("[reset]\ntool = 'daily 00:00 Mars'", "2:8: reset.tool: its zone must be such as UTC or America/Los_Angeles".into()),
        // Keys.
        ("[keys]\nprefix = 'A KEY'", "2:10: keys.prefix: must be letters, digits and underscores, and not the key itself".into()),
        ("[keys]\nfile = ''", "2:8: keys.file: must not be empty".into()),
        ("\n[[key]]\nlabel = 'A'", "2:1: key: has no key: name its variable".into()),
        ("[[key]]\nvariable = 'V'\nkey = 'AQ.EXAMPLE-b'", "1:1: key: has a variable and a key; only one of them can count".into()),
        ("[[key]]\nkey = 'your-key-here'", "2:7: key.key: is a placeholder, not a key".into()),
        ("[[key]]\nkey = ''", "2:7: key.key: is empty".into()),
        ("[[key]]\nkey = 'AQ.EXAMPLE-a, AQ.EXAMPLE-b'", "2:7: key.key: seems to hold several keys; write a [[key]] for each".into()),
        ("[[key]]\nvariable = 'LISTED'", "2:12: key.variable: the variable seems to hold several keys; write a [[key]] for each".into()),
        ("[[key]]\nvariable = 'V'\nlabel = ''", format!("3:9: key.label: {NO_NAME}")),
        ("[[key]]\nvariable = 'V'\nproject = 'key:x'", format!("3:11: key.project: {NO_NAME}")),
        ("[[key]]\nvariable = 'V'\nlabel = 'A'\n[[key]]\nvariable = 'W'\nlabel = 'A'", "6:9: key.label: is that of the key on line 3 already".into()),
        ("[[key]]\nvariable = 'V'\npaid = 1", "3:8: key.paid: must be true or false, without quotes".into()),
        // Columns are characters, not bytes; a byte order mark is no character.
        ("\u{feff}limits = { 'ä' = { rpm = 0 } }", "1:26: limits.(a name).rpm: must be a whole number from 1 on, without quotes".into()),
    ];
    let variables =
        [("V", "AQ.EXAMPLE-v"), ("W", "AQ.EXAMPLE-w"), ("LISTED", "AQ.EXAMPLE-v,AQ.EXAMPLE-w")];
    for (text, expected) in cases {
        let folder = Folder::new(text);
        let errors = match folder.with(&variables) {
            Err(Error::Config(errors)) => errors,
            Err(other) => panic!("{text}: {other}"),
            Ok(_) => panic!("{text}: nothing was found wrong"),
        };
        assert_eq!(errors.to_string(), format!("{}:{expected}", folder.path().display()), "{text}");
    }
}

#[test]
fn a_variable_that_is_not_there_is_said_with_where_it_was_looked_for() {
    let folder = Folder::new("[[key]]\nvariable = 'V'");
    let env = folder.0.path().join(".env");
    let expected = format!(
        "2:12: key.variable: is not set, neither in the environment nor in {}",
        env.display()
    );
    assert_eq!(folder.faults(), std::slice::from_ref(&expected));
    folder.put(".env", "\nV=\n");
    assert_eq!(folder.faults(), [expected]);
    folder.put(".env", "\nV=changeme\n");
    let expected = format!(
        "2:12: key.variable: the variable (line 2 of {}) is a placeholder, not a key",
        env.display()
    );
    assert_eq!(folder.faults(), [expected]);
}

#[test]
fn all_faults_of_a_file_are_listed_at_once_in_its_order() {
    let folder = Folder::new(
        "deadlne = '2m'\nselection = 'x'\n[[key]]\nvariable = 'V'\n[timeouts]\nidle = 5\nconnect = 'x'\n\
         [limits.'*']\nrpm = 0\nrpd = -3\n[retry]\nmax_retries = ''\n",
    );
    let places: Vec<_> = folder.faults().iter().map(|fault| fault[..4].to_owned()).collect();
    assert_eq!(places, ["1:1:", "2:13", "4:12", "6:8:", "7:11", "9:7:", "10:7", "12:1"]);
    let shown = folder.errors().to_string();
    assert!(shown.starts_with("8 things are wrong in the configuration:\n  "), "{shown}");
    assert_eq!(shown.lines().count(), 9, "{shown}");
}

#[test]
fn broken_toml_is_one_fault_with_its_place() {
    for (text, place) in [
        ("a = 1\nb = \n", "2:"),
        ("[keys\nprefix = 'A'", "1:"),
        ("a = 1\na = 2", "2:1: a: duplicate key"),
        ("state = pool.json", "1:9: string values must be quoted"),
        ("deadline = '2m", "1:"),
        (&format!("a = {}", "[".repeat(100_000)), "1:"),
    ] {
        let found = Folder::new(text).faults();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(place), "{found:?}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named() {
    let missing = tempfile::tempdir().unwrap().path().join("missing.toml");
    let error = Gemini::from_config(&missing).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{}: there is no such file", missing.display()));

    let folder = tempfile::tempdir().unwrap();
    let error = GeminiBuilder::from_config(folder.path()).unwrap_err();
    let expected = format!("{}: is a folder; a file is wanted", folder.path().display());
    assert_eq!(error.to_string(), expected);

    let latin = Folder::new(b"# all\n# caf\xe9\n");
    assert_eq!(latin.faults(), ["2:6: is not UTF-8 text"]);
    let utf16 = Folder::new(b"\xff\xfes\0t\0");
    assert_eq!(utf16.faults(), ["1:1: is not UTF-8 text"]);
    let large = Folder::new("#".repeat(1024 * 1024 + 1));
    assert_eq!(large.faults(), ["is larger than 1 MiB, so it is no configuration"]);
}

/// A key wherever it does not belong: no fault, no note and no `Debug` repeats it. One in Google's form, and one
/// that only its place gives away.
#[tokio::test]
async fn no_key_of_the_file_is_ever_repeated() {
    let google = key(1).expose().to_owned();
    let other = format!("sk_live_EXAMPLE{}", "0123456789abcdef".repeat(3));
    for secret in [google, other] {
        let faulty = [
            format!("key = {secret}"),
            format!("[[key]]\nkey = \"{secret}"),
            format!("[[key]]\nkey = '{secret} two'\nlabel = '{secret}'"),
            format!("[[key]]\nkey = '{secret}'\nlabel = '{secret}'\nproject = 'x {secret}'"),
            format!("[[key]]\nkey = ['{secret}']"),
            format!("[[key]]\nvariable = '{secret}'"),
            format!("[[key]]\nvariable = 'S'\nlabel = '{secret}'"),
            format!("[[key]]\nvariable = 'S'\nproject = '{secret}'"),
            format!("[[key]]\n'{secret}' = true\nvariable = 'V'"),
            format!("{secret} = 1\n{secret} = 2"),
            format!("[keys]\nprefix = '{secret}-'\nfile = 5"),
            format!("[limits.'{secret}']\nrpm = 0\n[reset]\ntool = '{secret}'"),
            format!(
                "selection = '{secret}'\ndeadline = '{secret}'\nbase_url = 'https://{secret}@x.invalid'"
            ),
            format!(
                "[model_facts.'{secret}']\n{secret} = 0\n[embed_cache]\nmax_bytes = '{secret}'"
            ),
            format!("base_url = 'https://x.invalid/?key={secret}'\napi_version = '/{secret}'"),
            format!("state = '{secret}'\nexploration = '{secret}'\n[{secret}]"),
        ];
        for text in faulty {
            let folder = Folder::new(&text);
            let error = folder.with(&[("V", "AQ.EXAMPLE-v"), ("S", &secret)]).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(&secret), "case {}", text.replace(&secret, "<key>"));
            assert!(
                !shown.contains(&secret[8..24]),
                "half a key, {}",
                text.replace(&secret, "<key>")
            );
        }
        let good = Folder::new(format!("[[key]]\nkey = '{secret}'\nproject = 'alpha'"));
        chmod(&good.path(), 0o644);
        let builder = good.with(&[("GEMINI_API_KEY", &secret)]).unwrap();
        assert!(!format!("{builder:?}").contains(&secret[8..]), "the builder");
        let (gemini, _) = built(builder).await;
        let all = format!("{gemini:?} {:?} {:?}", gemini.status(), gemini.key_notes());
        assert!(!all.contains(&secret[8..]), "the client");
    }
}
