//! The configuration file: that every setting takes effect, and that everything wrong is said at once.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;
#[path = "config/embed_cache.rs"]
mod embed_cache;
#[path = "config/example.rs"]
mod example;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use common::{MODEL, NOON, at, bodies, key};
use keywheel::{
    ConfigErrors, Error, Gemini, GeminiBuilder, GenerateRequest, KeyLoader, Limits, ManualClock,
    ModelFacts, OpenAiApi, RetryConfig, Selection, StateLocation, Timeouts,
    embed_cache::EmbedCacheConfig,
};
use keywheel_provider::testing::{Script, Scripted};
use serde_json::json;
use tempfile::TempDir;

/// A folder with a configuration file.
struct Folder(TempDir);

impl Folder {
    fn new(text: impl AsRef<[u8]>) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.put("client.toml", text);
        folder
    }

    /// Puts a file beside it, for nobody else to read.
    fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        chmod(&path, 0o600);
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("client.toml")
    }

    fn with(&self, variables: &[(&str, &str)]) -> Result<GeminiBuilder, Error> {
        GeminiBuilder::from_config_with(self.path(), variables.iter().copied())
    }

    fn errors(&self) -> ConfigErrors {
        match self.with(&[]) {
            Err(Error::Config(errors)) => errors,
            Err(other) => panic!("another error: {other}"),
            Ok(_) => panic!("nothing was found wrong"),
        }
    }

    /// The faults as `line:column: what`.
    fn faults(&self) -> Vec<String> {
        let errors = self.errors();
        assert_eq!(errors.path(), self.path());
        let shown = errors.to_string();
        let lines = errors.faults().iter().map(|fault| {
            let place = fault.position.map_or(String::new(), |(l, c)| format!("{l}:{c}: "));
            let line = format!("{place}{}", fault.what);
            let separator = if fault.position.is_some() { ":" } else { ": " };
            let whole = format!("{}{separator}{line}", self.path().display());
            assert!(shown.contains(&whole), "{whole} is missing in {shown}");
            line
        });
        lines.collect()
    }
}

#[cfg(unix)]
fn chmod(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(not(unix))]
fn chmod(_: &Path, _: u32) {}

/// The builder without where its keys come from, which differs from file to file.
fn shown(builder: GeminiBuilder) -> String {
    format!("{:?}", builder.key_loader(KeyLoader::new()))
}

async fn built(builder: GeminiBuilder) -> (Gemini, Script) {
    built_on(&ManualClock::at(at(NOON)), builder).await
}

