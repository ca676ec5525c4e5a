//! Which headers are handed on, in both directions.

use std::{collections::HashSet, time::Duration};

#[cfg(test)]
use http::HeaderName;
use http::{HeaderMap, HeaderValue, header};

/// What belongs to one connection, or says how long a message is, and so is written anew for the next.
const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// What a client must not say to the provider: credentials, and what would act in somebody else's name or as another
/// method.
const NEVER_UPSTREAM: [&str; 14] = [
    "authorization",
    "proxy-authorization",
    "x-goog-api-key",
    // What OpenAI's clients show at other providers.
    "api-key",
    "x-api-key",
    "x-goog-user-project",
    "x-goog-iam-authorization-token",
    "x-goog-iam-authority-selector",
    "cookie",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "expect",
    "origin",
];

/// Where the client is, which is nobody's business at the provider.
const TRACES: [&str; 7] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-real-ip",
    "referer",
];

/// What the provider says to the gateway alone.
const NEVER_TO_CLIENT: [&str; 4] = ["set-cookie", "alt-svc", "www-authenticate", "x-goog-api-key"];

const OURS: &str = "x-keywheel-";

/// What of a client's headers goes upstream: everything but credentials, cookies, what belongs to the connection, and
/// our own. The credential is put in by whoever sends.
pub(crate) fn to_upstream(headers: &HeaderMap) -> HeaderMap {
    let mut out = kept(headers, &[&HOP_BY_HOP, &NEVER_UPSTREAM, &TRACES]);
    // What comes back is read on the way, which we can do with these two.
    let encoding = if accepts_gzip(headers) { "gzip" } else { "identity" };
    out.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    out
}

/// Takes out what repeats the `token` that the client showed, by itself or behind a scheme, whatever it is called.
pub(crate) fn forget(token: &str, headers: &mut HeaderMap) {
    let token = token.as_bytes();
    let repeats = |value: &HeaderValue| {
        let value = value.as_bytes().trim_ascii();
        value
            .strip_suffix(token)
            .is_some_and(|before| before.last().is_none_or(|last| *last == b' '))
    };
    let telling: Vec<_> =
        headers.iter().filter(|(_, value)| repeats(value)).map(|(name, _)| name.clone()).collect();
    for name in telling {
        headers.remove(name);
    }
}

/// What of the provider's headers goes to a client: everything but what belongs to the connection, cookies, and what is
/// called as ours are.
pub(crate) fn to_client(headers: &HeaderMap) -> HeaderMap {
    kept(headers, &[&HOP_BY_HOP, &NEVER_TO_CLIENT])
}

fn kept(headers: &HeaderMap, left_out: &[&[&str]]) -> HeaderMap {
    let named = named_by_connection(headers);
    // Which pages may ask is between a browser and the gateway.
    let mut out = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let is_out = left_out.iter().any(|names| names.contains(&name.as_str()));
        let is_out = is_out || name.as_str().starts_with("access-control-");
        if !is_out && !name.as_str().starts_with(OURS) && !named.contains(name.as_str()) {
            out.append(name, value.clone());
        }
    }
    out
}

/// What `Connection` says is for this connection only.
fn named_by_connection(headers: &HeaderMap) -> HashSet<String> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// True if the client takes gzip: it names it, or everything, with a weight that is not 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let words = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut any = None;
    for word in words {
        let (name, weight) = word.split_once(';').unwrap_or((word, ""));
        let weight = weight.trim().to_ascii_lowercase();
        let weight = weight.strip_prefix("q=").unwrap_or("1").trim().parse::<f32>();
        let wanted = weight.is_ok_and(|weight| weight > 0.0);
        match name.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => return wanted,
            "*" => any = Some(wanted),
            _ => {}
        }
    }
    any.unwrap_or(false)
}

/// How long the client waits for an answer, if it says so, as Google's own clients do: `ceil` of their time limit, in
/// seconds (google-genai for Python 3.6, `_api_client.py`; for JavaScript 3.3).
pub(crate) fn patience(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("x-server-timeout")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The names that are never handed on to the provider, for tests and documents.
#[cfg(test)]
fn never_upstream() -> impl Iterator<Item = HeaderName> {
    let names = [&HOP_BY_HOP[..], &NEVER_UPSTREAM, &TRACES].concat();
    names.into_iter().map(HeaderName::from_static)
}

#[cfg(test)]
mod tests;
