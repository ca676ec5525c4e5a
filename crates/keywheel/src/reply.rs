//! An answer, and the account of how it came about.

use std::{fmt, ops::Deref, sync::Arc};

use chrono::{DateTime, Utc};
use keywheel_core::Fingerprint;
use keywheel_pool::Exhausted;
use keywheel_provider::{
    api::{FinishReason, GenerateResponse},
    classify::Kind,
};

use crate::{Skipped, error::OutOfKeys};

/// One attempt of a call: which key was used and what came of it. Holds no secret.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The model that was asked.
    pub model: String,
    /// The variable the key came from.
    pub label: String,
    /// Which key.
    pub fingerprint: Fingerprint,
    /// The quota project the key draws on.
    pub quota_project: String,
    /// The HTTP status; `None` when there was no reply.
    pub status: Option<u16>,
    /// What the reply means; `None` when there was none, or none that could be read.
    pub kind: Option<Kind>,
    /// When this key can serve this model again, if it was refused and waiting helps.
    pub available_at: Option<DateTime<Utc>>,
    /// Whether a refusal was safely in the state file before the call went on.
    pub persisted: Option<bool>,
    /// What the key's owner can do about a refusal, where somebody has to act.
    pub fix: Option<&'static str>,
    /// What the provider said of a refusal, or what went wrong; shortened, without keys. Empty when served.
    pub message: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.label, self.kind.map_or("no reply", Kind::as_str))?;
        if let Some(until) = self.available_at {
            write!(f, " until {}", until.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))?;
        }
        Ok(())
    }
}

/// An answer. Dereferences to the [`GenerateResponse`].
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
/// let reply = gemini.generate("gemini-3.5-flash", "Say hello").await?;
/// assert_eq!((reply.model(), reply.served_by()), ("gemini-3.5-flash", Some("KEY_1")));
/// assert_eq!(reply.attempts().len(), 1);
/// assert_eq!(reply.text(), reply.response().text());
/// assert_eq!(reply.request_id(), None); // without a ledger
/// assert!(!reply.output_was_capped());
/// let response = reply.into_response();
/// assert_eq!(response.candidates.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Reply {
    pub(crate) response: GenerateResponse,
    pub(crate) model: String,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) degraded: Option<OutOfKeys>,
    /// The call's name in the ledger.
    pub(crate) request_id: Option<Arc<str>>,
    /// The longest answer, where the ledger set it.
    pub(crate) cap: Option<u64>,
}

impl Reply {
    /// The response as the provider sent it, or as the degradation callback made it.
    #[must_use]
    pub const fn response(&self) -> &GenerateResponse {
        &self.response
    }

    /// Takes the response out.
    #[must_use]
    pub fn into_response(self) -> GenerateResponse {
        self.response
    }

    /// The model that answered; the one that was asked for, if none did.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The models of the [fallback chain](crate::GeminiBuilder::fallback) that were passed over, and why. Empty when
    /// the model that was asked for answered.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Every attempt in order; the last one served, unless the answer is degraded.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The label of the key that served; `None` for a degraded answer.
    #[must_use]
    pub fn served_by(&self) -> Option<&str> {
        if self.degraded.is_some() {
            return None;
        }
        self.attempts.last().map(|attempt| attempt.label.as_str())
    }

    /// Why the callback answered and no model did, with the moment of return; `None` for a real answer.
    #[must_use]
    pub fn degraded(&self) -> Option<&Exhausted> {
        self.degraded.as_ref().map(|out| &*out.exhausted)
    }

    /// The limit of the ledger that stood in the way, where the callback answered for that reason.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::Script};
    /// use keywheel::ledger::{Ledger, Limit, Period};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = Limit::tokens(Period::Day, 1_000);
    /// let ledger = Ledger::builder().account("triage", [limit]).in_memory().open().await?;
    /// let gemini = Gemini::builder()
    ///     .ledger(ledger, "triage")
    ///     .on_exhausted(|_| async { "Tomorrow, perhaps." })
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(Script::new()))
    ///     .build()
    ///     .await?;
    /// let reply = gemini.generate("gemini-3.5-flash-lite", "word ".repeat(9_000)).await?;
    /// assert_eq!((&*reply.text(), reply.served_by()), ("Tomorrow, perhaps.", None));
    /// let denied = reply.over_budget().expect("no key was at fault");
    /// assert!(denied.asked > 1_000);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "ledger")]
    #[must_use]
    pub fn over_budget(&self) -> Option<&keywheel_ledger::Denied> {
        self.degraded.as_ref()?.denied.as_deref()
    }

    /// What the call is named in the rows of the ledger (`request_id`) and in the span of the call; `None` for a
    /// client without a ledger.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// True if the answer was cut at the longest that the ledger reserves for the account (`default_max_output`), which
    /// was set into the request because it set no `maxOutputTokens` itself. A request that sets one is reserved, and
    /// answered, at that length.
    #[must_use]
    pub fn output_was_capped(&self) -> bool {
        self.cap.is_some() && self.response.finish_reason() == Some(FinishReason::MaxTokens)
    }
}

impl Deref for Reply {
    type Target = GenerateResponse;

    fn deref(&self) -> &GenerateResponse {
        &self.response
    }
}
