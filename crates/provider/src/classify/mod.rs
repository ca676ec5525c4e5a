//! What a provider's reply means: one pure function, [`classify`].
//!
//! | to know | look in |
//! |---|---|
//! | which reply is what, and why | `rules.rs`: an ordered table |
//! | the words of the answer | `verdict.rs` |
//! | how an error is found in whatever wraps it | `body.rs`; `collect.rs` over `scan.rs` |
//! | which quota a reply names, and for how long | `quota.rs` |
//! | durations, dates and epochs | `delay.rs` |
//! | what is read from prose | `message.rs`; what it quotes is not: `speech.rs` |
//! | what is read from headers | `headers.rs` |
//!
//! The evidence behind each rule is the published corpus: `corpus/` at the root of the repository.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use http::HeaderMap;
use keywheel_core::{Cause, Effect, LimitSeen, Scope, Wait, Window, scrub};

mod body;
mod collect;
mod delay;
mod headers;
mod message;
mod quota;
mod rpc_status;
mod rules;
mod scan;
mod speech;
mod verdict;

pub use verdict::{Asked, Dialect, Kind, Reply, Retry, UnknownDialect, Verdict};

use body::{Facts, Shape};
use headers::RateHeaders;
use message::{Lower, Span};
use quota::{Seen, Stated};
use rules::{Case, Finding, RULES};

/// How much of the server's words a verdict keeps, in characters.
const LONGEST_MESSAGE: usize = 500;

/// Says what `reply` means. Never fails: any bytes get a verdict.
///
/// Of a large body only the first and the last 64 KB are looked at. Every wait in the verdict is at
/// most 25 hours. `now` serves to read dates. Nothing in the verdict looks like a key, even when
/// the body repeats one.
///
/// ```
/// use http::HeaderMap;
/// use keywheel_core::Cause;
/// use keywheel_provider::{Asked, Dialect, Kind, Reply, classify};
///
/// let body = br#"{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}"#;
/// let reply = Reply { status: 400, headers: &HeaderMap::new(), body };
/// let now = "2026-11-30T07:12:03Z".parse().unwrap();
/// let verdict = classify(Dialect::Gemini, &reply, &Asked::default(), now);
/// assert_eq!(verdict.kind, Kind::Refused(Cause::InvalidKey));
/// assert!(verdict.key_is_dead);
/// ```
pub fn classify(
    dialect: Dialect,
    reply: &Reply<'_>,
    asked: &Asked<'_>,
    now: DateTime<Utc>,
) -> Verdict {
    let success = (200..300).contains(&reply.status);
    let mut facts = Facts::read(reply.body, reply.status);
    let headers = RateHeaders::read(reply.headers, &facts.headers, now);
    if success && !facts.error && facts.shape != Shape::Html {
        return served(reply.status, &headers);
    }
    let status = status_of(reply.status, &facts);
    let about_quota = rules::is_about_quota(status, &facts, dialect);
    let violations = std::mem::take(&mut facts.violations);
    let lower = Lower::of(&facts.messages);
    let stated = Stated::read(&facts, &headers);
    let seen = match about_quota && facts.shape != Shape::Html {
        true => quota::seen(&facts, violations, &headers, dialect, &stated, &lower),
        false => Vec::new(),
    };
    let case = Case {
        http: reply.status,
        status,
        facts: &facts,
        lower: &lower,
        headers: &headers,
        asked,
        stated,
        seen: &seen,
        about_quota,
    };
    let (rule, finding) = first_match(&case);
    let effects = effects(&case, &finding);
    let evidence = evidence(&case, rule, &finding);
    let named_quota = seen.iter().any(|seen| !seen.guessed);
    Verdict {
        kind: Kind::Refused(finding.cause),
        effects,
        limits: limits(seen, &headers),
        key_is_dead: finding.key_is_dead,
        recognised: finding.recognised,
        retry: finding.retry,
        named_quota,
        project_number: facts.project.take(),
        clamped: stated.clamped,
        message: spoken(facts.messages),
        fix: finding.fix,
        evidence,
    }
}

