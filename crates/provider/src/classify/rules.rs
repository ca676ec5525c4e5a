//! The rules, in the order in which they are tried: the first that matches gives the headline.
//!
//! A new kind of reply is a new row, or a new word in a row's list, and a case in `corpus/`. The words are
//! lower case. Every row looks for names first (`reason`, `quotaId`, code) and for prose last.

use std::time::Duration;

use keywheel_core::{Cause, Scope, Wait, Window};

use super::{
    body::{Facts, Shape},
    headers::RateHeaders,
    message::{Lower, Span},
    quota::{Seen, Stated},
    verdict::{Asked, Dialect, Retry},
};

/// Everything a rule may look at.
pub(super) struct Case<'a> {
    /// As sent; 0 when not known.
    pub(super) http: u16,
    /// What the body says where it says something, else as sent.
    pub(super) status: u16,
    pub(super) facts: &'a Facts,
    pub(super) lower: &'a Lower<'a>,
    pub(super) headers: &'a RateHeaders,
    pub(super) asked: &'a Asked<'a>,
    pub(super) stated: Stated,
    /// The quotas that are exceeded; empty unless the reply is about a quota.
    pub(super) seen: &'a [Seen],
    pub(super) about_quota: bool,
}

/// What a rule concludes.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) cause: Cause,
    pub(super) scope: Scope,
    pub(super) wait: Wait,
    pub(super) retry: Retry,
    pub(super) key_is_dead: bool,
    pub(super) tell: String,
    pub(super) fix: Option<&'static str>,
}

