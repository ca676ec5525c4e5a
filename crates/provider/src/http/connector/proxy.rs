//! Which proxy lies on the way, and how each kind of them is asked to lead on.

use std::{
    future::{Ready, ready},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode, Uri,
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

/// Whether `uri` leads to this machine however its host is written. What only a name server knows to lead here does not
/// count: `NO_PROXY` can name it.
fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    if let Some(v6) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return v6.parse().is_ok_and(|address: Ipv6Addr| is_here(address.to_canonical()));
    }
    if let Some(v4) = v4(host) {
        return is_here(v4.into());
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Connections to 0.0.0.0, which servers say they listen at, lead to loopback as well, where they lead anywhere.
fn is_here(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified()
}

/// `host` as systems read addresses (`inet_aton`): one to four numbers, each decimal, octal behind `0` or hexadecimal behind
/// `0x`, the last of them for all bytes that are left.
fn v4(host: &str) -> Option<Ipv4Addr> {
    let numbers = host.split('.').map(number).collect::<Option<Vec<u32>>>()?;
    let (&last, first) = numbers.split_last()?;
    let left = 32_u32.checked_sub(8 * u32::try_from(first.len()).ok()?).filter(|bits| *bits > 0)?;
    let mut high = 0;
    for byte in first {
        high = high << 8 | u64::from(u8::try_from(*byte).ok()?);
    }
    let is_room = u64::from(last) >> left == 0;
    u32::try_from(high << left | u64::from(last)).ok().filter(|_| is_room).map(Ipv4Addr::from_bits)
}

fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // It would take a sign, too.
    if digits.starts_with('+') { None } else { u32::from_str_radix(digits, radix).ok() }
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
        return Err(refused(reply.status()));
    }
    // In TLS we speak first, so nothing of it was read with the answer.
    let tunnel = upgrade::on(reply).await?.downcast::<Link>();
    Ok(tunnel.map_err(|_| "the tunnel is lost")?.io)
}

/// What is told of a proxy that leads nowhere: nothing of its answer but the status, since it may repeat the credentials.
pub(in crate::http) fn refused(status: StatusCode) -> BoxError {
    format!("it answered {status}").into()
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
    use std::net::ToSocketAddrs as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn loopback_addresses_are_known_however_they_are_written() {
        for host in [
            "127.0.0.1",
            "127.9.9.9",
            "127.1",
            "127.0.1",
            "127.65536",
            "2130706433",
            "0x7f000001",
            "0X7F.1",
            "0177.0.0.01",
            "0.0.0.0",
            "0",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "sim.localhost",
            "sim.localhost.",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f01:203]",
        ] {
            let uri = format!("http://{host}:8787/p").parse().unwrap();
            assert!(is_loopback(&uri), "{host}");
        }
        for host in [
            "localhost.example",
            "notlocalhost",
            "localhost..",
            "10.0.0.1",
            "127.0.0.1.example",
            "127.0.0.1.1",
            "127.0.0.256",
            "127.0.65536",
            "127.256.0.1",
            "127.0.0.08",
            "127.0.0.+1",
            "127.0.0.1.",
            "127.",
            "127.0x",
            "127..1",
            "4294967296",
            "2130706432127",
            "0127.0.0.1",
            "128.0.0.1",
            "[::2]",
            "[::127.0.0.1]",
            "[::ffff:10.0.0.1]",
            "generativelanguage.googleapis.com",
        ] {
            let uri = format!("http://{host}:8787/p").parse().unwrap();
            assert!(!is_loopback(&uri), "{host}");
        }
    }

    proptest! {
        /// An address is read as the system reads it: what is taken for this machine is nowhere else.
        #[test]
        fn an_address_is_read_as_the_system_reads_it(
            address in prop_oneof![Just(0x7f00_0001_u32), 0x7f00_0000..0x8000_0000_u32, any::<u32>()],
            numbers in 1..=4_u32,
            radixes in prop::array::uniform4(0..3_u8),
        ) {
            let left = 8 * (4 - numbers);
            let first = (0..numbers - 1).map(|n| address >> (24 - 8 * n) & 0xff);
            let last = u64::from(address) & ((1 << (8 + left)) - 1);
            let parts: Vec<String> = first.map(u64::from).chain([last]).zip(radixes)
                .map(|(part, radix)| match radix {
                    0 => format!("{part}"),
                    1 => format!("0{part:o}"),
                    _ => format!("0x{part:x}"),
                })
                .collect();
            let host = parts.join(".");
            let system = (&*host, 80).to_socket_addrs().unwrap().next().unwrap().ip();
            prop_assert_eq!(v4(&host).map(IpAddr::from), Some(system));
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
