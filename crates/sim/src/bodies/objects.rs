//! Errors about objects that belong to a quota project: files and cached contents.

use super::ErrorBody;

/// No such file for this project: another project's, expired, or never there
/// (<https://github.com/googleapis/python-genai/issues/1218>).
pub(crate) fn file_forbidden(id: &str) -> ErrorBody {
    let message =
        format!("You do not have permission to access the File {id} or it may not exist.");
    ErrorBody::new(403, "PERMISSION_DENIED", message)
}

/// The file is there, but not ready (<https://github.com/expectedparrot/edsl/issues/1907>).
pub(crate) fn file_not_active(id: &str) -> ErrorBody {
    let message = format!("The File {id} is not in an ACTIVE state and usage is not allowed.");
    ErrorBody::new(400, "FAILED_PRECONDITION", message)
}

/// The id that was wanted is taken. No public reply is known: status and text are Google's general ones.
pub(crate) fn already_exists() -> ErrorBody {
    ErrorBody::new(409, "ALREADY_EXISTS", "Requested entity already exists")
}

/// There is no such upload. No public reply is known.
pub(crate) fn no_such_upload() -> ErrorBody {
    ErrorBody::new(404, "NOT_FOUND", "Requested entity was not found.")
}

/// No such cache for this project: another project's, expired, or never there. The words are those that users
/// of the SDKs quote.
pub(crate) fn cache_forbidden() -> ErrorBody {
    let message = "CachedContent not found (or permission denied)";
    ErrorBody::new(403, "PERMISSION_DENIED", message)
}

/// A cache serves one model only. The words are those that users of the SDKs quote.
pub(crate) fn cache_of_other_model(asked: &str, cached: &str) -> ErrorBody {
    let message = format!(
        "Model used by GenerateContent request (models/{asked}) and CachedContent \
         (models/{cached}) has to be the same."
    );
    ErrorBody::new(400, "INVALID_ARGUMENT", message)
}

/// What is cached cannot be set once more (<https://github.com/BerriAI/litellm/issues/17304>).
pub(crate) fn cache_with_settings() -> ErrorBody {
    let message = "CachedContent can not be used with GenerateContent request setting \
                   system_instruction, tools or tool_config.\n\nProposed fix: move those values to \
                   CachedContent from GenerateContent request.";
    ErrorBody::new(400, "INVALID_ARGUMENT", message)
}

/// Short prompts are not worth caching
/// (<https://github.com/google-gemini/deprecated-generative-ai-js/issues/454>).
pub(crate) fn cache_too_small(tokens: u64, minimum: u64) -> ErrorBody {
    let message = format!(
        "Cached content is too small. total_token_count={tokens}, min_total_token_count={minimum}"
    );
    ErrorBody::new(400, "INVALID_ARGUMENT", message)
}

/// Free projects may store no cached tokens of this model
/// (<https://anabel.icu/blog/gemini-free-tier-fix-caching>).
pub(crate) fn caches_not_free(model: &str, tokens: u64) -> ErrorBody {
    let message = format!(
        "TotalCachedContentStorageTokensPerModelFreeTier limit exceeded for model {model}: \
         limit=0, requested={tokens}"
    );
    ErrorBody::new(429, "RESOURCE_EXHAUSTED", message)
}
