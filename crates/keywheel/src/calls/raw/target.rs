//! What the path of a raw call says of it.

use std::{borrow::Cow, sync::Arc};

use http::Method;
use keywheel_provider::upstream::Call;

use crate::{attempt::work::route, gemini::bare, sketch::Shape};

/// What may be asked twice: nothing is made that stays.
const REPEATABLE_VERBS: [&str; 6] = [
    "generateContent",
    "streamGenerateContent",
    "countTokens",
    "embedContent",
    "batchEmbedContents",
    "predict",
];

/// Routes whose bodies name the model that is asked: OpenAI's, and Google's Interactions.
const NAMING_ROUTES: [&str; 6] =
    ["chat", "embeddings", "completions", "responses", "images", "interactions"];

/// The same call, asked of another model, and with another verb, if its path names one.
pub(super) fn asking(call: &Call, model: &str, other: Option<&str>) -> Call {
    let mut path = String::with_capacity(call.path.len() + model.len());
    let mut segments = call.path.split('/').peekable();
    while let Some(segment) = segments.next() {
        if matches!(segment, "models" | "tunedModels")
            && let Some((_, verb)) = segments.peek().and_then(|name| name.split_once(':'))
        {
            if !model.contains('/') {
                path.push_str("models/");
            }
            path.push_str(model);
            path.push(':');
            path.push_str(other.unwrap_or(verb));
            break;
        }
        path.push_str(segment);
        if segments.peek().is_some() {
            path.push('/');
        }
    }
    Call { path, ..call.clone() }
}

/// What a path says of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// The model whose quota it draws on, as a [resource](bare_name).
    pub(super) model: Option<(&'a str, &'a str)>,
    /// What is asked of it: `generateContent`.
    pub(super) verb: &'a str,
    /// The first word of the path that means something: `models`, `files`.
    route: &'a str,
    /// The name that follows.
    name: &'a str,
}

impl<'a> Target<'a> {
    pub(super) fn of(call: &'a Call) -> Self {
        let segments = call.path.split('/').filter(|segment| !segment.is_empty());
        let mut segments = segments.skip_while(|segment| {
            matches!(*segment, "upload" | "download" | "openai") || is_version(segment)
        });
        let split = |segment: Option<&'a str>| {
            let segment = segment.unwrap_or_default();
            segment.split_once(':').unwrap_or((segment, ""))
        };
        let (route, verb) = split(segments.next());
        let (name, of_name) = split(segments.next());
        let verb = if verb.is_empty() { of_name } else { verb };
        let of_a_model = matches!(route, "models" | "tunedModels") && !of_name.is_empty();
        // Counting costs no quota of the model.
        let model = (of_a_model && verb != "countTokens").then_some((route, name));
        Self { model, verb, route, name }
    }

    /// Routes whose bodies name the model that is asked: OpenAI's, and Google's Interactions.
    pub(super) fn names_model_in_body(&self) -> bool {
        NAMING_ROUTES.contains(&self.route)
    }

    /// The bucket of a call that draws on no model's quota.
    pub(super) fn route(&self) -> Arc<str> {
        route(if self.verb == "countTokens" { self.verb } else { self.route })
    }

    /// The file or cache that it is about: `files/x`.
    pub(super) fn owned(&self) -> Option<String> {
        let is_owned = matches!(self.route, "files" | "cachedContents") && !self.name.is_empty();
        is_owned.then(|| format!("{}/{}", self.route, self.name))
    }

    pub(super) fn shape(&self) -> Shape {
        match (self.verb, self.route) {
            ("generateContent" | "streamGenerateContent", _) => Shape::Generate,
            ("countTokens", _) => Shape::CountTokens,
            ("embedContent", _) => Shape::Embed,
            ("batchEmbedContents", _) => Shape::BatchEmbed,
            (_, "chat" | "completions" | "responses") => Shape::Chat,
            (_, "embeddings") => Shape::Embeddings,
            (_, "interactions") => Shape::Interaction,
            _ => Shape::Other,
        }
    }

    /// Its body tells nothing: bytes of a file, or words that only its route understands.
    pub(super) fn is_opaque(&self) -> bool {
        self.model.is_none() && self.shape() == Shape::Other && !self.names_model_in_body()
    }

    /// An answer of a model, which is not one without its end.
    pub(super) fn is_answer(&self) -> bool {
        self.shape() == Shape::Generate || matches!(self.route, "chat" | "completions")
    }

    /// The length of its answer can be limited.
    pub(super) fn is_limited(&self) -> bool {
        matches!(self.shape(), Shape::Generate | Shape::Chat | Shape::Interaction)
    }

    pub(super) fn makes_vectors(&self) -> bool {
        matches!(self.shape(), Shape::Embed | Shape::BatchEmbed | Shape::Embeddings)
    }

    pub(super) fn is_repeatable(&self, method: &Method) -> bool {
        method.is_idempotent()
            || REPEATABLE_VERBS.contains(&self.verb)
            || matches!(self.route, "chat" | "embeddings" | "completions")
    }

    /// Gemini's own name of an answer has one of its own at OpenTelemetry.
    pub(super) fn operation(&self) -> Cow<'static, str> {
        match (self.shape(), self.verb) {
            (Shape::Generate, _) => "generate_content".into(),
            (Shape::Chat, _) => "chat".into(),
            (Shape::Embed | Shape::BatchEmbed | Shape::Embeddings, _) => "embeddings".into(),
            (_, "") => self.route.to_owned().into(),
            (_, verb) => verb.to_owned().into(),
        }
    }
}

