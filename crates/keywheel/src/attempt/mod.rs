//! The attempt loop: lease a key, send once, read what the reply means, report, decide what is next.
//!
//! The loop is bounded by the deadline and by the pool, not by a number: a key that refused is cooling in the
//! pool and is not handed out again, so every healthy key is reached. Only the provider's own failures are
//! counted (see [`plan`]).

mod outcome;
mod plan;
mod stream;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use keywheel_core::{ApiKey, Usage, scrub::scrub};
use keywheel_pool::{Ask, CheckResult, Exhausted, ExhaustedKind, Lease, Refusal};
use keywheel_provider::{
    Sent, TransportError, WireResponse,
    api::{GenerateRequest, GenerateResponse},
    classify::{Asked, Dialect, Kind, Reply as WireReply, Verdict, classify},
    stream::{First, GenerateStream, StreamError},
    upstream::Call,
};

use self::{
    outcome::{Next, PoolOutcome, decide},
    plan::Plan,
};
pub use self::{plan::RetryConfig, stream::GeminiStream};
use crate::{
    Attempt, Error, OutOfQuota, Rejected, Reply,
    gemini::{CallOptions, Inner},
    time::{sleep, until},
    weigh::input_tokens,
};

/// The most of a reply that is read. Google's answers with inline media stay far below.
const MAX_REPLY: usize = 256 << 20;

/// How long the first part of a stream is waited for before the stream is handed out unseen.
const FIRST_EVENT_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn generate(
    inner: Arc<Inner>,
    model: Arc<str>,
    request: GenerateRequest,
    options: CallOptions,
) -> Result<Reply, Error> {
    let mut run = Run::new(&inner, &model, request, options);
    match run.to_the_end(Shape::Whole).await {
        Ok(Got::Whole(response)) => Ok(run.reply(*response, None)),
        Ok(Got::Stream { .. }) => unreachable!("a whole reply was asked for"),
        Err(error) => {
            let (response, exhausted) = run.degrade(error).await?;
            Ok(run.reply(response, Some(exhausted)))
        }
    }
}

pub(crate) async fn stream(
    inner: Arc<Inner>,
    model: Arc<str>,
    request: GenerateRequest,
    options: CallOptions,
) -> Result<GeminiStream, Error> {
    let mut run = Run::new(&inner, &model, request, options);
    match run.to_the_end(Shape::Stream).await {
        Ok(Got::Stream { events, lease }) => {
            Ok(GeminiStream::live(*events, lease, Arc::clone(&inner), model, run.attempts))
        }
        Ok(Got::Whole(_)) => unreachable!("a stream was asked for"),
        Err(error) => {
            let (response, exhausted) = run.degrade(error).await?;
            Ok(GeminiStream::degraded_answer(model, run.attempts, response, exhausted))
        }
    }
}

/// The free daily check of a quarantined key.
pub(crate) async fn check_key(inner: &Inner, key: &ApiKey) -> CheckResult {
    let call = Call::models().with_query("pageSize", "1");
    let Ok(response) = inner.upstream.call(key, &call).await else {
        return CheckResult::Unknown;
    };
    let (status, headers) = (response.status, response.headers.clone());
    let Ok(body) = response.bytes(MAX_REPLY).await else {
        return CheckResult::Unknown;
    };
    let reply = WireReply { status, headers: &headers, body: &body };
    let verdict = classify(Dialect::Gemini, &reply, &Asked::default(), inner.clock.now());
    match verdict.kind {
        Kind::Served => CheckResult::Alive,
        Kind::Refused(cause) if cause.release().is_some() => CheckResult::StillDead(cause),
        // A quota refusal means that the key is known and its project alive.
        Kind::Refused(cause) if cause.is_per_minute() || cause.is_per_day() => CheckResult::Alive,
        Kind::Refused(_) => CheckResult::Unknown,
    }
}

/// How the answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Whole,
    Stream,
}

/// What a served call brings.
#[derive(Debug)]
enum Got {
    Whole(Box<GenerateResponse>),
    Stream { events: Box<GenerateStream>, lease: Lease },
}

/// What one attempt brought.
#[derive(Debug)]
enum Brought {
    Answer(Box<GenerateResponse>),
    Stream(Box<GenerateStream>),
    /// A reply that is no answer.
    Verdict {
        status: u16,
        body: Bytes,
        verdict: Box<Verdict>,
    },
    /// No reply, or one that broke off.
    Nothing {
        sent: Sent,
        reason: String,
    },
}

/// One call on its way.
struct Run<'a> {
    inner: &'a Inner,
    model: Arc<str>,
    request: Arc<GenerateRequest>,
    ask: Ask,
    deadline_ms: Option<i64>,
    plan: Plan,
    attempts: Vec<Attempt>,
}

