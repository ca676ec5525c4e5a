//! Where requests go, and how one is built: base URL, version, path, and the one header with the key.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, FutureExt as _};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use keywheel_core::ApiKey;
use serde::Serialize;

use crate::{
    Dialect, Sent, Transport, TransportError, TransportKind, WireRequest, WireResponse,
    api::GenerateRequest,
};

/// Google's own address.
pub const GOOGLE: &str = "https://generativelanguage.googleapis.com";

/// The API version in a path unless another is set: the one that knows every model and alias.
pub const DEFAULT_VERSION: &str = "v1beta";

/// The variables that say where the API is, the first that is set wins.
pub const BASE_URL_VARIABLES: [&str; 2] = ["GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"];

const GOOGLE_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// Where requests go. Cheap to clone.
///
/// Sends each request once, with exactly one credential: Google answers 400 to two.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Without a slash at its end. Holds neither user name, query nor fragment.
    base: String,
    /// `None`: what the base URL ends in, else the default. Empty: no version at all.
    version: Option<String>,
    dialect: Dialect,
    transport: Arc<dyn Transport>,
}

impl Upstream {
    /// Google itself.
    #[must_use]
    pub fn google(transport: Arc<dyn Transport>) -> Self {
        Self { base: GOOGLE.to_owned(), version: None, dialect: Dialect::Gemini, transport }
    }

    /// Whatever answers at `base_url`: a gateway, a simulator, another provider.
    ///
    /// A path prefix is kept, a slash at the end is not. A base URL that already ends in a version
    /// (`…/v1beta`) is understood: the version is not doubled. Plain `http` sends the key in the clear, so
    /// it belongs on loopback and private networks.
    ///
    /// # Errors
    /// It is no absolute `http` or `https` URL, or it holds a user name, a query or a fragment.
    pub fn new(base_url: &str, transport: Arc<dyn Transport>) -> Result<Self, BadUpstream> {
        Ok(Self { base: parse_base(base_url)?, ..Self::google(transport) })
    }

    /// Sets the API version. Defaults to what the base URL ends in, else to [`DEFAULT_VERSION`]. An empty
    /// one leaves it out.
    ///
    /// # Errors
    /// It is no single path segment of letters, digits, dots and dashes.
    pub fn with_version(mut self, version: impl Into<String>) -> Result<Self, BadUpstream> {
        let version = version.into();
        let safe = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
        if version.starts_with('.') || !version.bytes().all(safe) {
            return Err(BadUpstream::Version);
        }
        self.version = Some(version);
        Ok(self)
    }

    /// Sets what is spoken. Defaults to Gemini's own API. OpenAI's has the version in its base URL and the
    /// key as a Bearer token.
    #[must_use]
    pub const fn with_dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// The base URL that the environment names, if any. `lookup` reads one variable.
    ///
    /// An empty variable counts as not set.
    pub fn base_url_from(lookup: impl Fn(&str) -> Option<String>) -> Option<String> {
        BASE_URL_VARIABLES
            .into_iter()
            .filter_map(lookup)
            .map(|value| value.trim().to_owned())
            .find(|value| !value.is_empty())
    }

