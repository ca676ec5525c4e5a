//! Why nothing can serve now, and why a pool cannot be built.

use std::fmt;

use chrono::{DateTime, Utc};
use keywheel_core::{Cause, Fingerprint};
use serde::Serialize;

/// Nothing can serve this ask now: not an error of the pool but an answer, with the moment and the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[must_use]
pub struct Exhausted {
    /// The model that was asked for.
    pub model: String,
    /// What kind of "no" it is.
    pub kind: ExhaustedKind,
    /// The soonest moment at which this ask could be served; `None` when no moment can be named (no keys,
    /// all dead, no quota at all, or only calls in flight stand in the way).
    pub soonest: Option<DateTime<Utc>>,
    /// Why, quota project by quota project, soonest first; at most [`Exhausted::MAX_REASONS`].
    pub reasons: Vec<Reason>,
    /// How many more reasons there are.
    pub omitted: usize,
}

impl Exhausted {
    /// The longest list of reasons.
    pub const MAX_REASONS: usize = 64;
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ExhaustedKind::NoKeys => return write!(f, "no key can be used for {}", self.model),
            ExhaustedKind::AllDead => write!(f, "every key for {} is quarantined", self.model)?,
            ExhaustedKind::Cooling if self.soonest.is_none() => {
                write!(f, "no key can serve {}, and waiting will not help", self.model)?;
            }
            ExhaustedKind::Cooling => write!(f, "no key can serve {} now", self.model)?,
            ExhaustedKind::Busy => write!(f, "every key for {} is busy", self.model)?,
        }
        if let Some(soonest) = self.soonest {
            write!(
                f,
                "; next at {}",
                soonest.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
            )?;
        }
        for reason in self.reasons.iter().take(3) {
            write!(f, "; {reason}")?;
        }
        let more = self.omitted + self.reasons.len().saturating_sub(3);
        if more > 0 { write!(f, "; and {more} more") } else { Ok(()) }
    }
}

impl std::error::Error for Exhausted {}

/// No key that is loaded has the label or fingerprint that was named.
///
/// What was named is not repeated: people have been seen to name the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownKey {
    /// The labels of the first keys that are loaded, at most [`UnknownKey::MOST_LABELS`].
    pub labels: Vec<String>,
    /// How many are loaded.
    pub loaded: usize,
}

impl UnknownKey {
    /// The longest list of labels.
    pub const MOST_LABELS: usize = 8;

    pub(crate) const fn new(labels: Vec<String>, loaded: usize) -> Self {
        Self { labels, loaded }
    }
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no key has this label or fingerprint; there is ")?;
        if self.labels.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&self.labels.join(", "))?;
        match self.loaded.saturating_sub(self.labels.len()) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl std::error::Error for UnknownKey {}

/// What kind of "no" an [`Exhausted`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExhaustedKind {
    /// The pool has no key that this ask may use.
    NoKeys,
    /// All of them are quarantined: somebody has to act.
    AllDead,
    /// All of them wait: a cooldown, a full window, a spent day.
    Cooling,
    /// Only calls in flight, or callers who came first, stand in the way.
    Busy,
}

/// Why one quota project cannot serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The quota project.
    pub quota_project: String,
    /// Its keys, as their owner calls them.
    pub labels: Vec<String>,
    /// What the provider refused it for; `None`: our own counters or the cap on calls in flight.
    pub cause: Option<Cause>,
    /// When it can serve again, if that can be said.
    pub available_at: Option<DateTime<Utc>>,
    /// How that moment is known.
    pub source: Source,
    /// For a dead key, what its owner can do and what the reply said, scrubbed; empty otherwise.
    pub detail: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.labels.as_slice() {
            [] => f.write_str(&self.quota_project)?,
            [label] => f.write_str(label)?,
            [label, rest @ ..] => write!(f, "{label} and {} more", rest.len())?,
        }
        match self.cause {
            Some(cause) => write!(f, ": {cause}")?,
            None => f.write_str(": full by our count")?,
        }
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        match self.available_at {
            Some(at) => {
                write!(f, " until {}", at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
            }
            None => Ok(()),
        }
    }
}

/// How a moment is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The provider said so.
    Stated,
    /// It follows from a window's reset.
    Derived,
    /// Nobody knows: a guess that grows when it proves wrong.
    Guessed,
    /// It follows from our own counters.
    Counted,
}

impl Source {
    /// The name used in JSON and in the state file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stated => "stated",
            Self::Derived => "derived",
            Self::Guessed => "guessed",
            Self::Counted => "counted",
        }
    }
}

/// Why a pool cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A limit of zero was set: such a model can never be called.
    #[error("the {dimension} limit for {pattern:?} is zero: leave the model out instead")]
    ZeroLimit {
        /// The pattern it was set for.
        pattern: String,
        /// Which limit.
        dimension: keywheel_core::Dimension,
    },
    /// Two specs of one key contradict each other.
    #[error("key {fingerprint} ({label}) is given twice, in different quota projects or tiers")]
    Contradiction {
        /// The key.
        fingerprint: Fingerprint,
        /// Its label.
        label: String,
    },
}
