//! A usage block as providers write it: the counts in it, by whichever name.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::Usage;

/// More than any call can use. Keeps a broken figure from making a budget overflow.
pub(super) const MOST: u64 = 1_000_000_000_000;

/// What a provider's usage block says, read straight from its JSON: Gemini's, its Interactions', OpenAI's and theirs who
/// vary it. What is no object says nothing.
///
/// ```
/// use keywheel_core::usage::Reported;
///
/// let block = r#"{"promptTokenCount": 8, "thoughtsTokenCount": 40, "promptTokensDetails": [{"tokenCount": 8}]}"#;
/// let Reported(usage) = serde_json::from_str(block)?;
/// assert_eq!(usage.map(|usage| (usage.input, usage.total)), Some((8, 48)));
///
/// let Reported(nothing) = serde_json::from_str("null")?;
/// assert_eq!(nothing, None);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported(
    /// What was used. An object that names no count is a usage of zero: zeros are left out.
    pub Option<Usage>,
);

impl<'de> Deserialize<'de> for Reported {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match Node::deserialize(from)? {
            Node::Object(block) => Self(Some(block.usage().unwrap_or_default())),
            Node::Number(_) | Node::Nothing => Self(None),
        })
    }
}

/// The names that counts go by. OpenAI's details are objects with counts of their own.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(field_identifier)]
enum Name {
    #[serde(rename = "promptTokenCount")]
    PromptTokenCount,
    #[serde(rename = "prompt_token_count")]
    PromptTokenCountSnake,
    #[serde(rename = "cachedContentTokenCount")]
    CachedContentTokenCount,
    #[serde(rename = "cached_content_token_count")]
    CachedContentTokenCountSnake,
    #[serde(rename = "candidatesTokenCount")]
    CandidatesTokenCount,
    #[serde(rename = "candidates_token_count")]
    CandidatesTokenCountSnake,
    #[serde(rename = "thoughtsTokenCount")]
    ThoughtsTokenCount,
    #[serde(rename = "thoughts_token_count")]
    ThoughtsTokenCountSnake,
    #[serde(rename = "toolUsePromptTokenCount")]
    ToolUsePromptTokenCount,
    #[serde(rename = "tool_use_prompt_token_count")]
    ToolUsePromptTokenCountSnake,
    #[serde(rename = "totalTokenCount")]
    TotalTokenCount,
    #[serde(rename = "total_token_count")]
    TotalTokenCountSnake,
    #[serde(rename = "total_input_tokens")]
    TotalInputTokens,
    #[serde(rename = "total_cached_tokens")]
    TotalCachedTokens,
    #[serde(rename = "total_output_tokens")]
    TotalOutputTokens,
    #[serde(rename = "total_thought_tokens")]
    TotalThoughtTokens,
    #[serde(rename = "total_tool_use_tokens")]
    TotalToolUseTokens,
    #[serde(rename = "prompt_tokens")]
    PromptTokens,
    #[serde(rename = "input_tokens")]
    InputTokens,
    #[serde(rename = "completion_tokens")]
    CompletionTokens,
    #[serde(rename = "output_tokens")]
    OutputTokens,
    #[serde(rename = "total_tokens")]
    TotalTokens,
    #[serde(rename = "cache_read_input_tokens")]
    CacheReadInputTokens,
    #[serde(rename = "cache_creation_input_tokens")]
    CacheCreationInputTokens,
    #[serde(rename = "cached_tokens")]
    CachedTokens,
    #[serde(rename = "reasoning_tokens")]
    ReasoningTokens,
    #[serde(rename = "prompt_tokens_details")]
    PromptTokensDetails,
    #[serde(rename = "input_tokens_details")]
    InputTokensDetails,
    #[serde(rename = "completion_tokens_details")]
    CompletionTokensDetails,
    #[serde(rename = "output_tokens_details")]
    OutputTokensDetails,
    #[serde(other)]
    Other,
}

/// The counts of a block by their names, the last of each.
#[derive(Debug, Default)]
pub(super) struct Block {
    counts: [Option<u64>; Name::Other as usize],
}