/// The limits that the headers of a reply tell of, a success included: what [`classify`] would put into
/// [`Verdict::limits`], without a look at the body.
///
/// Only limits whose window is certain: by the header's name, by the provider's contract (tokens are per
/// minute), or worked out from what is used and when it is back, which tells Groq's requests, counted per
/// day, from OpenAI's under the same name. Google sends none; what a gateway adds is the gateway's own.
///
/// ```
/// use http::HeaderMap;
/// use keywheel_core::{Dimension, LimitSeen};
/// use keywheel_provider::{Dialect, classify::limits_from_headers};
///
/// let mut headers = HeaderMap::new();
/// for (name, value) in [("limit", "1000"), ("remaining", "998"), ("reset", "2m52.8s")] {
///     let name: http::HeaderName = format!("x-ratelimit-{name}-requests").parse().unwrap();
///     headers.insert(name, value.parse().unwrap());
/// }
/// headers.insert("x-ratelimit-limit-tokens", "8000".parse().unwrap());
/// let now = "2026-11-30T07:12:03Z".parse().unwrap();
/// let limits = limits_from_headers(Dialect::OpenAi, &headers, now);
/// assert_eq!(limits, [LimitSeen::new(Dimension::Rpd, 1000), LimitSeen::new(Dimension::Tpm, 8000)]);
/// ```
#[must_use]
pub fn limits_from_headers(
    dialect: Dialect,
    headers: &HeaderMap,
    now: DateTime<Utc>,
) -> Vec<LimitSeen> {
    match dialect {
        Dialect::Gemini => Vec::new(),
        Dialect::OpenAi => limits_of_success(&RateHeaders::read(headers, &[], now)),
    }
}

fn served(status: u16, headers: &RateHeaders) -> Verdict {
    Verdict {
        kind: Kind::Served,
        effects: Vec::new(),
        limits: limits_of_success(headers),
        key_is_dead: false,
        recognised: true,
        retry: Retry::Never,
        named_quota: false,
        project_number: None,
        clamped: false,
        message: String::new(),
        fix: None,
        evidence: vec![format!("HTTP status {status} and no error in the body")],
    }
}

/// What the body says of its own status beats what stands in front of it: gateways and streams wrap
/// errors into replies of other statuses.
fn status_of(http: u16, facts: &Facts) -> u16 {
    let code = facts.code.filter(|code| *code >= 400);
    let named = || facts.rpc.map(|rpc| rpc.http);
    let words = || facts.words.iter().find_map(|word| status_of_word(word));
    code.or_else(named).unwrap_or(if http >= 300 { http } else { words().unwrap_or(http) })
}

/// Codes in words, where no status comes with them: in streams, and from the Interactions API.
fn status_of_word(word: &str) -> Option<u16> {
    match word {
        "rate_limit_exceeded"
        | "rate_limit_error"
        | "quota_exceeded"
        | "insufficient_quota"
        | "spend_limit_exceeded" => Some(429),
        "overloaded_error" | "unavailable" | "service_unavailable" => Some(503),
        "server_error" | "api_error" | "internal" | "internal_error" => Some(500),
        "deadline_exceeded" | "timeout_error" => Some(504),
        "cancelled" => Some(499),
        "authentication" | "authentication_error" | "invalid_api_key" => Some(401),
        "permission_denied" | "permission_error" => Some(403),
        "not_found" | "not_found_error" | "model_not_found" => Some(404),
        "request_too_large" => Some(413),
        "invalid_request"
        | "invalid_request_error"
        | "parameter_unknown"
        | "failed_precondition" => Some(400),
        _ => None,
    }
}

/// The first rule that matches. Server faults and wrong addresses never blame a key: whatever such
/// a reply says of one is hearsay, and the reply is what its status says.
fn first_match(case: &Case<'_>) -> (&'static str, Finding) {
    let matches = |case: &Case<'_>, spared: bool| {
        RULES.iter().find_map(|(name, rule)| {
            let finding = rule(case)?;
            (!spared || !finding.key_is_dead).then_some((*name, finding))
        })
    };
    let found = matches(case, false).expect(LAST_RULE);
    let faults = [case.http, case.status].into_iter().find(|status| blames_no_key(*status));
    match faults {
        Some(status) if found.1.key_is_dead => {
            matches(&Case { status, ..*case }, true).expect(LAST_RULE)
        }
        _ => found,
    }
}

const LAST_RULE: &str = "the table's last rule matches everything, and blames no key";

const fn blames_no_key(status: u16) -> bool {
    status == 404 || status >= 500
}

