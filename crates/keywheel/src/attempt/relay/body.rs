//! A reply in the caller's hands: it keeps the lease until its last byte, an error, or the drop.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt, future::BoxFuture};
use http::HeaderMap;
use keywheel_core::{LimitSeen, Usage};
use keywheel_pool::{Ask, Lease};
use keywheel_provider::classify::Reply as WireReply;

use super::reading::{Broke, Reading};
use crate::{
    Error,
    attempt::{
        Served,
        breaker::{Outcome, Pass},
        judge::judge,
        late::refused_late,
    },
    charging::{Slip, Spent},
    gemini::Inner,
    observe::CallSpan,
    time::{pause, timer},
};

/// How long the end of the body is waited for once a stream's answer is whole.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The body of a reply, byte for byte as it comes.
///
/// What is still missing of a frame is kept back until the frame is whole, up to 64 KB: an error in the middle is the
/// last item, an `Err`, and its bytes are not handed on. So is the end of a streamed answer that gives no reason for
/// it, after its bytes.
///
/// # Cancel safety
/// Dropping a `next()` future loses nothing. Dropping the body ends the upstream request, and settles what was seen:
/// an answer that was read to its end costs what it says, any other the estimate, or what was seen if that is more.
pub struct RelayBody {
    state: State,
    inner: Arc<Inner>,
    ask: Ask,
    span: CallSpan,
    usage: Option<Usage>,
    was_whole: bool,
}

enum State {
    Live(Box<Live>),
    /// The pool and the ledger are told how it ended, before the caller is.
    Closing {
        closing: BoxFuture<'static, ()>,
        error: Option<Error>,
    },
    Ended,
}

/// A request whose reply is being handed on.
pub(super) struct Live {
    reading: Reading,
    lease: Lease,
    /// Until it is clear that the model answers.
    pass: Option<Pass>,
    slip: Slip,
    /// Tells the ledger that it is still being read.
    renewing: Option<BoxFuture<'static, Infallible>>,
    /// Those that the reply's headers told.
    limits: Vec<LimitSeen>,
    deadline: Option<BoxFuture<'static, ()>>,
    /// Runs while nothing comes after a whole answer.
    end: Option<BoxFuture<'static, ()>>,
    is_fixed: bool,
}

impl Live {
    pub(super) fn new(
        inner: &Inner,
        reading: Reading,
        served: Served,
        end_ms: Option<i64>,
        is_fixed: bool,
    ) -> Self {
        let Served { lease, pass, slip, limits } = served;
        // A reply that is here already needs nobody to watch over it.
        let goes_on = reading.remaining().is_none();
        let deadline = end_ms.filter(|_| goes_on).map(|at_ms| timer(&inner.clock, at_ms));
        let renewing = if goes_on { slip.renewing(&inner.clock) } else { None };
        let mut live = Self {
            reading,
            lease,
            pass: Some(pass),
            slip,
            renewing,
            limits,
            deadline,
            end: None,
            is_fixed,
        };
        live.take_note();
        live
    }

    /// Says what would have to be charged if it were dropped now, and that the model answers, once it does.
    fn take_note(&mut self) {
        self.slip.is(Spent::CutShort, self.charged());
        if self.reading.has_begun()
            && let Some(pass) = self.pass.take()
        {
            pass.tell(Outcome::Served);
            // Of what is whole the pool is told so at once.
            if self.reading.remaining().is_none() {
                self.lease.answers();
            }
        }
    }

    /// What the ledger is told of the usage.
    const fn charged(&self) -> Option<Usage> {
        if self.is_fixed { None } else { self.reading.usage() }
    }

    /// It was read to its end. What is returned is to be settled.
    fn served(mut self, inner: &Inner, model: &Arc<str>) -> Slip {
        self.slip.is(Spent::Answered, self.charged());
        let usage = self.reading.usage().unwrap_or_default();
        self.lease.served_with(&usage, &self.limits);
        if let Some(pass) = self.pass {
            pass.tell(Outcome::Served);
        }
        inner.counters.served(model, &usage);
        self.slip
    }
}

impl RelayBody {
    pub(super) fn new(inner: Arc<Inner>, live: Live, ask: Ask, span: CallSpan) -> Self {
        let usage = live.reading.usage();
        let state = State::Live(Box::new(live));
        Self { state, inner, ask, span, usage, was_whole: false }
    }

