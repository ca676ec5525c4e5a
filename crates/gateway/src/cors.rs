//! Pages of other sites: whether their browsers may ask this gateway.
//!
//! Off by default. A page that may ask brings a token in a header, never a cookie, so credentials are not allowed and
//! any origin may be: what protects the gateway is the token.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request};

use crate::respond::AnswerBody;

/// How long a browser may remember what it was told: the most that browsers grant.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// What official clients send with GET and POST, and with files and caches.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, OPTIONS");

/// What a script may read besides the few headers that it always may.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "retry-after, ratelimit, ratelimit-policy, x-goog-upload-url, x-goog-upload-status, \
     x-keywheel-budget, x-keywheel-degraded, x-keywheel-key, x-keywheel-max-output, \
     x-keywheel-model, x-keywheel-request-id, x-keywheel-warning, x-should-retry",
);

/// Asks whether a page may reach into a private network from a public one.
const PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Whose pages may ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origins {
    any: bool,
    origins: Vec<String>,
}

impl Origins {
    /// Pages of these origins, as `https://app.example`; `*` is any.
    pub(crate) fn of<'a>(origins: impl IntoIterator<Item = &'a str>) -> Self {
        let origins: Vec<_> = origins.into_iter().map(str::to_owned).collect();
        Self { any: origins.iter().any(|origin| origin == "*"), origins }
    }

    /// The origin that is let in with this request. `None`: no page asks, or it may not.
    pub(crate) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        if self.any {
            return Some(HeaderValue::from_static("*"));
        }
        let own = self.origins.iter().any(|own| own.as_bytes() == origin.as_bytes());
        own.then(|| origin.clone())
    }

    /// The answer to a browser that asks before it asks. `None`: this is no such question, or the answer is no, which
    /// a browser takes from any answer without these headers.
    pub(crate) fn preflight(&self, head: &request::Parts) -> Option<Response<AnswerBody>> {
        let asks = head.method == Method::OPTIONS
            && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        let origin = if asks { self.allowed(&head.headers)? } else { return None };
        let mut answer = Response::new(AnswerBody::empty());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        let headers = answer.headers_mut();
        // What it asks for is what is allowed: clients add headers with each release.
        if let Some(wanted) = head.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        if head.headers.contains_key(PRIVATE) {
            headers.insert(ALLOW_PRIVATE, HeaderValue::from_static("true"));
        }
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        mark(headers, origin);
        Some(answer)
    }
}

/// Lets the page of `origin` read an answer.
pub(crate) fn mark(headers: &mut HeaderMap, origin: HeaderValue) {
    if origin != "*" {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(origin: &str) -> request::Parts {
        http::Request::options("/v1beta/models/x:generateContent")
            .header(header::ORIGIN, origin)
            .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
            .header(header::ACCESS_CONTROL_REQUEST_HEADERS, "x-goog-api-key, x-new")
            .body(())
            .unwrap()
            .into_parts()
            .0
    }

    #[test]
    fn a_page_that_may_ask_is_told_so_with_what_it_wants_to_send() {
        let cors = Origins::of(["https://app.example"]);
        let answer = cors.preflight(&question("https://app.example")).unwrap();
        let headers = answer.headers();
        assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example");
        assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_HEADERS], "x-goog-api-key, x-new");
        assert_eq!(headers[header::VARY], "origin");
        assert!(!headers.contains_key(header::ACCESS_CONTROL_ALLOW_CREDENTIALS));
    }

    #[test]
    fn others_are_told_nothing() {
        let cors = Origins::of(["https://app.example"]);
        for origin in ["https://app.example.evil", "http://app.example", "null"] {
            assert!(cors.preflight(&question(origin)).is_none(), "{origin}");
        }
        assert!(Origins::default().preflight(&question("https://app.example")).is_none());
        let mut plain = question("https://app.example");
        plain.headers.remove(header::ACCESS_CONTROL_REQUEST_METHOD);
        assert!(cors.preflight(&plain).is_none(), "it asks for something else");
    }

    #[test]
    fn any_page_may_ask_where_that_is_set() {
        let cors = Origins::of(["*"]);
        assert_eq!(cors.allowed(&question("https://a.example").headers).unwrap(), "*");
        assert_eq!(cors.allowed(&HeaderMap::new()), None, "no page asks");
    }
}
