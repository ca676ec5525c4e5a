//! Rules about quotas and money.

use std::time::Duration;

use keywheel_core::{Cause, Scope, Wait, Window};

use super::{
    super::{message::Span, quota::Seen, verdict::Retry},
    Case, Finding, hand_back, quota, soft,
};

/// "quota" and "billing" stand in every Gemini 429, so neither is a tell.
pub(super) fn billing(case: &Case<'_>) -> Option<Finding> {
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
    if let Some(seen) = case.seen.iter().find(|seen| seen.guessed && about_spending(seen)) {
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
    let named = case.seen.iter().any(|seen| seen.id.is_some());
    if named || case.status >= 500 || case.is_html() || case.facts.repeats_the_request() {
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
pub(super) fn free_tier_not_available(case: &Case<'_>) -> Option<Finding> {
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
pub(super) fn tool_quota(case: &Case<'_>) -> Option<Finding> {
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
    let wait = Wait::Reset(Window::Hour);
    Some(Finding { fix: Some(fix), ..quota(Cause::ToolQuota, Scope::Tool, wait, tell) })
}

pub(super) fn per_day(case: &Case<'_>) -> Option<Finding> {
    of_cause(case, Cause::PerDayRequests).or_else(|| of_cause(case, Cause::PerDayTokens))
}

pub(super) fn per_minute(case: &Case<'_>) -> Option<Finding> {
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

pub(super) fn request_too_large(case: &Case<'_>) -> Option<Finding> {
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
pub(super) fn model_capacity(case: &Case<'_>) -> Option<Finding> {
    if !case.about_quota || case.is_html() {
        return None;
    }
    let tell = capacity(case)?;
    Some(soft(case, Cause::Overloaded, tell))
}

pub(super) fn capacity(case: &Case<'_>) -> Option<String> {
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

/// Pages come from the front end, which knows addresses and not keys.
pub(super) fn ip_block(case: &Case<'_>) -> Option<Finding> {
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
    let fix = "this machine's address is refused for a while, whichever key is used: send less";
    // Nobody states a wait: a minute at first, longer if it is met again.
    let finding = quota(Cause::IpBlock, Scope::Host, Wait::Ladder, tell);
    Some(Finding { retry: Retry::Later, fix: Some(fix), ..finding })
}

pub(super) fn unspecified_quota(case: &Case<'_>) -> Option<Finding> {
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
