//! A stream in the caller's hands: it keeps the lease until the last event, an error, or the drop.

mod live;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt as _, Stream, StreamExt, future::BoxFuture};
use keywheel_core::Usage;
use keywheel_pool::{Exhausted, Reported};
use keywheel_provider::{
    api::{FinishReason, GenerateResponse},
    classify::Reply as WireReply,
    stream::{GenerateStream, StreamError},
};

use self::live::Live;
pub(super) use self::live::{Call, Told};
use super::{
    Served, Skipped,
    breaker::Outcome,
    generate::{MOST_HOPS, go_on},
    judge::judge,
    late::refused_late,
};
use crate::{
    Attempt, Error,
    charging::{Spent, gone_on},
    error::OutOfKeys,
    gemini::CallOptions,
    time::pause,
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
    settling: Option<BoxFuture<'static, ()>>,
    /// Why the last candidate's answer ended.
    finish_reason: Option<FinishReason>,
}

type NextHop = Result<(Box<GenerateStream>, Served, Vec<Attempt>), Error>;

enum State {
    Live(Box<Live>),
    /// The answer goes on with another request.
    GoingOn(BoxFuture<'static, NextHop>),
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
        call: Call,
        events: Box<GenerateStream>,
        served: Served,
        told: Told,
    ) -> Self {
        let state = State::Live(Box::new(Live::new(&call, events, served)));
        Self::new(state, Some(call), told)
    }

    const fn new(state: State, call: Option<Call>, told: Told) -> Self {
        Self {
            state,
            call,
            told,
            spent: None,
            usage: None,
            hops: 1,
            degraded: None,
            settling: None,
            finish_reason: None,
        }
    }

    pub(super) fn degraded_answer(told: Told, response: GenerateResponse, out: OutOfKeys) -> Self {
        let (usage, state) = (response.usage(), State::Degraded(Some(Box::new(response))));
        let mut stream = Self::new(state, None, told);
        (stream.usage, stream.degraded) = (usage, Some(out));
        stream
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

    /// Takes the live request out, if there is one.
    fn take_live(&mut self) -> Option<Live> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Live(live) => Some(*live),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Ends a live stream whose deadline has come. What is whole by then was served.
    fn expire(&mut self) {
        let Some(live) = self.take_live() else { return };
        self.count(&live.events);
        if live.events.is_whole() && live.goes_on.is_none() {
            return self.whole(live);
        }
        if let Some(call) = &self.call {
            call.inner.counters.failed();
        }
        // Its slip says already what was seen.
        self.settling = Some(Box::pin(live.slip.settle()));
        live.lease.failed(&[]);
        let attempts = self.told.attempts.clone();
        self.breaks(Error::DeadlineReached { attempts });
    }

    /// The hop was read to its end: the answer is whole, or goes on.
    fn whole(&mut self, live: Live) {
        let used = live.events.usage();
        let (next, slip) = live.served(self.call.as_ref(), &self.told.ask.model);
        self.settling = Some(Box::pin(slip.settle()));
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
        self.state = State::GoingOn(Box::pin(call.span.enter(next)));
    }

    /// What has been spent, the hops before this one included.
    fn count(&mut self, events: &GenerateStream) {
        self.usage = match (self.spent, events.usage()) {
            (Some(spent), Some(usage)) => Some(sum(&spent, &usage)),
            (spent, usage) => usage.or(spent),
        };
    }

    /// Ends with `error`, which is handed out next.
    fn breaks(&mut self, error: Error) {
        if let Some(call) = &self.call {
            call.span.ended(Err(&error));
            call.inner.counters.gave_up();
        }
        self.state = State::Broken(Some(error));
    }

    /// Ends a live stream that failed: tells the pool, and keeps the error for the caller.
    fn fail(&mut self, error: &StreamError) {
        let (Some(live), Some(call)) = (self.take_live(), &self.call) else { return };
        let Live { events, lease, pass, mut slip, .. } = live;
        let inner = &call.inner;
        inner.counters.failed();
        let refused = match error {
            StreamError::Refused(raw) => {
                let headers = http::HeaderMap::new();
                let reply = WireReply { status: 200, headers: &headers, body: raw.bytes() };
                let (ask, now) = (&self.told.ask, inner.clock.now());
                judge(inner.upstream.dialect(), &reply, ask, lease.key(), now)
            }
            _ => None,
        };
        let Some(refused) = refused else {
            self.settling = Some(Box::pin(slip.settle()));
            if let Some(pass) = pass {
                pass.tell(Outcome::Failed(None));
            }
            lease.failed(&[]);
            let reason = error.to_string();
            return self.breaks(Error::StreamBroken { reason, verdict: None });
        };
        let (report, error) = refused_late(lease, pass, &mut slip, refused, events.usage());
        self.settling = Some(Box::pin(slip.settle()));
        self.breaks(error);
        if let (Some(report), State::Broken(error)) = (report, &mut self.state) {
            let error = error.take();
            self.state = State::Reporting { report, error };
        }
    }

    /// Whatever comes next of the live request.
    fn poll_live(&mut self, cx: &mut Context<'_>) -> Poll<Option<GenerateResponse>> {
        let (State::Live(live), Some(call)) = (&mut self.state, &self.call) else {
            return Poll::Ready(None);
        };
        if let Some(renewing) = &mut live.renewing {
            let _never = renewing.poll_unpin(cx);
        }
        if live.deadline.as_mut().is_some_and(|at| at.poll_unpin(cx).is_ready()) {
            self.expire();
            return Poll::Ready(None);
        }
        let event = match live.events.poll_next_unpin(cx) {
            Poll::Ready(event) => event,
            Poll::Pending if live.events.is_whole() => {
                let end = live.end.get_or_insert_with(|| pause(&call.inner.clock, END_PATIENCE));
                std::task::ready!(end.poll_unpin(cx));
                None
            }
            Poll::Pending => return Poll::Pending,
        };
        live.end = None;
        match event {
            Some(Ok(mut part)) => {
                live.look(call, &mut part, self.hops < MOST_HOPS);
                live.slip.is(Spent::CutShort, live.events.usage());
                call.span.said(&part);
                self.finish_reason = part.finish_reason().or(self.finish_reason.take());
                self.usage = match (self.spent, live.events.usage()) {
                    (Some(spent), Some(usage)) => Some(sum(&spent, &usage)),
                    (spent, usage) => usage.or(spent),
                };
                return Poll::Ready(Some(part));
            }
            Some(Err(error)) => self.fail(&error),
            None => {
                if let Some(live) = self.take_live() {
                    self.count(&live.events);
                    self.whole(live);
                }
            }
        }
        Poll::Ready(None)
    }
}

impl Stream for GeminiStream {
    type Item = Result<GenerateResponse, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(settling) = &mut this.settling {
                std::task::ready!(settling.poll_unpin(cx));
                this.settling = None;
            }
            match &mut this.state {
                State::Live(_) => {
                    if let Some(part) = std::task::ready!(this.poll_live(cx)) {
                        return Poll::Ready(Some(Ok(part)));
                    }
                }
                State::GoingOn(next) => {
                    let next = std::task::ready!(next.as_mut().poll(cx));
                    this.state = State::Ended;
                    match (next, &this.call) {
                        (Ok((events, served, attempts)), Some(call)) => {
                            this.state = State::Live(Box::new(Live::new(call, events, served)));
                            this.told.attempts.extend(attempts);
                        }
                        (Ok(_), None) => {}
                        (Err(error), _) => this.breaks(error),
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
        if let Some(live) = self.take_live()
            && live.events.is_whole()
        {
            live.served(self.call.as_ref(), &self.told.ask.model);
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
