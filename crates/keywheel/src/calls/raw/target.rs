//! What a raw call draws on, what it may cost and what may be done with it: by its path and its body.

use std::sync::Arc;

use http::Method;
use keywheel_core::estimate;
use keywheel_pool::Ask;
use keywheel_provider::{api::GenerateRequest, upstream::Call};
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    Error,
    attempt::{
        Expected,
        work::{is_route, route},
    },
    calls::owner,
    charging::{self, Bill},
    gemini::{CallOptions, Inner, bare},
    weigh::input_tokens,
};

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

/// What the caller says of a raw call, in place of what its path and its body do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    pub(crate) bucket: Option<Arc<str>>,
    pub(crate) requests: Option<u32>,
    pub(crate) tokens: Option<u64>,
    pub(crate) retry_safe: bool,
    /// What it costs, whatever its reply says.
    pub(crate) fixed_charge: Option<u64>,
}

macro_rules! raw_options {
    ($name:ident) => {
        impl $name {
            /// The model whose quota it draws on. Defaults to the one in its path, or in the body of an OpenAI-style
            /// call or of an interaction.
            pub fn bucket(mut self, model: impl Into<std::sync::Arc<str>>) -> Self {
                self.said.bucket = Some($crate::gemini::bare(model.into()));
                self
            }

            /// How many requests of the quota it counts as. Defaults to 1, and to one for each text of a
            /// `batchEmbedContents`, and of an OpenAI-style call for vectors at Google.
            pub const fn requests(mut self, requests: u32) -> Self {
                self.said.requests = Some(requests);
                self
            }

            /// How many input tokens it counts as. Defaults to an estimate of its body, for calls of a model.
            pub const fn tokens(mut self, tokens: u64) -> Self {
                self.said.tokens = Some(tokens);
                self
            }

            /// The one quota project whose keys can do it. Defaults to the owner of the files and the cache that its
            /// path and its body name, where they are known, else to any.
            pub fn owner(mut self, quota_project: impl Into<std::sync::Arc<str>>) -> Self {
                self.options.owner = Some(quota_project.into());
                self
            }

            /// Says that it may be done twice, so that it is tried again after a cut or a 5xx. Defaults to what its
            /// method says: yes for `GET`, `PUT` and `DELETE`, and for those `POST`s that only ask a model.
            pub const fn retry_safe(mut self) -> Self {
                self.said.retry_safe = true;
                self
            }
        }
    };
}

pub(crate) use raw_options;

/// A raw call, looked at.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) ask: Ask,
    /// What it may cost; `None`: nothing.
    pub(crate) bill: Option<Bill>,
    pub(crate) is_repeatable: bool,
    /// Another model may answer in its place.
    pub(crate) may_change_model: bool,
    pub(crate) expected: Expected,
    /// What it does, in OpenTelemetry's words.
    pub(crate) operation: Arc<str>,
}

impl Plan {
    /// Looks at `call`, and binds it to the owner of what it names; also `options` with what is left of its time.
    ///
    /// # Errors
    /// [`Error::MixedOwners`]: no key could do it.
    pub(crate) async fn of(
        inner: &Inner,
        call: &Call,
        said: Said,
        mut options: CallOptions,
    ) -> Result<(Self, CallOptions), Error> {
        let target = Target::of(call);
        let body = in_memory(call);
        let bucket = said.bucket.unwrap_or_else(|| target.bucket());
        let mut ask = Ask::new(Arc::clone(&bucket));
        let mut bill = None;
        let mut is_cached = false;
        if let (None, Some(name)) = (&options.owner, &target.owned)
            && let Some(owner) = inner.owners.owner(name).await
        {
            options = owner::owned(options, owner);
        }
        if let Some(request) = target.request(body) {
            if options.owner.is_none() {
                options = owner::bind(inner, &request, options).await?;
            }
            let (of_it, left) = charging::bill(inner, &bucket, &request, options).await;
            (bill, options) = (Some(of_it), left);
            ask = ask.with_tokens(input_tokens(&request));
            ask.tools = request.uses_tools();
            is_cached = request.cached_content.is_some();
        } else if target.model.is_some() && !body.is_empty() {
            ask = ask.with_tokens(estimate::tokens(&String::from_utf8_lossy(body)));
        }
        ask = ask.with_requests(said.requests.unwrap_or_else(|| {
            let weight = |texts| inner.upstream.provider().embed_weight(texts);
            let texts = target.texts(body);
            texts.map_or(1, |texts| u32::try_from(weight(texts)).unwrap_or(u32::MAX))
        }));
        ask.tokens = said.tokens.unwrap_or(ask.tokens);
        let bill = bill.unwrap_or_else(|| target.bill(body));
        let bill = Bill { input: bill.input.max(ask.tokens), ..bill };
        let bill = match said.fixed_charge {
            // As output, since estimates of input are corrected by what was seen of the model.
            Some(tokens) => Some(Bill { input: 0, output: Some(tokens), candidates: 1 }),
            None => (!is_route(&bucket)).then_some(bill),
        };
        let in_path = target.is_answer() && target.model.as_ref() == Some(&bucket);
        let plan = Self {
            ask,
            bill,
            is_repeatable: said.retry_safe || target.is_repeatable(&call.method),
            may_change_model: in_path && target.names_model_in_path() && !is_cached,
            expected: Expected { is_stream: target.is_stream(), is_answer: target.is_answer() },
            operation: target.operation(),
        };
        Ok((plan, options))
    }
}

