//! The chunks of a streamed completion.
//!
//! Calls come piece by piece and are handed out whole, with the reason for the end. Chunks that say nothing yet
//! (the first has a role and no text) are left out, so that another key can still take over after them.

use std::{collections::BTreeMap, fmt};

use serde::de::Error as _;

use super::answer::{Completion, Pending, lift_error};
use crate::{api::GenerateResponse, provider::EventReader, sse::DEFAULT_FRAME_LIMIT};

/// More choices than this are no choices: the client asks for a handful.
const MOST_CHOICES: usize = 128;

/// Puts together what comes in pieces.
#[derive(Default)]
pub(super) struct Chunks {
    choices: BTreeMap<u32, Pending>,
}

impl Chunks {
    /// How many bytes wait to be handed out.
    fn held(&self) -> usize {
        self.choices.values().map(Pending::held).sum()
    }
}

impl fmt::Debug for Chunks {
    /// What waits only by its length: it is somebody's conversation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunks").field("held_bytes", &self.held()).finish_non_exhaustive()
    }
}

impl EventReader for Chunks {
    fn read(&mut self, data: &[u8]) -> serde_json::Result<Option<GenerateResponse>> {
        let mut chunk: Completion = serde_json::from_slice(data)?;
        let choices = chunk.choices.take().unwrap_or_default();
        let mut response = chunk.into_response();
        for choice in choices {
            lift_error(&choice, &mut response);
            let pending = self.choices.entry(choice.index()).or_default();
            response.candidates.extend(pending.take(choice, false)?);
        }
        if self.held() > DEFAULT_FRAME_LIMIT || self.choices.len() > MOST_CHOICES {
            return Err(serde_json::Error::custom("more than can be put together"));
        }
        let is_error = ["error", "event_type"]
            .into_iter()
            .any(|name| response.extra.get(name).is_some_and(|value| !value.is_null()));
        let says_something =
            is_error || !response.candidates.is_empty() || response.usage_metadata.is_some();
        Ok(says_something.then_some(response))
    }
}

#[cfg(test)]
mod tests;
