//! One call of the API, and what a path and a query may hold.

use std::{borrow::Cow, fmt};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use keywheel_core::scrub::scrub;
use serde::Serialize;

use crate::{
    Body, Sent, TransportError, TransportKind,
    api::{
        BatchEmbedRequest, CacheExpiry, CachedContent, EmbedRequest, GenerateRequest, file_name,
    },
};

/// One call of the API: everything but the key and the place.
///
/// ```
/// use http::Method;
/// use keywheel_provider::upstream::Call;
///
/// let page = Call::models_page(Some("t"), Some(1_000));
/// assert_eq!(page.query, [("pageSize".into(), "1000".into()), ("pageToken".into(), "t".into())]);
/// assert_eq!(Call::files_page(None, Some(100)).path, "files");
/// assert_eq!(Call::caches_page(None, None).path, "cachedContents");
///
/// assert_eq!(Call::cache("x")?.path, "cachedContents/x");
/// assert_eq!(Call::delete_cache("cachedContents/x")?.method, Method::DELETE);
/// assert_eq!(Call::delete_file("files/abc")?.path, "files/abc");
/// assert!(Call::delete_file("files/../models").is_err(), "a name leads nowhere else");
/// # Ok::<(), keywheel_provider::upstream::CallError>(())
/// ```
#[derive(Clone, Default)]
pub struct Call {
    /// The method. Defaults to GET.
    pub method: Method,
    /// The path after the version, as in `models/x:generateContent`. One that begins with a slash
    /// goes to the base URL without a version, as in `/upload/v1beta/files`.
    pub path: String,
    /// The query, not yet encoded. Credentials are refused.
    pub query: Vec<(String, String)>,
    /// Headers of the caller's own.
    pub headers: HeaderMap,
    /// The body. JSON unless a header says otherwise.
    pub body: Body,
}

impl Call {
    /// A GET of `path`.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// A POST of `body` to `path`.
    #[must_use]
    pub fn post(path: impl Into<String>, body: impl Into<Body>) -> Self {
        Self { method: Method::POST, path: path.into(), body: body.into(), ..Self::default() }
    }

    /// A DELETE of `path`.
    #[must_use]
    pub fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
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

    /// `batchEmbedContents`: a vector for each of `requests`, at most 100. It counts as as many
    /// requests.
    ///
    /// The model is written into each of them, whatever they say themselves: the API refuses
    /// another.
    ///
    /// ```
    /// use keywheel_provider::{api::EmbedRequest, upstream::Call};
    ///
    /// let call = Call::embed_batch("gemini-embedding-001", &[EmbedRequest::from("a")]).unwrap();
    /// assert_eq!(call.path, "models/gemini-embedding-001:batchEmbedContents");
    /// assert_eq!(
    ///     call.body,
    ///     r#"{"requests":[{"model":"models/gemini-embedding-001","#.to_owned()
    ///         + r#""content":{"role":"user","parts":[{"text":"a"}]}}]}"#,
    /// );
    /// ```
    ///
    /// # Errors
    /// `model` is no model's name.
    pub fn embed_batch(model: &str, requests: &[EmbedRequest]) -> Result<Self, CallError> {
        let path = model_path(model)?;
        let of_model =
            |request: &EmbedRequest| EmbedRequest { model: Some(path.clone()), ..request.clone() };
        let requests = requests.iter().map(of_model).collect();
        let batch = BatchEmbedRequest { requests, ..BatchEmbedRequest::default() };
        Ok(Self::post(format!("{path}:batchEmbedContents"), json(&batch)?))
    }

