//! Gemini wire types, one attempt as one HTTP request, and a classifier of error replies.
//!
//! | to know | look in |
//! |---|---|
//! | what a request and an answer hold | [`api`] |
//! | what a reply means | [`classify`](mod@classify) |
//! | how a request reaches the network, and how tests stand in for it | [`transport`] |

pub mod api;
pub mod classify;
pub mod transport;

pub use classify::{Asked, Dialect, Kind, Reply, Retry, Verdict, classify};
pub use transport::{Sent, Transport, TransportError, TransportKind, WireRequest, WireResponse};
