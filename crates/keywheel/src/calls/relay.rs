//! Any call of the API by its path, its reply handed on byte for byte: what a gateway is made of.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::HeaderMap;

use super::raw::{Looked, Plan, Said, raw_options};
use crate::{
    Attempt, Error, Gemini, Skipped,
    attempt::{Passing, RelayBody, relay as pass_on, work::is_route},
    gemini::{CallOptions, Inner, OnSent, call_options, fallback_options},
    raw::Call,
    sketch::Sketch,
};

impl Gemini {
    /// The same as [`send`](Self::send) for those who hand the reply on: its body comes byte for byte, as it comes.
    ///
    /// The first frame of a stream is looked at before the reply is handed out, for 2 s after its head and up to
    /// 64 KB, and so is a whole reply of that length: until then another key, or another
    /// [model](crate::GeminiBuilder::fallback), can take over. What the reply costs is read on the side. gzip may be
    /// asked for, of streams only plain text is.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::day_spent(20));
    /// # script.reply(Scripted::stream(["Once upon ", "a time"]));
    /// # let gemini = Gemini::builder()
    /// #     .keys([
    /// #         KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1"),
    /// #         KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-2")?, "KEY_2"),
    /// #     ])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// use keywheel::raw::Call;
    ///
    /// let body = r#"{"contents":[{"parts":[{"text":"Tell me a story"}]}]}"#;
    /// let call = Call::post("models/gemini-3.5-flash:streamGenerateContent", body).with_query("alt", "sse");
    /// let mut reply = gemini.relay(call).await?;
    /// assert_eq!((reply.status, &*reply.key_label), (200, "KEY_2"));
    ///
    /// let mut bytes = Vec::new();
    /// while let Some(piece) = reply.body.next().await {
    ///     bytes.extend(piece?);
    /// }
    /// assert!(bytes.starts_with(b"data: {") && bytes.ends_with(b"\r\n\r\n"));
    /// assert!(reply.body.usage().is_some());
    /// assert_eq!(reply.body.remaining(), Some(0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Rejected`] with status, headers and body as they came, for what is the request's fault; others as
    /// [`send`](Self::send).
    ///
    /// # Cancel safety
    /// Dropping the future, or the body of the reply, ends the request. What was sent may have been done all the same.
    pub fn relay(&self, call: Call) -> Relay {
        Relay {
            gemini: self.clone(),
            call: Arc::new(call),
            said: Said::default(),
            options: self.options(),
            looked: Arc::default(),
        }
    }
}

/// A call that has not begun, and whose reply is handed on: see [`Gemini::relay`]. Cheap to clone, for those who try
/// it again later.
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.reply(Scripted::minute_full(5, std::time::Duration::from_secs(30)));
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script))
/// #     .build()
/// #     .await?;
/// use std::time::Duration;
/// use keywheel::{Error, raw::Call};
///
/// let relay = gemini
///     .relay(Call::post("models/gemini-3.5-flash:generateContent", r#"{"contents":[]}"#))
///     .without_fallback()
///     .patience(Duration::ZERO) // whoever asks has a queue of its own
///     .fixed_charge(10_000); // whatever the reply says
/// let error = relay.clone().await.unwrap_err();
/// assert!(matches!(error, Error::Exhausted { .. }));
/// assert!(error.next_available_at().is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Relay {
    gemini: Gemini,
    call: Arc<Call>,
    said: Said,
    options: CallOptions,
    /// Shared by clones: what the body holds is looked at once.
    looked: Arc<Looked>,
}

call_options!(Relay);
fallback_options!(Relay);
raw_options!(Relay);

