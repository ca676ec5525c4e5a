//! A stand-in for the Gemini API that enforces quotas, with error bodies in the shapes of real ones.
//!
//! The same [`World`] is played on a port ([`SimServer`]) or in process ([`SimTransport`]); on a
//! `ManualClock` a day of traffic takes milliseconds.
//!
//! It serves what an app on the free tier uses: `generateContent` and its stream, function calls, answers of a
//! schema, answers continued over several requests, `countTokens`, embeddings, uploaded files, cached contents,
//! models; Google's OpenAI-style layer under `/v1beta/openai`; and, with [`Face::OpenAi`], an OpenAI-style
//! provider. Files, caches and continuation tokens belong to a quota project, as Google's do.
//!
//! What is answered follows simple rules, so that tests can foresee it: a text is
//! `Simulated answer <hash> to: <the prompt's beginning>`; a declared function is called when the last text
//! names it, and what it answered is quoted; a schema gets the smallest value it allows; a vector depends on
//! text, model, task, title and length; four bytes are a token, and a file that is no text has 258.
//!
//! | to know | look in |
//! |---|---|
//! | what can be set, in code and in TOML | [`config`] |
//! | what happens to a request | [`world`] |
//! | how quotas are counted | [`quota`] |
//! | which faults there are | [`fault`] |
//! | what was counted | [`stats`] |
//! | how strategies compare over a day | [`day`] |
//!
//! ```
//! use std::sync::Arc;
//! use keywheel_core::{ApiKey, SystemClock};
//! use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimServer};
//!
//! # let runtime = tokio::runtime::Runtime::new().unwrap();
//! # runtime.block_on(async {
//! let config = SimConfig::new()
//!     .with_model("gemini-3.5-flash-lite", ModelConfig::free(Limits::new().rpm(15).rpd(500)))
//!     .with_project(ProjectConfig::new("alpha").with_key(ApiKey::new("AQ.EXAMPLE-1").unwrap()));
//! let sim = SimServer::start(config, Arc::new(SystemClock)).await.unwrap();
//! println!("export GEMINI_BASE_URL={}", sim.base_url());
//! # });
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod answers;
mod bodies;
mod caches;
pub mod config;
pub mod day;
pub mod fault;
mod files;
mod gzip;
mod opaque;
mod openai;
mod paging;
mod prompt;
pub mod quota;
mod random;
pub mod reply;
mod request;
mod route;
mod server;
mod shape;
mod shared;
pub mod stats;
mod transport;
pub mod world;

pub use config::{
    ConfigErrors, DayHint, Face, Faults, FilesConfig, KeyConfig, KeyState, Limits, ModelConfig,
    Outage, ProjectConfig, ProjectState, Signatures, SimConfig, UnknownKeys, Windows,
};
pub use fault::Fault;
pub use reply::{HttpReply, Outcome, Piece, SimReply};
pub use request::SimRequest;
pub use server::{SimServer, StartError};
pub use shared::SharedWorld;
pub use stats::{BucketDay, Stats, Tally};
pub use transport::SimTransport;
pub use world::World;
