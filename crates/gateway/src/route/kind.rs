//! What a route does.

/// What a route does, and so how it is charged, sent and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(crate) enum Kind {
    /// An answer as a whole (`:generateContent`).
    Generate,
    /// An answer as a stream (`:streamGenerateContent`), of events (`alt=sse`) or as one JSON array.
    Stream,
    /// How many tokens a prompt has. Costs no quota of the model.
    CountTokens,
    /// One vector.
    Embed,
    /// Several vectors.
    BatchEmbed,
    /// An answer in OpenAI's dialect, whole or as a stream.
    Chat,
    /// Vectors in OpenAI's dialect.
    Embeddings,
    /// Which models there are.
    Models,
    /// Files that were uploaded.
    Files,
    /// An upload.
    Upload,
    /// Prompts that the provider keeps.
    Caches,
    /// Many requests in one, answered later.
    Batch,
    /// What goes on, and how far it is.
    Operations,
    /// Interactions: answers that the provider keeps.
    Interactions,
    /// Stores of files that can be searched.
    FileSearch,
    /// Pictures.
    Image,
    /// Films.
    Video,
    /// A conversation over a web socket.
    Live,
    /// Tokens with which a client talks to the provider itself.
    AuthToken,
    /// Another verb of a model.
    OtherVerb,
    /// Another collection.
    Other,
}

impl Kind {
    /// Its name in logs and metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Generate => "generate",
            Self::Stream => "stream",
            Self::CountTokens => "count_tokens",
            Self::Embed => "embed",
            Self::BatchEmbed => "batch_embed",
            Self::Chat => "chat",
            Self::Embeddings => "embeddings",
            Self::Models => "models",
            Self::Files => "files",
            Self::Upload => "upload",
            Self::Caches => "caches",
            Self::Batch => "batch",
            Self::Operations => "operations",
            Self::Interactions => "interactions",
            Self::FileSearch => "file_search",
            Self::Image => "image",
            Self::Video => "video",
            Self::Live => "live",
            Self::AuthToken => "auth_token",
            Self::OtherVerb => "other_verb",
            Self::Other => "other",
        }
    }

    /// By the verb of a model.
    pub(super) fn of_verb(verb: &str) -> Self {
        match verb {
            "generateContent" => Self::Generate,
            "streamGenerateContent" => Self::Stream,
            "countTokens" => Self::CountTokens,
            "embedContent" => Self::Embed,
            "batchEmbedContents" => Self::BatchEmbed,
            "batchGenerateContent" | "asyncBatchEmbedContent" => Self::Batch,
            "predict" => Self::Image,
            "predictLongRunning" => Self::Video,
            _ => Self::OtherVerb,
        }
    }

    /// By the collection, which is the first word of the path.
    pub(super) fn of_collection(collection: &str) -> Self {
        match collection {
            "files" => Self::Files,
            "cachedContents" => Self::Caches,
            "batches" => Self::Batch,
            "operations" => Self::Operations,
            "interactions" => Self::Interactions,
            "fileSearchStores" => Self::FileSearch,
            "auth_tokens" => Self::AuthToken,
            _ => Self::Other,
        }
    }

    /// By the first word of a path in OpenAI's dialect.
    pub(super) fn of_openai(first: &str) -> Self {
        match first {
            "chat" => Self::Chat,
            "embeddings" => Self::Embeddings,
            "models" => Self::Models,
            "images" => Self::Image,
            "videos" => Self::Video,
            "batches" => Self::Batch,
            "files" => Self::Files,
            _ => Self::OtherVerb,
        }
    }
}
