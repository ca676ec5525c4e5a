//! Replies in the shapes of real ones.

use std::time::Duration;

use http::{HeaderName, HeaderValue, header::RETRY_AFTER};
use serde_json::{Value, json};

use super::Scripted;

/// Gemini's.
impl Scripted {
    /// A whole answer of the model with some usage: 8 tokens in, one out for each word.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::json(200, answer(&json!([{ "text": text }]), text, Some("STOP")).to_string())
    }

    /// The same as a stream with one event for each of `texts`.
    #[must_use]
    pub fn stream<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::events(with_last(texts).map(|(text, last)| {
            answer(&json!([{ "text": text }]), text, last.then_some("STOP")).to_string()
        }))
    }

    /// An answer that calls one function.
    ///
    /// ```
    /// use keywheel_provider::testing::Scripted;
    ///
    /// let reply = Scripted::function_call("weather", &serde_json::json!({"city": "Oslo"}));
    /// ```
    #[must_use]
    pub fn function_call(name: &str, args: &Value) -> Self {
        let call = json!([{ "functionCall": { "name": name, "args": args } }]);
        Self::json(200, answer(&call, "", Some("STOP")).to_string())
    }

    /// The vectors of a batch: one for each text that was sent.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use keywheel_core::ApiKey;
    /// use keywheel_provider::testing::{Script, Scripted};
    /// use keywheel_provider::upstream::Upstream;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let script = Script::new();
    /// script.reply(Scripted::embeddings([[0.6, 0.8], [1.0, 0.0]]));
    /// script.reply(Scripted::token_count(31));
    ///
    /// let upstream = Upstream::google(Arc::new(script));
    /// let provider = upstream.provider();
    /// let key = ApiKey::new("AQ.EXAMPLE-key")?;
    /// let call = provider.embed("gemini-embedding-001", &["a".into(), "b".into()])?;
    /// let vectors = upstream.call(&key, &call).await?.bytes(1 << 20).await?;
    /// assert_eq!(provider.read_embeddings(&vectors)?.embeddings[1].values, [1.0, 0.0]);
    ///
    /// let call = provider.count_tokens("gemini-3.5-flash", &"Say hello".into())?;
    /// let count = upstream.call(&key, &call.expect("Gemini counts")).await?.bytes(1 << 20).await?;
    /// assert_eq!(provider.read_count(&count)?.total_tokens, 31);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn embeddings<V: AsRef<[f32]>>(vectors: impl IntoIterator<Item = V>) -> Self {
        let values = |vector: V| json!({ "values": vector.as_ref() });
        let vectors: Vec<_> = vectors.into_iter().map(values).collect();
        Self::json(200, json!({ "embeddings": vectors }).to_string())
    }

    /// The answer of `countTokens`.
    #[must_use]
    pub fn token_count(tokens: u64) -> Self {
        Self::json(200, json!({ "totalTokens": tokens }).to_string())
    }

    /// The model's requests of the day are spent. The delay that Google states with it means nothing.
    #[must_use]
    pub fn day_spent(limit: u64) -> Self {
        quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier", limit, Duration::from_secs(36))
    }

    /// The model's requests of the minute are spent, for so long.
    #[must_use]
    pub fn minute_full(limit: u64, wait: Duration) -> Self {
        quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", limit, wait)
    }

    /// The model is busy, whatever the key.
    #[must_use]
    pub fn overloaded() -> Self {
        let message = "This model is currently experiencing high demand. Please try again later.";
        error(503, "UNAVAILABLE", message, &json!([]))
    }

    /// The key is no key. Google says so with 400, not 401.
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use keywheel_core::{ApiKey, Cause};
    /// use keywheel_provider::testing::{Script, Scripted};
    /// use keywheel_provider::upstream::{Call, Upstream};
    /// use keywheel_provider::{Asked, Reply, classify};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let script = Script::new();
    /// let upstream = Upstream::google(Arc::new(script.clone()));
    /// let key = ApiKey::new("AQ.EXAMPLE-key")?;
    /// for (refusal, cause) in [
    ///     (Scripted::invalid_key(), Cause::InvalidKey),
    ///     (Scripted::minute_full(10, Duration::from_secs(7)), Cause::PerMinuteRequests),
    /// ] {
    ///     script.reply(refusal);
    ///     let reply = upstream.call(&key, &Call::models()).await?;
    ///     let (status, headers) = (reply.status, reply.headers.clone());
    ///     let body = reply.bytes(1 << 20).await?;
    ///     let reply = Reply { status, headers: &headers, body: &body };
    ///     let now = "2026-11-30T07:12:03Z".parse()?;
    ///     let verdict = classify(upstream.dialect(), &reply, &Asked::default(), now);
    ///     assert_eq!(verdict.cause(), Some(cause));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn invalid_key() -> Self {
        let info = json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "API_KEY_INVALID",
            "domain": "googleapis.com",
        }]);
        error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", &info)
    }
}

