//! What to block.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::open_enum::open_enum;

/// From when on one kind of harm is blocked.
///
/// ```
/// use keywheel_provider::api::{BlockThreshold, HarmCategory, SafetySetting};
///
/// let setting = SafetySetting::new(HarmCategory::Harassment, BlockThreshold::OnlyHigh);
/// let json = r#"{"category":"HARM_CATEGORY_HARASSMENT","threshold":"BLOCK_ONLY_HIGH"}"#;
/// assert_eq!(serde_json::to_string(&setting).unwrap(), json);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SafetySetting {
    /// The kind of harm.
    pub category: HarmCategory,
    /// How likely it has to be.
    pub threshold: BlockThreshold,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl SafetySetting {
    /// A setting for one kind of harm. Names may be given as text.
    #[must_use]
    pub fn new(category: impl Into<HarmCategory>, threshold: impl Into<BlockThreshold>) -> Self {
        Self { category: category.into(), threshold: threshold.into(), extra: Map::new() }
    }

    /// The same threshold for the four kinds of harm that every model knows.
    #[must_use]
    pub fn all(threshold: &BlockThreshold) -> Vec<Self> {
        [
            HarmCategory::Harassment,
            HarmCategory::HateSpeech,
            HarmCategory::SexuallyExplicit,
            HarmCategory::DangerousContent,
        ]
        .map(|category| Self::new(category, threshold.clone()))
        .into()
    }
}

open_enum! {
    /// A kind of harm.
    HarmCategory {
        /// Against a person.
        Harassment = "HARM_CATEGORY_HARASSMENT",
        /// Against a group.
        HateSpeech = "HARM_CATEGORY_HATE_SPEECH",
        /// Sex.
        SexuallyExplicit = "HARM_CATEGORY_SEXUALLY_EXPLICIT",
        /// Help with what is dangerous.
        DangerousContent = "HARM_CATEGORY_DANGEROUS_CONTENT",
        /// Elections. Google no longer wants it set.
        CivicIntegrity = "HARM_CATEGORY_CIVIC_INTEGRITY",
    }
}

open_enum! {
    /// From how likely a harm on it is blocked.
    BlockThreshold {
        /// From unlikely on.
        LowAndAbove = "BLOCK_LOW_AND_ABOVE",
        /// From possible on.
        MediumAndAbove = "BLOCK_MEDIUM_AND_ABOVE",
        /// Likely ones only.
        OnlyHigh = "BLOCK_ONLY_HIGH",
        /// None; it is still rated.
        Never = "BLOCK_NONE",
        /// None, and it is not rated.
        Off = "OFF",
    }
}
