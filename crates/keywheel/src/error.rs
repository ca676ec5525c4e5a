//! Everything a call can end with that is not an answer.

use chrono::{DateTime, Utc};
use keywheel_core::Cause;
use keywheel_pool::{Exhausted, PoolError, keys::KeysError};
use keywheel_provider::classify::Verdict;

use crate::{Attempt, ConfigErrors};

/// Why a call brought no answer. Match on it: each variant asks for something else.
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
    #[error("{exhausted}")]
    NoKeys {
        /// What was asked for.
        exhausted: Box<Exhausted>,
        /// What this call tried before it knew.
        attempts: Vec<Attempt>,
    },
    /// Every key is quarantined: waiting will not help, somebody has to act. The reasons say how.
    #[error("{exhausted}")]
    AllKeysDead {
        /// Key by key, why.
        exhausted: Box<Exhausted>,
        /// What this call tried before it knew.
        attempts: Vec<Attempt>,
    },
    /// Nothing can serve before the deadline; [`next_available_at`](Self::next_available_at) says when. `None` there
    /// means that waiting will not help: none of the projects has a free quota for the model, say.
    #[error("{exhausted}")]
    Exhausted {
        /// The soonest moment, and bucket by bucket, why.
        exhausted: Box<Exhausted>,
        /// What this call tried before it knew.
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
    },
    /// The provider, or the way to it, failed again and again. No key is at fault.
    #[error("the provider did not answer: {reason}")]
    UpstreamDown {
        /// What the last attempt met.
        reason: String,
        /// What this call tried.
        attempts: Vec<Attempt>,
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
    /// When something can serve again: the answer to "try again when?". `None` where time is no answer.
    #[must_use]
    pub fn next_available_at(&self) -> Option<DateTime<Utc>> {
        self.exhausted().and_then(|exhausted| exhausted.soonest)
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

    /// The parts of an error for want of keys; any other comes back.
    pub(crate) fn into_exhausted(self) -> Result<(Box<Exhausted>, Vec<Attempt>), Self> {
        match self {
            Self::NoKeys { exhausted, attempts }
            | Self::AllKeysDead { exhausted, attempts }
            | Self::Exhausted { exhausted, attempts } => Ok((exhausted, attempts)),
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
            | Self::DeadlineReached { attempts } => attempts,
            Self::Incomplete { source, .. } => source.attempts(),
            _ => &[],
        }
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
    /// The body as it came, but for keys.
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
