//! Gemini wire types, one attempt as one HTTP request, and a classifier of error replies.
//!
//! | to know | look in |
//! |---|---|
//! | what a request and an answer hold | [`api`] |
//! | what a reply means | [`classify`](mod@classify) |
//! | where a request goes, and how its URL and headers are built | [`upstream`] |
//! | how a request reaches the network, and how tests stand in for it | [`transport`], [`http`](mod@http) |

pub mod api;
pub mod classify;
pub mod http;
pub mod sse;
pub mod transport;
pub mod upstream;

pub use classify::{Asked, Dialect, Kind, Reply, Retry, Verdict, classify};
pub use transport::{Sent, Transport, TransportError, TransportKind, WireRequest, WireResponse};
