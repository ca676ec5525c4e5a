//! What a call used, in tokens.

mod reported;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::reported::Reported;
use self::reported::{Block, Node};

/// Token counts of one call, as the provider reported them.
///
/// ```
/// use keywheel_core::Usage;
///
/// let usage = Usage { thinking: 400, ..Usage::new(90, 10) };
/// assert_eq!(usage.charged(), 500);
/// ```
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
    /// All of it, as the provider sums it up. It may hold more than the parts; where it holds less,
    /// or is left out, the parts count: see [`charged`](Self::charged).
    pub total: u64,
}

impl Usage {
    /// The usage of a call with `input` and `output` tokens and nothing else: the total is their
    /// sum.
    #[must_use]
    pub const fn new(input: u64, output: u64) -> Self {
        let total = input.saturating_add(output);
        Self { input, cached: 0, output, thinking: 0, tool: 0, total }
    }

    /// What a budget is charged, in tokens: the total, or the sum of input, output, thinking and
    /// tool where that is more. Cached tokens are within the input.
    ///
    /// ```
    /// use keywheel_core::Usage;
    ///
    /// let by_hand = Usage { input: 90, output: 10, ..Usage::default() };
    /// assert_eq!((by_hand.total, by_hand.charged()), (0, 100));
    /// ```
    #[must_use]
    pub const fn charged(&self) -> u64 {
        let answer = self.output.saturating_add(self.thinking);
        let parts = self.input.saturating_add(self.tool).saturating_add(answer);
        if parts > self.total { parts } else { self.total }
    }

    /// The usage that `reply` reports: a whole reply, one event of a stream, the JSON array that
    /// Gemini sends without `alt=sse`, or the block itself.
    ///
    /// Reads Gemini's `usageMetadata` in camel and snake case, the usage of its Interactions, and
    /// OpenAI's `usage` in both of its dialects and as Anthropic and Groq vary it. `None` means
    /// that nothing was reported. Zero is something: Google omits fields that are zero, so in a
    /// block that is there an absent field is 0. An absent total is summed up, and a stated one is
    /// never less than the sum.
    ///
    /// Numbers may be strings; negative ones count as 0, and none is larger than 10^12.
    ///
    /// ```
    /// use keywheel_core::Usage;
    /// use serde_json::json;
    ///
    /// let reply = json!({"usageMetadata": {"promptTokenCount": 8, "thoughtsTokenCount": 40, "totalTokenCount": 48}});
    /// let usage = Usage::from_json(&reply).unwrap();
    /// assert_eq!((usage.input, usage.output, usage.thinking, usage.total), (8, 0, 40, 48));
    /// assert_eq!(Usage::from_json(&json!({"candidates": []})), None);
    /// ```
    #[must_use]
    pub fn from_json(reply: &Value) -> Option<Self> {
        if let Value::Array(events) = reply {
            let mut seen = None;
            events.iter().for_each(|event| Self::take_last(&mut seen, Self::from_json(event)));
            return seen;
        }
        let fields = reply.as_object()?;
        let object = |name: &&str| fields.get(*name).filter(|value| value.is_object());
        if let Some(block) = BLOCKS.iter().find_map(object) {
            return Some(block_of(block)?.usage().unwrap_or_default());
        }
        let nested = WRAPPERS.iter().filter_map(object);
        nested.filter_map(Self::from_json).next().or_else(|| block_of(reply)?.usage())
    }

    /// Puts what a later event of a stream reports in the place of what was `seen`.
    ///
    /// Counts in streams are cumulative, so they are never added up, and the last one wins. Only
    /// nothing at all never follows something: an event with zeros alone is a placeholder.
    ///
    /// ```
    /// use keywheel_core::Usage;
    ///
    /// let mut seen = None;
    /// for total in [10, 25, 0] {
    ///     Usage::take_last(&mut seen, Some(Usage { total, ..Usage::default() }));
    /// }
    /// Usage::take_last(&mut seen, None);
    /// assert_eq!(seen.unwrap().total, 25);
    /// ```
    pub fn take_last(seen: &mut Option<Self>, new: Option<Self>) {
        let Some(new) = new else { return };
        if seen.is_none() || new != Self::default() {
            *seen = Some(new);
        }
    }
}

fn block_of(object: &Value) -> Option<Block> {
    match Node::deserialize(object) {
        Ok(Node::Object(block)) => Some(block),
        // Every value can be read.
        Ok(Node::Number(_) | Node::Nothing) | Err(_) => None,
    }
}

/// Where the block stands in a reply or an event.
const BLOCKS: [&str; 3] = ["usageMetadata", "usage_metadata", "usage"];

/// What can stand around a reply that holds the block.
const WRAPPERS: [&str; 4] = ["response", "interaction", "message", "x_groq"];

#[cfg(test)]
mod tests;
