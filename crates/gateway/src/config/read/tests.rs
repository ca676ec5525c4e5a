use std::{fs, num::NonZero};

use keywheel::{KeyLoader, ledger::Durability};

use super::*;
use crate::{
    config::{Queue, sections::size},
    project::Unbounded,
    route::Dialect,
};

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const KEY: &str = "AQ.EXAMPLE-key-1";
const TOKEN: &str = "a-token-of-my-own-EXAMPLE";

fn parse(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    Config::parse("/etc/keywheel/keywheel.toml", text, variables.iter().copied())
}

fn read(text: &str) -> Config {
    parse(text, &[]).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Each fault as `line:column: what`, or `what` alone.
fn faults(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let errors = parse(text, variables).map(|_| ()).unwrap_err();
    let lines = errors.faults().iter().map(|fault| match fault.position {
        Some((line, column)) => format!("{line}:{column}: {}", fault.what),
        None => fault.what.clone(),
    });
    lines.collect()
}

/// Everything that it says, but for where keys come from, which has no form to be compared by.
fn shown(config: Config) -> String {
    let Config { settings, client, ledger, warnings, .. } = config;
    format!("{settings:#?} {:#?} {ledger:#?} {warnings:?}", client.key_loader(KeyLoader::new()))
}

/// The example with every setting in use, for which the token's hash and the key are made to fit.
fn example(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn example_text() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/keywheel.toml");
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_documented_example_is_understood_and_every_line_of_it_is_a_setting() {
    let text = example_text();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(&format!("```toml\n{text}```")), "the page shows another file");
    assert_eq!(shown(read(&text)), shown(read("")), "as it is, it sets nothing");

    let all = example(&text).replace("AQ.paste-the-key-here", KEY).replace("auth = \"off\"\n", "");
    let chat = [("CHAT_KEY", "AQ.EXAMPLE-key-2")];
    let config = parse(&all, &chat).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(config.settings.asks_for_tokens());
    assert_eq!(config.settings.projects.named("triage").unwrap().limits.len(), 3);
    assert_eq!(config.settings.fixed_charges.len(), Unbounded::ALL.len());
    assert_eq!(config.ledger.rules.allowance.len(), 4);

    let placeholder = faults(&example(&text), &chat);
    assert!(placeholder.iter().any(|fault| fault.contains("key.key: is a placeholder")));
}

#[test]
fn the_defaults_that_the_example_shows_are_the_defaults() {
    // What has none, and the sections whose names are the user's.
    let without = [
        "auth",
        "hosts",
        "state",
        "fallback =",
        "tokens",
        "calls",
        "period",
        "token_sha256",
        "requests_per_minute = 60",
        "in_flight",
        "models",
        "default_max_output",
        "batches",
        "images",
        "videos",
        "interactions",
        "file_search",
        "auth_tokens",
        "other",
        "text",
        "origins",
        "quota_project",
        "threads",
        "path",
        "dotenv",
        "file",
        "unspecified",
        "rpm",
        "rpd",
        "tpm",
        "tpd",
        "input_token_limit",
        "output_token_limit",
        "[limits.",
        "[model_facts.",
        "[allowance",
        "[projects",
    ];
    let own = ["priority", "allow_paid"];
    let all = example(&example_text());
    // Resets that are set may be longer than any that is believed of a provider, so those are never the defaults.
    let is_key = |section: &str| section.starts_with("[[key]]") || section.starts_with("[reset]");
    let mut section = String::new();
    let mut defaults = String::new();
    for line in all.lines() {
        if line.starts_with('[') {
            section = line.to_owned();
        }
        let is_left_out = without.iter().chain(&own).any(|word| line.starts_with(word));
        if !is_left_out && !is_key(&section) {
            defaults.push_str(&format!("{line}\n"));
        }
    }
    for shown in ["listen", "wait = ", "largest_body", "kind", "storage", "breaker_after", "watch"]
    {
        assert!(defaults.contains(shown), "{shown} is not among those that are compared");
    }
    // Said or not, it is the same place.
    let google = "[upstream]\nbase_url = \"https://generativelanguage.googleapis.com\"\n\
         api_version = \"v1beta\"\n[ledger]\nstorage = \"create\"\nsweep_after_seconds = 900\nkeep_days = 90\n";
    assert_eq!(read(&defaults).at_start, read("").at_start);
    assert_eq!(shown(read(&defaults)), shown(read(google)));

    let project = "[projects.a]\npriority = 0\nallow_paid = false\n";
    assert_eq!(shown(read(project)), shown(read("[projects.a]")));
}

#[test]
fn every_setting_takes_effect() {
    let config = read(
        r#"
        listen = "[::1]:9000"
        hosts = ["Gateway.Internal"]
        watch = "0s"
        state = "s/pool.json"
        [upstream]
        kind = "openai"
        base_url = "https://api.example/v1"
        key_prefix = "ACME_"
        [allowance]
        calls = 7
        tokens = 5
        period = "total"
        tokens_per_day = 2
        [queue]
        wait = "5s"
        depth = 3
        [degraded]
        text = "later"
        [cors]
        origins = ["https://App.Example:8443"]
        [stateful]
        quota_project = "alpha"
        [unbounded]
        batches = 9
        images = 8
        [serve]
        largest_body = "1 MB"
        largest_upload = "3gb"
        head_time = "1s"
        idle_time = "2s"
        connections = 10
        drain_time = "0s"
        threads = 3
        [ledger]
        path = "l.db"
        storage = "require_existing"
        zone = "UTC"
        [projects.a]
        tokens_per_month = 1
        requests_per_minute = 6
        in_flight = 4
        priority = 100
        models = ["models/m-1", "meta/m-2"]
        default_max_output = 100
        allow_paid = true
        unbounded = { images = 1 }
        per_model."m-1".calls_total = 3
        [projects.b]
        "#,
    );
    let settings = &config.settings;
    assert_eq!(settings.listen.to_string(), "[::1]:9000");
    assert_eq!((settings.upstream, settings.watch), (Dialect::OpenAi, None));
    assert_eq!(settings.access.hosts, ["gateway.internal"]);
    assert_eq!(settings.queue, Queue { wait: Duration::from_secs(5), depth: 3 });
    assert_eq!(settings.degraded.as_deref(), Some("later"));
    assert_eq!(settings.cors.origins, ["https://app.example:8443"]);
    assert_eq!(settings.quota_project.as_deref(), Some("alpha"));
    let limits = settings.limits;
    assert_eq!((limits.body, limits.upload, limits.connections), (1 << 20, 3 << 30, 10));
    assert_eq!((limits.head_time.as_secs(), limits.idle_time.as_secs()), (1, 2));
    assert!(limits.drain_time.is_zero());
    assert_eq!(limits.threads, NonZero::new(3));

    let a = settings.projects.named("a").unwrap();
    assert_eq!((a.requests_per_minute, a.in_flight, a.priority), (Some(6), Some(4), 100));
    assert_eq!(
        a.limits.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["1 tokens a month", "3 calls in total for m-1",]
    );
    assert!(a.allow_paid && a.allows("m-1") && a.allows("models/m-1") && !a.allows("m-3"));
    assert_eq!(
        (a.instead_of("m-1"), a.instead_of("meta/m-2").len()),
        (&["meta/m-2".into()][..], 0)
    );
    let charges = |name: &str| {
        let project = settings.projects.named(name).unwrap();
        [Unbounded::Batches, Unbounded::Images, Unbounded::Videos]
            .map(|route| project.fixed_charges.get(&route).copied())
    };
    assert_eq!(charges("a"), [Some(9), Some(1), None], "its own first");
    assert_eq!(charges("b"), [Some(9), Some(8), None]);

    let ledger = &config.ledger;
    assert_eq!(ledger.path.as_deref(), Some("/etc/keywheel/l.db".as_ref()));
    assert_eq!(ledger.durability, Some(Durability::RequireExisting));
    assert_eq!(ledger.rules.zone, keywheel::chrono_tz::UTC);
    assert_eq!(
        ledger.rules.allowance.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["5 tokens in total", "7 calls in total", "2 tokens a day",]
    );
    assert_eq!(ledger.rules.default_max_output("a"), 100);
    assert_eq!(config.client.state_path().unwrap(), Path::new("/etc/keywheel/s/pool.json"));
}

#[test]
fn every_fault_is_told_at_once_with_its_line_and_what_was_meant() {
    let text = r#"
listen = "localhost"
watch = 5
[upstream]
knid = "gemini"
[allowance]
tokens = 5
[queue]
wait = "soon"
[cors]
origins = ["app.example", "https://app.example/path"]
[unbounded]
image = 5
[serve]
largest_body = "0 MB"
[ledger]
accounts = {}
storage = "disk"
[retry]
max_retires = 3
[projects."two words"]
[projects.a]
token_sha256 = "abc"
priority = 101
tokens_a_day = 3
listen = "127.0.0.1:1"
[model_facts.gemini-3.5-flash]
[model_facts.b]
input_token_limit = 0
"#;
    let told = faults(text, &[("PORT", "http"), ("KEYWHEEL_TOKEN", "hunter2")]);
    for wanted in [
        "PORT: must be a port",
        "KEYWHEEL_TOKEN: must have 16 characters at least",
        "2:10: listen: must be an address and a port",
        "3:9: watch: must be a duration",
        "5:1: upstream.knid: is not a setting; did you mean \"kind\"?",
        "6:1: allowance: of which period is it?",
        "9:8: queue.wait: must be a duration",
        "11:12: cors.origins: must be an origin",
        "11:27: cors.origins: must be an origin",
        "13:1: unbounded.image: is not a setting; did you mean \"images\"?",
        "15:16: serve.largest_body: must be a size",
        "17:12: ledger.accounts: in this file it is [projects.<name>]",
        "18:11: ledger.storage: must be one of",
        "20:1: retry.max_retires: is not a setting; did you mean \"max_retries\"?",
        "27:14: model_facts.gemini-3: a model's name with a dot needs quotes",
        "29:21: model_facts.b.input_token_limit: must be a whole number from 1 on",
        "21:11: projects.(a name): a project's name is made of letters",
        "23:16: projects.a.token_sha256: must be 64 hexadecimal digits",
        "22:11: projects.a: its priority is a number from 0 to 100",
        "25:1: projects.a.tokens_a_day: is not a setting; did you mean \"tokens_per_day\"?",
        "26:1: projects.a.listen: is not a setting; it belongs to the whole file",
    ] {
        assert!(told.iter().any(|fault| fault.starts_with(wanted)), "{wanted} is not in {told:#?}");
    }
    assert_eq!(told.len(), 21, "{told:#?}");
}

#[test]
fn nothing_but_variables_is_a_whole_configuration() {
    let with = |variables: &[(&str, &str)]| {
        let file = ConfigFile::of_text("environment", "").with_variables(variables.iter().copied());
        config(&file, false)
    };
    let local = with(&[("GEMINI_API_KEY_1", KEY)]).unwrap();
    assert_eq!(local.settings.listen, LISTEN);
    assert!(!local.settings.asks_for_tokens() && local.settings.file.is_none());
    let names: Vec<_> = local.settings.projects.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["default"]);
    assert_eq!(local.keys.load().unwrap().keys.len(), 1);

    let free_host = with(&[
        ("GEMINI_API_KEY_1", KEY),
        ("PORT", "10000"),
        ("KEYWHEEL_TOKEN", TOKEN),
        ("KEYWHEEL_LEDGER", "/data/ledger.db"),
        ("KEYWHEEL_STATE", "/data/pool.json"),
        ("KEYWHEEL_TOKENS_PER_DAY", "1_000_000"),
    ])
    .unwrap();
    assert_eq!(free_host.settings.listen.to_string(), "0.0.0.0:10000");
    assert!(free_host.settings.asks_for_tokens());
    let token = Token::chosen(TOKEN).unwrap().hash();
    assert_eq!(free_host.settings.projects.of_token(token).count(), 1);
    assert_eq!(free_host.ledger.path.as_deref(), Some("/data/ledger.db".as_ref()));
    assert_eq!(free_host.ledger.rules.allowance, [Limit::tokens(Period::Day, 1_000_000)]);
    assert_eq!(free_host.client.state_path().unwrap(), Path::new("/data/pool.json"));

    let open = with(&[("PORT", "10000"), ("KEYWHEEL_TOKENS_PER_DAY", "many")]).unwrap_err();
    let told = open.to_string();
    assert!(told.starts_with("2 things are wrong"), "{told}");
    assert!(told.contains("\n  environment: PORT: everybody who reaches this address"), "{told}");
}

