//! The proxies that the environment names. One that nobody can speak to is an error: passed over, its requests would go
//! where they were not meant to.

use std::ffi::OsString;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

use crate::{Sent, TransportError, TransportKind, http::is_exact};

/// The proxies of `HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY`, but for what `NO_PROXY` excepts, in capitals or not.
///
/// # Errors
/// One of them cannot be used. Its variable is named, and nothing of what it holds.
pub(in crate::http) fn from_env() -> Result<Matcher, TransportError> {
    named(|name| std::env::var_os(name))
}

fn named(read: impl Fn(&str) -> Option<OsString>) -> Result<Matcher, TransportError> {
    // A CGI script finds its client's header `Proxy` in HTTP_PROXY: https://httpoxy.org
    if read("REQUEST_METHOD").is_some() {
        return Ok(Matcher::builder().build());
    }
    let set = |names: [&'static str; 2]| {
        let found = names.into_iter().find_map(|name| Some((name, read(name)?)));
        let (name, value) = found.unwrap_or_default();
        let value = value.into_string().map_err(|_| unusable(name, "it is not UTF-8"))?;
        Ok::<_, TransportError>((name, value))
    };
    let proxy = |names| {
        let (name, value) = set(names)?;
        if !value.is_empty() {
            usable(&value).map_err(|fault| unusable(name, fault))?;
        }
        Ok::<_, TransportError>(value)
    };
    let http = proxy(["HTTP_PROXY", "http_proxy"])?;
    let https = proxy(["HTTPS_PROXY", "https_proxy"])?;
    // Desktops set it to what few programs can read, beside the others, which go before.
    let is_asked_for = http.is_empty() || https.is_empty();
    let all = if is_asked_for { proxy(["ALL_PROXY", "all_proxy"])? } else { String::new() };
    let (_, excepted) = set(["NO_PROXY", "no_proxy"])?;
    Ok(Matcher::builder().http(http).https(https).all(all).no(excepted).build())
}

fn unusable(name: &str, fault: &str) -> TransportError {
    let message = format!("{name} cannot be used: {fault}");
    TransportError::new(TransportKind::Request, Sent::No, message)
}

