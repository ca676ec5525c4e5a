//! What arrives: a request and its credential.

use std::{fmt, io};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use keywheel_provider::WireRequest;

/// One request, as the simulator sees it.
///
/// ```
/// use http::{HeaderMap, Method};
/// use keywheel_sim::SimRequest;
///
/// let target = "http://127.0.0.1:8788/v1beta/models?pageSize=50&pageToken=abc";
/// let request = SimRequest::new(Method::GET, target, HeaderMap::new(), "");
/// assert_eq!(request.path, "/v1beta/models");
/// assert_eq!(request.parameter("pageSize"), Some("50"));
/// ```
#[derive(Clone)]
pub struct SimRequest {
    /// The method.
    pub method: Method,
    /// The path, as sent.
    pub path: String,
    /// The query, as sent, without the question mark. May hold a key.
    pub query: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Scheme and host, as in `http://127.0.0.1:8788`, when the target named them.
    pub origin: Option<String>,
}

impl SimRequest {
    /// A request to `target`, which is a path with its query or a whole URL.
    ///
    /// A target that is no URL is kept as a path, and will be answered with 404.
    #[must_use]
    pub fn new(method: Method, target: &str, headers: HeaderMap, body: impl Into<Bytes>) -> Self {
        let Ok(uri) = target.parse::<Uri>() else {
            let (path, query, origin) = (target.to_owned(), String::new(), None);
            return Self { method, path, query, headers, body: body.into(), origin };
        };
        let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default().to_owned());
        let origin =
            uri.scheme().zip(uri.authority()).map(|(scheme, at)| format!("{scheme}://{at}"));
        Self { method, path, query, headers, body: body.into(), origin }
    }

    /// What arrives when `request` is sent.
    ///
    /// # Errors
    /// Its body is in a file that cannot be read.
    pub(crate) async fn sent(request: WireRequest) -> io::Result<Self> {
        let WireRequest { method, url, headers, body } = request;
        Ok(Self::new(method, &url, headers, body.collect().await?))
    }

    /// Whether the reply may be compressed.
    pub(crate) fn accepts_gzip(&self) -> bool {
        let accepted = self.header(header::ACCEPT_ENCODING.as_str()).unwrap_or_default();
        accepted
            .split(',')
            .any(|coding| coding.split(';').next().unwrap_or_default().trim() == "gzip")
    }

    /// Scheme and host of this world, as the caller sees it.
    pub(crate) fn own_origin(&self) -> String {
        if let Some(origin) = &self.origin {
            return origin.clone();
        }
        format!("http://{}", self.header(header::HOST.as_str()).unwrap_or("sim.invalid"))
    }

    /// The first value of a header, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The first value of a query parameter, as sent.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The one key that came with it.
    ///
    /// # Errors
    /// None, several, or one of a form that native routes do not take.
    pub(crate) fn credential(&self) -> Result<&str, CredentialFault> {
        let header = self.header("x-goog-api-key");
        let bearer = self.headers.contains_key(header::AUTHORIZATION);
        match (header, self.parameter("key"), bearer) {
            (Some(key), None, false) | (None, Some(key), false) if !key.is_empty() => Ok(key),
            (None | Some(""), None | Some(""), false) => Err(CredentialFault::None),
            (None, None, true) => Err(CredentialFault::Bearer),
            _ => Err(CredentialFault::Several),
        }
    }

    /// The one key that came with it to an OpenAI-style route.
    ///
    /// # Errors
    /// None where it belongs, or one elsewhere too.
    pub(crate) fn bearer(&self) -> Result<&str, CredentialFault> {
        let bearer = self.header(header::AUTHORIZATION.as_str());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
        let elsewhere = self.header("x-goog-api-key").or_else(|| self.parameter("key"));
        match (bearer, elsewhere) {
            (Some(key), None) if !key.is_empty() => Ok(key),
            (Some(_), Some(_)) => Err(CredentialFault::Several),
            _ => Err(CredentialFault::NoBearer),
        }
    }
}

/// Without query, headers and body, which may hold a key.
impl fmt::Debug for SimRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, .. } = self;
        f.debug_struct("SimRequest")
            .field("method", method)
            .field("path", path)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialFault {
    None,
    Several,
    Bearer,
    NoBearer,
}
