//! What a raw call draws on, what it may cost and what may be done with it: by its path and its body.

use std::{borrow::Cow, sync::Arc};

use http::HeaderMap;
use keywheel_pool::Ask;
use keywheel_provider::{api::TokenCount, upstream::Call};
use tokio::sync::OnceCell;

use super::target::{Target, asking, bare_name};
use crate::{
    Error,
    attempt::{Expected, work::is_route},
    calls::{self, owner, simple::absent},
    charging::{Bill, BuildsOn, bounded, longest_answer},
    gemini::{CallOptions, Inner, bare},
    sketch::{Shape, Sketch},
};

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

/// What is known of a call's body once it has been looked at: once, however often the call is tried.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    sketch: OnceCell<Arc<Sketch>>,
    /// Input tokens by the provider's own count, files and caches included.
    counted: OnceCell<u64>,
}

impl Looked {
    /// The sketch of `call`'s body. Of what is no request to a model nothing is looked at.
    ///
    /// # Errors
    /// The body is in a file that cannot be read.
    pub(crate) async fn sketch(&self, call: &Call) -> Result<Arc<Sketch>, Error> {
        let look = || async {
            let target = Target::of(call);
            if call.body.is_empty() || target.is_opaque() {
                return Ok(Arc::default());
            }
            Sketch::of(target.shape(), &call.body).await.map(Arc::new)
        };
        let sketch = self.sketch.get_or_try_init(look).await;
        let sketch = sketch.map_err(|error| {
            Error::Setting(format!("the body of the call cannot be read: {error}"))
        })?;
        Ok(Arc::clone(sketch))
    }

    /// Asks the provider how many tokens `call` has; once, however often it is tried.
    async fn count(
        &self,
        inner: &Inner,
        call: &Call,
        model: &Arc<str>,
        sketch: &Sketch,
        options: CallOptions,
    ) -> Result<TokenCount, Error> {
        let count = || async {
            let full = if model.contains('/') {
                model.as_ref().to_owned()
            } else {
                format!("models/{model}")
            };
            let body = match Target::of(call).shape() {
                Shape::Generate => sketch.counting(&call.body, &full),
                _ => None,
            };
            let body = body.ok_or_else(|| absent(inner, "way to count the tokens of this call"))?;
            let asked = asking(call, model, Some("countTokens"));
            let call = Call { query: Vec::new(), headers: HeaderMap::new(), body, ..asked };
            let count = calls::count(inner, Arc::clone(model), call, options).await?;
            Ok::<_, Error>(count.total_tokens)
        };
        let total_tokens = *self.counted.get_or_try_init(count).await?;
        Ok(TokenCount { total_tokens, ..TokenCount::default() })
    }
}

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
    /// A stream is asked for, in whichever dialect.
    pub(crate) asks_for_stream: bool,
    /// What it does, in OpenTelemetry's words.
    pub(crate) operation: Cow<'static, str>,
    /// The longest answer that is to be set into it.
    pub(crate) cap: Option<u64>,
    pub(crate) sketch: Arc<Sketch>,
}

impl Plan {
    /// Looks at `call`, and binds it to the owner of what it names; also `options` with what is left of its time. With
    /// `caps`, an answer without a limit gets the account's longest one.
    ///
    /// # Errors
    /// [`Error::MixedOwners`]: no key could do it. [`Error::Setting`]: its body cannot be read.
    pub(crate) async fn of(
        inner: &Inner,
        call: &Call,
        said: &Said,
        looked: &Looked,
        mut options: CallOptions,
        caps: bool,
    ) -> Result<(Self, CallOptions), Error> {
        let target = Target::of(call);
        let sketch = looked.sketch(call).await?;
        let model = target.model.map(bare_name).or_else(|| {
            let named = sketch.model.as_deref().filter(|_| target.names_model_in_body());
            named.map(|model| bare(model.into()))
        });
        let bucket = match (&said.bucket, &model) {
            (Some(bucket), _) | (None, Some(bucket)) => Arc::clone(bucket),
            (None, None) => target.route(),
        };
        if options.owner.is_none() {
            if let Some(name) = target.owned()
                && let Some(owner) = inner.owners.owner(&name).await
            {
                options = owner::owned(options, owner);
            } else if !sketch.names.is_empty() {
                options = owner::bind_to_names(inner, sketch.names.clone(), options).await?;
            }
        }
        let mut ask = Ask::new(Arc::clone(&bucket));
        if model.is_some() || said.bucket.is_some() {
            // Nothing that a model reads is free, be it in words that nobody here knows.
            ask = ask.with_tokens(sketch.input_tokens.max(1));
        }
        ask.tokens = said.tokens.unwrap_or(ask.tokens);
        ask.tools = sketch.uses_tools;
        ask = ask.with_requests(said.requests.unwrap_or_else(|| {
            let weight = |texts| inner.upstream.provider().embed_weight(texts);
            sketch.texts.map_or(1, |texts| u32::try_from(weight(texts)).unwrap_or(u32::MAX))
        }));
        let unlimited = target.is_limited() && sketch.is_json && sketch.max_output.is_none();
        let cap = match said.fixed_charge {
            None if caps && unlimited && model.is_some() => {
                longest_answer(inner, &bucket, &options)
            }
            _ => None,
        };
        let bill = match said.fixed_charge {
            // As output, since estimates of input are corrected by what was seen of the model.
            Some(tokens) => Some(Bill { input: 0, output: Some(tokens), candidates: 1 }),
            None if is_route(&bucket) => None,
            None => {
                let output = cap.or(sketch.max_output);
                let output = if target.makes_vectors() { Some(0) } else { output };
                let bill = Bill { input: ask.tokens, output, candidates: sketch.candidates.max(1) };
                let builds_on =
                    BuildsOn { whatever: sketch.reads, names: !sketch.names.is_empty() };
                let count =
                    |options| Box::pin(looked.count(inner, call, &bucket, &sketch, options));
                let (bill, left) = bounded(inner, &bucket, bill, builds_on, options, count).await;
                options = left;
                Some(bill)
            }
        };
        let of_the_model = model.as_ref() == Some(&bucket) && sketch.cached_content.is_none();
        let plan = Self {
            ask,
            bill,
            is_repeatable: said.retry_safe || target.is_repeatable(&call.method),
            may_change_model: of_the_model && target.is_answer(),
            expected: Expected {
                is_stream: target.verb == "streamGenerateContent",
                is_answer: target.is_answer(),
            },
            asks_for_stream: target.verb == "streamGenerateContent" || sketch.stream,
            operation: target.operation(),
            cap,
            sketch,
        };
        Ok((plan, options))
    }

    /// What is sent to ask `model`, which is another one than `call` names if it is `Some`.
    pub(crate) fn sent(&self, call: &Call, model: Option<&str>) -> Call {
        let mut sent = match model {
            Some(model) => asking(call, model, None),
            None => call.clone(),
        };
        if self.cap.is_some() || model.is_some() {
            sent.body = self.sketch.with(&call.body, model, self.cap);
        }
        sent
    }
}
