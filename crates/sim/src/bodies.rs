//! Error bodies in the shapes of real ones. The case numbers are those of the published corpus.

mod objects;
mod quota;

use keywheel_core::Cause;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    config::{KeyState, ProjectState},
    reply::{HTML, HttpReply, JSON},
    route::Verb,
};

pub(crate) use objects::{
    already_exists, cache_forbidden, cache_of_other_model, cache_too_small, cache_with_settings,
    caches_not_free, file_forbidden, file_not_active, no_such_upload,
};
pub(crate) use quota::{QuotaRefusal, go_duration};

/// The simulated machine's address, from the block set aside for documentation.
const CALLER_ADDRESS: &str = "203.0.113.7";
const SERVICE: &str = "generativelanguage.googleapis.com";

/// An error of Google's, before it is written down.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ErrorBody {
    code: u16,
    message: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<Value>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: &'a ErrorBody,
}

impl ErrorBody {
    fn new(code: u16, status: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), status, details: Vec::new() }
    }

    fn with_details(mut self, details: Vec<Value>) -> Self {
        self.details = details;
        self
    }

    /// With an `ErrorInfo` and the message once more, as newer replies have it.
    fn with_reason(self, reason: &str, metadata: Value) -> Self {
        let message = self.message.clone();
        let info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "googleapis.com",
            "metadata": metadata,
        });
        let localized = json!({
            "@type": "type.googleapis.com/google.rpc.LocalizedMessage",
            "locale": "en-US",
            "message": message,
        });
        self.with_details(vec![info, localized])
    }

    pub(crate) const fn code(&self) -> u16 {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The body as it stands in a reply of its own: indented, and in an array where a stream of JSON was
    /// asked for (068).
    pub(crate) fn reply(&self, in_array: bool) -> HttpReply {
        let object = pretty(&Envelope { error: self });
        let body = if in_array { format!("[{object}]\n") } else { object };
        HttpReply::whole(self.code, JSON, body)
    }

    /// The body on one line, as it stands in a stream (143, 144).
    pub(crate) fn one_line(&self) -> String {
        serde_json::to_string(&Envelope { error: self }).expect("plain data serialises")
    }
}

pub(crate) fn pretty<T: Serialize>(value: &T) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("plain data serialises");
    text.push('\n');
    text
}

/// Why a key is not served, and how that is said; `None` when it is served.
pub(crate) fn key_state(state: KeyState, project: u64) -> Option<(Cause, ErrorBody)> {
    let consumer = format!("projects/{project}");
    let denied = |message: &str| ErrorBody::new(403, "PERMISSION_DENIED", message);
    let blocked = Cause::PermissionOrServiceDisabled;
    Some(match state {
        KeyState::Ok => return None,
        KeyState::Invalid => (Cause::InvalidKey, invalid_key()),
        // 102
        KeyState::Expired => {
            let body = ErrorBody::new(
                400,
                "INVALID_ARGUMENT",
                "API key expired. Please renew the API key.",
            );
            (Cause::ExpiredKey, body.with_reason("API_KEY_INVALID", json!({"service": SERVICE})))
        }
        // 105
        KeyState::Leaked => {
            let body = denied("Your API key was reported as leaked. Please use another API key.");
            (Cause::LeakedOrSuspendedKey, body)
        }
        // 116
        KeyState::ReferrerBlocked => {
            let metadata =
                json!({"consumer": consumer, "service": SERVICE, "httpReferrer": "<empty>"});
            let body = denied("Requests from referer <empty> are blocked.");
            (blocked, body.with_reason("API_KEY_HTTP_REFERRER_BLOCKED", metadata))
        }
        // 117
        KeyState::IpBlocked => {
            let message = format!(
                "The provided API key has an IP address restriction. The originating IP address of \
                 the call ({CALLER_ADDRESS}) violates this restriction."
            );
            let metadata =
                json!({"consumer": consumer, "service": SERVICE, "callerIp": CALLER_ADDRESS});
            (blocked, denied(&message).with_reason("API_KEY_IP_ADDRESS_BLOCKED", metadata))
        }
        // 115
        KeyState::ServiceBlocked => {
            let message = format!(
                "Requests to this API {SERVICE} method \
                 google.ai.generativelanguage.v1beta.GenerativeService.GenerateContent are blocked."
            );
            let metadata = json!({"consumer": consumer, "service": SERVICE});
            (blocked, denied(&message).with_reason("API_KEY_SERVICE_BLOCKED", metadata))
        }
        KeyState::Unauthenticated => (Cause::InvalidKey, unauthenticated()),
    })
}

