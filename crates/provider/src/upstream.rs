//! Where requests go, and how one is built: base URL, version, path, and the one header with the key.

mod address;
mod call;

use std::sync::Arc;

use futures_util::future::{self, BoxFuture, FutureExt as _};
use http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use keywheel_core::ApiKey;

use self::call::{check_path, is_credential, push_encoded};
use crate::{
    Dialect, Transport, TransportError, WireRequest, WireResponse,
    provider::{Auth, GeminiApi, OpenAiApi, Provider},
};

pub(crate) use self::call::refuse_key;
pub use self::call::{Call, CallError};

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
    provider: Arc<dyn Provider>,
    transport: Arc<dyn Transport>,
}

impl Upstream {
    /// Google itself.
    #[must_use]
    pub fn google(transport: Arc<dyn Transport>) -> Self {
        Self { base: GOOGLE.to_owned(), version: None, provider: Arc::new(GeminiApi), transport }
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

    /// Sets the API version. Defaults to what the base URL ends in, else to the provider's own
    /// ([`DEFAULT_VERSION`] for Gemini). An empty one leaves it out.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use keywheel_provider::{testing::Script, upstream::{Call, Upstream}};
    ///
    /// let google = Upstream::google(Arc::new(Script::new()));
    /// let stable = google.clone().with_version("v1")?;
    /// assert_eq!(stable.url(&Call::models()).unwrap(), format!("{}/v1/models", google.base_url()));
    /// assert!(google.with_version("v1/../v2").is_err());
    /// # Ok::<(), keywheel_provider::upstream::BadUpstream>(())
    /// ```
    ///
    /// # Errors
    /// It is no single path segment of letters, digits, dots and dashes.
    pub fn with_version(mut self, version: impl Into<String>) -> Result<Self, BadUpstream> {
        let version = version.into();
        Self::check_version(&version)?;
        self.version = Some(version);
        Ok(self)
    }

    /// Sets who is asked, and so what is spoken. Defaults to [`GeminiApi`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use keywheel_provider::{OpenAiApi, testing::Script, upstream::Upstream};
    ///
    /// let upstream = Upstream::new("https://api.groq.com/openai/v1", Arc::new(Script::new()))?
    ///     .with_provider(Arc::new(OpenAiApi::new()));
    /// let call = upstream.provider().generate("llama-3.1-8b-instant", &"Say hello".into())?;
    /// assert_eq!(upstream.url(&call)?, "https://api.groq.com/openai/v1/chat/completions");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.provider = provider;
        self
    }

    /// The same for a provider with nothing to set: Gemini's own API, or an OpenAI-compatible one as
    /// [`OpenAiApi::new`] makes it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use keywheel_provider::{Dialect, testing::Script, upstream::Upstream};
    ///
    /// let upstream = Upstream::new("http://127.0.0.1:11434/v1", Arc::new(Script::new()))?;
    /// assert_eq!(upstream.with_dialect(Dialect::OpenAi).provider().name(), "openai");
    /// # Ok::<(), keywheel_provider::upstream::BadUpstream>(())
    /// ```
    #[must_use]
    pub fn with_dialect(self, dialect: Dialect) -> Self {
        match dialect {
            Dialect::Gemini => self.with_provider(Arc::new(GeminiApi)),
            Dialect::OpenAi => self.with_provider(Arc::new(OpenAiApi::new())),
        }
    }

    /// Whether `base_url` can be used, without anything to send with.
    ///
    /// ```
    /// use keywheel_provider::upstream::Upstream;
    ///
    /// assert!(Upstream::check_base_url("http://gateway.internal/gemini/").is_ok());
    /// let fault = Upstream::check_base_url("https://me:secret@example.com").unwrap_err();
    /// assert_eq!(fault.to_string(), "the base URL has a user name or password");
    /// ```
    ///
    /// # Errors
    /// See [`new`](Self::new). They do not repeat the URL.
    pub fn check_base_url(base_url: &str) -> Result<(), BadUpstream> {
        parse_base(base_url).map(drop)
    }

