//! The Gemini API's own types: what people set and read, with everything else kept as it came.
//!
//! Google's servers accept camelCase and snake_case; both are understood here when parsing,
//! camelCase is written. A field that these types do not name stays in `extra` and is written out
//! again, so a new field of the API needs no new release. Parts, tools and schemas are kept byte
//! for byte ([`Json`]).
//!
//! | to | use |
//! |---|---|
//! | ask for an answer | [`GenerateRequest`], [`Content`], [`Part`], [`Tool`], [`SafetySetting`] |
//! | read an answer | [`GenerateResponse`], [`FinishReason`] |
//! | go on with an answer in several hops | [`GenerateRequest::continued`], [`GenerateResponse::append`] |
//! | embed | [`EmbedRequest`], [`BatchEmbedResponse`] |
//! | count tokens | [`TokenCount`] |
//! | upload a file and use it | [`Upload`], [`File`] |
//! | keep a long prompt for several requests | [`CachedContent`] |
//! | see which models there are | [`ModelList`] |
//!
//! [`Call`](crate::upstream::Call) makes HTTP requests of them. Tests show that what Google's SDKs
//! for Python and JavaScript send and read passes through these types with nothing lost and nothing
//! added.
//!
//! Field names: <https://ai.google.dev/api/generate-content>.

mod caches;
mod config;
mod content;
mod continuation;
mod count;
mod embed;
mod files;
mod generate;
mod json;
mod models;
mod open_enum;
mod response;
mod safety;
mod tools;
mod upload;

pub(crate) use self::{content::STANDARD, embed::all_finite, json::LossyText};
pub use caches::{CacheExpiry, CachedContent, CachedContentList};
pub use config::{GenerationConfig, ThinkingConfig, ThinkingLevel};
pub use content::{
    Blob, CodeExecutionResult, Content, ExecutableCode, FileData, FunctionCall, FunctionResponse,
    Part,
};
pub use count::{CountRequest, TokenCount};
pub use embed::{
    BatchEmbedRequest, BatchEmbedResponse, EmbedRequest, EmbedResponse, Embedding, TaskType,
};
pub use files::{File, FileEnvelope, FileList, FileState, file_name};
pub use generate::GenerateRequest;
pub use json::Json;
pub use models::{Model, ModelList};
pub use response::{Candidate, FinishReason, GenerateResponse, ModelStatus, PromptFeedback};
pub use safety::{BlockThreshold, HarmCategory, SafetySetting};
pub use tools::{FunctionCalling, FunctionDeclaration, FunctionMode, Tool};
pub use upload::{CHUNK_BYTES, Upload, UploadError, UploadStep};

#[cfg(test)]
mod tests;
