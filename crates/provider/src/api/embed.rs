//! Embeddings: texts and media as vectors.

use keywheel_core::Usage;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::{Map, Value};

use super::{
    Content, Part,
    json::{Json, null_is_default},
    open_enum::open_enum,
    response::usage_of,
};

/// One thing to embed: `embedContent`, or one of the requests of `batchEmbedContents`.
///
/// Each text is a content of its own. Several parts in one content make *one* vector: that is how
/// `gemini-embedding-2` reads a list of texts that a client has put into one content.
///
/// Vectors of different models, tasks or dimensions cannot be compared.
///
/// ```
/// use keywheel_provider::api::{EmbedRequest, TaskType};
///
/// let query = EmbedRequest::from("Who wrote Faust?")
///     .with_task(TaskType::RetrievalQuery)
///     .with_dimensions(768);
/// assert_eq!(
///     serde_json::to_string(&query).unwrap(),
///     r#"{"content":{"role":"user","parts":[{"text":"Who wrote Faust?"}]},"#.to_owned()
///         + r#""taskType":"RETRIEVAL_QUERY","outputDimensionality":768}"#,
/// );
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbedRequest {
    /// The model, as `models/x`. [`Call`](crate::upstream::Call) sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What to embed. All its parts together make one vector. An empty text is refused, at times
    /// with a 429.
    #[serde(default, deserialize_with = "null_is_default")]
    pub content: Content,
    /// What the vector is for. `gemini-embedding-2` takes that from the text instead.
    #[serde(alias = "task_type", default, skip_serializing_if = "Option::is_none")]
    pub task_type: Option<TaskType>,
    /// The document's title, for [`TaskType::RetrievalDocument`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// How many numbers the vector has. Defaults to the model's most, 3,072. Shorter ones of
    /// `gemini-embedding-001` are not normalised to length 1.
    #[serde(alias = "output_dimensionality", default, skip_serializing_if = "Option::is_none")]
    pub output_dimensionality: Option<u32>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl EmbedRequest {
    /// A request for the vector of `content`.
    #[must_use]
    pub fn new(content: impl Into<Content>) -> Self {
        Self { content: content.into(), ..Self::default() }
    }

    /// Sets what the vector is for.
    #[must_use]
    pub fn with_task(mut self, task: TaskType) -> Self {
        self.task_type = Some(task);
        self
    }

    /// Sets the document's title.
    ///
    /// ```
    /// use keywheel_provider::api::{EmbedRequest, TaskType};
    ///
    /// let document = EmbedRequest::from("It was the best of times")
    ///     .with_task(TaskType::RetrievalDocument)
    ///     .with_title("A Tale of Two Cities");
    /// assert_eq!(document.title.as_deref(), Some("A Tale of Two Cities"));
    /// ```
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets how many numbers the vector has.
    #[must_use]
    pub const fn with_dimensions(mut self, dimensions: u32) -> Self {
        self.output_dimensionality = Some(dimensions);
        self
    }
}

impl<T: Into<Part>> From<T> for EmbedRequest {
    fn from(part: T) -> Self {
        Self::new(Content::user([part]))
    }
}

impl From<Content> for EmbedRequest {
    fn from(content: Content) -> Self {
        Self::new(content)
    }
}

open_enum! {
    /// What a vector is for (<https://ai.google.dev/gemini-api/docs/embeddings#task-types>).
    TaskType {
        /// A question that searches documents.
        RetrievalQuery = "RETRIEVAL_QUERY",
        /// A document that is searched.
        RetrievalDocument = "RETRIEVAL_DOCUMENT",
        /// Texts whose likeness is measured.
        SemanticSimilarity = "SEMANTIC_SIMILARITY",
        /// Texts that are sorted into classes.
        Classification = "CLASSIFICATION",
        /// Texts that are grouped.
        Clustering = "CLUSTERING",
        /// A question that searches answers.
        QuestionAnswering = "QUESTION_ANSWERING",
        /// A claim that searches evidence.
        FactVerification = "FACT_VERIFICATION",
        /// A question that searches code.
        CodeRetrievalQuery = "CODE_RETRIEVAL_QUERY",
    }
}

/// Several things to embed in one call: `batchEmbedContents`. It counts as as many requests as it
/// holds.
///
/// [`Call::embed_batch`](crate::upstream::Call::embed_batch) writes one; this type reads them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchEmbedRequest {
    /// What to embed, at most 100.
    #[serde(default, deserialize_with = "null_is_default")]
    pub requests: Vec<EmbedRequest>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The answer of `embedContent`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbedResponse {
    /// The vector.
    #[serde(default, deserialize_with = "null_is_default")]
    pub embedding: Embedding,
    /// What it cost, as sent; [`usage`](Self::usage) reads it.
    #[serde(alias = "usage_metadata", default, skip_serializing_if = "Option::is_none")]
    pub usage_metadata: Option<Json>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl EmbedResponse {
    /// What it cost, where that was told.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        usage_of(self.usage_metadata.as_ref())
    }
}

/// The answer of `batchEmbedContents`: a vector for each request, in their order.
///
/// ```
/// use keywheel_provider::api::BatchEmbedResponse;
///
/// let body = r#"{"embeddings":[{"values":[0.25,-1.5]}],"usageMetadata":{"promptTokenCount":4}}"#;
/// let answer: BatchEmbedResponse = serde_json::from_str(body).unwrap();
/// assert_eq!(answer.embeddings[0].values, [0.25, -1.5]);
/// assert_eq!(answer.usage().unwrap().input, 4);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchEmbedResponse {
    /// The vectors. Check their number: fewer than requests means that texts were taken for one.
    #[serde(default, deserialize_with = "null_is_default")]
    pub embeddings: Vec<Embedding>,
    /// What they cost together, as sent; [`usage`](Self::usage) reads it.
    #[serde(alias = "usage_metadata", default, skip_serializing_if = "Option::is_none")]
    pub usage_metadata: Option<Json>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl BatchEmbedResponse {
    /// What they cost together, where that was told.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        usage_of(self.usage_metadata.as_ref())
    }
}

/// A vector.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Embedding {
    /// Its numbers, in single precision as the API sends them. One that is too large for that is an error.
    #[serde(default, deserialize_with = "finite")]
    pub values: Vec<f32>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl From<Vec<f32>> for Embedding {
    fn from(values: Vec<f32>) -> Self {
        Self { values, extra: Map::new() }
    }
}

fn finite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    null_is_default(deserializer).and_then(all_finite)
}

/// One number that is none would spoil whatever is computed with the vector, and a cache would keep it.
pub(crate) fn all_finite<E: Error>(values: Vec<f32>) -> Result<Vec<f32>, E> {
    match values.iter().all(|value| value.is_finite()) {
        true => Ok(values),
        false => Err(E::custom("a number of the vector is not finite")),
    }
}
