//! The limits that replies name.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What a limit counts, and over which window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Requests per rolling minute.
    Rpm,
    /// Input tokens per rolling minute.
    Tpm,
    /// Requests per quota day.
    Rpd,
    /// Tokens per quota day.
    Tpd,
    /// Images per rolling minute.
    Ipm,
}

impl Dimension {
    /// Every dimension.
    pub const ALL: [Self; 5] = [Self::Rpm, Self::Tpm, Self::Rpd, Self::Tpd, Self::Ipm];

    /// The name used in JSON and in the state file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rpm => "rpm",
            Self::Tpm => "tpm",
            Self::Rpd => "rpd",
            Self::Tpd => "tpd",
            Self::Ipm => "ipm",
        }
    }
}

/// A text names no [`Dimension`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no limit is called {0:?}")]
pub struct UnknownDimension(pub String);

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(text: &str) -> Result<Self, UnknownDimension> {
        let found = Self::ALL.into_iter().find(|dimension| dimension.as_str() == text);
        found.ok_or_else(|| UnknownDimension(text.into()))
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which tier a quota belongs to, where a reply tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// The quota's id ends in `-FreeTier`: the key is on the free tier, whatever its owner
    /// believes.
    Free,
    /// The id or the metric names a paid tier.
    Paid,
}

/// A limit that a reply named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSeen {
    /// What is limited.
    pub dimension: Dimension,
    /// How much per window. Zero means that there is no quota at all.
    pub value: u64,
    /// The tier, where the reply tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// The model as the provider calls it, which is often not the name that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider's name for the quota (`quotaId`), as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_id: Option<String>,
    /// The metric that is counted, as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
}

impl LimitSeen {
    /// A limit of `value` on `dimension` about which nothing else is known.
    #[must_use]
    pub const fn new(dimension: Dimension, value: u64) -> Self {
        Self { dimension, value, tier: None, model: None, quota_id: None, metric: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dimension_has_one_name_everywhere() {
        for dimension in Dimension::ALL {
            let name = dimension.as_str();
            assert_eq!(dimension.to_string(), name);
            assert_eq!(name.parse(), Ok(dimension));
            assert_eq!(serde_json::to_value(dimension).unwrap(), name);
            assert_eq!(serde_json::from_value::<Dimension>(name.into()).unwrap(), dimension);
        }
        assert_eq!("rpx".parse::<Dimension>(), Err(UnknownDimension("rpx".into())));
    }

    #[test]
    fn a_limit_is_written_without_what_is_not_known() {
        let limit = LimitSeen::new(Dimension::Rpd, 0);
        let json = serde_json::json!({"dimension": "rpd", "value": 0});
        assert_eq!(serde_json::to_value(&limit).unwrap(), json);
        assert_eq!(serde_json::from_value::<LimitSeen>(json).unwrap(), limit);
    }
}
