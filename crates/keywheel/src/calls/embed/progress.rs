//! What a call for vectors has so far.

use std::{collections::HashMap, fmt, sync::Arc};

use keywheel_core::Usage;
use keywheel_provider::api::BatchEmbedResponse;

use super::{Settings, batch::Batch};
use crate::{Attempt, Error, embed_cache::Vector};

/// The vectors that were there when a call failed: what [`Embed::resume`](super::Embed::resume) goes on from.
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.otherwise(|request| match request.json()["requests"].as_array().map(Vec::len) {
/// #     Some(100) => Scripted::embeddings(vec![[0.6, 0.8]; 100]),
/// #     _ => Scripted::day_spent(100),
/// # });
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script.clone()))
/// #     .build()
/// #     .await?;
/// use keywheel::Error;
///
/// // 101 texts, and a day of 100 requests.
/// let texts: Vec<String> = (0..101).map(|number| format!("text {number}")).collect();
/// let failed = gemini.embed("gemini-embedding-001", &texts).await.unwrap_err();
/// let Error::Incomplete { done, .. } = failed else { unreachable!() };
/// assert_eq!((done.len(), done.total(), done.requests()), (100, 101, 100));
/// assert_eq!(done.vector("text 0"), Some([0.6, 0.8].as_slice()));
/// assert_eq!(done.vector("text 100"), None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Partial {
    pub(super) model: Arc<str>,
    pub(super) settings: Settings,
    pub(super) vectors: HashMap<Arc<str>, Vector>,
    /// How many different texts the call is about.
    pub(super) total: usize,
    pub(super) usage: Usage,
    pub(super) requests: u64,
    /// How many texts came with the answers.
    pub(super) fetched: u64,
    pub(super) cache_hits: u64,
    pub(super) attempts: Vec<Attempt>,
}

impl Partial {
    /// How many different texts have their vector.
    #[must_use]
    pub fn len(&self) -> usize {
        self.vectors.len()
    }

    /// True if no text has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.vectors.is_empty()
    }

    /// How many different texts the call was about.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.total
    }

    /// The vector of `text`, if it is there.
    #[must_use]
    pub fn vector(&self, text: &str) -> Option<&[f32]> {
        self.vectors.get(text).map(|vector| &**vector)
    }

    /// How many requests of the quota the vectors took.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// What the vectors cost, where that was told.
    #[must_use]
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// Every attempt of the call that failed, in the order in which they ended.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// What there is to begin with: what an earlier call for the same had, or nothing.
    pub(super) fn begin(
        model: &Arc<str>,
        settings: Settings,
        earlier: Option<Self>,
    ) -> Result<Self, Error> {
        let nothing = Self {
            model: Arc::clone(model),
            settings,
            vectors: HashMap::new(),
            total: 0,
            usage: Usage::default(),
            requests: 0,
            fetched: 0,
            cache_hits: 0,
            attempts: Vec::new(),
        };
        let Some(earlier) = earlier else { return Ok(nothing) };
        if earlier.model != nothing.model || earlier.settings != nothing.settings {
            let fault = "the vectors to go on from are of another model, task, title or dimension";
            return Err(Error::Setting(fault.to_owned()));
        }
        // What this call spends is what it tells of.
        Ok(Self { vectors: earlier.vectors, ..nothing })
    }

    /// Takes the answer to a request.
    pub(super) fn take(&mut self, batch: &Batch, answer: BatchEmbedResponse) {
        if let Some(usage) = answer.usage() {
            self.usage.input += usage.input;
            self.usage.cached += usage.cached;
            self.usage.total += usage.charged();
        }
        self.requests += u64::from(batch.requests);
        self.fetched += batch.texts.len() as u64;
        let vectors = answer.embeddings.into_iter().map(|embedding| embedding.values.into());
        self.vectors.extend(batch.texts.iter().cloned().zip(vectors));
    }

    /// Takes a vector that was known.
    pub(super) fn take_known(&mut self, text: Arc<str>, vector: Vector) {
        self.cache_hits += 1;
        self.vectors.insert(text, vector);
    }
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} texts have their vectors", self.len(), self.total)
    }
}

impl fmt::Debug for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partial")
            .field("model", &self.model)
            .field("done", &self.len())
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}
