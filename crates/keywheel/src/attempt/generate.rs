//! Answers of a model: whole, or as a stream up to its first part.

use std::{sync::Arc, time::Duration};

use keywheel_core::Usage;
use keywheel_pool::{Ask, Exhausted};
use keywheel_provider::{
    Sent, WireResponse,
    api::{GenerateRequest, GenerateResponse},
    stream::{First, GenerateStream, StreamError},
    upstream::{Call, CallError, Upstream},
};

use super::{
    GeminiStream, Run,
    work::{Brought, Sight, Work},
};
use crate::{
    Error, OutOfQuota, Reply,
    gemini::{CallOptions, Inner},
    time::sleep,
    weigh::input_tokens,
};

/// How long the first part of a stream is waited for before the stream is handed out unseen.
const FIRST_EVENT_PATIENCE: Duration = Duration::from_secs(2);

/// One whole answer, or the callback's where no key can serve.
pub(crate) async fn generate(
    inner: Arc<Inner>,
    model: Arc<str>,
    request: GenerateRequest,
    options: CallOptions,
) -> Result<Reply, Error> {
    let work = Whole(Arc::new(request));
    let mut run = Run::new(&inner, model, &work, &options);
    match run.answer(&work).await {
        Ok((response, lease)) => {
            lease.served(&work.usage(&response).unwrap_or_default());
            Ok(run.reply(*response, None))
        }
        Err(error) => {
            let (response, exhausted) = run.degrade(error, &work.0).await?;
            Ok(run.reply(response, Some(exhausted)))
        }
    }
}

/// The answer part by part. Until the first part is there, another key can take over.
pub(crate) async fn stream(
    inner: Arc<Inner>,
    model: Arc<str>,
    request: GenerateRequest,
    options: CallOptions,
) -> Result<GeminiStream, Error> {
    let work = Parts(Arc::new(request));
    let mut run = Run::new(&inner, model, &work, &options);
    match run.answer(&work).await {
        Ok((events, lease)) => {
            let (ask, attempts, end_ms) = (run.ask, run.attempts, run.stream_end_ms);
            Ok(GeminiStream::live(events, lease, inner, ask, attempts, end_ms))
        }
        Err(error) => {
            let (response, exhausted) = run.degrade(error, &work.0).await?;
            Ok(GeminiStream::degraded_answer(run.ask, run.attempts, response, exhausted))
        }
    }
}

struct Whole(Arc<GenerateRequest>);

impl Work for Whole {
    type Answer = Box<GenerateResponse>;

    fn ask(&self, model: &Arc<str>) -> Ask {
        ask(model, &self.0)
    }

    fn call(&self, _upstream: &Upstream, model: &str) -> Result<Call, CallError> {
        Call::generate(model, &self.0)
    }

    async fn read(&self, sight: &Sight<'_>, response: WireResponse) -> Brought<Self::Answer> {
        let parse = |body: &[u8]| serde_json::from_slice(body).map(Box::new);
        sight.whole(response, parse, |answer| is_answer(answer)).await
    }

    fn usage(&self, answer: &Self::Answer) -> Option<Usage> {
        answer.usage()
    }
}

struct Parts(Arc<GenerateRequest>);

impl Work for Parts {
    type Answer = Box<GenerateStream>;

    fn ask(&self, model: &Arc<str>) -> Ask {
        ask(model, &self.0)
    }

    fn call(&self, _upstream: &Upstream, model: &str) -> Result<Call, CallError> {
        Call::stream(model, &self.0)
    }

    async fn read(&self, sight: &Sight<'_>, response: WireResponse) -> Brought<Self::Answer> {
        let (status, headers) = (response.status, response.headers.clone());
        let mut events = GenerateStream::new(response);
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

/// True for anything a model said, a blocked prompt included: that was served, and counted.
fn is_answer(response: &GenerateResponse) -> bool {
    let error = response.extra.get("error").is_some_and(|error| !error.is_null());
    !error && (!response.candidates.is_empty() || response.block_reason().is_some())
}

impl Run<'_> {
    /// The callback's answer where no key can serve, or the error back.
    async fn degrade(
        &mut self,
        error: Error,
        request: &Arc<GenerateRequest>,
    ) -> Result<(GenerateResponse, Box<Exhausted>), Error> {
        let (Some(callback), Some(exhausted)) = (&self.inner.on_exhausted, error.exhausted())
        else {
            return Err(error);
        };
        let context = OutOfQuota {
            model: self.model.as_ref().to_owned(),
            request: Arc::clone(request),
            exhausted: exhausted.clone(),
        };
        let Some(response) = callback.answer(context).await else {
            return Err(error);
        };
        let (exhausted, attempts) = error.into_exhausted()?;
        self.attempts = attempts;
        Ok((response, exhausted))
    }

    fn reply(&mut self, response: GenerateResponse, degraded: Option<Box<Exhausted>>) -> Reply {
        let model = self.model.as_ref().to_owned();
        Reply { response, model, attempts: self.take_attempts(), degraded }
    }
}
