//! What a client is told of each way in which a call can end without an answer.
//!
//! The full text of an error is for the gateway's own log: it names keys, files and quota projects, which are no business
//! of the apps that share them.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use http::{HeaderValue, StatusCode, header};
use keywheel::{
    Error, Exhausted, ExhaustedKind, Rejected,
    ledger::{Denied, ErrorKind, Scope},
};
use serde_json::Value;

use super::{AsItCame, Reason, Refusal};
use crate::headers;

/// A pause that a client's own retries may well span.
const SOON: Duration = Duration::from_secs(60);

/// What is told where requests under way hold the room: about as long as they go on, and as one of those who wait in
/// line may wait.
const OTHERS_SETTLE: Duration = Duration::from_secs(30);

/// What is told where nobody knows how long it takes and a moment is likely.
const A_MOMENT: Duration = Duration::from_secs(5);

/// The same where somebody has to act first.
const A_WHILE: Duration = Duration::from_secs(3_600);

impl Refusal {
    /// For `error`, with which a call for `project` ended at `now`.
    #[must_use]
    pub(crate) fn of(error: &Error, project: &str, now: DateTime<Utc>) -> Self {
        match error {
            Error::Rejected { rejected, .. } => Self::handed_back(rejected),
            Error::OverBudget { denied, .. } => Self::denied(denied, project),
            Error::Exhausted { exhausted, .. } => Self::exhausted(exhausted, now),
            Error::AllKeysDead { .. } => Self::new(
                Reason::AllKeysDead,
                "every key is out of use until somebody acts; `keywheel status` says why",
            )
            .scope("pool")
            .retry_after(A_WHILE)
            .should_retry(false),
            Error::NoKeys { .. } | Error::Keys(_) => Self::new(
                Reason::NoKeys,
                "there is no key that this project may use; `keywheel check` says more",
            )
            .scope("pool")
            .retry_after(A_WHILE)
            .should_retry(false),
            // A figure or a model's name that no ledger can hold: it would be the same with any other.
            Error::Ledger { source, .. } if source.kind() == ErrorKind::Invalid => {
                Self::new(Reason::BadBody, source.to_string()).should_retry(false)
            }
            Error::Ledger { .. } => Self::new(
                Reason::LedgerDown,
                "the ledger cannot say whether the request fits into the budget, so it was not sent",
            )
            .scope("gateway")
            .retry_after(A_MOMENT),
            Error::TooLarge { estimated, limit, .. } => Self::new(
                Reason::TooLarge,
                format!("the request has about {estimated} tokens, and the limit is {limit}"),
            )
            .should_retry(false),
            Error::MixedOwners { .. } => {
                Self::new(Reason::MixedOwners, error.to_string()).should_retry(false)
            }
            Error::FileFailed { .. } | Error::Setting(_) => {
                Self::new(Reason::BadRequest, error.to_string()).should_retry(false)
            }
            Error::UpstreamDown { reason, next_attempt_at, .. } => {
                let what = format!("the provider did not answer: {reason}");
                let refusal = Self::new(Reason::UpstreamDown, what).scope("provider");
                match next_attempt_at {
                    // The model is left alone until then: trying again is refused at no cost to the provider.
                    Some(moment) => refusal.reset_at(Some(*moment)),
                    // It was tried several times, and would be for each time that the client tries again.
                    None => refusal.retry_after(A_MOMENT).should_retry(false),
                }
            }
            // It may have been charged, so nobody is told to ask again.
            Error::DeadlineReached { .. } => {
                Self::new(Reason::DeadlineReached, error.to_string()).scope("gateway")
            }
            Error::StreamBroken { .. } | Error::WrongShape { .. } | Error::Unreadable { .. } => {
                Self::new(Reason::BadAnswer, error.to_string()).scope("provider")
            }
            Error::Incomplete { source, .. } => Self::of(source, project, now),
            _ => Self::new(Reason::Internal, "the gateway is at fault; its log says how")
                .scope("gateway"),
        }
    }

