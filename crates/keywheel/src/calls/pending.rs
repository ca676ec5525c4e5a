//! A call with nothing to set but how long it may take and who may pay.

use std::{fmt, future::IntoFuture, sync::Arc};

use futures_util::future::BoxFuture;

use crate::{
    Error, Gemini,
    gemini::{CallOptions, Inner, call_options},
};

/// A call that has not begun. Await it, or set something first: `.deadline(…)`, `.allow_paid()`.
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.reply(Scripted::token_count(7));
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script.clone()))
/// #     .build()
/// #     .await?;
/// let count = gemini.count_tokens("gemini-3.5-flash", "Say hello").allow_paid().no_deadline().await?;
/// assert_eq!(count.total_tokens, 7);
/// # Ok(())
/// # }
/// ```
#[must_use = "a call does nothing until it is awaited"]
pub struct Pending<T> {
    inner: Arc<Inner>,
    options: CallOptions,
    run: Box<Run<T>>,
}

type Run<T> = dyn FnOnce(Arc<Inner>, CallOptions) -> BoxFuture<'static, Result<T, Error>> + Send;

call_options!(Pending<T>);

impl<T> Pending<T> {
    /// A call of `gemini` that does `run` when it is awaited.
    pub(super) fn new<F>(
        gemini: &Gemini,
        run: impl FnOnce(Arc<Inner>, CallOptions) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Self {
            inner: Arc::clone(&gemini.inner),
            options: gemini.options(),
            run: Box::new(move |inner, options| Box::pin(run(inner, options))),
        }
    }
}

impl<T> IntoFuture for Pending<T> {
    type Output = Result<T, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        (self.run)(self.inner, self.options)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("options", &self.options).finish_non_exhaustive()
    }
}