impl Block {
    pub(super) fn usage(&self) -> Option<Usage> {
        self.gemini().or_else(|| self.interactions()).or_else(|| self.openai())
    }

    /// `usageMetadata`: prompt with cached, candidates without thoughts; the total is all of it.
    fn gemini(&self) -> Option<Usage> {
        let parts = [
            [Name::PromptTokenCount, Name::PromptTokenCountSnake],
            [Name::CachedContentTokenCount, Name::CachedContentTokenCountSnake],
            [Name::CandidatesTokenCount, Name::CandidatesTokenCountSnake],
            [Name::ThoughtsTokenCount, Name::ThoughtsTokenCountSnake],
            [Name::ToolUsePromptTokenCount, Name::ToolUsePromptTokenCountSnake],
        ];
        let total = self.first([Name::TotalTokenCount, Name::TotalTokenCountSnake]);
        Self::whole(parts.map(|names| self.first(names)), total)
    }

    /// The Interactions API.
    fn interactions(&self) -> Option<Usage> {
        let parts = [
            Name::TotalInputTokens,
            Name::TotalCachedTokens,
            Name::TotalOutputTokens,
            Name::TotalThoughtTokens,
            Name::TotalToolUseTokens,
        ];
        let parts = parts.map(|name| self.count(name));
        // The total alone is OpenAI's.
        parts.iter().any(Option::is_some).then_some(())?;
        Self::whole(parts, self.count(Name::TotalTokens))
    }

    /// Chat completions, responses, embeddings.
    ///
    /// OpenAI counts reasoning within the completion and itemises it. Gemini's compatibility layer
    /// counts it in the total alone.
    fn openai(&self) -> Option<Usage> {
        let input = self.first([Name::PromptTokens, Name::InputTokens]);
        let completion = self.first([Name::CompletionTokens, Name::OutputTokens]);
        let stated = self.count(Name::TotalTokens);
        if input.is_none() && completion.is_none() && stated.is_none() {
            return None;
        }
        // Anthropic's input is without what was read from and written to a cache.
        let cache_read = self.count(Name::CacheReadInputTokens);
        let input = sum([input, cache_read, self.count(Name::CacheCreationInputTokens)]);
        let completion = completion.unwrap_or(0);
        let total = stated.unwrap_or(0).max((input + completion).min(MOST));

        let cached = self.first([Name::PromptTokensDetails, Name::InputTokensDetails]);
        let reasoning = self.first([Name::CompletionTokensDetails, Name::OutputTokensDetails]);
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
    fn first<const N: usize>(&self, names: [Name; N]) -> Option<u64> {
        names.into_iter().find_map(|name| self.count(name))
    }

    fn count(&self, name: Name) -> Option<u64> {
        self.counts[name as usize]
    }
}

fn sum<const N: usize>(parts: [Option<u64>; N]) -> u64 {
    // Each is at most 10^12, so this cannot overflow.
    parts.into_iter().flatten().sum::<u64>().min(MOST)
}

/// What stands in a block, or is one.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, while a block is read")]
pub(super) enum Node {
    /// At most 10^12, rounded up; a negative one is 0.
    Number(u64),
    Object(Block),
    /// What counts nothing.
    Nothing,
}

impl Node {
    fn number(number: f64) -> Self {
        if number.is_nan() {
            return Self::Nothing;
        }
        // The conversion saturates: negative numbers become 0.
        Self::Number((number.ceil() as u64).min(MOST))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut block = Block::default();
        while let Some(name) = map.next_key()? {
            let itemised = match name {
                Name::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Name::PromptTokensDetails | Name::InputTokensDetails => Some(Name::CachedTokens),
                Name::CompletionTokensDetails | Name::OutputTokensDetails => {
                    Some(Name::ReasoningTokens)
                }
                _ => None,
            };
            block.counts[name as usize] = match (map.next_value()?, itemised) {
                (Node::Number(number), None) => Some(number),
                (Node::Object(details), Some(name)) => details.count(name),
                _ => None,
            };
        }
        Ok(Node::Object(block))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Node::Nothing)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number.min(MOST)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(u64::try_from(number).unwrap_or(0).min(MOST)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(text.trim().parse().map_or(Node::Nothing, Node::number))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }
}