async fn built_on(clock: &ManualClock, builder: GeminiBuilder) -> (Gemini, Script) {
    let script = Script::new().with_clock(Arc::new(clock.clone()));
    script.otherwise(|_| Scripted::text("Hello"));
    let builder = builder
        .state(StateLocation::None)
        .clock(Arc::new(clock.clone()))
        .transport(Arc::new(script.clone()))
        .without_daily_checks();
    (builder.build().await.unwrap(), script)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

type Set = fn(GeminiBuilder) -> GeminiBuilder;

/// What the file says is what the builder would have been told.
#[test]
fn every_setting_reaches_the_builder() {
    let cases: [(&str, Set); 33] = [
        ("", |it| it),
        ("base_url = 'https://x.invalid/v1'", |it| it.base_url("https://x.invalid/v1")),
        ("api_version = 'v1alpha'", |it| it.api_version("v1alpha")),
        ("selection = 'round_robin'", |it| it),
        ("selection = 'most_remaining'", |it| it.selection(Selection::MostRemaining)),
        ("selection = 'failover'", |it| it.selection(Selection::Failover)),
        ("deadline = '1h30m'", |it| it.deadline(secs(5_400))),
        ("deadline = 'none'", |it| it.no_deadline()),
        ("stream_deadline = '3m'", |it| it.stream_deadline(secs(180))),
        ("overflow_after = '0s'", |it| it.overflow_after(secs(0))),
        ("exploration = false", |it| it.exploration(false)),
        ("exploration = true", |it| it),
        ("daily_checks = false", |it| it.without_daily_checks()),
        ("daily_checks = true", |it| it),
        ("[limits.'gemini-3.5-*']\nrpm = 15\ntpm = 250_000\nrpd = 0x1f4\ntpd = 1000000", |it| {
            let (rpm, tpm, rpd, tpd) = (Some(15), Some(250_000), Some(500), Some(1_000_000));
            it.limits("gemini-3.5-*", Limits { rpm, tpm, rpd, tpd })
        }),
        ("limits = { '*' = { rpm = 2 } }", |it| {
            it.limits("*", Limits { rpm: Some(2), ..Limits::default() })
        }),
        ("[limits.'models/b']\nrpd = 1\n[limits.a]\nrpd = 2", |it| {
            let rpd = |rpd| Limits { rpd: Some(rpd), ..Limits::default() };
            it.limits("b", rpd(1)).limits("a", rpd(2))
        }),
        ("[timeouts]\nconnect = '3s'", |it| {
            it.timeouts(Timeouts { connect: secs(3), ..Timeouts::default() })
        }),
        ("[timeouts]\nfirst_byte = '4s'", |it| {
            it.timeouts(Timeouts { first_byte: secs(4), ..Timeouts::default() })
        }),
        ("timeouts.idle = '5s'", |it| {
            it.timeouts(Timeouts { idle: secs(5), ..Timeouts::default() })
        }),
        ("[retry]\nmax_retries = 0", |it| {
            it.retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        }),
        ("[retry]\nfirst_pause = '3s'", |it| {
            it.retry(RetryConfig { first_pause: secs(3), ..RetryConfig::default() })
        }),
        ("[retry]\nmax_pause = '0s'", |it| {
            it.retry(RetryConfig { max_pause: secs(0), ..RetryConfig::default() })
        }),
        ("[retry]\nbudget_reserve = 7\nbreaker_after = 0", |it| {
            it.retry(RetryConfig { budget_reserve: 7, breaker_after: 0, ..RetryConfig::default() })
        }),
        ("[model_facts.'models/gemma-3']\ninput_token_limit = 9\noutput_token_limit = 0x7", |it| {
            let (input_token_limit, output_token_limit) = (Some(9), Some(7));
            it.model_facts("gemma-3", ModelFacts { input_token_limit, output_token_limit })
        }),
        ("[embed_cache]", |it| it.embed_cache(EmbedCacheConfig::default())),
        ("embed_cache.max_bytes = 1_000", |it| {
            it.embed_cache(EmbedCacheConfig::default().with_max_bytes(1_000))
        }),
        ("fallback = ['b', 'models/c']", |it| it.fallback(["b", "c"])),
        ("fallback_after = '0s'", |it| it.fallback_after(secs(0))),
        ("watch_keys = '30s'", |it| it.watch_keys(secs(30))),
        (
            "provider = 'openai'\nbase_url = 'https://x.invalid/v1'\n[keys]\nprefix = 'GROQ_KEY'",
            |it| it.provider(OpenAiApi::new()).base_url("https://x.invalid/v1"),
        ),
        ("reset.requests_per_day = 'pacific_midnight'", |it| it),
        ("[keys]\n[reset]\n[limits]\n[timeouts]\n[retry]", |it| it),
    ];
    for (text, set) in cases {
        let expected = set(Gemini::builder());
        // The environment is asked while the file is read; a builder in code asks it later.
        let with_base = |it: GeminiBuilder| {
            if text.contains("base_url") { it } else { it.base_url("https://google.invalid") }
        };
        let variables = [("GEMINI_BASE_URL", "https://google.invalid")];
        let read = Folder::new(text).with(&variables).expect(text);
        assert_eq!(shown(read), shown(with_base(expected)), "{text}");
    }
}

/// Each strategy is asked for its own kind of limit: a refusal that states no wait shows which.
#[tokio::test]
async fn every_reset_is_for_its_own_kind_of_limit() {
    let violation = |id: &str, metric: &str| {
        let metric = format!("generativelanguage.googleapis.com/{metric}");
        let details = json!([{
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"quotaMetric": metric, "quotaId": id, "quotaValue": "7"}],
        }]);
        bodies::reply(429, &bodies::error(429, "RESOURCE_EXHAUSTED", "Quota exceeded.", details))
    };
    let requests = "generate_content_free_tier_requests";
    let tokens = "generate_content_free_tier_input_token_count";
    let no_credit =
        "Your prepayment credits are depleted. Please go to AI Studio to manage your project.";
    let cases = [
        (
            "requests_per_minute",
            violation("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", requests),
        ),
        (
            "tokens_per_minute",
            violation("GenerateContentInputTokensPerModelPerMinute-FreeTier", tokens),
        ),
        (
            "requests_per_day",
            violation("GenerateRequestsPerDayPerProjectPerModel-FreeTier", requests),
        ),
        ("tokens_per_day", violation("GenerateContentInputTokensPerModelPerDay-FreeTier", tokens)),
        ("tool", violation("SearchRequestsPerDay", "grounding_search_requests")),
        (
            "billing",
            bodies::reply(429, &bodies::error(429, "RESOURCE_EXHAUSTED", no_credit, json!([]))),
        ),
        ("unspecified", bodies::bare_429()),
    ];
    for (name, refusal) in cases {
        let wait = 7 * 60;
        let text = format!("deadline = '1s'\n[reset]\n{name} = 'fixed {wait}s'");
        let folder = Folder::new(text);
        let builder = folder.with(&[("GEMINI_API_KEY", key(1).expose())]).unwrap();
        let clock = ManualClock::at(at(NOON));
        let (gemini, script) = built_on(&clock, builder).await;
        script.otherwise(move |_| refusal.clone());
        let mut request = GenerateRequest::from("hi");
        if name == "tool" {
            request = request.with_tool(json!({"googleSearch": {}}));
        }
        let error = common::run(&clock, gemini.generate(MODEL, request)).expect_err(name);
        let back: DateTime<Utc> =
            error.next_available_at().unwrap_or_else(|| panic!("{name}: {error}"));
        let waited = (back - at(NOON)).num_seconds();
        assert!((wait..=wait + 6).contains(&waited), "{name}: {waited} s");
    }
}

