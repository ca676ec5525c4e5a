//! Cached contents.

use chrono::{DateTime, TimeDelta, Utc};
use http::Method;
use keywheel_core::Cause;
use serde_json::{Value, json};

use super::{Caller, World};
use crate::{
    bodies::{self, ErrorBody},
    caches::{Cache, expiry},
    paging::Paging,
    prompt::{Prompt, Weight, either},
    reply::SimReply,
    request::SimRequest,
    route::Verb,
    shape::Shape,
};

impl World {
    /// `POST` and `GET cachedContents`.
    pub(super) fn cached_contents(
        &mut self,
        caller: Caller,
        request: &SimRequest,
        now: DateTime<Utc>,
    ) -> SimReply {
        if request.method == Method::POST {
            let made = self.make_cache(caller, &request.body, now);
            return self.shown_or_refused(caller, made);
        }
        let page = self.caches.page(caller.project, Paging::asked(request, 50, 1_000), now);
        self.looked_up(caller.fingerprint, &page)
    }

    /// `GET`, `PATCH` and `DELETE cachedContents/{id}`.
    pub(super) fn cached_content(
        &mut self,
        caller: Caller,
        id: &str,
        request: &SimRequest,
        now: DateTime<Utc>,
    ) -> SimReply {
        let Some(cache) = self.caches.of_mut(caller.project, id, now) else {
            return self.shown_or_refused(caller, Err(bodies::cache_forbidden().into()));
        };
        let shown = if request.method == Method::PATCH {
            change(cache, &request.body, now).map(|()| cache.resource(id))
        } else {
            Ok(cache.resource(id))
        };
        if request.method == Method::DELETE {
            self.caches.remove(id);
            return self.shown_or_refused(caller, Ok(json!({})));
        }
        self.shown_or_refused(caller, shown)
    }

    /// The cached tokens of a prompt; 0 when it names no cache.
    ///
    /// # Errors
    /// The cache is not this project's, expired, of another model, or in conflict with the request.
    pub(super) fn cached_tokens(
        &self,
        project: usize,
        model: &str,
        prompt: &Prompt,
        now: DateTime<Utc>,
    ) -> Result<u64, ErrorBody> {
        let Some(name) = &prompt.cache else { return Ok(0) };
        let id = name.strip_prefix("cachedContents/").unwrap_or(name);
        let cache = self.caches.of(project, id, now).ok_or_else(bodies::cache_forbidden)?;
        if cache.model != model {
            return Err(bodies::cache_of_other_model(model, &cache.model));
        }
        if prompt.repeats_cached_settings {
            return Err(bodies::cache_with_settings());
        }
        Ok(cache.tokens)
    }

    fn make_cache(
        &mut self,
        caller: Caller,
        body: &[u8],
        now: DateTime<Utc>,
    ) -> Result<Value, Refusal> {
        let body: Value = serde_json::from_slice(body).map_err(|error| {
            bodies::bad_request(format!("Invalid JSON payload received. ({error})"))
        })?;
        let model = body["model"].as_str().unwrap_or_default();
        let model = model.strip_prefix("models/").unwrap_or(model).to_owned();
        let known = self.config.models.get(&model).is_some_and(|model| !model.embeds);
        let closed = self.config.projects[caller.project].closed_models.contains(&model);
        if !known || closed {
            let body = bodies::model_not_found(&model, "v1beta", Verb::CreateCache);
            return Err(Refusal(Cause::ModelNotFound, body));
        }
        let weight = Weight::of(&body);
        let tokens = weight.tokens + self.file_tokens(caller.project, &weight.files, now)?;
        if self.config.projects[caller.project].refuses_caches {
            let body = bodies::caches_not_free(&model, tokens);
            return Err(Refusal(Cause::FreeTierNotAvailable, body));
        }
        let minimum = self.config.cache_min_tokens;
        if tokens < minimum {
            return Err(bodies::cache_too_small(tokens, minimum).into());
        }
        let expires = expiry(&body, now).map_err(bodies::bad_request)?;
        let cache = Cache {
            project: caller.project,
            model,
            display_name: either(&body, "displayName", "display_name")
                .and_then(Value::as_str)
                .map(str::to_owned),
            tokens,
            created: now,
            updated: now,
            expires: expires.unwrap_or(now + TimeDelta::hours(1)),
        };
        let id = self.caches.add(self.config.seed, cache.clone());
        Ok(cache.resource(&id))
    }

    fn shown_or_refused(&mut self, caller: Caller, made: Result<Value, Refusal>) -> SimReply {
        match made {
            Ok(value) => self.looked_up(caller.fingerprint, &value),
            Err(Refusal(cause, body)) => {
                self.turned_away(Some(caller.fingerprint), cause, &body, Shape::Native)
            }
        }
    }
}

/// Why a request is refused, and how that is said.
struct Refusal(Cause, ErrorBody);

impl From<ErrorBody> for Refusal {
    fn from(body: ErrorBody) -> Self {
        Self(Cause::BadRequest, body)
    }
}

/// Only the end of a cache can be changed.
fn change(cache: &mut Cache, body: &[u8], now: DateTime<Utc>) -> Result<(), Refusal> {
    let body: Value = serde_json::from_slice(body).map_err(|error| {
        bodies::bad_request(format!("Invalid JSON payload received. ({error})"))
    })?;
    if let Some(expires) = expiry(&body, now).map_err(bodies::bad_request)? {
        cache.expires = expires;
        cache.updated = now;
    }
    Ok(())
}