/// Why a quota project is not served, and how that is said; `None` when it is served.
///
/// `key` is the key as presented: the reply to a suspended project repeats it (106).
pub(crate) fn project_state(
    state: ProjectState,
    project: u64,
    key: &str,
) -> Option<(Cause, ErrorBody)> {
    let denied = |message: &str| ErrorBody::new(403, "PERMISSION_DENIED", message);
    Some(match state {
        ProjectState::Ok => return None,
        // 106
        ProjectState::Suspended => {
            let message =
                format!("Permission denied: Consumer 'api_key:{key}' has been suspended.");
            let metadata = json!({
                "consumer": format!("projects/{project}"),
                "service": SERVICE,
                "containerInfo": format!("api_key:{key}"),
            });
            let body = denied(&message).with_reason("CONSUMER_SUSPENDED", metadata);
            (Cause::LeakedOrSuspendedKey, body)
        }
        // https://github.com/poenl/gemini-api/issues/8
        ProjectState::Denied => {
            let message = "Your project has been denied access. Please contact support.";
            (Cause::LeakedOrSuspendedKey, denied(message))
        }
        // 112
        ProjectState::ServiceDisabled => {
            let url = format!(
                "https://console.developers.google.com/apis/api/{SERVICE}/overview?project={project}"
            );
            let message = format!(
                "Gemini API has not been used in project {project} before or it is disabled. Enable \
                 it by visiting {url} then retry. If you enabled this API recently, wait a few \
                 minutes for the action to propagate to our systems and retry."
            );
            let metadata = json!({
                "service": SERVICE,
                "activationUrl": url,
                "consumer": format!("projects/{project}"),
                "serviceTitle": "Gemini API",
                "containerInfo": project.to_string(),
            });
            let body = denied(&message).with_reason("SERVICE_DISABLED", metadata);
            (Cause::PermissionOrServiceDisabled, body)
        }
        // 110
        ProjectState::CountryRestricted => {
            let message = format!(
                "Access to {SERVICE} is restricted from your billing country and was denied for \
                 project {project}."
            );
            (Cause::LocationUnsupported, denied(&message))
        }
        // 075
        ProjectState::PrepayDepleted => {
            let message = "Your prepayment credits are depleted. Please go to AI Studio at \
                           https://ai.studio/projects to manage your project and billing. Learn \
                           more at https://ai.google.dev/gemini-api/docs/billing#prepay.";
            (Cause::Billing, ErrorBody::new(402, "RESOURCE_EXHAUSTED", message))
        }
        // 072
        ProjectState::SpendCapReached => {
            let message = "Your project has exceeded its monthly spending cap. Please go to AI \
                           Studio at https://ai.studio/spend to manage your project spend cap.";
            (Cause::Billing, ErrorBody::new(429, "RESOURCE_EXHAUSTED", message))
        }
    })
}

/// A key that Google does not know: 400, not 401 (100).
pub(crate) fn invalid_key() -> ErrorBody {
    ErrorBody::new(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.")
        .with_reason("API_KEY_INVALID", json!({"service": SERVICE}))
}

/// A credential of a kind that native routes do not take (120).
pub(crate) fn unauthenticated() -> ErrorBody {
    let message = "Request had invalid authentication credentials. Expected OAuth 2 access token, \
                   login cookie or other valid authentication credential. See \
                   https://developers.google.com/identity/sign-in/web/devconsole-project.";
    let info = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "ACCESS_TOKEN_TYPE_UNSUPPORTED",
        "metadata": {
            "method": "google.ai.generativelanguage.v1beta.GenerativeService.GenerateContent",
            "service": SERVICE,
        },
    });
    ErrorBody::new(401, "UNAUTHENTICATED", message).with_details(vec![info])
}