#[tokio::test]
async fn paths_are_seen_from_the_file() {
    let folder = Folder::new(
        "state = 'sub/pool.json'\n[keys]\nprefix = 'ACME_KEY'\ndotenv = 'my.env'\nfile = 'keys.txt'",
    );
    folder.put("my.env", format!("ACME_KEY_1={}\n", key(1).expose()));
    folder.put("keys.txt", format!("{}\n", key(2).expose()));
    let script = Script::new();
    script.otherwise(|_| Scripted::text("Hello"));
    let builder = folder.with(&[]).unwrap().transport(Arc::new(script));
    let gemini = builder.without_daily_checks().build().await.unwrap();
    let labels: Vec<_> = gemini.status().keys.into_iter().map(|key| key.label).collect();
    assert_eq!(labels, ["ACME_KEY_1", "keys.txt:1"]);
    gemini.generate(MODEL, "hi").await.unwrap();
    gemini.flush().await.unwrap();
    assert!(folder.0.path().join("sub").join("pool.json").is_file());

    let path = |name: &str| folder.0.path().join(name).display().to_string();
    let elsewhere = std::path::absolute("/elsewhere/pool.json").unwrap().display().to_string();
    let text = format!("state = '{elsewhere}'");
    let absolute = format!("{:?}", Folder::new(text).with(&[]).unwrap());
    assert!(absolute.contains(&format!("File({elsewhere:?})")), "{absolute}");
    // `.env` beside the file, unless said otherwise.
    let default = Folder::new("");
    let beside = default.0.path().join(".env").display().to_string();
    let shown = format!("{:?}", default.with(&[]).unwrap());
    assert!(shown.contains(&format!("{beside:?}")) && !shown.contains(&path("my.env")), "{shown}");
}

