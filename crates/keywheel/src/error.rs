//! Everything a call can end with that is not an answer.

use chrono::{DateTime, Utc};
use keywheel_core::Cause;
use keywheel_pool::{Exhausted, ExhaustedKind, PoolError, keys::KeysError};
use keywheel_provider::classify::Verdict;

use crate::{Attempt, ConfigErrors, Skipped};

/// Why a call brought no answer. Match on it: each variant asks for something else.
///
/// Its text (`{error}`) is for people, and complete: a cause is not to be added. Its `Debug` is a dump for logs, which a
/// `main` that returns it prints; so a program prints the text itself, as in the [first example](crate).
///
/// No variant's text, `Debug` included, holds a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No usable key was found, or a key's variable is at fault. Names every variable and file looked at.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A configuration file is at fault. Lists every fault with its line.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The pool could not be built.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A setting is at fault: a base URL, a model's name. Says which. Nothing was sent.
    #[error("{0}")]
    Setting(String),
    /// The pool has no key that this call may use: none at all, or only paid ones that it does not allow.
    #[error("{exhausted}{}", Others(skipped, &exhausted.model))]
    NoKeys {
        /// What was asked for.
        exhausted: Box<Exhausted>,
        /// What this call tried before it knew.
        attempts: Vec<Attempt>,
        /// With a fallback chain: each of its models, and why it did not answer.
        skipped: Vec<Skipped>,
    },
    /// Every key is quarantined: waiting will not help, somebody has to act. The reasons say how.
    #[error("{exhausted}{}", Others(skipped, &exhausted.model))]
    AllKeysDead {
        /// Key by key, why.
        exhausted: Box<Exhausted>,
        /// What this call tried before it knew.
        attempts: Vec<Attempt>,
        /// With a fallback chain: each of its models, and why it did not answer.
        skipped: Vec<Skipped>,
    },
    /// Nothing can serve before the deadline; [`next_available_at`](Self::next_available_at) says when. `None` there
    /// means that waiting will not help: none of the projects has a free quota for the model, say.
    #[error("{exhausted}{}", Others(skipped, &exhausted.model))]
    Exhausted {
        /// The soonest moment, and bucket by bucket, why.
        exhausted: Box<Exhausted>,
        /// What this call tried before it knew.
        attempts: Vec<Attempt>,
        /// With a fallback chain: each of its models, and why it did not answer.
        skipped: Vec<Skipped>,
    },
    /// A limit of the ledger does not let it through: what the call may cost, at most, does not fit. Nothing was sent
    /// after that was known. [`next_available_at`](Self::next_available_at) says when the limit begins anew.
    #[cfg(feature = "ledger")]
    #[error("{denied}{}", Others(skipped, ""))]
    OverBudget {
        /// Which limit, how full it is, and how much was asked for.
        denied: Box<keywheel_ledger::Denied>,
        /// What this call tried before.
        attempts: Vec<Attempt>,
        /// With a fallback chain: each of its models that did not answer, and why.
        skipped: Vec<Skipped>,
    },
    /// The ledger cannot say whether a call fits into the budget, so nothing was sent: the account is unknown, or the
    /// ledger cannot be read or written.
    #[cfg(feature = "ledger")]
    #[error("the ledger does not let anything be sent: {source}")]
    Ledger {
        /// What is wrong.
        source: keywheel_ledger::LedgerError,
        /// What this call tried before.
        attempts: Vec<Attempt>,
    },
    /// The request itself is at fault: no other key would help. Holds the provider's reply as it came.
    ///
    /// Also when three quota projects in a row gave it the same answer that names no quota, or that makes them look
    /// dead while a free check finds them in order: they stay in use.
    #[error("{rejected}")]
    Rejected {
        /// The reply.
        rejected: Box<Rejected>,
        /// What this call tried.
        attempts: Vec<Attempt>,
        /// The models of a fallback chain that did not answer, and why.
        skipped: Vec<Skipped>,
    },
    /// The request is larger than the model can read, or than any key may ask in a minute, and surely so: our
    /// estimate leans upwards, and five eighths of it are beyond the limit. Nothing was sent.
    #[error(
        "the request is too large: about {estimated} tokens, and the limit is {limit}{}",
        Others(skipped, "")
    )]
    TooLarge {
        /// The estimated size, in tokens.
        estimated: u64,
        /// What the model can read, or a minute's tokens.
        limit: u64,
        /// With a fallback chain: each of its models, and why it did not answer.
        skipped: Vec<Skipped>,
    },
    /// The provider, or the way to it, failed again and again. No key is at fault.
    ///
    /// Retries may have been left: they are made only while few calls fail ([`RetryConfig`](crate::RetryConfig)), and
    /// a model that fails again and again is left alone for a while. The reason says so.
    #[error("the provider did not answer: {reason}{}", Others(skipped, ""))]
    UpstreamDown {
        /// What the last attempt met.
        reason: String,
        /// Before this moment nothing is sent to the model. `None`: it may be tried now.
        next_attempt_at: Option<DateTime<Utc>>,
        /// What this call tried.
        attempts: Vec<Attempt>,
        /// With a fallback chain: each of its models, and why it did not answer.
        skipped: Vec<Skipped>,
    },
    /// The caller's deadline came while an attempt was under way or a stream was not at its end, which may have
    /// been counted and charged; or just as a key came free, and nothing was sent.
    #[error("the deadline came before the answer")]
    DeadlineReached {
        /// What this call tried.
        attempts: Vec<Attempt>,
    },
    /// A stream broke after its first part had been handed out, so nobody else could take over.
    #[error("the stream broke: {reason}")]
    StreamBroken {
        /// What happened.
        reason: String,
        /// What the provider said, where it said something.
        verdict: Option<Box<Verdict>>,
    },
    /// The request names files or caches of several quota projects, which no key can use together. Nothing was
    /// sent. Upload them again, [beside](crate::files::Upload::beside) each other.
    #[error("no key can use these together: {}", .owners.iter().map(|(name, owner)| format!("{name} of {owner}")).collect::<Vec<_>>().join(", "))]
    MixedOwners {
        /// One file or cache of each quota project, by its name, and the project.
        owners: Vec<(String, String)>,
    },
    /// An uploaded file that can never be used: the provider could not read it.
    #[error("the provider cannot use {name}: {reason}")]
    FileFailed {
        /// The file.
        name: String,
        /// What the provider says of it, as JSON.
        reason: String,
    },
    /// The answer is not of the form that was asked for.
    #[error("{reason}")]
    WrongShape {
        /// What is the matter: the limit of output tokens, a blocked prompt, JSON of another form.
        reason: String,
        /// What the model said.
        text: String,
        /// Why its answer ended.
        finish_reason: Option<keywheel_provider::api::FinishReason>,
        /// What this call tried.
        attempts: Vec<Attempt>,
    },
    /// Only some of the texts of a call have their vectors. Go on from `done` with
    /// [`Embed::resume`](crate::embed::Embed::resume) when what stands in the way is gone.
    #[error("{done}: {source}")]
    Incomplete {
        /// The vectors that are there.
        done: Box<crate::embed::Partial>,
        /// What stood in the way of the others. Tells when to go on, where time is the answer.
        source: Box<Self>,
    },
    /// A reply that claims success, in a form that this version does not know. It was counted and is not retried:
    /// it would come again.
    #[error("{reason}")]
    Unreadable {
        /// What could not be read, and where.
        reason: String,
        /// What this call tried.
        attempts: Vec<Attempt>,
    },
}

