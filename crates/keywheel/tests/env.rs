//! From the environment to a first call, and what is said when there is no key.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{collections::HashMap, process::Command, sync::Arc};

use common::{
    MODEL, NOON, Rig, at,
    bodies::{day_spent, invalid_key},
    key,
};
use keywheel::{
    Error, Gemini, KeyLoader, KeySpec, ManualClock, SourceKind, StateLocation, SystemClock,
};
use keywheel_provider::{
    testing::{Script, Scripted},
    upstream::Upstream,
};
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimServer};

async fn built(loader: KeyLoader) -> Result<(Gemini, Script), Error> {
    let script = Script::new();
    script.otherwise(|_| Scripted::text("Hello"));
    let gemini = Gemini::builder()
        .key_loader(loader)
        .state(StateLocation::None)
        .clock(Arc::new(ManualClock::at(at(NOON))))
        .base_url("http://script.invalid")
        .transport(Arc::new(script.clone()))
        .build()
        .await?;
    Ok((gemini, script))
}

fn environment(count: usize) -> Vec<(String, String)> {
    let pair = |number| (format!("GEMINI_API_KEY_{number}"), key(number).expose().to_owned());
    (1..=count).map(pair).collect()
}

#[tokio::test]
async fn numbered_keys_are_all_used() {
    let (gemini, _) = built(KeyLoader::new().environment(environment(3))).await.unwrap();
    let mut served = Vec::new();
    for _ in 0..3 {
        let reply = gemini.generate(MODEL, "hi").await.unwrap();
        served.push(reply.served_by().unwrap().to_owned());
    }
    served.sort();
    assert_eq!(served, ["GEMINI_API_KEY_1", "GEMINI_API_KEY_2", "GEMINI_API_KEY_3"]);
    assert_eq!(gemini.key_notes(), []);
}

/// How many keys, and from where: the first question when a key seems not to be used.
#[tokio::test]
async fn where_the_keys_came_from_can_be_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.txt");
    std::fs::write(&file, format!("{}\n", key(9).expose())).unwrap();
    let missing = folder.path().join(".env");
    let loader = KeyLoader::new().environment(environment(2)).dotenv(&missing).file(&file);
    let (gemini, _) = built(loader).await.unwrap();
    let sources: Vec<_> = gemini.key_sources().iter().map(ToString::to_string).collect();
    let expected = [
        "the environment (2 keys)".to_owned(),
        format!("{} (does not exist)", missing.display()),
        format!("{} (1 key)", file.display()),
    ];
    assert_eq!(sources, expected);
    assert!(gemini.key_sources().iter().any(|source| source.kind == SourceKind::Environment));
}

#[tokio::test]
async fn what_was_noticed_about_the_keys_is_kept() {
    let mut twice = environment(1);
    twice.push(("GEMINI_API_KEY_TWO".to_owned(), key(1).expose().to_owned()));
    let (gemini, _) = built(KeyLoader::new().environment(twice)).await.unwrap();
    let [note] = gemini.key_notes() else { panic!("{:?}", gemini.key_notes()) };
    assert!(note.to_string().contains("GEMINI_API_KEY_TWO"), "{note}");
    assert_eq!(gemini.status().keys.len(), 1);
}

#[tokio::test]
async fn no_keys_is_an_error_that_says_what_was_looked_for_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let env_file = folder.path().join(".env");
    let loader = KeyLoader::new().environment([("PATH", "/usr/bin")]).dotenv(env_file.clone());
    let error = built(loader).await.unwrap_err();
    assert!(matches!(error, Error::Keys(_)), "{error}");
    let text = error.to_string();
    for word in ["GEMINI_API_KEY_", "GEMINI_API_KEY", "GOOGLE_API_KEY", "the environment"] {
        assert!(text.contains(word), "{word} is missing in: {text}");
    }
    assert!(text.contains(&env_file.display().to_string()), "{text}");
    assert_eq!(error.next_available_at(), None);
    assert!(error.attempts().is_empty());

    let none = Gemini::builder().keys([]).state(StateLocation::None).build().await.unwrap_err();
    assert!(matches!(none, Error::Keys(_)), "{none}");
}

