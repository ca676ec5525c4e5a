//! Answers' bodies: whole ones, and those that are handed on from the provider as they come.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::Stream as _;
use http::Response;
use hyper::body::{Body, Frame, SizeHint};
use keywheel::raw::RelayBody;

use crate::{
    handle::{End, Record},
    server::{Phase, Stage},
    stream_end::{Fault, Framing},
};

/// The body of an answer.
pub(crate) enum AnswerBody {
    /// All of it is there.
    Whole(Option<Bytes>),
    /// It comes from the provider.
    Handed(Box<Handed>),
}

impl AnswerBody {
    pub(crate) const fn empty() -> Self {
        Self::Whole(None)
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole(_) => "AnswerBody::Whole",
            Self::Handed(_) => "AnswerBody::Handed",
        })
    }
}

/// Gives an answer the body that it is sent with.
pub(crate) fn whole(answer: Response<Bytes>) -> Response<AnswerBody> {
    answer.map(AnswerBody::whole)
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Handed(handed) => {
                handed.poll(cx).map(|frame| frame.map(|one| one.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Handed(handed) => handed.body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Handed(handed) => handed.left.map(SizeHint::with_exact).unwrap_or_default(),
        }
    }
}

/// An answer that cannot be brought to its end: its connection is cut, so that nobody takes it for whole.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(crate) struct Broken;

/// A reply of the provider's on its way to the client, byte for byte.
///
/// It is read only when the client's connection takes more, so a slow reader slows the provider and fills no memory.
/// Dropped before its end, the client is gone: the provider's connection closes, and what was seen is settled.
pub(crate) struct Handed {
    /// `None` once it has ended.
    body: Option<RelayBody>,
    framing: Framing,
    /// How many bytes are to come, where the provider said so.
    left: Option<u64>,
    /// Ends when streams have to; `None` for what can say nothing about it.
    ending: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// What is known of the request, and what it holds until its end: its place among those in flight.
    record: Option<Record>,
}

impl Handed {
    pub(crate) fn new(
        body: RelayBody,
        framing: Framing,
        length: Option<u64>,
        mut stage: Stage,
        record: Record,
    ) -> Self {
        let says_so = framing != Framing::Whole;
        let ending = says_so.then(|| {
            Box::pin(async move { stage.left(Phase::Draining).await })
                as Pin<Box<dyn Future<Output = ()> + Send>>
        });
        Self { body: Some(body), framing, left: length, ending, record: Some(record) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        if let Some(ending) = &mut self.ending
            && ending.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(self.break_off(&stopping(), End::Stopped));
        }
        match std::task::ready!(Pin::new(body).poll_next(cx)) {
            Some(Ok(bytes)) => {
                self.pass(&bytes);
                Poll::Ready(Some(Ok(bytes)))
            }
            Some(Err(error)) => {
                let fault = self.record.as_ref().map_or_else(stopping, |own| own.fault(&error));
                Poll::Ready(self.break_off(&fault, End::Broken))
            }
            None => {
                self.end(End::Whole);
                Poll::Ready(None)
            }
        }
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.framing.pass(bytes);
        let length = bytes.len() as u64;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(length);
        }
        if let Some(record) = &mut self.record {
            record.sent(length);
        }
    }

    /// The last that the client hears.
    fn break_off(&mut self, fault: &Fault, end: End) -> Option<Result<Bytes, Broken>> {
        let words = self.framing.last_words(fault);
        self.end(end);
        Some(words.ok_or(Broken))
    }

    fn end(&mut self, end: End) {
        self.body = None;
        if let Some(record) = self.record.take() {
            record.end(end);
        }
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        // With its length known, nobody asks for the end of an answer whose last byte is sent.
        self.end(if self.left == Some(0) { End::Whole } else { End::ClientGone });
    }
}

fn stopping() -> Fault {
    Fault {
        status: 503,
        name: "UNAVAILABLE",
        message: "the gateway stops; ask again in a moment".to_owned(),
    }
}
