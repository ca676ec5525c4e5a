//! Rules about keys and their projects.

use keywheel_core::{Cause, Scope};

use super::{Case, Finding, dead};

/// Google's staff withdraws such keys for good; another one has to be made.
const NEW_KEY: &str = "make a new key at https://aistudio.google.com/apikey and remove this one";

pub(super) fn expired_key(case: &Case<'_>) -> Option<Finding> {
    let named = case.reason(&["API_KEY_EXPIRED"]).or_else(|| case.word(&["api_key_expired"]));
    let tell =
        named.or_else(|| case.says_of_the_key(&["api key expired", "api key has expired"]))?;
    Some(dead(Cause::ExpiredKey, Scope::Key, tell, NEW_KEY))
}

/// Google says a bad key with 400, not 401, and a cut or deleted `AQ.` key with 401.
pub(super) fn invalid_key(case: &Case<'_>) -> Option<Finding> {
    let tell = case
        .reason(&["API_KEY_INVALID", "ACCESS_TOKEN_TYPE_UNSUPPORTED"])
        .or_else(|| case.word(&["invalid_api_key", "API_KEY_INVALID", "api_key_invalid"]))
        .or_else(|| {
            case.says_of_the_key(&[
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

pub(super) fn leaked_key(case: &Case<'_>) -> Option<Finding> {
    let tell = case.says_of_the_key(&["reported as leaked"])?;
    Some(dead(Cause::LeakedOrSuspendedKey, Scope::Key, tell, NEW_KEY))
}

pub(super) fn suspended_project(case: &Case<'_>) -> Option<Finding> {
    let tell = case
        .reason(&["CONSUMER_SUSPENDED", "CONSUMER_INVALID"])
        .or_else(|| case.word(&["account_deactivated", "organization_restricted"]))
        .or_else(|| {
            case.says_of_the_key(&[
                "has been suspended",
                "been denied access",
                "project has been deleted",
                "account has been deactivated",
                "organization has been restricted",
                "organization has been disabled",
            ])
        })?;
    let fix = "ask Google's support why the project was suspended; its other keys are out too";
    Some(dead(Cause::LeakedOrSuspendedKey, Scope::QuotaProject, tell, fix))
}

pub(super) fn restricted_key(case: &Case<'_>) -> Option<Finding> {
    let blocked = |reason: &&String| reason.starts_with("API_KEY_") && reason.ends_with("_BLOCKED");
    let named = case.facts.reasons.iter().find(blocked).map(|reason| format!("reason {reason}"));
    let tell = named.or_else(|| {
        let words = ["address restriction", " are blocked"];
        case.says_of_the_key(&words).filter(|_| case.status != 400)
    })?;
    let fix = "lift the key's API, web site, address or app restriction in the Cloud console";
    Some(dead(Cause::PermissionOrServiceDisabled, Scope::Key, tell, fix))
}

pub(super) fn service_disabled(case: &Case<'_>) -> Option<Finding> {
    let tell = case
        .reason(&["SERVICE_DISABLED"])
        .or_else(|| case.says_of_the_key(&["has not been used in project", "or it is disabled"]))?;
    let fix = "enable the Gemini API in the key's project, then wait a few minutes";
    Some(dead(Cause::PermissionOrServiceDisabled, Scope::QuotaProject, tell, fix))
}

/// A 401 that names no reason: the key was looked at and not known.
pub(super) fn unauthenticated(case: &Case<'_>) -> Option<Finding> {
    let word = case.word(&["authentication", "authentication_error", "unauthenticated"]);
    let tell = match case.status {
        401 => word.unwrap_or_else(|| "HTTP status 401".to_owned()),
        _ => word.filter(|_| case.about_the_caller())?,
    };
    Some(dead(Cause::InvalidKey, Scope::Key, tell, NEW_KEY))
}

/// A 403 that names no reason and no object: the key may not do this.
pub(super) fn permission_denied(case: &Case<'_>) -> Option<Finding> {
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
