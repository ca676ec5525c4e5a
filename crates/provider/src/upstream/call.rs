//! One call of the API, and what a path and a query may hold.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Serialize;

use crate::{Sent, TransportError, TransportKind, api::GenerateRequest};

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
pub(super) fn check_path(path: &str) -> Result<(), CallError> {
    let safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b':');
    let plain = |segment: &str| {
        !segment.is_empty() && !segment.bytes().all(|b| b == b'.') && segment.bytes().all(safe)
    };
    if path.strip_prefix('/').unwrap_or(path).split('/').all(plain) {
        return Ok(());
    }
    Err(CallError::Path(shorten(path)))
}

/// Google reads system parameters with and without a dollar sign.
pub(super) fn is_credential(name: &str) -> bool {
    let name = name.trim().trim_start_matches('$').to_ascii_lowercase();
    matches!(
        name.as_str(),
        "key" | "api_key" | "apikey" | "access_token" | "oauth_token" | "bearer_token"
    )
}

pub(super) fn push_encoded(url: &mut String, text: &str) {
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