/// Whoever finds an open port on the internet spends what it guards.
#[test]
fn an_address_that_others_reach_needs_tokens() {
    for listen in ["0.0.0.0:8787", "[::]:8787", "192.168.0.5:8787", ":8787", "[::ffff:10.0.0.1]:1"]
    {
        let text = format!("listen = \"{listen}\"");
        assert!(faults(&text, &[])[0].starts_with("1:10: listen: everybody"), "{listen}");
        assert!(parse(&text, &[("KEYWHEEL_TOKEN", TOKEN)]).is_ok(), "{listen}");
        let off = format!("{text}\nauth = \"off\"\n[projects.a]\ntoken_sha256 = \"{HASH}\"");
        assert_eq!(faults(&off, &[]).len(), 1, "{listen}");
    }
    for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "[::ffff:127.0.0.1]:1"] {
        assert!(parse(&format!("listen = \"{listen}\""), &[]).is_ok(), "{listen}");
    }
    let any_page = faults("[cors]\norigins = [\"*\"]", &[]);
    assert!(any_page[0].starts_with("2:11: cors.origins: without tokens any page"), "{any_page:?}");
    let variable = faults("", &[("KEYWHEEL_LISTEN", "0.0.0.0:1")]);
    assert!(variable[0].starts_with("KEYWHEEL_LISTEN: everybody"), "{variable:?}");
}

