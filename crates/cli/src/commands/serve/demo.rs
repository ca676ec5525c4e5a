//! A gateway that needs no key: over the simulator, with keys that only it knows.

use std::sync::Arc;

use keywheel::{ApiKey, Error, SystemClock};
use keywheel_gateway::Config;
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimServer};
use tempfile::TempDir;

use crate::{exit::Exit, fault::Fault};

/// How many quota projects, of one key each.
const KEYS: usize = 3;

/// Variables of the environment that hold in a demo, too: so that it can be deployed as the real one would be.
const KEPT: [&str; 4] = ["PORT", "KEYWHEEL_LISTEN", "KEYWHEEL_TOKEN", "KEYWHEEL_TOKENS_PER_DAY"];

/// What a demo lives on. Dropping it ends the simulator and removes what was kept.
#[derive(Debug)]
pub(super) struct Demo {
    _simulator: SimServer,
    _folder: TempDir,
}

impl Demo {
    /// Starts a simulator with limits as free keys have them, and makes the gateway's configuration over it.
    ///
    /// # Errors
    /// No port, no temporary folder, or faulty variables.
    pub(super) async fn start() -> Result<(Self, Config), Fault> {
        let broken = |error: &dyn std::fmt::Display| Fault::new(Exit::Fault, error.to_string());
        let keys = (1..=KEYS).map(|number| format!("AQ.EXAMPLE-demo-{number}"));
        let keys: Vec<String> = keys.collect();
        let mut world = SimConfig::new()
            .with_model(
                "gemini-3.5-flash-lite",
                ModelConfig::free(Limits::new().rpm(15).tpm(250_000).rpd(500)),
            )
            .with_model(
                "gemini-3.5-flash",
                ModelConfig::free(Limits::new().rpm(5).tpm(250_000).rpd(20)),
            )
            .with_model(
                "gemini-embedding-001",
                ModelConfig::embedding(Limits::new().rpm(100).rpd(1_000)),
            );
        for (number, key) in keys.iter().enumerate() {
            let key = ApiKey::new(key.as_str()).map_err(|error| broken(&error))?;
            world = world
                .with_project(ProjectConfig::new(format!("demo-{}", number + 1)).with_key(key));
        }
        let simulator = SimServer::start(world, Arc::new(SystemClock)).await;
        let simulator = simulator.map_err(|error| broken(&error))?;
        let folder = tempfile::tempdir()?;
        let place = |name: &str| folder.path().join(name).display().to_string();
        let mut variables = vec![
            ("GEMINI_BASE_URL".to_owned(), simulator.base_url()),
            ("KEYWHEEL_STATE".to_owned(), place("pool.json")),
            ("KEYWHEEL_LEDGER".to_owned(), place("ledger.db")),
        ];
        let numbered = keys.into_iter().enumerate();
        variables.extend(numbered.map(|(n, key)| (format!("GEMINI_API_KEY_{}", n + 1), key)));
        let kept = KEPT.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?)));
        variables.extend(kept.map(|(name, value)| (name.to_owned(), value)));
        let config = Config::parse(folder.path().join("demo.toml"), DEMO, variables);
        let config = config.map_err(|errors| Fault::from(Error::from(errors)))?;
        Ok((Self { _simulator: simulator, _folder: folder }, config))
    }
}

/// A budget, so that its headers can be seen.
const DEMO: &str = "\
watch = \"0s\"
[allowance]
tokens_per_day = 1_000_000
[ledger]
storage = \"ephemeral_ok\"
";
