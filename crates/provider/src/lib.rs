//! Gemini wire types, one attempt as one HTTP request, and a classifier of error replies.
//!
//! | to know | look in |
//! |---|---|
//! | what requests and answers hold: texts, tools, embeddings, files, caches | [`api`] |
//! | what a reply means | [`classify`](mod@classify) |
//! | the same as JSON, for people and other languages | [`explain`](mod@explain) |
//! | what a provider speaks: Gemini's own API, or an OpenAI-compatible one | [`provider`] |
//! | where a request goes, and how its URL and headers are built | [`upstream`] |
//! | how a request reaches the network | [`transport`], [`http`](mod@http) |
//! | how a streamed answer is read | [`stream`], [`sse`] |
//! | how tests stand in for the network | [`testing`] |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod api;
mod body;
pub mod classify;
pub mod explain;
pub mod http;
pub mod provider;
pub mod sse;
pub mod stream;
pub mod testing;
pub mod transport;
pub mod upstream;

pub use body::Body;
pub use classify::{Asked, Dialect, Kind, Reply, Retry, Verdict, classify};
pub use explain::{explain, explain_bytes};
pub use provider::{GeminiApi, OpenAiApi, Provider};
pub use transport::{Sent, Transport, TransportError, TransportKind, WireRequest, WireResponse};