#[tokio::test]
async fn keys_come_from_variables_and_from_the_file_itself() {
    let text = format!(
        "[[key]]\nvariable = 'CHAT'\nproject = 'alpha'\n\
         [[key]]\nvariable = 'MAIL'\nlabel = 'mail'\npaid = true\n\
         [[key]]\nkey = ' \"{}\" '\nproject = 'alpha'\n",
        key(3).expose()
    );
    let folder = Folder::new(text);
    folder.put(".env", format!("MAIL={}\nCHAT=hidden-by-the-environment", key(2).expose()));
    // Where the file lists keys, no others are looked for.
    let variables = [("CHAT", key(1)), ("GEMINI_API_KEY", key(9))];
    let variables: Vec<_> = variables.iter().map(|(name, key)| (*name, key.expose())).collect();
    let (gemini, _) = built(folder.with(&variables).unwrap()).await;
    let status = gemini.status();
    let keys: Vec<_> = status
        .keys
        .iter()
        .map(|key| (key.label.as_str(), key.quota_project.as_str(), format!("{:?}", key.tier)))
        .collect();
    let alone = format!("key:{}", key(2).fingerprint());
    let expected = [
        ("CHAT", "alpha", "Free".to_owned()),
        ("mail", alone.as_str(), "Paid".to_owned()),
        ("client.toml:8", "alpha", "Free".to_owned()),
    ];
    assert_eq!(keys, expected);
    assert_eq!(status.keys[0].fingerprint, key(1).fingerprint(), "real variables win");
    assert_eq!(gemini.key_notes(), []);

    // Listed keys and a prefix go together if both are there.
    let both = Folder::new("keys.prefix = 'GEMINI_API_KEY'\n[[key]]\nvariable = 'CHAT'");
    let (gemini, _) = built(both.with(&variables).unwrap()).await;
    assert_eq!(gemini.status().keys.len(), 2);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_with_keys_that_others_can_read_is_reported() {
    for (text, mode, noted) in [
        (format!("[[key]]\nkey = '{}'", key(1).expose()), 0o644, true),
        (format!("[[key]]\nkey = '{}'", key(1).expose()), 0o600, false),
        ("[[key]]\nvariable = 'GEMINI_API_KEY'".to_owned(), 0o644, false),
    ] {
        let folder = Folder::new(text);
        chmod(&folder.path(), mode);
        let variables = [("GEMINI_API_KEY", key(1).expose().to_owned())];
        let builder = GeminiBuilder::from_config_with(folder.path(), variables).unwrap();
        let (gemini, _) = built(builder).await;
        let notes: Vec<_> = gemini.key_notes().iter().map(ToString::to_string).collect();
        let found = notes.iter().any(|note| {
            note.contains(&folder.path().display().to_string()) && note.contains("other users")
        });
        assert_eq!((found, notes.len()), (noted, usize::from(noted)), "{mode:o}");
    }
}

#[tokio::test]
async fn the_environment_fills_in_what_the_file_leaves_out() {
    let variables = [("GEMINI_API_KEY", key(1)), ("X", key(2))];
    let mut variables: Vec<_> =
        variables.iter().map(|(name, key)| (*name, key.expose().to_owned())).collect();
    variables.push(("GOOGLE_GEMINI_BASE_URL", "http://b.invalid".to_owned()));
    for (text, begin) in [
        ("", "http://b.invalid/v1beta/models/"),
        ("base_url = 'http://a.invalid/'\napi_version = 'v1'", "http://a.invalid/v1/models/"),
    ] {
        let folder = Folder::new(text);
        let builder = GeminiBuilder::from_config_with(folder.path(), variables.clone()).unwrap();
        let (gemini, script) = built(builder).await;
        gemini.generate(MODEL, "hi").await.unwrap();
        assert!(script.requests()[0].url.starts_with(begin), "{}", script.requests()[0].url);
    }
    let folder = Folder::new("");
    let state = folder.with(&[("KEYWHEEL_STATE", "/srv/a.json")]).unwrap();
    assert!(format!("{state:?}").contains("/srv/a.json"));
}

#[tokio::test]
async fn from_config_goes_from_a_file_to_a_client_and_code_has_the_last_word() {
    let text = format!("state = 'pool.json'\n[[key]]\nkey = '{}'\nlabel = 'A'", key(1).expose());
    let folder = Folder::new(text);
    let gemini = Gemini::from_config(folder.path()).await.unwrap();
    assert_eq!(gemini.status().keys[0].label, "A");
    let script = Script::new();
    script.otherwise(|_| bodies::day_spent(20));
    let gemini = GeminiBuilder::from_config(folder.path())
        .unwrap()
        .state(StateLocation::None)
        .transport(Arc::new(script))
        .on_exhausted(|_| async { "resting" })
        .build()
        .await
        .unwrap();
    let reply = gemini.generate(MODEL, "hi").await.unwrap();
    assert_eq!(reply.text(), "resting");
}

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
