//! What a call used, in tokens.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
        if let Some(block) = BLOCKS.iter().find_map(|name| fields.get(*name)?.as_object()) {
            return Some(Self::from_block(block).unwrap_or_default());
        }
        let nested = WRAPPERS.iter().filter_map(|name| fields.get(*name).filter(|v| v.is_object()));
        nested.filter_map(Self::from_json).next().or_else(|| Self::from_block(fields))
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

    fn from_block(fields: &Map<String, Value>) -> Option<Self> {
        let block = Block(fields);
        block.gemini().or_else(|| block.interactions()).or_else(|| block.openai())
    }
}

/// Where the block stands in a reply or an event.
const BLOCKS: [&str; 3] = ["usageMetadata", "usage_metadata", "usage"];

/// What can stand around a reply that holds the block.
const WRAPPERS: [&str; 4] = ["response", "interaction", "message", "x_groq"];

/// More than any call can use. Keeps a broken figure from making a budget overflow.
const MOST: u64 = 1_000_000_000_000;

struct Block<'a>(&'a Map<String, Value>);

impl Block<'_> {
    /// `usageMetadata`: prompt with cached, candidates without thoughts; the total is all of it.
    fn gemini(&self) -> Option<Usage> {
        const NAMES: [[&str; 2]; 6] = [
            ["promptTokenCount", "prompt_token_count"],
            ["cachedContentTokenCount", "cached_content_token_count"],
            ["candidatesTokenCount", "candidates_token_count"],
            ["thoughtsTokenCount", "thoughts_token_count"],
            ["toolUsePromptTokenCount", "tool_use_prompt_token_count"],
            ["totalTokenCount", "total_token_count"],
        ];
        let [input, cached, output, thinking, tool, total] = NAMES.map(|names| self.count(&names));
        Self::whole([input, cached, output, thinking, tool], total)
    }

    /// The Interactions API.
    fn interactions(&self) -> Option<Usage> {
        // `total_tokens` alone is OpenAI's.
        let names = [
            "total_input_tokens",
            "total_cached_tokens",
            "total_output_tokens",
            "total_thought_tokens",
            "total_tool_use_tokens",
        ];
        let parts = names.map(|name| self.count(&[name]));
        parts
            .iter()
            .any(Option::is_some)
            .then(|| self.count(&["total_tokens"]))
            .and_then(|total| Self::whole(parts, total))
    }

    /// Chat completions, responses, embeddings.
    ///
    /// OpenAI counts reasoning within the completion and itemises it. Gemini's compatibility layer
    /// counts it in the total alone.
    fn openai(&self) -> Option<Usage> {
        let input = self.count(&["prompt_tokens", "input_tokens"]);
        let completion = self.count(&["completion_tokens", "output_tokens"]);
        let stated = self.count(&["total_tokens"]);
        if input.is_none() && completion.is_none() && stated.is_none() {
            return None;
        }
        // Anthropic's input is without what was read from and written to a cache.
        let cache_read = self.count(&["cache_read_input_tokens"]);
        let cache_written = self.count(&["cache_creation_input_tokens"]);
        let input = sum([input, cache_read, cache_written]);
        let completion = completion.unwrap_or(0);
        let total = stated.unwrap_or(0).max((input + completion).min(MOST));

        let inside = |names: [&str; 2], field: &str| {
            names.iter().find_map(|name| Block(self.0.get(*name)?.as_object()?).count(&[field]))
        };
        let cached = inside(["prompt_tokens_details", "input_tokens_details"], "cached_tokens");
        let reasoning =
            inside(["completion_tokens_details", "output_tokens_details"], "reasoning_tokens");
        let beyond = total.saturating_sub(input + completion);
        let within = if beyond > 0 { 0 } else { reasoning.unwrap_or(0).min(completion) };
        Some(Usage {
            input,
            cached: cached.or(cache_read).unwrap_or(0),
            output: completion - within,
            thinking: beyond + within,
            tool: 0,
            total,
        })
    }

    /// `parts`: input, cached, output, thinking, tool. The total is never less than they are.
    fn whole(parts: [Option<u64>; 5], total: Option<u64>) -> Option<Usage> {
        if parts.iter().chain([&total]).all(Option::is_none) {
            return None;
        }
        let [input, cached, output, thinking, tool] = parts.map(|part| part.unwrap_or(0));
        let summed = sum([Some(input), Some(output), Some(thinking), Some(tool)]);
        let total = total.unwrap_or(0).max(summed);
        Some(Usage { input, cached, output, thinking, tool, total })
    }

    /// The first of `names` that holds a number.
    fn count(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| number(self.0.get(*name)?))
    }
}

fn sum<const N: usize>(parts: [Option<u64>; N]) -> u64 {
    // Each is at most 10^12, so this cannot overflow.
    parts.into_iter().flatten().sum::<u64>().min(MOST)
}

fn number(value: &Value) -> Option<u64> {
    let float = match value {
        Value::Number(number) => match number.as_u64() {
            Some(whole) => return Some(whole.min(MOST)),
            None => number.as_f64()?,
        },
        Value::String(text) => text.trim().parse::<f64>().ok()?,
        _ => return None,
    };
    if float.is_nan() {
        return None;
    }
    // The conversion saturates: negative numbers become 0.
    Some((float.ceil() as u64).min(MOST))
}

#[cfg(test)]
mod tests;
