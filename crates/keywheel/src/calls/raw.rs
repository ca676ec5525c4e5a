//! Any call of the API by its path: the door to everything that has no method here.

mod plan;
mod target;

use std::{future::IntoFuture, sync::Arc};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use keywheel_core::Usage;
use keywheel_pool::Ask;
use keywheel_provider::{
    Sent, WireResponse,
    upstream::{CallError, Upstream},
};
use serde::de::DeserializeOwned;

pub use keywheel_provider::{Body, upstream::Call};

pub(crate) use self::plan::Plan;
pub(super) use self::plan::{Looked, Said, raw_options};
pub use super::relay::{Relay, Relayed};
pub use crate::attempt::RelayBody;
use crate::{
    Attempt, Error, Gemini,
    attempt::{
        glance, perform,
        work::{Brought, Sight, Work},
    },
    charging::Bill,
    gemini::{CallOptions, Inner, call_options},
};

/// The most of an answer that is read.
const MAX_ANSWER: usize = 256 << 20;

impl Gemini {
    /// Any call of the API, as it is: with failover, and counted like all others. The whole reply is read.
    ///
    /// What it draws on is told by its path: `models/x:verb` the quota of `x`, anything else a bucket of its own
    /// that knows no limit but what replies say. See [`Raw::bucket`], [`Raw::requests`], [`Raw::tokens`] to say
    /// otherwise.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::json(200, r#"{"predictions":[{}]}"#));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// use keywheel::raw::Call;
    ///
    /// let body = r#"{"instances":[{"prompt":"a lighthouse"}]}"#;
    /// let reply = gemini.send(Call::post("models/imagen-4:predict", body)).await?;
    /// assert_eq!(reply.status, 200);
    /// let answer: serde_json::Value = reply.json()?;
    /// assert!(answer["predictions"].is_array());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Rejected`] with the body as it came, for what is the request's fault; others as
    /// [`generate`](Self::generate). [`Error::UpstreamDown`] at once when a call that may not be done twice was cut.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request. What was sent may have been done all the same.
    pub fn send(&self, call: Call) -> Raw {
        Raw { gemini: self.clone(), call, said: Said::default(), options: self.options() }
    }
}

/// A call that has not begun: see [`Gemini::send`].
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.reply(Scripted::json(200, r#"{"name":"operations/1"}"#));
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script.clone()))
/// #     .build()
/// #     .await?;
/// use keywheel::raw::Call;
///
/// let reply = gemini
///     .send(Call::post("tunedModels/mine:predictLongRunning", "{}"))
///     .bucket("veo-3") // whose quota it draws on
///     .requests(2)
///     .tokens(100)
///     .retry_safe() // twice does no harm
///     .await?;
/// assert_eq!(reply.json::<serde_json::Value>()?["name"], "operations/1");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Raw {
    gemini: Gemini,
    call: Call,
    said: Said,
    options: CallOptions,
}

call_options!(Raw);
raw_options!(Raw);

impl IntoFuture for Raw {
    type Output = Result<RawReply, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let inner = Arc::clone(&self.gemini.inner);
        Box::pin(async move { send(&inner, self).await })
    }
}

/// A reply as it came.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RawReply {
    /// The HTTP status, a success.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Whose key was used: what the call made belongs to that quota project.
    pub quota_project: String,
    /// Every attempt in order; the last one served.
    pub attempts: Vec<Attempt>,
}

impl RawReply {
    /// The body as a `T`.
    ///
    /// # Errors
    /// It is no JSON, or JSON of another form.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

async fn send(inner: &Inner, raw: Raw) -> Result<RawReply, Error> {
    let Raw { call, said, options, .. } = raw;
    let (plan, options) = Plan::of(inner, &call, &said, &Looked::default(), options, false).await?;
    let bucket = Arc::clone(&plan.ask.model);
    let done = perform(inner, bucket, &Sending { call, plan }, &options).await?;
    let Answer { status, headers, body, .. } = done.answer;
    let quota_project = done.quota_project.as_ref().to_owned();
    Ok(RawReply { status, headers, body, quota_project, attempts: done.attempts })
}

struct Sending {
    call: Call,
    plan: Plan,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
    usage: Option<Usage>,
}

impl Work for Sending {
    type Answer = Answer;

    fn ask(&self, _model: &Arc<str>) -> Ask {
        self.plan.ask.clone()
    }

    fn call(&self, _upstream: &Upstream, _model: &str) -> Result<Call, CallError> {
        Ok(self.call.clone())
    }

    async fn read(&self, sight: &Sight<'_>, response: WireResponse) -> Brought<Answer> {
        let (status, headers) = (response.status, response.headers.clone());
        let body = match response.bytes(MAX_ANSWER).await {
            Ok(body) => body,
            Err(error) => {
                let reason = error.to_string();
                return Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason };
            }
        };
        match glance(self.plan.expected, &headers, &body) {
            Ok(usage) => Brought::Answer(Answer { status, headers, body, usage }),
            Err(error) => match sight.refused(status, &headers, &error) {
                Some(refused) => Brought::Refused { status, body: error, refused },
                None => Brought::Answer(Answer { status, headers, body, usage: None }),
            },
        }
    }

    fn bill(&self, _: &Ask) -> Option<Bill> {
        self.plan.bill
    }

    fn is_repeatable(&self) -> bool {
        self.plan.is_repeatable
    }

    fn usage(&self, answer: &Answer) -> Option<Usage> {
        answer.usage
    }
}