impl<'a> Run<'a> {
    fn new(
        inner: &'a Inner,
        model: &Arc<str>,
        request: GenerateRequest,
        options: CallOptions,
    ) -> Self {
        let deadline = options.deadline.map(|deadline| {
            // A deadline beyond chrono's range is none in practice.
            let span = chrono::Duration::from_std(deadline).unwrap_or(chrono::Duration::MAX);
            let now = inner.clock.now();
            now.checked_add_signed(span).unwrap_or(chrono::DateTime::<chrono::Utc>::MAX_UTC)
        });
        let mut ask = Ask::new(Arc::clone(model));
        ask.tokens = input_tokens(&request);
        ask.tools = request.uses_tools();
        ask.allow_paid = options.allow_paid;
        ask.deadline = deadline;
        Self {
            inner,
            model: Arc::clone(model),
            request: Arc::new(request),
            ask,
            deadline_ms: deadline.map(|at| at.timestamp_millis()),
            plan: Plan::new(&inner.retry),
            attempts: Vec::new(),
        }
    }

    /// Attempts until somebody serves, or nobody can.
    async fn to_the_end(&mut self, shape: Shape) -> Result<Got, Error> {
        let call = self.call(shape)?;
        loop {
            let mut lease = match self.inner.pool.lease(self.ask.clone()).await {
                Ok(lease) => lease,
                Err(exhausted) => return Err(self.nobody(exhausted)),
            };
            // From here on the attempt counts, also when this future is dropped.
            lease.sent();
            let clock = &*self.inner.clock;
            let attempt = self.attempt(&lease, &call, shape);
            let Some(brought) = until(clock, self.deadline_ms, attempt).await else {
                self.note(&lease, None, None);
                return Err(Error::DeadlineReached { attempts: self.take_attempts() });
            };
            match brought {
                Brought::Answer(response) => {
                    self.note_served(&lease);
                    lease.served(&response.usage().unwrap_or_default());
                    return Ok(Got::Whole(response));
                }
                Brought::Stream(events) => {
                    self.note_served(&lease);
                    return Ok(Got::Stream { events, lease });
                }
                Brought::Nothing { sent, reason } => {
                    self.note(&lease, None, None);
                    match sent {
                        Sent::No => give_back(lease).await,
                        Sent::Maybe => lease.failed(&[]),
                    }
                    self.pause(None, reason).await?;
                }
                Brought::Verdict { status, body, verdict } => {
                    self.judged(lease, status, &body, *verdict).await?;
                }
            }
        }
    }

    /// Sends once and reads what came, up to the first part of a stream.
    async fn attempt(&self, lease: &Lease, call: &Call, shape: Shape) -> Brought {
        let response = match self.inner.upstream.call(lease.key(), call).await {
            Ok(response) => response,
            Err(error) => return nothing(&error),
        };
        if shape == Shape::Stream && response.status == 200 {
            return self.open(lease, response).await;
        }
        let (status, headers) = (response.status, response.headers.clone());
        let body = match response.bytes(MAX_REPLY).await {
            Ok(body) => body,
            Err(error) if status == 200 => return nothing(&error),
            // A torn error body is still judged by what is there: the status.
            Err(_) => Bytes::new(),
        };
        if status == 200 {
            match serde_json::from_slice::<GenerateResponse>(&body) {
                Ok(response) if is_answer(&response) => return Brought::Answer(Box::new(response)),
                Ok(_) => {}
                Err(error) => {
                    let reason = format!("a reply with status 200 could not be read: {error}");
                    return Brought::Nothing { sent: Sent::Maybe, reason };
                }
            }
        }
        self.verdict(lease, status, &headers, body)
    }

    /// Looks at the first part of a stream: until it is handed out, another key can take over.
    async fn open(&self, lease: &Lease, response: WireResponse) -> Brought {
        let headers = response.headers.clone();
        let mut events = GenerateStream::new(response);
        match events.first_event(sleep(&*self.inner.clock, FIRST_EVENT_PATIENCE)).await {
            First::Arrived | First::Undecided => Brought::Stream(Box::new(events)),
            First::Failed(StreamError::Refused(raw)) => {
                self.verdict(lease, 200, &headers, raw.bytes().clone())
            }
            First::Failed(error) => {
                Brought::Nothing { sent: Sent::Maybe, reason: error.to_string() }
            }
        }
    }

    fn verdict(
        &self,
        lease: &Lease,
        status: u16,
        headers: &http::HeaderMap,
        body: Bytes,
    ) -> Brought {
        let reply = WireReply { status, headers, body: &body };
        let asked = Asked {
            model: Some(&self.model),
            tokens: Some(self.ask.tokens),
            tools: self.ask.tools,
        };
        let mut verdict = classify(Dialect::Gemini, &reply, &asked, self.inner.clock.now());
        verdict.message = scrub(&verdict.message, &[lease.key()]).into_owned();
        if matches!(verdict.kind, Kind::Served) {
            // Status 200, readable, neither an answer nor an error: an empty reply.
            let reason = "an empty reply with status 200".to_owned();
            return Brought::Nothing { sent: Sent::Maybe, reason };
        }
        Brought::Verdict { status, body, verdict: Box::new(verdict) }
    }