    /// The base URL, without a slash at its end.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.base
    }

    /// What is spoken.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Sends `call` once with `key`. The future holds no borrow.
    ///
    /// # Errors
    /// No reply came. [`TransportKind::Request`] means that `call` is at fault and nothing was sent.
    ///
    /// # Cancel safety
    /// Dropping the future, or the reply with its body, ends the request. It may have been received,
    /// counted and charged all the same.
    pub fn call(
        &self,
        key: &ApiKey,
        call: &Call,
    ) -> BoxFuture<'static, Result<WireResponse, TransportError>> {
        match self.request(key, call) {
            Ok(request) => self.transport.send(request),
            Err(fault) => future::err(fault.into()).boxed(),
        }
    }

    /// The request that [`call`](Self::call) sends.
    ///
    /// Credentials, cookies and hop-by-hop headers among the call's own headers are left out.
    ///
    /// # Errors
    /// The call's path or query could lead elsewhere, or carries a credential.
    pub fn request(&self, key: &ApiKey, call: &Call) -> Result<WireRequest, CallError> {
        let url = self.url(call)?;
        if url.contains(key.expose()) {
            return Err(CallError::Credential);
        }
        let mut headers = call.headers.clone();
        for name in NEVER_FORWARDED {
            headers.remove(name);
        }
        if !call.body.is_empty() && !headers.contains_key(CONTENT_TYPE) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let (name, value) = if self.wants_bearer(call) {
            (AUTHORIZATION, HeaderValue::try_from(format!("Bearer {}", key.expose())))
        } else {
            (GOOGLE_KEY, HeaderValue::from_str(key.expose()))
        };
        let mut value = value.expect("an ApiKey is printable ASCII, which every header may hold");
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(WireRequest { method: call.method.clone(), url, headers, body: call.body.clone() })
    }

    /// The URL that `call` goes to.
    ///
    /// # Errors
    /// The call's path or query could lead elsewhere, or carries a credential.
    pub fn url(&self, call: &Call) -> Result<String, CallError> {
        check_path(&call.path)?;
        let (root, version) = self.root_and_version();
        let mut url = root.to_owned();
        if !call.path.starts_with('/') {
            if !version.is_empty() {
                url.push('/');
                url.push_str(version);
            }
            url.push('/');
        }
        url.push_str(&call.path);
        let mut separator = '?';
        for (name, value) in &call.query {
            if is_credential(name) {
                return Err(CallError::Credential);
            }
            url.push(separator);
            push_encoded(&mut url, name);
            url.push('=');
            push_encoded(&mut url, value);
            separator = '&';
        }
        Ok(url)
    }

    /// Google's native routes refuse Bearer, its OpenAI-compatible ones want it.
    fn wants_bearer(&self, call: &Call) -> bool {
        self.dialect == Dialect::OpenAi || call.path.split('/').any(|segment| segment == "openai")
    }

    fn root_and_version(&self) -> (&str, &str) {
        if self.dialect == Dialect::OpenAi {
            return (&self.base, self.version.as_deref().unwrap_or_default());
        }
        let (root, in_base) = match self.base.rsplit_once('/') {
            Some((root, last)) if is_version(last) => (root, Some(last)),
            _ => (self.base.as_str(), None),
        };
        (root, self.version.as_deref().or(in_base).unwrap_or(DEFAULT_VERSION))
    }
}

/// One call of the API: everything but the key and the place.
#[derive(Clone, Default)]
pub struct Call {
    /// The method. Defaults to GET.
    pub method: Method,
    /// The path after the version, as in `models/x:generateContent`. One that begins with a slash goes to
    /// the base URL without a version, as in `/upload/v1beta/files`.
    pub path: String,
    /// The query, not yet encoded. Credentials are refused.
    pub query: Vec<(String, String)>,
    /// Headers of the caller's own.
    pub headers: HeaderMap,
    /// The body. JSON unless a header says otherwise.
    pub body: Bytes,
}

impl Call {
    /// A GET of `path`.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// A POST of `body` to `path`.
    #[must_use]
    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, path: path.into(), body: body.into(), ..Self::default() }
    }

    /// `generateContent`: one whole answer.
    ///
    /// # Errors
    /// `model` is no model's name.
    pub fn generate(model: &str, request: &GenerateRequest) -> Result<Self, CallError> {
        Ok(Self::post(format!("{}:generateContent", model_path(model)?), json(request)?))
    }

    /// `streamGenerateContent` as server-sent events.
    ///
    /// # Errors
    /// `model` is no model's name.
    pub fn stream(model: &str, request: &GenerateRequest) -> Result<Self, CallError> {
        let path = format!("{}:streamGenerateContent", model_path(model)?);
        Ok(Self::post(path, json(request)?).with_query("alt", "sse"))
    }

    /// The list of models: the free way to see whether a key works.
    #[must_use]
    pub fn models() -> Self {
        Self::get("models")
    }

    /// What is known of one model.
    ///
    /// # Errors
    /// `model` is no model's name.
    pub fn model(model: &str) -> Result<Self, CallError> {
        Ok(Self::get(model_path(model)?))
    }

    /// Adds a field to the query.
    #[must_use]
    pub fn with_query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }
}

