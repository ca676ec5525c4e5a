//! Any call of the API by its path: the door to everything that has no method here.

use std::{future::IntoFuture, sync::Arc};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use keywheel_core::{Usage, estimate};
use keywheel_pool::Ask;
use keywheel_provider::{
    Sent, WireResponse,
    api::GenerateRequest,
    sse::SseDecoder,
    upstream::{CallError, Upstream},
};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};

pub use keywheel_provider::upstream::Call;

use super::{owner, simple::is_error};
use crate::{
    Attempt, Error, Gemini,
    attempt::{
        perform,
        work::{Brought, Sight, Work, is_route, route},
    },
    charging::{self, Bill},
    gemini::{CallOptions, Inner, bare, call_options},
    weigh::input_tokens,
};

/// The most of an answer that is read.
const MAX_ANSWER: usize = 256 << 20;

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

impl Gemini {
    /// Any call of the API, as it is: with failover, and counted like all others. The whole reply is read.
    ///
    /// What it draws on is told by its path: `models/x:verb` the quota of `x`, anything else a bucket of its own
    /// that knows no limit but what replies say. See [`Raw::bucket`], [`Raw::requests`], [`Raw::tokens`] to say
    /// otherwise.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::json(200, r#"{"predictions":[{}]}"#));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// use keywheel::raw::Call;
    ///
    /// let body = r#"{"instances":[{"prompt":"a lighthouse"}]}"#;
    /// let reply = gemini.send(Call::post("models/imagen-4:predict", body)).await?;
    /// assert_eq!(reply.status, 200);
    /// let answer: serde_json::Value = reply.json()?;
    /// assert!(answer["predictions"].is_array());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Rejected`] with the body as it came, for what is the request's fault; others as
    /// [`generate`](Self::generate). [`Error::UpstreamDown`] at once when a call that may not be done twice was cut.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request. What was sent may have been done all the same.
    pub fn send(&self, call: Call) -> Raw {
        Raw {
            gemini: self.clone(),
            call,
            bucket: None,
            requests: None,
            tokens: None,
            retry_safe: false,
            options: self.options(),
        }
    }
}

/// A call that has not begun: see [`Gemini::send`].
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.reply(Scripted::json(200, r#"{"name":"operations/1"}"#));
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script.clone()))
/// #     .build()
/// #     .await?;
/// use keywheel::raw::Call;
///
/// let reply = gemini
///     .send(Call::post("tunedModels/mine:predictLongRunning", "{}"))
///     .bucket("veo-3") // whose quota it draws on
///     .requests(2)
///     .tokens(100)
///     .retry_safe() // twice does no harm
///     .await?;
/// assert_eq!(reply.json::<serde_json::Value>()?["name"], "operations/1");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Raw {
    gemini: Gemini,
    call: Call,
    bucket: Option<Arc<str>>,
    requests: Option<u32>,
    tokens: Option<u64>,
    retry_safe: bool,
    options: CallOptions,
}

call_options!(Raw);

impl Raw {
    /// The model whose quota it draws on. Defaults to the one in its path, or in the body of an OpenAI-style call or of an
    /// interaction.
    pub fn bucket(mut self, model: impl Into<Arc<str>>) -> Self {
        self.bucket = Some(bare(model.into()));
        self
    }

    /// How many requests of the quota it counts as. Defaults to 1, and to one for each text of a
    /// `batchEmbedContents`, and of an OpenAI-style call for vectors at Google.
    pub const fn requests(mut self, requests: u32) -> Self {
        self.requests = Some(requests);
        self
    }

    /// How many input tokens it counts as. Defaults to an estimate of its body, for calls of a model.
    pub const fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// The one quota project whose keys can do it. Defaults to the owner of the files and the cache that its path and
    /// its body name, where they are known, else to any.
    pub fn owner(mut self, quota_project: impl Into<Arc<str>>) -> Self {
        self.options.owner = Some(quota_project.into());
        self
    }

    /// Says that it may be done twice, so that it is tried again after a cut or a 5xx. Defaults to what its method
    /// says: yes for `GET`, `PUT` and `DELETE`, and for those `POST`s that only ask a model.
    pub const fn retry_safe(mut self) -> Self {
        self.retry_safe = true;
        self
    }
}

impl IntoFuture for Raw {
    type Output = Result<RawReply, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let inner = Arc::clone(&self.gemini.inner);
        Box::pin(async move { send(&inner, self).await })
    }
}

/// A reply as it came.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RawReply {
    /// The HTTP status, a success.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Whose key was used: what the call made belongs to that quota project.
    pub quota_project: String,
    /// Every attempt in order; the last one served.
    pub attempts: Vec<Attempt>,
}

