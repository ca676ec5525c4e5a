//! A budget for a client: every attempt reserves what it may cost before it is sent, and is charged what it did cost.
//!
//! All of [`keywheel_ledger`] is here under its own names. The feature `ledger` brings it in.
//!
//! ```
//! # use std::sync::Arc;
//! # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
//! use keywheel::{Error, ledger::{Ledger, Limit, Period}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let script = Script::new();
//! # script.reply(Scripted::text("Hello"));
//! let ledger = Ledger::builder()
//!     .account("triage", [Limit::tokens(Period::Day, 10_000)])
//!     .in_memory() // or a file: the default
//!     .open()
//!     .await?;
//! let gemini = Gemini::builder()
//!     .ledger(ledger.clone(), "triage")
//! #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
//! #     .state(StateLocation::None)
//! #     .transport(Arc::new(script))
//!     .build()
//!     .await?;
//!
//! gemini.generate("gemini-3.5-flash-lite", "Say hello").await?;
//! let used = ledger.usage("triage").await?.day.tokens.used();
//! assert!(used < 100, "reserved at up to 8,200, charged {used}");
//!
//! // Denied before anything is sent.
//! let long = "word ".repeat(9_000);
//! let denied = gemini.generate("gemini-3.5-flash-lite", long).await.unwrap_err();
//! assert!(matches!(denied, Error::OverBudget { .. }));
//! # Ok(())
//! # }
//! ```
//!
//! # What is charged
//!
//! - Each request to a model is a row: one call that fails over three keys has three, all under its
//!   [`request_id`](crate::Reply::request_id), and is one logical call. So is a call for many vectors, whatever number
//!   of requests it takes.
//! - What no model is asked for (`countTokens`, lists, files, caches) costs no tokens and is no call: it is not in the
//!   ledger.
//! - An answer from the embedding cache or from [`on_exhausted`](crate::GeminiBuilder::on_exhausted) costs nothing.
//! - A raw call ([`Gemini::send`]) is sent as it is. It is reserved at the limit of output that its body sets, else at
//!   the model's own.

use std::sync::Arc;

use keywheel_pool::{Exhausted, ExhaustedKind};

#[doc(inline)]
pub use keywheel_ledger::*;

use crate::{Error, Gemini, GeminiBuilder, charging::Purse};

impl GeminiBuilder {
    /// Charges every call to `account` of `ledger`: each attempt reserves what it may cost before it is sent, and is
    /// charged what it did cost. Defaults to no ledger. A call can [name another account](crate::Generate::account).
    ///
    /// What does not fit ends with [`Error::OverBudget`], and nothing is sent; a limit on one model lets the next of
    /// the [chain](Self::fallback) answer, one on all of them does not. If the ledger cannot write, nothing is sent
    /// either: [`Error::Ledger`].
    ///
    /// A request without `maxOutputTokens` is sent with the account's `default_max_output` (8,192), because what is
    /// not bounded cannot be reserved: see [`Reply::output_was_capped`](crate::Reply::output_was_capped) and
    /// [`without_output_cap`](Self::without_output_cap).
    ///
    /// [`build`](Self::build) fails with [`Error::Ledger`] if the account is unknown. See [`ledger`](crate::ledger).
    pub fn ledger(mut self, ledger: Ledger, account: impl Into<Arc<str>>) -> Self {
        self.ledger.whose = Some((From::Given(ledger), account.into()));
        self
    }

    /// Leaves requests without `maxOutputTokens` as they are, and reserves as much as the model can write: 65,536
    /// tokens for most, which fit into few budgets more than once at a time. By default a length is set.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// use keywheel::ledger::{Ledger, Limit, Period};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::text("Hello"));
    /// let limit = Limit::tokens(Period::Day, 1_000_000);
    /// let ledger = Ledger::builder().account("triage", [limit]).in_memory().open().await?;
    /// let gemini = Gemini::builder()
    ///     .ledger(ledger, "triage")
    ///     .without_output_cap()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script.clone()))
    ///     .build()
    ///     .await?;
    /// gemini.generate("gemini-3.5-flash-lite", "Say hello").await?;
    /// assert!(script.requests()[0].json()["generationConfig"]["maxOutputTokens"].is_null());
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_output_cap(mut self) -> Self {
        self.ledger.leaves_output = true;
        self
    }

    /// The same for a ledger that is opened with the client.
    pub(crate) fn ledger_of(mut self, config: LedgerConfig, account: Arc<str>) -> Self {
        self.ledger.whose = Some((From::Described(Box::new(config)), account));
        self
    }
}

impl Gemini {
    /// The ledger that this client charges its calls to, if there is one.
    #[must_use]
    pub fn ledger(&self) -> Option<&Ledger> {
        self.inner.purse.ledger()
    }
}

/// How a client that is being built joins a ledger.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    whose: Option<(From, Arc<str>)>,
    leaves_output: bool,
}

/// Where the ledger is from.
#[derive(Debug)]
enum From {
    Given(Ledger),
    Described(Box<LedgerConfig>),
}

impl Joining {
    pub(crate) async fn open(self, clock: &Arc<dyn Clock>) -> Result<Purse, Error> {
        let Some((from, account)) = self.whose else { return Ok(Purse::default()) };
        let failed = |source| Error::Ledger { source, attempts: Vec::new() };
        let ledger = match from {
            From::Given(ledger) => ledger,
            From::Described(config) => {
                let builder = Ledger::builder().clock(Arc::clone(clock)).config(*config);
                builder.open().await.map_err(failed)?
            }
        };
        let id = AccountId::new(&account).map_err(failed)?;
        // A name with a typing error would fail every call; better now.
        ledger.rules().limits_for(&id, "").map(drop).map_err(failed)?;
        Ok(Purse::new(ledger, account, !self.leaves_output))
    }
}

/// A spent budget in the words of a spent pool, for those who only want to know when to come back.
pub(crate) fn as_exhausted(denied: &Denied) -> Exhausted {
    Exhausted {
        model: denied.limit.model.as_deref().unwrap_or_default().to_owned(),
        kind: ExhaustedKind::Cooling,
        soonest: denied.retry_at,
        reasons: Vec::new(),
        omitted: 0,
    }
}
