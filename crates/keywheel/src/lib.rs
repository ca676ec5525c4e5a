//! Live on the Gemini free tier: a client over a pool of keys that knows when each may be used again.
//!
//! ```toml
//! [dependencies]
//! keywheel = "0.1"
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! ```no_run
//! use std::process::ExitCode;
//! use keywheel::{Error, Gemini};
//!
//! #[tokio::main]
//! async fn main() -> ExitCode {
//!     match run().await {
//!         Ok(()) => ExitCode::SUCCESS,
//!         Err(error) => {
//!             eprintln!("{error}"); // for people; `{error:?}` is for the log
//!             ExitCode::FAILURE
//!         }
//!     }
//! }
//!
//! async fn run() -> Result<(), Error> {
//!     let gemini = Gemini::from_env().await?;
//!     let reply = gemini.generate("gemini-3.5-flash-lite", "Say hello").await?;
//!     println!("{}", reply.text());
//!     Ok(())
//! }
//! ```
//!
//! Keys come from `GEMINI_API_KEY_*` and `.env`. The key, the wait and the retry are handled; when nothing can
//! serve, the error says when something can, or [`GeminiBuilder::on_exhausted`] answers without a model.
//!
//! | to know | look in |
//! |---|---|
//! | how a call is made | [`Gemini`] |
//! | a conversation, and functions that the model calls | [`chat`] |
//! | an answer as a type of one's own | [`json`] |
//! | texts as vectors, remembered | [`embed`](mod@embed), [`embed_cache`] |
//! | files and long prompts that are kept | [`files`], [`caches`] |
//! | any other call of the API | [`raw`] |
//! | what a request in JSON weighs and asks for, whatever its size | [`sketch`] |
//! | what requests and answers hold | [`api`] |
//! | what can go wrong, and what to do about it | [`Error`] |
//! | what was tried on the way to an answer | [`Reply::attempts`] |
//! | a budget in tokens and calls, kept before they are spent | the module `ledger`, with the feature of that name |
//! | what a unit of your own work costs, and how many fit into a day | [`Gemini::turn`], [`Gemini::turns`] |
//! | how to keep settings in a file | [`Gemini::from_config`] |
//! | another model, where the first is spent | [`GeminiBuilder::fallback`] |
//! | how to answer when every key is spent | [`GeminiBuilder::on_exhausted`] |
//! | another provider, of OpenAI's dialect | [`GeminiBuilder::provider`], [`OpenAiApi`] |
//! | the pool under somebody else's client | [`Pool`] |
//! | when limits come back, and how to say it otherwise | [`reset`] |
//! | how to test your own program without a network | [`testing`] |
//! | a stand-in for Gemini that enforces quotas | the crate `keywheel-sim` |
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `schemars` | yes | `Gemini::generate_json`: an answer as a type of one's own, by its schema |
//! | `ledger` | no | the module `ledger`, `GeminiBuilder::ledger`: every attempt is reserved in a budget before it is sent |
//! | `embed-cache-disk` | no | `embed_cache::EmbedFile`: vectors are remembered in an SQLite file, too |
//!
//! Compiling needs a C compiler: for TLS, and for SQLite with the last two.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
mod blocking;
mod builder;
mod calls;
mod charging;
mod checks;
mod config;
mod degrade;
pub mod embed_cache;
mod error;
mod gemini;
#[cfg(feature = "ledger")]
pub mod ledger;
mod observe;
mod owners;
mod reload;
mod reply;
pub mod sketch;
pub mod testing;
mod time;
pub mod turns;
mod waits;
mod weigh;

// The crates of dates and time zones, in whose types moments are given.
#[doc(no_inline)]
pub use chrono;
#[doc(no_inline)]
pub use chrono_tz;
pub use keywheel_core::{
    ApiKey, ApiKeyError, Cause, Clock, Dimension, Effect, Fingerprint, LimitSeen, ManualClock,
    QuotaDay, Scope, SystemClock, Tier, Usage,
};
pub use keywheel_pool::{
    Ask, Exhausted, ExhaustedKind, KeySpec, Lease, LimitKind, Limits, MemoryState, Pool,
    PoolBuilder, PoolError, PoolStatus, Reason, ReloadReport, ResetStrategy, Selection, Selector,
    Source, StateError, StateLocation, UnknownKey,
    keys::{KeyLoader, KeyNote, KeySource, KeysError, SourceKind},
    reset,
};
pub use keywheel_provider::{
    GeminiApi, OpenAiApi, Provider, Transport,
    api::{
        self, Candidate, Content, FinishReason, FunctionCall, FunctionResponse, GenerateRequest,
        GenerateResponse, Part, ThinkingConfig,
    },
    classify::{Kind, Verdict},
    http::Timeouts,
};
pub use keywheel_settings as settings;

pub use self::calls::{
    Pending, caches,
    chat::{self, Chat},
    embed, files,
    json::{self, Typed},
    raw,
};
pub use self::{
    attempt::{GeminiStream, ModelFacts, RetryConfig, SkipReason, Skipped, refusal},
    builder::GeminiBuilder,
    checks::{KeyCheck, KeyHealth},
    config::{ConfigErrors, ConfigFault, ConfigFile, EmbeddedClient},
    degrade::{Degraded, OutOfQuota},
    error::{Error, Rejected},
    gemini::{Gemini, Generate, Stream},
    observe::{Counters, ModelCounters},
    owners::Owners,
    reply::{Attempt, Reply},
    turns::{Turn, TurnReport, Turns},
    waits::{Wait, WaitReason},
};

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeDocTests;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/errors.md")]
struct ErrorsDocTests;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/turns.md")]
struct TurnsDocTests;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/embed-cache.md")]
struct EmbedCacheDocTests;
