//! Texts as vectors, any number of them at once.
//!
//! Google counts every text as a request of its own
//! (<https://github.com/garrytan/gbrain/issues/1922>), so a call of many texts may well meet a limit half-way. What
//! is there by then is not lost: the call waits within its deadline and goes on, and when it cannot, its error holds
//! what is done ([`Partial`]), and [`Embed::resume`] asks for the rest alone.

mod batches;
mod texts;

use std::{collections::HashMap, fmt, future::IntoFuture, sync::Arc};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use keywheel_core::{Cause, Usage, estimate};
use keywheel_pool::Ask;
use keywheel_provider::{
    WireResponse,
    api::{BatchEmbedResponse, EmbedRequest},
    upstream::{Call, CallError, Upstream},
};

pub use keywheel_provider::api::TaskType;

use self::batches::{Batches, Most};
pub use self::texts::Texts;
use super::{end_ms, within};
use crate::{
    Attempt, Error, Gemini,
    attempt::{
        Done, perform,
        work::{Brought, Sight, Work},
    },
    gemini::{CallOptions, Inner, bare, call_options},
};

/// So many requests of one call are under way at once, at most.
const MOST_IN_FLIGHT: usize = 4;

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
    /// use keywheel::Error;
    ///
    /// let answer = match gemini.embed("gemini-embedding-001", &texts).await {
    ///     Err(Error::Incomplete { done, .. }) => {
    ///         gemini.until_available("gemini-embedding-001").await.ok();
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
        Box::pin(embed(self))
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

/// The vectors that were there when a call failed: what [`Embed::resume`] goes on from.
#[derive(Clone, PartialEq)]
pub struct Partial {
    model: Arc<str>,
    settings: Settings,
    vectors: HashMap<Arc<str>, Vec<f32>>,
    total: usize,
    usage: Usage,
    requests: u64,
    cache_hits: u64,
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
        self.vectors.get(text).map(Vec::as_slice)
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

/// What makes two vectors of one text and model different.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Settings {
    task: Option<TaskType>,
    dimensions: Option<u32>,
    title: Option<String>,
}

async fn embed(call: Embed) -> Result<Embeddings, Error> {
    let Embed { gemini, model, texts, settings, resume, options } = call;
    let inner = Arc::clone(&gemini.inner);
    if let Some(empty) = texts.as_slice().iter().position(|text| text.trim().is_empty()) {
        // Google answers it with a 429 that names no quota.
        return Err(Error::Setting(format!("text {empty} is empty: it has no vector")));
    }
    let mut done = begin(&model, settings, resume)?;
    let batches = Batches::new(texts.as_slice(), |text| done.vectors.contains_key(text));
    done.total = batches.different();
    done.cache_hits += (batches.different() - batches.left()) as u64;
    let (attempts, stopped) = ask(&inner, &mut done, batches, &options).await;
    if let Some(error) = stopped {
        if done.requests == 0 && done.is_empty() {
            return Err(error);
        }
        return Err(Error::Incomplete { done: Box::new(done), source: Box::new(error) });
    }
    let vector = |text: &Arc<str>| done.vectors.get(text).cloned().expect("nothing is left to ask");
    Ok(Embeddings {
        vectors: texts.as_slice().iter().map(vector).collect(),
        model: model.as_ref().to_owned(),
        usage: done.usage,
        requests: done.requests,
        cache_hits: done.cache_hits,
        attempts,
    })
}

/// What is there to begin with.
fn begin(model: &Arc<str>, settings: Settings, resume: Option<Partial>) -> Result<Partial, Error> {
    let nothing = Partial {
        model: Arc::clone(model),
        settings,
        vectors: HashMap::new(),
        total: 0,
        usage: Usage::default(),
        requests: 0,
        cache_hits: 0,
    };
    let Some(done) = resume else { return Ok(nothing) };
    if done.model != nothing.model || done.settings != nothing.settings {
        let fault = "the vectors to go on from are of another model, task, title or dimension";
        return Err(Error::Setting(fault.to_owned()));
    }
    // What this call spends is what it tells of.
    Ok(Partial { vectors: done.vectors, ..nothing })
}