/// The same call, asked of another model.
pub(crate) fn asking(call: &Call, model: &str) -> Call {
    let mut path = String::with_capacity(call.path.len() + model.len());
    let mut segments = call.path.split('/');
    while let Some(segment) = segments.next() {
        if matches!(segment, "models" | "tunedModels")
            && let Some((_, verb)) = segments.next().and_then(|name| name.split_once(':'))
        {
            if !model.contains('/') {
                path.push_str("models/");
            }
            path.push_str(model);
            path.push(':');
            path.push_str(verb);
            break;
        }
        path.push_str(segment);
        path.push('/');
    }
    Call { path, ..call.clone() }
}

/// What a path says of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The model whose quota it draws on.
    model: Option<Arc<str>>,
    /// What is asked of it: `generateContent`.
    verb: String,
    /// The first word of the path that means something: `models`, `files`.
    route: String,
    /// The file or cache that it is about: `files/x`.
    owned: Option<String>,
}

impl Target {
    fn of(call: &Call) -> Self {
        let segments = call.path.split('/').filter(|segment| !segment.is_empty());
        let mut segments = segments.skip_while(|segment| {
            matches!(*segment, "upload" | "download" | "openai") || is_version(segment)
        });
        let first = segments.next().unwrap_or_default();
        let (route, verb) = first.split_once(':').unwrap_or((first, ""));
        let mut target =
            Self { model: None, verb: verb.to_owned(), route: route.to_owned(), owned: None };
        if matches!(route, "models" | "tunedModels") {
            let name = segments.next().unwrap_or_default();
            if let Some((name, verb)) = name.split_once(':') {
                let model =
                    if route == "models" { name.into() } else { format!("{route}/{name}").into() };
                verb.clone_into(&mut target.verb);
                // Counting costs no quota of the model.
                target.model = (verb != "countTokens").then_some(model);
            }
        } else if let ("files" | "cachedContents", Some(name)) = (route, segments.next()) {
            let name = name.split_once(':').map_or(name, |(name, _)| name);
            target.owned = Some(format!("{route}/{name}"));
        } else if NAMING_ROUTES.contains(&route) {
            target.model = named_model(in_memory(call)).map(bare);
        }
        target
    }

    fn bucket(&self) -> Arc<str> {
        match &self.model {
            Some(model) => Arc::clone(model),
            None if self.verb == "countTokens" => route(&self.verb),
            None => route(&self.route),
        }
    }

    fn is_repeatable(&self, method: &Method) -> bool {
        method.is_idempotent()
            || REPEATABLE_VERBS.contains(&self.verb.as_str())
            || matches!(self.route.as_str(), "chat" | "embeddings" | "completions")
    }

    /// The body of a call that asks a model for an answer.
    fn request(&self, body: &[u8]) -> Option<GenerateRequest> {
        let asks = matches!(self.verb.as_str(), "generateContent" | "streamGenerateContent");
        asks.then(|| serde_json::from_slice(body).ok()).flatten()
    }

    fn is_answer(&self) -> bool {
        matches!(self.verb.as_str(), "generateContent" | "streamGenerateContent")
            || matches!(self.route.as_str(), "chat" | "completions")
    }

    fn is_stream(&self) -> bool {
        self.verb == "streamGenerateContent"
    }

