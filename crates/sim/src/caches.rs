//! Cached contents: prompts that are kept, and count their tokens in every prompt that names them.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::{
    files::{made_up_id, timestamp},
    paging::Paging,
    prompt::either,
};

/// The cached contents of all projects.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    caches: BTreeMap<String, Cache>,
    made: u64,
}

/// One cached content.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    pub(crate) project: usize,
    pub(crate) model: String,
    pub(crate) display_name: Option<String>,
    pub(crate) tokens: u64,
    pub(crate) created: DateTime<Utc>,
    pub(crate) updated: DateTime<Utc>,
    pub(crate) expires: DateTime<Utc>,
}

impl Cache {
    /// The resource, as `GET cachedContents/{id}` shows it.
    pub(crate) fn resource(&self, id: &str) -> Value {
        let mut out = json!({
            "name": format!("cachedContents/{id}"),
            "model": format!("models/{}", self.model),
            "createTime": timestamp(self.created),
            "updateTime": timestamp(self.updated),
            "expireTime": timestamp(self.expires),
            "usageMetadata": {"totalTokenCount": self.tokens},
        });
        if let Some(name) = &self.display_name {
            out["displayName"] = name.as_str().into();
        }
        out
    }
}

impl Caches {
    /// Keeps `cache`, and says under which id.
    pub(crate) fn add(&mut self, seed: u64, cache: Cache) -> String {
        self.made += 1;
        let id = made_up_id(seed, b"cache", self.made, 16);
        self.caches.insert(id.clone(), cache);
        id
    }

    /// A project's cache, if there is one of that id and it has not expired.
    pub(crate) fn of(&self, project: usize, id: &str, now: DateTime<Utc>) -> Option<&Cache> {
        self.caches.get(id).filter(|cache| cache.project == project && cache.expires > now)
    }

    pub(crate) fn of_mut(
        &mut self,
        project: usize,
        id: &str,
        now: DateTime<Utc>,
    ) -> Option<&mut Cache> {
        let cache = self.caches.get_mut(id)?;
        (cache.project == project && cache.expires > now).then_some(cache)
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.caches.remove(id);
    }

    /// One page of a project's caches.
    pub(crate) fn page(&self, project: usize, paging: Paging<'_>, now: DateTime<Utc>) -> Value {
        let shown = |cache: &Cache| cache.project == project && cache.expires > now;
        let caches = self.caches.iter().filter(|(_, cache)| shown(cache));
        paging.page("cachedContents", caches, |id, cache| cache.resource(id))
    }
}

/// When a cache ends by its `ttl` or `expireTime`; `None` when it names neither.
///
/// # Errors
/// One of them is no duration, or no moment in the future.
pub(crate) fn expiry(body: &Value, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, String> {
    if let Some(ttl) = body.get("ttl") {
        let seconds = ttl.as_str().and_then(|ttl| ttl.strip_suffix('s')?.parse::<f64>().ok());
        let seconds = seconds.filter(|seconds| *seconds > 0.0 && seconds.is_finite());
        let span = seconds.and_then(|seconds| {
            // Far longer than any cache is kept, and within what a moment can hold.
            let ms = (seconds * 1_000.0).min(1e13) as i64;
            TimeDelta::try_milliseconds(ms)
        });
        let end = span.and_then(|span| now.checked_add_signed(span));
        return end.map(Some).ok_or_else(|| "Invalid value at 'cached_content.ttl'".to_owned());
    }
    let Some(at) = either(body, "expireTime", "expire_time") else { return Ok(None) };
    let at = at.as_str().and_then(|at| at.parse::<DateTime<Utc>>().ok()).filter(|at| *at > now);
    at.map(Some).ok_or_else(|| "Invalid value at 'cached_content.expire_time'".to_owned())
}
