//! Quota projects and their keys.

use std::collections::BTreeMap;

use chrono_tz::Tz;
use keywheel_core::{ApiKey, Tier, quota_day::PACIFIC};

use super::Limits;

/// One quota project and its keys.
///
/// ```
/// use keywheel_core::{ApiKey, Tier};
/// use keywheel_sim::{KeyState, Limits, ProjectConfig, ProjectState};
///
/// let key = |i| ApiKey::new(format!("AQ.EXAMPLE-{i}")).unwrap();
/// let old = ProjectConfig::new("old")
///     .with_key(key(1))
///     .with_key_in_state(key(2), KeyState::Leaked)
///     .with_limits("gemini-x", Limits::new().rpd(20))
///     .with_closed_model("gemini-w")
///     .with_late_reset(90);
/// assert_eq!((old.tier, old.keys.len()), (Tier::Free, 2));
///
/// let billed = ProjectConfig::new("billed").with_key(key(3)).paid();
/// assert_eq!(billed.tier, Tier::Paid);
/// let gone = ProjectConfig::new("gone").with_key(key(4)).with_state(ProjectState::Suspended);
/// assert_eq!(gone.state, ProjectState::Suspended);
/// ```
#[derive(Debug, Clone)]
pub struct ProjectConfig {
    /// Its name, for statistics and settings.
    pub name: String,
    /// The number that Google's replies call it by. Default made up from the name.
    pub number: u64,
    /// Free or paid. Default free.
    pub tier: Tier,
    /// Whether Google serves it at all. Default [`ProjectState::Ok`].
    pub state: ProjectState,
    /// The zone whose midnight turns its quota day. Default Pacific.
    pub reset_zone: Tz,
    /// Seconds after that midnight at which the quota really comes back; may be negative. Default 0.
    pub reset_late_s: i64,
    /// Models that are "no longer available to new users", and this is one.
    pub closed_models: Vec<String>,
    /// True when requests with search or URL tools are refused, as on the free tier. Default false.
    pub refuses_tools: bool,
    /// True when it may cache nothing, as on the free tier of most models. Default false.
    pub refuses_caches: bool,
    /// Limits of its own, by model, in place of the model's.
    pub limits: BTreeMap<String, Limits>,
    /// Its keys. They share its quota.
    pub keys: Vec<KeyConfig>,
}

impl ProjectConfig {
    /// A free project without keys.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            number: number_of(&name),
            name,
            tier: Tier::Free,
            state: ProjectState::Ok,
            reset_zone: PACIFIC,
            reset_late_s: 0,
            closed_models: Vec::new(),
            refuses_tools: false,
            refuses_caches: false,
            limits: BTreeMap::new(),
            keys: Vec::new(),
        }
    }

    /// Adds a working key.
    #[must_use]
    pub fn with_key(self, key: ApiKey) -> Self {
        self.with_key_in_state(key, KeyState::Ok)
    }

    /// Adds a key in some state.
    #[must_use]
    pub fn with_key_in_state(mut self, key: ApiKey, state: KeyState) -> Self {
        self.keys.push(KeyConfig { key, state });
        self
    }

    /// Makes it a paid project.
    #[must_use]
    pub const fn paid(mut self) -> Self {
        self.tier = Tier::Paid;
        self
    }

    /// Sets whether Google serves it at all.
    #[must_use]
    pub const fn with_state(mut self, state: ProjectState) -> Self {
        self.state = state;
        self
    }

    /// Sets limits of its own for a model.
    #[must_use]
    pub fn with_limits(mut self, model: impl Into<String>, limits: Limits) -> Self {
        self.limits.insert(model.into(), limits);
        self
    }

    /// Lets the reset come `seconds` after midnight.
    #[must_use]
    pub const fn with_late_reset(mut self, seconds: i64) -> Self {
        self.reset_late_s = seconds;
        self
    }

    /// Closes a model to this project: "no longer available to new users".
    #[must_use]
    pub fn with_closed_model(mut self, model: impl Into<String>) -> Self {
        self.closed_models.push(model.into());
        self
    }
}

/// One key of a project.
#[derive(Debug, Clone)]
pub struct KeyConfig {
    /// The key.
    pub key: ApiKey,
    /// What Google thinks of it. Default [`KeyState::Ok`].
    pub state: KeyState,
}

/// What Google thinks of a key.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// It works.
    #[default]
    Ok,
    /// 400 "API key not valid".
    Invalid,
    /// 400 "API key expired".
    Expired,
    /// 403 "reported as leaked".
    Leaked,
    /// 403: restricted to web sites.
    ReferrerBlocked,
    /// 403: restricted to other addresses.
    IpBlocked,
    /// 403: restricted to other services.
    ServiceBlocked,
    /// 401: an `AQ.` key that was cut short or deleted.
    Unauthenticated,
}

/// Whether Google serves a quota project at all.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ProjectState {
    /// It does.
    #[default]
    Ok,
    /// 403 `CONSUMER_SUSPENDED`; the reply repeats the key.
    Suspended,
    /// 403 "Your project has been denied access".
    Denied,
    /// 403 `SERVICE_DISABLED`: the API was never switched on.
    ServiceDisabled,
    /// 403: the billing account's country is not served.
    CountryRestricted,
    /// 402: the prepaid credit is used up.
    PrepayDepleted,
    /// 429: over its monthly spending cap.
    SpendCapReached,
}

/// A project number that looks like Google's, the same for the same name.
fn number_of(name: &str) -> u64 {
    100_000_000_000 + crate::random::hash(&[name.as_bytes()]) % 900_000_000_000
}