    /// `countTokens` for a whole request: system instruction, tools and schema count, too. It draws
    /// on no quota of the model.
    ///
    /// ```
    /// use keywheel_provider::{api::GenerateRequest, upstream::Call};
    ///
    /// let call = Call::count_tokens("gemini-3.5-flash", &GenerateRequest::from("a")).unwrap();
    /// assert_eq!(call.path, "models/gemini-3.5-flash:countTokens");
    /// assert_eq!(
    ///     call.body,
    ///     r#"{"generateContentRequest":{"model":"models/gemini-3.5-flash","#.to_owned()
    ///         + r#""contents":[{"role":"user","parts":[{"text":"a"}]}]}}"#,
    /// );
    /// ```
    ///
    /// # Errors
    /// `model` is no model's name.
    pub fn count_tokens(model: &str, request: &GenerateRequest) -> Result<Self, CallError> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Count<'a> {
            generate_content_request: OfModel<'a>,
        }
        #[derive(Serialize)]
        struct OfModel<'a> {
            model: &'a str,
            #[serde(flatten)]
            request: &'a GenerateRequest,
        }
        let path = model_path(model)?;
        // A request that was read from such a body names a model of its own.
        let mut request = Cow::Borrowed(request);
        if request.extra.contains_key("model") {
            request.to_mut().extra.remove("model");
        }
        let count =
            Count { generate_content_request: OfModel { model: &path, request: request.as_ref() } };
        Ok(Self::post(format!("{path}:countTokens"), json(&count)?))
    }

    /// The list of models: the free way to see whether a key works.
    #[must_use]
    pub fn models() -> Self {
        Self::get("models")
    }

    /// One page of the list of models. `token` is the page before's
    /// [`next_page_token`](crate::api::ModelList::next_page_token), `size` is at most 1,000 and
    /// defaults to 50.
    #[must_use]
    pub fn models_page(token: Option<&str>, size: Option<u32>) -> Self {
        Self::models().with_page(token, size)
    }

    /// What is known of one model.
    ///
    /// # Errors
    /// `model` is no model's name.
    pub fn model(model: &str) -> Result<Self, CallError> {
        Ok(Self::get(model_path(model)?))
    }

    /// One page of the list of files. `size` is at most 100 and defaults to 10.
    #[must_use]
    pub fn files_page(token: Option<&str>, size: Option<u32>) -> Self {
        Self::get("files").with_page(token, size)
    }

    /// What is known of a file, by its name (`files/x` or `x`) or its address.
    ///
    /// ```
    /// use keywheel_provider::upstream::Call;
    ///
    /// let call = Call::file("https://generativelanguage.googleapis.com/v1beta/files/abc")?;
    /// assert_eq!(call.path, "files/abc");
    /// # Ok::<(), keywheel_provider::upstream::CallError>(())
    /// ```
    ///
    /// # Errors
    /// `name` names no file.
    pub fn file(name: &str) -> Result<Self, CallError> {
        Ok(Self::get(file_path(name)?))
    }

    /// Deletes a file, by its name or its address.
    ///
    /// # Errors
    /// `name` names no file.
    pub fn delete_file(name: &str) -> Result<Self, CallError> {
        Ok(Self::delete(file_path(name)?))
    }

    /// Makes a cache.
    ///
    /// ```
    /// use keywheel_provider::{api::CachedContent, upstream::Call};
    ///
    /// let cache = CachedContent::new("gemini-3.5-flash", ["a very long text"]);
    /// let call = Call::create_cache(&cache)?;
    /// assert_eq!(call.path, "cachedContents");
    /// # Ok::<(), keywheel_provider::upstream::CallError>(())
    /// ```
    ///
    /// # Errors
    /// Its model is no model's name, or is missing.
    pub fn create_cache(cache: &CachedContent) -> Result<Self, CallError> {
        let model = model_path(cache.model.as_deref().unwrap_or_default())?;
        let body = json(&CachedContent { model: Some(model), ..cache.clone() })?;
        Ok(Self::post(CACHES, body))
    }

    /// One page of the list of caches.
    #[must_use]
    pub fn caches_page(token: Option<&str>, size: Option<u32>) -> Self {
        Self::get(CACHES).with_page(token, size)
    }

    /// What is known of a cache, by its name: `cachedContents/x` or `x`.
    ///
    /// # Errors
    /// `name` names no cache.
    pub fn cache(name: &str) -> Result<Self, CallError> {
        Ok(Self::get(resource_path(CACHES, name)?))
    }

    /// Changes how long a cache is kept, the one thing that can be changed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keywheel_provider::{api::CacheExpiry, upstream::Call};
    ///
    /// let soon = CacheExpiry::After(Duration::from_millis(1_500));
    /// let call = Call::update_cache("cachedContents/x", soon);
    /// assert_eq!(call.unwrap().body, r#"{"ttl":"1.5s"}"#);
    /// ```
    ///
    /// # Errors
    /// `name` names no cache.
    pub fn update_cache(name: &str, expiry: CacheExpiry) -> Result<Self, CallError> {
        let body = json(&CachedContent::default().with_expiry(expiry))?;
        let path = resource_path(CACHES, name)?;
        Ok(Self { method: Method::PATCH, ..Self::post(path, body) })
    }

    /// Deletes a cache.
    ///
    /// # Errors
    /// `name` names no cache.
    pub fn delete_cache(name: &str) -> Result<Self, CallError> {
        Ok(Self::delete(resource_path(CACHES, name)?))
    }

    /// Asks for one page of a list: the one that `token` stands for, else the first.
    ///
    /// ```
    /// use keywheel_provider::upstream::Call;
    ///
    /// let call = Call::get("cachedContents").with_page(Some("t"), Some(5));
    /// assert_eq!(call.query, [("pageSize".into(), "5".into()), ("pageToken".into(), "t".into())]);
    /// ```
    #[must_use]
    pub fn with_page(mut self, token: Option<&str>, size: Option<u32>) -> Self {
        if let Some(size) = size {
            self = self.with_query("pageSize", size.to_string());
        }
        match token {
            Some(token) => self.with_query("pageToken", token),
            None => self,
        }
    }

    /// Adds a field to the query.
    #[must_use]
    pub fn with_query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a header.
    ///
    /// ```
    /// use http::{HeaderValue, header::ACCEPT_LANGUAGE};
    /// use keywheel_provider::upstream::Call;
    ///
    /// let call = Call::get("operations/x")
    ///     .with_query("view", "FULL")
    ///     .with_header(ACCEPT_LANGUAGE, HeaderValue::from_static("en"));
    /// assert_eq!(call.query, [("view".into(), "FULL".into())]);
    /// assert_eq!(call.headers[ACCEPT_LANGUAGE], "en");
    /// ```
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }
}

