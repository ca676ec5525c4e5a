//! A streamed answer: events as they come, and a clear error when it is not whole.
//!
//! A status of 200 promises nothing here: Google sends errors as events of a stream that began well, as a
//! tail of bare JSON, or just stops.

use std::{
    collections::BTreeSet,
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{
    Stream,
    future::{Either, select},
};
use keywheel_core::Usage;

use crate::{
    TransportError, WireResponse,
    api::GenerateResponse,
    provider::{EventReader, GeminiApi, Provider},
    sse::{Frame, FrameTooLarge, Framing, SseDecoder},
    transport::BodyStream,
};

/// More candidates than this are none: nobody asks for more than a handful, and each is remembered.
const MOST_CANDIDATES: usize = 128;

/// How much of a stream is looked at before it is handed out, in bytes.
pub const FIRST_EVENT_BYTES: usize = 64 * 1024;

/// The events of one streamed answer. Yields `None` only after a whole answer.
///
/// Reads server-sent events and, for requests without `alt=sse`, the elements of an array. The body's end
/// ends it, or `[DONE]`. An error is the last item: what follows it is not read.
///
/// # Cancel safety
/// Dropping a `next()` future loses nothing. Dropping the stream ends the upstream request; tokens made
/// until then may be charged.
pub struct GenerateStream {
    /// `None` once it has ended.
    body: Option<BodyStream>,
    decoder: SseDecoder,
    reader: Box<dyn EventReader>,
    peeked: Option<Result<GenerateResponse, StreamError>>,
    received: usize,
    usage: Option<Usage>,
    /// Candidates that have said anything, and those that gave a reason for their end.
    seen: BTreeSet<u32>,
    finished: BTreeSet<u32>,
    blocked: bool,
    done: bool,
}

impl GenerateStream {
    /// Reads the body of Gemini's reply with a status of 200.
    #[must_use]
    pub fn new(response: WireResponse) -> Self {
        Self::with(&GeminiApi, response)
    }

    /// Reads the body of `provider`'s reply with a status of 200.
    ///
    /// ```
    /// use futures_util::StreamExt as _;
    /// use http::HeaderMap;
    /// use keywheel_provider::{OpenAiApi, WireResponse, stream::GenerateStream};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let body = "data: {\"choices\": [{\"delta\": {\"content\": \"Hello\"}, \"finish_reason\": \"stop\"}]}\n\n\
    ///     data: [DONE]\n\n";
    /// let response = WireResponse::whole(200, HeaderMap::new(), body);
    /// let mut events = GenerateStream::with(&OpenAiApi::new(), response);
    /// assert_eq!(events.next().await.unwrap().unwrap().text(), "Hello");
    /// assert!(events.next().await.is_none());
    /// assert!(events.is_whole());
    /// # }
    /// ```
    #[must_use]
    pub fn with(provider: &dyn Provider, response: WireResponse) -> Self {
        Self {
            body: Some(response.body),
            decoder: SseDecoder::new(),
            reader: provider.event_reader(),
            peeked: None,
            received: 0,
            usage: None,
            seen: BTreeSet::new(),
            finished: BTreeSet::new(),
            blocked: false,
            done: false,
        }
    }

    /// Looks at the first event, so that a stream that begins with an error can still be replaced by
    /// another attempt. The event is kept and comes first from the stream.
    ///
    /// Gives up after [`FIRST_EVENT_BYTES`], or when `patience` ends: 2 s after the headers is usual.
    ///
    /// ```
    /// use std::future::pending;
    /// use keywheel_provider::{WireResponse, stream::{First, GenerateStream}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let body = "data: {\"error\": {\"code\": 503, \"status\": \"UNAVAILABLE\"}}\r\n\r\n";
    /// let reply = WireResponse::whole(200, http::HeaderMap::new(), body);
    /// let first = GenerateStream::new(reply).first_event(pending()).await;
    /// assert!(matches!(first, First::Failed(_)), "another attempt may take over");
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped; it can be called again.
    pub async fn first_event(&mut self, patience: impl Future<Output = ()>) -> First {
        if self.peeked.is_none() {
            let first = poll_fn(|cx| match self.poll_event(cx, Some(FIRST_EVENT_BYTES)) {
                Poll::Ready(event) => Poll::Ready(Some(event)),
                Poll::Pending if self.received >= FIRST_EVENT_BYTES => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            self.peeked = match select(pin!(first), pin!(patience)).await {
                Either::Left((Some(event), _)) => event,
                Either::Left((None, _)) | Either::Right(_) => return First::Undecided,
            };
        }
        match self.peeked.take() {
            Some(Err(error)) => First::Failed(error),
            event => {
                self.peeked = event;
                First::Arrived
            }
        }
    }

    /// What the answer has cost so far, as last reported. Whole once the stream has ended.
    #[must_use]
    pub const fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// True once every candidate has said why it ended, or the prompt was refused.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.blocked || (!self.finished.is_empty() && self.seen.is_subset(&self.finished))
    }

    /// The next event. `Pending` without a waker once `most` bytes were received without one.
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        most: Option<usize>,
    ) -> Poll<Option<Result<GenerateResponse, StreamError>>> {
        while !self.done {
            match self.decoder.next_frame() {
                Err(error) => return self.fail(error.into()),
                Ok(Some(frame)) => match self.take(&frame) {
                    Ok(None) => continue,
                    Ok(Some(event)) => return Poll::Ready(Some(Ok(event))),
                    Err(error) => return self.fail(error),
                },
                Ok(None) => {}
            }
            let Some(body) = &mut self.body else {
                if self.is_whole() {
                    self.done = true;
                    break;
                }
                return self.fail(StreamError::Truncated);
            };
            if most.is_some_and(|most| self.received >= most) {
                return Poll::Pending;
            }
            match ready!(body.as_mut().poll_next(cx)) {
                Some(Ok(piece)) => {
                    self.received += piece.len();
                    self.decoder.push(&piece);
                }
                Some(Err(error)) => return self.fail(error.into()),
                None => {
                    self.body = None;
                    self.decoder.finish();
                }
            }
        }
        Poll::Ready(None)
    }

    fn fail(&mut self, error: StreamError) -> Poll<Option<Result<GenerateResponse, StreamError>>> {
        self.done = true;
        self.body = None;
        Poll::Ready(Some(Err(error)))
    }

    /// `None` for a frame that means nothing.
    fn take(&mut self, frame: &Frame) -> Result<Option<GenerateResponse>, StreamError> {
        let data = frame.data.trim_ascii();
        if data.is_empty() {
            return Ok(None);
        }
        if data == b"[DONE]" {
            // The end, even where the connection is held open after it.
            self.body = None;
            self.decoder = SseDecoder::new();
            return Ok(None);
        }
        if frame.event.as_deref() == Some(b"error") {
            return Err(StreamError::Refused(Raw(frame.data.clone())));
        }
        let event = match self.reader.read(data) {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(None),
            Err(_) => return Err(self.unreadable(frame, data)),
        };
        if is_error(&event) {
            return Err(StreamError::Refused(Raw(frame.data.clone())));
        }
        Usage::take_last(&mut self.usage, event.usage());
        self.blocked |= event.block_reason().is_some();
        for candidate in &event.candidates {
            let index = candidate.index.unwrap_or(0);
            self.seen.insert(index);
            if candidate.finish_reason.is_some() {
                self.finished.insert(index);
            }
            if self.seen.len() > MOST_CANDIDATES {
                return Err(StreamError::Malformed(Raw(frame.data.clone())));
            }
        }
        Ok(Some(event))
    }

    fn unreadable(&self, frame: &Frame, data: &[u8]) -> StreamError {
        let raw = Raw(frame.data.clone());
        match frame.framing {
            _ if begins_with_error(data) => StreamError::Refused(raw),
            Framing::CutJson => StreamError::Truncated,
            // The last event of a stream that was cut in its middle.
            Framing::Event if self.body.is_none() => StreamError::Truncated,
            _ => StreamError::Malformed(raw),
        }
    }
}

impl Stream for GenerateStream {
    type Item = Result<GenerateResponse, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.peeked.take() {
            Some(event) => Poll::Ready(Some(event)),
            None => self.poll_event(cx, None),
        }
    }
}