impl fmt::Debug for Call {
    /// Leaves out the query, the headers and the body: any of them may hold what nobody wants logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// A setting of [`Upstream`] is at fault. Never repeats the value, which may hold a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadUpstream {
    /// The base URL cannot be used.
    #[error("the base URL {0}")]
    BaseUrl(&'static str),
    /// The API version cannot be used.
    #[error("the API version is no plain path segment such as v1beta")]
    Version,
}

/// A [`Call`] is at fault; nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// A model's name with characters that no model's name has.
    #[error("{0:?} is no model name: letters, digits, dots, dashes and underscores")]
    Model(String),
    /// A path with characters or segments that could lead elsewhere.
    #[error("the path {0:?} has a segment that is empty, made of dots or has unsafe characters")]
    Path(String),
    /// A credential in the query. The key goes into a header, where no log shows it.
    #[error("the query or path carries a credential; the key is sent in a header only")]
    Credential,
    /// The request has no JSON form.
    #[error("the request has no JSON form: {0}")]
    Body(String),
}

impl From<CallError> for TransportError {
    fn from(fault: CallError) -> Self {
        Self::new(TransportKind::Request, Sent::No, fault.to_string())
    }
}

/// Headers that a call cannot set: other credentials, and what belongs to the connection.
const NEVER_FORWARDED: [&str; 16] = [
    "x-goog-api-key",
    "authorization",
    "x-goog-user-project",
    "x-goog-iam-authorization-token",
    "proxy-authorization",
    "cookie",
    "x-http-method-override",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
];

fn parse_base(text: &str) -> Result<String, BadUpstream> {
    let text = text.trim();
    if text.contains('#') {
        return Err(BadUpstream::BaseUrl("has a fragment"));
    }
    let uri: Uri = text.parse().map_err(|_| BadUpstream::BaseUrl("is no URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(BadUpstream::BaseUrl("does not begin with http:// or https://"));
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(BadUpstream::BaseUrl("has a user name or password"));
    }
    if uri.query().is_some() {
        return Err(BadUpstream::BaseUrl("has a query"));
    }
    let path = uri.path().trim_end_matches('/');
    if !path.is_empty() && check_path(path).is_err() {
        return Err(BadUpstream::BaseUrl("has a path with unsafe characters"));
    }
    Ok(format!("{}://{authority}{path}", uri.scheme_str().unwrap_or("https")))
}

/// `x` and `models/x` are the same model; tuned ones keep their collection.
fn model_path(model: &str) -> Result<String, CallError> {
    let (collection, name) = match model.split_once('/') {
        None => ("models", model),
        Some((collection @ ("models" | "tunedModels"), name)) => (collection, name),
        Some(_) => return Err(CallError::Model(shorten(model))),
    };
    let safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if name.is_empty() || name.starts_with('.') || name.len() > 200 || !name.bytes().all(safe) {
        return Err(CallError::Model(shorten(model)));
    }
    Ok(format!("{collection}/{name}"))
}

/// Refuses whatever a URL parser or a proxy on the way could read differently: dot segments, `%`, `\`, `@`.
fn check_path(path: &str) -> Result<(), CallError> {
    let safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b':');
    let plain = |segment: &str| {
        !segment.is_empty() && !segment.bytes().all(|b| b == b'.') && segment.bytes().all(safe)
    };
    if path.strip_prefix('/').unwrap_or(path).split('/').all(plain) {
        return Ok(());
    }
    Err(CallError::Path(shorten(path)))
}

/// `v1`, `v1beta`, `v1alpha`, `v2beta1`: but not `v1-proxy` or `vault`.
fn is_version(segment: &str) -> bool {
    let mut bytes = segment.bytes();
    bytes.next() == Some(b'v')
        && bytes.next().is_some_and(|b| b.is_ascii_digit())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// Google reads system parameters with and without a dollar sign.
fn is_credential(name: &str) -> bool {
    let name = name.trim().trim_start_matches('$').to_ascii_lowercase();
    matches!(
        name.as_str(),
        "key" | "api_key" | "apikey" | "access_token" | "oauth_token" | "bearer_token"
    )
}

fn push_encoded(url: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
}

fn json<T: Serialize>(request: &T) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(request).map_err(|e| CallError::Body(e.to_string()))
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests;
