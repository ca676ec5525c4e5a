//! The configuration file: that every setting takes effect, and that everything wrong is said at once.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;
#[path = "config/embed_cache.rs"]
mod embed_cache;
#[path = "config/example.rs"]
mod example;
#[path = "config/faults.rs"]
mod faults;

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