impl fmt::Debug for GenerateStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateStream")
            .field("received_bytes", &self.received)
            .field("usage", &self.usage)
            .field("is_whole", &self.is_whole())
            .finish_non_exhaustive()
    }
}

/// What [`GenerateStream::first_event`] found.
#[derive(Debug)]
pub enum First {
    /// An event of an answer, now the stream's first item. Another attempt is no longer free.
    Arrived,
    /// The stream begins with an error; nothing was handed out, so another attempt may take over.
    Failed(StreamError),
    /// Not enough came in time. The stream goes on as it is.
    Undecided,
}

/// Why a stream brought no whole answer. No text of it, `Debug` included, holds what the provider said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// An error object in place of an event. `classify` reads it like the body of a reply.
    #[error("the provider broke the stream off with an error")]
    Refused(Raw),
    /// An event that is no JSON object of this API.
    #[error("an event of the stream cannot be read")]
    Malformed(Raw),
    /// The end came before a reason for it. What was said until then is no whole answer.
    #[error("the stream ended before the answer was whole")]
    Truncated,
    /// A frame over the decoder's limit.
    #[error(transparent)]
    TooLarge(#[from] FrameTooLarge),
    /// The connection broke, or nothing more came in time.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// What the provider sent, as it came. Printed by its length only, since errors may repeat the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Raw(Bytes);

impl Raw {
    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.0.len())
    }
}

/// `{"error": …}`, and the Interactions API's `{"event_type": "error", …}`.
fn is_error(event: &GenerateResponse) -> bool {
    event.extra.get("error").is_some_and(|error| !error.is_null())
        || event.extra.get("event_type").is_some_and(|kind| kind == "error")
}

/// For what is no JSON object: an error in an array, or one that was cut short.
fn begins_with_error(data: &[u8]) -> bool {
    let begin = data.iter().position(|b| !b"[{ \t\r\n".contains(b)).unwrap_or(0);
    data[begin..].starts_with(b"\"error\"")
}

#[cfg(test)]
mod tests;
