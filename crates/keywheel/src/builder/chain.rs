//! Settings of the fallback chain, of what models can read, and of what is told while a call waits.

use std::{sync::Arc, time::Duration};

use crate::{
    GeminiBuilder, ModelFacts, Wait,
    gemini::{bare, chain},
    waits::OnWait,
};

impl GeminiBuilder {
    /// The models that may answer when the one that was asked for cannot, the first before the second. Defaults to
    /// none. A call can [say otherwise](crate::Generate::fallback).
    ///
    /// The model that was asked for is used if it can serve now or within [`fallback_after`](Self::fallback_after);
    /// then the first of these that can serve now; then whichever can first. A model is passed over when it is out of
    /// quota beyond the deadline, fails after its retries, is left alone after failures, is gone or has no free tier,
    /// or cannot read so much. [`Reply::model`](crate::Reply::model) says who answered, and
    /// [`Reply::skipped`](crate::Reply::skipped) who did not, and why.
    ///
    /// Embeddings never change the model, nor do requests that build on a cache: it is one model's.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use keywheel::{ApiKey, Gemini, KeySpec, SkipReason, StateLocation, testing::{Script, Scripted}};
    ///
    /// let script = Script::new();
    /// script.reply(Scripted::json(404, r#"{"error": {"code": 404, "status": "NOT_FOUND", "message":
    ///     "models/gemini-9 is not found for API version v1beta, or is not supported for generateContent."}}"#));
    /// script.reply(Scripted::text("Hello"));
    ///
    /// let gemini = Gemini::builder()
    ///     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "one")])
    ///     .state(StateLocation::None)
    ///     .transport(Arc::new(script))
    ///     .fallback(["gemini-3.5-flash", "gemini-3.5-flash-lite"])
    ///     .build()
    ///     .await?;
    /// let reply = gemini.generate("gemini-9", "Say hello").await?;
    /// assert_eq!(reply.model(), "gemini-3.5-flash");
    /// assert_eq!(reply.skipped()[0].reason, SkipReason::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    pub fn fallback<M: Into<Arc<str>>>(mut self, models: impl IntoIterator<Item = M>) -> Self {
        self.fallback = chain(models);
        self
    }

    /// How long the model that was asked for is waited for before another one of the
    /// [chain](Self::fallback) takes over. Defaults to 2 s: a pause within the minute is no reason to change models.
    pub fn fallback_after(mut self, patience: Duration) -> Self {
        self.defaults.fallback_after = patience;
        self
    }

    /// What `model` can read and write, where you know it. Goes before what the provider says
    /// ([`Gemini::model`](crate::Gemini::model) asks it). Requests that are surely larger end with
    /// [`Error::TooLarge`](crate::Error::TooLarge) before they are sent.
    pub fn model_facts(mut self, model: impl Into<Arc<str>>, facts: ModelFacts) -> Self {
        self.facts.insert(bare(model.into()), facts);
        self
    }

    /// Is told when a call has to wait: for a key, for a retry, for a model that is left alone. Defaults to nobody.
    ///
    /// Called where the call is polled, so it should be quick. A wait that is over sooner is not told of, and one call
    /// may tell of several.
    ///
    /// ```no_run
    /// let builder = keywheel::Gemini::builder()
    ///     .on_wait(|wait| println!("waiting for {} until {}", wait.model, wait.until));
    /// ```
    pub fn on_wait(mut self, hook: impl Fn(&Wait) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(OnWait::new(hook));
        self
    }
}
