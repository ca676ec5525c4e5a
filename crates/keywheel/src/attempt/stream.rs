//! A stream in the caller's hands: it keeps the lease until the last event, an error, or the drop.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{Stream, StreamExt, future::BoxFuture};
use keywheel_core::scrub::scrub;
use keywheel_pool::{Exhausted, Lease, Reported};
use keywheel_provider::{
    api::GenerateResponse,
    classify::{Asked, Dialect, Reply as WireReply, Verdict, classify},
    stream::{GenerateStream, StreamError},
};

use super::outcome::{PoolOutcome, decide};
use crate::{Attempt, Error, gemini::Inner};

/// The parts of a streamed answer.
///
/// Read it with [`next`](Self::next), or as a [`Stream`]. An error is the last item. The deadline of the call
/// bounds the time to the first part only; after that the transport's idle timeout watches.
///
/// # Cancel safety
/// Dropping a `next()` future loses nothing. Dropping the stream ends the upstream request; the attempt counts
/// against the key's quota.
pub struct GeminiStream {
    state: State,
    model: Arc<str>,
    attempts: Vec<Attempt>,
    degraded: Option<Box<Exhausted>>,
}

enum State {
    Live {
        events: GenerateStream,
        lease: Lease,
        inner: Arc<Inner>,
    },
    /// A refusal in the middle is put on record before it is handed out.
    Reporting {
        report: BoxFuture<'static, Reported>,
        error: Option<Error>,
    },
    Broken(Option<Error>),
    Degraded(Option<Box<GenerateResponse>>),
    Ended,
}

impl GeminiStream {
    pub(super) fn live(
        events: GenerateStream,
        lease: Lease,
        inner: Arc<Inner>,
        model: Arc<str>,
        attempts: Vec<Attempt>,
    ) -> Self {
        Self { state: State::Live { events, lease, inner }, model, attempts, degraded: None }
    }

    pub(super) fn degraded_answer(
        model: Arc<str>,
        attempts: Vec<Attempt>,
        response: GenerateResponse,
        exhausted: Box<Exhausted>,
    ) -> Self {
        let state = State::Degraded(Some(Box::new(response)));
        Self { state, model, attempts, degraded: Some(exhausted) }
    }

    /// The next part; `None` after a whole answer.
    ///
    /// # Errors
    /// [`Error::StreamBroken`]: the answer is not whole, and nobody else could take over any more.
    pub async fn next(&mut self) -> Option<Result<GenerateResponse, Error>> {
        StreamExt::next(self).await
    }

    /// Reads to the end and returns the whole text, thoughts excluded.
    ///
    /// # Errors
    /// As [`next`](Self::next): a broken answer is an error, not a shorter text.
    pub async fn text(&mut self) -> Result<String, Error> {
        let mut text = String::new();
        while let Some(part) = self.next().await {
            text.push_str(&part?.text());
        }
        Ok(text)
    }

    /// The model that was asked.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Every attempt up to the one that streams.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Why the callback answered and no model did; `None` for a real answer.
    #[must_use]
    pub fn degraded(&self) -> Option<&Exhausted> {
        self.degraded.as_deref()
    }

    /// Ends a live stream that failed: tells the pool, and keeps the error for the caller.
    fn fail(&mut self, error: StreamError) {
        let State::Live { lease, inner, .. } = std::mem::replace(&mut self.state, State::Ended)
        else {
            return;
        };
        let StreamError::Refused(raw) = &error else {
            lease.failed(&[]);
            let reason = error.to_string();
            self.state = State::Broken(Some(Error::StreamBroken { reason, verdict: None }));
            return;
        };
        let verdict = judge(&self.model, &lease, &inner, raw.bytes());
        let reason = format!("{} ({})", verdict.kind.as_str(), verdict.message);
        let (told, _) = decide(&verdict);
        let effects = verdict.effects.clone();
        let error = Error::StreamBroken { reason, verdict: Some(Box::new(verdict)) };
        self.state = match told {
            PoolOutcome::Refused(refusal) => {
                let report = lease.refused(&refusal);
                State::Reporting { report: Box::pin(report), error: Some(error) }
            }
            PoolOutcome::Failed | PoolOutcome::Served => {
                lease.failed(&effects);
                State::Broken(Some(error))
            }
        };
    }
}

impl Stream for GeminiStream {
    type Item = Result<GenerateResponse, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Live { events, .. } => match std::task::ready!(events.poll_next_unpin(cx)) {
                    Some(Ok(part)) => return Poll::Ready(Some(Ok(part))),
                    Some(Err(error)) => this.fail(error),
                    None => {
                        if let State::Live { events, lease, .. } =
                            std::mem::replace(&mut this.state, State::Ended)
                        {
                            lease.served(&events.usage().unwrap_or_default());
                        }
                        return Poll::Ready(None);
                    }
                },
                State::Reporting { report, error } => {
                    let _reported = std::task::ready!(report.as_mut().poll(cx));
                    let error = error.take();
                    this.state = State::Ended;
                    return Poll::Ready(error.map(Err));
                }
                State::Broken(error) => {
                    let error = error.take();
                    this.state = State::Ended;
                    return Poll::Ready(error.map(Err));
                }
                State::Degraded(response) => {
                    let response = response.take();
                    this.state = State::Ended;
                    return Poll::Ready(response.map(|response| Ok(*response)));
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl fmt::Debug for GeminiStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeminiStream")
            .field("model", &self.model)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

fn judge(model: &str, lease: &Lease, inner: &Inner, body: &[u8]) -> Verdict {
    let headers = http::HeaderMap::new();
    let reply = WireReply { status: 200, headers: &headers, body };
    let asked = Asked { model: Some(model), ..Asked::default() };
    let mut verdict = classify(Dialect::Gemini, &reply, &asked, inner.clock.now());
    verdict.message = scrub(&verdict.message, &[lease.key()]).into_owned();
    verdict
}