type Rule = fn(&Case<'_>) -> Option<Finding>;

/// The table.
pub(super) const RULES: [(&str, Rule); 23] = [
    ("expired_key", expired_key),
    ("invalid_key", invalid_key),
    ("leaked_key", leaked_key),
    ("suspended_project", suspended_project),
    ("restricted_key", restricted_key),
    ("service_disabled", service_disabled),
    ("billing", billing),
    ("free_tier_not_available", free_tier_not_available),
    ("tool_quota", tool_quota),
    ("per_day", per_day),
    ("request_too_large", request_too_large),
    ("per_minute", per_minute),
    ("model_capacity", model_capacity),
    ("ip_block", ip_block),
    ("unspecified_quota", unspecified_quota),
    ("location_unsupported", location_unsupported),
    ("credential_fault", credential_fault),
    ("model_not_found", model_not_found),
    ("server_side", server_side),
    ("unauthenticated", unauthenticated),
    ("permission_denied", permission_denied),
    ("not_an_answer", not_an_answer),
    ("bad_request", bad_request),
];

/// Google's staff withdraws such keys for good; another one has to be made.
const NEW_KEY: &str = "make a new key at https://aistudio.google.com/apikey and remove this one";

impl Case<'_> {
    fn reason(&self, reasons: &[&'static str]) -> Option<String> {
        let found = self.facts.reasons.iter().find(|reason| reasons.contains(&reason.as_str()))?;
        Some(format!("reason {found}"))
    }

    fn word(&self, words: &[&'static str]) -> Option<String> {
        let found = self.facts.words.iter().find(|word| words.contains(&word.as_str()))?;
        Some(format!("code {found}"))
    }

    fn says(&self, phrases: &[&'static str]) -> Option<String> {
        self.lower.first_of(phrases).map(|phrase| format!("the text says \"{phrase}\""))
    }

    /// Statuses under which a provider talks about keys. 0 is a reply of which only the text is known.
    const fn about_the_caller(&self) -> bool {
        matches!(self.status, 400 | 401 | 403 | 0)
    }

    fn says_of_the_caller(&self, phrases: &[&'static str]) -> Option<String> {
        if self.about_the_caller() { self.says(phrases) } else { None }
    }

    const fn is_html(&self) -> bool {
        matches!(self.facts.shape, Shape::Html)
    }
}

const fn dead(cause: Cause, scope: Scope, tell: String, fix: &'static str) -> Finding {
    Finding {
        cause,
        scope,
        wait: Wait::None,
        retry: Retry::OtherKey,
        key_is_dead: true,
        tell,
        fix: Some(fix),
    }
}

const fn quota(cause: Cause, scope: Scope, wait: Wait, tell: String) -> Finding {
    Finding { cause, scope, wait, retry: Retry::OtherKey, key_is_dead: false, tell, fix: None }
}

const fn hand_back(cause: Cause, scope: Scope, tell: String) -> Finding {
    Finding {
        cause,
        scope,
        wait: Wait::None,
        retry: Retry::Never,
        key_is_dead: false,
        tell,
        fix: None,
    }
}

fn expired_key(case: &Case<'_>) -> Option<Finding> {
    let named = case.reason(&["API_KEY_EXPIRED"]).or_else(|| case.word(&["api_key_expired"]));
    let tell =
        named.or_else(|| case.says_of_the_caller(&["api key expired", "api key has expired"]))?;
    Some(dead(Cause::ExpiredKey, Scope::Key, tell, NEW_KEY))
}

/// Google says a bad key with 400, not 401, and a cut or deleted `AQ.` key with 401.
fn invalid_key(case: &Case<'_>) -> Option<Finding> {
    let tell = case
        .reason(&["API_KEY_INVALID", "ACCESS_TOKEN_TYPE_UNSUPPORTED"])
        .or_else(|| case.word(&["invalid_api_key", "API_KEY_INVALID", "api_key_invalid"]))
        .or_else(|| {
            case.says_of_the_caller(&[
                "api key not valid",
                "api key not found",
                "pass a valid api key",
                "incorrect api key",
                "invalid api key",
                "invalid x-api-key",
            ])
        })?;
    Some(dead(Cause::InvalidKey, Scope::Key, tell, NEW_KEY))
}

fn leaked_key(case: &Case<'_>) -> Option<Finding> {
    let tell = case.says_of_the_caller(&["reported as leaked"])?;
    Some(dead(Cause::LeakedOrSuspendedKey, Scope::Key, tell, NEW_KEY))
}

fn suspended_project(case: &Case<'_>) -> Option<Finding> {
    let tell = case
        .reason(&["CONSUMER_SUSPENDED", "CONSUMER_INVALID"])
        .or_else(|| case.word(&["account_deactivated", "organization_restricted"]))
        .or_else(|| {
            case.says_of_the_caller(&[
                "has been suspended",
                "denied access",
                "has been deleted",
                "has been deactivated",
                "organization has been restricted",
                "organization has been disabled",
            ])
        })?;
    let fix = "ask Google's support why the project was suspended; its other keys are out too";
    Some(dead(Cause::LeakedOrSuspendedKey, Scope::QuotaProject, tell, fix))
}

fn restricted_key(case: &Case<'_>) -> Option<Finding> {
    let blocked = |reason: &&String| reason.starts_with("API_KEY_") && reason.ends_with("_BLOCKED");
    let named = case.facts.reasons.iter().find(blocked).map(|reason| format!("reason {reason}"));
    let tell = named.or_else(|| {
        let words = ["address restriction", " are blocked"];
        case.says_of_the_caller(&words).filter(|_| case.status != 400)
    })?;
    let fix = "lift the key's API, web site, address or app restriction in the Cloud console";
    Some(dead(Cause::PermissionOrServiceDisabled, Scope::Key, tell, fix))
}

fn service_disabled(case: &Case<'_>) -> Option<Finding> {
    let tell = case.reason(&["SERVICE_DISABLED"]).or_else(|| {
        case.says_of_the_caller(&["has not been used in project", "or it is disabled"])
    })?;
    let fix = "enable the Gemini API in the key's project, then wait a few minutes";
    Some(dead(Cause::PermissionOrServiceDisabled, Scope::QuotaProject, tell, fix))
}

/// "quota" and "billing" stand in every Gemini 429, so neither is a tell.
fn billing(case: &Case<'_>) -> Option<Finding> {
    let (tell, wait) = money(case)?;
    let fix = "add credit or raise the spending cap of the key's project";
    Some(Finding { fix: Some(fix), ..quota(Cause::Billing, Scope::QuotaProject, wait, tell) })
}

fn money(case: &Case<'_>) -> Option<(String, Wait)> {
    const SPEND_WINDOW: Wait = Wait::Stated(Duration::from_mins(10));
    let later = Wait::Reset(Window::Hour);
    if case.http == 402 || case.status == 402 {
        return Some(("HTTP status 402".to_owned(), later));
    }
    if let Some(seen) = case.seen.iter().find(|seen| about_spending(seen)) {
        return Some((seen.evidence(), SPEND_WINDOW));
    }
    if let Some(tell) = case.word(&["spend_limit_exceeded"]) {
        return Some((tell, SPEND_WINDOW));
    }
    let named = case.reason(&["BILLING_DISABLED"]).or_else(|| {
        case.word(&[
            "insufficient_quota",
            "insufficient_credits",
            "insufficient_balance",
            "exceeded_current_quota_error",
            "billing_not_active",
            "billing_hard_limit_reached",
            "billing_error",
        ])
    });
    if let Some(tell) = named {
        return Some((tell, later));
    }
    // Where a quota is named, its name is what counts.
    if !case.seen.iter().all(|seen| seen.id.is_none()) || case.status >= 500 || case.is_html() {
        return None;
    }
    if let Some(tell) = case.says(&["spend-based", "spending rate"]) {
        return Some((tell, SPEND_WINDOW));
    }
    let phrases = [
        "prepay",
        "spending cap",
        "spend cap",
        "spending limit",
        "insufficient credit",
        "insufficient balance",
        "insufficient funds",
        "credit balance is too low",
        "billing hard limit",
        "key limit exceeded",
    ];
    case.says(&phrases).map(|tell| (tell, later))
}

fn about_spending(seen: &Seen) -> bool {
    let name = seen.metric.as_deref().or(seen.id.as_deref());
    name.is_some_and(|name| name.contains("spend") || name.contains("Spend"))
}

/// Limit 0 wins over every window's name: waiting never helps.
fn free_tier_not_available(case: &Case<'_>) -> Option<Finding> {
    let zero = |seen: &&Seen| !seen.tool && seen.value == Some(0);
    let none = case.seen.iter().find(zero).map(|seen| ["limit 0: ", &seen.evidence()].concat());
    let header = || {
        let quota = case.about_quota.then(|| case.headers.without_quota()).flatten();
        quota.map(|_| "a limit header is 0".to_owned())
    };
    let text = || {
        let words = ["only accessible to billed users", "only available to billed users"];
        case.says_of_the_caller(&words)
    };
    let tell = none.or_else(header).or_else(text)?;
    let fix =
        "this model has no free quota in the key's project: use another model, or enable billing";
    let finding = quota(Cause::FreeTierNotAvailable, Scope::Bucket, Wait::None, tell);
    Some(Finding { fix: Some(fix), ..finding })
}

/// Plain requests go on.
fn tool_quota(case: &Case<'_>) -> Option<Finding> {
    let named = case
        .seen
        .iter()
        .find(|seen| seen.tool)
        .map(|seen| ["a tool's quota: ", &seen.evidence()].concat());
    let tell = named.or_else(|| {
        let unnamed =
            case.asked.tools && case.about_quota && case.seen.is_empty() && !case.is_html();
        unnamed.then(|| "the request used a tool, and no model quota is named".to_owned())
    })?;
    let fix = "search grounding and URL context have little or no free quota: ask without them";
    let wait = Wait::Stated(Duration::from_hours(1));
    Some(Finding { fix: Some(fix), ..quota(Cause::ToolQuota, Scope::Tool, wait, tell) })
}

fn per_day(case: &Case<'_>) -> Option<Finding> {
    of_cause(case, Cause::PerDayRequests).or_else(|| of_cause(case, Cause::PerDayTokens))
}

fn per_minute(case: &Case<'_>) -> Option<Finding> {
    of_cause(case, Cause::PerMinuteTokens).or_else(|| of_cause(case, Cause::PerMinuteRequests))
}

fn of_cause(case: &Case<'_>, cause: Cause) -> Option<Finding> {
    let seen = case.seen.iter().find(|seen| {
        !seen.tool && seen.cause() == Some(cause) && !seen.is_too_small_for(case.asked.tokens)
    })?;
    let beside_a_day = case.seen.iter().any(|seen| seen.span == Span::Day && !seen.tool);
    let wait = seen.wait(&case.stated, beside_a_day);
    Some(quota(cause, Scope::Bucket, wait, seen.evidence()))
}

fn request_too_large(case: &Case<'_>) -> Option<Finding> {
    let tell = if case.http == 413 || case.status == 413 {
        "HTTP status 413".to_owned()
    } else if let Some(seen) =
        case.seen.iter().find(|seen| seen.is_too_small_for(case.asked.tokens))
    {
        let asked = seen.requested.or(case.asked.tokens).unwrap_or(0);
        format!("{asked} tokens asked of a limit of {}", seen.value.unwrap_or(0))
    } else if case.about_quota || case.status == 400 {
        case.word(&["context_length_exceeded"]).or_else(|| {
            case.says(&[
                "request too large",
                "exceeds the maximum number of tokens",
                "payload size exceeds the limit",
                "maximum context length",
                "prompt is too long",
            ])
        })?
    } else {
        return None;
    };
    let fix = "send less at once: no wait and no other key makes room for it";
    let finding = hand_back(Cause::RequestTooLarge, Scope::Request, tell);
    Some(Finding { fix: Some(fix), ..finding })
}

/// A 429 that is the model's doing, not the key's.
fn model_capacity(case: &Case<'_>) -> Option<Finding> {
    if !case.about_quota || case.is_html() {
        return None;
    }
    let tell = capacity(case)?;
    Some(soft(case, Cause::Overloaded, tell))
}

fn capacity(case: &Case<'_>) -> Option<String> {
    case.reason(&["MODEL_CAPACITY_EXHAUSTED"])
        .or_else(|| case.word(&["overloaded_error", "queue_exceeded", "capacity_exceeded"]))
        .or_else(|| {
            case.says(&[
                "overloaded",
                "high demand",
                "high traffic",
                "no capacity available",
                "capacity exceeded",
                "at capacity",
            ])
        })
}

fn soft(case: &Case<'_>, cause: Cause, tell: String) -> Finding {
    Finding {
        cause,
        scope: Scope::Model,
        wait: case.stated.wait.map_or(Wait::None, Wait::Stated),
        retry: Retry::BackOff,
        key_is_dead: false,
        tell,
        fix: None,
    }
}

/// Pages come from the front end, which knows addresses and not keys.
fn ip_block(case: &Case<'_>) -> Option<Finding> {
    let tell = if case.is_html() && matches!(case.status, 429 | 403) {
        format!("an HTML page with status {}", case.status)
    } else if case.is_html() {
        case.says(&["automated queries", "unusual traffic", "you have been blocked"])?
    } else if matches!(case.status, 429 | 403) {
        // Cloudflare's own refusals.
        case.says(&["error code: 1015", "error code: 1020", "error code: 1006"])?
    } else {
        return None;
    };
    Some(Finding {
        cause: Cause::IpBlock,
        scope: Scope::Host,
        wait: Wait::Stated(Duration::from_mins(1)),
        retry: Retry::Later,
        key_is_dead: false,
        tell,
        fix: Some(
            "this machine's address is refused for a while, whichever key is used: send less",
        ),
    })
}

fn unspecified_quota(case: &Case<'_>) -> Option<Finding> {
    if !case.about_quota {
        return None;
    }
    let tell = match case.facts.rpc {
        Some(rpc) if rpc.http == 429 => format!("{}, and no quota is named", rpc.name),
        _ => format!("HTTP status {}, and no quota is named", case.status),
    };
    // A window that nothing is kept for, such as an hour, comes here too.
    let hourly = case.seen.first().map(|seen| seen.wait(&case.stated, false));
    let wait = hourly.unwrap_or_else(|| case.stated.wait.map_or(Wait::Ladder, Wait::Stated));
    if case.stated.is_long() && hourly.is_none() {
        let tell = format!("{tell}; a stated wait of over 10 minutes is a day's");
        return Some(quota(Cause::PerDayRequests, Scope::Bucket, wait, tell));
    }
    Some(quota(Cause::UnspecifiedQuota, Scope::Bucket, wait, tell))
}

/// The caller's address, which changes with the route; or the project's country, which does not.
fn location_unsupported(case: &Case<'_>) -> Option<Finding> {
    if let Some(tell) =
        case.says_of_the_caller(&["from your billing country", "billing country is not"])
    {
        let fix = "the project's billing country is not served: use a key of another project";
        return Some(dead(Cause::LocationUnsupported, Scope::QuotaProject, tell, fix));
    }
    let tell = case.word(&["unsupported_country_region_territory"]).or_else(|| {
        case.says_of_the_caller(&[
            "location is not supported",
            "not available in your country",
            "not available in your region",
            "not available in your location",
            "country, region, or territory not supported",
        ])
    })?;
    let fix = "requests leave from a place that is not served: change the route, not the key";
    let finding = hand_back(Cause::LocationUnsupported, Scope::Nobody, tell);
    Some(Finding { fix: Some(fix), ..finding })
}

fn credential_fault(case: &Case<'_>) -> Option<Finding> {
    let tell = case.reason(&["CREDENTIALS_MISSING"]).or_else(|| {
        case.says_of_the_caller(&[
            "multiple authentication credentials",
            "authorization header",
            "missing authentication",
            "unregistered callers",
            "without established identity",
            "missing required authentication",
            "missing a valid api key",
            "missing api key",
            "provide an api key",
            "api key is required",
            "no auth credentials",
            "api keys are not supported",
        ])
    });
    let bare = case.status == 401 && case.facts.messages.is_empty() && case.facts.rpc.is_none();
    let tell = tell.or_else(|| bare.then(|| "HTTP status 401 without a word".to_owned()))?;
    let fix = "exactly one credential must reach the provider: see what the proxy in between adds or drops";
    let finding = hand_back(Cause::CredentialFault, Scope::Nobody, tell);
    Some(Finding { fix: Some(fix), ..finding })
}

fn model_not_found(case: &Case<'_>) -> Option<Finding> {
    const CODES: [&str; 4] =
        ["model_not_found", "model_decommissioned", "MODEL_NOT_FOUND", "not_found_model"];
    let named = case.word(&CODES);
    if named.is_none() && (!matches!(case.status, 404 | 410) || case.is_html()) {
        return None;
    }
    let text = case.lower.text();
    let about_models = text.contains("model");
    // A file, a cache, a batch of another project: nothing is wrong with the model.
    let others = ["cachedcontent", "cached content", "file", "operation", "batch", "interaction"];
    let about_others = !about_models && others.iter().any(|word| text.contains(word));
    let spoken = case.facts.rpc.is_some() || about_models || case.asked.model.is_some();
    let tell = named.or_else(|| {
        let here = spoken && !about_others && case.facts.error;
        here.then(|| format!("HTTP status {} on a model route", case.status))
    })?;
    let not_this_project = ["no longer available to new users", "does not have access to model"];
    if let Some(tell) = case.says(&not_this_project) {
        return Some(quota(Cause::ModelNotFound, Scope::Bucket, Wait::None, tell));
    }
    let finding = hand_back(Cause::ModelNotFound, Scope::Model, tell);
    Some(Finding { retry: Retry::OtherModel, ..finding })
}

/// Server faults never blame a key.
fn server_side(case: &Case<'_>) -> Option<Finding> {
    let tell = match case.facts.rpc {
        Some(rpc) => rpc.name.to_owned(),
        None => format!("HTTP status {}", case.status),
    };
    let cause = match case.status {
        499 => Cause::Cancelled,
        408 | 504 => Cause::Deadline,
        529 => Cause::Overloaded,
        500..=599 if case.is_html() => Cause::ServerError,
        500..=599 => {
            if let Some(tell) = case.says(&["deadline expired", "deadline exceeded"]) {
                return Some(soft(case, Cause::Deadline, tell));
            }
            if let Some(tell) = capacity(case) {
                return Some(soft(case, Cause::Overloaded, tell));
            }
            match case.facts.rpc {
                Some(rpc) if rpc.http == 503 => Cause::Overloaded,
                _ => Cause::ServerError,
            }
        }
        _ => return None,
    };
    Some(soft(case, cause, tell))
}

/// A 401 that names no reason: the key was looked at and not known.
fn unauthenticated(case: &Case<'_>) -> Option<Finding> {
    let word = case.word(&["authentication", "authentication_error", "unauthenticated"]);
    let tell = match case.status {
        401 => word.unwrap_or_else(|| "HTTP status 401".to_owned()),
        _ => word.filter(|_| case.about_the_caller())?,
    };
    Some(dead(Cause::InvalidKey, Scope::Key, tell, NEW_KEY))
}

/// A 403 that names no reason and no object: the key may not do this.
fn permission_denied(case: &Case<'_>) -> Option<Finding> {
    let google = case.facts.rpc.is_some_and(|rpc| rpc.http == 403);
    let named = case.word(&["permission_denied", "permission_error"]);
    let tell = if google { Some("PERMISSION_DENIED".to_owned()) } else { named }?;
    // Another project's file, cache or tuned model: not the key's fault.
    let objects = ["to access the", "may not exist", "cachedcontent", "file", "tuned", "operation"];
    if case.status != 403 || case.lower.first_of(&objects).is_some() {
        return None;
    }
    let fix = "give the key's project access to the Gemini API, or use a key of another project";
    Some(dead(Cause::PermissionOrServiceDisabled, Scope::Key, tell, fix))
}

/// Nothing that a provider of models says: another program answered, or nobody did.
fn not_an_answer(case: &Case<'_>) -> Option<Finding> {
    let tell = match case.status {
        0 => "no status and no tell in the body".to_owned(),
        100..=299 if case.facts.error => "an error inside a reply that claims success".to_owned(),
        100..=299 => "a page where an answer should be".to_owned(),
        600.. => format!("HTTP status {}", case.status),
        _ => return None,
    };
    Some(soft(case, Cause::ServerError, tell))
}

/// The rest is between the caller and the provider, redirects included, which are not followed.
fn bad_request(case: &Case<'_>) -> Option<Finding> {
    let tell = format!("HTTP status {}, and no rule knows better", case.status);
    let finding = hand_back(Cause::BadRequest, Scope::Request, tell);
    let fix = "redirects are not followed, for the key must not: check the base URL";
    Some(Finding { fix: (300..400).contains(&case.status).then_some(fix), ..finding })
}

/// True when the reply is about a quota at all.
pub(super) fn is_about_quota(status: u16, facts: &Facts, dialect: Dialect) -> bool {
    const CODES: [&str; 10] = [
        "rate_limit_exceeded",
        "rate_limit_error",
        "rate_limited",
        "rate_limit_reached_error",
        "insufficient_quota",
        "token_quota_exceeded",
        "too_many_tokens_error",
        "too_many_requests_error",
        "request_quota_exceeded",
        "spend_limit_exceeded",
    ];
    if status == 429 || !facts.violations.is_empty() {
        return true;
    }
    let exhausted = facts.rpc.is_some_and(|rpc| rpc.http == 429);
    let word = |word: &String| {
        CODES.contains(&word.as_str()) || word == "quota_exceeded" && dialect == Dialect::Gemini
    };
    exhausted || facts.words.iter().any(word)
}
