//! How a connection comes about: directly or through a proxy, with TLS where the URL says so.

mod named;
mod proxy;

use std::{
    error::Error,
    fmt::Display,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use http::{Uri, uri::Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{Connected, Connection, HttpConnector},
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use rustls::{ClientConfig, crypto::CryptoProvider};
use tokio::{net::TcpStream, time::timeout};
use tower_service::Service;

use self::proxy::{place, socks, tunnel, with_port};
pub(super) use self::{
    named::from_env,
    proxy::{proxy_to, refused},
};
use super::causes;

/// Between the probes that tell a dead connection from a silent one, and before the first of them.
const PROBE: Duration = Duration::from_secs(15);

/// After so many probes without an answer a connection is dead.
const PROBES: u32 = 3;

/// What was sent has to be acknowledged by the other side's system within this time.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

type BoxError = Box<dyn Error + Send + Sync>;

/// A connection to the destination or to a proxy; TLS is with the proxy, if at all.
type Link = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Makes connections for hyper's client. It clones this for each request, so a clone is one count.
#[derive(Clone)]
pub(super) struct Connector(Arc<Inner>);

struct Inner {
    https: HttpsConnector<Route>,
    proxies: Arc<Matcher>,
    limit: Duration,
}

impl Connector {
    /// With `limit` for name, connection, proxy and TLS together.
    ///
    /// # Errors
    /// The system's root certificates cannot be read, or there are none.
    pub(super) fn new(limit: Duration, proxies: Arc<Matcher>) -> Result<Self, rustls::Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Shared between the addresses of a name, so that a dead one leaves time for the next.
        tcp.set_connect_timeout(Some(limit));
        tcp.set_keepalive(Some(PROBE));
        tcp.set_keepalive_interval(Some(PROBE));
        tcp.set_keepalive_retries(Some(PROBES));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));

        // An app that has chosen a provider for its process means this connection, too.
        let crypto = CryptoProvider::get_default()
            .cloned()
            .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let mut tls = ClientConfig::builder_with_provider(crypto)
            .with_safe_default_protocol_versions()?
            .try_with_platform_verifier()?
            .with_no_client_auth();
        let proxy_tls = Arc::new(tls.clone());
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let route = Route { tcp, proxy_tls, proxies: Arc::clone(&proxies) };
        Ok(Self(Arc::new(Inner { https: HttpsConnector::from((route, tls)), proxies, limit })))
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<Way>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Nothing that this is made of has to wait before it is called.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let inner = Arc::clone(&self.0);
        async move {
            let error = match timeout(inner.limit, inner.https.clone().call(to.clone())).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => error,
                Err(_) => io::Error::from(io::ErrorKind::TimedOut).into(),
            };
            let Some(proxy) = proxy_to(&to, &inner.proxies) else { return Err(error) };
            Err(on_the_way(&proxy, &*error).into())
        }
        .boxed()
    }
}

/// Leads to the destination, or to the proxy that does; TLS with the destination comes on top.
#[derive(Clone)]
struct Route {
    tcp: HttpConnector,
    /// For a proxy that is spoken to over TLS.
    proxy_tls: Arc<ClientConfig>,
    proxies: Arc<Matcher>,
}

impl Route {
    async fn go(mut self, to: Uri) -> Result<Way, BoxError> {
        let Some(proxy) = proxy_to(&to, &self.proxies) else {
            return Ok(Way::to_the_end(Link::Http(self.tcp.call(to).await?)));
        };
        let at = with_port(proxy.uri())?;
        let link = self.link(at).await.map_err(|error| explained("it is not reached", &*error))?;
        if !matches!(proxy.uri().scheme_str(), Some("http" | "https")) {
            return Ok(Way::to_the_end(socks(link, &proxy, &to).await?));
        }
        if to.scheme() == Some(&Scheme::HTTP) {
            return Ok(Way { stream: link, absolute: true });
        }
        Ok(Way::to_the_end(tunnel(link, &to, proxy.basic_auth()).await?))
    }

    /// A connection to the proxy `at`.
    async fn link(mut self, at: Uri) -> Result<Link, BoxError> {
        if at.scheme() == Some(&Scheme::HTTPS) {
            return HttpsConnector::from((self.tcp, self.proxy_tls)).call(at).await;
        }
        Ok(Link::Http(self.tcp.call(at).await?))
    }
}

impl Service<Uri> for Route {
    type Response = Way;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Way, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        self.clone().go(to).boxed()
    }
}

/// What happened on the way through `proxy`: whoever reads it shall look there before the provider.
pub(super) fn on_the_way(proxy: &Intercept, error: &(dyn Error + 'static)) -> io::Error {
    explained(format_args!("through the proxy {}", place(proxy.uri())), error)
}

/// The root of `error`, with `what` before it. It still tells whether the time was up.
fn explained(what: impl Display, error: &(dyn Error + 'static)) -> io::Error {
    let root = causes(error).last().unwrap_or(error);
    let kind = root.downcast_ref().map_or(io::ErrorKind::Other, io::Error::kind);
    io::Error::new(kind, format!("{what}: {root}"))
}

/// What bytes go over, before TLS with the destination.
pub(super) struct Way {
    stream: Link,
    /// It ends at a proxy that has to be told the whole URL.
    absolute: bool,
}

impl Way {
    fn to_the_end(stream: Link) -> Self {
        Self { stream, absolute: false }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut Link> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Connection for Way {
    /// Without the stream's addresses, which would be put into each reply.
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.absolute)
    }
}

impl Read for Way {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, into)
    }
}

impl Write for Way {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, slices)
    }
}