    /// For a limit of the ledger's in which there is no room.
    ///
    /// It was waited for already, so that nobody is told to try again at once: the room that a client's retries would
    /// find is the room that others wait for. Where requests under way hold it, though, they give most of it back when
    /// they end, and whoever comes back by himself need not stay away until tomorrow.
    #[must_use]
    pub(crate) fn denied(denied: &Denied, project: &str) -> Self {
        let (scope, whose) = match &denied.scope {
            Scope::Whole => ("allowance".to_owned(), "the whole allowance".to_owned()),
            Scope::Account(_) => (format!("project {project}"), format!("project {project}")),
        };
        let told = denied.to_string().replacen(&denied.scope.to_string(), &whose, 1);
        let refused = |reason, told: String| {
            let mut refusal = Self::new(reason, told).scope(scope).should_retry(false);
            refusal.denied = Some(Box::new(denied.clone()));
            refusal
        };
        if denied.never_fits() {
            return refused(Reason::NeverFits, told);
        }
        let over = |told: String| refused(Reason::OverBudget, told);
        if denied.may_fit_once_others_settle() {
            return over(told + "; what is reserved may be given back any moment")
                .reset_at(denied.retry_at)
                .retry_after(OTHERS_SETTLE);
        }
        match denied.retry_at {
            Some(moment) => over(told).reset_at(Some(moment)),
            None => over(told).retry_after(A_WHILE),
        }
    }

    fn exhausted(exhausted: &Exhausted, now: DateTime<Utc>) -> Self {
        let model = &exhausted.model;
        match (exhausted.soonest, exhausted.kind) {
            (Some(soonest), _) => {
                let shown = soonest.to_rfc3339_opts(SecondsFormat::Secs, true);
                let soon = (soonest - now).to_std().unwrap_or_default() <= SOON;
                Self::new(Reason::Exhausted, format!("no key can serve {model} before {shown}"))
                    .reset_at(Some(soonest))
                    .should_retry(soon)
            }
            (None, ExhaustedKind::Busy) => {
                Self::new(Reason::Exhausted, format!("every key for {model} is busy"))
                    .retry_after(A_MOMENT)
                    .should_retry(true)
            }
            (None, _) => Self::new(
                Reason::Exhausted,
                format!("no key can serve {model}, and waiting will not help"),
            )
            .retry_after(A_WHILE)
            .should_retry(false),
        }
        .scope("pool")
    }

    fn handed_back(rejected: &Rejected) -> Self {
        let mut refusal = Self::new(Reason::Rejected, rejected.to_string()).scope("provider");
        refusal.status = status(rejected.status, &rejected.body);
        let mut headers = headers::to_client(&rejected.headers);
        let is_stream = headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        // Of a stream that began with an error, the error alone is handed back.
        if is_stream && !rejected.body.starts_with("data:") {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        refusal.as_it_came =
            Some(Box::new(AsItCame { headers, body: Bytes::from(rejected.body.clone()) }));
        refusal
    }
}

/// The status of a reply that came with `said`. Under one that claims success, it is that of the error inside: no client
/// looks for an error in a 200.
fn status(said: u16, body: &str) -> StatusCode {
    let said = StatusCode::from_u16(said).unwrap_or(StatusCode::BAD_GATEWAY);
    if !said.is_success() {
        return said;
    }
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let first = body.get(0).unwrap_or(&body);
    let code = first.get("error").unwrap_or(first).get("code").and_then(Value::as_u64);
    let code = code.and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
    let is_error = |code: &StatusCode| code.is_client_error() || code.is_server_error();
    code.filter(is_error).unwrap_or(StatusCode::BAD_GATEWAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_under_a_200_has_its_own_status() {
        for (said, body, told) in [
            (200, r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}"#, 429),
            (200, r#"[{"error":{"code":400}}]"#, 400),
            (200, r#"{"code":404,"message":"no such model"}"#, 404),
            (200, r#"{"error":{"code":200}}"#, 502),
            (200, r#"{"error":{"code":"rate_limit_exceeded"}}"#, 502),
            (200, r#"{"error":{"code":99999}}"#, 502),
            (200, r#"{"error":"no"}"#, 502),
            (200, "[]", 502),
            (200, "no JSON", 502),
            (404, r#"{"error":{"code":429}}"#, 404),
        ] {
            assert_eq!(status(said, body), told, "{said} {body}");
        }
    }
}
