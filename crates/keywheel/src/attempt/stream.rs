//! A stream in the caller's hands: it keeps the lease until the last event, an error, or the drop.

mod live;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::{FutureExt as _, Stream, StreamExt, future::BoxFuture};
use keywheel_core::Usage;
use keywheel_pool::Exhausted;
use keywheel_provider::{
    api::{FinishReason, GenerateResponse},
    stream::{GenerateStream, StreamError},
};

use self::live::Live;
pub(super) use self::live::{Call, Told};
use super::{
    Served, Skipped,
    generate::{MOST_HOPS, go_on},
    owed::Settling,
};
use crate::{Attempt, Error, charging::gone_on, error::OutOfKeys, gemini::CallOptions};

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
    /// The request whose answer is being read.
    live: Option<Box<Live>>,
    /// The answer goes on with another request.
    going_on: Option<BoxFuture<'static, NextHop>>,
    /// What comes when there is neither: an error, or the answer that the callback made.
    last: Option<Result<Box<GenerateResponse>, Error>>,
    /// What goes on, if an answer has several hops; `None` for one that the callback made.
    call: Option<Call>,
    told: Told,
    /// Of the hops that have ended.
    spent: Option<Usage>,
    /// Of all, as last reported.
    usage: Option<Usage>,
    hops: usize,
    degraded: Option<OutOfKeys>,
    /// Of a hop that has ended: comes before whatever else there is to say.
    settling: Option<Settling>,
    /// Why the last candidate's answer ended.
    finish_reason: Option<FinishReason>,
}

type NextHop = Result<(Box<GenerateStream>, Served, Vec<Attempt>), Error>;

impl GeminiStream {
    pub(super) fn live(
        call: Call,
        events: Box<GenerateStream>,
        served: Served,
        told: Told,
    ) -> Self {
        let mut stream = Self::new(told);
        stream.live = Some(Box::new(Live::new(&call, events, served)));
        stream.call = Some(call);
        stream
    }

    pub(super) fn degraded_answer(told: Told, response: GenerateResponse, out: OutOfKeys) -> Self {
        let mut stream = Self::new(told);
        (stream.usage, stream.degraded) = (response.usage(), Some(out));
        stream.last = Some(Ok(Box::new(response)));
        stream
    }

    const fn new(told: Told) -> Self {
        Self {
            live: None,
            going_on: None,
            last: None,
            call: None,
            told,
            spent: None,
            usage: None,
            hops: 1,
            degraded: None,
            settling: None,
            finish_reason: None,
        }
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

    /// The model that answers; the one that was asked for, if none does.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.told.ask.model
    }

