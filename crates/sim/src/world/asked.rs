//! What the body of a call asks for.

use keywheel_core::Cause;

use super::call::Call;
use crate::{
    bodies::{self, ErrorBody},
    prompt::{Prompt, Text},
    quota::Ask,
    route::Verb,
};

/// A body that was read.
pub(super) enum Asked {
    Text(Box<Prompt>),
    Vectors(Vec<Text>),
    /// Nothing that can be answered.
    Refused(Cause, Box<ErrorBody>),
}

impl Asked {
    pub(super) fn read(call: &Call<'_>) -> Self {
        let read = |body| {
            if call.verb.embeds() {
                let most = if call.shape.is_openai() { 2_048 } else { 100 };
                Text::read(body, call.verb == Verb::BatchEmbed, most).map(Self::Vectors)
            } else {
                Prompt::read(body).map(|prompt| Self::Text(Box::new(prompt)))
            }
        };
        call.body.as_deref().map_err(Clone::clone).and_then(read).unwrap_or_else(|message| {
            Self::Refused(Cause::BadRequest, Box::new(bodies::bad_request(message)))
        })
    }

    /// Every text of a batch is a request at Google, and none at OpenAI. A request that makes no sense is
    /// one too.
    pub(super) fn ask(&self, call: &Call<'_>) -> Ask {
        match self {
            Self::Text(prompt) => Ask { requests: 1, tokens: prompt.tokens },
            Self::Vectors(texts) => Ask {
                requests: if call.shape.is_openai() { 1 } else { texts.len() as u64 },
                tokens: texts.iter().map(|text| text.tokens).sum(),
            },
            Self::Refused(..) => Ask { requests: 1, tokens: 0 },
        }
    }
}
