//! Cached contents: a long prompt kept for several requests, for keys of the same quota project
//! only.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Content, Part,
    json::{Json, null_is_default},
};

/// A prompt that is kept, to be named by
/// [`GenerateRequest::cached_content`](super::GenerateRequest).
///
/// It cannot be changed, but for how long it is kept. The free tier has no room for caches with
/// most models.
///
/// ```
/// use std::time::Duration;
/// use keywheel_provider::api::{CacheExpiry, CachedContent};
///
/// let cache = CachedContent::new("gemini-3.5-flash", ["a very long text"])
///     .with_system("Answer from the text")
///     .with_expiry(CacheExpiry::After(Duration::from_secs(600)));
/// assert_eq!(cache.ttl.as_deref(), Some("600s"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedContent {
    /// Its name, as `cachedContents/…`. The API gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its name for people.
    #[serde(alias = "display_name", default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The one model that it is for, as `models/…`. It cannot be used with another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What is kept. The API does not send it back.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<Content>,
    /// What the model has to keep to.
    #[serde(alias = "system_instruction", default, skip_serializing_if = "Option::is_none")]
    pub system_instruction: Option<Content>,
    /// Tools the model may use.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Json>,
    /// How tools may be used.
    #[serde(alias = "tool_config", default, skip_serializing_if = "Option::is_none")]
    pub tool_config: Option<Json>,
    /// How long to keep it from now, as in `3600s`. Only sent, never received. Defaults to an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// Until when it is kept, as RFC 3339; [`expires_at`](Self::expires_at) reads it.
    #[serde(alias = "expire_time", default, skip_serializing_if = "Option::is_none")]
    pub expire_time: Option<String>,
    /// When it was made, as RFC 3339.
    #[serde(alias = "create_time", default, skip_serializing_if = "Option::is_none")]
    pub create_time: Option<String>,
    /// When it was last changed, as RFC 3339.
    #[serde(alias = "update_time", default, skip_serializing_if = "Option::is_none")]
    pub update_time: Option<String>,
    /// How large it is: `{"totalTokenCount": …}`.
    #[serde(alias = "usage_metadata", default, skip_serializing_if = "Option::is_none")]
    pub usage_metadata: Option<Json>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl CachedContent {
    /// A cache of `contents` for `model`.
    #[must_use]
    pub fn new(
        model: impl Into<String>,
        contents: impl IntoIterator<Item = impl Into<Content>>,
    ) -> Self {
        let contents = contents.into_iter().map(Into::into).collect();
        Self { model: Some(model.into()), contents, ..Self::default() }
    }

    /// Sets the system instruction.
    #[must_use]
    pub fn with_system(mut self, text: impl Into<String>) -> Self {
        let parts = vec![Part::from_text(text)];
        self.system_instruction = Some(Content { parts, ..Content::default() });
        self
    }

    /// Sets its name for people.
    ///
    /// ```
    /// use keywheel_provider::api::CachedContent;
    ///
    /// let cache = CachedContent::new("gemini-3.5-flash", ["a very long text"]);
    /// let cache = cache.with_display_name("The rules of chess");
    /// assert_eq!(cache.display_name.as_deref(), Some("The rules of chess"));
    /// ```
    #[must_use]
    pub fn with_display_name(mut self, name: impl Into<String>) -> Self {
        self.display_name = Some(name.into());
        self
    }

    /// Adds a tool.
    #[must_use]
    pub fn with_tool(mut self, tool: impl Into<Json>) -> Self {
        self.tools.push(tool.into());
        self
    }

    /// Sets how long it is kept.
    #[must_use]
    pub fn with_expiry(mut self, expiry: CacheExpiry) -> Self {
        (self.ttl, self.expire_time) = match expiry {
            CacheExpiry::After(time) => (Some(seconds(time)), None),
            CacheExpiry::At(moment) => (None, Some(rfc3339(moment))),
        };
        self
    }

    /// Until when it is kept. `None` when that is not known.
    #[must_use]
    pub fn expires_at(&self) -> Option<DateTime<Utc>> {
        self.expire_time.as_deref()?.parse().ok()
    }
}

/// How long a cache is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheExpiry {
    /// For so long from now.
    After(Duration),
    /// Until then.
    At(DateTime<Utc>),
}

/// One page of the list of caches: `GET cachedContents`. Only those of the key's own quota project.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedContentList {
    /// The caches, without what they hold.
    #[serde(
        alias = "cached_contents",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cached_contents: Vec<CachedContent>,
    /// Asks for the next page, as `pageToken`. `None` on the last one.
    #[serde(alias = "next_page_token", default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A duration as Protocol Buffers write it in JSON: seconds, with as many decimals as it needs.
fn seconds(time: Duration) -> String {
    if time.subsec_nanos() == 0 {
        return format!("{}s", time.as_secs());
    }
    let text = format!("{}.{:09}", time.as_secs(), time.subsec_nanos());
    format!("{}s", text.trim_end_matches('0'))
}

fn rfc3339(moment: DateTime<Utc>) -> String {
    moment.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}
