//! How replies are written: as the native routes do, or as OpenAI does.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use keywheel_core::Cause;
use serde_json::Value;

use crate::{
    answer::Answer,
    answers,
    bodies::{self, ErrorBody},
    config::ModelConfig,
    openai,
    prompt::Text,
    reply::{HttpReply, JSON, SSE},
    route::Verb,
};

/// The form of a reply. One world, one answer: only the writing differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Google's own.
    Native,
    /// Google's own, of a stream without `alt=sse`: everything stands in one array.
    Array,
    /// OpenAI's, as Google offers it under `/v1beta/openai`: errors are Google's, in an array (022, 051).
    Compat(Wishes),
    /// OpenAI's.
    OpenAi(Wishes),
}

/// What an OpenAI-style request asks of the reply's form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// A last chunk of a stream with the usage.
    pub(crate) usage: bool,
    /// Vectors as base64 of their bytes.
    pub(crate) base64: bool,
}

/// The events of a stream.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) texts: Vec<String>,
    /// The first of those that say how the answer ends.
    pub(crate) end: usize,
}

impl Shape {
    pub(crate) const fn is_openai(self) -> bool {
        matches!(self, Self::OpenAi(_))
    }

    /// The same, with wishes, where there can be any.
    pub(crate) const fn with(self, wishes: Wishes) -> Self {
        match self {
            Self::Compat(_) => Self::Compat(wishes),
            Self::OpenAi(_) => Self::OpenAi(wishes),
            other => other,
        }
    }

    /// An error as a reply of its own.
    pub(crate) fn error(self, cause: Cause, body: &ErrorBody) -> HttpReply {
        match self {
            Self::Native => body.reply(false),
            Self::Array | Self::Compat(_) => body.reply(true),
            Self::OpenAi(_) => openai::ErrorBody::of(cause, body).reply(),
        }
    }

    /// What a classifier can make of an error.
    pub(crate) const fn told(self, cause: Cause) -> Cause {
        match self {
            Self::OpenAi(_) => openai::as_openai(cause),
            Self::Native | Self::Array | Self::Compat(_) => cause,
        }
    }

    /// An error as an event of a stream.
    pub(crate) fn error_line(self, cause: Cause, body: &ErrorBody) -> String {
        match self {
            Self::OpenAi(_) => openai::ErrorBody::of(cause, body).one_line(),
            Self::Native | Self::Array | Self::Compat(_) => body.one_line(),
        }
    }

    /// A whole answer.
    pub(crate) fn answer(self, answer: &Answer<'_>, now: DateTime<Utc>) -> HttpReply {
        self.ok(&match self {
            Self::Native | Self::Array => answer.whole(),
            Self::Compat(_) | Self::OpenAi(_) => openai::completion(answer, self, now),
        })
    }

    /// Vectors.
    pub(crate) fn vectors(
        self,
        model: &str,
        config: &ModelConfig,
        texts: &[Text],
        verb: Verb,
    ) -> HttpReply {
        self.ok(&match self {
            Self::Native | Self::Array => {
                answers::embedded(model, config, texts, verb == Verb::BatchEmbed)
            }
            Self::Compat(wishes) | Self::OpenAi(wishes) => {
                openai::embedded(model, config, texts, wishes)
            }
        })
    }

    /// The events of a streamed answer.
    pub(crate) fn frames(self, answer: &Answer<'_>, now: DateTime<Utc>) -> Frames {
        match self {
            Self::Native | Self::Array => {
                let texts: Vec<_> = answer.chunks().iter().map(Value::to_string).collect();
                Frames { end: texts.len() - 1, texts }
            }
            Self::Compat(_) | Self::OpenAi(_) => openai::frames(answer, self, now),
        }
    }

    /// Event number `i` of `of`, as its bytes go out.
    pub(crate) fn framed(self, text: &str, i: usize, of: usize) -> String {
        match self {
            Self::Native => format!("data: {text}\r\n\r\n"),
            Self::Compat(_) | Self::OpenAi(_) => format!("data: {text}\n\n"),
            Self::Array => {
                let open = if i == 0 { "[" } else { "" };
                let close = if i + 1 == of { "]\n" } else { ",\r\n" };
                format!("{open}{text}\n{close}")
            }
        }
    }

    /// A stream that has no bytes yet.
    pub(crate) fn empty_stream(self) -> HttpReply {
        HttpReply::whole(200, if self == Self::Array { JSON } else { SSE }, Bytes::new())
    }

    pub(crate) fn ok(self, value: &Value) -> HttpReply {
        HttpReply::whole(200, JSON, bodies::pretty(value))
    }
}
