//! How to test your own program: replies from a script, time that the test moves. No network, no key, no waiting.
//!
//! A client is made for a test by what it is given in the place of the world's: [`keys`](GeminiBuilder::keys) that
//! are none, no [`state`](GeminiBuilder::state) file, a [`clock`](GeminiBuilder::clock) that stands still, a [`Script`]
//! as its [`transport`](GeminiBuilder::transport), and no
//! [checks of keys](GeminiBuilder::without_daily_checks) in the background.
//!
//! ```
//! use std::sync::Arc;
//! use keywheel::{
//!     ApiKey, Gemini, KeySpec, StateLocation,
//!     testing::{ManualClock, Script, Scripted},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::at("2026-11-30T12:00:00Z".parse()?);
//! let script = Script::new();
//! let gemini = Gemini::builder()
//!     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
//!     .state(StateLocation::None)
//!     .clock(Arc::new(clock.clone()))
//!     .transport(Arc::new(script.clone()))
//!     .without_daily_checks()
//!     .build()
//!     .await?;
//!
//! // The day's 20 requests are spent: what does the program say?
//! script.reply(Scripted::day_spent(20));
//! let error = gemini.generate("gemini-3.5-flash-lite", "Say hello").await.unwrap_err();
//! let back_at = error.next_available_at().unwrap();
//! assert!(back_at.to_rfc3339().starts_with("2026-12-01T08:00:"), "midnight Pacific");
//!
//! // The next day.
//! clock.set(back_at);
//! script.reply(Scripted::text("Hello"));
//! let reply = gemini.generate("gemini-3.5-flash-lite", "Say hello").await?;
//! assert_eq!(reply.text(), "Hello");
//!
//! let sent = script.requests();
//! assert_eq!(sent.len(), 2);
//! assert_eq!(sent[1].json()["contents"][0]["parts"][0]["text"], "Say hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Clocks
//!
//! Time is asked for in up to three places; clones of one [`ManualClock`] keep them together:
//!
//! | whose | set by | without it |
//! |---|---|---|
//! | the client's and its pool's: limits, waits, deadlines | [`GeminiBuilder::clock`] | the machine's |
//! | the script's: [`Scripted::after`], [`Scripted::pause`] | [`Script::with_clock`] | pauses really pass |
//! | the ledger's, with the feature `ledger`: days and months of the budget, its sweep | `Ledger::builder().clock(…)` | the machine's |
//!
//! A call that waits on a [`ManualClock`] goes on when the test moves it: run the call in a task, and move the clock to
//! [`next_wake`](ManualClock::next_wake) once there is one.
//!
//! # What a script can say
//!
//! | to | use |
//! |---|---|
//! | put replies into a queue, or compute each | [`Script::reply`], [`Script::otherwise`] |
//! | answer as Gemini does | [`Scripted::text`], [`stream`](Scripted::stream), [`function_call`](Scripted::function_call), [`embeddings`](Scripted::embeddings), [`token_count`](Scripted::token_count) |
//! | refuse as Gemini does | [`Scripted::day_spent`], [`minute_full`](Scripted::minute_full), [`overloaded`](Scripted::overloaded), [`invalid_key`](Scripted::invalid_key) |
//! | answer and refuse as OpenAI-compatible providers do | [`Scripted::openai_text`], [`openai_stream`](Scripted::openai_stream), [`openai_embeddings`](Scripted::openai_embeddings), [`openai_rate_limited`](Scripted::openai_rate_limited) |
//! | say it in your own words | [`Scripted::json`], [`events`](Scripted::events), [`status`](Scripted::status) |
//! | break the connection, or be slow | [`Scripted::failure`], [`fail`](Scripted::fail), [`after`](Scripted::after), [`pause`](Scripted::pause), [`hang`](Scripted::hang) |
//! | see what was sent | [`Script::requests`] |
//!
//! A script says what it is told. The crate `keywheel-sim` counts instead: it enforces quotas as Gemini does, in process
//! (`SimTransport`) or on a port (`SimServer`), for tests of whole days.

#[doc(inline)]
pub use keywheel_core::ManualClock;
#[doc(inline)]
pub use keywheel_provider::testing::{Recorded, Script, Scripted};

#[cfg(doc)]
use crate::GeminiBuilder;