/// A model by its shorter name; a tuned one by all of it.
pub(super) fn bare_name((collection, name): (&str, &str)) -> Arc<str> {
    match collection {
        "models" => bare(name.into()),
        _ => format!("{collection}/{name}").into(),
    }
}

/// `v1`, `v1beta`, `v1alpha`.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{super::plan::Looked, *};

    /// The model, the bucket where none is, and how many texts a body names.
    async fn planned(path: &str, body: &'static str) -> (Option<String>, String, usize) {
        let call = Call::post(path, body);
        let target = Target::of(&call);
        let sketch = Looked::default().sketch(&call).await.unwrap();
        let named = sketch.model.clone().filter(|_| target.names_model_in_body());
        let model = target.model.map(bare_name).or_else(|| named.map(|name| bare(name.into())));
        let bucket = model.clone().unwrap_or_else(|| target.route());
        (
            model.map(|model| model.as_ref().to_owned()),
            bucket.as_ref().to_owned(),
            sketch.texts.unwrap_or(1),
        )
    }

    #[tokio::test]
    async fn the_path_says_whose_quota_a_call_draws_on() {
        let batch = r#"{"requests":[{},{},{}]}"#;
        let chat = r#"{"model":"models/m"}"#;
        for (path, body, model, bucket, texts) in [
            ("models/m:generateContent", "{}", true, "m", 1),
            ("/v1/models/m:predict", "{}", true, "m", 1),
            ("tunedModels/t:generateContent", "{}", true, "tunedModels/t", 1),
            ("models/e:batchEmbedContents", batch, true, "e", 3),
            ("models/m:countTokens", "{}", false, "api:countTokens", 1),
            ("models/m", "", false, "api:models", 1),
            ("fileSearchStores/s:importFile", "{}", false, "api:fileSearchStores", 1),
            ("/upload/v1beta/files", "", false, "api:files", 1),
            ("/v1beta/openai/chat/completions", chat, true, "m", 1),
            ("/v1beta/interactions", chat, true, "m", 1),
            ("/v1beta/openai/images/generations", chat, true, "m", 1),
            ("chat/completions", "no JSON", false, "api:chat", 1),
            ("cachedContents", chat, false, "api:cachedContents", 1),
        ] {
            let (named, of_it, found) = planned(path, body).await;
            assert_eq!((named.is_some(), &*of_it, found), (model, bucket, texts), "{path} {body}");
        }
    }

    #[test]
    fn only_what_leaves_nothing_behind_is_done_twice_unasked() {
        let repeatable =
            |method: Method, path: &str| Target::of(&Call::post(path, "")).is_repeatable(&method);
        for path in ["models/m:generateContent", "models/e:embedContent", "chat/completions"] {
            assert!(repeatable(Method::POST, path), "{path}");
        }
        for path in
            ["models/m:batchGenerateContent", "cachedContents", "models/v:predictLongRunning"]
        {
            assert!(!repeatable(Method::POST, path), "{path}");
        }
        assert!(repeatable(Method::DELETE, "files/x") && repeatable(Method::GET, "files"));
        assert!(!repeatable(Method::PATCH, "cachedContents/x"));
    }

    #[test]
    fn another_model_takes_the_first_ones_place_in_the_path() {
        for (path, model, expected) in [
            ("models/m:generateContent", "n", "models/n:generateContent"),
            (
                "/v1beta/models/m:streamGenerateContent",
                "n",
                "/v1beta/models/n:streamGenerateContent",
            ),
            ("tunedModels/t:generateContent", "n", "models/n:generateContent"),
            ("/v1/models/m:generateContent", "tunedModels/t", "/v1/tunedModels/t:generateContent"),
            ("/v1beta/openai/chat/completions", "n", "/v1beta/openai/chat/completions"),
        ] {
            let call = Call::post(path, "{}").with_query("alt", "sse");
            let other = asking(&call, model, None);
            assert_eq!((other.path.as_str(), &other.query), (expected, &call.query));
        }
        let call = Call::post("/v1/models/m:generateContent", "{}");
        assert_eq!(asking(&call, "m", Some("countTokens")).path, "/v1/models/m:countTokens");
    }

    /// The bytes of a file are not looked at, however many they are.
    #[tokio::test]
    async fn what_only_its_route_understands_is_not_looked_at() {
        for (path, is_looked_at) in [
            ("/upload/v1beta/files", false),
            ("cachedContents", false),
            ("models/m:predict", true),
            ("models/m:countTokens", true),
            ("openai/images/generations", true),
        ] {
            let sketch = Looked::default().sketch(&Call::post(path, r#"{"a":1}"#)).await.unwrap();
            assert_eq!(sketch.is_json, is_looked_at, "{path}");
        }
    }
}
