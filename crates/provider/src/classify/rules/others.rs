//! Rules about everything that is neither a key's nor a quota's fault.

use keywheel_core::{Cause, Scope, Wait};

use super::{super::verdict::Retry, Case, Finding, dead, hand_back, quota, quotas::capacity, soft};

/// The caller's address, which changes with the route; or the project's country, which does not.
pub(super) fn location_unsupported(case: &Case<'_>) -> Option<Finding> {
    if let Some(tell) =
        case.says_of_the_key(&["from your billing country", "billing country is not"])
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

pub(super) fn credential_fault(case: &Case<'_>) -> Option<Finding> {
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

pub(super) fn model_not_found(case: &Case<'_>) -> Option<Finding> {
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
pub(super) fn server_side(case: &Case<'_>) -> Option<Finding> {
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

/// Nothing that a provider of models says: another program answered, or nobody did.
pub(super) fn not_an_answer(case: &Case<'_>) -> Option<Finding> {
    let tell = match case.status {
        0 => "no status and no tell in the body".to_owned(),
        100..=299 if case.facts.error => "an error inside a reply that claims success".to_owned(),
        100..=299 => "a page where an answer should be".to_owned(),
        600.. => format!("HTTP status {}", case.status),
        _ => return None,
    };
    Some(Finding { recognised: case.status != 0, ..soft(case, Cause::ServerError, tell) })
}

/// The rest is between the caller and the provider, redirects included, which are not followed.
pub(super) fn bad_request(case: &Case<'_>) -> Option<Finding> {
    let tell = format!("HTTP status {}, and no rule knows better", case.status);
    let finding = hand_back(Cause::BadRequest, Scope::Request, tell);
    let fix = "redirects are not followed, for the key must not: check the base URL";
    Some(Finding { fix: (300..400).contains(&case.status).then_some(fix), ..finding })
}