impl Error {
    /// When something can serve again, whichever model: the answer to "try again when?". `None` where time is no
    /// answer, and where it may be tried at once.
    #[must_use]
    pub fn next_available_at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::UpstreamDown { next_attempt_at, .. } => *next_attempt_at,
            #[cfg(feature = "ledger")]
            Self::OverBudget { denied, .. } => denied.retry_at,
            Self::Incomplete { source, .. } => source.next_available_at(),
            _ => self.exhausted().and_then(|exhausted| exhausted.soonest),
        }
    }

    /// The models of a [fallback chain](crate::GeminiBuilder::fallback) that did not answer, and why. Empty without
    /// a chain.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        match self {
            Self::NoKeys { skipped, .. }
            | Self::AllKeysDead { skipped, .. }
            | Self::Exhausted { skipped, .. }
            | Self::Rejected { skipped, .. }
            | Self::TooLarge { skipped, .. }
            | Self::UpstreamDown { skipped, .. } => skipped,
            #[cfg(feature = "ledger")]
            Self::OverBudget { skipped, .. } => skipped,
            Self::Incomplete { source, .. } => source.skipped(),
            _ => &[],
        }
    }

    /// A name of few for metrics and traces.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Keys(_) => "keys",
            Self::Config(_) => "config",
            Self::Pool(_) => "pool",
            Self::Setting(_) => "setting",
            Self::NoKeys { .. } => "no_keys",
            Self::AllKeysDead { .. } => "all_keys_dead",
            Self::Exhausted { .. } => "exhausted",
            #[cfg(feature = "ledger")]
            Self::OverBudget { .. } => "over_budget",
            #[cfg(feature = "ledger")]
            Self::Ledger { .. } => "ledger",
            Self::Rejected { rejected, .. } => rejected.cause.as_str(),
            Self::TooLarge { .. } => "too_large",
            Self::UpstreamDown { .. } => "upstream_down",
            Self::DeadlineReached { .. } => "deadline_reached",
            Self::StreamBroken { .. } => "stream_broken",
            Self::Incomplete { source, .. } => source.kind(),
            Self::Unreadable { .. } => "unreadable",
            Self::MixedOwners { .. } => "mixed_owners",
            Self::FileFailed { .. } => "file_failed",
            Self::WrongShape { .. } => "wrong_shape",
        }
    }

    /// Why no key can serve, bucket by bucket; `None` for errors that have other reasons.
    #[must_use]
    pub fn exhausted(&self) -> Option<&Exhausted> {
        match self {
            Self::NoKeys { exhausted, .. }
            | Self::AllKeysDead { exhausted, .. }
            | Self::Exhausted { exhausted, .. } => Some(exhausted),
            Self::Incomplete { source, .. } => source.exhausted(),
            _ => None,
        }
    }

    /// The parts of an error for want of keys or of budget; any other comes back.
    pub(crate) fn into_exhausted(self) -> Result<OutOfKeys, Self> {
        match self {
            Self::NoKeys { exhausted, attempts, skipped }
            | Self::AllKeysDead { exhausted, attempts, skipped }
            | Self::Exhausted { exhausted, attempts, skipped } => Ok(OutOfKeys {
                exhausted,
                attempts,
                skipped,
                #[cfg(feature = "ledger")]
                denied: None,
            }),
            #[cfg(feature = "ledger")]
            Self::OverBudget { denied, attempts, skipped } => Ok(OutOfKeys {
                exhausted: Box::new(crate::ledger::as_exhausted(&denied)),
                attempts,
                skipped,
                denied: Some(denied),
            }),
            other => Err(other),
        }
    }

    /// What the call tried before it gave up, oldest first.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        match self {
            Self::NoKeys { attempts, .. }
            | Self::AllKeysDead { attempts, .. }
            | Self::Exhausted { attempts, .. }
            | Self::Rejected { attempts, .. }
            | Self::UpstreamDown { attempts, .. }
            | Self::Unreadable { attempts, .. }
            | Self::WrongShape { attempts, .. }
            | Self::DeadlineReached { attempts } => attempts,
            #[cfg(feature = "ledger")]
            Self::OverBudget { attempts, .. } | Self::Ledger { attempts, .. } => attempts,
            Self::Incomplete { done, .. } => done.attempts(),
            _ => &[],
        }
    }

    /// The same error of a call that tried all of `tried`, of which this one's are a part.
    pub(crate) fn with_attempts(mut self, tried: Vec<Attempt>) -> Self {
        match &mut self {
            Self::NoKeys { attempts, .. }
            | Self::AllKeysDead { attempts, .. }
            | Self::Exhausted { attempts, .. }
            | Self::Rejected { attempts, .. }
            | Self::UpstreamDown { attempts, .. }
            | Self::Unreadable { attempts, .. }
            | Self::WrongShape { attempts, .. }
            | Self::DeadlineReached { attempts } => *attempts = tried,
            #[cfg(feature = "ledger")]
            Self::OverBudget { attempts, .. } | Self::Ledger { attempts, .. } => *attempts = tried,
            _ => {}
        }
        self
    }
}

