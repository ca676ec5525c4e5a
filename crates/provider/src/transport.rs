//! How a request reaches the network: a one-method trait, so that tests and the simulator can stand in.

use std::{fmt, pin::Pin};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, future::BoxFuture, stream};
use http::{HeaderMap, Method};

use crate::Body;

/// One HTTP request, complete: the key is already in its header, marked sensitive.
#[derive(Clone)]
pub struct WireRequest {
    /// The method.
    pub method: Method,
    /// The whole URL. Never contains a key.
    pub url: String,
    /// All headers. The one with the key is marked sensitive, so `Debug` does not print it.
    pub headers: HeaderMap,
    /// The body; cheap to clone.
    pub body: Body,
}

impl fmt::Debug for WireRequest {
    /// The body only by its length: it holds the prompt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireRequest")
            .field("method", &self.method)
            .field("url", &self.url)
            .field("headers", &self.headers)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// The pieces of a body as they arrive.
pub type BodyStream = Pin<Box<dyn Stream<Item = Result<Bytes, TransportError>> + Send>>;

/// The head of a reply, and its body still to come.
///
/// Dropping it ends the upstream request.
pub struct WireResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, piece by piece.
    pub body: BodyStream,
}

impl WireResponse {
    /// A reply whose body is already whole.
    #[must_use]
    pub fn whole(status: u16, headers: HeaderMap, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self { status, headers, body: stream::iter([Ok(body)]).boxed() }
    }

    /// Reads the body to its end, or up to `max` bytes: what comes after is dropped, not an error.
    ///
    /// # Errors
    /// The connection broke before the end.
    pub async fn bytes(mut self, max: usize) -> Result<Bytes, TransportError> {
        let mut out = Vec::new();
        while let Some(piece) = self.body.next().await {
            let piece = piece?;
            let room = max - out.len();
            out.extend_from_slice(&piece[..piece.len().min(room)]);
            if out.len() >= max {
                break;
            }
        }
        Ok(out.into())
    }
}

impl fmt::Debug for WireResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Sends one request and returns the head of the reply. Never retries, never follows a redirect.
///
/// # Cancel safety
/// Dropping the future ends the request. It may have reached the provider all the same.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends `request` once.
    fn send(
        &self,
        request: WireRequest,
    ) -> BoxFuture<'static, Result<WireResponse, TransportError>>;
}

/// Whether the provider can have seen the request: what it costs depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sent {
    /// It certainly was not sent (name, connection or TLS failed first): costs nothing.
    No,
    /// It may have been received, counted and charged.
    Maybe,
}

/// What went wrong on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportKind {
    /// No connection: name, refusal, TLS.
    Connect,
    /// Nothing came in time.
    Timeout,
    /// The connection broke while the request or the reply was under way.
    Interrupted,
    /// The request could not be built.
    Request,
    /// The reply is not HTTP.
    Decode,
}

/// A failure without an HTTP reply. Its text holds neither URL query nor key.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// What went wrong.
    pub kind: TransportKind,
    /// Whether the provider can have seen the request.
    pub sent: Sent,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl TransportError {
    /// An error of `kind`; `message` must hold no secret.
    #[must_use]
    pub fn new(kind: TransportKind, sent: Sent, message: impl Into<String>) -> Self {
        Self { kind, sent, message: message.into(), source: None }
    }

    /// The same with its cause, which must print no secret either.
    ///
    /// ```
    /// use std::{error::Error as _, io};
    /// use keywheel_provider::{Sent, TransportError, TransportKind};
    ///
    /// let error = TransportError::new(TransportKind::Connect, Sent::No, "no connection")
    ///     .with_source(io::Error::from(io::ErrorKind::ConnectionRefused));
    /// assert_eq!(error.to_string(), "no connection");
    /// assert_eq!(error.source().unwrap().to_string(), "connection refused");
    /// ```
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }
}
