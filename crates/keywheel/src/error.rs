//! Everything a call can end with that is not an answer.

use chrono::{DateTime, Utc};
use keywheel_core::Cause;
use keywheel_pool::{Exhausted, PoolError, keys::KeysError};
use keywheel_provider::classify::Verdict;

use crate::Attempt;

/// Why a call brought no answer. Match on it: each variant asks for something else.
///
/// No variant's text, `Debug` included, holds a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No usable key was found, or a key's variable is at fault. Names every variable and file looked at.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The pool could not be built.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A setting is at fault (a base URL, say). Says which.
    #[error("{0}")]
    Setting(String),
    /// Every key is quarantined: waiting will not help, somebody has to act. The reasons say how.
    #[error("{exhausted}")]
    AllKeysDead {
        /// Key by key, why.
        exhausted: Box<Exhausted>,
        /// What this call tried before it knew.
        attempts: Vec<Attempt>,
    },
    /// Nothing can serve before the deadline; [`next_available_at`](Self::next_available_at) says when.
    #[error("{exhausted}")]
    Exhausted {
        /// The soonest moment, and bucket by bucket, why.
        exhausted: Box<Exhausted>,
        /// What this call tried before it knew.
        attempts: Vec<Attempt>,
    },
    /// The request itself is at fault: no other key would help. Holds the provider's reply as it came.
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
    /// The caller's deadline came while an attempt was under way. It may have been counted and charged.
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
    /// A reply with status 200 that is not what the API promises.
    #[error("the reply could not be read: {0}")]
    Unreadable(String),
}

impl Error {
    /// When something can serve again: the answer to "try again when?". `None` where time is no answer.
    #[must_use]
    pub fn next_available_at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Exhausted { exhausted, .. } => exhausted.soonest,
            _ => None,
        }
    }

    /// What the call tried before it gave up, oldest first.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        match self {
            Self::AllKeysDead { attempts, .. }
            | Self::Exhausted { attempts, .. }
            | Self::Rejected { attempts, .. }
            | Self::UpstreamDown { attempts, .. }
            | Self::DeadlineReached { attempts } => attempts,
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