/// The parts of an error for want of keys or of budget.
#[derive(Debug, Clone)]
pub(crate) struct OutOfKeys {
    pub(crate) exhausted: Box<Exhausted>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) skipped: Vec<Skipped>,
    /// It was the budget.
    #[cfg(feature = "ledger")]
    pub(crate) denied: Option<Box<keywheel_ledger::Denied>>,
}

impl From<OutOfKeys> for Error {
    fn from(out: OutOfKeys) -> Self {
        let OutOfKeys { exhausted, attempts, skipped, .. } = out;
        #[cfg(feature = "ledger")]
        if let Some(denied) = out.denied {
            return Self::OverBudget { denied, attempts, skipped };
        }
        match exhausted.kind {
            ExhaustedKind::NoKeys => Self::NoKeys { exhausted, attempts, skipped },
            ExhaustedKind::AllDead => Self::AllKeysDead { exhausted, attempts, skipped },
            ExhaustedKind::Cooling | ExhaustedKind::Busy => {
                Self::Exhausted { exhausted, attempts, skipped }
            }
        }
    }
}

/// The models of a chain besides the one that the error tells of.
struct Others<'a>(&'a [Skipped], &'a str);

impl std::fmt::Display for Others<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let others = self.0.iter().filter(|other| other.model != self.1);
        for (i, other) in others.enumerate() {
            write!(f, "{}{other}", if i == 0 { "; passed over: " } else { ", " })?;
        }
        Ok(())
    }
}

/// A reply that says the request is at fault.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// The HTTP status.
    pub status: u16,
    /// Why, in the classifier's words.
    pub cause: Cause,
    /// The whole verdict, evidence included.
    pub verdict: Verdict,
    /// The headers as they came, but for those that repeat a key, and for the length and the encoding that the body
    /// had on the wire.
    pub headers: http::HeaderMap,
    /// The body as it came, but for keys and the encoding.
    pub body: String,
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the provider rejected the request ({}, HTTP {})", self.cause, self.status)?;
        if !self.verdict.message.is_empty() {
            write!(f, ": {}", self.verdict.message)?;
        }
        Ok(())
    }
}
