//! How a connection comes about: directly or through a proxy, with TLS where the URL says so.

use std::{
    io::{self, IoSlice},
    net::Ipv6Addr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use http::{
    HeaderMap, HeaderValue, Uri,
    header::USER_AGENT,
    uri::{PathAndQuery, Scheme},
};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{
            Connected, Connection, HttpConnector,
            proxy::{SocksV4, SocksV5, Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use rustls::{ClientConfig, crypto::CryptoProvider};
use tokio::{net::TcpStream, time::timeout};
use tower_service::Service;

/// Between the probes that tell a dead connection from a silent one, and before the first of them.
const PROBE: Duration = Duration::from_secs(15);

/// After so many probes without an answer a connection is dead.
const PROBES: u32 = 3;

/// What was sent has to be acknowledged by the other side's system within this time.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Makes connections for hyper's client. It clones this for each request, so a clone is one count.
#[derive(Clone)]
pub(super) struct Connector(Arc<Inner>);

struct Inner {
    https: HttpsConnector<Route>,
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
        let route = Route { tcp, proxy_tls, proxies };
        Ok(Self(Arc::new(Inner { https: HttpsConnector::from((route, tls)), limit })))
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
        let connecting = timeout(self.0.limit, self.0.https.clone().call(to));
        async move {
            connecting
                .await
                .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
        }
        .boxed()
    }
}

/// The proxy on the way to `to`, if there is one.
///
/// Never for loopback addresses: a gateway or simulator on this machine is not behind a proxy.
pub(super) fn proxy_to(to: &Uri, proxies: &Matcher) -> Option<Intercept> {
    if is_loopback(to) { None } else { proxies.intercept(to) }
}

pub(super) fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    // Not only of four numbers: systems take 127.1 for 127.0.0.1.
    let is_v4 = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if host.strip_prefix("127.").is_some_and(is_v4) {
        return true;
    }
    if let Some(v6) = host.strip_prefix('[') {
        return v6
            .trim_end_matches(']')
            .parse()
            .is_ok_and(|address: Ipv6Addr| address.is_loopback());
    }
    let name = host.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
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
            return Ok(Way::to_the_end(self.tcp.call(to).await?));
        };
        let at = proxy.uri().clone();
        match at.scheme_str() {
            // Under either name of a version the proxy looks names up: it may be the only one that can.
            Some("socks5" | "socks5h") => {
                let mut socks = SocksV5::new(at, self.tcp);
                if let Some((user, password)) = proxy.raw_auth() {
                    socks = socks.with_auth(user.to_owned(), password.to_owned());
                }
                Ok(Way::to_the_end(socks.call(with_port(to)?).await?))
            }
            Some("socks4" | "socks4a") => {
                Ok(Way::to_the_end(SocksV4::new(at, self.tcp).call(with_port(to)?).await?))
            }
            _ => {
                let mut link = HttpsConnector::from((self.tcp, self.proxy_tls));
                if to.scheme() == Some(&Scheme::HTTP) {
                    return Ok(Way { stream: link.call(at).await?, absolute: true });
                }
                let mut agent = HeaderMap::with_capacity(2);
                agent.insert(USER_AGENT, HeaderValue::from_static(super::USER_AGENT));
                let mut tunnel = Tunnel::new(at, link).with_headers(agent);
                if let Some(credentials) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(credentials.clone());
                }
                Ok(Way { stream: tunnel.call(to).await?, absolute: false })
            }
        }
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

/// `to` with its port said: hyper's SOCKS takes a missing one for 443, whatever the scheme.
fn with_port(to: Uri) -> Result<Uri, http::Error> {
    if to.port().is_some() || to.scheme() != Some(&Scheme::HTTP) {
        return Ok(to);
    }
    Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(format!("{}:80", to.host().unwrap_or_default()))
        .path_and_query(PathAndQuery::from_static("/"))
        .build()
}

/// What bytes go over, before TLS with the destination.
pub(super) struct Way {
    stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    /// It ends at a proxy that has to be told the whole URL.
    absolute: bool,
}

impl Way {
    fn to_the_end(stream: TokioIo<TcpStream>) -> Self {
        Self { stream: MaybeHttpsStream::Http(stream), absolute: false }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut MaybeHttpsStream<TokioIo<TcpStream>>> {
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
