//! What a caller wants to spend, and what the store is told of it.

use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use keywheel_core::{Fingerprint, QuotaDay};
use serde::{Deserialize, Serialize};

use crate::{AccountId, Amount, ErrorKind, LARGEST, LedgerError, LedgerRules, rules::check_model};

/// What one attempt may cost, before it is sent.
///
/// ```
/// use keywheel_ledger::Estimate;
///
/// let estimate = Estimate::new(1_200, 8_192).corrected(1.25); // the guess tends to be a quarter low
/// assert_eq!((estimate.input, estimate.output, estimate.total()), (1_500, 8_192, 9_692));
/// assert_eq!(Estimate::from(600).total(), 600);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Estimate {
    /// Input tokens as counted from the request, before any correction. 0: not told apart.
    pub guess: u64,
    /// The bound on input tokens: the guess, corrected by how far it was off for this model.
    pub input: u64,
    /// The bound on output tokens: the largest answer times the number of candidates. Thinking
    /// counts inside it.
    pub output: u64,
}

impl Estimate {
    /// `input` tokens counted from the request, and at most `output` tokens of answer.
    #[must_use]
    pub const fn new(input: u64, output: u64) -> Self {
        Self { guess: input, input, output }
    }

    /// The same, with the input bound at `factor` times the guess, rounded up. Anything below 1, and
    /// what is not a number, counts as 1.
    #[must_use]
    pub fn corrected(self, factor: f64) -> Self {
        // The conversion saturates; `max` takes NaN for 1.
        let input = (self.guess as f64 * factor.max(1.0)).ceil() as u64;
        Self { input: input.max(self.guess), ..self }
    }

    /// Input and output: what is charged until the row is settled.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl From<u64> for Estimate {
    /// So many tokens in all.
    fn from(tokens: u64) -> Self {
        Self { guess: 0, input: 0, output: tokens }
    }
}

/// What a caller wants to reserve.
///
/// ```
/// # use keywheel_ledger::{Amount, Ask, Estimate, Ledger, LedgerError, Reserved};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
/// # let ledger = Ledger::builder().account("triage", []).in_memory().open().await?;
/// let ask = Ask::new("m", Estimate::new(600, 200)).request_id("7").idempotent("message-7");
/// assert_eq!(ask.amount(), Amount::new(800, 1));
/// let _hold = ledger.reserve("triage", ask.clone()).await?.held().expect("no limit");
/// // Asked once more, after a crash or by a second worker: it must not be sent again.
/// assert!(matches!(ledger.reserve("triage", ask).await?, Reserved::Replayed(_)));
///
/// // The same key for another request is a mistake; what counts as the same, the body says here.
/// let first = Ask::new("m", 800).idempotent_by("message-8", b"Is this spam? ...");
/// let _hold = ledger.reserve("triage", first).await?.held().expect("no limit");
/// let other = Ask::new("m", 800).idempotent_by("message-8", b"Translate: ...");
/// assert!(ledger.reserve("triage", other).await.is_err());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Ask {
    /// The model that is asked for.
    pub model: Arc<str>,
    /// What the attempt may cost.
    pub estimate: Estimate,
    /// How many logical calls it is. Defaults to 1.
    pub calls: u64,
    /// The caller's name for the request, for the audit. Empty by default.
    pub request_id: String,
    /// The key that will be used.
    pub key: Option<Fingerprint>,
    /// Anything the caller wants to find in the row again. Empty by default.
    pub note: String,
    /// Makes a repeat of this ask recognisable.
    pub idempotency: Option<Idempotency>,
}

impl Ask {
    /// One call to `model` that may cost `estimate`: a number of tokens, or an [`Estimate`].
    pub fn new(model: impl Into<Arc<str>>, estimate: impl Into<Estimate>) -> Self {
        Self {
            model: model.into(),
            estimate: estimate.into(),
            calls: 1,
            request_id: String::new(),
            key: None,
            note: String::new(),
            idempotency: None,
        }
    }

