//! Which models there are, and how many tokens a request has: calls that cost no quota of a model.

use std::sync::Arc;

use keywheel_provider::{
    api::{GenerateRequest, Model, ModelList, TokenCount},
    upstream::Call,
};

use super::{
    Pending, end_ms, owner,
    pages::Pages,
    simple::{Simple, absent, setting},
    within,
};
use crate::{
    Error, Gemini,
    attempt::perform,
    gemini::{CallOptions, Inner, bare},
};

impl Gemini {
    /// How many tokens `request` has for `model`: system instruction, tools and media included.
    ///
    /// Draws on no quota of the model, and costs nothing
    /// (<https://ai.google.dev/gemini-api/docs/tokens#count-tokens>). A spent model can be asked.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::json(200, r#"{"totalTokens":3}"#));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// let count = gemini.count_tokens("gemini-3.5-flash-lite", "Say hello").await?;
    /// assert_eq!(count.total_tokens, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`generate`](Self::generate); [`Error::Setting`] if the provider cannot count, as OpenAI-compatible ones.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub fn count_tokens(
        &self,
        model: impl Into<Arc<str>>,
        request: impl Into<GenerateRequest>,
    ) -> Pending<TokenCount> {
        let (model, request) = (bare(model.into()), request.into());
        Pending::new(self, move |inner, options| async move {
            let options = owner::bind(&inner, &request, options).await?;
            count_tokens(&inner, model, &request, options).await
        })
    }

    /// Every model there is, as the provider tells it; all pages of the list.
    ///
    /// Costs no quota (<https://ai.google.dev/gemini-api/docs/billing>).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::json(200, r#"{"models":[{"name":"models/a"}],"nextPageToken":"2"}"#));
    /// # script.reply(Scripted::json(200, r#"{"models":[{"name":"models/b"}]}"#));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// let models = gemini.models().await?;
    /// assert_eq!(models.iter().map(|model| &*model.name).collect::<Vec<_>>(), ["models/a", "models/b"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub fn models(&self) -> Pending<Vec<Model>> {
        Pending::new(self, |inner, options| async move { models(&inner, &options).await })
    }

    /// What is known of one model: how long prompts and answers may be, what it can do.
    ///
    /// Costs no quota.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::json(200, r#"{"name":"models/m","outputTokenLimit":65536}"#));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// assert_eq!(gemini.model("m").await?.output_token_limit, Some(65_536));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`generate`](Self::generate); [`Error::Rejected`] for one that does not exist.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub fn model(&self, name: impl Into<Arc<str>>) -> Pending<Model> {
        let name = bare(name.into());
        Pending::new(self, move |inner, options| async move {
            let call = inner.upstream.provider().model(&name).map_err(setting)?;
            let work = Simple::new("models", call, |provider, body| provider.read_model(body));
            let model = perform(&inner, Arc::clone(&name), &work, &options).await?.answer;
            inner.facts.learn(&name, &model);
            Ok(model)
        })
    }
}

/// How many tokens `request` has, which is bound to whom it has to be.
pub(crate) async fn count_tokens(
    inner: &Inner,
    model: Arc<str>,
    request: &GenerateRequest,
    options: CallOptions,
) -> Result<TokenCount, Error> {
    let call = inner.upstream.provider().count_tokens(&model, request).map_err(setting)?;
    let call = call.ok_or_else(|| absent(inner, "way to count tokens"))?;
    count(inner, model, call, options).await
}

/// Asks by `call` how many tokens a request has.
pub(super) async fn count(
    inner: &Inner,
    model: Arc<str>,
    call: Call,
    options: CallOptions,
) -> Result<TokenCount, Error> {
    let work = Simple::new("countTokens", call, |provider, body| provider.read_count(body));
    Ok(perform(inner, model, &work, &options).await?.answer)
}

async fn models(inner: &Inner, options: &CallOptions) -> Result<Vec<Model>, Error> {
    let clock = &*inner.clock;
    let end_ms = end_ms(clock, options);
    let (mut all, mut pages, mut page) = (Vec::new(), Pages::default(), None::<String>);
    loop {
        let call = inner.upstream.provider().models(page.as_deref());
        let work = Simple::new("models", call, |provider, body| provider.read_models(body));
        let options = within(clock, options, end_ms);
        let list: ModelList = perform(inner, "".into(), &work, &options).await?.answer;
        for model in list.models {
            inner.facts.learn(&bare(model.name.as_str().into()), &model);
            all.push(model);
        }
        page = pages.next(list.next_page_token)?;
        if page.is_none() {
            return Ok(all);
        }
    }
}
