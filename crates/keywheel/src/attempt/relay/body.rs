//! A reply in the caller's hands: it keeps the lease until its last byte, an error, or the drop.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt};
use keywheel_core::Usage;
use keywheel_pool::Ask;

use super::reading::{Broke, Reading};
use crate::{
    Error,
    attempt::{
        Served,
        owed::{Owed, Settling},
    },
    charging::Slip,
    gemini::Inner,
    observe::CallSpan,
};

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
    live: Option<Box<Live>>,
    closing: Option<Closing>,
    ask: Ask,
    span: CallSpan,
    usage: Option<Usage>,
    was_whole: bool,
}

/// The pool and the ledger are told how it ended, before the caller is.
struct Closing {
    settling: Settling,
    error: Option<Error>,
}

/// A request whose reply is being handed on.
pub(super) struct Live {
    reading: Reading,
    owed: Owed,
}

impl Live {
    pub(super) fn new(
        inner: &Arc<Inner>,
        reading: Reading,
        served: Served,
        end_ms: Option<i64>,
        is_fixed: bool,
    ) -> Self {
        let mut owed = Owed::new(inner, served);
        if reading.remaining().is_none() {
            owed = owed.watched(end_ms);
        }
        if is_fixed {
            owed = owed.fixed();
        }
        let mut live = Self { reading, owed };
        live.take_note();
        live
    }

    /// Says what would have to be charged if it were dropped now, and that the model answers, once it does.
    fn take_note(&mut self) {
        self.owed.was_read(self.reading.usage());
        if self.reading.has_begun() {
            self.owed.answers(self.reading.remaining().is_some());
        }
    }

    /// It was read to its end. What is returned is to be settled.
    fn whole(self, model: &Arc<str>) -> Slip {
        self.owed.whole(model, self.reading.usage())
    }
}

impl RelayBody {
    pub(super) fn new(live: Live, ask: Ask, span: CallSpan) -> Self {
        let usage = live.reading.usage();
        let live = Some(Box::new(live));
        Self { live, closing: None, ask, span, usage, was_whole: false }
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
        match (&self.live, &self.closing) {
            (Some(live), _) => live.reading.remaining(),
            (None, Some(Closing { error: Some(_), .. })) => None,
            (None, _) => Some(0),
        }
    }

    /// The answer was handed on to its end: dropped now, it counts as read. So it is before the end of the body where
    /// the answer itself says that nothing follows, by `[DONE]` or the reason for its end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.live.as_ref().map_or(self.was_whole, |live| live.reading.is_handed_on())
    }

    fn whole(&mut self) {
        let Some(live) = self.live.take() else { return };
        self.was_whole = true;
        self.span.ended(Ok(self.usage));
        let settling = live.whole(&self.ask.model).settle().boxed();
        self.closing = Some(Closing { settling, error: None });
    }

    fn breaks(&mut self, settling: Settling, error: Error) {
        self.span.ended(Err(&error));
        self.closing = Some(Closing { settling, error: Some(error) });
    }

    /// The deadline has come. What is whole by then was served.
    fn expire(&mut self) {
        if self.live.as_ref().is_some_and(|live| live.reading.is_complete()) {
            return self.whole();
        }
        let Some(live) = self.live.take() else { return };
        // What was tried before is told with the head.
        self.breaks(live.owed.late(), Error::DeadlineReached { attempts: Vec::new() });
    }

    /// It broke off: tells the pool, and keeps the error for the caller.
    fn fail(&mut self, broke: &Broke) {
        let Some(live) = self.live.take() else { return };
        let body = match broke {
            Broke::Refused(body) => Some(&**body),
            Broke::Truncated | Broke::Transport(_) => None,
        };
        let (settling, error) = live.owed.broke(&self.ask, broke, body, self.usage);
        self.breaks(settling, error);
    }

    /// Whatever comes next of the live reply; `None`: it has come to an end.
    fn poll_live(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(live) = &mut self.live else { return Poll::Ready(None) };
        if live.owed.poll_deadline(cx).is_ready() {
            self.expire();
            return Poll::Ready(None);
        }
        let piece = match live.reading.poll_piece(cx) {
            Poll::Ready(piece) => piece,
            Poll::Pending if live.reading.is_finished() => {
                if !live.reading.is_done() {
                    ready!(live.owed.poll_end(cx));
                }
                live.reading.end();
                return Poll::Ready(None);
            }
            Poll::Pending => {
                live.take_note();
                return Poll::Pending;
            }
        };
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
        while this.live.is_some() {
            if let Some(piece) = ready!(this.poll_live(cx)) {
                return Poll::Ready(Some(Ok(piece)));
            }
        }
        if let Some(closing) = &mut this.closing {
            ready!(closing.settling.poll_unpin(cx));
        }
        let error = this.closing.take().and_then(|closing| closing.error);
        Poll::Ready(error.map(Err))
    }
}

impl Drop for RelayBody {
    /// A reader may stop at the last byte and never ask for the end: that was a whole reply all the same.
    fn drop(&mut self) {
        if let Some(live) = self.live.take()
            && live.reading.is_complete()
        {
            live.whole(&self.ask.model);
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
