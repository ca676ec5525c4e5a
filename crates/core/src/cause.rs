//! What a refusal means: its cause, whom it concerns, and how long it lasts.
//!
//! These are the words in which a provider's classifier speaks to the pool and the ledger. They
//! name no provider and no wire format.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// Why a request was not served. The names are also the ones used in JSON.
///
/// ```
/// use keywheel_core::{Cause, Release};
///
/// let cause: Cause = "per_day_requests".parse().unwrap();
/// assert!(cause.is_per_day() && !cause.is_per_minute());
/// assert_eq!(cause.release(), None); // time brings it back
/// assert_eq!(Cause::ExpiredKey.release(), Some(Release::DailyCheck));
/// assert_eq!(Cause::LeakedOrSuspendedKey.release(), Some(Release::ByHand));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The key is unknown to the provider: mistyped, deleted or of a retired form.
    InvalidKey,
    /// The key has expired.
    ExpiredKey,
    /// The key was published, or its project suspended or denied access.
    LeakedOrSuspendedKey,
    /// The key may not do this: a service that is off, or a restriction on the key.
    PermissionOrServiceDisabled,
    /// Money: no credit, a spending cap, a spending rate.
    Billing,
    /// The model's free quota is zero for this quota project. Waiting never helps.
    FreeTierNotAvailable,
    /// A tool's own quota (search grounding, URL context); plain requests go on.
    ToolQuota,
    /// Requests per quota day are spent.
    PerDayRequests,
    /// Tokens per quota day are spent.
    PerDayTokens,
    /// This request alone asks for more than can ever be granted.
    RequestTooLarge,
    /// Input tokens per minute are spent.
    PerMinuteTokens,
    /// Requests per minute are spent.
    PerMinuteRequests,
    /// A quota, and the reply does not say which.
    UnspecifiedQuota,
    /// The provider refuses this machine's address.
    IpBlock,
    /// The caller's or the project's country is not served.
    LocationUnsupported,
    /// No credential, or several, reached the provider: a fault of whoever built the request.
    CredentialFault,
    /// The model does not exist, or is not offered to this quota project.
    ModelNotFound,
    /// The model is overloaded. No key is at fault.
    Overloaded,
    /// The provider failed.
    ServerError,
    /// The provider's own deadline ran out.
    Deadline,
    /// The provider says that the request was cancelled.
    Cancelled,
    /// The request is at fault.
    BadRequest,
}

impl Cause {
    /// Every cause, in the order in which classifier rules stand.
    pub const ALL: [Self; 22] = [
        Self::InvalidKey,
        Self::ExpiredKey,
        Self::LeakedOrSuspendedKey,
        Self::PermissionOrServiceDisabled,
        Self::Billing,
        Self::FreeTierNotAvailable,
        Self::ToolQuota,
        Self::PerDayRequests,
        Self::PerDayTokens,
        Self::RequestTooLarge,
        Self::PerMinuteTokens,
        Self::PerMinuteRequests,
        Self::UnspecifiedQuota,
        Self::IpBlock,
        Self::LocationUnsupported,
        Self::CredentialFault,
        Self::ModelNotFound,
        Self::Overloaded,
        Self::ServerError,
        Self::Deadline,
        Self::Cancelled,
        Self::BadRequest,
    ];

    /// The name used in JSON, the state file and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidKey => "invalid_key",
            Self::ExpiredKey => "expired_key",
            Self::LeakedOrSuspendedKey => "leaked_or_suspended_key",
            Self::PermissionOrServiceDisabled => "permission_or_service_disabled",
            Self::Billing => "billing",
            Self::FreeTierNotAvailable => "free_tier_not_available",
            Self::ToolQuota => "tool_quota",
            Self::PerDayRequests => "per_day_requests",
            Self::PerDayTokens => "per_day_tokens",
            Self::RequestTooLarge => "request_too_large",
            Self::PerMinuteTokens => "per_minute_tokens",
            Self::PerMinuteRequests => "per_minute_requests",
            Self::UnspecifiedQuota => "unspecified_quota",
            Self::IpBlock => "ip_block",
            Self::LocationUnsupported => "location_unsupported",
            Self::CredentialFault => "credential_fault",
            Self::ModelNotFound => "model_not_found",
            Self::Overloaded => "overloaded",
            Self::ServerError => "server_error",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::BadRequest => "bad_request",
        }
    }

    /// How a key or quota project that met this cause comes back into use; `None` when the cause is
    /// no quarantine.
    #[must_use]
    pub const fn release(self) -> Option<Release> {
        match self {
            Self::InvalidKey
            | Self::ExpiredKey
            | Self::PermissionOrServiceDisabled
            | Self::LocationUnsupported => Some(Release::DailyCheck),
            Self::LeakedOrSuspendedKey => Some(Release::ByHand),
            _ => None,
        }
    }

    /// True for the quotas that a provider counts per quota day.
    #[must_use]
    pub const fn is_per_day(self) -> bool {
        matches!(self, Self::PerDayRequests | Self::PerDayTokens)
    }

    /// True for the quotas that a provider counts per minute.
    #[must_use]
    pub const fn is_per_minute(self) -> bool {
        matches!(self, Self::PerMinuteRequests | Self::PerMinuteTokens)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text names no [`Cause`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no cause is called {0:?}")]
pub struct UnknownCause(pub String);

impl FromStr for Cause {
    type Err = UnknownCause;

    fn from_str(text: &str) -> Result<Self, UnknownCause> {
        let found = Self::ALL.into_iter().find(|cause| cause.as_str() == text);
        found.ok_or_else(|| UnknownCause(text.into()))
    }
}

/// How a quarantined key or quota project comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Release {
    /// Somebody clears it, or the daily free check (`GET models`) finds it working.
    DailyCheck,
    /// Only somebody clears it.
    ByHand,
}

/// Whom a refusal concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This request, whoever sends it.
    Request,
    /// This key, for every model.
    Key,
    /// Every key of the quota project, for every model.
    QuotaProject,
    /// The quota project for the model asked for: the unit that Google limits.
    Bucket,
    /// The bucket, but only for requests that use the tool in question.
    Tool,
    /// The model, whichever key is used.
    Model,
    /// The provider's host, whichever key and model.
    Host,
    /// Nobody's key: the caller's place or wiring.
    Nobody,
}

