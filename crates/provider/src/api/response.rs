//! An answer, or one piece of a streamed one.

use std::borrow::Cow;

use keywheel_core::{Usage, usage::Reported};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Content, FunctionCall, Part,
    json::{Json, null_is_default},
    open_enum::open_enum,
};

/// An answer of `generateContent`, or one event of `streamGenerateContent`.
///
/// A status of 200 does not mean that there is an answer: a blocked prompt has no candidates, and a
/// blocked or over-long answer has candidates without text. Ask
/// [`block_reason`](Self::block_reason) and [`finish_reason`](Self::finish_reason).
///
/// ```
/// use keywheel_provider::api::{FinishReason, GenerateResponse};
/// use serde_json::{from_value, json};
///
/// let cut: GenerateResponse = from_value(json!({
///     "candidates": [{
///         "content": {"role": "model", "parts": [{"text": "Let me see.", "thought": true}]},
///         "finishReason": "MAX_TOKENS",
///     }],
///     "usageMetadata": {"promptTokenCount": 8, "thoughtsTokenCount": 3, "totalTokenCount": 11},
/// }))
/// .unwrap();
/// assert_eq!(cut.finish_reason(), Some(FinishReason::MaxTokens));
/// assert_eq!((cut.text(), cut.thoughts()), ("".into(), "Let me see.".into()));
/// assert_eq!(cut.content().unwrap().parts.len(), 1, "sent back, the thought stays in");
/// assert_eq!(cut.continuation_token(), None, "a longer limit is needed, not another hop");
///
/// let refused = json!({"promptFeedback": {"blockReason": "SAFETY"}});
/// let refused: GenerateResponse = from_value(refused).unwrap();
/// assert_eq!(refused.block_reason(), Some("SAFETY"));
/// assert_eq!(refused.finish_reason(), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerateResponse {
    /// The answers; nearly always one.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// What was wrong with the prompt.
    #[serde(alias = "prompt_feedback", default, skip_serializing_if = "Option::is_none")]
    pub prompt_feedback: Option<PromptFeedback>,
    /// What it cost, as sent; [`usage`](Self::usage) reads it.
    #[serde(alias = "usage_metadata", default, skip_serializing_if = "Option::is_none")]
    pub usage_metadata: Option<Json>,
    /// The model that answered, by its full name.
    #[serde(alias = "model_version", default, skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// What Google calls this answer.
    #[serde(alias = "response_id", default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// How far the model is on its way from preview to retirement.
    #[serde(alias = "model_status", default, skip_serializing_if = "Option::is_none")]
    pub model_status: Option<ModelStatus>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl GenerateResponse {
    /// The text of the first candidate, thoughts excluded. Empty when there is none; see
    /// [`finish_reason`](Self::finish_reason) for why.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        concat(self.parts().filter(|part| !part.is_thought()))
    }

    /// The model's summary of its thinking, where it was asked for.
    #[must_use]
    pub fn thoughts(&self) -> Cow<'_, str> {
        concat(self.parts().filter(|part| part.is_thought()))
    }

    /// The functions that the model wants called.
    #[must_use]
    pub fn function_calls(&self) -> Vec<FunctionCall> {
        self.parts().filter_map(Part::function_call).collect()
    }

    /// The first candidate's content: append it to the conversation as it is to go on.
    #[must_use]
    pub fn content(&self) -> Option<&Content> {
        self.candidates.first()?.content.as_ref()
    }

    /// Why the first candidate ended. `None` when there is none, or when more is to come.
    #[must_use]
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.candidates.first()?.finish_reason.clone()
    }

    /// Why the prompt was refused: `SAFETY`, `PROHIBITED_CONTENT`, …. The call counts all the same.
    #[must_use]
    pub fn block_reason(&self) -> Option<&str> {
        self.prompt_feedback.as_ref()?.block_reason.as_deref()
    }

    /// What it cost. In a stream these are running totals: the last one holds, they are never added
    /// up.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        usage_of(self.usage_metadata.as_ref())
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.content().into_iter().flat_map(|content| &content.parts)
    }
}

