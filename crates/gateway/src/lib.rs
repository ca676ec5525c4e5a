//! Several projects, each with its own budget, on one shared allowance: a gateway for apps in any language.
//!
//! The program `keywheel` is a shell around this crate; [`Gateway::start`] puts a gateway into a program of your own.
//! What it does with a request is in docs/gateway.md.
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! # use keywheel::{ApiKey, SystemClock};
//! # use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimServer};
//! use keywheel_gateway::{Config, Gateway};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let sim = SimConfig::new()
//! #     .with_model("gemini-3.5-flash-lite", ModelConfig::free(Limits::new()))
//! #     .with_project(ProjectConfig::new("a").with_key(ApiKey::new("AQ.EXAMPLE-key-1")?));
//! # let sim = SimServer::start(sim, Arc::new(SystemClock)).await?;
//! # let folder = tempfile::tempdir()?;
//! let text = "listen = \"127.0.0.1:0\"\n[projects.triage]\ntokens_per_day = 100_000\n";
//! let variables = [("GEMINI_API_KEY_1", "AQ.EXAMPLE-key-1")];
//! # let (url, state) = (sim.base_url(), folder.path().join("pool.json").display().to_string());
//! # let ledger = folder.path().join("ledger.db").display().to_string();
//! # let variables = [variables[0], ("GEMINI_BASE_URL", &url), ("KEYWHEEL_STATE", &state), ("KEYWHEEL_LEDGER", &ledger)];
//! let gateway = Gateway::start(Config::parse("keywheel.toml", text, variables)?).await?;
//!
//! let url = format!("http://{}/v1beta/models/gemini-3.5-flash-lite:generateContent", gateway.address());
//! let body = r#"{"contents":[{"parts":[{"text":"Say hello"}]}],"generationConfig":{"maxOutputTokens":100}}"#;
//! let answer = reqwest::Client::new().post(url).body(body).send().await?;
//! assert_eq!(answer.headers()["x-keywheel-key"], "GEMINI_API_KEY_1");
//! answer.text().await?;
//!
//! gateway.stop(Duration::from_secs(30)).await; // what is under way ends, everything is settled
//! assert_eq!(gateway.gemini().counters().served, 1);
//! assert!(gateway.ledger().usage("triage").await?.day.tokens.used() > 0);
//! # Ok(())
//! # }
//! ```

mod admit;
mod auth;
mod budget;
mod config;
mod cors;
mod gateway;
mod handle;
mod headers;
mod health;
mod itself;
mod metrics;
mod pinned;
mod project;
mod refusal;
mod reload;
mod respond;
mod route;
mod server;
mod spool;
mod stream_end;
mod token;
mod upload;

pub use self::{
    config::{Config, Cors, Limits, Queue, Settings},
    gateway::{Gateway, Running, StartError},
    project::{DEFAULT_PROJECT, Project, Projects, Unbounded},
    reload::{ReloadError, Reloaded},
    route::Dialect,
    token::{NoRandomness, Token, TokenHash},
};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/gateway.md")]
struct GatewayDocTests;
