//! Which proxy lies on the way, and how each kind of them is asked to lead on.

use std::{
    future::{Ready, ready},
    net::Ipv6Addr,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Uri,
    header::{HOST, PROXY_AUTHORIZATION, USER_AGENT},
};
use http_body_util::Empty;
use hyper::{client::conn::http1, upgrade};
use hyper_util::client::{
    legacy::connect::proxy::{SocksV4, SocksV5},
    proxy::matcher::{Intercept, Matcher},
};
use tower_service::Service;

use super::{BoxError, Link};

/// The proxy on the way to `to`, if there is one.
///
/// Never for loopback addresses: a gateway or simulator on this machine is not behind a proxy.
pub(in crate::http) fn proxy_to(to: &Uri, proxies: &Matcher) -> Option<Intercept> {
    if is_loopback(to) { None } else { proxies.intercept(to) }
}

fn is_loopback(uri: &Uri) -> bool {
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

/// Host and port of `uri`, never with a user name or a password.
pub(super) fn place(uri: &Uri) -> String {
    let port = uri.port_u16().unwrap_or_else(|| match uri.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => SOCKS,
    });
    format!("{}:{port}", uri.host().unwrap_or_default())
}

/// Where SOCKS proxies listen unless something else is said (RFC 1928, section 3).
const SOCKS: u16 = 1080;

/// `uri` with its port said: hyper takes a missing one of a SOCKS proxy for 80, and one behind it for 443.
pub(super) fn with_port(uri: &Uri) -> Result<Uri, http::Error> {
    let scheme = uri.scheme_str().unwrap_or_default();
    Uri::builder().scheme(scheme).authority(place(uri)).path_and_query("/").build()
}

/// Asks the proxy at the other end of `link` for a tunnel to `to`. The error says what it answered.
pub(super) async fn tunnel(
    link: Link,
    to: &Uri,
    credentials: Option<&HeaderValue>,
) -> Result<Link, BoxError> {
    let place = place(to);
    let mut request = Request::connect(&place)
        .header(HOST, &place)
        .header(USER_AGENT, crate::http::USER_AGENT)
        .body(Empty::<Bytes>::new())?;
    if let Some(credentials) = credentials {
        request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
    }
    let (mut proxy, connection) = http1::handshake(link).await?;
    // It ends when the proxy has answered, or when nobody waits for that any more.
    tokio::spawn(connection.with_upgrades());
    let reply = proxy.send_request(request).await?;
    if !reply.status().is_success() {
        return Err(format!("it answered {}", reply.status()).into());
    }
    let tunnel = upgrade::on(reply).await?.downcast::<Link>();
    Ok(tunnel.map_err(|_| "the tunnel is lost")?.io)
}

/// Asks the SOCKS proxy at the other end of `link` for a way to `to`.
///
/// Under either name of a version the proxy looks names up: it may be the only one that can.
pub(super) async fn socks(link: Link, proxy: &Intercept, to: &Uri) -> Result<Link, BoxError> {
    let (at, made, to) = (proxy.uri().clone(), Made(Some(link)), with_port(to)?);
    if matches!(at.scheme_str(), Some("socks4" | "socks4a")) {
        return Ok(SocksV4::new(at, made).call(to).await?);
    }
    let mut socks = SocksV5::new(at, made);
    if let Some((user, password)) = proxy.raw_auth() {
        socks = socks.with_auth(user.to_owned(), password.to_owned());
    }
    Ok(socks.call(to).await?)
}

/// The connection to a proxy, made before: hyper's SOCKS would make it itself, and keep to itself why it could not.
struct Made(Option<Link>);

impl Service<Uri> for Made {
    type Response = Link;
    type Error = &'static str;
    type Future = Ready<Result<Link, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().ok_or("it is used already"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_known() {
        for (url, expected) in [
            ("http://127.0.0.1:1/", true),
            ("http://127.9.9.9/", true),
            ("http://127.1/", true),
            ("http://localhost:8787/p", true),
            ("http://LOCALHOST/", true),
            ("http://sim.localhost/", true),
            ("http://[::1]:1/", true),
            ("http://localhost.example/", false),
            ("http://10.0.0.1/", false),
            ("http://127.0.0.1.example/", false),
            ("http://[::2]/", false),
            ("https://generativelanguage.googleapis.com/", false),
        ] {
            assert_eq!(is_loopback(&Uri::from_static(url)), expected, "{url}");
        }
    }

    #[test]
    fn a_place_is_host_and_port_alone() {
        for (url, expected) in [
            ("http://me:secret@proxy:3128", "proxy:3128"),
            ("http://me:sec@ret@proxy/", "proxy:80"),
            ("https://[::1]/secret", "[::1]:443"),
            ("socks5h://me@proxy/", "proxy:1080"),
        ] {
            let url = Uri::from_static(url);
            assert_eq!(place(&url), expected);
            assert_eq!(with_port(&url).unwrap().authority().unwrap(), expected);
        }
    }
}
