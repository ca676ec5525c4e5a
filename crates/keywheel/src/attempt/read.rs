//! How a reply is read: whole, or as a stream up to its first part.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use keywheel_core::{ApiKey, scrub::scrub};
use keywheel_pool::Lease;
use keywheel_provider::{
    Sent, TransportError, TransportKind, WireResponse,
    api::{GenerateRequest, GenerateResponse},
    classify::Reply as WireReply,
    stream::{First, GenerateStream, StreamError},
    upstream::{Call, CallError},
};

use super::{
    Run,
    judge::{Refused, judge},
};
use crate::time::sleep;

/// The most of an answer that is read. Google's answers with inline media stay far below.
const MAX_ANSWER: usize = 256 << 20;

/// The most of an error that is read. Real ones have a few kilobytes; a gateway's page may have more.
const MAX_ERROR: usize = 1 << 20;

/// How long the first part of a stream is waited for before the stream is handed out unseen.
const FIRST_EVENT_PATIENCE: Duration = Duration::from_secs(2);

/// The longest reason that is made of what a reply held, in characters.
const LONGEST_REASON: usize = 300;

/// What one attempt brought.
#[derive(Debug)]
pub(super) enum Brought<T> {
    Answer(T),
    /// A reply that is no answer.
    Refused {
        status: u16,
        body: Bytes,
        refused: Box<Refused>,
    },
    /// No reply, one that broke off, or one without content.
    Nothing {
        sent: Sent,
        status: Option<u16>,
        reason: String,
    },
    /// A success, in a form that this version does not know: it was counted, and would come again.
    Unreadable {
        status: u16,
        reason: String,
    },
    /// The request cannot be sent, by whichever key.
    Unsendable(String),
}

/// How an answer is wanted.
pub(super) trait Shape {
    type Answer: Send;

    fn call(model: &str, request: &GenerateRequest) -> Result<Call, CallError>;

    /// Reads a reply whose status says success.
    fn read(
        run: &Run<'_>,
        lease: &Lease,
        response: WireResponse,
    ) -> impl Future<Output = Brought<Self::Answer>> + Send;
}

/// The whole answer at once.
pub(super) struct Whole;

impl Shape for Whole {
    type Answer = Box<GenerateResponse>;

    fn call(model: &str, request: &GenerateRequest) -> Result<Call, CallError> {
        Call::generate(model, request)
    }

    async fn read(run: &Run<'_>, lease: &Lease, response: WireResponse) -> Brought<Self::Answer> {
        let (status, headers) = (response.status, response.headers.clone());
        let body = match response.bytes(MAX_ANSWER).await {
            Ok(body) => body,
            Err(error) => return broke_off(status, &error),
        };
        let unread = match serde_json::from_slice::<GenerateResponse>(&body) {
            Ok(response) if is_answer(&response) => return Brought::Answer(Box::new(response)),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        // Errors come with a status of 200, too, in every shape that they come in with others.
        if let Some(refused) = refused(run, lease, status, &headers, &body) {
            return Brought::Refused { status, body, refused };
        }
        match unread {
            Some(error) => could_not_read(status, &error, lease.key()),
            None => {
                let reason = format!("an empty reply with status {status}");
                Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason }
            }
        }
    }
}

/// The answer part by part. Until the first part is there, another key can take over.
pub(super) struct Parts;

impl Shape for Parts {
    type Answer = Box<GenerateStream>;

    fn call(model: &str, request: &GenerateRequest) -> Result<Call, CallError> {
        Call::stream(model, request)
    }

    async fn read(run: &Run<'_>, lease: &Lease, response: WireResponse) -> Brought<Self::Answer> {
        let (status, headers) = (response.status, response.headers.clone());
        let mut events = GenerateStream::new(response);
        let patience = sleep(&*run.inner.clock, FIRST_EVENT_PATIENCE);
        let error = match events.first_event(patience).await {
            First::Arrived | First::Undecided => return Brought::Answer(Box::new(events)),
            First::Failed(error) => error,
        };
        if let StreamError::Refused(raw) = &error
            && let Some(refused) = refused(run, lease, status, &headers, raw.bytes())
        {
            return Brought::Refused { status, body: raw.bytes().clone(), refused };
        }
        Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason: error.to_string() }
    }
}

impl Run<'_> {
    /// Sends once and reads what comes, up to the first part of a stream.
    pub(super) async fn attempt<S: Shape>(&self, lease: &Lease, call: &Call) -> Brought<S::Answer> {
        let response = match self.inner.upstream.call(lease.key(), call).await {
            Ok(response) => response,
            Err(error) if error.kind == TransportKind::Request => {
                return Brought::Unsendable(error.to_string());
            }
            Err(error) => {
                let (sent, reason) = (error.sent, error.to_string());
                return Brought::Nothing { sent, status: None, reason };
            }
        };
        if (200..300).contains(&response.status) {
            return S::read(self, lease, response).await;
        }
        let (status, headers) = (response.status, response.headers.clone());
        // An error that was torn off is still judged by what is there: the status.
        let body = response.bytes(MAX_ERROR).await.unwrap_or_default();
        match refused(self, lease, status, &headers, &body) {
            Some(refused) => Brought::Refused { status, body, refused },
            None => {
                let reason = format!("a reply with status {status} and no meaning");
                Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason }
            }
        }
    }
}

fn refused(
    run: &Run<'_>,
    lease: &Lease,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
) -> Option<Box<Refused>> {
    let reply = WireReply { status, headers, body };
    judge(&reply, &run.ask, lease.key(), run.inner.clock.now()).map(Box::new)
}

/// True for anything a model said, a blocked prompt included: that was served, and counted.
fn is_answer(response: &GenerateResponse) -> bool {
    let error = response.extra.get("error").is_some_and(|error| !error.is_null());
    !error && (!response.candidates.is_empty() || response.block_reason().is_some())
}

/// The head was there, so the provider has seen the request, whatever the transport makes of it.
fn broke_off<T>(status: u16, error: &TransportError) -> Brought<T> {
    Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason: error.to_string() }
}

/// JSON that was cut short may come whole the next time; whole JSON of another form comes again as it is.
fn could_not_read<T>(status: u16, error: &serde_json::Error, key: &ApiKey) -> Brought<T> {
    // The error quotes what it did not expect, at any length.
    let text = error.to_string();
    let text: String = scrub(&text, &[key]).chars().take(LONGEST_REASON).collect();
    let reason = format!("a reply with status {status} could not be read: {text}");
    if error.is_data() {
        return Brought::Unreadable { status, reason };
    }
    Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason }
}
