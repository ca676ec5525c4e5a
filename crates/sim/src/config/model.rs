//! What a model is like.

use std::time::Duration;

use super::{Faults, Limits};

/// One model.
///
/// ```
/// use keywheel_sim::{Limits, ModelConfig, SimConfig, Signatures};
///
/// let small = ModelConfig::free(Limits::new().rpm(15).tpm(250_000).rpd(500).tpd(5_000_000))
///     .with_paid(Limits::new().rpm(1_000))
///     .with_internal_name("gemini-small") // what refusals call it
///     .with_continuation_after(8_192)
///     .with_signatures(Signatures::Required);
/// let large = ModelConfig::paid_only();
/// assert_eq!(large.free, Limits::nothing());
/// let vectors = ModelConfig::embedding(Limits::new().rpm(100).rpd(1_000));
/// assert_eq!((vectors.embeds, vectors.dimensions), (true, 768));
///
/// let config = SimConfig::new().with_model("gemini-x-lite", small).with_model("gemini-x", large);
/// assert!(config.with_model("gemini-embedding-x", vectors).check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The name that refusals use, often another than the one asked for. Default the same.
    pub internal_name: Option<String>,
    /// True for embedding models. Default false.
    pub embeds: bool,
    /// What free projects may spend on it.
    pub free: Limits,
    /// What paid projects may spend on it.
    pub paid: Limits,
    /// The longest prompt, in tokens. Default 1,048,576.
    pub input_token_limit: u64,
    /// The longest answer, in tokens, thinking included. Default 65,536.
    pub output_token_limit: u64,
    /// The length of the vectors of an embedding model. Default 768.
    pub dimensions: u64,
    /// After how many output tokens an answer has to be continued by another request, with finish reason
    /// `CONTINUATION` and a `continuationToken`. Default never.
    pub continue_after: Option<u64>,
    /// Whether function calls are signed, and have to come back so. Default [`Signatures::ByName`].
    pub signatures: Signatures,
    /// What goes wrong with this model, in place of the world's rates. Default as the world's.
    pub faults: Option<Faults>,
    /// How long its answers take, in place of the world's latency. Default as the world's.
    pub latency: Option<(Duration, Duration)>,
}

impl ModelConfig {
    /// A model that answers with text; free projects get `free` of it, paid ones have no limits.
    #[must_use]
    pub const fn free(free: Limits) -> Self {
        Self {
            internal_name: None,
            embeds: false,
            free,
            paid: Limits::new(),
            input_token_limit: 1_048_576,
            output_token_limit: 65_536,
            dimensions: 768,
            continue_after: None,
            signatures: Signatures::ByName,
            faults: None,
            latency: None,
        }
    }

    /// A model that free projects get nothing of.
    #[must_use]
    pub const fn paid_only() -> Self {
        Self::free(Limits::nothing())
    }

    /// An embedding model.
    #[must_use]
    pub const fn embedding(free: Limits) -> Self {
        let mut model = Self::free(free);
        model.embeds = true;
        model.input_token_limit = 2_048;
        model
    }

    /// Sets what paid projects may spend on it.
    #[must_use]
    pub const fn with_paid(mut self, paid: Limits) -> Self {
        self.paid = paid;
        self
    }

    /// Sets the name that refusals use.
    #[must_use]
    pub fn with_internal_name(mut self, name: impl Into<String>) -> Self {
        self.internal_name = Some(name.into());
        self
    }

    /// Lets answers be continued by another request after `tokens` output tokens.
    #[must_use]
    pub const fn with_continuation_after(mut self, tokens: u64) -> Self {
        self.continue_after = Some(tokens);
        self
    }

    /// Sets whether function calls are signed, and have to come back so.
    #[must_use]
    pub const fn with_signatures(mut self, signatures: Signatures) -> Self {
        self.signatures = signatures;
        self
    }

    /// Gives it faults of its own: a model that fails always stands beside one that never does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keywheel_sim::{Faults, Limits, ModelConfig, SimConfig};
    ///
    /// let cut = Faults { cut: 1.0, ..Faults::default() };
    /// let slow = Duration::from_secs(5);
    /// let config = SimConfig::new()
    ///     .with_model("gemini-x", ModelConfig::free(Limits::new()))
    ///     .with_model("gemini-cut", ModelConfig::free(Limits::new()).with_faults(cut))
    ///     .with_model("gemini-slow", ModelConfig::free(Limits::new()).with_latency(slow, slow));
    /// assert!(config.check().is_ok());
    /// ```
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Sets how long its answers take: evenly drawn from `from` to `to`.
    #[must_use]
    pub const fn with_latency(mut self, from: Duration, to: Duration) -> Self {
        self.latency = Some((from, to));
        self
    }
}

/// Whether function calls carry a `thoughtSignature`
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signatures {
    /// [`Required`](Self::Required) for `gemini-3` and newer, else [`Never`](Self::Never).
    #[default]
    ByName,
    /// Calls are not signed.
    Never,
    /// Calls are signed; nobody looks whether they come back so.
    Given,
    /// Calls are signed, and 400 is the answer to one that comes back without, or with another signature.
    Required,
}

impl Signatures {
    pub(crate) fn are_given(self, model: &str) -> bool {
        self != Self::Never && (self != Self::ByName || is_gemini_3_or_newer(model))
    }

    pub(crate) fn are_required(self, model: &str) -> bool {
        self == Self::Required || (self == Self::ByName && is_gemini_3_or_newer(model))
    }
}

fn is_gemini_3_or_newer(model: &str) -> bool {
    let version = model.strip_prefix("gemini-").unwrap_or_default();
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    major.parse::<u32>().is_ok_and(|major| major >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_which_models_sign() {
        for (model, signs) in [
            ("gemini-3.5-flash-lite", true),
            ("gemini-4-argon", true),
            ("gemini-10-x", true),
            ("gemini-2.5-flash", false),
            ("gemini-flash-latest", false),
            ("gemma-4-31b", false),
        ] {
            assert_eq!(Signatures::ByName.are_required(model), signs, "{model}");
            assert!(Signatures::Required.are_given(model));
            assert!(!Signatures::Given.are_required(model));
        }
    }
}
