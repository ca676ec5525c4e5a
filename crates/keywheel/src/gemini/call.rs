//! Calls that have not begun, and what can be set on them.

use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use keywheel_provider::api::GenerateRequest;

use crate::{
    Error, Gemini, GeminiStream, Reply, attempt, calls::owner, charging::Payer, turns::StepRecorder,
};

/// What one call asks for besides its request.
#[derive(Debug, Clone)]
pub(crate) struct CallOptions {
    pub(crate) deadline: Option<Duration>,
    pub(crate) stream_end: Option<Duration>,
    /// How long it may wait for keys in all.
    pub(crate) patience: Option<Duration>,
    pub(crate) allow_paid: bool,
    /// The one quota project that can serve, since what the request names is its own.
    pub(crate) owner: Option<Arc<str>>,
    /// The models that may take over, the first before the second.
    pub(crate) fallback: Option<Arc<[Arc<str>]>>,
    /// Told of every request that is sent.
    pub(crate) recorder: Option<Arc<StepRecorder>>,
    /// Who is charged.
    pub(crate) payer: Payer,
    /// It is a part of a call that has [earned](crate::attempt) its share of the retry budget already.
    pub(crate) earned: bool,
    pub(crate) on_sent: Option<OnSent>,
}

/// Told of every attempt that goes out.
#[derive(Clone)]
pub(crate) struct OnSent(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for OnSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnSent")
    }
}

macro_rules! call_options {
    ($name:ident $(<$t:ident>)?) => {
        impl $(<$t>)? $name $(<$t>)? {
            /// How long this call may take in all, from when it is first awaited to the end of its answer or
            /// stream. Defaults to the client's deadline.
            pub const fn deadline(mut self, deadline: std::time::Duration) -> Self {
                self.options.deadline = Some(deadline);
                self.options.stream_end = Some(deadline);
                self
            }

            /// Lets this call take as long as it takes.
            pub const fn no_deadline(mut self) -> Self {
                self.options.deadline = None;
                self.options.stream_end = None;
                self
            }

            /// Lets this call use a key marked as paid where free keys would take longer than
            /// [`overflow_after`](crate::GeminiBuilder::overflow_after), or than the deadline allows. Defaults to no.
            pub const fn allow_paid(mut self) -> Self {
                self.options.allow_paid = true;
                self
            }

            /// The account of the ledger that is charged. Defaults to the client's. Without a ledger nobody is.
            #[cfg(feature = "ledger")]
            pub fn account(mut self, account: impl Into<std::sync::Arc<str>>) -> Self {
                self.options.payer.account = Some(account.into());
                self
            }
        }
    };
}

macro_rules! fallback_options {
    ($name:ident $(<$t:ident>)?) => {
        impl $(<$t>)? $name $(<$t>)? {
            /// The models that may answer this call when the one that was asked for cannot, in place of the client's:
            /// see [`GeminiBuilder::fallback`](crate::GeminiBuilder::fallback).
            pub fn fallback<M: Into<std::sync::Arc<str>>>(
                mut self,
                models: impl IntoIterator<Item = M>,
            ) -> Self {
                self.options.fallback = $crate::gemini::chain(models);
                self
            }

            /// Lets no other model answer this call.
            pub fn without_fallback(mut self) -> Self {
                self.options.fallback = None;
                self
            }
        }
    };
}

/// A call that has not begun: see [`Gemini::generate`].
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.reply(Scripted::text("Hello"));
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script.clone()))
/// #     .build()
/// #     .await?;
/// let reply = gemini
///     .generate("gemini-3.5-flash", "Say hello")
///     .allow_paid() // a key marked as paid, where free ones take too long
///     .without_fallback() // this model or none
///     .no_deadline() // tomorrow will do
///     .await?;
/// assert_eq!(reply.text(), "Hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Generate {
    pub(super) gemini: Gemini,
    pub(super) model: Arc<str>,
    pub(super) request: GenerateRequest,
    pub(super) options: CallOptions,
}

pub(crate) use {call_options, fallback_options};
call_options!(Generate);
fallback_options!(Generate);

impl Generate {
    pub(crate) fn with_options(self, options: CallOptions) -> Self {
        Self { options, ..self }
    }
}

impl IntoFuture for Generate {
    type Output = Result<Reply, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { gemini: Gemini { inner, .. }, model, request, options } = self;
        Box::pin(async move {
            let options = owner::bind(&inner, &request, options).await?;
            attempt::generate(inner, model, request, options).await
        })
    }
}

/// A streamed call that has not begun: see [`Gemini::stream`].
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.reply(Scripted::stream(["Once upon ", "a time"]));
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script.clone()))
/// #     .build()
/// #     .await?;
/// use std::time::Duration;
///
/// let mut story = gemini
///     .stream("gemini-3.5-flash", "Tell me a story")
///     .fallback(["gemini-3.5-flash-lite"])
///     .deadline(Duration::from_secs(60)) // to the end of the stream
///     .await?;
/// assert_eq!(story.text().await?, "Once upon a time");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Stream {
    pub(super) gemini: Gemini,
    pub(super) model: Arc<str>,
    pub(super) request: GenerateRequest,
    pub(super) options: CallOptions,
}

call_options!(Stream);
fallback_options!(Stream);

impl Stream {
    pub(crate) fn with_options(self, options: CallOptions) -> Self {
        Self { options, ..self }
    }
}

impl IntoFuture for Stream {
    type Output = Result<GeminiStream, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { gemini: Gemini { inner, .. }, model, request, options } = self;
        Box::pin(async move {
            let options = owner::bind(&inner, &request, options).await?;
            attempt::stream(inner, model, request, options).await
        })
    }
}
