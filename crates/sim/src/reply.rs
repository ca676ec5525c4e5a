//! What goes back: a reply to be played in time, and what really happened.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use keywheel_core::{Cause, Dimension};

use crate::fault::Fault;

/// The simulator's reaction to one request.
#[derive(Debug, Clone)]
pub struct SimReply {
    /// How long until anything happens, counted from the request's arrival.
    pub latency: Duration,
    /// The reply; `None` when the connection ends without one.
    pub http: Option<HttpReply>,
    /// What really happened, whatever the reply tells.
    pub outcome: Outcome,
}

/// Status, headers and body of a reply.
#[derive(Clone)]
pub struct HttpReply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, piece by piece.
    pub body: Vec<Piece>,
}

/// A piece of a body, or something that happens between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Some bytes.
    Bytes(Bytes),
    /// Nothing for a while.
    Pause(Duration),
    /// Nothing, for ever.
    Stall,
    /// The connection breaks.
    Break,
}

/// What really happened to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was served whole.
    Served,
    /// It went over limits. Not counted.
    OverLimit {
        /// The limits.
        dimensions: Vec<Dimension>,
        /// What the reply lets one know.
        told: Cause,
    },
    /// It was refused for another reason.
    Refused(Cause),
    /// It met a fault.
    Faulted(Fault),
    /// There is no such path.
    NoSuchPath,
}

impl Outcome {
    /// What a classifier should make of the reply; `None` when there is no reply, or only half of one.
    #[must_use]
    pub const fn told(&self) -> Option<Cause> {
        match self {
            Self::OverLimit { told, .. } => Some(*told),
            Self::Refused(cause) => Some(*cause),
            Self::Faulted(Fault::Overloaded | Fault::ErrorMidway) => Some(Cause::Overloaded),
            Self::Faulted(Fault::Internal | Fault::Html | Fault::ErrorFirst) => {
                Some(Cause::ServerError)
            }
            Self::Faulted(Fault::Deadline) => Some(Cause::Deadline),
            Self::Faulted(Fault::Spurious429) => Some(Cause::UnspecifiedQuota),
            Self::Faulted(_) | Self::Served | Self::NoSuchPath => None,
        }
    }
}

impl HttpReply {
    /// A reply with a whole body.
    #[must_use]
    pub fn whole(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, headers: headers(content_type), body: vec![Piece::Bytes(body.into())] }
    }

    /// Takes off the headers that are Google's alone.
    pub(crate) fn without_googles_headers(&mut self) {
        for name in [header::SERVER, header::VARY, header::X_CONTENT_TYPE_OPTIONS] {
            self.headers.remove(name);
        }
    }

    /// All bytes of the body, as far as it goes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in &self.body {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::Pause(_) => {}
                Piece::Stall | Piece::Break => break,
            }
        }
        out
    }

    /// Cuts the body into pieces of 1 to 7 bytes.
    pub(crate) fn split(&mut self, rng: &mut fastrand::Rng) {
        let mut out = Vec::new();
        for piece in std::mem::take(&mut self.body) {
            let Piece::Bytes(mut bytes) = piece else {
                out.push(piece);
                continue;
            };
            while !bytes.is_empty() {
                let len = rng.usize(1..=7).min(bytes.len());
                out.push(Piece::Bytes(bytes.split_to(len)));
            }
        }
        self.body = out;
    }
}

/// Without the body, which may repeat a key.
impl fmt::Debug for HttpReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpReply").field("status", &self.status).finish_non_exhaustive()
    }
}

pub(crate) const JSON: &str = "application/json; charset=UTF-8";
pub(crate) const HTML: &str = "text/html; charset=UTF-8";
pub(crate) const SSE: &str = "text/event-stream";

/// The headers that Google's replies have; no `Retry-After`, no `x-ratelimit-*` (corpus case 068).
fn headers(content_type: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::SERVER, HeaderValue::from_static("ESF"));
    headers.insert(header::VARY, HeaderValue::from_static("Origin, X-Origin, Referer"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
}
