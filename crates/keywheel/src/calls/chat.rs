//! A conversation that remembers itself.

mod functions;
mod streamed;

use std::{collections::BTreeMap, future::IntoFuture, slice, sync::Arc};

use futures_util::future::BoxFuture;
use keywheel_provider::api::{
    Content, FinishReason, FunctionCall, FunctionResponse, GenerateRequest, GenerationConfig, Json,
    Part, SafetySetting, ThinkingConfig,
};
use serde::de::IgnoredAny;

pub use self::{functions::FunctionResult, streamed::ChatStream};
use crate::{
    Error, Gemini, Reply,
    gemini::{CallOptions, bare, call_options, fallback_options},
};

/// So many times in a row a model may have functions called before [`Chat::send_with_tools`] hands its answer out.
const MOST_ROUNDS: usize = 10;

impl Gemini {
    /// A conversation with `model` that remembers what was said.
    ///
    /// A minute limit is waited for in silence: use [`on_wait`](crate::GeminiBuilder::on_wait) to say so, or a shorter
    /// [`deadline`](Chat::deadline).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::text("Nice to meet you, Ada."));
    /// # script.reply(Scripted::text("Ada."));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// let mut chat = gemini.chat("gemini-3.5-flash-lite").with_system("Be brief");
    /// chat.send("I am Ada").await?;
    /// let reply = chat.send("What is my name?").await?;
    /// assert_eq!(reply.text(), "Ada.");
    /// assert_eq!(chat.history().len(), 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn chat(&self, model: impl Into<Arc<str>>) -> Chat {
        Chat {
            gemini: self.clone(),
            model: bare(model.into()),
            request: GenerateRequest::default(),
            options: self.options(),
        }
    }
}

/// A conversation, made by [`Gemini::chat`].
///
/// Both sides of an exchange are remembered once it has succeeded, and none of it before: what fails, or is dropped
/// half-way, leaves the history as it was, and can be sent again. An answer without any content, such as that to a
/// blocked prompt, is no exchange: it would make every later request fail. Nor is one that no model gave
/// ([`degraded`](Reply::degraded)).
///
/// A minute limit is waited for in silence, for up to the deadline: 2 minutes by default. Use
/// [`on_wait`](crate::GeminiBuilder::on_wait) to say so, or a shorter [`deadline`](Self::deadline).
///
/// What the model said is kept byte for byte, thought signatures included: newer models refuse a conversation in
/// which they are missing or changed (<https://ai.google.dev/gemini-api/docs/thought-signatures>). Only empty parts are
/// left out.
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.reply(Scripted::text("Hello, Ada."));
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script.clone()))
/// #     .build()
/// #     .await?;
/// use keywheel::{ThinkingConfig, api::{BlockThreshold, GenerationConfig, SafetySetting}};
///
/// let mut chat = gemini
///     .chat("gemini-3.5-flash-lite")
///     .with_config(GenerationConfig { temperature: Some(0.2), ..GenerationConfig::default() })
///     .with_thinking(ThinkingConfig::budget(0))
///     .with_safety(SafetySetting::all(&BlockThreshold::OnlyHigh));
/// chat.request_mut().config().max_output_tokens = Some(200);
/// chat.send("I am Ada").await?;
///
/// let sent = script.requests()[0].json();
/// assert_eq!(sent["generationConfig"]["maxOutputTokens"], 200);
/// chat.history_mut().clear(); // a new conversation with the same settings
/// assert!(chat.history().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a chat says nothing until something is sent"]
pub struct Chat {
    gemini: Gemini,
    model: Arc<str>,
    /// What every request is made of; its contents are the history.
    request: GenerateRequest,
    options: CallOptions,
}

call_options!(Chat);
fallback_options!(Chat);

impl Chat {
    /// Sets the system instruction.
    pub fn with_system(mut self, text: impl Into<String>) -> Self {
        self.request = self.request.with_system(text);
        self
    }

    /// Adds a tool, as JSON: `{"functionDeclarations": […]}`, `{"googleSearch": {}}`.
    pub fn with_tool(mut self, tool: impl Into<Json>) -> Self {
        self.request = self.request.with_tool(tool);
        self
    }

    /// Sets how to answer: temperature, most tokens, ….
    pub fn with_config(mut self, config: GenerationConfig) -> Self {
        self.request.generation_config = Some(config);
        self
    }

