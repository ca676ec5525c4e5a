//! What a call used, in tokens.

use serde::{Deserialize, Serialize};

/// Token counts of one call, as the provider reported them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub input: u64,
    /// The part of `input` that came from a cache.
    pub cached: u64,
    /// Tokens of the answer, thinking excluded.
    pub output: u64,
    /// Tokens spent on thinking.
    pub thinking: u64,
    /// Tokens that tool results added to the prompt.
    pub tool: u64,
    /// All of it, as the provider sums it up: what a budget is charged.
    pub total: u64,
}
