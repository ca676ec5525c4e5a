//! The models there are.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::json::null_is_default;

/// One page of the list of models: `GET models`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelList {
    /// The models.
    #[serde(default, deserialize_with = "null_is_default")]
    pub models: Vec<Model>,
    /// Asks for the next page, as `pageToken`. `None` on the last one.
    #[serde(alias = "next_page_token", default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What is known of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Its name, as `models/…`.
    #[serde(default)]
    pub name: String,
    /// Its name for people.
    #[serde(alias = "display_name", default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The most tokens of a prompt.
    #[serde(alias = "input_token_limit", default, skip_serializing_if = "Option::is_none")]
    pub input_token_limit: Option<u64>,
    /// The most tokens of an answer, and the default of `maxOutputTokens`.
    #[serde(alias = "output_token_limit", default, skip_serializing_if = "Option::is_none")]
    pub output_token_limit: Option<u64>,
    /// `generateContent`, `embedContent`, ….
    #[serde(
        alias = "supported_generation_methods",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub supported_generation_methods: Vec<String>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
