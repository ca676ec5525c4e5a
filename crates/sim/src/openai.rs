//! The OpenAI-style surface: chat completions, embeddings and models, as Google offers them beside its own
//! routes and as an OpenAI-style provider does.
//!
//! Requests are turned into the native form, and answers are written from the same answer: quotas, faults and
//! what is said do not differ.

mod errors;
mod read;
mod write;

pub(crate) use errors::{ErrorBody, Refusal, add_rate_headers, as_openai, unknown_url};
pub(crate) use read::{Chat, Embeddings};
pub(crate) use write::{completion, embedded, frames, model, models};
