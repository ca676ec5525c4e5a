//! A call whose reply is handed on as it comes: through the same loop as every other, up to its first bytes.
//!
//! | to know | look in |
//! |---|---|
//! | what is read on the side: usage, errors, the reason for the end | `watch`, by `glance` |
//! | how much is looked at before anything is handed out, and what is kept back | `reading` |
//! | what becomes of key, ledger and breaker when it ends, breaks or is dropped | `body` |

mod body;
mod glance;
mod reading;
mod watch;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue,
    header::{ACCEPT_ENCODING, Entry},
};
use keywheel_core::Usage;
use keywheel_pool::Ask;
use keywheel_provider::{
    Sent, WireResponse,
    upstream::{Call, CallError, Upstream},
};

pub use self::body::RelayBody;
pub(crate) use self::watch::Expected;
use self::{
    body::Live,
    reading::{Broke, Reading},
    watch::{Fault, Watch},
};
use super::{
    Run, Skipped,
    judge::forget,
    work::{Brought, Sight, Work},
};
use crate::{
    Attempt, Error,
    calls::raw::Plan,
    charging::Bill,
    gemini::{CallOptions, Inner},
    observe::CallSpan,
    time::sleep,
};

/// How long the first frame of a stream is waited for before the reply is handed out unseen.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where an upload goes on: whoever began it needs the address, even if the provider puts the key into it.
const ADDRESSES: [&str; 2] = ["x-goog-upload-url", "x-goog-upload-control-url"];

/// A raw call, ready to be sent.
pub(crate) struct Passing {
    pub(crate) call: Arc<Call>,
    pub(crate) plan: Plan,
    /// What the plan says it may cost is what it costs, whatever its reply says.
    pub(crate) is_fixed: bool,
}

/// A reply on its way, and the account of how it came about.
pub(crate) struct Passed {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: RelayBody,
    /// The bucket that was drawn on: a model's or a route's.
    pub(crate) bucket: Arc<str>,
    pub(crate) key_label: String,
    pub(crate) quota_project: String,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) skipped: Vec<Skipped>,
    #[cfg(feature = "ledger")]
    pub(crate) standing: Option<keywheel_ledger::LimitStanding>,
}

