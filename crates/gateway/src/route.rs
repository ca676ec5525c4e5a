//! What a request asks for, told by its method and URI alone.
//!
//! Paths are matched, never joined: what goes upstream is put together anew from the parts that were understood, each of
//! letters, digits and `- . _ ~ :`. So whatever a client sends can neither reach another host nor leave the API's
//! version, and two parsers on the way have nothing to disagree about.

mod kind;
mod method;
mod path;
mod query;

use std::fmt;

use http::{Method, Uri, Version as HttpVersion, header, request::Parts};

pub(crate) use self::kind::Kind;
pub(crate) use self::query::credentials;
use crate::{
    project::Unbounded,
    refusal::{Reason, Refusal},
};

/// What is spoken: by a client on one of its routes, or by the upstream on all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dialect {
    /// Gemini's own API.
    #[default]
    Native,
    /// OpenAI's, at Google under `/v1beta/openai/`.
    OpenAi,
}

/// A version of the API that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Version {
    V1,
    V1Beta,
    V1Alpha,
}

impl Version {
    const ALL: [Self; 3] = [Self::V1, Self::V1Beta, Self::V1Alpha];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta => "v1beta",
            Self::V1Alpha => "v1alpha",
        }
    }

    fn named(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == segment)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) struct Route {
    /// What the client speaks, and so in which form it is refused.
    pub(crate) dialect: Dialect,
    /// The project that the path names (`/p/triage/…`).
    pub(crate) project: Option<String>,
    /// The version that the path names.
    pub(crate) version: Option<Version>,
    /// It is under `/upload/`.
    pub(crate) is_upload: bool,
    /// It is under `/download/`.
    pub(crate) is_download: bool,
    /// What it does.
    pub(crate) kind: Kind,
    /// The method.
    pub(crate) method: Method,
    /// The model that the path names: `gemini-3.6-flash`, `tunedModels/x`.
    pub(crate) model: Option<String>,
    /// What is asked for behind the colon: `generateContent`.
    pub(crate) verb: Option<String>,
    /// The resource that it is about, where it belongs to somebody: `files/x`, `batches/y`.
    pub(crate) resource: Option<String>,
    /// The path below the version, in the upstream's dialect: `models/x:generateContent`, `openai/chat/completions`.
    pub(crate) path: String,
    /// The query, decoded, without credentials.
    pub(crate) query: Vec<(String, String)>,
}

/// What the request that is headed by `head` asks for, where the upstream speaks `upstream`.
///
/// # Errors
/// See [`parse`]. In HTTP/2 every address is absolute: there the host is left to the check of `Host`.
pub(crate) fn of(head: &Parts, upstream: Dialect) -> Result<Route, Refusal> {
    let here = || address(head).unwrap_or_else(|| HERE.to_owned());
    if head.version < HttpVersion::HTTP_2 {
        return at(&head.method, &head.uri, upstream, here);
    }
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri = path.parse().map_err(|_| bad("the path is none"))?;
    at(&head.method, &uri, upstream, here)
}

/// What the gateway is called to clients that do not say how they call it.
const HERE: &str = "http://127.0.0.1:8787";

/// How the client calls the gateway, as `https://gateway.example`.
pub(crate) fn address(head: &Parts) -> Option<String> {
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = head.uri.authority().map(http::uri::Authority::as_str).or(host)?;
    // Whoever ends TLS before the gateway says so.
    let is_tls = head.headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    Some(format!("{}://{host}", if is_tls { "https" } else { "http" }))
}

/// What `method` of `uri` asks for, where the upstream speaks `upstream`. Pure.
///
/// The gateway's own pages (`/healthz`, `/metrics`) are none of its routes.
///
/// # Errors
/// [`Reason::BadPath`] for a path or a query that another program on the way could read otherwise, whatever it asks for;
/// [`Reason::UnknownRoute`] for one that is no route; [`Reason::WrongMethod`] for a route that has not this method.
pub(crate) fn parse(method: &Method, uri: &Uri, upstream: Dialect) -> Result<Route, Refusal> {
    at(method, uri, upstream, || HERE.to_owned())
}

/// The same for a gateway that the client calls what `here` says.
fn at(
    method: &Method,
    uri: &Uri,
    upstream: Dialect,
    here: impl FnOnce() -> String,
) -> Result<Route, Refusal> {
    if uri.authority().is_some() || uri.scheme().is_some() {
        return Err(bad("write the path alone: this is a gateway and no proxy"));
    }
    let segments = path::segments(uri.path())?;
    let query = query::pairs(uri.query().unwrap_or_default())?;
    let route = path::route(method, &segments, query, upstream, here)?;
    method::check(&route)?;
    Ok(route)
}

impl Route {
    /// The path for a `Call` to an upstream whose own version is `default`: without a version where it names none, or
    /// that one.
    pub(crate) fn call_path(&self, default: &str) -> String {
        let version = match self.version {
            Some(version) => version.as_str(),
            None => default,
        };
        match self.kind {
            _ if self.is_upload => format!("/upload/{version}/{}", self.path),
            _ if self.is_download => format!("/download/{version}/{}", self.path),
            Kind::Live => format!("/ws/{}", self.path),
            _ if version == default => self.path.clone(),
            _ => format!("/{version}/{}", self.path),
        }
    }

    /// Which of the routes it is whose tokens cannot be told beforehand, if it is one. `is_background`: the body says
    /// that the answer is for later.
    pub(crate) fn unbounded(&self, is_background: bool) -> Option<Unbounded> {
        // Asking for something that was begun, ending it and forgetting it cost nothing.
        let ends = self.verb.as_deref() == Some("cancel") || self.path.ends_with("/cancel");
        let begins = self.method == Method::POST && !ends;
        match self.kind {
            Kind::Live => Some(Unbounded::Other),
            Kind::Interactions if !is_background => None,
            // What is put into a store is read, and paid for by the token; an empty store costs nothing.
            Kind::FileSearch if self.verb.is_none() => None,
            Kind::Upload if self.verb.is_some() && begins && !self.goes_on() => {
                Some(Unbounded::FileSearch)
            }
            kind if begins => Unbounded::of(kind),
            _ => None,
        }
    }

    /// True if it goes on with an upload that was begun.
    fn goes_on(&self) -> bool {
        self.query.iter().any(|(name, _)| name == "upload_id")
    }

    /// True if what it is about is kept by the provider for one quota project.
    pub(crate) const fn is_stateful(&self) -> bool {
        matches!(
            self.kind,
            Kind::Files
                | Kind::Upload
                | Kind::Caches
                | Kind::Batch
                | Kind::Operations
                | Kind::Interactions
                | Kind::FileSearch
                | Kind::Video
                | Kind::AuthToken
                | Kind::Other
        )
    }
}

fn bad(what: &str) -> Refusal {
    Refusal::new(Reason::BadPath, what).should_retry(false)
}

#[cfg(test)]
mod tests;