#[test]
fn the_machine_says_where_it_listens_and_the_file_all_else() {
    let file = "listen = \"127.0.0.1:1\"\nstate = \"file.json\"\n[ledger]\npath = \"file.db\"";
    let config = parse(
        file,
        &[
            ("PORT", "2"),
            ("KEYWHEEL_LISTEN", "127.0.0.1:3"),
            ("KEYWHEEL_LEDGER", "/var/env.db"),
            ("KEYWHEEL_STATE", "/var/env.json"),
        ],
    )
    .unwrap();
    assert_eq!(config.settings.listen.port(), 3, "the more exact of the two variables");
    assert_eq!(config.ledger.path.as_deref(), Some("/etc/keywheel/file.db".as_ref()));
    assert_eq!(config.client.state_path().unwrap(), Path::new("/etc/keywheel/file.json"));
}

#[test]
fn the_token_of_the_environment_is_for_projects_that_have_none() {
    let text =
        format!("[projects.a]\ntoken_sha256 = [\"{HASH}\", \"{}\"]\n[projects.b]", "0".repeat(64));
    let config = parse(&text, &[("KEYWHEEL_TOKEN", TOKEN)]).unwrap();
    let of = |hash| {
        let all = config.settings.projects.of_token(hash);
        all.map(|project| project.name.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of(Token::chosen(TOKEN).unwrap().hash()), ["b"]);
    assert_eq!(
        (of(HASH.parse().unwrap()), of("0".repeat(64).parse().unwrap())),
        (vec!["a".into()], vec!["a".into()])
    );
    let missing = faults(&text, &[]);
    assert!(missing[0].starts_with("3:11: projects.b: has no token"), "{missing:?}");
    assert!(parse(&format!("auth = \"off\"\n{text}"), &[]).is_ok());
    assert_eq!(faults("auth = \"tokens\"", &[]).len(), 1, "and nobody has one");
}

/// `project add` gives the first project a token, and clients with that of the environment are refused from then on.
#[test]
fn a_token_of_the_environment_that_stands_for_nobody_is_told() {
    let told = |text: &str| parse(text, &[("KEYWHEEL_TOKEN", TOKEN)]).unwrap().warnings;
    let all_have = format!("[projects.a]\ntoken_sha256 = \"{HASH}\"\n");
    assert_eq!(told(&all_have), [FOR_NOBODY]);
    assert!(read(&all_have).warnings.is_empty(), "there is none");
    let own = format!("[projects.a]\ntoken_sha256 = \"{}\"", Token::chosen(TOKEN).unwrap().hash());
    for text in [&own, "", "[projects.a]", &format!("{all_have}[projects.b]")] {
        assert!(told(text).is_empty(), "{text}");
    }
    assert!(told(&format!("auth = \"off\"\n{all_have}")).is_empty(), "nobody is refused");
}

/// A file is read by many, and a token in it is anybody's.
#[test]
fn a_token_in_the_file_is_refused_and_not_repeated() {
    let token = Token::random().unwrap();
    for line in [
        format!("token = \"{}\"", token.expose()),
        format!("token_sha256 = \"{}\"", token.expose()),
        format!("{} = 1", token.expose()),
        format!("token_sha256 = [\"{}\"]", &token.expose()[..40]),
    ] {
        let errors = parse(&format!("[projects.a]\n{line}"), &[]).map(|_| ()).unwrap_err();
        let shown = format!("{errors} {errors:?}");
        assert!(!shown.contains(&token.expose()[3..20]), "a fault repeats a token");
    }
    let told = faults(&format!("[projects.a]\ntoken = \"{TOKEN}\""), &[]);
    assert!(told[0].contains("token_sha256"), "{told:?}");
}

#[test]
fn a_token_of_two_projects_stands_for_the_first_of_the_file() {
    let text =
        format!("[projects.z]\ntoken_sha256 = \"{HASH}\"\n[projects.a]\ntoken_sha256 = \"{HASH}\"");
    let config = read(&text);
    let own = config.settings.projects.of_token(HASH.parse().unwrap());
    let names: Vec<_> = own.map(|project| project.name.as_str()).collect();
    assert_eq!(names, ["z", "a"]);
}

#[test]
fn budgets_that_promise_more_than_there_is_are_warned_about() {
    let text = |second| {
        format!(
            "[allowance]\ntokens = 100_000\nperiod = \"day\"\n[projects.a]\ntokens_per_day = 50_000\n\
             [projects.b]\ntokens_per_day = {second}"
        )
    };
    assert_eq!(read(&text(40_000)).warnings, [""; 0]);
    let warned = read(&text(40_001)).warnings;
    let wanted = "the projects' budgets add up to 90001 tokens, which is 90 % of the allowance of 100000 tokens a day";
    assert_eq!(warned, [wanted]);
}

#[test]
fn a_budget_with_no_room_for_an_unbounded_answer_is_warned_about() {
    let warned = |own: &str| read(&format!("[projects.a]\n{own}")).warnings;
    let told = warned("tokens_per_day = 8_191");
    let wanted = "projects.a: its 8191 tokens a day are fewer than the 8192 that are kept for the answer of a request \
         that sets no maxOutputTokens, which therefore never fits: set default_max_output";
    assert_eq!(told, [wanted]);
    assert_eq!(warned("tokens_total = 2_000\ndefault_max_output = 3_000").len(), 1);
    for own in [
        "tokens_per_day = 8_192",
        "tokens_per_month = 500\ndefault_max_output = 500",
        "calls_per_day = 5",
    ] {
        assert_eq!(warned(own), [""; 0], "{own}");
    }
}

#[test]
fn an_upstream_of_openais_dialect_needs_an_address_and_keys_of_its_own() {
    let told = faults("[upstream]\nkind = \"openai\"", &[]);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|fault| fault.starts_with("2:8: upstream.kind: needs")), "{told:?}");
    let twice = "[upstream]\nkey_prefix = \"A_\"\n[keys]\nprefix = \"B\"";
    assert!(faults(twice, &[])[0].starts_with("2:14: upstream.key_prefix: keys.prefix says it"));
    let config = parse("[upstream]\nkey_prefix = \"ACME_KEY_\"", &[("ACME_KEY_1", KEY)]).unwrap();
    assert_eq!(config.keys.load().unwrap().keys.len(), 1);
}

