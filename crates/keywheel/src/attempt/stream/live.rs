//! One request of a streamed answer, while its reply is read.

use std::{convert::Infallible, sync::Arc};

use futures_util::future::BoxFuture;
use keywheel_core::LimitSeen;
use keywheel_pool::{Ask, Lease};
use keywheel_provider::{
    api::{FinishReason, GenerateRequest, GenerateResponse},
    stream::GenerateStream,
};

use crate::{
    Attempt, Skipped,
    attempt::{
        Served,
        breaker::{Outcome, Pass},
    },
    charging::{Bill, Slip, Spent},
    gemini::{CallOptions, Inner},
    observe::CallSpan,
    time::timer,
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
    pub(super) lease: Lease,
    /// Until the first part is there.
    pub(super) pass: Option<Pass>,
    pub(super) slip: Slip,
    /// Tells the ledger that it is still being read.
    pub(super) renewing: Option<BoxFuture<'static, Infallible>>,
    /// Those that the reply's headers told.
    pub(super) limits: Vec<LimitSeen>,
    pub(super) deadline: Option<BoxFuture<'static, ()>>,
    /// Runs while nothing comes after a whole answer.
    pub(super) end: Option<BoxFuture<'static, ()>>,
    /// Names the place to go on from.
    pub(super) token: Option<String>,
    /// The answer ends here for now, and the next request goes on with it.
    pub(super) goes_on: Option<GenerateRequest>,
}

impl Live {
    pub(super) fn new(call: &Call, events: Box<GenerateStream>, served: Served) -> Self {
        let deadline = call.end_ms.map(|at_ms| timer(&call.inner.clock, at_ms));
        let Served { lease, pass, slip, limits } = served;
        let (pass, renewing) = (Some(pass), slip.renewing(&call.inner.clock));
        let (end, token, goes_on) = (None, None, None);
        Self { events, lease, pass, slip, renewing, limits, deadline, end, token, goes_on }
    }

    /// Looks at a part before it is handed out: whether the model answers, and whether another request has to go on
    /// with the answer. Then the reader is not told of an end that is none.
    pub(super) fn look(&mut self, call: &Call, part: &mut GenerateResponse, may_go_on: bool) {
        if let Some(pass) = self.pass.take() {
            pass.tell(Outcome::Served);
            self.lease.answers();
        }
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
    pub(super) fn served(
        mut self,
        call: Option<&Call>,
        model: &Arc<str>,
    ) -> (Option<GenerateRequest>, Slip) {
        self.slip.is(Spent::Answered, self.events.usage());
        let usage = self.events.usage().unwrap_or_default();
        self.lease.served_with(&usage, &self.limits);
        if let Some(call) = call {
            call.inner.counters.served(model, &usage);
        }
        (self.goes_on, self.slip)
    }
}