    /// Reports a verdict to the pool and does what follows from it. `Ok` means: go on.
    async fn judged(
        &mut self,
        lease: Lease,
        status: u16,
        body: &Bytes,
        verdict: Verdict,
    ) -> Result<(), Error> {
        let (told, next) = decide(&verdict);
        self.note(&lease, Some(status), Some(&verdict));
        let key = lease.key().clone();
        match told {
            PoolOutcome::Refused(refusal) => {
                let reported = lease.refused(&refusal).await;
                if let Some(attempt) = self.attempts.last_mut() {
                    attempt.available_at = reported.until;
                    attempt.persisted = Some(reported.persisted);
                }
            }
            PoolOutcome::Failed => lease.failed(&verdict.effects),
            PoolOutcome::Served => lease.served(&Usage::default()),
        }
        match next {
            Next::NextKey | Next::Answer => Ok(()),
            Next::Retry { hint } => {
                let cause = verdict.kind.as_str();
                self.pause(hint, format!("{cause} (HTTP {status})")).await
            }
            Next::HandBack => {
                let Kind::Refused(cause) = verdict.kind else {
                    unreachable!("only refusals are handed back")
                };
                let body = scrub(&String::from_utf8_lossy(body), &[&key]).into_owned();
                let rejected = Box::new(Rejected { status, cause, verdict, body });
                Err(Error::Rejected { rejected, attempts: self.take_attempts() })
            }
        }
    }

    /// Pauses before a retry, or gives up.
    async fn pause(&mut self, hint: Option<Duration>, reason: String) -> Result<(), Error> {
        let clock = &*self.inner.clock;
        let pause = self.plan.pause(hint).filter(|pause| {
            let pause = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
            let resumes = clock.unix_ms().saturating_add(pause);
            self.deadline_ms.is_none_or(|deadline| resumes < deadline)
        });
        let Some(pause) = pause else {
            return Err(Error::UpstreamDown { reason, attempts: self.take_attempts() });
        };
        sleep(clock, pause).await;
        Ok(())
    }

    fn call(&self, shape: Shape) -> Result<Call, Error> {
        let call = match shape {
            Shape::Whole => Call::generate(&self.model, &self.request),
            Shape::Stream => Call::stream(&self.model, &self.request),
        };
        call.map_err(|e| Error::Setting(e.to_string()))
    }

    fn nobody(&mut self, exhausted: Exhausted) -> Error {
        let attempts = self.take_attempts();
        let dead = matches!(exhausted.kind, ExhaustedKind::AllDead);
        let exhausted = Box::new(exhausted);
        if dead {
            Error::AllKeysDead { exhausted, attempts }
        } else {
            Error::Exhausted { exhausted, attempts }
        }
    }

    /// The callback's answer to an exhausted pool, or the error back.
    async fn degrade(&mut self, error: Error) -> Result<(GenerateResponse, Box<Exhausted>), Error> {
        let Some(callback) = &self.inner.on_exhausted else {
            return Err(error);
        };
        let (Error::Exhausted { exhausted, .. } | Error::AllKeysDead { exhausted, .. }) = &error
        else {
            return Err(error);
        };
        let context = OutOfQuota {
            model: self.model.as_ref().to_owned(),
            request: Arc::clone(&self.request),
            exhausted: (**exhausted).clone(),
        };
        let Some(response) = callback.answer(context).await else {
            return Err(error);
        };
        match error {
            Error::Exhausted { exhausted, attempts }
            | Error::AllKeysDead { exhausted, attempts } => {
                self.attempts = attempts;
                Ok((response, exhausted))
            }
            other => Err(other),
        }
    }

    fn reply(&mut self, response: GenerateResponse, degraded: Option<Box<Exhausted>>) -> Reply {
        let model = self.model.as_ref().to_owned();
        Reply { response, model, attempts: self.take_attempts(), degraded }
    }

    fn note_served(&mut self, lease: &Lease) {
        self.note(lease, Some(200), None);
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.kind = Some(Kind::Served);
        }
    }

    fn note(&mut self, lease: &Lease, status: Option<u16>, verdict: Option<&Verdict>) {
        self.attempts.push(Attempt {
            label: lease.label().to_owned(),
            fingerprint: lease.fingerprint(),
            quota_project: lease.quota_project().to_owned(),
            status,
            kind: verdict.map(|verdict| verdict.kind),
            available_at: None,
            persisted: None,
            message: verdict.map_or_else(String::new, |verdict| verdict.message.clone()),
        });
        tracing::debug!(
            key = %lease.fingerprint(),
            label = lease.label(),
            model = &*self.model,
            status,
            kind = verdict.map_or("none", |verdict| verdict.kind.as_str()),
            "attempt"
        );
    }

    fn take_attempts(&mut self) -> Vec<Attempt> {
        std::mem::take(&mut self.attempts)
    }
}

/// True for anything a model said, a blocked prompt included: that was served, and counted.
fn is_answer(response: &GenerateResponse) -> bool {
    !response.candidates.is_empty() || response.block_reason().is_some()
}

/// Returns what a request that never left took: a refusal without effects.
async fn give_back(lease: Lease) {
    let _nothing_to_wait_for = lease.refused(&Refusal::default()).await;
}

fn nothing(error: &TransportError) -> Brought {
    Brought::Nothing { sent: error.sent, reason: error.to_string() }
}
