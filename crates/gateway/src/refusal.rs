//! What a client is told that gets no answer from the provider: status, headers, and a body in its own dialect.

mod body;
mod of_error;
mod parts;

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use keywheel::ledger::Denied;
use keywheel_core::scrub::scrub;

pub(crate) use self::parts::Parts;
use crate::route::Dialect;

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Why a request got no answer, for programs: what stands in a refusal's `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// The path or the query is none that is handed on.
    BadPath,
    /// No route of the API has this path.
    UnknownRoute,
    /// The route has not this method.
    WrongMethod,
    /// No token was shown.
    NoToken,
    /// The token that was shown stands for no project.
    UnknownToken,
    /// Two different credentials were shown.
    TwoCredentials,
    /// The project that was named does not exist, or is not the token's.
    UnknownProject,
    /// The gateway asks for no tokens, and so serves its own machine only.
    NotLocal,
    /// A page of another site asked.
    ForeignOrigin,
    /// The project may not use this model.
    ModelNotAllowed,
    /// The route's tokens cannot be bounded, and the project has a budget.
    UnboundedRoute,
    /// The body is larger than the gateway takes.
    BodyTooLarge,
    /// The body, or the head, came too slowly, or is none.
    BadBody,
    /// The request names something that cannot be used.
    BadRequest,
    /// The request is larger than the model can read.
    TooLarge,
    /// The request alone asks for more than the whole budget.
    NeverFits,
    /// The project's cap on requests a minute.
    RequestsPerMinute,
    /// The project's cap on requests under way.
    InFlight,
    /// The budget has no room.
    OverBudget,
    /// So many of the project's requests wait already.
    QueueFull,
    /// No key can serve before the moment that is named.
    Exhausted,
    /// There is no key that may be used.
    NoKeys,
    /// All keys are out of use until somebody acts.
    AllKeysDead,
    /// The provider rejected the request.
    Rejected,
    /// The request names files or caches of several quota projects.
    MixedOwners,
    /// The provider, or the way to it, failed.
    UpstreamDown,
    /// The provider's answer cannot be used.
    BadAnswer,
    /// The time for an answer is over.
    DeadlineReached,
    /// The ledger cannot say whether the request fits, so it was not sent.
    LedgerDown,
    /// The gateway stops.
    Stopping,
    /// The gateway is at fault.
    Internal,
}

impl Reason {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 31] = [
        Self::BadPath,
        Self::UnknownRoute,
        Self::WrongMethod,
        Self::NoToken,
        Self::UnknownToken,
        Self::TwoCredentials,
        Self::UnknownProject,
        Self::NotLocal,
        Self::ForeignOrigin,
        Self::ModelNotAllowed,
        Self::UnboundedRoute,
        Self::BodyTooLarge,
        Self::BadBody,
        Self::BadRequest,
        Self::TooLarge,
        Self::NeverFits,
        Self::RequestsPerMinute,
        Self::InFlight,
        Self::OverBudget,
        Self::QueueFull,
        Self::Exhausted,
        Self::NoKeys,
        Self::AllKeysDead,
        Self::Rejected,
        Self::MixedOwners,
        Self::UpstreamDown,
        Self::BadAnswer,
        Self::DeadlineReached,
        Self::LedgerDown,
        Self::Stopping,
        Self::Internal,
    ];

    /// Its name in bodies and metrics.
    #[must_use]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::BadPath => "bad_path",
            Self::UnknownRoute => "unknown_route",
            Self::WrongMethod => "wrong_method",
            Self::NoToken => "no_token",
            Self::UnknownToken => "unknown_token",
            Self::TwoCredentials => "two_credentials",
            Self::UnknownProject => "unknown_project",
            Self::NotLocal => "not_local",
            Self::ForeignOrigin => "foreign_origin",
            Self::ModelNotAllowed => "model_not_allowed",
            Self::UnboundedRoute => "unbounded_route",
            Self::BodyTooLarge => "body_too_large",
            Self::BadBody => "bad_body",
            Self::BadRequest => "bad_request",
            Self::TooLarge => "too_large",
            Self::NeverFits => "never_fits",
            Self::RequestsPerMinute => "requests_per_minute",
            Self::InFlight => "in_flight",
            Self::OverBudget => "over_budget",
            Self::QueueFull => "queue_full",
            Self::Exhausted => "exhausted",
            Self::NoKeys => "no_keys",
            Self::AllKeysDead => "all_keys_dead",
            Self::Rejected => "rejected",
            Self::MixedOwners => "mixed_owners",
            Self::UpstreamDown => "upstream_down",
            Self::BadAnswer => "bad_answer",
            Self::DeadlineReached => "deadline_reached",
            Self::LedgerDown => "ledger_down",
            Self::Stopping => "stopping",
            Self::Internal => "internal",
        }
    }

    /// The status of a refusal for it.
    #[must_use]
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::BadPath
            | Self::TwoCredentials
            | Self::UnboundedRoute
            | Self::BadBody
            | Self::BadRequest
            | Self::TooLarge
            | Self::NeverFits
            | Self::Rejected => StatusCode::BAD_REQUEST,
            Self::NoToken | Self::UnknownToken => StatusCode::UNAUTHORIZED,
            Self::NotLocal | Self::ForeignOrigin | Self::ModelNotAllowed => StatusCode::FORBIDDEN,
            Self::UnknownRoute | Self::UnknownProject => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::MixedOwners => StatusCode::CONFLICT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestsPerMinute | Self::InFlight | Self::OverBudget | Self::QueueFull => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::Exhausted
            | Self::NoKeys
            | Self::AllKeysDead
            | Self::UpstreamDown
            | Self::LedgerDown
            | Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Self::BadAnswer => StatusCode::BAD_GATEWAY,
            Self::DeadlineReached => StatusCode::GATEWAY_TIMEOUT,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A request's end without an answer. Holds no key and no token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    /// The status.
    pub(crate) status: StatusCode,
    /// Why, for programs.
    pub(crate) reason: Reason,
    /// Whose limit or fault it is: `project triage`, `allowance`, `pool`, `request`, `gateway`, `provider`.
    pub(crate) scope: String,
    /// Why, for people.
    pub(crate) message: String,
    /// When it may be otherwise, if that is known.
    pub(crate) reset_at: Option<DateTime<Utc>>,
    /// The pause to be told where no moment is known, or where it may be otherwise before that moment.
    pub(crate) retry_after: Option<Duration>,
    /// Whether trying again, soon and unchanged, is of any use. `None` leaves it to the client.
    pub(crate) should_retry: Option<bool>,
    /// The methods that the route has, where it was asked by another.
    pub(crate) allow: Option<&'static str>,
    /// The provider's own reply, which goes back in the place of ours.
    pub(crate) as_it_came: Option<Box<AsItCame>>,
    /// The limit in which there is no room, until somebody says what the request consists of.
    pub(crate) denied: Option<Box<Denied>>,
}

