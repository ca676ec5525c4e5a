//! A reply on its way through: pieces come in, are looked at, and go out as they came.

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::future::select;
use http::{HeaderMap, header::CONTENT_LENGTH};
use keywheel_core::Usage;
use keywheel_provider::{TransportError, transport::BodyStream};

use super::watch::{Expected, Fault, Watch};

/// How much of a reply is looked at before it is handed out, and how much of a frame is kept back until it is whole.
/// No error is as long.
const LOOKED_AT: u64 = 64 * 1024;

/// Why a reply broke off.
#[derive(Debug)]
pub(super) enum Broke {
    Refused(Bytes),
    Truncated,
    Transport(TransportError),
}

impl fmt::Display for Broke {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(_) => f.write_str("the provider broke the reply off with an error"),
            Self::Truncated => f.write_str("the reply ended before the answer was whole"),
            Self::Transport(error) => error.fmt(f),
        }
    }
}

/// The body of one reply.
pub(super) struct Reading {
    /// `None` once it has ended, whichever way.
    body: Option<BodyStream>,
    watch: Watch,
    /// What was read and not handed on yet.
    held: VecDeque<Bytes>,
    received: u64,
    handed: u64,
    /// By `content-length`.
    expected: Option<u64>,
    broke: Option<Broke>,
    /// It was read to its end, and nothing is the matter.
    is_complete: bool,
}

impl Reading {
    pub(super) fn new(expected: Expected, headers: &HeaderMap, body: BodyStream) -> Self {
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        Self {
            body: Some(body),
            watch: Watch::new(expected, headers),
            held: VecDeque::new(),
            received: 0,
            handed: 0,
            expected: length.and_then(|length| length.parse().ok()),
            broke: None,
            is_complete: false,
        }
    }

    /// Looks at the beginning before anything is handed out: at the first frame of a stream, for no longer than
    /// `patience`; at the whole of a short reply that is none. What is no JSON is not looked at.
    ///
    /// # Errors
    /// It is no answer. Another attempt may take over.
    pub(super) async fn look(&mut self, patience: impl Future<Output = ()>) -> Result<(), Broke> {
        let is_stream = self.watch.reads_frames();
        let looking = poll_fn(|cx| {
            while !self.was_looked_at() {
                ready!(self.poll_more(cx));
            }
            Poll::Ready(())
        });
        if is_stream {
            // Either way it is handed out, or has broken off.
            let _first = select(pin!(looking), pin!(patience)).await;
        } else {
            looking.await;
        }
        match self.broke.take() {
            Some(broke) => Err(broke),
            None => Ok(()),
        }
    }

    fn was_looked_at(&self) -> bool {
        self.body.is_none()
            || self.received >= LOOKED_AT
            || self.watch.frames_read() > 0
            || !(self.watch.reads_frames() || self.watch.reads_whole())
    }

    /// The next bytes that may be handed on. An error is the last item, and comes after every byte before it.
    pub(super) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Broke>>> {
        loop {
            if let Some(piece) = self.take_free() {
                return Poll::Ready(Some(Ok(piece)));
            }
            if let Some(broke) = self.broke.take() {
                return Poll::Ready(Some(Err(broke)));
            }
            if self.body.is_none() {
                return Poll::Ready(None);
            }
            ready!(self.poll_more(cx));
        }
    }

    /// Ends it here: the answer is whole, and nothing but the end is missing.
    pub(super) fn end(&mut self) {
        self.body = None;
        self.finish();
    }

    /// It was read to its end, or its answer is whole.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete || self.is_finished()
    }

    /// Every answer of a stream has given the reason for its end.
    pub(super) const fn is_finished(&self) -> bool {
        self.watch.is_finished() && self.broke.is_none()
    }

    /// The end was announced: nothing is to be waited for.
    pub(super) const fn is_done(&self) -> bool {
        self.watch.is_done() && self.broke.is_none()
    }

    /// An answer has begun to come.
    pub(super) const fn has_begun(&self) -> bool {
        self.watch.frames_read() > 0 || self.is_complete
    }

    /// It may take as long as a stream may.
    pub(super) const fn is_long(&self) -> bool {
        !self.watch.reads_whole()
    }

    pub(super) const fn usage(&self) -> Option<Usage> {
        self.watch.usage()
    }

    /// Its answer is whole, and all that came of it was handed on.
    pub(super) const fn is_handed_on(&self) -> bool {
        self.is_complete() && self.handed == self.received
    }

    /// How many bytes are still to be handed on, where all of them are here.
    pub(super) const fn remaining(&self) -> Option<u64> {
        if self.is_complete { Some(self.received - self.handed) } else { None }
    }

    /// Reads one piece more.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(body) = &mut self.body else { return Poll::Ready(()) };
        match ready!(body.as_mut().poll_next(cx)) {
            Some(Ok(piece)) if piece.is_empty() => {}
            Some(Ok(piece)) => {
                self.received += piece.len() as u64;
                if let Err(fault) = self.watch.push(&piece) {
                    self.breaks(fault.into());
                }
                self.held.push_back(piece);
                if self.expected.is_some_and(|length| self.received >= length)
                    && self.body.is_some()
                {
                    self.end();
                }
            }
            Some(Err(error)) => self.breaks(Broke::Transport(error)),
            None => self.end(),
        }
        Poll::Ready(())
    }

    fn finish(&mut self) {
        match self.watch.finish() {
            Ok(()) => self.is_complete = true,
            Err(fault) => self.breaks(fault.into()),
        }
    }

    fn breaks(&mut self, broke: Broke) {
        self.body = None;
        self.broke = Some(broke);
    }

    fn take_free(&mut self) -> Option<Bytes> {
        let kept_back = self.received - self.handed;
        // A frame that is longer than any error is handed on before its end.
        let too_long = kept_back > LOOKED_AT && self.broke.is_none();
        let free =
            if too_long { kept_back } else { self.watch.passed().saturating_sub(self.handed) };
        if free == 0 {
            return None;
        }
        let first = self.held.front_mut()?;
        let piece = match usize::try_from(free) {
            Ok(free) if free < first.len() => first.split_to(free),
            _ => self.held.pop_front()?,
        };
        self.handed += piece.len() as u64;
        Some(piece)
    }
}

impl From<Fault> for Broke {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(raw) => Self::Refused(raw),
            Fault::Truncated => Self::Truncated,
        }
    }
}
