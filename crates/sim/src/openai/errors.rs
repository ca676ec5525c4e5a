//! Errors and rate headers, as OpenAI writes them. The case numbers are those of the published corpus.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use keywheel_core::{Cause, Dimension};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    bodies::{self, go_duration},
    quota::{Ask, Usage, Violation},
    reply::HttpReply,
};

const JSON: &str = "application/json";

/// An error of OpenAI's, before it is written down.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ErrorBody {
    #[serde(skip)]
    status: u16,
    message: String,
    r#type: &'static str,
    param: Value,
    code: Value,
}

impl ErrorBody {
    fn new(
        status: u16,
        kind: &'static str,
        code: Option<&'static str>,
        message: impl Into<String>,
    ) -> Self {
        let code = code.map_or(Value::Null, Value::from);
        Self { status, message: message.into(), r#type: kind, param: Value::Null, code }
    }

    /// What stands for one of Google's errors.
    pub(crate) fn of(cause: Cause, google: &bodies::ErrorBody) -> Self {
        const REQUEST: &str = "invalid_request_error";
        match cause {
            Cause::ModelNotFound => Self::new(
                404,
                REQUEST,
                Some("model_not_found"),
                "The model does not exist or you do not have access to it.",
            ),
            Cause::CredentialFault => Self::new(
                401,
                REQUEST,
                None,
                "You didn't provide an API key. You need to provide your API key in an \
                 Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
            ),
            Cause::Billing | Cause::FreeTierNotAvailable => insufficient_quota(),
            Cause::LocationUnsupported => Self::new(
                403,
                "request_forbidden",
                Some("unsupported_country_region_territory"),
                "Country, region, or territory not supported",
            ),
            Cause::Overloaded => Self::new(
                503,
                "server_error",
                None,
                "The server is currently overloaded with other requests. Sorry about that! You \
                 can retry your request.",
            ),
            Cause::ServerError | Cause::Deadline => Self::new(
                google.code(),
                "server_error",
                None,
                "The server had an error while processing your request. Sorry about that!",
            ),
            Cause::InvalidKey
            | Cause::ExpiredKey
            | Cause::LeakedOrSuspendedKey
            | Cause::PermissionOrServiceDisabled => Self::new(
                401,
                REQUEST,
                Some("invalid_api_key"),
                "Incorrect API key provided: ****. You can find your API key at \
                 https://platform.openai.com/account/api-keys.",
            ),
            _ if google.code() == 429 => Self::new(
                429,
                "requests",
                Some("rate_limit_exceeded"),
                "Rate limit reached. Please try again later.",
            ),
            _ => Self::new(400, REQUEST, None, google.message()),
        }
    }

    pub(crate) fn reply(&self) -> HttpReply {
        HttpReply::whole(self.status, JSON, bodies::pretty(&json!({"error": self})))
    }

    /// The error on one line, as it stands in a stream.
    pub(crate) fn one_line(&self) -> String {
        json!({"error": self}).to_string()
    }
}

/// What a classifier can make of an OpenAI-style error: it says less than Google's.
pub(crate) const fn as_openai(cause: Cause) -> Cause {
    match cause {
        Cause::ExpiredKey | Cause::LeakedOrSuspendedKey | Cause::PermissionOrServiceDisabled => {
            Cause::InvalidKey
        }
        Cause::FreeTierNotAvailable => Cause::Billing,
        other => other,
    }
}

/// The credit is used up, or there never was any (o21).
fn insufficient_quota() -> ErrorBody {
    let message = "You exceeded your current quota, please check your plan and billing details. \
                   For more information on this error, read the docs: \
                   https://platform.openai.com/docs/guides/error-codes/api-errors.";
    ErrorBody::new(429, "insufficient_quota", Some("insufficient_quota"), message)
}

/// There is no such path.
pub(crate) fn unknown_url(method: &str, path: &str) -> HttpReply {
    let message = format!(
        "Unknown request URL: {method} {path}. Please check the URL for typos, or see the docs at \
         https://platform.openai.com/docs/api-reference/."
    );
    ErrorBody::new(404, "invalid_request_error", Some("unknown_url"), message).reply()
}

/// A 429 for a limit. OpenAI names one, the one that is longest in the way.
#[derive(Debug)]
pub(crate) struct Refusal {
    body: ErrorBody,
    wait: Option<Duration>,
    /// What one can know from the reply.
    pub(crate) told: Cause,
}

impl Refusal {
    pub(crate) fn of(
        model: &str,
        ask: Ask,
        violations: &[Violation],
        usage: impl Fn(Dimension) -> Option<Usage>,
    ) -> Self {
        if violations.iter().any(|violation| violation.limit == 0) {
            return Self { body: insufficient_quota(), wait: None, told: Cause::Billing };
        }
        let worst = violations
            .iter()
            .max_by_key(|violation| violation.fits_in.unwrap_or(Duration::MAX))
            .expect("a refusal has a violation");
        let (unit, window, short, kind, told) = match worst.dimension {
            Dimension::Rpm | Dimension::Ipm => {
                ("requests", "min", "RPM", "requests", Cause::PerMinuteRequests)
            }
            Dimension::Rpd => ("requests", "day", "RPD", "requests", Cause::PerDayRequests),
            Dimension::Tpm => ("tokens", "min", "TPM", "tokens", Cause::PerMinuteTokens),
            Dimension::Tpd => ("tokens", "day", "TPD", "tokens", Cause::PerDayTokens),
        };
        let limit = worst.limit;
        let asked = if unit == "tokens" { ask.tokens } else { ask.requests };
        let place = format!(
            "for {model} in organization org-EXAMPLE on {unit} per {window} ({short}): Limit {limit}"
        );
        let more = "Visit https://platform.openai.com/account/rate-limits to learn more.";
        let (message, told) = match worst.fits_in {
            // o19
            Some(wait) => {
                let used = usage(worst.dimension).map_or(0, |usage| usage.used);
                let wait = go_duration(wait);
                let message = format!(
                    "Rate limit reached {place}, Used {used}, Requested {asked}. Please try again \
                     in {wait}. {more}"
                );
                (message, told)
            }
            // o20
            None => {
                let message = format!(
                    "Request too large {place}, Requested {asked}. The input or output tokens must \
                     be reduced in order to run successfully. {more}"
                );
                (message, Cause::RequestTooLarge)
            }
        };
        let body = ErrorBody::new(429, kind, Some("rate_limit_exceeded"), message);
        Self { body, wait: worst.fits_in, told }
    }