/// A reply of the provider's that is handed back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AsItCame {
    /// Its headers, already chosen for the client.
    pub(crate) headers: HeaderMap,
    /// Its body.
    pub(crate) body: Bytes,
}

impl Refusal {
    /// For `reason`, with its status; it is the request's fault, and trying again is the client's decision.
    #[must_use]
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status: reason.status(),
            reason,
            scope: "request".to_owned(),
            // Texts of the provider are among them, and one of those repeats the key that it is about.
            message: scrub(&message.into(), &[]).into_owned(),
            reset_at: None,
            retry_after: None,
            should_retry: None,
            allow: None,
            as_it_came: None,
            denied: None,
        }
    }

    /// Whose limit or fault it is.
    #[must_use]
    pub(crate) fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = scope.into();
        self
    }

    /// When it may be otherwise.
    #[must_use]
    pub(crate) fn reset_at(mut self, moment: Option<DateTime<Utc>>) -> Self {
        self.reset_at = moment;
        self
    }

    /// After which pause it may be otherwise.
    #[must_use]
    pub(crate) fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// Whether trying again soon is of any use.
    #[must_use]
    pub(crate) fn should_retry(mut self, should: bool) -> Self {
        self.should_retry = Some(should);
        self
    }

    /// The whole reply, for a client of this dialect.
    #[must_use]
    pub(crate) fn response(&self, dialect: Dialect, now: DateTime<Utc>) -> Response<Bytes> {
        let (mut headers, body) = match &self.as_it_came {
            Some(reply) => (reply.headers.clone(), reply.body.clone()),
            None => (HeaderMap::new(), body::of(self, dialect, now)),
        };
        if !headers.contains_key(header::CONTENT_TYPE) {
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json; charset=UTF-8"),
            );
        }
        if let Some(seconds) = self.wait_seconds(now)
            && !headers.contains_key(header::RETRY_AFTER)
        {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(should) = self.should_retry {
            let word = if should { "true" } else { "false" };
            headers.insert(SHOULD_RETRY, HeaderValue::from_static(word));
        }
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if matches!(self.reason, Reason::NoToken | Reason::UnknownToken) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = headers;
        response
    }

    /// The pause until it may be otherwise: whole seconds, rounded up, at least 1.
    fn wait_seconds(&self, now: DateTime<Utc>) -> Option<u64> {
        let from_reset = self.reset_at.map(|moment| (moment - now).to_std().unwrap_or_default());
        let pause = [from_reset, self.retry_after].into_iter().flatten().min()?;
        Some((pause.as_secs() + u64::from(pause.subsec_nanos() > 0)).max(1))
    }
}

#[cfg(test)]
mod tests;
