//! Long prompts that are kept for several requests.
//!
//! A cache belongs to the quota project whose key made it; requests that name it
//! ([`cached_content`](crate::GenerateRequest::cached_content)) are sent with a key of that project. The free tier
//! has no room for caches with most models: making one is [`Error::Exhausted`] then, without a moment of return.

use keywheel_provider::{api::CachedContentList, upstream::Call};

pub use keywheel_provider::api::{CacheExpiry as Expiry, CachedContent};

use super::{
    Pending,
    owner::{Listing, Page, ask_owner, bind_to},
    simple::{Simple, json, nothing, only_gemini, setting},
};
use crate::{
    Error, Gemini,
    attempt::perform,
    gemini::{CallOptions, Inner, bare},
};

/// The route that all of this draws on.
const ROUTE: &str = "cachedContents";

/// The most caches of a page of a list.
const PAGE: u32 = 1_000;

/// The list of them.
const ALL: Listing<CachedContent> = Listing {
    route: ROUTE,
    call: |token| Call::caches_page(token, Some(PAGE)),
    read: |provider, body| {
        let CachedContentList { cached_contents, next_page_token, .. } = json(provider, body)?;
        Ok(Page { items: cached_contents, next: next_page_token })
    },
};

impl Gemini {
    /// Cached contents: to make, to look at, to keep for longer, to delete.
    ///
    /// ```no_run
    /// # async fn run(gemini: keywheel::Gemini, book: String) -> Result<(), keywheel::Error> {
    /// use keywheel::{GenerateRequest, caches::CachedContent};
    ///
    /// let cache = gemini.caches().create(CachedContent::new("gemini-3.5-flash", [book])).await?;
    /// let mut question = GenerateRequest::from("Who is the murderer?");
    /// question.cached_content = cache.name;
    /// let reply = gemini.generate("gemini-3.5-flash", question).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn caches(&self) -> Caches {
        Caches { gemini: self.clone() }
    }
}

/// The caches of all quota projects of the pool, made by [`Gemini::caches`].
///
/// Only Gemini's own API has caches: with another provider every call is [`Error::Setting`].
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.reply(Scripted::json(200, r#"{"cachedContents":[{"name":"cachedContents/a"}]}"#));
/// # for _ in 0..2 {
/// #     script.reply(Scripted::json(200, r#"{"name":"cachedContents/a"}"#));
/// # }
/// # script.reply(Scripted::json(200, "{}"));
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script))
/// #     .build()
/// #     .await?;
/// use std::time::Duration;
/// use keywheel::caches::Expiry;
///
/// let caches = gemini.caches();
/// for cache in caches.list().await? {
///     let name = cache.name.unwrap_or_default();
///     println!("{name} ends at {:?}", caches.get(&name).await?.expires_at());
///     caches.update(&name, Expiry::After(Duration::from_secs(3_600))).await?;
///     caches.delete(&name).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "it is a handle, and does nothing by itself"]
pub struct Caches {
    gemini: Gemini,
}

impl Caches {
    /// Makes a cache. Not tried again once the provider may have made one.
    ///
    /// # Errors
    /// As [`Gemini::generate`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the request. The cache may be there all the same, until it expires.
    pub fn create(&self, cache: CachedContent) -> Pending<CachedContent> {
        Pending::new(
            &self.gemini,
            |inner, options| async move { create(&inner, &cache, options).await },
        )
    }

    /// What is known of a cache, by its name (`cachedContents/x` or `x`). The API does not send back what it holds.
    ///
    /// # Errors
    /// [`Error::Rejected`] if it does not exist, or belongs to somebody else: the API does not tell which.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub fn get(&self, name: impl AsRef<str>) -> Pending<CachedContent> {
        self.one(Call::cache(name.as_ref()).map_err(setting))
    }

    /// Changes how long a cache is kept.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    /// Dropping the future ends the request. It may have been changed all the same.
    pub fn update(&self, name: impl AsRef<str>, expiry: Expiry) -> Pending<CachedContent> {
        self.one(Call::update_cache(name.as_ref(), expiry).map_err(setting))
    }

    /// Deletes a cache.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    /// Dropping the future ends the request. The cache may be gone all the same.
    pub fn delete(&self, name: impl AsRef<str>) -> Pending<()> {
        let call = Call::delete_cache(name.as_ref()).map_err(setting);
        Pending::new(&self.gemini, |inner, options| async move {
            only_gemini(&inner, "caches")?;
            let call = call?;
            let name = call.path.clone();
            ask_owner(&inner, &name, &Simple::new(ROUTE, call, nothing), options).await?;
            if let Err(error) = inner.owners.forget(&name).await {
                tracing::debug!(name, %error, "a cache that is gone is still remembered");
            }
            Ok(())
        })
    }

    /// All caches of all quota projects that have a key in use.
    ///
    /// # Errors
    /// As [`Gemini::generate`], if not one project's caches can be listed.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub fn list(&self) -> Pending<Vec<CachedContent>> {
        Pending::new(&self.gemini, |inner, options| async move { list(&inner, options).await })
    }

    fn one(&self, call: Result<Call, Error>) -> Pending<CachedContent> {
        Pending::new(&self.gemini, |inner, options| async move {
            only_gemini(&inner, "caches")?;
            let call = call?;
            let name = call.path.clone();
            let work = Simple::new(ROUTE, call, json::<CachedContent>);
            let done = ask_owner(&inner, &name, &work, options).await?;
            remember(&inner, &done.answer, &done.quota_project).await;
            Ok(done.answer)
        })
    }
}

async fn create(
    inner: &Inner,
    cache: &CachedContent,
    options: CallOptions,
) -> Result<CachedContent, Error> {
    only_gemini(inner, "caches")?;
    let contents = cache.contents.iter().chain(&cache.system_instruction);
    let options = bind_to(inner, contents, None, options).await?;
    let call = Call::create_cache(cache).map_err(setting)?;
    let model = bare(cache.model.as_deref().unwrap_or_default().into());
    // A bucket for each model: that one has no room for caches says nothing of another.
    let work = Simple::new(&format!("{ROUTE}:{model}"), call, json::<CachedContent>).once();
    let done = perform(inner, model, &work, &options).await?;
    remember(inner, &done.answer, &done.quota_project).await;
    Ok(done.answer)
}

async fn list(inner: &Inner, options: CallOptions) -> Result<Vec<CachedContent>, Error> {
    only_gemini(inner, "caches")?;
    let mut caches = Vec::new();
    for (project, cache) in ALL.of_everybody(inner, &options).await? {
        if let Some(name) = &cache.name
            && inner.owners.owner(name).await.is_none()
        {
            remember(inner, &cache, &project).await;
        }
        caches.push(cache);
    }
    Ok(caches)
}

/// Remembers who made `cache`, and until when it is kept.
async fn remember(inner: &Inner, cache: &CachedContent, quota_project: &str) {
    let Some(name) = &cache.name else { return };
    if let Err(error) = inner.owners.record(name, quota_project, cache.expires_at()).await {
        tracing::warn!(name, %error, "who made this cache is known to this process only");
    }
}