    /// With so many logical calls: 0 for an attempt that continues a call already counted.
    pub const fn calls(mut self, calls: u64) -> Self {
        self.calls = calls;
        self
    }

    /// With the caller's name for the request.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = id.into();
        self
    }

    /// With the key that will be used.
    pub const fn key(mut self, key: Fingerprint) -> Self {
        self.key = Some(key);
        self
    }

    /// With a note. Prompts do not belong here unless their owner wants them kept.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// With an idempotency key: whoever asks again with it within 24 hours after the row was
    /// settled is told so and may not send. It is compared by model and uncorrected estimate;
    /// [`idempotent_by`](Self::idempotent_by) compares what the caller wants.
    pub fn idempotent(self, key: impl Into<String>) -> Self {
        let mut hash = FNV_OFFSET;
        fnv(&mut hash, self.model.as_bytes());
        let Estimate { guess, input, output } = self.estimate;
        // Not the corrected input: it moves with what other calls taught.
        let input = if guess == 0 { input } else { guess };
        [input, output, self.calls].iter().for_each(|part| fnv(&mut hash, &part.to_le_bytes()));
        self.with_idempotency(key.into(), hash)
    }

    /// The same, compared by the bytes of `content`, usually the request's body. Only a hash of
    /// them is kept.
    pub fn idempotent_by(self, key: impl Into<String>, content: &[u8]) -> Self {
        let mut hash = FNV_OFFSET;
        fnv(&mut hash, content);
        self.with_idempotency(key.into(), hash)
    }

    /// What is charged until the row is settled.
    #[must_use]
    pub const fn amount(&self) -> Amount {
        Amount::new(self.estimate.total(), self.calls)
    }

    fn with_idempotency(mut self, key: String, content: u64) -> Self {
        self.idempotency = Some(Idempotency { key, content });
        self
    }
}

/// What makes a repeat recognisable, within one account.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Idempotency {
    /// The caller's key, at most 256 bytes.
    pub key: String,
    /// A hash of what was asked: the same key for something else is a mistake.
    pub content: u64,
}

/// An ask as the store gets it: checked, dated, and with the rules it is decided by.
///
/// It holds everything the decision needs, so that a store can queue it.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// Whose budget.
    pub account: AccountId,
    /// What is asked.
    pub ask: Ask,
    /// The rules it is decided by.
    pub rules: Arc<LedgerRules>,
    /// When.
    pub now: DateTime<Utc>,
    /// The day in which the row will count: `now` in the rules' zone.
    pub day: NaiveDate,
}

impl Reservation {
    /// `ask` by `account` at `now`, under `rules`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the model's name is empty, over 128 bytes or hard to see, if the
    /// estimate or the number of calls is above [`LARGEST`], or if the idempotency key is empty or
    /// over 256 bytes.
    pub fn new(
        account: AccountId,
        mut ask: Ask,
        rules: Arc<LedgerRules>,
        now: DateTime<Utc>,
    ) -> Result<Self, LedgerError> {
        check_model(&ask.model)?;
        let invalid = |what: String| Err(LedgerError::new(ErrorKind::Invalid, what));
        let amount = ask.amount();
        if amount != amount.bounded() {
            return invalid(format!(
                "{} tokens and {} calls in one reservation; the most is {LARGEST} of each",
                amount.tokens, amount.calls
            ));
        }
        // A guess is never above what was made of it, so it is bounded, too.
        ask.estimate.guess = ask.estimate.guess.min(LARGEST);
        if let Some(Idempotency { key, .. }) = &ask.idempotency
            && (key.is_empty() || key.len() > 256)
        {
            return invalid(format!(
                "an idempotency key of {} bytes; 1 to 256 are taken",
                key.len()
            ));
        }
        let day = QuotaDay::containing_in(now, rules.zone).date();
        Ok(Self { account, ask, rules, now, day })
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: the same in every build and on every machine, which the standard library's hashes are
/// not.
fn fnv(hash: &mut u64, bytes: &[u8]) {
    for byte in bytes {
        *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
}