    /// The models of the [fallback chain](crate::GeminiBuilder::fallback) that were passed over, and why. Empty when
    /// the model that was asked for answers.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.told.skipped
    }

    /// What the answer has cost so far, as last reported. Whole once the stream has ended.
    #[must_use]
    pub const fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Every attempt up to the one that streams.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.told.attempts
    }

    /// Why the callback answered and no model did; `None` for a real answer.
    #[must_use]
    pub fn degraded(&self) -> Option<&Exhausted> {
        self.degraded.as_ref().map(|out| &*out.exhausted)
    }

    /// True if the answer ends at the longest that the ledger reserves for the account, and the request itself set
    /// no limit: see [`Reply::output_was_capped`](crate::Reply::output_was_capped). Known once the stream has ended.
    #[must_use]
    pub fn output_was_capped(&self) -> bool {
        let capped = self.call.as_ref().is_some_and(|call| call.cap.is_some());
        capped && self.finish_reason == Some(FinishReason::MaxTokens)
    }

    /// Ends a live stream whose deadline has come. What is whole by then was served.
    fn expire(&mut self) {
        let Some(live) = self.live.take() else { return };
        self.count(live.events.usage());
        if live.events.is_whole() && live.goes_on.is_none() {
            return self.whole(*live);
        }
        self.settling = Some(live.owed.late());
        let attempts = self.told.attempts.clone();
        self.breaks(Error::DeadlineReached { attempts });
    }

    /// The hop was read to its end: the answer is whole, or goes on.
    fn whole(&mut self, live: Live) {
        let used = live.events.usage();
        let (next, slip) = live.whole(&self.told.ask.model);
        self.settling = Some(slip.settle().boxed());
        let Some(next) = next else {
            if let Some(call) = &self.call {
                call.span.ended(Ok(self.usage));
            }
            return;
        };
        self.spent = self.usage;
        let Some(call) = &mut self.call else { return };
        let now_ms = call.inner.clock.unix_ms();
        let left = |end_ms: i64| {
            Duration::from_millis(end_ms.saturating_sub(now_ms).max(0).unsigned_abs())
        };
        call.request = Arc::new(next);
        call.bill = gone_on(call.bill, used);
        let owner = self.told.attempts.last().map(|attempt| attempt.quota_project.as_str().into());
        let deadline = call.end_ms.map(left);
        let options = call.options.clone();
        let options = CallOptions { deadline, owner, fallback: None, earned: true, ..options };
        let (inner, request) = (Arc::clone(&call.inner), (Arc::clone(&call.request), call.bill));
        let next = go_on(inner, Arc::clone(&self.told.ask.model), request, options);
        self.hops += 1;
        self.going_on = Some(call.span.enter(next).boxed());
    }

    /// What has been spent, the hops before this one included.
    fn count(&mut self, usage: Option<Usage>) {
        self.usage = match (self.spent, usage) {
            (Some(spent), Some(usage)) => Some(sum(&spent, &usage)),
            (spent, usage) => usage.or(spent),
        };
    }

    /// Ends with `error`, which is handed out next.
    fn breaks(&mut self, error: Error) {
        if let Some(call) = &self.call {
            call.span.ended(Err(&error));
        }
        self.last = Some(Err(error));
    }

    /// Ends a live stream that failed: tells the pool, and keeps the error for the caller.
    fn fail(&mut self, error: &StreamError) {
        let Some(live) = self.live.take() else { return };
        let body = match error {
            StreamError::Refused(raw) => Some(&**raw.bytes()),
            _ => None,
        };
        let usage = live.events.usage();
        let (settling, error) = live.owed.broke(&self.told.ask, error, body, usage);
        self.settling = Some(settling);
        self.breaks(error);
    }

    /// Whatever comes next of the live request; `None`: it has come to an end.
    fn poll_live(&mut self, cx: &mut Context<'_>) -> Poll<Option<GenerateResponse>> {
        let (Some(live), Some(call)) = (&mut self.live, &self.call) else {
            return Poll::Ready(None);
        };
        if live.owed.poll_deadline(cx).is_ready() {
            self.expire();
            return Poll::Ready(None);
        }
        let event = match live.events.poll_next_unpin(cx) {
            Poll::Ready(event) => event,
            Poll::Pending if live.events.is_whole() => {
                ready!(live.owed.poll_end(cx));
                None
            }
            Poll::Pending => return Poll::Pending,
        };
        match event {
            Some(Ok(mut part)) => {
                live.look(call, &mut part, self.hops < MOST_HOPS);
                let usage = live.events.usage();
                live.owed.was_read(usage);
                call.span.said(&part);
                self.finish_reason = part.finish_reason().or(self.finish_reason.take());
                self.count(usage);
                return Poll::Ready(Some(part));
            }
            Some(Err(error)) => self.fail(&error),
            None => {
                if let Some(live) = self.live.take() {
                    self.count(live.events.usage());
                    self.whole(*live);
                }
            }
        }
        Poll::Ready(None)
    }

    /// Reads on with the next hop, or ends with why there is none.
    fn goes_on(&mut self, next: NextHop) {
        let Some(call) = &self.call else { return };
        match next {
            Ok((events, served, attempts)) => {
                self.live = Some(Box::new(Live::new(call, events, served)));
                self.told.attempts.extend(attempts);
            }
            Err(error) => {
                call.inner.counters.gave_up();
                self.breaks(error);
            }
        }
    }
}

impl Stream for GeminiStream {
    type Item = Result<GenerateResponse, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(settling) = &mut this.settling {
                ready!(settling.poll_unpin(cx));
                this.settling = None;
            }
            if this.live.is_some() {
                if let Some(part) = ready!(this.poll_live(cx)) {
                    return Poll::Ready(Some(Ok(part)));
                }
            } else if let Some(next) = &mut this.going_on {
                let next = ready!(next.poll_unpin(cx));
                this.going_on = None;
                this.goes_on(next);
            } else {
                let last = this.last.take();
                return Poll::Ready(last.map(|last| last.map(|response| *response)));
            }
        }
    }
}

impl Drop for GeminiStream {
    /// A reader may stop at the finish reason and never ask for the end: that was a whole answer all the same.
    fn drop(&mut self) {
        if let Some(live) = self.live.take()
            && live.events.is_whole()
        {
            live.whole(&self.told.ask.model);
        }
    }
}

/// What two requests have cost together.
const fn sum(a: &Usage, b: &Usage) -> Usage {
    Usage {
        input: a.input.saturating_add(b.input),
        cached: a.cached.saturating_add(b.cached),
        output: a.output.saturating_add(b.output),
        thinking: a.thinking.saturating_add(b.thinking),
        tool: a.tool.saturating_add(b.tool),
        total: a.charged().saturating_add(b.charged()),
    }
}

impl fmt::Debug for GeminiStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeminiStream")
            .field("model", &self.told.ask.model)
            .field("attempts", &self.told.attempts)
            .finish_non_exhaustive()
    }
}
