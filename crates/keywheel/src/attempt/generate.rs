//! Answers of a model: whole, or as a stream up to its first part.

use std::{sync::Arc, time::Duration};

use keywheel_core::Usage;
use keywheel_pool::Ask;
use keywheel_provider::{
    Dialect, Sent, WireResponse,
    api::{GenerateRequest, GenerateResponse},
    stream::{First, GenerateStream, StreamError},
    upstream::{Call as HttpCall, CallError, Upstream},
};

use super::{
    GeminiStream, Run, Served,
    stream::{Call, Told},
    work::{Brought, Sight, Work},
};
use crate::{
    Attempt, Error, OutOfQuota, Reply,
    charging::{Bill, bill, cap, gone_on},
    error::OutOfKeys,
    gemini::{CallOptions, Inner},
    observe::CallSpan,
    time::sleep,
    weigh::input_tokens,
};

/// How long the first part of a stream is waited for before the stream is handed out unseen.
const FIRST_EVENT_PATIENCE: Duration = Duration::from_secs(2);

/// The most requests that one answer is made of. As many make 16 times the longest answer of a model.
pub(super) const MOST_HOPS: usize = 16;

/// One whole answer, or the callback's where no key can serve.
pub(crate) async fn generate(
    inner: Arc<Inner>,
    model: Arc<str>,
    request: GenerateRequest,
    mut options: CallOptions,
) -> Result<Reply, Error> {
    let span = begin(&inner, &model, &mut options);
    let answered = span.enter(whole(&inner, model, request, options)).await;
    match &answered {
        Ok(reply) => span.said(reply.response()),
        Err(_) => inner.counters.gave_up(),
    }
    span.ended(answered.as_ref().map(|reply| reply.usage()));
    answered
}

/// The answer part by part. Until the first part is there, another key can take over.
pub(crate) async fn stream(
    inner: Arc<Inner>,
    model: Arc<str>,
    request: GenerateRequest,
    mut options: CallOptions,
) -> Result<GeminiStream, Error> {
    let span = begin(&inner, &model, &mut options);
    let streamed = parts(&inner, model, request, options, span.clone());
    let streamed = span.enter(streamed).await;
    if let Err(error) = &streamed {
        inner.counters.gave_up();
        span.ended(Err(error));
    }
    streamed
}

fn begin(inner: &Inner, model: &str, options: &mut CallOptions) -> CallSpan {
    inner.counters.called();
    inner.purse.begin(&mut options.payer);
    if let Some(recorder) = &options.recorder {
        recorder.call();
    }
    // OpenTelemetry's names: Gemini's own has one of its own.
    let operation = match inner.upstream.dialect() {
        Dialect::Gemini => "generate_content",
        Dialect::OpenAi => "chat",
    };
    let span = CallSpan::new(inner, operation, model);
    span.is_called(options.payer.request_id());
    span
}

async fn whole(
    inner: &Inner,
    model: Arc<str>,
    mut request: GenerateRequest,
    options: CallOptions,
) -> Result<Reply, Error> {
    let cap = cap(inner, &model, &mut request, &options);
    let (bill, options) = bill(inner, &model, &request, options).await;
    let mut work = Whole { request: Arc::new(request), bill };
    let mut run = Run::new(inner, model, &work, &options);
    let mut whole: Option<Box<GenerateResponse>> = None;
    for hop in 1.. {
        let (answer, served) = match run.answer(&work).await {
            Ok(answered) => answered,
            // What was said so far is no answer, as a stream that breaks is none.
            Err(error) if whole.is_some() => return Err(error),
            Err(error) => {
                let (response, exhausted) = run.degrade(error, &work.request).await?;
                return Ok(run.reply(response, Some(exhausted)));
            }
        };
        let next = work.request.continued(&answer).filter(|_| hop < MOST_HOPS);
        let (quota_project, usage) = (served.lease.quota_project().into(), answer.usage());
        served.tell(inner, run.model(), usage).settle().await;
        match &mut whole {
            Some(whole) => whole.append(*answer),
            None => whole = Some(answer),
        }
        let Some(next) = next else { break };
        work = Whole { request: Arc::new(next), bill: gone_on(work.bill, usage) };
        run.go_on(quota_project);
    }
    let whole = whole.expect("the first hop brought an answer, or the call has ended");
    Ok(Reply { cap, ..run.reply(*whole, None) })
}

async fn parts(
    inner: &Arc<Inner>,
    model: Arc<str>,
    mut request: GenerateRequest,
    options: CallOptions,
    span: CallSpan,
) -> Result<GeminiStream, Error> {
    let cap = cap(inner, &model, &mut request, &options);
    let (bill, options) = bill(inner, &model, &request, options).await;
    let work = Parts { request: Arc::new(request), bill };
    let mut run = Run::new(inner, model, &work, &options);
    match run.answer(&work).await {
        Ok((events, served)) => {
            let skipped = run.skipped();
            let (ask, end_ms) = (run.chain.swap_remove(run.at).ask, run.stream_end_ms);
            let attempts = std::mem::take(&mut run.attempts);
            drop(run);
            let (inner, request) = (Arc::clone(inner), work.request);
            let call = Call { inner, request, bill, cap, options, end_ms, span };
            Ok(GeminiStream::live(call, events, served, Told { ask, attempts, skipped }))
        }
        Err(error) => {
            let (response, exhausted) = run.degrade(error, &work.request).await?;
            span.said(&response);
            span.ended(Ok(response.usage()));
            let (skipped, attempts) = (run.skipped(), run.take_attempts());
            let ask = run.chain.swap_remove(run.at).ask;
            let told = Told { ask, attempts, skipped };
            Ok(GeminiStream::degraded_answer(told, response, exhausted))
        }
    }
}