/// A base URL may end in a version, and a path that names another still goes there.
#[test]
fn the_version_of_paths_that_name_none_is_the_base_urls() {
    let of = |text: &str, variables: &[(&str, &str)]| {
        parse(text, variables).unwrap().settings.api_version
    };
    assert_eq!(of("", &[]), "v1beta");
    assert_eq!(of("[upstream]\nbase_url = \"https://x.example/gemini/v1/\"", &[]), "v1");
    assert_eq!(of("", &[("GEMINI_BASE_URL", "http://127.0.0.1:1/v1alpha")]), "v1alpha");
    let both = "[upstream]\nbase_url = \"https://x.example/v1\"\napi_version = \"v1beta\"";
    assert_eq!(of(both, &[]), "v1beta");
}

#[test]
fn a_slip_in_a_placeholder_is_found() {
    let told = faults("[degraded]\ntext = \"until {next_availabel_at}\"", &[]);
    assert!(told[0].ends_with("did you mean {next_available_at}?"), "{told:?}");
    let text = |text: &str| read(&format!("[degraded]\ntext = '{text}'")).settings.degraded;
    for fine in ["until {next_available_at}", "{\"a\": 1}", "{", "}{"] {
        assert_eq!(text(fine).as_deref(), Some(fine));
    }
    assert_eq!(faults("[degraded]\ntext = \" \"", &[]).len(), 1);
}

#[test]
fn sizes_are_whole_numbers_with_units() {
    for (text, bytes) in [("1 B", 1), ("2kb", 2_048), (" 128 MB ", 128 << 20), ("2 GB", 2 << 30)] {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    for text in ["", "5", "MB", "1.5 MB", "-1 MB", "0 MB", "1 TB", "99999999999999999999 B"] {
        assert!(size(text).is_err(), "{text}");
    }
}

/// The same settings as in `docs/configuration.md`: `client.state_path` and `keys` are what the program asks.
#[test]
fn a_key_that_the_file_holds_is_among_its_keys() {
    let config = read(&format!("[[key]]\nkey = \"{KEY}\"\nlabel = \"own\""));
    let keys = config.keys.load().unwrap().keys;
    assert_eq!((keys.len(), keys[0].label.as_str()), (1, "own"));
    assert!(!format!("{config:?}").contains(KEY));
}
