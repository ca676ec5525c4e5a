//! A stream in the caller's hands: it keeps the lease until the last event, an error, or the drop.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt as _, Stream, StreamExt, future::BoxFuture};
use keywheel_core::Usage;
use keywheel_pool::{Ask, Exhausted, Lease, Reported};
use keywheel_provider::{
    api::GenerateResponse,
    classify::Reply as WireReply,
    stream::{GenerateStream, StreamError},
};

use super::{
    judge::judge,
    outcome::{PoolOutcome, decide},
};
use crate::{
    Attempt, Error,
    gemini::Inner,
    time::{pause, timer},
};

/// How long the end of the body is waited for once the answer is whole. What comes then, if anything, is the usage.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The parts of a streamed answer.
///
/// Read it with [`next`](Self::next), or as a [`Stream`]. An error is the last item. The deadline of
/// the call, or else [`stream_deadline`](crate::GeminiBuilder::stream_deadline), holds to the end: an answer that is
/// not whole by then ends with [`Error::DeadlineReached`]. Once every
/// candidate has given the reason for its end, the end of the body is waited for 5 s at most.
///
/// # Cancel safety
/// Dropping a `next()` future loses nothing. Dropping the stream ends the upstream request; the attempt counts
/// against the key's quota.
pub struct GeminiStream {
    state: State,
    ask: Ask,
    usage: Option<Usage>,
    attempts: Vec<Attempt>,
    degraded: Option<Box<Exhausted>>,
}

enum State {
    Live {
        events: Box<GenerateStream>,
        lease: Lease,
        inner: Arc<Inner>,
        deadline: Option<BoxFuture<'static, ()>>,
        /// Runs while nothing comes after a whole answer.
        end: Option<BoxFuture<'static, ()>>,
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
        events: Box<GenerateStream>,
        lease: Lease,
        inner: Arc<Inner>,
        ask: Ask,
        attempts: Vec<Attempt>,
        deadline_ms: Option<i64>,
    ) -> Self {
        let deadline = deadline_ms.map(|at_ms| timer(&inner.clock, at_ms));
        let state = State::Live { events, lease, inner, deadline, end: None };
        Self { state, ask, usage: None, attempts, degraded: None }
    }

    pub(super) fn degraded_answer(
        ask: Ask,
        attempts: Vec<Attempt>,
        response: GenerateResponse,
        exhausted: Box<Exhausted>,
    ) -> Self {
        let (usage, state) = (response.usage(), State::Degraded(Some(Box::new(response))));
        Self { state, ask, usage, attempts, degraded: Some(exhausted) }
    }

    /// The next part; `None` after a whole answer.
    ///
    /// # Errors
    /// [`Error::StreamBroken`]: the answer is not whole, and nobody else could take over any more.
    /// [`Error::DeadlineReached`]: the call's deadline came before the answer was whole.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing; the part comes with the next call.
    pub async fn next(&mut self) -> Option<Result<GenerateResponse, Error>> {
        StreamExt::next(self).await
    }

    /// Reads to the end and returns the whole text, thoughts excluded.
    ///
    /// # Errors
    /// As [`next`](Self::next): a broken answer is an error, not a shorter text.
    ///
    /// # Cancel safety
    /// Dropping the future loses the parts that it has read; the stream goes on with the next one. Those who may
    /// have to stop collect [`next`](Self::next) themselves.
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
        &self.ask.model
    }

    /// What the answer has cost so far, as last reported. Whole once the stream has ended.
    #[must_use]
    pub const fn usage(&self) -> Option<Usage> {
        self.usage
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

    /// Ends a live stream whose deadline has come. What is whole by then was served.
    fn expire(&mut self) {
        let State::Live { events, lease, .. } = std::mem::replace(&mut self.state, State::Ended)
        else {
            return;
        };
        self.usage = events.usage();
        if events.is_whole() {
            return lease.served(&self.usage.unwrap_or_default());
        }
        lease.failed(&[]);
        let attempts = self.attempts.clone();
        self.state = State::Broken(Some(Error::DeadlineReached { attempts }));
    }

    /// Ends a live stream that failed: tells the pool, and keeps the error for the caller.
    fn fail(&mut self, error: &StreamError) {
        let State::Live { lease, inner, .. } = std::mem::replace(&mut self.state, State::Ended)
        else {
            return;
        };
        let refused = match error {
            StreamError::Refused(raw) => {
                let headers = http::HeaderMap::new();
                let reply = WireReply { status: 200, headers: &headers, body: raw.bytes() };
                judge(inner.upstream.dialect(), &reply, &self.ask, lease.key(), inner.clock.now())
            }
            _ => None,
        };
        let Some(refused) = refused else {
            lease.failed(&[]);
            let reason = error.to_string();
            self.state = State::Broken(Some(Error::StreamBroken { reason, verdict: None }));
            return;
        };
        let (told, _) = decide(&refused);
        let verdict = Box::new(refused.verdict);
        let reason = format!("{} ({})", refused.cause, verdict.message);
        self.state = match told {
            PoolOutcome::Refused(refusal) => {
                let report = Box::pin(lease.refused(&refusal));
                let error = Error::StreamBroken { reason, verdict: Some(verdict) };
                State::Reporting { report, error: Some(error) }
            }
            PoolOutcome::Failed => {
                lease.failed(&verdict.effects);
                State::Broken(Some(Error::StreamBroken { reason, verdict: Some(verdict) }))
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
                State::Live { events, inner, deadline, end, .. } => {
                    if deadline.as_mut().is_some_and(|at| at.poll_unpin(cx).is_ready()) {
                        this.expire();
                        continue;
                    }
                    let event = match events.poll_next_unpin(cx) {
                        Poll::Ready(event) => event,
                        Poll::Pending if events.is_whole() => {
                            let end = end.get_or_insert_with(|| pause(&inner.clock, END_PATIENCE));
                            std::task::ready!(end.poll_unpin(cx));
                            None
                        }
                        Poll::Pending => return Poll::Pending,
                    };
                    *end = None;
                    this.usage = events.usage();
                    match event {
                        Some(Ok(part)) => return Poll::Ready(Some(Ok(part))),
                        Some(Err(error)) => this.fail(&error),
                        None => {
                            if let State::Live { lease, .. } =
                                std::mem::replace(&mut this.state, State::Ended)
                            {
                                lease.served(&this.usage.unwrap_or_default());
                            }
                            return Poll::Ready(None);
                        }
                    }
                }
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

impl Drop for GeminiStream {
    /// A reader may stop at the finish reason and never ask for the end: that was a whole answer all the same.
    fn drop(&mut self) {
        if let State::Live { events, lease, .. } = std::mem::replace(&mut self.state, State::Ended)
            && events.is_whole()
        {
            lease.served(&events.usage().unwrap_or_default());
        }
    }
}

impl fmt::Debug for GeminiStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeminiStream")
            .field("model", &self.ask.model)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