/// No key came (121).
pub(crate) fn no_credential() -> ErrorBody {
    let message = "Method doesn't allow unregistered callers (callers without established \
                   identity). Please use API Key or other form of API consumer identity to call \
                   this API.";
    ErrorBody::new(403, "PERMISSION_DENIED", message)
}

/// The OpenAI-style layer takes keys from one header only (122).
pub(crate) fn no_bearer() -> ErrorBody {
    ErrorBody::new(400, "INVALID_ARGUMENT", "Missing or invalid Authorization header.")
}

/// Two came (123).
pub(crate) fn several_credentials() -> ErrorBody {
    let message = "Multiple authentication credentials received. Please pass only one.";
    ErrorBody::new(400, "INVALID_ARGUMENT", message)
}

/// There is no such model, or it cannot do that (129).
pub(crate) fn model_not_found(model: &str, version: &str, verb: Verb) -> ErrorBody {
    let message = format!(
        "models/{model} is not found for API version {version}, or is not supported for {}. Call \
         ListModels to see the list of available models and their supported methods.",
        verb.as_str()
    );
    ErrorBody::new(404, "NOT_FOUND", message)
}

/// There is such a model, for others (131).
pub(crate) fn model_closed(model: &str) -> ErrorBody {
    let message = format!(
        "This model models/{model} is no longer available to new users. Please update your code to \
         use a newer model for the latest features and improvements."
    );
    ErrorBody::new(404, "NOT_FOUND", message)
}

/// The request is at fault.
pub(crate) fn bad_request(message: impl Into<String>) -> ErrorBody {
    ErrorBody::new(400, "INVALID_ARGUMENT", message)
}

/// A token that continues nothing of this project's. No public reply is known.
pub(crate) fn wrong_continuation() -> ErrorBody {
    bad_request("The continuation token is invalid or does not belong to this request.")
}

/// A quota that is not named (066).
pub(crate) fn bare_429() -> ErrorBody {
    let message = "Resource has been exhausted (e.g. check quota).";
    ErrorBody::new(429, "RESOURCE_EXHAUSTED", message)
}

/// The tool's own quota, which free projects have nothing of (078).
pub(crate) fn tool_refused() -> ErrorBody {
    let metric = format!("{SERVICE}/search_grounding_requests");
    let failure = json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{
            "quotaMetric": metric,
            "quotaId": "SearchGroundingRequestsPerDay-FreeTier",
            "quotaValue": "0",
        }],
    });
    let message = format!("Quota exceeded for metric: {metric}, limit: 0");
    ErrorBody::new(429, "RESOURCE_EXHAUSTED", message).with_details(vec![failure])
}

/// Too many callers for the model (141).
pub(crate) fn overloaded() -> ErrorBody {
    let message = "This model is currently experiencing high demand. Spikes in demand are usually \
                   temporary. Please try again later.";
    ErrorBody::new(503, "UNAVAILABLE", message)
}

/// Something broke (146).
pub(crate) fn internal() -> ErrorBody {
    ErrorBody::new(500, "INTERNAL", "Internal error encountered.")
}

/// The provider's own deadline (147).
pub(crate) fn deadline() -> ErrorBody {
    let message = "Deadline expired before operation could complete.";
    ErrorBody::new(504, "DEADLINE_EXCEEDED", message)
}

/// The front end's page for a failure behind it (150).
pub(crate) fn html_502() -> HttpReply {
    let said = "The server encountered a temporary error and could not complete your request.\
                <p>Please try again in 30 seconds.  <ins>That’s all we know.</ins>";
    HttpReply::whole(502, HTML, page("502 (Server Error)", said))
}

/// The front end's page for a path that does not exist.
pub(crate) fn html_404() -> HttpReply {
    let said = "The requested URL was not found on this server.  <ins>That’s all we know.</ins>";
    HttpReply::whole(404, HTML, page("404 (Not Found)", said))
}

fn page(title: &str, said: &str) -> String {
    let code = &title[..3];
    format!(
        "<!DOCTYPE html>\n<html lang=en>\n  <meta charset=utf-8>\n  <title>Error {title}!!1</title>\n  \
         <p><b>{code}.</b> <ins>That’s an error.</ins>\n  <p>{said}\n"
    )
}