impl RawReply {
    /// The body as a `T`.
    ///
    /// # Errors
    /// It is no JSON, or JSON of another form.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

async fn send(inner: &Inner, raw: Raw) -> Result<RawReply, Error> {
    let Raw { call, bucket, requests, tokens, retry_safe, mut options, .. } = raw;
    let target = Target::of(&call);
    let is_repeatable = retry_safe || target.is_repeatable(&call.method);
    let bucket = bucket.unwrap_or_else(|| target.bucket());
    let mut ask = Ask::new(Arc::clone(&bucket));
    let mut bill = None;
    if let (None, Some(name)) = (&options.owner, &target.owned)
        && let Some(owner) = inner.owners.owner(name).await
    {
        options = owner::owned(options, owner);
    }
    if let Some(request) = target.request(&call.body) {
        if options.owner.is_none() {
            options = owner::bind(inner, &request, options).await?;
        }
        let (of_it, left) = charging::bill(inner, &bucket, &request, options).await;
        (bill, options) = (Some(of_it), left);
        ask = ask.with_tokens(input_tokens(&request));
        ask.tools = request.uses_tools();
    } else if target.model.is_some() && !call.body.is_empty() {
        ask = ask.with_tokens(estimate::tokens(&String::from_utf8_lossy(&call.body)));
    }
    ask = ask.with_requests(requests.unwrap_or_else(|| {
        let texts = target.texts(&call.body);
        let weight = |texts| inner.upstream.provider().embed_weight(texts);
        texts.map_or(1, |texts| u32::try_from(weight(texts)).unwrap_or(u32::MAX))
    }));
    ask.tokens = tokens.unwrap_or(ask.tokens);
    let bill = bill.unwrap_or_else(|| target.bill(&call.body));
    let bill = Bill { input: bill.input.max(ask.tokens), ..bill };
    let work = Sending { call, ask, bill, is_repeatable };
    let done = perform(inner, bucket, &work, &options).await?;
    let Answer { status, headers, body } = done.answer;
    let quota_project = done.quota_project.as_ref().to_owned();
    Ok(RawReply { status, headers, body, quota_project, attempts: done.attempts })
}

/// What a path says of a call.
#[derive(Debug, PartialEq, Eq)]
struct Target {
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
            target.model = named_model(&call.body).map(bare);
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

/// `v1`, `v1beta`, `v1alpha`.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

struct Sending {
    call: Call,
    ask: Ask,
    bill: Bill,
    is_repeatable: bool,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Work for Sending {
    type Answer = Answer;

    fn ask(&self, _model: &Arc<str>) -> Ask {
        self.ask.clone()
    }

    fn call(&self, _upstream: &Upstream, _model: &str) -> Result<Call, CallError> {
        Ok(self.call.clone())
    }

    async fn read(&self, sight: &Sight<'_>, response: WireResponse) -> Brought<Answer> {
        let (status, headers) = (response.status, response.headers.clone());
        let body = match response.bytes(MAX_ANSWER).await {
            Ok(body) => body,
            Err(error) => {
                let reason = error.to_string();
                return Brought::Nothing { sent: Sent::Maybe, status: Some(status), reason };
            }
        };
        if is_error(&body)
            && let Some(refused) = sight.refused(status, &headers, &body)
        {
            return Brought::Refused { status, body, refused };
        }
        Brought::Answer(Answer { status, headers, body })
    }

    fn bill(&self, ask: &Ask) -> Option<Bill> {
        (!is_route(&ask.model)).then_some(self.bill)
    }

    fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    fn usage(&self, answer: &Answer) -> Option<Usage> {
        if is_event_stream(&answer.headers) {
            return usage_of_events(&answer.body);
        }
        Usage::from_json(&serde_json::from_slice(&answer.body).ok()?)
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.get(..EVENTS.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(EVENTS))
}

/// What a stream that was read whole says it used.
fn usage_of_events(body: &[u8]) -> Option<Usage> {
    let mut decoder = SseDecoder::new();
    decoder.push(body);
    decoder.finish();
    let mut seen = None;
    while let Ok(Some(frame)) = decoder.next_frame() {
        let event = serde_json::from_slice(&frame.data);
        Usage::take_last(&mut seen, event.ok().and_then(|event| Usage::from_json(&event)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str, body: &'static str) -> (Option<String>, String, Option<usize>) {
        let call = Call::post(path, body);
        let target = Target::of(&call);
        let model = target.model.as_deref().map(str::to_owned);
        (model, target.bucket().as_ref().to_owned(), target.texts(&call.body))
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
}