    fn names_model_in_path(&self) -> bool {
        matches!(self.route.as_str(), "models" | "tunedModels")
    }

    /// Gemini's own name of an answer has one of its own at OpenTelemetry.
    fn operation(&self) -> Arc<str> {
        match self.verb.as_str() {
            "generateContent" | "streamGenerateContent" => "generate_content".into(),
            "embedContent" | "batchEmbedContents" => "embeddings".into(),
            "" => self.route.as_str().into(),
            verb => verb.into(),
        }
    }

    /// What it may cost besides its input, if it asks a model for something else than an answer of Gemini's.
    fn bill(&self, body: &[u8]) -> Bill {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Limits {
            max_tokens: Option<u64>,
            max_completion_tokens: Option<u64>,
            max_output_tokens: Option<u64>,
            n: Option<u64>,
        }
        if matches!(self.verb.as_str(), "embedContent" | "batchEmbedContents")
            || self.route == "embeddings"
        {
            return Bill::input(0);
        }
        let limits: Limits = serde_json::from_slice(body).unwrap_or_default();
        let output =
            limits.max_completion_tokens.or(limits.max_tokens).or(limits.max_output_tokens);
        Bill { output, candidates: limits.n.unwrap_or(1).max(1), ..Bill::unbounded(0) }
    }

    /// How many texts a call for vectors names, if it names several.
    fn texts(&self, body: &[u8]) -> Option<usize> {
        #[derive(Deserialize)]
        struct Batch {
            // OpenAI's name of it, and Google's.
            #[serde(alias = "requests")]
            input: Vec<IgnoredAny>,
        }
        if self.verb != "batchEmbedContents" && self.route != "embeddings" {
            return None;
        }
        serde_json::from_slice::<Batch>(body).ok().map(|batch| batch.input.len())
    }
}

/// The model that an OpenAI-style body names.
fn named_model(body: &[u8]) -> Option<Arc<str>> {
    #[derive(Deserialize)]
    struct Head {
        model: String,
    }
    serde_json::from_slice::<Head>(body).ok().map(|head| head.model.into())
}

/// The body of `call`; nothing of one that is in a file.
fn in_memory(call: &Call) -> &[u8] {
    call.body.bytes().map_or(&[], |bytes| bytes)
}

/// `v1`, `v1beta`, `v1alpha`.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str, body: &'static str) -> (Option<String>, String, Option<usize>) {
        let call = Call::post(path, body);
        let target = Target::of(&call);
        let model = target.model.as_deref().map(str::to_owned);
        (model, target.bucket().as_ref().to_owned(), target.texts(in_memory(&call)))
    }

    #[test]
    fn the_path_says_whose_quota_a_call_draws_on() {
        let of = |path, body| {
            let (model, bucket, texts) = target(path, body);
            (model.is_some(), bucket, texts.unwrap_or(1))
        };
        let bucket = |name: &str| name.to_owned();
        assert_eq!(of("models/m:generateContent", "{}"), (true, bucket("m"), 1));
        assert_eq!(of("/v1/models/m:predict", "{}"), (true, bucket("m"), 1));
        assert_eq!(of("tunedModels/t:generateContent", "{}"), (true, bucket("tunedModels/t"), 1));
        let batch = r#"{"requests":[{},{},{}]}"#;
        assert_eq!(of("models/e:batchEmbedContents", batch), (true, bucket("e"), 3));
        assert_eq!(of("models/m:countTokens", "{}"), (false, bucket("api:countTokens"), 1));
        assert_eq!(of("models/m", ""), (false, bucket("api:models"), 1));
        assert_eq!(
            of("fileSearchStores/s:importFile", "{}"),
            (false, bucket("api:fileSearchStores"), 1)
        );
        assert_eq!(of("/upload/v1beta/files", ""), (false, bucket("api:files"), 1));
        let chat = r#"{"model":"models/m"}"#;
        assert_eq!(of("/v1beta/openai/chat/completions", chat), (true, bucket("m"), 1));
        assert_eq!(of("/v1beta/interactions", chat), (true, bucket("m"), 1));
        assert_eq!(of("chat/completions", "no JSON"), (false, bucket("api:chat"), 1));
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
        ] {
            let call = Call::post(path, "{}").with_query("alt", "sse");
            let other = asking(&call, model);
            assert_eq!((other.path.as_str(), &other.query), (expected, &call.query));
        }
    }
}
