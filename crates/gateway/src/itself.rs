//! A gateway that is its own upstream asks itself, and that again, until nothing is left to ask with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use http::Uri;
use tokio::net::lookup_host;

/// Whether `base_url` leads to `listens`, the address that this gateway listens on. A name that nobody knows leads
/// nowhere, and neither does what is no URL.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub(crate) async fn leads_here(base_url: &str, listens: SocketAddr) -> bool {
    let Ok(url) = base_url.trim().parse::<Uri>() else { return false };
    let Some(host) = url.host() else { return false };
    let usual = if url.scheme_str() == Some("https") { 443 } else { 80 };
    // Before a name is looked up, which can take long.
    if url.port_u16().unwrap_or(usual) != listens.port() {
        return false;
    }
    let found = lookup_host((host.trim_matches(['[', ']']), listens.port())).await;
    found.is_ok_and(|mut found| found.any(|place| is_taken_by(listens.ip(), place.ip())))
}

/// Whether what is sent to `target` comes to who listens on `listens`.
fn is_taken_by(listens: IpAddr, target: IpAddr) -> bool {
    let (listens, target) = (listens.to_canonical(), target.to_canonical());
    if target.is_unspecified() {
        return listens.is_unspecified() || listens.is_loopback();
    }
    match listens.is_unspecified() {
        true => target.is_loopback() || is_of_this_machine(target),
        false => target == listens,
    }
}

/// What is sent to an address of one's own comes from that address. Nothing is sent to find out.
fn is_of_this_machine(target: IpAddr) -> bool {
    let any: IpAddr = match target {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let own = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((target, 9))?;
        socket.local_addr()
    });
    own.is_ok_and(|own| own.ip() == target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_upstream_is_this_gateway_by_whichever_name_it_is_called() {
        let here = [
            ("http://127.0.0.1:8787", "127.0.0.1:8787"),
            ("http://localhost:8787/v1beta/", "127.0.0.1:8787"),
            ("http://0.0.0.0:8787", "127.0.0.1:8787"),
            ("http://[::ffff:127.0.0.1]:8787", "127.0.0.1:8787"),
            ("https://127.0.0.1", "127.0.0.1:443"),
            (" http://127.0.0.1 ", "127.0.0.1:80"),
            ("http://127.0.0.1:8787", "0.0.0.0:8787"),
            ("http://127.0.0.1:8787", "[::]:8787"),
            ("http://[::1]:8787", "[::1]:8787"),
            ("http://10.0.0.5:8787", "10.0.0.5:8787"),
        ];
        for (base_url, listens) in here {
            let leads = leads_here(base_url, listens.parse().unwrap()).await;
            assert!(leads, "{base_url} does not lead to {listens}");
        }
    }

    #[tokio::test]
    async fn another_port_or_another_machine_is_another_upstream() {
        let elsewhere = [
            ("http://127.0.0.1:8788", "127.0.0.1:8787"),
            ("http://127.0.0.2:8787", "127.0.0.1:8787"),
            ("https://generativelanguage.googleapis.com", "0.0.0.0:8787"),
            // Set aside for documentation: of no machine.
            ("http://192.0.2.1:8787", "0.0.0.0:8787"),
            ("http://192.0.2.1:8787", "[::]:8787"),
            ("http://nobody.invalid:8787", "0.0.0.0:8787"),
            ("no URL", "127.0.0.1:80"),
        ];
        for (base_url, listens) in elsewhere {
            let leads = leads_here(base_url, listens.parse().unwrap()).await;
            assert!(!leads, "{base_url} leads to {listens}");
        }
    }
}
