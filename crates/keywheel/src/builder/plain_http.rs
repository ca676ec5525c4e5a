//! Who could read a key on its way.

use std::net::IpAddr;

use http::Uri;

/// Names that lead nowhere outside: of this machine, of one network, or of nobody
/// (<https://www.iana.org/assignments/special-use-domain-names>).
const NOT_PUBLIC: [&str; 7] =
    ["localhost", "local", "internal", "home.arpa", "invalid", "test", "example"];

/// The host of `base_url` if keys are sent to it by plain `http` over the internet. `None` for `https`, for this machine,
/// and for what can only be in its own network: private addresses, `.local`, `.internal`, names without a dot.
pub(super) fn public_host(base_url: &str) -> Option<String> {
    let url: Uri = base_url.parse().ok()?;
    if url.scheme_str() != Some("http") {
        return None;
    }
    let host = url.host()?.trim_end_matches('.').to_ascii_lowercase();
    let is_public = match host.trim_matches(['[', ']']).parse() {
        Ok(address) => !is_near(address),
        Err(_) => host.contains('.') && !NOT_PUBLIC.iter().any(|zone| is_in(&host, zone)),
    };
    is_public.then_some(host)
}

fn is_in(host: &str, zone: &str) -> bool {
    host.strip_suffix(zone).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            // 100.64.0.0/10 is what carriers, and overlays such as Tailscale, use inside.
            let shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_unspecified()
                || shared
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.is_unspecified()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_over_the_internet_is_in_the_clear() {
        for (url, host) in [
            ("http://gateway.example.com/v1", Some("gateway.example.com")),
            ("http://GATEWAY.Example.COM.:8080", Some("gateway.example.com")),
            ("http://8.8.8.8", Some("8.8.8.8")),
            ("http://172.32.0.1", Some("172.32.0.1")),
            ("http://[2001:db8::1]:80/", Some("[2001:db8::1]")),
            ("http://notlocal", None),
            ("http://not-a-local.host", Some("not-a-local.host")),
            ("http://mylocal.dev", Some("mylocal.dev")),
            ("https://gateway.example.com", None),
            ("http://localhost:8080", None),
            ("http://api.localhost", None),
            ("http://127.0.0.1:1", None),
            ("http://[::1]:8080", None),
            ("http://[::ffff:127.0.0.1]", None),
            ("http://10.1.2.3", None),
            ("http://192.168.1.5", None),
            ("http://172.31.0.1", None),
            ("http://169.254.1.1", None),
            ("http://100.100.1.1", None),
            ("http://[fd00::1]", None),
            ("http://printer.local", None),
            ("http://gateway.prod.internal", None),
            ("http://gateway", None),
        ] {
            assert_eq!(public_host(url).as_deref(), host, "{url}");
        }
    }
}
