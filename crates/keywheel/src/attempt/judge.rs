//! What a reply means for one attempt, with every trace of the attempt's key taken out.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use keywheel_core::{ApiKey, Cause, Effect, Scope, scrub::scrub};
use keywheel_pool::Ask;
use keywheel_provider::classify::{Asked, Dialect, Kind, Reply, Verdict, classify};

use super::work::is_route;

/// A reply that is no answer, and what it means.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) cause: Cause,
    pub(crate) verdict: Verdict,
    /// Those of the reply.
    pub(crate) headers: HeaderMap,
}

/// What `reply` to `ask` means; `None` when it claims success.
///
/// Replies repeat keys in more places than their message, so nothing of the verdict leaves here with `key` in it.
pub(crate) fn judge(
    dialect: Dialect,
    reply: &Reply<'_>,
    ask: &Ask,
    key: &ApiKey,
    now: DateTime<Utc>,
) -> Option<Refused> {
    let asked =
        Asked { model: Some(&ask.model), tokens: Some(surely_asked(ask.tokens)), tools: ask.tools };
    let mut verdict = classify(dialect, reply, &asked, now);
    let Kind::Refused(cause) = verdict.kind else { return None };
    if !ask.tools {
        verdict.effects.iter_mut().for_each(concern_the_bucket);
    }
    if is_route(&ask.model) {
        // A model that is missing is no fault of the route by which it was asked about.
        verdict.effects.retain(|effect| effect.cause != Cause::ModelNotFound);
    }
    take_out(key, &mut verdict);
    Some(Refused { cause, verdict, headers: without(key, reply.headers) })
}

/// What a request of `estimated` tokens asks for at the very least.
///
/// The estimate leans upwards, by up to eight fifths for common text (`keywheel_core::estimate`). Taken as it is, a
/// request that fits would be handed back as too large whenever its minute happened to be full.
pub(super) const fn surely_asked(estimated: u64) -> u64 {
    (estimated / 8).saturating_mul(5)
}

/// A tool's quota that refuses a request without tools is a riddle, but it does refuse it. Kept as the tool's it
/// would hold nothing back, and the same key would be sent again at once, without end.
const fn concern_the_bucket(effect: &mut Effect) {
    if matches!(effect.scope, Scope::Tool) {
        *effect = Effect::new(Scope::Bucket, Cause::UnspecifiedQuota, effect.wait);
    }
}

/// The headers, but for those that repeat the key, and for what the body was on the wire: it is kept as text.
fn without(key: &ApiKey, headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove(CONTENT_LENGTH);
    headers.remove(CONTENT_ENCODING);
    forget(key, &mut headers, &[]);
    headers
}

/// Takes out the headers that repeat the key, but for those that are `kept`.
pub(super) fn forget(key: &ApiKey, headers: &mut HeaderMap, kept: &[&str]) {
    let repeats = |value: &HeaderValue| match value.to_str() {
        Ok(text) => matches!(scrub(text, &[key]), Cow::Owned(_)),
        Err(_) => {
            value.as_bytes().windows(key.expose().len()).any(|w| w == key.expose().as_bytes())
        }
    };
    let telling: Vec<HeaderName> = headers
        .iter()
        .filter(|(name, value)| !kept.contains(&name.as_str()) && repeats(value))
        .map(|(name, _)| name.clone())
        .collect();
    for name in telling {
        headers.remove(name);
    }
}

fn take_out(key: &ApiKey, verdict: &mut Verdict) {
    let clean = |text: &mut String| {
        if let Cow::Owned(clean) = scrub(text, &[key]) {
            *text = clean;
        }
    };
    clean(&mut verdict.message);
    verdict.evidence.iter_mut().for_each(clean);
    for limit in &mut verdict.limits {
        [&mut limit.model, &mut limit.quota_id, &mut limit.metric]
            .into_iter()
            .flatten()
            .for_each(clean);
    }
}