/// Whether `value` is the URL of a proxy that can be spoken to, at the place that it names.
fn usable(value: &str) -> Result<(), &'static str> {
    const UNREADABLE: &str = "it is no URL of a host and a port; in a user name or a password, all but letters and digits \
                              has to be percent-encoded";
    value.parse::<Uri>().map_err(|_| UNREADABLE)?;
    let proxy = Matcher::builder().all(value).build();
    let proxy = proxy
        .intercept(&Uri::from_static("http://provider.invalid"))
        .ok_or("a proxy's URL begins with http, https, socks5 or socks4")?;
    let at = proxy.uri().authority().ok_or(UNREADABLE)?;
    // A password with `@`, `/` or `#` in it is cut there, and what is behind the cut taken for the host, or the user for it.
    let meant = value.split_once("://").map_or(value, |(_, rest)| rest);
    let meant = meant.rsplit_once('@').map_or(meant, |(_, rest)| rest);
    if !is_exact(at) || !meant.starts_with(at.as_str()) {
        return Err(UNREADABLE);
    }
    if proxy.raw_auth().is_some()
        && proxy.uri().scheme_str().is_some_and(|s| s.starts_with("socks4"))
    {
        return Err("socks4 takes no user name; socks5 does");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program finds where `variables` are set.
    fn among(variables: &[(&str, &str)]) -> Result<Matcher, TransportError> {
        named(|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).into())
        })
    }

    fn proxy_of(proxies: &Matcher, url: &'static str) -> Option<String> {
        proxies.intercept(&Uri::from_static(url)).map(|proxy| proxy.uri().to_string())
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named_by_its_variable_and_no_secret_is_told() {
        let (scheme, unreadable, socks4) = ("begins with", "is no URL", "socks4 takes no");
        for (value, why) in [
            ("ftp://hidden:secret@host:21", scheme),
            ("socks://hidden:secret@host:1080", scheme),
            ("socks6://hidden:secret@host", scheme),
            ("secret:hidden://host", unreadable),
            ("http://hidden:sec ret@host", unreadable),
            ("http://hidden:sec@ret@host:80", unreadable),
            ("http://hidden:sec/ret@host:80", unreadable),
            ("http://hidden:1/secret@host:80", unreadable),
            ("http://hidden:1#secret@host:80", unreadable),
            ("http://hidden:secret@host:99999", unreadable),
            ("http://hidden:secret@host:secret", unreadable),
            ("http://hidden:secret@", unreadable),
            ("http://", unreadable),
            ("http://:3128", unreadable),
            (" ", unreadable),
            ("socks4://hidden@host", socks4),
            ("socks4a://hidden:secret@host", socks4),
        ] {
            for name in
                ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
            {
                let error = among(&[(name, value)]).expect_err(value);
                assert_eq!((error.kind, error.sent), (TransportKind::Request, Sent::No));
                let text = error.to_string();
                assert!(text.starts_with(&format!("{name} cannot be used: ")), "{value}: {text}");
                assert!(text.contains(why), "{value}: {text}");
                let told = format!("{text} {error:?}");
                for secret in ["hidden", "secret", "sec@", "@host", "ret@"] {
                    assert!(!told.contains(secret), "{told}");
                }
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_no_text_is_an_error_and_not_no_variable() {
        use std::os::unix::ffi::OsStringExt as _;
        for name in [
            "HTTPS_PROXY",
            "https_proxy",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
            "all_proxy",
            "NO_PROXY",
            "no_proxy",
        ] {
            let value = OsString::from_vec(b"http://hidden:secret\xff@host:1".to_vec());
            let error = named(|asked| (asked == name).then(|| value.clone())).expect_err(name);
            assert_eq!((error.kind, error.sent), (TransportKind::Request, Sent::No));
            assert_eq!(error.to_string(), format!("{name} cannot be used: it is not UTF-8"));
            let told = format!("{error:?}");
            assert!(!["hidden", "secret", "host"].iter().any(|part| told.contains(part)), "{told}");
        }
    }

    #[test]
    fn every_scheme_that_is_spoken_can_be_named_with_what_it_takes() {
        for (value, expected) in [
            ("http://me:sec%40ret@host:3128", "http://host:3128/"),
            ("https://me@host", "https://host/"),
            ("HTTP://host/path", "http://host/"),
            ("host:3128", "http://host:3128/"),
            ("me:secret@host:3128", "http://host:3128/"),
            ("http://[::1]:3128", "http://[::1]:3128/"),
            ("socks5://me:secret@host:1080", "socks5://host:1080/"),
            ("socks5h://host", "socks5h://host/"),
            ("socks4://host", "socks4://host/"),
            ("socks4a://host", "socks4a://host/"),
        ] {
            let proxies = among(&[("ALL_PROXY", value)]).expect(value);
            let seen = proxy_of(&proxies, "https://provider.invalid");
            assert_eq!(seen.as_deref(), Some(expected), "{value}");
        }
    }

    #[test]
    fn variables_go_before_each_other_as_curl_s_do() {
        let proxies = among(&[
            ("HTTPS_PROXY", "http://first"),
            ("https_proxy", "ftp://second"),
            ("http_proxy", "http://third"),
            // Is never asked for.
            ("all_proxy", "socks://fourth"),
            ("no_proxy", "excepted.invalid"),
        ])
        .unwrap();
        let of = |url| proxy_of(&proxies, url);
        assert_eq!(of("https://provider.invalid").as_deref(), Some("http://first/"));
        assert_eq!(of("http://provider.invalid").as_deref(), Some("http://third/"));
        assert_eq!(of("https://excepted.invalid"), None);

        let proxies = among(&[("HTTPS_PROXY", ""), ("ALL_PROXY", "http://all")]).unwrap();
        assert_eq!(proxy_of(&proxies, "https://provider.invalid").as_deref(), Some("http://all/"));
        let proxies = among(&[("HTTPS_PROXY", "")]).unwrap();
        assert_eq!(proxy_of(&proxies, "https://provider.invalid"), None);
    }

    #[test]
    fn a_cgi_script_s_client_names_no_proxy() {
        let proxies = among(&[("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "http://evil")]).unwrap();
        assert_eq!(proxy_of(&proxies, "http://provider.invalid"), None);
    }
}
