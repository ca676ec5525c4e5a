//! What arrives: a request, its credential, and the route it asks for.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use keywheel_provider::WireRequest;

/// One request, as the simulator sees it.
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
}

impl SimRequest {
    /// A request to `target`, which is a path with its query or a whole URL.
    ///
    /// A target that is no URL is kept as a path, and will be answered with 404.
    #[must_use]
    pub fn new(method: Method, target: &str, headers: HeaderMap, body: impl Into<Bytes>) -> Self {
        let (path, query) = match target.parse::<Uri>() {
            Ok(uri) => (uri.path().to_owned(), uri.query().unwrap_or_default().to_owned()),
            Err(_) => (target.to_owned(), String::new()),
        };
        Self { method, path, query, headers, body: body.into() }
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
        let header = self.headers.get("x-goog-api-key").and_then(|value| value.to_str().ok());
        let bearer = self.headers.contains_key(header::AUTHORIZATION);
        match (header, self.parameter("key"), bearer) {
            (Some(key), None, false) | (None, Some(key), false) if !key.is_empty() => Ok(key),
            (None | Some(""), None | Some(""), false) => Err(CredentialFault::None),
            (None, None, true) => Err(CredentialFault::Bearer),
            _ => Err(CredentialFault::Several),
        }
    }

    /// What is asked for; `None` when there is no such path.
    pub(crate) fn route(&self) -> Option<Route<'_>> {
        let path = self.path.strip_prefix('/')?;
        let (version, rest) = path.split_once('/')?;
        if !matches!(version, "v1" | "v1beta" | "v1alpha") {
            return None;
        }
        if rest == "models" {
            return (self.method == Method::GET).then_some(Route::List);
        }
        let model = rest.strip_prefix("models/")?;
        let Some((model, verb)) = split_verb(model) else {
            let is_model = self.method == Method::GET && !model.contains('/');
            return is_model.then_some(Route::Model { model });
        };
        if self.method != Method::POST || model.is_empty() || model.contains('/') {
            return None;
        }
        let sse = self.parameter("alt") == Some("sse");
        let verb = match verb {
            "generateContent" => Verb::Generate,
            "streamGenerateContent" => Verb::Stream { sse },
            "countTokens" => Verb::CountTokens,
            "embedContent" => Verb::Embed,
            "batchEmbedContents" => Verb::BatchEmbed,
            _ => return None,
        };
        Some(Route::Call { version, model, verb })
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

impl From<WireRequest> for SimRequest {
    fn from(request: WireRequest) -> Self {
        Self::new(request.method, &request.url, request.headers, request.body)
    }
}

/// The verb stands behind a colon, which some clients encode.
fn split_verb(text: &str) -> Option<(&str, &str)> {
    let encoded = || text.split_once("%3A").or_else(|| text.split_once("%3a"));
    text.split_once(':').or_else(encoded)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialFault {
    None,
    Several,
    Bearer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    List,
    Model { model: &'a str },
    Call { version: &'a str, model: &'a str, verb: Verb },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Generate,
    Stream { sse: bool },
    CountTokens,
    Embed,
    BatchEmbed,
}

impl Verb {
    pub(crate) const fn embeds(self) -> bool {
        matches!(self, Self::Embed | Self::BatchEmbed)
    }

    /// A stream of JSON without `alt=sse` is one array, and so are its errors.
    pub(crate) const fn errors_in_array(self) -> bool {
        matches!(self, Self::Stream { sse: false })
    }

    /// The name in URLs and in `supportedGenerationMethods`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Generate => "generateContent",
            Self::Stream { .. } => "streamGenerateContent",
            Self::CountTokens => "countTokens",
            Self::Embed => "embedContent",
            Self::BatchEmbed => "batchEmbedContents",
        }
    }
}