/// Those of OpenAI-compatible providers.
impl Scripted {
    /// A whole answer of the model with some usage: 8 tokens in, one out for each word.
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use futures_util::TryStreamExt as _;
    /// use keywheel_core::ApiKey;
    /// use keywheel_provider::testing::{Script, Scripted};
    /// use keywheel_provider::{OpenAiApi, stream::GenerateStream, upstream::Upstream};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let script = Script::new();
    /// script.reply(Scripted::openai_rate_limited(Duration::from_secs(7)));
    /// script.reply(Scripted::openai_text("Hello"));
    /// script.reply(Scripted::openai_stream(["Hel", "lo"]));
    /// script.reply(Scripted::openai_embeddings([[0.6, 0.8]]));
    ///
    /// let upstream = Upstream::new("https://api.groq.com/openai/v1", Arc::new(script))?
    ///     .with_provider(Arc::new(OpenAiApi::new()));
    /// let provider = upstream.provider();
    /// let key = ApiKey::new("AQ.EXAMPLE-key")?;
    /// let call = provider.generate("llama-3.1-8b-instant", &"Say hello".into())?;
    /// assert_eq!(upstream.call(&key, &call).await?.headers["retry-after"], "7");
    /// let answer = upstream.call(&key, &call).await?.bytes(1 << 20).await?;
    /// assert_eq!(provider.read_answer(&answer)?.text(), "Hello");
    ///
    /// let call = provider.stream("llama-3.1-8b-instant", &"Say hello".into())?;
    /// let stream = GenerateStream::with(provider, upstream.call(&key, &call).await?);
    /// let events: Vec<_> = stream.try_collect().await?;
    /// assert_eq!(events.iter().map(|event| event.text()).collect::<String>(), "Hello");
    ///
    /// let call = provider.embed("nomic-embed-text", &["a".into()])?;
    /// let vectors = upstream.call(&key, &call).await?.bytes(1 << 20).await?;
    /// assert_eq!(provider.read_embeddings(&vectors)?.embeddings[0].values, [0.6, 0.8]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn openai_text(text: &str) -> Self {
        let choice = json!({
            "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": text },
        });
        let completion = json!({
            "id": "chatcmpl-scripted", "object": "chat.completion", "model": "scripted",
            "choices": [choice], "usage": openai_usage(text),
        });
        Self::json(200, completion.to_string())
    }

    /// The same as a stream: a chunk for each of `texts`, one with the reason for the end, one with the usage
    /// of it all, and `[DONE]`.
    #[must_use]
    pub fn openai_stream<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let chunk = |choices: Value, usage: Value| {
            json!({
                "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "model": "scripted",
                "choices": choices, "usage": usage,
            })
            .to_string()
        };
        let says = |delta: Value, reason: Value| {
            chunk(json!([{ "index": 0, "delta": delta, "finish_reason": reason }]), Value::Null)
        };
        let mut whole = String::new();
        let mut events = vec![says(json!({ "role": "assistant", "content": "" }), Value::Null)];
        for text in texts {
            whole.push_str(text);
            events.push(says(json!({ "content": text }), Value::Null));
        }
        events.push(says(json!({}), "stop".into()));
        events.push(chunk(json!([]), openai_usage(&whole)));
        events.push("[DONE]".to_owned());
        Self::events(events)
    }

    /// The vectors of a batch: one for each text that was sent.
    #[must_use]
    pub fn openai_embeddings<V: AsRef<[f32]>>(vectors: impl IntoIterator<Item = V>) -> Self {
        let item = |(index, vector): (usize, V)| json!({ "object": "embedding", "index": index, "embedding": vector.as_ref() });
        let data: Vec<_> = vectors.into_iter().enumerate().map(item).collect();
        Self::json(200, json!({ "object": "list", "model": "scripted", "data": data }).to_string())
    }

    /// The minute's requests are spent, for so long, in whole seconds: as headers and body say it.
    #[must_use]
    pub fn openai_rate_limited(wait: Duration) -> Self {
        let seconds = wait.as_secs();
        let message = format!(
            "Rate limit reached on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try \
             again in {seconds}s."
        );
        let error = json!({
            "message": message, "type": "requests", "param": null, "code": "rate_limit_exceeded",
        });
        let header = |name: &'static str, value: &str| {
            let value = HeaderValue::from_str(value).expect("digits and letters");
            (HeaderName::from_static(name), value)
        };
        [
            header("x-ratelimit-limit-requests", "3"),
            header("x-ratelimit-remaining-requests", "0"),
            header("x-ratelimit-reset-requests", &format!("{seconds}s")),
        ]
        .into_iter()
        .fold(Self::json(429, json!({ "error": error }).to_string()), |reply, (name, value)| {
            reply.header(name, value)
        })
        .header(RETRY_AFTER, HeaderValue::from(seconds))
    }
}