/// One answer among possibly several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// What the model says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// Why it ended.
    #[serde(alias = "finish_reason", default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// The same in words.
    #[serde(alias = "finish_message", default, skip_serializing_if = "Option::is_none")]
    pub finish_message: Option<String>,
    /// Which of several answers this is. Absent means the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Stands for the place where the answer can be gone on with, in base64. It may come before the
    /// end of a stream, too.
    #[serde(alias = "continuation_token", default, skip_serializing_if = "Option::is_none")]
    pub continuation_token: Option<String>,
    /// Fields that this version does not name: ratings, citations, grounding.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What was wrong with the prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptFeedback {
    /// Why it was refused.
    #[serde(alias = "block_reason", default, skip_serializing_if = "Option::is_none")]
    pub block_reason: Option<String>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How far a model is on its way from preview to retirement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelStatus {
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `PREVIEW`, `STABLE`, `RETIRING`, ….
    #[serde(alias = "model_stage", default, skip_serializing_if = "Option::is_none")]
    pub model_stage: Option<String>,
    /// When it goes, as RFC 3339.
    #[serde(alias = "retirement_time", default, skip_serializing_if = "Option::is_none")]
    pub retirement_time: Option<String>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

open_enum! {
    /// Why an answer ended. Google adds reasons, so any other is kept as it came.
    FinishReason {
        /// The answer is whole.
        Stop = "STOP",
        /// `maxOutputTokens` was reached. Thinking counts, so there may be no text at all.
        MaxTokens = "MAX_TOKENS",
        /// Blocked for safety.
        Safety = "SAFETY",
        /// Too close to what it was trained on.
        Recitation = "RECITATION",
        /// A language that is not supported.
        Language = "LANGUAGE",
        /// A forbidden term.
        Blocklist = "BLOCKLIST",
        /// Forbidden content.
        ProhibitedContent = "PROHIBITED_CONTENT",
        /// Personal data.
        Spii = "SPII",
        /// The model called a function in a form that cannot be read.
        MalformedFunctionCall = "MALFORMED_FUNCTION_CALL",
        /// The model's answer cannot be read.
        MalformedResponse = "MALFORMED_RESPONSE",
        /// The model called a tool that was not offered.
        UnexpectedToolCall = "UNEXPECTED_TOOL_CALL",
        /// The model called tools over and over.
        TooManyToolCalls = "TOO_MANY_TOOL_CALLS",
        /// A part came back without its signature.
        MissingThoughtSignature = "MISSING_THOUGHT_SIGNATURE",
        /// A picture was blocked for safety.
        ImageSafety = "IMAGE_SAFETY",
        /// A picture had forbidden content.
        ImageProhibitedContent = "IMAGE_PROHIBITED_CONTENT",
        /// A picture was too close to what the model was trained on.
        ImageRecitation = "IMAGE_RECITATION",
        /// A picture failed for a reason of its own.
        ImageOther = "IMAGE_OTHER",
        /// A picture was asked for and none was made.
        NoImage = "NO_IMAGE",
        /// The matter was handed on.
        Escalation = "ESCALATION",
        /// A filter of the account's own blocked it.
        ModelArmor = "MODEL_ARMOR",
        /// The limit of one request was reached; the candidate holds a token to go on with:
        /// [`GenerateRequest::continued`](super::GenerateRequest::continued).
        Continuation = "CONTINUATION",
        /// The account is limited for breaking a policy: look after the project.
        PupLimitedDisabled = "PUP_LIMITED_DISABLED",
    }
}

/// Reads a usage block. One without fields is a usage of zero, not a missing one: zeros are left
/// out.
pub(super) fn usage_of(block: Option<&Json>) -> Option<Usage> {
    let Reported(usage) = block?.parse().ok()?;
    usage
}

/// Borrows when there is one text, as in nearly every event of a stream.
fn concat<'a>(parts: impl Iterator<Item = &'a Part>) -> Cow<'a, str> {
    let mut texts = parts.filter_map(Part::text);
    let first = texts.next().unwrap_or_default();
    match texts.next() {
        None => Cow::Borrowed(first),
        Some(second) => [first, second].into_iter().chain(texts).collect::<String>().into(),
    }
}
