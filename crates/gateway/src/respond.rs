//! Answers' bodies: whole ones, and those that are handed on from the provider as they come.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream as _;
use http::Response;
use hyper::body::{Body, Frame, SizeHint};
use keywheel::raw::RelayBody;
use tokio::time::Instant;

use crate::{
    handle::{End, Record},
    server::{Phase, RequestPlace, Stage},
    stream_end::{Fault, Framing},
};

/// The body of an answer.
pub(crate) enum AnswerBody {
    /// All of it is there.
    Whole(Option<Bytes>),
    /// It comes from the provider.
    Handed(Handed),
}

impl AnswerBody {
    pub(crate) const fn empty() -> Self {
        Self::Whole(None)
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }

    /// Keeps `place` for as long as the provider's connection is needed: no longer than now, where all of the answer is
    /// here. Whoever asks over HTTP/2 and does not read keeps nobody else waiting.
    pub(crate) fn keep(&self, place: RequestPlace) {
        if let Self::Handed(handed) = self {
            handed.0.flow().keep(place);
        }
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
                handed.0.poll(cx).map(|frame| frame.map(|one| one.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Handed(handed) => {
                let flow = handed.0.flow();
                flow.body.is_none() && !flow.is_cut
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Handed(handed) => {
                handed.0.flow().left.map(SizeHint::with_exact).unwrap_or_default()
            }
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
pub(crate) struct Handed(Arc<Handing>);

struct Handing {
    flow: Mutex<Flow>,
    /// Since when the client could have taken more and did not: milliseconds since `began`, plus 1. 0: it did.
    idle_since: AtomicU64,
    began: Instant,
}

impl Handed {
    pub(crate) fn new(flow: Flow) -> Self {
        let idle_since = AtomicU64::new(0);
        Self(Arc::new(Handing { flow: Mutex::new(flow), idle_since, began: Instant::now() }))
    }

    /// Gives the client up when it takes nothing for `patience`. For HTTP/2, where a client's window can be full while
    /// its connection is not: of HTTP/1 the socket tells.
    pub(crate) fn watched(self, patience: Duration) -> Self {
        let handing = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(patience / 2).await;
                let Some(handing) = handing.upgrade() else { return };
                if handing.is_idle_for(patience) {
                    handing.flow().end(End::ClientGone);
                    return;
                }
            }
        });
        self
    }
}

impl Handing {
    fn flow(&self) -> MutexGuard<'_, Flow> {
        // Nothing in it can panic half way.
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        self.idle_since.store(0, Ordering::Relaxed);
        let polled = self.flow().poll(cx);
        if polled.is_ready() {
            self.idle_since.store(self.now() + 1, Ordering::Relaxed);
        }
        polled
    }

    fn is_idle_for(&self, patience: Duration) -> bool {
        let since = self.idle_since.load(Ordering::Relaxed);
        since > 0 && Duration::from_millis(self.now().saturating_sub(since - 1)) >= patience
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let mut flow = self.0.flow();
        let end = if flow.is_whole() { End::Whole } else { End::ClientGone };
        flow.end(end);
    }
}

/// What is handed on, and how far it is.
pub(crate) struct Flow {
    /// `None` once it has ended.
    body: Option<RelayBody>,
    framing: Framing,
    /// How many bytes are to come, where the provider said so.
    left: Option<u64>,
    /// Ends when streams have to; `None` for what can say nothing about it.
    ending: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// What is known of the request, and what it holds until its end: its place among those in flight.
    record: Option<Record>,
    /// Among the requests that there may be, while the provider's connection is needed.
    place: Option<RequestPlace>,
    /// The client was given up, or the answer broke where nothing can be said.
    is_cut: bool,
}

impl Flow {
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
        let (body, record) = (Some(body), Some(record));
        Self { body, framing, left: length, ending, record, place: None, is_cut: false }
    }

    fn keep(&mut self, place: RequestPlace) {
        let is_to_come = self.body.as_ref().is_some_and(|body| body.remaining().is_none());
        self.place = is_to_come.then_some(place);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(std::mem::take(&mut self.is_cut).then_some(Err(Broken)));
        };
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

    /// Nobody asks for the end of an answer whose last byte is sent: with its length known the server does not, and
    /// many clients close at `[DONE]`.
    fn is_whole(&self) -> bool {
        self.left == Some(0) || self.body.as_ref().is_some_and(RelayBody::is_whole)
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

    /// Lets go of everything. What is said of the end later does not count.
    fn end(&mut self, end: End) {
        self.is_cut |= self.body.is_some() && end == End::ClientGone;
        (self.body, self.place) = (None, None);
        if let Some(record) = self.record.take() {
            record.end(end);
        }
    }
}

fn stopping() -> Fault {
    Fault {
        status: 503,
        name: "UNAVAILABLE",
        message: "the gateway stops; ask again in a moment".to_owned(),
    }
}