/// Each text, and whether it is the last.
fn with_last<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> impl Iterator<Item = (&'a str, bool)> {
    let mut texts = texts.into_iter().peekable();
    std::iter::from_fn(move || {
        let text = texts.next()?;
        Some((text, texts.peek().is_none()))
    })
}

/// `text` is what is counted as the output.
fn answer(parts: &Value, text: &str, finish_reason: Option<&str>) -> Value {
    let output = words(text);
    let mut candidate = json!({
        "content": { "role": "model", "parts": parts }, "index": 0,
    });
    if let Some(reason) = finish_reason {
        candidate["finishReason"] = reason.into();
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": 8, "candidatesTokenCount": output, "totalTokenCount": 8 + output,
        },
        "modelVersion": "scripted",
    })
}

fn openai_usage(text: &str) -> Value {
    let output = words(text);
    json!({ "prompt_tokens": 8, "completion_tokens": output, "total_tokens": 8 + output })
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

fn quota(id: &str, limit: u64, wait: Duration) -> Scripted {
    const METRIC: &str = "generativelanguage.googleapis.com/generate_content_free_tier_requests";
    let message = format!(
        "You exceeded your current quota, please check your plan and billing details.\n* Quota exceeded \
         for metric: {METRIC}, limit: {limit}\nPlease retry in {}s.",
        wait.as_secs_f64()
    );
    let details = json!([
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{ "quotaMetric": METRIC, "quotaId": id, "quotaValue": limit.to_string() }],
        },
        {
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{}s", wait.as_secs()),
        },
    ]);
    error(429, "RESOURCE_EXHAUSTED", &message, &details)
}

fn error(code: u16, status: &str, message: &str, details: &Value) -> Scripted {
    let error = json!({ "code": code, "message": message, "status": status, "details": details });
    Scripted::json(code, json!({ "error": error }).to_string())
}
