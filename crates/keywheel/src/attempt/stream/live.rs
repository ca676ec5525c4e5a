//! One request of a streamed answer, while its reply is read.

use std::sync::Arc;

use keywheel_pool::Ask;
use keywheel_provider::{
    api::{FinishReason, GenerateRequest, GenerateResponse},
    stream::GenerateStream,
};

use crate::{
    Attempt, Skipped,
    attempt::{Served, owed::Owed},
    charging::{Bill, Slip},
    gemini::{CallOptions, Inner},
    observe::CallSpan,
};

/// The call that a stream belongs to.
pub(in crate::attempt) struct Call {
    pub(in crate::attempt) inner: Arc<Inner>,
    /// The request of the hop that streams.
    pub(in crate::attempt) request: Arc<GenerateRequest>,
    /// What that may cost.
    pub(in crate::attempt) bill: Bill,
    /// What the ledger made the longest answer, where the caller set none.
    pub(in crate::attempt) cap: Option<u64>,
    pub(in crate::attempt) options: CallOptions,
    /// Until when the stream may be read.
    pub(in crate::attempt) end_ms: Option<i64>,
    pub(in crate::attempt) span: CallSpan,
}

/// What is told of the way to a stream.
pub(in crate::attempt) struct Told {
    pub(in crate::attempt) ask: Ask,
    pub(in crate::attempt) attempts: Vec<Attempt>,
    pub(in crate::attempt) skipped: Vec<Skipped>,
}

/// A request whose reply is being read.
pub(super) struct Live {
    pub(super) events: Box<GenerateStream>,
    pub(super) owed: Owed,
    /// Names the place to go on from.
    token: Option<String>,
    /// The answer ends here for now, and the next request goes on with it.
    pub(super) goes_on: Option<GenerateRequest>,
}

impl Live {
    pub(super) fn new(call: &Call, events: Box<GenerateStream>, served: Served) -> Self {
        let owed = Owed::new(&call.inner, served).watched(call.end_ms);
        Self { events, owed, token: None, goes_on: None }
    }

    /// Looks at a part before it is handed out: whether the model answers, and whether another request has to go on
    /// with the answer. Then the reader is not told of an end that is none.
    pub(super) fn look(&mut self, call: &Call, part: &mut GenerateResponse, may_go_on: bool) {
        self.owed.answers(false);
        let Some(candidate) = part.candidates.first_mut() else { return };
        if candidate.continuation_token.is_some() {
            self.token.clone_from(&candidate.continuation_token);
        }
        if candidate.finish_reason != Some(FinishReason::Continuation) || !may_go_on {
            return;
        }
        candidate.continuation_token.clone_from(&self.token);
        self.goes_on = call.request.continued(part);
        if self.goes_on.is_some()
            && let Some(candidate) = part.candidates.first_mut()
        {
            candidate.finish_reason = None;
        }
    }

    /// The whole hop was read: it was served, with what it has cost. What is returned is to be settled.
    pub(super) fn whole(self, model: &Arc<str>) -> (Option<GenerateRequest>, Slip) {
        let usage = self.events.usage();
        (self.goes_on, self.owed.whole(model, usage))
    }
}
