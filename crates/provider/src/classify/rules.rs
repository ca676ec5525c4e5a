//! The rules, in the order in which they are tried: the first that matches gives the headline.
//!
//! A new kind of reply is a new row, or a new word in a row's list, and a case in `corpus/`. The
//! words are lower case. Every row looks for names first (`reason`, `quotaId`, code) and for prose
//! last.

use keywheel_core::{Cause, Scope, Wait};

use super::{
    body::{Facts, Shape},
    headers::RateHeaders,
    message::Lower,
    quota::{Seen, Stated},
    verdict::{Asked, Dialect, Retry},
};

mod keys;
mod others;
mod quotas;

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
    /// It goes by something that the reply says.
    pub(super) recognised: bool,
    pub(super) tell: String,
    pub(super) fix: Option<&'static str>,
}

type Rule = fn(&Case<'_>) -> Option<Finding>;

/// The table.
pub(super) const RULES: [(&str, Rule); 23] = [
    ("expired_key", keys::expired_key),
    ("invalid_key", keys::invalid_key),
    ("leaked_key", keys::leaked_key),
    ("suspended_project", keys::suspended_project),
    ("restricted_key", keys::restricted_key),
    ("service_disabled", keys::service_disabled),
    ("billing", quotas::billing),
    ("free_tier_not_available", quotas::free_tier_not_available),
    ("tool_quota", quotas::tool_quota),
    ("per_day", quotas::per_day),
    ("request_too_large", quotas::request_too_large),
    ("per_minute", quotas::per_minute),
    ("model_capacity", quotas::model_capacity),
    ("ip_block", quotas::ip_block),
    ("unspecified_quota", quotas::unspecified_quota),
    ("location_unsupported", others::location_unsupported),
    ("credential_fault", others::credential_fault),
    ("model_not_found", others::model_not_found),
    ("server_side", others::server_side),
    ("unauthenticated", keys::unauthenticated),
    ("permission_denied", keys::permission_denied),
    ("not_an_answer", others::not_an_answer),
    ("bad_request", others::bad_request),
];

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

    /// Statuses under which a provider talks about keys. 0 is a reply of which only the text is
    /// known.
    const fn about_the_caller(&self) -> bool {
        matches!(self.status, 400 | 401 | 403 | 0)
    }

    /// What is said of the route and the request, anywhere in the text.
    fn says_of_the_caller(&self, phrases: &[&'static str]) -> Option<String> {
        if !self.about_the_caller() || self.facts.repeats_the_request() {
            return None;
        }
        self.says(phrases)
    }

    /// What may cost a key its life: only as the provider's own words.
    fn says_of_the_key(&self, phrases: &[&'static str]) -> Option<String> {
        if !self.about_the_caller() || self.facts.repeats_the_request() {
            return None;
        }
        self.lower.first_claimed(phrases).map(|phrase| format!("the text says \"{phrase}\""))
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
        recognised: true,
        tell,
        fix: Some(fix),
    }
}

const fn quota(cause: Cause, scope: Scope, wait: Wait, tell: String) -> Finding {
    Finding {
        cause,
        scope,
        wait,
        retry: Retry::OtherKey,
        key_is_dead: false,
        recognised: true,
        tell,
        fix: None,
    }
}

const fn hand_back(cause: Cause, scope: Scope, tell: String) -> Finding {
    Finding {
        cause,
        scope,
        wait: Wait::None,
        retry: Retry::Never,
        key_is_dead: false,
        recognised: true,
        tell,
        fix: None,
    }
}

fn soft(case: &Case<'_>, cause: Cause, tell: String) -> Finding {
    Finding {
        cause,
        scope: Scope::Model,
        wait: case.stated.wait.map_or(Wait::None, Wait::Stated),
        retry: Retry::BackOff,
        key_is_dead: false,
        recognised: true,
        tell,
        fix: None,
    }
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