/// Goes on with a streamed answer: the same model, the same quota project, the same deadline.
pub(super) async fn go_on(
    inner: Arc<Inner>,
    model: Arc<str>,
    (request, bill): (Arc<GenerateRequest>, Bill),
    options: CallOptions,
) -> Result<(Box<GenerateStream>, Served, Vec<Attempt>), Error> {
    let work = Parts { request, bill };
    let mut run = Run::new(&inner, model, &work, &options);
    let (events, served) = run.answer(&work).await?;
    Ok((events, served, run.take_attempts()))
}

struct Whole {
    request: Arc<GenerateRequest>,
    bill: Bill,
}

impl Work for Whole {
    type Answer = Box<GenerateResponse>;

    fn ask(&self, model: &Arc<str>) -> Ask {
        ask(model, &self.request)
    }

    fn call(&self, upstream: &Upstream, model: &str) -> Result<HttpCall, CallError> {
        upstream.provider().generate(model, &self.request)
    }

    fn bill(&self, _: &Ask) -> Option<Bill> {
        Some(self.bill)
    }

    fn may_change_model(&self) -> bool {
        may_change_model(&self.request)
    }

    async fn read(&self, sight: &Sight<'_>, response: WireResponse) -> Brought<Self::Answer> {
        let parse = |body: &[u8]| sight.upstream.provider().read_answer(body).map(Box::new);
        sight.whole(response, parse, |answer| is_answer(answer)).await
    }

    fn usage(&self, answer: &Self::Answer) -> Option<Usage> {
        answer.usage()
    }
}

struct Parts {
    request: Arc<GenerateRequest>,
    bill: Bill,
}

impl Work for Parts {
    type Answer = Box<GenerateStream>;

    fn ask(&self, model: &Arc<str>) -> Ask {
        ask(model, &self.request)
    }

    fn call(&self, upstream: &Upstream, model: &str) -> Result<HttpCall, CallError> {
        upstream.provider().stream(model, &self.request)
    }

    fn bill(&self, _: &Ask) -> Option<Bill> {
        Some(self.bill)
    }

    fn may_change_model(&self) -> bool {
        may_change_model(&self.request)
    }

    async fn read(&self, sight: &Sight<'_>, response: WireResponse) -> Brought<Self::Answer> {
        let (status, headers) = (response.status, response.headers.clone());
        let mut events = GenerateStream::with(sight.upstream.provider(), response);
        let patience = sleep(sight.clock, FIRST_EVENT_PATIENCE);
        let error = match events.first_event(patience).await {
            First::Arrived | First::Undecided => return Brought::Answer(Box::new(events)),
            First::Failed(error) => error,
        };
        if let StreamError::Refused(raw) = &error
            && let Some(refused) = sight.refused(status, &headers, raw.bytes())
        {
            return Brought::Refused { status, body: raw.bytes().clone(), refused };
        }
        Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason: error.to_string() }
    }
}

fn ask(model: &Arc<str>, request: &GenerateRequest) -> Ask {
    let ask = Ask::new(Arc::clone(model)).with_tokens(input_tokens(request));
    if request.uses_tools() { ask.with_tools() } else { ask }
}

/// A cache is one model's.
const fn may_change_model(request: &GenerateRequest) -> bool {
    request.cached_content.is_none()
}

/// True for anything a model said, a blocked prompt included: that was served, and counted.
fn is_answer(response: &GenerateResponse) -> bool {
    let error = response.extra.get("error").is_some_and(|error| !error.is_null());
    !error && (!response.candidates.is_empty() || response.block_reason().is_some())
}

impl Run<'_> {
    /// The callback's answer where no key can serve or the budget is spent, or the error back.
    async fn degrade(
        &mut self,
        error: Error,
        request: &Arc<GenerateRequest>,
    ) -> Result<(GenerateResponse, OutOfKeys), Error> {
        let Some(callback) = &self.inner.on_exhausted else { return Err(error) };
        let mut out = error.into_exhausted()?;
        let context = OutOfQuota {
            model: self.chain[0].model.as_ref().to_owned(),
            request: Arc::clone(request),
            exhausted: (*out.exhausted).clone(),
            #[cfg(feature = "ledger")]
            over_budget: out.denied.as_deref().cloned(),
        };
        let Some(response) = callback.answer(context).await else {
            return Err(out.into());
        };
        self.attempts = std::mem::take(&mut out.attempts);
        (self.passed_over, self.at) = (std::mem::take(&mut out.skipped), 0);
        self.inner.counters.degraded();
        Ok((response, out))
    }

    fn reply(&mut self, response: GenerateResponse, degraded: Option<OutOfKeys>) -> Reply {
        let (model, skipped) = (self.model().as_ref().to_owned(), self.skipped());
        let request_id = self.options.payer.request_id().map(Into::into);
        let attempts = self.take_attempts();
        Reply { response, model, attempts, skipped, degraded, request_id, cap: None }
    }
}