/// Asks for all that is left in `batches`, until everything is `done` or something stands in the way.
async fn ask(
    inner: &Inner,
    done: &mut Partial,
    mut batches: Batches,
    options: &CallOptions,
) -> (Vec<Attempt>, Option<Error>) {
    let clock = &*inner.clock;
    let end_ms = end_ms(clock, options);
    let is_late = || end_ms.is_some_and(|at| at <= clock.unix_ms());
    let (mut attempts, mut stopped) = (Vec::new(), None);
    let mut flights = FuturesUnordered::new();
    loop {
        while stopped.is_none() && flights.len() < MOST_IN_FLIGHT {
            let most = Most::now(inner, &done.model, options.allow_paid);
            let Some(texts) = batches.next(&most) else { break };
            let work = Batch { texts, settings: done.settings.clone() };
            let (model, options) = (Arc::clone(&done.model), within(clock, options, end_ms));
            flights.push(async move {
                let outcome = perform(inner, model, &work, &options).await;
                (work.texts, outcome)
            });
        }
        let Some((texts, outcome)) = flights.next().await else { break };
        match outcome {
            Ok(Done { answer, attempts: tried, .. }) => {
                attempts.extend(tried);
                batches.went_well(texts.len());
                done.take(texts, answer);
            }
            Err(error) => {
                attempts.extend_from_slice(error.attempts());
                let smaller = texts.len() > 1 && !is_late() && wants_fewer(&error);
                batches.put_back(texts);
                if !smaller && stopped.is_none() {
                    stopped = Some(error);
                }
            }
        }
    }
    (attempts, stopped)
}

/// True if fewer texts at once may be served: the rest of a day's quota, or of a minute's, is no round number.
fn wants_fewer(error: &Error) -> bool {
    match error {
        Error::Exhausted { .. } => true,
        Error::Rejected { rejected, .. } => rejected.cause == Cause::RequestTooLarge,
        _ => false,
    }
}

impl Partial {
    fn take(&mut self, texts: Vec<Arc<str>>, answer: BatchEmbedResponse) {
        if let Some(usage) = answer.usage() {
            self.usage.input += usage.input;
            self.usage.cached += usage.cached;
            self.usage.total += usage.total;
        }
        self.requests += texts.len() as u64;
        let vectors = answer.embeddings.into_iter().map(|embedding| embedding.values);
        self.vectors.extend(texts.into_iter().zip(vectors));
    }
}

/// One request for the vectors of several texts.
struct Batch {
    texts: Vec<Arc<str>>,
    settings: Settings,
}

impl Work for Batch {
    type Answer = BatchEmbedResponse;

    fn ask(&self, model: &Arc<str>) -> Ask {
        let requests = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let tokens = self.texts.iter().map(|text| estimate::tokens(text)).sum();
        Ask::new(Arc::clone(model)).with_requests(requests).with_tokens(tokens)
    }

    fn call(&self, upstream: &Upstream, model: &str) -> Result<Call, CallError> {
        let Settings { task, dimensions, title } = &self.settings;
        let request = |text: &Arc<str>| EmbedRequest {
            task_type: task.clone(),
            title: title.clone(),
            output_dimensionality: *dimensions,
            // A content of its own: several parts in one content make one vector.
            ..EmbedRequest::from(&**text)
        };
        let requests: Vec<_> = self.texts.iter().map(request).collect();
        upstream.provider().embed(model, &requests)
    }

    async fn read(&self, sight: &Sight<'_>, response: WireResponse) -> Brought<Self::Answer> {
        let status = response.status;
        let parse = |body: &[u8]| sight.upstream.provider().read_embeddings(body);
        let is_answer = |answer: &BatchEmbedResponse| {
            !answer.embeddings.is_empty() && !answer.extra.contains_key("error")
        };
        let brought = sight.whole(response, parse, is_answer).await;
        let Brought::Answer(answer) = &brought else { return brought };
        let (asked, came) = (self.texts.len(), answer.embeddings.len());
        if came != asked {
            let reason = format!("{came} vectors came for {asked} texts");
            return Brought::Unreadable { status, reason };
        }
        if answer.embeddings.iter().any(|embedding| embedding.values.is_empty()) {
            let reason = "a vector came without numbers".to_owned();
            return Brought::Unreadable { status, reason };
        }
        brought
    }

    fn usage(&self, answer: &Self::Answer) -> Option<Usage> {
        answer.usage()
    }
}
