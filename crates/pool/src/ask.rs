//! What a caller asks of the pool.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use keywheel_core::Fingerprint;

/// One attempt's needs: which model, and how much of each window it will take.
///
/// ```
/// use keywheel_pool::Ask;
///
/// let ask = Ask::new("gemini-3.5-flash-lite").with_tokens(1_200);
/// assert_eq!((ask.requests, ask.tokens, ask.allow_paid), (1, 1_200, false));
/// ```
///
/// Everything that can be said of one attempt:
///
/// ```
/// use keywheel_pool::{Ask, Fingerprint};
///
/// let tried = Fingerprint::of("AQ.EXAMPLE-key-1");
/// let ask = Ask::new("gemini-embedding-001")
///     .with_requests(100) // one for each text
///     .with_tools()
///     .excluding([tried])
///     .with_affinity("my-project")
///     .allowing_paid()
///     .by("2026-11-30T08:00:00Z".parse().unwrap());
/// assert_eq!((ask.requests, ask.tools, ask.allow_paid), (100, true, true));
/// assert_eq!((ask.exclude, ask.affinity.as_deref()), (vec![tried], Some("my-project")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The model as the caller names it. Quotas are kept under this name, whatever a reply calls it.
    pub model: Arc<str>,
    /// How many requests the provider will count; `batchEmbedContents` counts each text. Defaults to 1.
    pub requests: u32,
    /// Input tokens, estimated. Defaults to 0: unknown.
    pub tokens: u64,
    /// The request uses a tool with a quota of its own (search grounding, URL context). Defaults to false.
    pub tools: bool,
    /// Keys not to be used, because this call tried them already. An ask with any is the continuation of a
    /// call that had its turn: it stands before those who still wait for theirs.
    pub exclude: Vec<Fingerprint>,
    /// The one quota project that can serve this (it owns the file, the cache). Defaults to any.
    pub affinity: Option<Arc<str>>,
    /// Paid keys may be used when no free key can serve now. Defaults to false.
    pub allow_paid: bool,
    /// When an answer is of no use any more. Defaults to none: waits as long as it takes.
    pub deadline: Option<DateTime<Utc>>,
}

impl Ask {
    /// One request to `model`, of unknown size, by any free key, whenever it can be.
    #[must_use]
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self {
            model: model.into(),
            requests: 1,
            tokens: 0,
            tools: false,
            exclude: Vec::new(),
            affinity: None,
            allow_paid: false,
            deadline: None,
        }
    }

    /// The same, counted as `requests` requests. Zero is taken as one.
    #[must_use]
    pub fn with_requests(self, requests: u32) -> Self {
        Self { requests: requests.max(1), ..self }
    }

    /// The same with `tokens` input tokens.
    #[must_use]
    pub fn with_tokens(self, tokens: u64) -> Self {
        Self { tokens, ..self }
    }

    /// The same, using a tool with a quota of its own.
    #[must_use]
    pub fn with_tools(self) -> Self {
        Self { tools: true, ..self }
    }

    /// The same, but not with these keys.
    #[must_use]
    pub fn excluding(mut self, keys: impl IntoIterator<Item = Fingerprint>) -> Self {
        self.exclude.extend(keys);
        self
    }

    /// The same, but only by `quota_project`.
    #[must_use]
    pub fn with_affinity(self, quota_project: impl Into<Arc<str>>) -> Self {
        Self { affinity: Some(quota_project.into()), ..self }
    }

    /// The same, with paid keys if no free key can serve now.
    #[must_use]
    pub fn allowing_paid(self) -> Self {
        Self { allow_paid: true, ..self }
    }

    /// The same, until `deadline`.
    #[must_use]
    pub fn by(self, deadline: DateTime<Utc>) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    pub(crate) fn deadline_ms(&self) -> Option<i64> {
        self.deadline.map(|at| at.timestamp_millis())
    }
}
