//! Answers in JSON, as values of the caller's own types.

#[cfg(feature = "schemars")]
mod schema;

use std::{fmt, future::IntoFuture, marker::PhantomData, ops::Deref, sync::Arc};

use futures_util::future::BoxFuture;
use keywheel_provider::api::{FinishReason, GenerateRequest, Json};
use serde::de::DeserializeOwned;

use crate::{
    Error, Gemini, Reply,
    gemini::{CallOptions, bare, call_options, fallback_options},
};

impl Gemini {
    /// An answer of `model` as a `T`, by the JSON schema of `T`.
    ///
    /// Reduced to what Gemini understands of JSON schema
    /// (<https://ai.google.dev/gemini-api/docs/structured-output>): documentation comments become descriptions, bounds
    /// of numbers and lengths of lists are kept, patterns and the like are left out. Fields are asked for in the
    /// order of their declaration, optional ones last. A field that leads back to its own type cannot be required, so
    /// give it `#[serde(default)]`. Needs the feature `schemars`, which is on by default, and
    /// the crate `schemars` 1 for its derive.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::text(r#"{"name":"Pancakes","minutes":20}"#));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Recipe {
    ///     name: String,
    ///     /// From start to table.
    ///     minutes: u32,
    /// }
    ///
    /// let recipe = gemini.generate_json::<Recipe>("gemini-3.5-flash-lite", "A quick breakfast").await?;
    /// assert_eq!((&*recipe.name, recipe.minutes), ("Pancakes", 20));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`generate_with_schema`](Self::generate_with_schema).
    ///
    /// # Cancel safety
    /// As [`generate`](Self::generate).
    #[cfg(feature = "schemars")]
    pub fn generate_json<T: DeserializeOwned + schemars::JsonSchema>(
        &self,
        model: impl Into<Arc<str>>,
        request: impl Into<GenerateRequest>,
    ) -> GenerateJson<T> {
        let ordered = self.inner.upstream.dialect() == keywheel_provider::Dialect::Gemini;
        self.generate_with_schema(model, request, schema::of::<T>(ordered))
    }

    /// The same by a JSON schema of the caller's own, sent as it is. `T` may be any type that such JSON can be read
    /// as: `serde_json::Value` takes everything.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::text(r#"["red","green"]"#));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// use serde_json::json;
    ///
    /// let schema = json!({"type": "array", "items": {"type": "string"}});
    /// let colours = gemini
    ///     .generate_with_schema::<Vec<String>>("gemini-3.5-flash-lite", "Two colours", schema)
    ///     .await?;
    /// assert_eq!(*colours, ["red", "green"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongShape`] for an answer that is no `T`: it holds the text, and says whether it was cut at the
    /// limit of tokens. Others as [`generate`](Self::generate).
    ///
    /// # Cancel safety
    /// As [`generate`](Self::generate).
    pub fn generate_with_schema<T: DeserializeOwned>(
        &self,
        model: impl Into<Arc<str>>,
        request: impl Into<GenerateRequest>,
        schema: impl Into<Json>,
    ) -> GenerateJson<T> {
        let mut request = request.into();
        let config = request.config();
        config.response_mime_type = Some("application/json".to_owned());
        config.response_json_schema = Some(schema.into());
        // The API takes one of the two.
        config.response_schema = None;
        GenerateJson {
            gemini: self.clone(),
            model: bare(model.into()),
            request,
            options: self.options(),
            answer: PhantomData,
        }
    }
}

/// A call for a `T` that has not begun: see [`Gemini::generate_with_schema`].
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.reply(Scripted::text(r#"["red","green"]"#));
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script.clone()))
/// #     .build()
/// #     .await?;
/// use keywheel::json::GenerateJson;
/// use serde_json::json;
///
/// let schema = json!({"type": "array", "items": {"type": "string"}});
/// let call: GenerateJson<Vec<String>> =
///     gemini.generate_with_schema("gemini-3.5-flash-lite", "Two colours", schema);
/// let colours = call.without_fallback().no_deadline().await?;
/// assert_eq!(colours.len(), 2);
/// assert_eq!(colours.into_value(), ["red", "green"]);
/// # Ok(())
/// # }
/// ```
#[must_use = "a call does nothing until it is awaited"]
pub struct GenerateJson<T> {
    gemini: Gemini,
    model: Arc<str>,
    request: GenerateRequest,
    options: CallOptions,
    answer: PhantomData<fn() -> T>,
}

call_options!(GenerateJson<T>);
fallback_options!(GenerateJson<T>);

impl<T: DeserializeOwned + Send + 'static> IntoFuture for GenerateJson<T> {
    type Output = Result<Typed<T>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let call = self.gemini.generate(self.model, self.request).with_options(self.options);
        Box::pin(async move { typed(call.await?) })
    }
}

impl<T> fmt::Debug for GenerateJson<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateJson")
            .field("model", &self.model)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// An answer as a `T`, and the reply it was read from. Dereferences to the `T`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Typed<T> {
    /// The answer.
    pub value: T,
    /// The reply, with what it cost and what was tried.
    pub reply: Reply,
}

impl<T> Typed<T> {
    /// Takes the answer out.
    #[must_use]
    pub fn into_value(self) -> T {
        self.value
    }
}

impl<T> Deref for Typed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

fn typed<T: DeserializeOwned>(reply: Reply) -> Result<Typed<T>, Error> {
    let fault = match serde_json::from_str(unfenced(&reply.text())) {
        Ok(value) => return Ok(Typed { value, reply }),
        Err(fault) => fault,
    };
    if let Some(exhausted) = reply.degraded() {
        // The callback has no answer of this form: that nobody could serve is the truth of it.
        let (exhausted, attempts) = (Box::new(exhausted.clone()), reply.attempts().to_vec());
        return Err(Error::Exhausted { exhausted, attempts, skipped: Vec::new() });
    }
    let finish_reason = reply.finish_reason();
    let reason = match (&finish_reason, reply.block_reason()) {
        (_, Some(block)) => format!("the prompt was blocked ({block}), so there is no answer"),
        (Some(FinishReason::MaxTokens), _) => {
            "the answer was cut at the limit of output tokens, thinking included, so it is no whole JSON"
                .to_owned()
        }
        (Some(other), _) if *other != FinishReason::Stop => {
            format!("the answer ended for {other}, and is not of the form asked for: {fault}")
        }
        _ => format!("the answer is not of the form asked for: {fault}"),
    };
    let (text, attempts) = (reply.text().into_owned(), reply.attempts().to_vec());
    Err(Error::WrongShape { reason, text, finish_reason, attempts })
}

/// The JSON inside a Markdown fence, which some models put around it all the same, with words before and after.
fn unfenced(text: &str) -> &str {
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.starts_with(['{', '[', '"']) {
        return text;
    }
    let fence = if text.starts_with("```") { Some(0) } else { text.find("\n```").map(|at| at + 1) };
    let Some(at) = fence else { return text };
    let inside = text[at..].trim_start_matches('`');
    let inside = inside.rsplit_once("```").map_or(inside, |(inside, _)| inside);
    let json = match inside.split_at_checked(4) {
        Some((word, json)) if word.eq_ignore_ascii_case("json") => json,
        _ => inside,
    };
    json.trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_around_json_is_taken_off() {
        assert_eq!(unfenced("```json\n[1]\n```\n"), "[1]");
        assert_eq!(unfenced("```\n[1]\n```"), "[1]");
        assert_eq!(unfenced(" \"```json\" "), "\"```json\"");
    }
}