    /// Whether `version` can be used.
    ///
    /// ```
    /// use keywheel_provider::upstream::{BadUpstream, Upstream};
    ///
    /// assert_eq!(Upstream::check_version("v1beta"), Ok(()));
    /// assert_eq!(Upstream::check_version("v1/beta"), Err(BadUpstream::Version));
    /// ```
    ///
    /// # Errors
    /// See [`with_version`](Self::with_version).
    pub fn check_version(version: &str) -> Result<(), BadUpstream> {
        let safe = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
        if version.starts_with('.') || !version.bytes().all(safe) {
            return Err(BadUpstream::Version);
        }
        Ok(())
    }

    /// The base URL that the environment names, if any. `lookup` reads one variable.
    ///
    /// An empty variable counts as not set.
    ///
    /// ```
    /// use keywheel_provider::upstream::Upstream;
    ///
    /// let lookup = |name: &str| (name == "GOOGLE_GEMINI_BASE_URL").then(|| "http://sim:8080".to_owned());
    /// assert_eq!(Upstream::base_url_from(lookup).as_deref(), Some("http://sim:8080"));
    /// assert_eq!(Upstream::base_url_from(|_| Some(" ".to_owned())), None);
    /// ```
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

    /// Who is asked: makes the calls, and reads the replies.
    #[must_use]
    pub fn provider(&self) -> &dyn Provider {
        &*self.provider
    }

    /// Whose errors come back, for [`classify`](crate::classify()).
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.provider.dialect()
    }

    /// Sends `call` once with `key`. The future holds no borrow.
    ///
    /// # Errors
    /// No reply came. [`TransportKind::Request`](crate::TransportKind::Request) means that `call` is at fault and nothing was sent.
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
    /// ```
    /// use std::sync::Arc;
    /// use keywheel_core::ApiKey;
    /// use keywheel_provider::{testing::Script, upstream::{Call, CallError, Upstream}};
    ///
    /// let upstream = Upstream::google(Arc::new(Script::new()));
    /// let key = ApiKey::new("AQ.EXAMPLE-key").unwrap();
    /// let request = upstream.request(&key, &Call::models())?;
    /// assert_eq!(request.url, "https://generativelanguage.googleapis.com/v1beta/models");
    /// assert!(request.headers["x-goog-api-key"].is_sensitive(), "no log shows it");
    ///
    /// let in_query = Call::models().with_query("key", "AQ.EXAMPLE-key");
    /// assert_eq!(upstream.request(&key, &in_query).unwrap_err(), CallError::Credential);
    /// # Ok::<(), CallError>(())
    /// ```
    ///
    /// # Errors
    /// The call's path or query could lead elsewhere, or carries a credential.
    pub fn request(&self, key: &ApiKey, call: &Call) -> Result<WireRequest, CallError> {
        let url = self.url(call)?;
        if url.contains(key.expose()) {
            return Err(CallError::Credential);
        }
        let mut headers = HeaderMap::with_capacity(call.headers.len() + 2);
        for (name, value) in &call.headers {
            if !NEVER_FORWARDED.contains(&name.as_str()) {
                headers.append(name, value.clone());
            }
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
        self.provider.auth() == Auth::Bearer
            || call.path.split('/').any(|segment| segment == "openai")
    }

    fn root_and_version(&self) -> (&str, &str) {
        let Some(default) = self.provider.default_version() else {
            return (&self.base, self.version.as_deref().unwrap_or_default());
        };
        let (root, in_base) = match self.base.rsplit_once('/') {
            Some((root, last)) if is_version(last) => (root, Some(last)),
            _ => (self.base.as_str(), None),
        };
        (root, self.version.as_deref().or(in_base).unwrap_or(default))
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
    let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
    if uri.host().is_none_or(str::is_empty) || port.is_some_and(|port| port.parse::<u16>().is_err())
    {
        return Err(BadUpstream::BaseUrl("has no usable host and port"));
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

/// `v1`, `v1beta`, `v1alpha`, `v2beta1`: but not `v1-proxy` or `vault`.
fn is_version(segment: &str) -> bool {
    let mut bytes = segment.bytes();
    bytes.next() == Some(b'v')
        && bytes.next().is_some_and(|b| b.is_ascii_digit())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

#[cfg(test)]
mod tests;