    /// The reply, with `Retry-After` in whole seconds, never shorter than the true wait.
    pub(crate) fn reply(&self) -> HttpReply {
        let mut http = self.body.reply();
        if let Some(wait) = self.wait {
            let seconds = wait.as_millis().div_ceil(1_000);
            let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
            http.headers.insert(header::RETRY_AFTER, seconds.into());
        }
        http
    }
}

/// `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` (o04). Requests are counted per minute where there
/// is such a limit, else per day.
pub(crate) fn add_rate_headers(headers: &mut HeaderMap, usages: &[Option<Usage>]) {
    let find = |dimension| usages.iter().flatten().find(|usage| usage.dimension == dimension);
    let requests = find(Dimension::Rpm).or_else(|| find(Dimension::Rpd));
    for (unit, usage) in [("requests", requests), ("tokens", find(Dimension::Tpm))] {
        let Some(usage) = usage else { continue };
        let values = [
            ("limit", usage.limit.to_string()),
            ("remaining", usage.limit.saturating_sub(usage.used).to_string()),
            ("reset", go_duration(usage.resets_in)),
        ];
        for (kind, value) in values {
            let name = format!("x-ratelimit-{kind}-{unit}");
            let name = HeaderName::try_from(name).expect("made of letters and dashes");
            headers.insert(name, HeaderValue::try_from(value).expect("digits and units"));
        }
    }
}