/// What a whole body says it has cost.
///
/// # Errors
/// It is an error under a status that claims success, as it stands there.
pub(crate) fn glance(
    expected: Expected,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Option<Usage>, Bytes> {
    let mut watch = Watch::new(expected, headers);
    match watch.push(body).and_then(|()| watch.finish()) {
        // What comes after an answer has begun takes nothing back.
        Err(Fault::Refused(error)) if watch.frames_read() == 0 => Err(error),
        _ => Ok(watch.usage()),
    }
}

/// Sends, and hands the reply on once its beginning is no error.
pub(crate) async fn relay(
    inner: Arc<Inner>,
    model: Arc<str>,
    work: Passing,
    options: CallOptions,
) -> Result<Passed, Error> {
    inner.counters.called();
    let span = CallSpan::new(&inner, &work.plan.operation, &model);
    span.is_called(options.payer.request_id());
    let passed = span.enter(pass(&inner, model, &work, &options, span.clone())).await;
    if let Err(error) = &passed {
        inner.counters.gave_up();
        span.ended(Err(error));
    }
    passed
}

async fn pass(
    inner: &Arc<Inner>,
    model: Arc<str>,
    work: &Passing,
    options: &CallOptions,
    span: CallSpan,
) -> Result<Passed, Error> {
    let mut run = Run::new(inner, model, work, options);
    let (Opened { status, headers, reading }, served) = run.answer(work).await?;
    let end_ms = if reading.is_long() { run.stream_end_ms } else { run.deadline_ms };
    let key_label = served.lease.label().to_owned();
    let quota_project = served.lease.quota_project().to_owned();
    #[cfg(feature = "ledger")]
    let standing = {
        // Of a whole reply it is known what it has cost.
        let is_known = reading.remaining().is_some() && !work.is_fixed;
        served.slip.standing(reading.usage().filter(|_| is_known))
    };
    let (skipped, attempts) = (run.skipped(), run.take_attempts());
    let ask = run.chain.swap_remove(run.at).ask;
    drop(run);
    let bucket = Arc::clone(&ask.model);
    let live = Live::new(inner, *reading, served, end_ms, work.is_fixed);
    let body = RelayBody::new(live, ask, span);
    Ok(Passed {
        status,
        headers,
        body,
        bucket,
        key_label,
        quota_project,
        attempts,
        skipped,
        #[cfg(feature = "ledger")]
        standing,
    })
}

/// A reply whose beginning is no error.
pub(crate) struct Opened {
    status: u16,
    headers: HeaderMap,
    reading: Box<Reading>,
}

impl Work for Passing {
    type Answer = Opened;

    fn ask(&self, _model: &Arc<str>) -> Ask {
        self.plan.ask.clone()
    }

    fn call(&self, _upstream: &Upstream, model: &str) -> Result<Call, CallError> {
        let other = (*model != *self.plan.ask.model).then_some(model);
        let mut sent = self.plan.sent(&self.call, other);
        ask_for_what_can_be_read(&mut sent.headers, self.plan.asks_for_stream);
        Ok(sent)
    }

    async fn read(&self, sight: &Sight<'_>, response: WireResponse) -> Brought<Opened> {
        let WireResponse { status, mut headers, body } = response;
        let mut reading = Box::new(Reading::new(self.plan.expected, &headers, body));
        let broke = match reading.look(sleep(sight.clock, PATIENCE)).await {
            Ok(()) => {
                forget(sight.lease.key(), &mut headers, &ADDRESSES);
                return Brought::Answer(Opened { status, headers, reading });
            }
            Err(broke) => broke,
        };
        let reason = broke.to_string();
        if let Broke::Refused(body) = broke
            && let Some(refused) = sight.refused(status, &headers, &body)
        {
            return Brought::Refused { status, body, refused };
        }
        Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason }
    }

    fn bill(&self, _: &Ask) -> Option<Bill> {
        self.plan.bill
    }

    fn may_change_model(&self) -> bool {
        self.plan.may_change_model
    }

    fn is_repeatable(&self) -> bool {
        self.plan.is_repeatable
    }
}

/// Of what the client understands, only what can be read on the side: gzip; and of a stream only plain text, in which
/// a frame ends where its bytes end.
fn ask_for_what_can_be_read(headers: &mut HeaderMap, is_stream: bool) {
    let Entry::Occupied(mut accepted) = headers.entry(ACCEPT_ENCODING) else { return };
    let takes_gzip = |value: &HeaderValue| {
        let value = value.to_str().unwrap_or_default().to_ascii_lowercase();
        let mut codings = value.split(',').map(|coding| coding.split(';').map(str::trim));
        codings.any(|mut coding| {
            matches!(coding.next(), Some("gzip" | "x-gzip"))
                && !coding.any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        })
    };
    let gzip = !is_stream && accepted.iter().any(takes_gzip);
    accepted.insert(HeaderValue::from_static(if gzip { "gzip" } else { "identity" }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encodings_that_can_be_read_are_asked_for() {
        let asked = |accepted: &'static str, is_stream| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            ask_for_what_can_be_read(&mut headers, is_stream);
            headers[ACCEPT_ENCODING].to_str().unwrap().to_owned()
        };
        for accepted in ["gzip, deflate, br, zstd", "br;q=1.0, GZIP;q=0.8", "x-gzip"] {
            assert_eq!(
                (asked(accepted, false), asked(accepted, true)),
                ("gzip".into(), "identity".into())
            );
        }
        for refused in ["br", "identity", "gzip;q=0, br", "*"] {
            assert_eq!(asked(refused, false), "identity");
        }
        let mut none = HeaderMap::new();
        ask_for_what_can_be_read(&mut none, false);
        assert!(none.is_empty());
    }
}