impl Relay {
    /// The longest that the whole call may wait for keys. With zero it takes a key that can serve now or ends at once,
    /// with [`Error::Exhausted`] and the soonest moment. Defaults to the deadline.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.options.patience = Some(patience);
        self
    }

    /// What the body asks for and weighs. It is looked at once, for this call and all of its clones; of what is no
    /// request to a model nothing is known.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(Script::new()))
    /// #     .build()
    /// #     .await?;
    /// use keywheel::raw::Call;
    ///
    /// let body = r#"{"model":"gemini-3.5-flash","messages":[],"stream":true}"#;
    /// let relay = gemini.relay(Call::post("/v1beta/openai/chat/completions", body));
    /// let sketch = relay.sketch().await?;
    /// assert_eq!((sketch.model.as_deref(), sketch.stream), (Some("gemini-3.5-flash"), true));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Setting`]: the body is in a file that cannot be read.
    pub async fn sketch(&self) -> Result<Arc<Sketch>, Error> {
        self.looked.sketch(&self.call).await
    }

    /// Names the call, unless it has a name, and says it: by it the rows of the ledger can be found, whatever becomes of
    /// the call. Clones that are made after this are the same call. `None` without a ledger.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, raw::Call, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::day_spent(20));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// let mut relay = gemini.relay(Call::get("models"));
    /// assert_eq!(relay.request_id(), None); // this client has no ledger
    /// # Ok(())
    /// # }
    /// ```
    pub fn request_id(&mut self) -> Option<&str> {
        self.gemini.inner.purse.begin(&mut self.options.payer);
        self.options.payer.request_id()
    }

    /// Calls `tell` whenever an attempt goes out: it has its key, and the budget has let it through. For those who let
    /// calls through in an order, and need not wait for the answer of one to let the next one ask.
    ///
    /// ```
    /// # use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, raw::Call, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::text("Hello"));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// let sent = Arc::new(AtomicU32::new(0));
    /// let counter = Arc::clone(&sent);
    /// let call = Call::post("models/gemini-3.5-flash:generateContent", r#"{"contents":[]}"#);
    /// gemini.relay(call).on_sent(move || { counter.fetch_add(1, Ordering::Relaxed); }).await?;
    /// assert_eq!(sent.load(Ordering::Relaxed), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_sent(mut self, tell: impl Fn() + Send + Sync + 'static) -> Self {
        self.options.on_sent = Some(OnSent(Arc::new(tell)));
        self
    }

    /// What the ledger is charged for each attempt that is answered, in tokens, whatever the reply says: for calls
    /// whose cost nobody can tell, such as batches. Defaults to the usage in the reply; and for calls that draw on no
    /// model's quota to nothing.
    pub const fn fixed_charge(mut self, tokens: u64) -> Self {
        self.said.fixed_charge = Some(tokens);
        self
    }
}

impl IntoFuture for Relay {
    type Output = Result<Relayed, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let inner = Arc::clone(&self.gemini.inner);
        Box::pin(hand_on(inner, self))
    }
}

/// A reply on its way: its head, and its body still to come.
#[derive(Debug)]
#[non_exhaustive]
pub struct Relayed {
    /// The HTTP status, a success.
    pub status: u16,
    /// The headers as they came, those of the connection included.
    pub headers: HeaderMap,
    /// The body as it comes.
    pub body: RelayBody,
    /// The model that answers; `None` for a call that draws on no model's quota.
    pub model: Option<String>,
    /// The label of the key that was used.
    pub key_label: String,
    /// Whose key it is: what the call made belongs to that quota project.
    pub quota_project: String,
    /// Every attempt in order; the last one answers.
    pub attempts: Vec<Attempt>,
    /// The models of a fallback chain that were passed over, and why.
    pub skipped: Vec<Skipped>,
    /// The longest answer in tokens that was set into the request, where the ledger set one.
    pub output_cap: Option<u64>,
    /// The tightest of the limits that apply, with what others have used and reserved. Tokens of this call are in it if
    /// the reply is whole and says how many; else they are not known yet.
    #[cfg(feature = "ledger")]
    pub standing: Option<keywheel_ledger::LimitStanding>,
    /// What the call is named in the rows of the ledger; `None` without one.
    pub request_id: Option<String>,
}

async fn hand_on(inner: Arc<Inner>, relay: Relay) -> Result<Relayed, Error> {
    let Relay { call, said, mut options, looked, .. } = relay;
    inner.purse.begin(&mut options.payer);
    let (plan, options) = Plan::of(&inner, &call, &said, &looked, options, true).await?;
    let bucket = Arc::clone(&plan.ask.model);
    let cap = plan.cap;
    let work = Passing { plan, is_fixed: said.fixed_charge.is_some(), call };
    let request_id = options.payer.request_id().map(str::to_owned);
    let passed = pass_on(inner, bucket, work, options).await?;
    let model = (!is_route(&passed.bucket)).then(|| passed.bucket.as_ref().to_owned());
    Ok(Relayed {
        status: passed.status,
        headers: passed.headers,
        body: passed.body,
        model,
        key_label: passed.key_label,
        quota_project: passed.quota_project,
        attempts: passed.attempts,
        skipped: passed.skipped,
        output_cap: cap,
        #[cfg(feature = "ledger")]
        standing: passed.standing,
        request_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiKey, KeySpec, StateLocation};

    /// Each call of a gateway is one of these while it waits, and futures grow unnoticed.
    #[tokio::test]
    async fn a_call_that_waits_takes_a_few_kilobytes() {
        let gemini = Gemini::builder()
            .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1").unwrap(), "KEY_1")])
            .state(StateLocation::None)
            .build()
            .await
            .unwrap();
        let waits = hand_on(Arc::clone(&gemini.inner), gemini.relay(Call::get("models")));
        assert!(size_of_val(&waits) < 8 * 1024, "{}", size_of_val(&waits));
    }
}
