//! The transport over HTTPS. The only file that names reqwest and hyper.

use std::{error::Error as _, net::IpAddr, time::Duration};

use bytes::Bytes;
use futures_util::{
    FutureExt as _, Stream, StreamExt as _, TryStreamExt as _, future::BoxFuture, stream,
};
use http::header::CONTENT_LENGTH;
use reqwest::{Client, ClientBuilder, Request, Url, redirect};
use tokio::time::timeout;

use crate::{Sent, Transport, TransportError, TransportKind, WireRequest, WireResponse};

const USER_AGENT: &str = concat!("keywheel/", env!("CARGO_PKG_VERSION"));

/// The slowest upload that is still waited for, in bytes a second.
const SLOWEST_UPLOAD: u64 = 64 * 1024;

/// How long each part of an attempt may take. The total is the caller's business: drop the future.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For name, connection and TLS. Defaults to 10 s.
    pub connect: Duration,
    /// From sending to the head of the reply. Defaults to 90 s, since models think for tens of seconds
    /// before they say anything. A large body gets more: a second for each 64 KiB.
    pub first_byte: Duration,
    /// Between two pieces of the body. Defaults to 90 s, since models also think in the middle.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(90),
            idle: Duration::from_secs(90),
        }
    }
}

/// Sends each request exactly once over HTTP/1.1 or HTTP/2, with TLS by rustls and the system's roots.
///
/// - Redirects are not followed: a 3xx is handed back as the reply it is. Followed, it would take the key
///   along to another host.
/// - Nothing is retried, except that a request which a reused connection had not taken yet is put on a new
///   one: it was never sent.
/// - A body in a file is read piece by piece while it is sent, with its length said before.
/// - Answers come as they are on the wire; no compression is asked for.
/// - `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` are respected, but never for loopback
///   addresses: a gateway or simulator on this machine is not behind a proxy.
///
/// Needs a tokio runtime with time and I/O enabled.
#[derive(Debug, Clone)]
pub struct HttpTransport {
    client: Client,
    /// Without a proxy.
    direct: Client,
    first_byte: Duration,
    idle: Duration,
}

impl HttpTransport {
    /// A transport with these time limits.
    ///
    /// # Errors
    /// TLS cannot be set up: the system has no root certificates, say.
    pub fn new(timeouts: &Timeouts) -> Result<Self, TransportError> {
        Ok(Self {
            client: builder(timeouts).build().map_err(failure)?,
            direct: builder(timeouts).no_proxy().build().map_err(failure)?,
            first_byte: timeouts.first_byte,
            idle: timeouts.idle,
        })
    }

    /// How long the head of the reply may take after a body of `size` bytes.
    fn head_limit(&self, size: u64) -> Duration {
        self.first_byte.saturating_add(Duration::from_secs(size / SLOWEST_UPLOAD))
    }

    fn request(&self, request: WireRequest) -> Result<(&Client, Request), TransportError> {
        let url = Url::parse(&request.url).map_err(|_| {
            TransportError::new(TransportKind::Request, Sent::No, "the URL cannot be used")
        })?;
        let client = if is_loopback(&url) { &self.direct } else { &self.client };
        let mut out = Request::new(request.method, url);
        *out.headers_mut() = request.headers;
        if let Some(bytes) = request.body.bytes() {
            if !bytes.is_empty() {
                *out.body_mut() = Some(bytes.clone().into());
            }
        } else {
            // Else it would go out chunked, which not every route of the provider takes.
            out.headers_mut().insert(CONTENT_LENGTH, request.body.len().into());
            *out.body_mut() = Some(reqwest::Body::wrap_stream(request.body.into_stream()));
        }
        Ok((client, out))
    }
}

impl Transport for HttpTransport {
    fn send(
        &self,
        request: WireRequest,
    ) -> BoxFuture<'static, Result<WireResponse, TransportError>> {
        let limit = self.head_limit(request.body.len());
        let idle = self.idle;
        let (client, request) = match self.request(request) {
            Ok((client, request)) => (client.clone(), request),
            Err(fault) => return futures_util::future::err(fault).boxed(),
        };
        async move {
            let mut response = match timeout(limit, client.execute(request)).await {
                Ok(reply) => reply.map_err(failure)?,
                Err(_) => return Err(timed_out("no reply", limit)),
            };
            let status = response.status().as_u16();
            let headers = std::mem::take(response.headers_mut());
            let body = response.bytes_stream().map_err(failure);
            Ok(WireResponse { status, headers, body: within(idle, body).boxed() })
        }
        .boxed()
    }
}

fn builder(timeouts: &Timeouts) -> ClientBuilder {
    Client::builder()
        .user_agent(USER_AGENT)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(timeouts.connect)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// `body`, ended by an error when the next piece takes longer than `idle`. The time runs only while
/// somebody waits for the piece, so a slow reader does no harm.
fn within(
    idle: Duration,
    body: impl Stream<Item = Result<Bytes, TransportError>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, TransportError>> + Send + 'static {
    stream::unfold(Some(body.boxed()), move |body| async move {
        let mut body = body?;
        match timeout(idle, body.next()).await {
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some(body))),
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Ok(None) => None,
            Err(_) => Some((Err(timed_out("nothing more of the reply", idle)), None)),
        }
    })
}

fn timed_out(what: &str, limit: Duration) -> TransportError {
    let message = format!("{what} came within {limit:?}");
    TransportError::new(TransportKind::Timeout, Sent::Maybe, message)
}

/// What a reqwest error means for us. Its URL is left out: it would end up in logs and replies.
fn failure(error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    let not_http = |e: &hyper::Error| e.is_parse() || e.is_parse_status();
    let (kind, sent, what) = if error.is_builder() {
        (TransportKind::Request, Sent::No, "the request cannot be sent")
    } else if error.is_connect() && error.is_timeout() {
        (TransportKind::Connect, Sent::No, "no connection in time")
    } else if error.is_connect() {
        (TransportKind::Connect, Sent::No, "no connection")
    } else if error.is_timeout() {
        (TransportKind::Timeout, Sent::Maybe, "no reply in time")
    } else if sources(&error).filter_map(|e| e.downcast_ref()).any(not_http) {
        (TransportKind::Decode, Sent::Maybe, "the reply is not HTTP")
    } else {
        (TransportKind::Interrupted, Sent::Maybe, "the connection broke")
    };
    let message = match sources(&error).last() {
        Some(root) => format!("{what}: {root}"),
        None => what.to_owned(),
    };
    TransportError::new(kind, sent, message).with_source(error)
}

fn sources(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}

#[cfg(test)]
mod tests;
