//! The transport over HTTPS. This file and those below it are the only ones that name hyper's client.

mod clients;
mod connector;
mod pieces;

use std::{error::Error, io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{
    FutureExt as _, StreamExt as _, TryStreamExt as _, future::BoxFuture, stream::BoxStream,
};
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{self, CONTENT_LENGTH, PROXY_AUTHORIZATION},
    uri::{Authority, Scheme},
};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tokio::time::timeout;

use self::{
    clients::Clients,
    connector::{Connector, from_env, on_the_way, proxy_to, refused},
    pieces::Pieces,
};
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

/// Sends each request exactly once over HTTP/1.1, with TLS by rustls and the system's roots.
///
/// - A connection carries one request at a time, so one that is stuck, or that its server ends, concerns no other.
/// - Redirects are not followed: a 3xx is handed back as the reply it is. Followed, it would take the key
///   along to another host.
/// - Nothing is retried, except that a request which a reused connection had not taken yet is put on a new
///   one: it was never sent.
/// - A body in a file is read piece by piece while it is sent, with its length said before.
/// - Answers come as they are on the wire; no compression is asked for.
/// - `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` are respected, in capitals or not, but never for
///   loopback addresses: a gateway or simulator on this machine is not behind a proxy. A proxy's URL begins with
///   `http`, `https`, `socks5` or `socks4` (or `socks5h` or `socks4a`, which are the same here), and may hold a user
///   name and a password, but for `socks4`. Names are looked up by the proxy. Errors on the way through a proxy name
///   it by host and port.
///
/// Needs a tokio runtime with time and I/O enabled. Each runtime that sends through it, or through a clone of it, has
/// connections of its own, so one may end while others go on.
#[derive(Debug, Clone)]
pub struct HttpTransport {
    clients: Arc<Clients>,
    proxies: Arc<Matcher>,
    first_byte: Duration,
    idle: Duration,
}

impl HttpTransport {
    /// A transport with these time limits.
    ///
    /// # Errors
    /// TLS cannot be set up: the system has no root certificates, say. Or the environment names a proxy that cannot be
    /// used, in which case the variable is named.
    pub fn new(timeouts: &Timeouts) -> Result<Self, TransportError> {
        Self::through(from_env()?, timeouts)
    }

    fn through(proxies: Matcher, timeouts: &Timeouts) -> Result<Self, TransportError> {
        let proxies = Arc::new(proxies);
        let connector =
            Connector::new(timeouts.connect, Arc::clone(&proxies)).map_err(|error| {
                let message = format!("TLS cannot be set up: {error}");
                TransportError::new(TransportKind::Request, Sent::No, message).with_source(error)
            })?;
        let clients = Arc::new(Clients::new(connector));
        Ok(Self { clients, proxies, first_byte: timeouts.first_byte, idle: timeouts.idle })
    }

    /// How long the head of the reply may take after a body of `size` bytes.
    fn head_limit(&self, size: u64) -> Duration {
        self.first_byte.saturating_add(Duration::from_secs(size / SLOWEST_UPLOAD))
    }

    /// The proxy that is handed a request to `uri` whole, and so may answer it itself. A tunnel is asked for with the
    /// credentials; what goes through it is none of the proxy's business.
    fn forwarder(&self, uri: &Uri) -> Option<Intercept> {
        let proxy = (uri.scheme() == Some(&Scheme::HTTP)).then(|| proxy_to(uri, &self.proxies))?;
        proxy.filter(|proxy| matches!(proxy.uri().scheme_str(), Some("http" | "https")))
    }