#[tokio::test]
async fn a_placeholder_is_refused_by_the_name_of_its_variable() {
    let loader = KeyLoader::new().environment([("GEMINI_API_KEY_7", "your-key-here")]);
    let error = built(loader).await.unwrap_err();
    assert!(error.to_string().contains("GEMINI_API_KEY_7"), "{error}");
}

/// <https://github.com/NousResearch/hermes-agent/issues/40960>: "invalid key" when the pool was exhausted.
#[test]
fn no_keys_and_dead_keys_and_spent_keys_are_three_errors() {
    let dead = Rig::new(2);
    dead.script.otherwise(|_| invalid_key());
    let dead = dead.run(dead.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(dead, Error::AllKeysDead { .. }), "{dead}");
    assert_eq!(dead.next_available_at(), None, "waiting does not help");
    assert_eq!(dead.attempts().len(), 2);

    let spent = Rig::new(2);
    spent.script.otherwise(|_| day_spent(20));
    let spent = spent.run(spent.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(spent, Error::Exhausted { .. }), "{spent}");
    assert!(spent.next_available_at().is_some());

    // One dead, one spent: there is something to wait for.
    let mixed = Rig::new(2);
    mixed.script.reply(invalid_key());
    mixed.script.otherwise(|_| day_spent(20));
    let mixed = mixed.run(mixed.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(mixed, Error::Exhausted { .. }), "{mixed}");

    let none = Rig::new(0);
    let none = none.run(none.gemini.generate(MODEL, "hi")).unwrap_err();
    assert!(matches!(none, Error::NoKeys { .. }), "{none}");

    let texts = [dead, spent, none].map(|error| error.to_string());
    assert!(texts[0].contains("quarantined"), "{}", texts[0]);
    assert!(texts[1].contains("next at"), "{}", texts[1]);
    assert!(texts[2].contains("no key can be used"), "{}", texts[2]);
}

#[tokio::test]
async fn the_base_url_comes_from_either_variable_and_ours_wins() {
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[], "https://generativelanguage.googleapis.com/v1beta/models/"),
        (&[("GOOGLE_GEMINI_BASE_URL", "http://b.invalid/")], "http://b.invalid/v1beta/models/"),
        (&[("GEMINI_BASE_URL", "http://a.invalid/v1")], "http://a.invalid/v1/models/"),
        (
            &[
                ("GOOGLE_GEMINI_BASE_URL", "http://b.invalid"),
                ("GEMINI_BASE_URL", "http://a.invalid"),
            ],
            "http://a.invalid/v1beta/models/",
        ),
        (
            &[("GOOGLE_GEMINI_BASE_URL", "http://b.invalid"), ("GEMINI_BASE_URL", " ")],
            "http://b.invalid/v1beta/models/",
        ),
    ];
    for (variables, begin) in cases {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        let found =
            Upstream::base_url_from(|name| variables.get(name).map(|&value| value.to_owned()));
        let script = Script::new();
        script.otherwise(|_| Scripted::text("Hello"));
        let url = found.unwrap_or_else(|| keywheel_provider::upstream::GOOGLE.to_owned());
        let gemini = Gemini::builder()
            .keys([common::spec(1)])
            .state(StateLocation::None)
            .transport(Arc::new(script.clone()))
            .base_url(url)
            .build()
            .await
            .unwrap();
        gemini.generate(MODEL, "hi").await.unwrap();
        let sent = &script.requests()[0].url;
        assert!(sent.starts_with(begin), "{sent}");
    }
}