    /// Sets how much the model may think.
    pub fn with_thinking(mut self, thinking: ThinkingConfig) -> Self {
        self.request = self.request.with_thinking(thinking);
        self
    }

    /// Sets what to block.
    pub fn with_safety(mut self, settings: impl IntoIterator<Item = SafetySetting>) -> Self {
        self.request = self.request.with_safety(settings);
        self
    }

    /// Goes on with a conversation from before. [`history`](Self::history) can be written and read as JSON.
    ///
    /// ```
    /// # fn run(gemini: &keywheel::Gemini) -> Result<(), serde_json::Error> {
    /// # let chat = gemini.chat("m");
    /// let saved = serde_json::to_string(chat.history())?;
    /// let chat = gemini.chat("m").with_history(serde_json::from_str::<Vec<_>>(&saved)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_history(mut self, turns: impl IntoIterator<Item = Content>) -> Self {
        self.request.contents = turns.into_iter().collect();
        self
    }

    /// What was said so far, the newest turn last.
    #[must_use]
    pub fn history(&self) -> &[Content] {
        &self.request.contents
    }

    /// The same to be changed: to shorten it, or to forget.
    pub const fn history_mut(&mut self) -> &mut Vec<Content> {
        &mut self.request.contents
    }

    /// All that is sent with every message: for what has no method here, such as a
    /// [cache](GenerateRequest::cached_content) to build on. Its contents are the history.
    pub const fn request_mut(&mut self) -> &mut GenerateRequest {
        &mut self.request
    }

    /// The model that is asked.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Says something, and waits for the whole answer.
    ///
    /// Look at [`finish_reason`](crate::GenerateResponse::finish_reason) where it matters: an answer that was cut at
    /// the limit of tokens is remembered as it is. To answer function calls, use [`respond`](Self::respond).
    ///
    /// # Errors
    /// As [`Gemini::generate`]. The history is as it was.
    ///
    /// # Cancel safety
    /// As [`Gemini::generate`]. The history is as it was.
    pub async fn send(&mut self, message: impl Into<Content>) -> Result<Reply, Error> {
        let message = message.into();
        let reply = self.ask(slice::from_ref(&message)).await?;
        self.remember(vec![message], said_by_a_model(&reply));
        Ok(reply)
    }

    /// Says something, and hands the answer out part by part. Both are remembered once the stream has been read to
    /// its end, see [`ChatStream`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::stream(["Once upon ", "a time"]));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// let mut chat = gemini.chat("gemini-3.5-flash-lite");
    /// let mut answer = chat.stream("Tell me a story").await?;
    /// while let Some(part) = answer.next().await {
    ///     print!("{}", part?.text());
    /// }
    /// drop(answer);
    /// assert_eq!(chat.history()[1].text(), "Once upon a time");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Gemini::stream`].
    ///
    /// # Cancel safety
    /// As [`Gemini::stream`]. The history is as it was.
    pub async fn stream(&mut self, message: impl Into<Content>) -> Result<ChatStream<'_>, Error> {
        let message = message.into();
        let request = self.request_with(slice::from_ref(&message));
        let stream = self.gemini.stream(Arc::clone(&self.model), request);
        let events = stream.with_options(self.options.clone()).await?;
        Ok(ChatStream::new(self, message, events))
    }

    /// Answers the function calls of the last reply: one result for each of its
    /// [`function_calls`](crate::GenerateResponse::function_calls), in any order.
    ///
    /// ```no_run
    /// # async fn run(mut chat: keywheel::Chat) -> Result<(), keywheel::Error> {
    /// use keywheel::FunctionResponse;
    /// use serde_json::json;
    ///
    /// let mut reply = chat.send("Book a table for two").await?;
    /// while !reply.function_calls().is_empty() {
    ///     let results = reply.function_calls().into_iter().map(|call| FunctionResponse {
    ///         id: call.id,
    ///         name: call.name,
    ///         response: json!({"booked": true}).into(),
    ///     });
    ///     reply = chat.respond(results).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn respond(
        &mut self,
        results: impl IntoIterator<Item = FunctionResponse>,
    ) -> Result<Reply, Error> {
        let results = results.into_iter();
        self.send(Content::user(results.map(|result| Part::from_function_response(&result)))).await
    }

    /// Says something, has `call` do what functions the model wants called, and returns the answer that wants no
    /// more of them; or the tenth that still does.
    ///
    /// `call` returns a function's result: any JSON, or [`FunctionResult::error`] to tell the model that it failed.
    /// Functions are called one after the other, and only for an answer that is whole. One with calls that was cut is
    /// handed out, and leaves the history as it was before.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::json(200, r#"{"candidates":[{"content":{"role":"model","parts":[
    /// #     {"functionCall":{"name":"weather","args":{"city":"Oslo"}}}]},"finishReason":"STOP"}]}"#));
    /// # script.reply(Scripted::text("It rains in Oslo."));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// use serde_json::json;
    ///
    /// let mut chat = gemini.chat("gemini-3.5-flash-lite").with_tool(json!({
    ///     "functionDeclarations": [{
    ///         "name": "weather",
    ///         "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}},
    ///     }],
    /// }));
    /// let reply = chat
    ///     .send_with_tools("What is the weather in Oslo?", |call| async move {
    ///         json!({"city": call.name, "weather": "rain"})
    ///     })
    ///     .await?;
    /// assert_eq!(reply.text(), "It rains in Oslo.");
    /// assert_eq!(chat.history().len(), 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Gemini::generate`]. The history is as it was before, whatever was called in between: those whose
    /// functions must not run twice use [`send`](Self::send) and [`respond`](Self::respond), and go on from there.
    ///
    /// # Cancel safety
    /// As [`Gemini::generate`]. The history is as it was before.
    pub async fn send_with_tools<F, Fut, R>(
        &mut self,
        message: impl Into<Content>,
        mut call: F,
    ) -> Result<Reply, Error>
    where
        F: FnMut(FunctionCall) -> Fut,
        Fut: Future<Output = R>,
        R: Into<FunctionResult>,
    {
        let mut said = vec![message.into()];
        for round in 1.. {
            let reply = self.ask(&said).await?;
            let calls = reply.function_calls();
            let is_whole = reply.finish_reason() == Some(FinishReason::Stop);
            let Some(content) =
                reply.content().filter(|_| is_whole && !calls.is_empty() && round < MOST_ROUNDS)
            else {
                // Calls that were not made have no results, without which the API takes nothing further.
                if is_whole || calls.is_empty() {
                    self.remember(said, said_by_a_model(&reply));
                }
                return Ok(reply);
            };
            said.push(as_turn(content));
            let mut results = Vec::new();
            for wanted in calls {
                let (id, name) = (wanted.id.clone(), wanted.name.clone());
                let response = call(wanted).await.into().into_json();
                let response = FunctionResponse { id, name, response };
                results.push(Part::from_function_response(&response));
            }
            said.push(Content::user(results));
        }
        unreachable!("the last round returns")
    }

    fn request_with(&self, said: &[Content]) -> GenerateRequest {
        let mut request = self.request.clone();
        request.contents.extend_from_slice(said);
        request
    }

    /// Not an `async fn`: its future is to hold no borrow of more than it needs.
    fn ask(&self, said: &[Content]) -> BoxFuture<'static, Result<Reply, Error>> {
        let generate = self.gemini.generate(Arc::clone(&self.model), self.request_with(said));
        generate.with_options(self.options.clone()).into_future()
    }

    /// Takes an exchange into the history, if there was one.
    fn remember(&mut self, said: Vec<Content>, answer: Option<&Content>) {
        let Some(answer) = answer.map(as_turn).filter(|answer| !answer.parts.is_empty()) else {
            return;
        };
        self.request.contents.extend(said);
        self.request.contents.push(answer);
    }
}

/// An answer as a turn of the conversation: without the parts that would make the API refuse it.
fn as_turn(answer: &Content) -> Content {
    let mut turn = answer.clone();
    turn.role.get_or_insert_with(|| "model".to_owned());
    turn.parts.retain(says_something);
    turn
}

/// False for an empty text and for an empty part. A signature is something, whatever it is on.
fn says_something(part: &Part) -> bool {
    if part.text().is_some_and(|text| !text.is_empty()) {
        return true;
    }
    let fields = part.json().parse::<BTreeMap<String, IgnoredAny>>().unwrap_or_default();
    fields.keys().any(|name| name != "text" && name != "thought")
}

fn said_by_a_model(reply: &Reply) -> Option<&Content> {
    reply.content().filter(|_| reply.degraded().is_none())
}
