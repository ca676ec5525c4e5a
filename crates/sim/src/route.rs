//! The route that a request asks for.

use http::Method;

use crate::{config::Face, request::SimRequest};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    List,
    Model {
        model: &'a str,
    },
    Call {
        version: &'a str,
        model: &'a str,
        verb: Verb,
    },
    /// The first request of an upload, or a whole upload at once.
    Upload,
    Files,
    File {
        id: &'a str,
    },
    Caches,
    Cache {
        id: &'a str,
    },
    OpenAi(OpenAiRoute<'a>),
}

/// What is asked for of an OpenAI-style surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenAiRoute<'a> {
    Chat,
    Embeddings,
    Models,
    Model { id: &'a str },
}

impl<'a> Route<'a> {
    /// `None` when there is no such path, or not for this method.
    pub(crate) fn of(request: &'a SimRequest, face: Face) -> Option<Self> {
        let path = request.path.strip_prefix('/')?;
        if face == Face::OpenAi {
            let path = path.strip_prefix("openai/").unwrap_or(path).strip_prefix("v1/")?;
            return OpenAiRoute::of(&request.method, path).map(Self::OpenAi);
        }
        if let Some(path) = path.strip_prefix("v1beta/openai/") {
            return OpenAiRoute::of(&request.method, path).map(Self::OpenAi);
        }
        if let Some(path) = path.strip_prefix("upload/") {
            let is_upload = request.method == Method::POST && versioned(path)?.1 == "files";
            return is_upload.then_some(Self::Upload);
        }
        let (version, rest) = versioned(path)?;
        let (collection, item) = rest.split_once('/').map_or((rest, None), |(c, i)| (c, Some(i)));
        match (collection, item) {
            ("models", None) => (request.method == Method::GET).then_some(Self::List),
            ("models", Some(model)) => Self::of_model(request, version, model),
            ("files", None) => (request.method == Method::GET).then_some(Self::Files),
            ("files", Some(id)) if is_id(id) => {
                let known = request.method == Method::GET || request.method == Method::DELETE;
                known.then_some(Self::File { id })
            }
            ("cachedContents", None) => {
                let known = request.method == Method::GET || request.method == Method::POST;
                known.then_some(Self::Caches)
            }
            ("cachedContents", Some(id)) if is_id(id) => {
                let known = [Method::GET, Method::PATCH, Method::DELETE];
                known.contains(&request.method).then_some(Self::Cache { id })
            }
            _ => None,
        }
    }

    fn of_model(request: &SimRequest, version: &'a str, model: &'a str) -> Option<Self> {
        let Some((model, verb)) = split_verb(model) else {
            let is_model = request.method == Method::GET && !model.contains('/');
            return is_model.then_some(Self::Model { model });
        };
        if request.method != Method::POST || model.is_empty() || model.contains('/') {
            return None;
        }
        let sse = request.parameter("alt") == Some("sse");
        let verb = match verb {
            "generateContent" => Verb::Generate,
            "streamGenerateContent" => Verb::Stream { sse },
            "countTokens" => Verb::CountTokens,
            "embedContent" => Verb::Embed,
            "batchEmbedContents" => Verb::BatchEmbed,
            _ => return None,
        };
        Some(Self::Call { version, model, verb })
    }
}

impl<'a> OpenAiRoute<'a> {
    /// The route behind the base path.
    fn of(method: &Method, path: &'a str) -> Option<Self> {
        let (get, post) = (method == Method::GET, method == Method::POST);
        match path {
            "chat/completions" if post => Some(Self::Chat),
            "embeddings" if post => Some(Self::Embeddings),
            "models" if get => Some(Self::Models),
            _ if get => path.strip_prefix("models/").map(|id| Self::Model { id }),
            _ => None,
        }
    }
}

/// What a call does with its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Generate,
    Stream {
        sse: bool,
    },
    CountTokens,
    Embed,
    BatchEmbed,
    /// Not a call of the model, but an error names it like one.
    CreateCache,
}

impl Verb {
    pub(crate) const fn embeds(self) -> bool {
        matches!(self, Self::Embed | Self::BatchEmbed)
    }

    /// The name in URLs and in `supportedGenerationMethods`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Generate => "generateContent",
            Self::Stream { .. } => "streamGenerateContent",
            Self::CountTokens => "countTokens",
            Self::Embed => "embedContent",
            Self::BatchEmbed => "batchEmbedContents",
            Self::CreateCache => "createCachedContent",
        }
    }
}

/// A version of the API, and the path behind it.
fn versioned(path: &str) -> Option<(&str, &str)> {
    let (version, rest) = path.split_once('/')?;
    matches!(version, "v1" | "v1beta" | "v1alpha").then_some((version, rest))
}

/// The verb stands behind a colon, which some clients encode.
fn split_verb(text: &str) -> Option<(&str, &str)> {
    let encoded = || text.split_once("%3A").or_else(|| text.split_once("%3a"));
    text.split_once(':').or_else(encoded)
}

/// One segment without a verb.
fn is_id(text: &str) -> bool {
    !text.is_empty() && !text.contains(['/', ':', '%'])
}
