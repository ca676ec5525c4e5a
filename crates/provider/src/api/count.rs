//! How many tokens a request has.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Content, GenerateRequest,
    json::{Json, null_is_default},
};

/// What `countTokens` is asked: a whole request, or contents alone.
///
/// [`Call::count_tokens`](crate::upstream::Call::count_tokens) writes one; this type reads them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CountRequest {
    /// What to count, if it is nothing but contents.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<Content>,
    /// What to count. Names its model in its `extra`.
    #[serde(alias = "generate_content_request", default, skip_serializing_if = "Option::is_none")]
    pub generate_content_request: Option<GenerateRequest>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The answer of `countTokens`: free, and the same count that `generateContent` would report.
///
/// [`Call::count_tokens`](crate::upstream::Call::count_tokens) asks for the whole request, so
/// system instruction and tools are in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenCount {
    /// Tokens of the prompt, cached ones included.
    #[serde(alias = "total_tokens", default, deserialize_with = "null_is_default")]
    pub total_tokens: u64,
    /// The part of it that a cache holds. Absent means none.
    #[serde(
        alias = "cached_content_token_count",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub cached_content_token_count: Option<u64>,
    /// The total by modality: `{"modality": "TEXT", "tokenCount": 12}`.
    #[serde(
        alias = "prompt_tokens_details",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub prompt_tokens_details: Vec<Json>,
    /// The cached part by modality.
    #[serde(
        alias = "cache_tokens_details",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cache_tokens_details: Vec<Json>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
