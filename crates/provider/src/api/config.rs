//! How to answer: lengths, randomness, form, thinking.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    json::{Json, null_is_default},
    open_enum::open_enum,
};

/// How to answer. What is absent is the model's own default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerationConfig {
    /// The most tokens of the answer. Thinking counts inside it.
    #[serde(alias = "max_output_tokens", default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// How many answers to give. Defaults to 1. Each has `max_output_tokens` of its own.
    #[serde(alias = "candidate_count", default, skip_serializing_if = "Option::is_none")]
    pub candidate_count: Option<u32>,
    /// Texts that end the answer.
    #[serde(
        alias = "stop_sequences",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub stop_sequences: Vec<String>,
    /// Randomness, 0 to 2. Google has deprecated it, with the two below, since July 2026.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    #[serde(alias = "top_p", default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Sampling among the most likely tokens.
    #[serde(alias = "top_k", default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<f64>,
    /// Seed of the randomness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// `application/json` for an answer in JSON.
    #[serde(alias = "response_mime_type", default, skip_serializing_if = "Option::is_none")]
    pub response_mime_type: Option<String>,
    /// The schema of such an answer, in Google's form: a subset of OpenAPI 3.0.
    #[serde(alias = "response_schema", default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Json>,
    /// The same as a JSON schema. Only one of the two may be there.
    #[serde(alias = "response_json_schema", default, skip_serializing_if = "Option::is_none")]
    pub response_json_schema: Option<Json>,
    /// How much to think.
    #[serde(alias = "thinking_config", default, skip_serializing_if = "Option::is_none")]
    pub thinking_config: Option<ThinkingConfig>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How much to think. A level and a budget exclude each other.
///
/// ```
/// use keywheel_provider::api::{ThinkingConfig, ThinkingLevel};
///
/// let thinking = ThinkingConfig::from(ThinkingLevel::Low).with_thoughts();
/// let json = r#"{"includeThoughts":true,"thinkingLevel":"LOW"}"#;
/// assert_eq!(serde_json::to_string(&thinking).unwrap(), json);
/// ```
///
/// Models up to 2.5 take a number of tokens, later ones a level:
///
/// ```
/// use keywheel_provider::api::{ThinkingConfig, ThinkingLevel};
///
/// assert_eq!(ThinkingConfig::off(), ThinkingConfig::budget(0));
/// assert_eq!(ThinkingConfig::level(ThinkingLevel::Low), ThinkingLevel::Low.into());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingConfig {
    /// Whether summaries of the thinking come with the answer.
    #[serde(alias = "include_thoughts", default, skip_serializing_if = "Option::is_none")]
    pub include_thoughts: Option<bool>,
    /// Tokens to think with: 0 turns it off, -1 leaves it to the model. For models up to 2.5.
    #[serde(alias = "thinking_budget", default, skip_serializing_if = "Option::is_none")]
    pub thinking_budget: Option<i32>,
    /// How hard to think. For models from 3 on; not all know all levels.
    #[serde(alias = "thinking_level", default, skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<ThinkingLevel>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ThinkingConfig {
    /// No thinking, where the model allows it.
    #[must_use]
    pub fn off() -> Self {
        Self::budget(0)
    }

    /// At most `tokens` of thinking.
    #[must_use]
    pub fn budget(tokens: i32) -> Self {
        Self { thinking_budget: Some(tokens), ..Self::default() }
    }

    /// Thinking of the given level.
    #[must_use]
    pub fn level(level: ThinkingLevel) -> Self {
        Self { thinking_level: Some(level), ..Self::default() }
    }

    /// Asks for summaries of the thinking:
    /// [`GenerateResponse::thoughts`](super::GenerateResponse::thoughts).
    #[must_use]
    pub const fn with_thoughts(mut self) -> Self {
        self.include_thoughts = Some(true);
        self
    }
}

impl From<ThinkingLevel> for ThinkingConfig {
    fn from(level: ThinkingLevel) -> Self {
        Self::level(level)
    }
}

open_enum! {
    /// How hard to think. A model answers 400 to a level that it does not know.
    ThinkingLevel {
        /// Next to nothing. `gemini-3.7-flash` refuses it.
        Minimal = "MINIMAL",
        /// A little.
        Low = "LOW",
        /// Some.
        Medium = "MEDIUM",
        /// Much.
        High = "HIGH",
        /// The most.
        Xhigh = "XHIGH",
    }
}
