//! Who asks: from a request's head and its sender to a project.

use std::{borrow::Cow, fmt, net::SocketAddr, sync::Arc};

use http::{HeaderMap, HeaderName, Uri, header, request::Parts};

use crate::{
    project::{Project, Projects},
    refusal::{Reason, Refusal},
    route::{self, Route},
    token::TokenHash,
};

pub(crate) const PROJECT: HeaderName = HeaderName::from_static("x-keywheel-project");
const GOOGLE_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// What proxies add to what they hand on.
const FORWARDED: [&str; 6] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "cf-connecting-ip", "via"];

/// Whom the gateway serves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// Whether a token has to be shown. If not, only this machine is served.
    pub(crate) tokens: bool,
    /// Origins of web pages that may ask (`[cors] origins`), besides the gateway's own.
    pub(crate) origins: Vec<String>,
    /// Names besides those of the loopback by which the gateway may be called when no tokens are asked for.
    pub(crate) hosts: Vec<String>,
}

/// Who asks.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) project: Arc<Project>,
    /// The one credential of the request, if it shows one.
    pub(crate) credential: Option<Credential>,
}

/// What a client showed. No log repeats it.
pub(crate) struct Credential(String);

impl Credential {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(…)")
    }
}

/// Which project asks: by its token and by the project it names in a header, or in the path that `route` tells of.
///
/// # Errors
/// No project: no token, an unknown one, two that differ, or another's project. None of the refusals holds a token, and
/// what is not the token's own is told as what does not exist.
pub(crate) fn identify(
    head: &Parts,
    peer: SocketAddr,
    route: &Route,
    projects: &Projects,
    access: &Access,
) -> Result<Asker, Refusal> {
    let named = named(&head.headers, route)?;
    if !access.tokens {
        is_local(head, peer, access)?;
        let project = match named {
            Some(name) => projects.named(name),
            None => projects.default(),
        };
        let project = project.cloned().ok_or_else(unknown_project)?;
        // Whatever it is, it is none of the provider's business.
        let shown = credential(head).ok().map(|shown| Credential(shown.into_owned()));
        return Ok(Asker { project, credential: shown });
    }
    let token = credential(head)?;
    let hash = TokenHash::of(&token);
    let mut own = projects.of_token(hash).peekable();
    if own.peek().is_none() {
        let told = if looks_like_googles(&token) {
            "this looks like a key of Google's; show the project's token"
        } else {
            "the token is not one of this gateway's"
        };
        return Err(Refusal::new(Reason::UnknownToken, told).scope("token").should_retry(false));
    }
    let project = match named {
        Some(name) => own.find(|project| project.name.as_str() == name),
        None => own.next(),
    };
    let project = project.cloned().ok_or_else(unknown_project)?;
    Ok(Asker { project, credential: Some(Credential(token.into_owned())) })
}

/// The one credential of a request.
///
/// Some clients show theirs in two places, which is harmless as long as it is the same.
fn credential(head: &Parts) -> Result<Cow<'_, str>, Refusal> {
    let mut shown = Vec::new();
    for value in head.headers.get_all(GOOGLE_KEY) {
        shown.push(Cow::Borrowed(text(value.as_bytes())?));
    }
    for value in head.headers.get_all(header::AUTHORIZATION) {
        let value = text(value.as_bytes())?;
        let bearer =
            value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, token)) = bearer else {
            return Err(Refusal::new(
                Reason::UnknownToken,
                "the authorization header must be `Bearer` and the token",
            )
            .scope("token")
            .should_retry(false));
        };
        shown.push(Cow::Borrowed(token.trim()));
    }
    shown.extend(route::credentials(head.uri.query().unwrap_or_default()));
    shown.retain(|token| !token.is_empty());
    let Some(first) = shown.pop() else {
        return Err(Refusal::new(
            Reason::NoToken,
            "show the project's token in the header x-goog-api-key, in the parameter key, or as a Bearer token",
        )
        .scope("token")
        .should_retry(false));
    };
    // By hash: comparing texts would take longer the more of them is alike.
    if shown.iter().any(|other| TokenHash::of(other) != TokenHash::of(&first)) {
        return Err(Refusal::new(
            Reason::TwoCredentials,
            "the request shows two different credentials; which one is it?",
        )
        .scope("token")
        .should_retry(false));
    }
    Ok(first)
}

/// Whoever moves an app behind the gateway forgets to change this first.
fn looks_like_googles(token: &str) -> bool {
    token.starts_with("AIza") || token.starts_with("AQ.")
}

fn text(bytes: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(bytes).map(str::trim).map_err(|_| {
        Refusal::new(Reason::UnknownToken, "the credential is no text")
            .scope("token")
            .should_retry(false)
    })
}

/// The project that the request names, if it names one.
fn named<'a>(headers: &'a HeaderMap, route: &'a Route) -> Result<Option<&'a str>, Refusal> {
    let mut named = route.project.as_deref();
    for value in headers.get_all(PROJECT) {
        let name = value.to_str().map_err(|_| unknown_project())?.trim();
        if named.is_some_and(|other| other != name) {
            return Err(Refusal::new(Reason::UnknownProject, "the request names two projects")
                .should_retry(false));
        }
        named = Some(name);
    }
    Ok(named)
}

/// The same for one that does not exist and for one that is not the token's.
fn unknown_project() -> Refusal {
    Refusal::new(Reason::UnknownProject, "there is no such project").should_retry(false)
}

/// Refuses all but programs of this machine.
///
/// A page in a browser of this machine is none: it would be one by name, if a foreign name were made to mean this
/// machine (DNS rebinding), so both the name that is asked for and the page's own origin are looked at.
fn is_local(head: &Parts, peer: SocketAddr, access: &Access) -> Result<(), Refusal> {
    let not_local =
        |what: &str| Err(Refusal::new(Reason::NotLocal, what).scope("gateway").should_retry(false));
    if !peer.ip().to_canonical().is_loopback() {
        return not_local("without tokens the gateway serves its own machine only");
    }
    // A proxy of this machine asks for somebody else. Tunnels and most proxies say so.
    if FORWARDED.iter().any(|name| head.headers.contains_key(*name)) {
        return not_local("this came through a proxy: without tokens only this machine is served");
    }
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let host = match (head.uri.authority(), hosts.next()) {
        (Some(authority), _) => Some(authority.as_str()),
        (None, Some(host)) => host.to_str().ok(),
        (None, None) => None,
    };
    let Some(host) = host.filter(|_| hosts.next().is_none()) else {
        return not_local("one Host header is needed");
    };
    let name = host_name(host);
    let is_known = name.is_some_and(|name| {
        is_loopback_name(&name) || access.hosts.iter().any(|own| own.eq_ignore_ascii_case(&name))
    });
    if !is_known {
        return not_local("the gateway is not known by this name");
    }
    for origin in head.headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let is_own = origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host));
        let is_let = access.origins.iter().any(|own| own == "*" || own == origin);
        if !is_own && !is_let {
            return Err(Refusal::new(
                Reason::ForeignOrigin,
                "pages of other sites may not ask, unless [cors] names them",
            )
            .scope("gateway")
            .should_retry(false));
        }
    }
    Ok(())
}

/// `host` without its port. `None` if it is none.
fn host_name(host: &str) -> Option<String> {
    let uri: Uri = format!("http://{host}/").parse().ok()?;
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    Some(name.trim_end_matches('.').to_ascii_lowercase())
}

fn is_loopback_name(name: &str) -> bool {
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests;
