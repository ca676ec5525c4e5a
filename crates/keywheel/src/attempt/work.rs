//! One kind of call, as the attempt loop sees it: what it draws on, what is sent, and how its answer is read.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::HeaderMap;
use keywheel_core::{ApiKey, Usage, scrub::scrub};
use keywheel_pool::{Ask, Lease};
use keywheel_provider::{
    Sent, TransportError, WireResponse,
    classify::{Dialect, Reply as WireReply},
    upstream::{Call, CallError, Upstream},
};

use super::judge::{Refused, judge};
use crate::charging::Bill;

/// The most of an answer that is read. Google's answers with inline media stay far below.
const MAX_ANSWER: usize = 256 << 20;

/// The longest reason that is made of what a reply held, in characters.
const LONGEST_REASON: usize = 300;

/// What one attempt brought.
#[derive(Debug)]
pub(crate) enum Brought<T> {
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

/// One kind of call.
pub(crate) trait Work: Sync {
    type Answer: Send;

    /// What it asks of the pool: the bucket it draws on, its weight, and the quota project it is bound to. The
    /// bucket is the model; or, where no model's quota is drawn, the [`route`].
    fn ask(&self, model: &Arc<str>) -> Ask;

    /// What is sent to ask `model`.
    fn call(&self, upstream: &Upstream, model: &str) -> Result<Call, CallError>;

    /// Reads a reply whose status says success.
    fn read(
        &self,
        sight: &Sight<'_>,
        response: WireResponse,
    ) -> impl Future<Output = Brought<Self::Answer>> + Send;

    /// What it may cost at most, on top of what was learned of the model; `None` for what costs nothing.
    ///
    /// Defaults to the weight of what it asks of a model, and the longest answer of that model.
    fn bill(&self, ask: &Ask) -> Option<Bill> {
        (!is_route(&ask.model)).then(|| Bill::unbounded(ask.tokens))
    }

    /// Whether another model may do it in this one's place. Vectors of two models cannot be compared, and a cache is
    /// one model's.
    fn may_change_model(&self) -> bool {
        false
    }

    /// Whether it may be done twice. If not, it is not tried again once the provider may have begun to do it.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// What the answer says that it cost.
    fn usage(&self, _answer: &Self::Answer) -> Option<Usage> {
        None
    }
}

/// The bucket of calls that draw on no model's quota, by what they are for: `countTokens`, `models`, `files`.
///
/// A spent model does not stop them, and what refuses them stops no model. No model's name begins like it.
pub(crate) fn route(name: &str) -> Arc<str> {
    format!("{ROUTE}{name}").into()
}

/// True for the bucket of a [`route`].
pub(crate) fn is_route(bucket: &str) -> bool {
    bucket.starts_with(ROUTE)
}

/// What a call that draws on `bucket` does, where it is no answer: the route's name, or OpenTelemetry's word for
/// vectors.
pub(crate) fn operation(bucket: &str) -> &str {
    bucket.strip_prefix(ROUTE).unwrap_or("embeddings")
}

const ROUTE: &str = "api:";

/// What is known of an attempt when its reply comes.
pub(crate) struct Sight<'a> {
    pub(crate) lease: &'a Lease,
    pub(crate) ask: &'a Ask,
    pub(crate) upstream: &'a Upstream,
    pub(crate) clock: &'a dyn keywheel_core::Clock,
}

impl Sight<'_> {
    /// What the reply means, if it is no success after all.
    pub(crate) fn refused(
        &self,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Option<Box<Refused>> {
        let reply = WireReply { status, headers, body };
        judge(self.dialect(), &reply, self.ask, self.key(), self.now()).map(Box::new)
    }

    /// Reads a whole reply by `parse`. What parses and is no answer is looked at as an error, as is what does not.
    pub(crate) async fn whole<T>(
        &self,
        response: WireResponse,
        parse: impl FnOnce(&[u8]) -> serde_json::Result<T>,
        is_answer: impl FnOnce(&T) -> bool,
    ) -> Brought<T> {
        let (status, headers) = (response.status, response.headers.clone());
        let body = match response.bytes(MAX_ANSWER).await {
            Ok(body) => body,
            Err(error) => return broke_off(status, &error),
        };
        let unread = match parse(&body) {
            Ok(answer) if is_answer(&answer) => return Brought::Answer(answer),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        // Errors come with a status of 200, too, in every shape that they come in with others.
        if let Some(refused) = self.refused(status, &headers, &body) {
            return Brought::Refused { status, body, refused };
        }
        match unread {
            Some(error) => could_not_read(status, &error, self.key()),
            None => {
                let reason = format!("an empty reply with status {status}");
                Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason }
            }
        }
    }

    fn dialect(&self) -> Dialect {
        self.upstream.dialect()
    }

    fn key(&self) -> &ApiKey {
        self.lease.key()
    }

    fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }
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