/// The headline's effect, then those of every other quota that is exceeded.
fn effects(case: &Case<'_>, finding: &Finding) -> Vec<Effect> {
    let mut effects = vec![Effect::new(finding.scope, finding.cause, finding.wait)];
    let about_quotas = matches!(
        finding.cause,
        Cause::FreeTierNotAvailable
            | Cause::ToolQuota
            | Cause::PerDayRequests
            | Cause::PerDayTokens
            | Cause::RequestTooLarge
            | Cause::PerMinuteTokens
            | Cause::PerMinuteRequests
    );
    if !about_quotas {
        return effects;
    }
    let beside_a_day = case.seen.iter().any(|seen| seen.span == Span::Day && !seen.tool);
    for seen in case.seen {
        let Some(effect) = effect_of(seen, case, beside_a_day) else { continue };
        let same = |known: &&mut Effect| (known.scope, known.cause) == (effect.scope, effect.cause);
        match effects.iter_mut().find(same) {
            Some(known) => known.wait = longer(known.wait, effect.wait),
            None => effects.push(effect),
        }
    }
    effects
}

fn effect_of(seen: &Seen, case: &Case<'_>, beside_a_day: bool) -> Option<Effect> {
    if seen.tool {
        return Some(Effect::new(Scope::Tool, Cause::ToolQuota, Wait::Reset(Window::Hour)));
    }
    if seen.value == Some(0) {
        return Some(Effect::new(Scope::Bucket, Cause::FreeTierNotAvailable, Wait::None));
    }
    if seen.is_too_small_for(case.asked.tokens) {
        return Some(Effect::new(Scope::Request, Cause::RequestTooLarge, Wait::None));
    }
    Some(Effect::new(Scope::Bucket, seen.cause()?, seen.wait(&case.stated, beside_a_day)))
}

/// The longer of two waits for the same cause; what cannot be compared stays as it was.
fn longer(known: Wait, other: Wait) -> Wait {
    match (known, other) {
        (Wait::Stated(known), Wait::Stated(other)) => Wait::Stated(known.max(other)),
        (known, _) => known,
    }
}

fn limits(seen: Vec<Seen>, headers: &RateHeaders) -> Vec<LimitSeen> {
    let mut limits: Vec<LimitSeen> = Vec::with_capacity(seen.len());
    for limit in seen.into_iter().filter_map(Seen::into_limit) {
        if !limits.contains(&limit) {
            limits.push(limit);
        }
    }
    for quota in &headers.quotas {
        let Some(dimension) = quota.dimension() else { continue };
        let Some(value) = quota.limit.and_then(|limit| u64::try_from(limit).ok()) else { continue };
        if !limits.iter().any(|known| known.dimension == dimension) {
            limits.push(LimitSeen::new(dimension, value));
        }
    }
    limits
}

/// Those of a reply that was served. It disproves a limit of zero, which some send for "none".
fn limits_of_success(headers: &RateHeaders) -> Vec<LimitSeen> {
    let mut limits = limits(Vec::new(), headers);
    limits.retain(|limit| limit.value > 0);
    limits
}

/// Which rule decided and by what, then whatever else went into the verdict.
fn evidence(case: &Case<'_>, rule: &str, finding: &Finding) -> Vec<String> {
    let mut lines = Vec::with_capacity(2 + case.seen.len());
    lines.push(["rule ", rule, ": ", &finding.tell].concat());
    if case.seen.len() > 1 {
        lines.extend(case.seen.iter().map(|seen| {
            let value = seen.value.map(|value| format!(", limit {value}")).unwrap_or_default();
            format!("exceeded: {}{value}", seen.evidence())
        }));
    }
    for value in case.seen.iter().filter(|seen| seen.guessed).filter_map(|seen| seen.value) {
        lines.push(format!("limit {value} seen, but not for which window: not learned"));
    }
    if let Some(wait) = case.stated.wait {
        let believed = match finding.wait {
            Wait::Stated(_) if finding.cause != Cause::Billing => "",
            _ => ", not believed",
        };
        let cut = if case.stated.clamped { ", cut to the longest that is believed" } else { "" };
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        lines.push(format!("stated wait {ms} ms{believed}{cut}"));
    }
    lines
}

/// What the server said, fit for a log.
fn spoken(messages: Vec<String>) -> String {
    let Some(text) = messages.into_iter().next() else { return String::new() };
    // A little more than is kept, so that a key at the edge is still recognised.
    match scrub::scrub(first_chars(&text, LONGEST_MESSAGE + 100), &[]) {
        Cow::Borrowed(clean) if clean.len() == text.len() && clean.len() <= LONGEST_MESSAGE => text,
        clean => first_chars(&clean, LONGEST_MESSAGE).to_owned(),
    }
}

fn first_chars(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}
