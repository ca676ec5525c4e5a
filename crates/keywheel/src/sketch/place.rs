//! What a value of a request means, by where it stands.

use super::Shape;

/// What a value means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The request.
    Root,
    /// A request within one that counts its tokens.
    Inner,
    /// Costs nothing, and says nothing.
    Ignored,
    /// Weighed as the text that it is.
    Counted,
    /// Within something that is weighed.
    Within,
    /// What is said, turn by turn: Gemini's contents.
    Turns,
    Turn,
    Parts,
    Part,
    /// Messages of a chat, and one of them.
    Messages,
    Message,
    /// A text to be read.
    Text,
    /// Bytes in base64, and what belongs to them.
    Blob,
    Mime,
    Data,
    /// `data:image/png;base64,…`, or the address of a file; or an object with one.
    DataUrl,
    File,
    Uri,
    Config,
    MaxOutput,
    Candidates,
    Tools,
    Tool,
    ToolType,
    /// The requests of a batch, and one of them.
    Batch,
    BatchItem,
    /// Texts for vectors, or one of them, as OpenAI has it: also in tokens.
    Inputs,
    Input,
    InputTokens,
    Model,
    /// What works by itself, with models of its own.
    Agent,
    Stream,
    Background,
    Cached,
    /// An interaction before, which is read again.
    Before,
    /// What Google's compatibility layer takes beside OpenAI's fields.
    Extra,
}

impl Place {
    /// What the value of `key` means in an object that stands here.
    pub(super) fn field(self, shape: Shape, key: &str) -> Self {
        match self {
            Self::Root => root(shape, key),
            Self::Inner => generate(key),
            Self::Turn | Self::Turns => match key {
                "parts" => Self::Parts,
                _ => Self::Ignored,
            },
            Self::Messages | Self::Message => match key {
                "content" => Self::Parts,
                "role" => Self::Ignored,
                _ => Self::Counted,
            },
            Self::Parts | Self::Part if shape.is_gemini() => match key {
                "text" => Self::Text,
                "inlineData" | "inline_data" => Self::Blob,
                "fileData" | "file_data" => Self::File,
                _ => Self::Within,
            },
            Self::Parts | Self::Part => match key {
                "text" | "input_text" => Self::Text,
                "content" => Self::Parts,
                "data" => Self::Data,
                "mime_type" => Self::Mime,
                "uri" | "file_id" => Self::Uri,
                "image_url" | "file_data" | "file_url" => Self::DataUrl,
                "input_audio" | "file" => Self::Blob,
                _ => Self::Within,
            },
            Self::Blob => match key {
                "mimeType" | "mime_type" | "format" => Self::Mime,
                "data" => Self::Data,
                "file_data" => Self::DataUrl,
                "file_id" => Self::Uri,
                _ => Self::Within,
            },
            Self::DataUrl => match key {
                "url" => Self::DataUrl,
                _ => Self::Within,
            },
            Self::File => match key {
                "fileUri" | "file_uri" => Self::Uri,
                _ => Self::Within,
            },
            Self::Config => match key {
                "maxOutputTokens" | "max_output_tokens" => Self::MaxOutput,
                "candidateCount" | "candidate_count" => Self::Candidates,
                "responseSchema"
                | "response_schema"
                | "responseJsonSchema"
                | "response_json_schema"
                | "responseFormat"
                | "response_format" => Self::Counted,
                _ => Self::Ignored,
            },
            Self::Tools | Self::Tool if !shape.is_gemini() && key == "type" => Self::ToolType,
            Self::Batch | Self::BatchItem => match key {
                "content" => Self::Turn,
                _ => Self::Ignored,
            },
            Self::Extra => match key {
                "google" => Self::Extra,
                "cached_content" => Self::Cached,
                _ => Self::Ignored,
            },
            Self::Ignored => Self::Ignored,
            _ => Self::Within,
        }
    }

    /// What an element means of an array that stands here.
    pub(super) const fn element(self) -> Self {
        match self {
            Self::Ignored | Self::Root | Self::Inner | Self::Config | Self::Extra => Self::Ignored,
            Self::Turns => Self::Turn,
            Self::Parts => Self::Part,
            Self::Messages => Self::Message,
            Self::Tools => Self::Tool,
            Self::Batch => Self::BatchItem,
            Self::Inputs => Self::Input,
            Self::Input => Self::InputTokens,
            _ => Self::Within,
        }
    }
}

fn root(shape: Shape, key: &str) -> Place {
    match (shape, key) {
        (_, "model") => Place::Model,
        (Shape::Generate, _) => generate(key),
        (Shape::CountTokens, "generateContentRequest" | "generate_content_request") => Place::Inner,
        (Shape::CountTokens, "contents") => Place::Turns,
        (Shape::Embed, "content") => Place::Turn,
        (Shape::BatchEmbed, "requests") => Place::Batch,
        (Shape::Embeddings, "input") => Place::Inputs,
        (Shape::Chat | Shape::Interaction | Shape::Other, "stream") => Place::Stream,
        (Shape::Chat | Shape::Interaction | Shape::Other, "background") => Place::Background,
        (Shape::Chat, _) => chat(key),
        (Shape::Interaction, _) => interaction(key),
        (Shape::Other, _) => other(key),
        _ => Place::Ignored,
    }
}

fn generate(key: &str) -> Place {
    match key {
        "contents" => Place::Turns,
        "systemInstruction" | "system_instruction" => Place::Turn,
        "generationConfig" | "generation_config" => Place::Config,
        "tools" => Place::Tools,
        "cachedContent" | "cached_content" => Place::Cached,
        _ => Place::Ignored,
    }
}

/// Chat completions, completions and responses.
fn chat(key: &str) -> Place {
    match key {
        "messages" => Place::Messages,
        "prompt" => Place::Inputs,
        "input" | "instructions" => Place::Parts,
        "tools" | "functions" => Place::Tools,
        "response_format" | "text" | "prediction" => Place::Counted,
        "max_tokens" | "max_completion_tokens" | "max_output_tokens" => Place::MaxOutput,
        "n" => Place::Candidates,
        "previous_response_id" => Place::Before,
        "extra_body" | "google" => Place::Extra,
        "cached_content" => Place::Cached,
        _ => Place::Ignored,
    }
}

fn interaction(key: &str) -> Place {
    match key {
        "agent" => Place::Agent,
        "input" | "system_instruction" => Place::Parts,
        "tools" => Place::Tools,
        "generation_config" => Place::Config,
        "response_format" => Place::Counted,
        "previous_interaction_id" => Place::Before,
        "cached_content" => Place::Cached,
        _ => Place::Ignored,
    }
}

fn other(key: &str) -> Place {
    match key {
        "max_tokens" | "max_completion_tokens" | "max_output_tokens" => Place::MaxOutput,
        "n" => Place::Candidates,
        "cachedContent" | "cached_content" => Place::Cached,
        _ => Place::Within,
    }
}