const CACHES: &str = "cachedContents";

impl fmt::Debug for Call {
    /// Leaves out the query, the headers and the body: any of them may hold what nobody wants
    /// logged.
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
    /// A name with characters that no file's and no cache's name has.
    #[error("{0:?} is no name of a file or cache: letters, digits, dashes and underscores")]
    Name(String),
    /// A path with characters or segments that could lead elsewhere.
    #[error("the path {0:?} has a segment that is empty, made of dots or has unsafe characters")]
    Path(String),
    /// A credential in the query. The key goes into a header, where no log shows it.
    #[error("a name, path or query holds a key; the key is sent in a header only")]
    Credential,
    /// An address out of a reply that names neither Google's host nor our own, or that is no
    /// address.
    #[error("the address names a foreign host; the key is sent to no such")]
    Foreign,
    /// The request has no JSON form, or not that of its provider.
    #[error("the request has no JSON form: {0}")]
    Body(String),
    /// The provider's API has no place for this field of the request. Leaving it out would change
    /// what is asked.
    #[error("this provider's API has no place for {0}")]
    Unsupported(String),
}

impl From<CallError> for TransportError {
    fn from(fault: CallError) -> Self {
        Self::new(TransportKind::Request, Sent::No, fault.to_string())
    }
}

/// `x` and `models/x` are the same model; tuned ones keep their collection.
fn model_path(model: &str) -> Result<String, CallError> {
    refuse_key(model)?;
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

/// `x` and `files/x` are the same file, and so is its address.
fn file_path(name: &str) -> Result<String, CallError> {
    resource_path("files", file_name(name).unwrap_or(name))
}

/// `x` and `collection/x` are the same thing.
fn resource_path(collection: &str, name: &str) -> Result<String, CallError> {
    refuse_key(name)?;
    let id = name.strip_prefix(collection).and_then(|id| id.strip_prefix('/')).unwrap_or(name);
    let safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if id.is_empty() || id.len() > 200 || !id.bytes().all(safe) {
        return Err(CallError::Name(shorten(name)));
    }
    Ok(format!("{collection}/{id}"))
}

/// Refuses whatever a URL parser or a proxy on the way could read differently: dot segments, `%`,
/// `\`, `@`.
pub(super) fn check_path(path: &str) -> Result<(), CallError> {
    refuse_key(path)?;
    let safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b':');
    let plain = |segment: &str| {
        !segment.is_empty() && !segment.bytes().all(|b| b == b'.') && segment.bytes().all(safe)
    };
    if path.strip_prefix('/').unwrap_or(path).split('/').all(plain) {
        return Ok(());
    }
    Err(CallError::Path(shorten(path)))
}

/// A key in the place of a name, as when two arguments are exchanged, must come into no URL, and the error must not
/// repeat it.
pub(crate) fn refuse_key(name: &str) -> Result<(), CallError> {
    match scrub(name, &[]) {
        Cow::Borrowed(_) => Ok(()),
        Cow::Owned(_) => Err(CallError::Credential),
    }
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
