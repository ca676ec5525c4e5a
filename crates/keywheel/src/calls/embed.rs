//! Texts as vectors, any number of them at once.
//!
//! Google counts every text as a request of its own
//! (<https://github.com/garrytan/gbrain/issues/1922>), so a call of many texts may well meet a limit half-way. What
//! is there by then is not lost: the call waits within its deadline and goes on, and when it cannot, its error holds
//! what is done ([`Partial`]), and [`Embed::resume`] asks for the rest alone.

mod batch;
mod batches;
mod progress;
mod run;
mod texts;

use std::{future::IntoFuture, sync::Arc};

use futures_util::future::BoxFuture;
use keywheel_core::Usage;

pub use keywheel_provider::api::TaskType;

pub use self::{progress::Partial, texts::Texts};
use crate::{
    Attempt, Error, Gemini,
    gemini::{CallOptions, bare, call_options},
};

impl Gemini {
    /// The vectors of one text or of many, in their order.
    ///
    /// Any number of texts: they are split into requests of at most 100, and of no more than the limits that are
    /// known allow; four requests are under way at once at most. Each text counts as one request of the quota. The
    /// same text twice is asked for once. There is no fallback to another model: vectors of two models cannot be
    /// compared.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::json(200, r#"{"embeddings":[{"values":[0.1,0.2]},{"values":[0.3,0.4]}]}"#));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// use keywheel::embed::TaskType;
    ///
    /// let answer = gemini
    ///     .embed("gemini-embedding-001", ["the first text", "the second"])
    ///     .task(TaskType::RetrievalDocument)
    ///     .dimensions(768)
    ///     .await?;
    /// assert_eq!(answer.vectors.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Incomplete`] holds the vectors that are there when the rest cannot be had; before the first is there,
    /// the error that stands in its way. [`Error::Setting`] for an empty text: nothing was sent.
    ///
    /// # Cancel safety
    /// Dropping the future ends the requests that are under way; they count against the quota. Vectors that were
    /// there are lost, but for those in an embedding cache.
    pub fn embed(&self, model: impl Into<Arc<str>>, texts: impl Into<Texts>) -> Embed {
        Embed {
            gemini: self.clone(),
            model: bare(model.into()),
            texts: texts.into(),
            settings: Settings::default(),
            resume: None,
            options: self.options(),
        }
    }
}

/// A call for vectors that has not begun: see [`Gemini::embed`].
#[derive(Debug)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Embed {
    gemini: Gemini,
    model: Arc<str>,
    texts: Texts,
    settings: Settings,
    resume: Option<Partial>,
    options: CallOptions,
}

call_options!(Embed);

impl Embed {
    /// What the vectors are for. Defaults to the model's own choice. `gemini-embedding-2` reads it from the text
    /// instead (<https://ai.google.dev/gemini-api/docs/embeddings>).
    pub fn task(mut self, task: TaskType) -> Self {
        self.settings.task = Some(task);
        self
    }

    /// How many numbers each vector has. Defaults to the model's most, 3,072 for Gemini's.
    pub const fn dimensions(mut self, dimensions: u32) -> Self {
        self.settings.dimensions = Some(dimensions);
        self
    }

    /// The title of the document that the texts are from, for [`TaskType::RetrievalDocument`].
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.settings.title = Some(title.into());
        self
    }

    /// Goes on from what an earlier call had done when it failed: only the other texts are asked for.
    ///
    /// ```no_run
    /// # async fn run(gemini: keywheel::Gemini, texts: Vec<String>) -> Result<(), keywheel::Error> {
    /// use keywheel::{Ask, Error};
    ///
    /// let answer = match gemini.embed("gemini-embedding-001", &texts).await {
    ///     Err(Error::Incomplete { done, .. }) => {
    ///         gemini.pool().available(&Ask::new("gemini-embedding-001")).await.ok();
    ///         gemini.embed("gemini-embedding-001", &texts).resume(*done).await?
    ///     }
    ///     other => other?,
    /// };
    /// assert_eq!(answer.vectors.len(), texts.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The call fails with [`Error::Setting`] if the vectors are of another model, task, title or dimension.
    pub fn resume(mut self, done: Partial) -> Self {
        self.resume = Some(done);
        self
    }

    /// The vector of the one text, for calls of one text.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::embeddings([[0.6, 0.8]]));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script.clone()))
    /// #     .build()
    /// #     .await?;
    /// use keywheel::embed::TaskType;
    ///
    /// let vector = gemini
    ///     .embed("gemini-embedding-001", "The harbour was quiet when it came in.")
    ///     .task(TaskType::RetrievalDocument)
    ///     .title("The harbour")
    ///     .one()
    ///     .await?;
    /// assert_eq!(vector, [0.6, 0.8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Gemini::embed`]; [`Error::Setting`] if there is not exactly one text.
    ///
    /// # Cancel safety
    /// As [`Gemini::embed`].
    pub async fn one(self) -> Result<Vec<f32>, Error> {
        if self.texts.as_slice().len() != 1 {
            return Err(Error::Setting("one() is for exactly one text".to_owned()));
        }
        let mut vectors = self.await?.vectors;
        Ok(vectors.pop().expect("there is a vector for each text"))
    }
}

impl IntoFuture for Embed {
    type Output = Result<Embeddings, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(run::embed(self))
    }
}

/// The vectors of all texts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Embeddings {
    /// A vector for each text, in their order.
    pub vectors: Vec<Vec<f32>>,
    /// The model that was asked.
    pub model: String,
    /// What they cost, where that was told. Gemini tells it for some models only.
    pub usage: Usage,
    /// How many requests of the quota the answers took: one for each text that was asked for.
    pub requests: u64,
    /// How many texts were not asked for because they were known: from an embedding cache or an earlier call.
    pub cache_hits: u64,
    /// Every attempt, in the order in which they ended.
    pub attempts: Vec<Attempt>,
}

/// What makes two vectors of one text and model different.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Settings {
    task: Option<TaskType>,
    dimensions: Option<u32>,
    title: Option<String>,
}