impl Scope {
    /// The name used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Key => "key",
            Self::QuotaProject => "quota_project",
            Self::Bucket => "bucket",
            Self::Tool => "tool",
            Self::Model => "model",
            Self::Host => "host",
            Self::Nobody => "nobody",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How long a refusal lasts, before strategies, counters and jitter make a moment of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// The provider said how long, and is to be believed. Already bounded.
    Stated(Duration),
    /// Until the window's own reset; the pool's reset strategy knows when that is.
    Reset(Window),
    /// Nobody knows: the pool climbs its ladder of guesses.
    Ladder,
    /// Waiting is no answer (a dead key, a request at fault), or nothing has to wait.
    None,
}

/// A window of time in which something is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// A rolling minute.
    Minute,
    /// An hour, for things that are looked at again hourly.
    Hour,
    /// The provider's quota day.
    Day,
}

/// One consequence of a reply: this scope, for this cause, for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// Whom it concerns.
    pub scope: Scope,
    /// Why.
    pub cause: Cause,
    /// For how long.
    pub wait: Wait,
}

impl Effect {
    /// An effect of `cause` on `scope` for `wait`.
    #[must_use]
    pub const fn new(scope: Scope, cause: Cause, wait: Wait) -> Self {
        Self { scope, cause, wait }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cause_has_one_name_everywhere() {
        for cause in Cause::ALL {
            let name = cause.as_str();
            assert_eq!(cause.to_string(), name);
            assert_eq!(name.parse(), Ok(cause));
            assert_eq!(serde_json::to_value(cause).unwrap(), name);
            assert_eq!(serde_json::from_value::<Cause>(name.into()).unwrap(), cause);
        }
        assert_eq!("flood".parse::<Cause>(), Err(UnknownCause("flood".into())));
    }

    #[test]
    fn all_holds_every_cause_once() {
        assert_eq!(BTreeSet::from(Cause::ALL).len(), Cause::ALL.len());
        // serde knows every variant, whatever stands in `ALL`, and lists them when it meets a
        // stranger.
        let error = serde_json::from_value::<Cause>("flood".into()).unwrap_err().to_string();
        let named = error.split('`').skip(3).step_by(2).collect::<BTreeSet<_>>();
        assert_eq!(named, Cause::ALL.into_iter().map(Cause::as_str).collect());
    }

    #[test]
    fn scopes_have_the_same_name_in_json_and_in_text() {
        for scope in [
            Scope::Request,
            Scope::Key,
            Scope::QuotaProject,
            Scope::Bucket,
            Scope::Tool,
            Scope::Model,
            Scope::Host,
            Scope::Nobody,
        ] {
            assert_eq!(serde_json::to_value(scope).unwrap(), scope.as_str());
            assert_eq!(scope.to_string(), scope.as_str());
        }
    }

    #[test]
    fn a_leaked_key_comes_back_by_hand_only() {
        assert_eq!(Cause::LeakedOrSuspendedKey.release(), Some(Release::ByHand));
        let daily = Cause::ALL.into_iter().filter(|c| c.release() == Some(Release::DailyCheck));
        let expected = [
            Cause::InvalidKey,
            Cause::ExpiredKey,
            Cause::PermissionOrServiceDisabled,
            Cause::LocationUnsupported,
        ];
        assert_eq!(daily.collect::<Vec<_>>(), expected);
        // A quota comes back by itself.
        let quotas = Cause::ALL.into_iter().filter(|c| c.is_per_day() || c.is_per_minute());
        assert!(quotas.clone().all(|cause| cause.release().is_none()));
        assert_eq!(quotas.count(), 4);
    }
}
