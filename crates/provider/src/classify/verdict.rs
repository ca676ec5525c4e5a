//! The words a reply is judged with: what came in, and what it means.

use std::{fmt, str::FromStr};

use http::HeaderMap;
use keywheel_core::{Cause, Effect, LimitSeen, Scope};

/// Whose errors are being read.
///
/// It settles only what a body leaves open: both dialects know every shape, since gateways forward
/// each other's errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Google's Gemini Developer API, its native and its OpenAI-compatible routes.
    #[default]
    Gemini,
    /// Any other provider with an OpenAI-like API: OpenAI, Groq, OpenRouter, Anthropic, Mistral, …
    OpenAi,
}

impl Dialect {
    /// The name used in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gemini => "gemini",
            Self::OpenAi => "openai",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text names no provider that is known here. `openai` does for every compatible one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no provider is called {0:?}; \"openai\" does for every OpenAI-compatible one")]
pub struct UnknownDialect(pub String);

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Self, UnknownDialect> {
        match text.trim().to_ascii_lowercase().as_str() {
            "gemini" | "google" => Ok(Self::Gemini),
            "openai" | "openai-compat" | "openai-compatible" | "groq" | "openrouter"
            | "anthropic" | "mistral" | "cerebras" | "azure" | "moonshot" | "kimi" | "deepseek"
            | "together" | "fireworks" | "xai" | "perplexity" | "ollama" | "vllm" => {
                Ok(Self::OpenAi)
            }
            _ => Err(UnknownDialect(text.into())),
        }
    }
}

/// A reply as it came, whole or cut short. The body has no content encoding any more.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// The HTTP status; 0 when it is not known.
    pub status: u16,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body's bytes, of any size and any kind.
    pub body: &'a [u8],
}

/// What was asked for, as far as the caller knows: it settles what a body leaves open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'a> {
    /// The model in the request's path.
    pub model: Option<&'a str>,
    /// How many tokens the request takes from a token quota.
    pub tokens: Option<u64>,
    /// True when the request used a tool with a quota of its own (Google Search, URL context, …).
    pub tools: bool,
}

/// What a reply means.
///
/// ```
/// use http::HeaderMap;
/// use keywheel_core::{Cause, Scope};
/// use keywheel_provider::{Asked, Dialect, Reply, Retry, classify};
///
/// let body = br#"{"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}"#;
/// let reply = Reply { status: 503, headers: &HeaderMap::new(), body };
/// let now = "2026-11-30T07:12:03Z".parse().unwrap();
/// let verdict = classify(Dialect::Gemini, &reply, &Asked::default(), now);
/// assert_eq!(verdict.cause(), Some(Cause::Overloaded));
/// assert_eq!(verdict.scope(), Some(Scope::Model), "no key is to blame");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// The headline.
    pub kind: Kind,
    /// Every consequence. The headline's comes first; empty when the request was served.
    pub effects: Vec<Effect>,
    /// The limits that the reply named beyond doubt.
    pub limits: Vec<LimitSeen>,
    /// True when this key is of no use for any request until somebody acts.
    pub key_is_dead: bool,
    /// False when the reply has neither a status nor words that any rule knows: then it may be no error at all, and the
    /// rest is what is said of a failure that nobody can tell more of.
    pub recognised: bool,
    /// What may be done next.
    pub retry: Retry,
    /// True when the reply named the quota or its window, rather than leaving it to be guessed.
    pub named_quota: bool,
    /// `projects/<number>`, where the reply tells whose key it was.
    pub project_number: Option<String>,
    /// True when a wait that the server stated was out of bounds and was cut.
    pub clamped: bool,
    /// What the server said: without anything that looks like a key, at most 500 characters.
    pub message: String,
    /// What the owner of the key can do about it.
    pub fix: Option<&'static str>,
    /// Which rule decided, and the tells it went by.
    pub evidence: Vec<String>,
}

impl Verdict {
    /// Whom the headline concerns; `None` when the request was served.
    #[must_use]
    pub fn scope(&self) -> Option<Scope> {
        self.effects.first().map(|effect| effect.scope)
    }

    /// Why the request was refused; `None` when it was served.
    #[must_use]
    pub const fn cause(&self) -> Option<Cause> {
        match self.kind {
            Kind::Served => None,
            Kind::Refused(cause) => Some(cause),
        }
    }
}

/// The headline of a [`Verdict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request was served.
    Served,
    /// It was not, for this cause.
    Refused(Cause),
}

impl Kind {
    /// `served`, or the cause's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Refused(cause) => cause.as_str(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What may be done with the request next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Hand the reply back: another attempt would end the same.
    Never,
    /// Another key may serve it at once.
    OtherKey,
    /// No key serves this model: the next model of the fallback chain may.
    OtherModel,
    /// The same again after a pause with jitter.
    BackOff,
    /// Every key and model suffers the same: wait.
    Later,
}

impl Retry {
    /// The name used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OtherKey => "other_key",
            Self::OtherModel => "other_model",
            Self::BackOff => "back_off",
            Self::Later => "later",
        }
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