#[tokio::test]
async fn a_faulty_setting_is_said_when_the_client_is_built() {
    for url in [
        "generativelanguage.googleapis.com",
        "ftp://x.invalid",
        "http://u:p@x.invalid",
        "http://x.invalid/?key=1",
    ] {
        let client = Gemini::builder().keys([common::spec(1)]).state(StateLocation::None);
        let error = client.base_url(url).build().await.unwrap_err();
        assert!(matches!(error, Error::Setting(_)), "{url}: {error}");
        assert!(!error.to_string().contains("u:p"), "a password is not repeated");
    }
    let client = Gemini::builder().keys([common::spec(1)]).state(StateLocation::None);
    let error = client.api_version("../v1").build().await.unwrap_err();
    assert!(matches!(error, Error::Setting(_)), "{error}");
    let zero = keywheel::Limits { rpm: Some(0), ..Default::default() };
    let client = Gemini::builder().keys([common::spec(1)]).state(StateLocation::None);
    let error = client.limits(MODEL, zero).build().await.unwrap_err();
    assert!(matches!(error, Error::Pool(_)), "{error}");
}

/// The whole way, in a process of its own, since an environment belongs to a process: variables, `.env`, base URL,
/// state file.
#[test]
fn from_env_goes_from_variables_and_a_dotenv_file_to_an_answer() {
    const CHILD: &str = "KEYWHEEL_TEST_CHILD";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if std::env::var_os(CHILD).is_some() {
        return runtime.block_on(child());
    }
    let config = SimConfig::new()
        .with_model(MODEL, ModelConfig::free(Limits::new()))
        .with_project(ProjectConfig::new("alpha").with_key(key(1)))
        .with_project(ProjectConfig::new("beta").with_key(key(2)));
    let sim = runtime.block_on(SimServer::start(config, Arc::new(SystemClock))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let line = format!("GEMINI_API_KEY_2={}\n", key(2).expose());
    std::fs::write(folder.path().join(".env"), line).unwrap();
    let state = folder.path().join("state").join("pool.json");
    let name = "from_env_goes_from_variables_and_a_dotenv_file_to_an_answer";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .current_dir(folder.path())
        .env_clear()
        .env(CHILD, "1")
        .env("GEMINI_API_KEY_1", key(1).expose())
        .env("GEMINI_BASE_URL", sim.base_url())
        .env("KEYWHEEL_STATE", &state)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
    let stats = sim.world().stats();
    assert_eq!(stats.served(), 2);
    assert_eq!(stats.keys.len(), 2, "both keys were used");
    let saved = std::fs::read_to_string(state).unwrap();
    assert!(saved.contains(&key(1).fingerprint().to_string()));
    assert!(!saved.contains(key(1).expose()) && !saved.contains(key(2).expose()));
}

async fn child() {
    let gemini = Gemini::from_env().await.unwrap();
    assert_eq!(gemini.status().keys.len(), 2);
    for _ in 0..2 {
        gemini.generate(MODEL, "hi").await.unwrap();
    }
    gemini.flush().await.unwrap();

    // A setting wins over the environment, which names the simulator.
    let script = Script::new();
    script.reply(Scripted::text("Hello"));
    let builder = Gemini::builder().state(StateLocation::None).transport(Arc::new(script.clone()));
    let elsewhere = builder.base_url("http://elsewhere.invalid").build().await.unwrap();
    elsewhere.generate(MODEL, "hi").await.unwrap();
    assert!(script.requests()[0].url.starts_with("http://elsewhere.invalid/"));
}

#[tokio::test]
async fn keys_sent_in_the_clear_are_noted_and_logged() {
    let (log, _ends) = common::log::Log::start(tracing::Level::WARN);
    let notes = async |url: &str| {
        let builder =
            Gemini::builder().keys([KeySpec::new(key(1), "one")]).state(StateLocation::None);
        let builder = builder.transport(Arc::new(Script::new())).without_daily_checks();
        let gemini = builder.base_url(url).build().await.unwrap();
        gemini.key_notes().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for quiet in ["https://gateway.example.com", "http://127.0.0.1:8080", "http://gw.internal/v1"] {
        assert_eq!(notes(quiet).await, [""; 0], "{quiet}");
    }
    assert_eq!(log.text(), "");
    let said = notes("http://gateway.example.com/v1").await.join("");
    assert!(said.contains("gateway.example.com by plain http"), "{said}");
    assert!(log.text().contains(&said), "{}", log.text());
}