    /// As hyper sends it, and the proxy that is handed it whole.
    fn request(
        &self,
        request: WireRequest,
    ) -> Result<(Request<Outgoing>, Option<Intercept>), TransportError> {
        let WireRequest { method, url, mut headers, body } = request;
        let uri = usable(url).ok_or_else(|| {
            TransportError::new(TransportKind::Request, Sent::No, "the URL cannot be used")
        })?;
        headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
        let forwarder = self.forwarder(&uri);
        if let Some(credentials) = forwarder.as_ref().and_then(Intercept::basic_auth) {
            headers.entry(PROXY_AUTHORIZATION).or_insert_with(|| credentials.clone());
        }
        let body = match body.bytes() {
            Some(bytes) => {
                // Some servers answer 411 to a request that could have a body and does not say that it has none: RFC
                // 9110, section 8.6.
                if bytes.is_empty() && matches!(method, Method::POST | Method::PUT | Method::PATCH)
                {
                    headers.insert(CONTENT_LENGTH, 0.into());
                }
                Either::Left(Full::new(bytes.clone()))
            }
            None => {
                // Else it would go out chunked, which not every route of the provider takes.
                headers.insert(CONTENT_LENGTH, body.len().into());
                Either::Right(StreamBody::new(body.into_stream().map_ok(Frame::data).boxed()))
            }
        };
        let mut out = Request::new(body);
        *out.method_mut() = method;
        *out.uri_mut() = uri;
        *out.headers_mut() = headers;
        Ok((out, forwarder))
    }
}

impl Transport for HttpTransport {
    fn send(
        &self,
        request: WireRequest,
    ) -> BoxFuture<'static, Result<WireResponse, TransportError>> {
        let limit = self.head_limit(request.body.len());
        let idle = self.idle;
        let (request, forwarder) = match self.request(request) {
            Ok(ready) => ready,
            Err(fault) => return futures_util::future::err(fault).boxed(),
        };
        let reply = self.clients.request(request);
        async move {
            let (head, body) = match timeout(limit, reply).await {
                Ok(Ok(reply)) => reply.into_parts(),
                Ok(Err(error)) => {
                    let connecting = error.is_connect();
                    return Err(failure(error, connecting));
                }
                Err(_) => return Err(timed_out("no reply", limit)),
            };
            if let Some(proxy) = forwarder.filter(|_| head.status == REFUSED_BY_PROXY) {
                let error = on_the_way(&proxy, &*refused(head.status));
                return Err(failure(error, true));
            }
            let body = Pieces::new(body, idle).boxed();
            Ok(WireResponse { status: head.status.as_u16(), headers: head.headers, body })
        }
        .boxed()
    }
}

/// What no origin server answers: RFC 9110, section 15.5.8.
const REFUSED_BY_PROXY: StatusCode = StatusCode::PROXY_AUTHENTICATION_REQUIRED;

/// In memory, or read from a file while it is sent.
type Outgoing = Either<Full<Bytes>, StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>;

/// `url` if a request can go there: `http` or `https`, a host, perhaps a port, and no user name.
fn usable(url: String) -> Option<Uri> {
    let uri = Uri::try_from(url).ok()?;
    let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    (has_scheme && is_exact(uri.authority()?)).then_some(uri)
}

/// Whether `authority` leads where it says: to a host, perhaps at a port, and without a user name.
fn is_exact(authority: &Authority) -> bool {
    let (place, host) = (authority.as_str(), authority.host());
    // A port that is no number would be passed over in silence, and the scheme's own taken.
    let has_port = place.len() == host.len() || authority.port().is_some();
    !host.is_empty() && !place.contains('@') && has_port
}

fn timed_out(what: &str, limit: Duration) -> TransportError {
    let message = format!("{what} came within {limit:?}");
    TransportError::new(TransportKind::Timeout, Sent::Maybe, message)
}

/// What an error means for us. None of hyper's holds the URL, which would end up in logs and replies.
fn failure(error: impl Error + Send + Sync + 'static, connecting: bool) -> TransportError {
    let late = |e: &io::Error| e.kind() == io::ErrorKind::TimedOut;
    let not_http = |e: &hyper::Error| e.is_parse() || e.is_parse_status();
    let is_late = causes(&error).filter_map(|e| e.downcast_ref()).any(late);
    let (kind, sent, what) = if connecting && is_late {
        (TransportKind::Connect, Sent::No, "no connection in time")
    } else if connecting {
        (TransportKind::Connect, Sent::No, "no connection")
    } else if is_late {
        (TransportKind::Timeout, Sent::Maybe, "no reply in time")
    } else if causes(&error).filter_map(|e| e.downcast_ref()).any(not_http) {
        (TransportKind::Decode, Sent::Maybe, "the reply is not HTTP")
    } else {
        (TransportKind::Interrupted, Sent::Maybe, "the connection broke")
    };
    let message = format!("{what}: {}", causes(&error).last().unwrap_or(&error));
    TransportError::new(kind, sent, message).with_source(error)
}

/// `error` and what lies below it, the root last.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests;