    /// The next bytes; `None` after the last.
    ///
    /// # Errors
    /// [`Error::StreamBroken`]: what was handed out is no whole reply.
    /// [`Error::DeadlineReached`]: the call's deadline came before its end.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing; the bytes come with the next call.
    pub async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        StreamExt::next(self).await
    }

    /// What the reply says it has cost, as last reported; whole once the body has ended. `None`: it does not say, or
    /// it cannot be read.
    #[must_use]
    pub const fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// How many bytes are still to come, where all of them are here: for a `content-length`.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        match &self.state {
            State::Live(live) => live.reading.remaining(),
            State::Closing { error: Some(_), .. } => None,
            State::Closing { .. } | State::Ended => Some(0),
        }
    }

    /// The answer was handed on to its end: dropped now, it counts as read. So it is before the end of the body where
    /// the answer itself says that nothing follows, by `[DONE]` or the reason for its end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match &self.state {
            State::Live(live) => live.reading.is_handed_on(),
            State::Closing { error, .. } => error.is_none(),
            State::Ended => self.was_whole,
        }
    }

    fn take_live(&mut self) -> Option<Live> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Live(live) => Some(*live),
            other => {
                self.state = other;
                None
            }
        }
    }

    fn whole(&mut self) {
        let Some(live) = self.take_live() else { return };
        let slip = live.served(&self.inner, &self.ask.model);
        self.was_whole = true;
        self.span.ended(Ok(self.usage));
        self.state = State::Closing { closing: Box::pin(slip.settle()), error: None };
    }

    fn breaks(&mut self, closing: BoxFuture<'static, ()>, error: Error) {
        self.span.ended(Err(&error));
        self.inner.counters.failed();
        self.inner.counters.gave_up();
        self.state = State::Closing { closing, error: Some(error) };
    }

    /// The deadline has come. What is whole by then was served.
    fn expire(&mut self) {
        let Some(live) = self.take_live() else { return };
        if live.reading.is_complete() {
            self.state = State::Live(Box::new(live));
            return self.whole();
        }
        live.lease.failed(&[]);
        // What was tried before is told with the head. Its slip says already what was seen.
        self.breaks(Box::pin(live.slip.settle()), Error::DeadlineReached { attempts: Vec::new() });
    }

    /// It broke off: tells the pool, and keeps the error for the caller.
    fn fail(&mut self, broke: &Broke) {
        let Some(live) = self.take_live() else { return };
        let Live { lease, pass, mut slip, .. } = live;
        let refused = match broke {
            Broke::Refused(body) => {
                let headers = HeaderMap::new();
                let reply = WireReply { status: 200, headers: &headers, body };
                let now = self.inner.clock.now();
                judge(self.inner.upstream.dialect(), &reply, &self.ask, lease.key(), now)
            }
            Broke::Truncated | Broke::Transport(_) => None,
        };
        let Some(refused) = refused else {
            if let Some(pass) = pass {
                pass.tell(Outcome::Failed(None));
            }
            lease.failed(&[]);
            let error = Error::StreamBroken { reason: broke.to_string(), verdict: None };
            return self.breaks(Box::pin(slip.settle()), error);
        };
        let (report, error) = refused_late(lease, pass, &mut slip, refused, self.usage);
        let settling = slip.settle();
        let closing = async move {
            settling.await;
            // A refusal in the middle is on record before it is handed out.
            if let Some(report) = report {
                let _reported = report.await;
            }
        };
        self.breaks(Box::pin(closing), error);
    }

    /// Whatever comes next of the live reply; `None`: the state has changed.
    fn poll_live(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let State::Live(live) = &mut self.state else { return Poll::Ready(None) };
        if let Some(renewing) = &mut live.renewing {
            let _never = renewing.poll_unpin(cx);
        }
        if live.deadline.as_mut().is_some_and(|at| at.poll_unpin(cx).is_ready()) {
            self.expire();
            return Poll::Ready(None);
        }
        let piece = match live.reading.poll_piece(cx) {
            Poll::Ready(piece) => piece,
            Poll::Pending if live.reading.is_finished() => {
                if !live.reading.is_done() {
                    let clock = &self.inner.clock;
                    let end = live.end.get_or_insert_with(|| pause(clock, END_PATIENCE));
                    ready!(end.poll_unpin(cx));
                }
                live.reading.end();
                return Poll::Ready(None);
            }
            Poll::Pending => {
                live.take_note();
                return Poll::Pending;
            }
        };
        live.end = None;
        live.take_note();
        self.usage = live.reading.usage();
        match piece {
            Some(Ok(piece)) => return Poll::Ready(Some(piece)),
            Some(Err(broke)) => self.fail(&broke),
            None => self.whole(),
        }
        Poll::Ready(None)
    }
}

impl Stream for RelayBody {
    type Item = Result<Bytes, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Live(_) => {
                    if let Some(piece) = ready!(this.poll_live(cx)) {
                        return Poll::Ready(Some(Ok(piece)));
                    }
                }
                State::Closing { closing, error } => {
                    ready!(closing.poll_unpin(cx));
                    let error = error.take();
                    this.state = State::Ended;
                    return Poll::Ready(error.map(Err));
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for RelayBody {
    /// A reader may stop at the last byte and never ask for the end: that was a whole reply all the same.
    fn drop(&mut self) {
        if let Some(live) = self.take_live()
            && live.reading.is_complete()
        {
            live.served(&self.inner, &self.ask.model);
        }
    }
}

impl fmt::Debug for RelayBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayBody")
            .field("model", &self.ask.model)
            .field("usage", &self.usage)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
