//! A request for an answer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Content, FunctionCalling, FunctionDeclaration, GenerationConfig, Part, SafetySetting,
    ThinkingConfig, ThinkingLevel, Tool,
    json::{Json, null_is_default},
    tools,
};

/// A request for an answer: `generateContent` and `streamGenerateContent`.
///
/// ```
/// use keywheel_provider::api::{Content, GenerateRequest};
///
/// let request =
///     GenerateRequest::from("Say hello").with_system("Be brief").with_max_output_tokens(100);
/// assert_eq!(
///     serde_json::to_string(&request).unwrap(),
///     r#"{"contents":[{"role":"user","parts":[{"text":"Say hello"}]}],"#.to_owned()
///         + r#""systemInstruction":{"parts":[{"text":"Be brief"}]},"#
///         + r#""generationConfig":{"maxOutputTokens":100}}"#,
/// );
/// ```
///
/// What a model may be told beside the words:
///
/// ```
/// use keywheel_provider::api::{BlockThreshold, GenerateRequest, SafetySetting, ThinkingConfig};
///
/// let request = GenerateRequest::default()
///     .with_content("Name a colour")
///     .with_candidate_count(2)
///     .with_stop_sequences(["\n"])
///     .with_temperature(0.2)
///     .with_top_p(0.9)
///     .with_top_k(40.0)
///     .with_seed(7)
///     .with_thinking(ThinkingConfig::budget(512))
///     .with_safety(SafetySetting::all(&BlockThreshold::OnlyHigh))
///     .with_cached_content("cachedContents/colours");
/// assert_eq!(
///     serde_json::to_string(&request.generation_config).unwrap(),
///     r#"{"candidateCount":2,"stopSequences":["\n"],"temperature":0.2,"topP":0.9,"#.to_owned()
///         + r#""topK":40.0,"seed":7,"thinkingConfig":{"thinkingBudget":512}}"#,
/// );
/// assert_eq!(request.safety_settings.len(), 4);
/// assert_eq!(request.cached_content.as_deref(), Some("cachedContents/colours"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerateRequest {
    /// The conversation so far, the newest turn last.
    #[serde(default, deserialize_with = "null_is_default")]
    pub contents: Vec<Content>,
    /// What the model has to keep to.
    #[serde(alias = "system_instruction", default, skip_serializing_if = "Option::is_none")]
    pub system_instruction: Option<Content>,
    /// How to answer.
    #[serde(alias = "generation_config", default, skip_serializing_if = "Option::is_none")]
    pub generation_config: Option<GenerationConfig>,
    /// Functions the model may call, and tools of Google's own. Search and URL context have a quota
    /// of their own, tiny on the free tier.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Json>,
    /// How tools may be used.
    #[serde(alias = "tool_config", default, skip_serializing_if = "Option::is_none")]
    pub tool_config: Option<Json>,
    /// What to block.
    #[serde(
        alias = "safety_settings",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub safety_settings: Vec<SafetySetting>,
    /// A cache to build on. Only keys of the quota project that made it can use it.
    #[serde(alias = "cached_content", default, skip_serializing_if = "Option::is_none")]
    pub cached_content: Option<String>,
    /// Goes on with an answer that ended for [`FinishReason::Continuation`](super::FinishReason);
    /// [`continued`](Self::continued) sets it.
    #[serde(alias = "continuation_token", default, skip_serializing_if = "Option::is_none")]
    pub continuation_token: Option<String>,
    /// Fields that this version does not name: `serviceTier`, `store`, `labels`.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl GenerateRequest {
    /// A request that continues a conversation.
    #[must_use]
    pub fn new(contents: impl IntoIterator<Item = Content>) -> Self {
        Self { contents: contents.into_iter().collect(), ..Self::default() }
    }

    /// Sets the system instruction.
    #[must_use]
    pub fn with_system(mut self, text: impl Into<String>) -> Self {
        let parts = vec![Part::from_text(text)];
        self.system_instruction = Some(Content { parts, ..Content::default() });
        self
    }

    /// Adds a turn to the conversation.
    #[must_use]
    pub fn with_content(mut self, content: impl Into<Content>) -> Self {
        self.contents.push(content.into());
        self
    }

    /// Adds a tool: a [`Tool`], or JSON such as `{"googleSearch": {}}`.
    #[must_use]
    pub fn with_tool(mut self, tool: impl Into<Json>) -> Self {
        self.tools.push(tool.into());
        self
    }

    /// Adds functions that the model may ask to have called.
    ///
    /// ```
    /// use keywheel_provider::api::{FunctionDeclaration, GenerateRequest};
    ///
    /// let now = FunctionDeclaration::new("now", "The time");
    /// let request = GenerateRequest::from("Is it late?").with_functions([now]);
    /// assert_eq!(
    ///     request.tools[0].get(),
    ///     r#"{"functionDeclarations":[{"name":"now","description":"The time"}]}"#,
    /// );
    /// ```
    #[must_use]
    pub fn with_functions(self, functions: impl IntoIterator<Item = FunctionDeclaration>) -> Self {
        self.with_tool(Tool::functions(functions))
    }

    /// Sets whether and which functions are called. Whatever else `tool_config` holds stays.
    #[must_use]
    pub fn with_function_calling(mut self, calling: FunctionCalling) -> Self {
        self.tool_config = Some(tools::with_function_calling(self.tool_config.as_ref(), &calling));
        self
    }

    /// Sets the most tokens the answer may have, thinking included.
    ///
    /// Absent, the model's own limit holds (some 65,000), and a budget has to reserve that much.
    #[must_use]
    pub fn with_max_output_tokens(mut self, tokens: u32) -> Self {
        self.config().max_output_tokens = Some(tokens);
        self
    }

    /// Sets the temperature.
    #[must_use]
    pub fn with_temperature(mut self, temperature: f64) -> Self {
        self.config().temperature = Some(temperature);
        self
    }

    /// Sets how many answers to give. Each costs its own tokens.
    #[must_use]
    pub fn with_candidate_count(mut self, count: u32) -> Self {
        self.config().candidate_count = Some(count);
        self
    }

    /// Sets the texts that end the answer, at most 5.
    #[must_use]
    pub fn with_stop_sequences(
        mut self,
        texts: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.config().stop_sequences = texts.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the seed of the randomness.
    #[must_use]
    pub fn with_seed(mut self, seed: i64) -> Self {
        self.config().seed = Some(seed);
        self
    }

    /// Sets nucleus sampling.
    #[must_use]
    pub fn with_top_p(mut self, top_p: f64) -> Self {
        self.config().top_p = Some(top_p);
        self
    }

    /// Sets among how many of the most likely tokens one is chosen.
    #[must_use]
    pub fn with_top_k(mut self, top_k: f64) -> Self {
        self.config().top_k = Some(top_k);
        self
    }

    /// Sets how much the model may think.
    #[must_use]
    pub fn with_thinking(mut self, thinking: ThinkingConfig) -> Self {
        self.config().thinking_config = Some(thinking);
        self
    }

    /// Sets how hard the model may think. Takes the place of a budget, which excludes a level.
    ///
    /// ```
    /// use keywheel_provider::api::{GenerateRequest, ThinkingConfig, ThinkingLevel};
    ///
    /// let mut request = GenerateRequest::from("Prove it")
    ///     .with_thinking(ThinkingConfig::budget(512).with_thoughts())
    ///     .with_thinking_level(ThinkingLevel::High);
    /// let thinking = request.config().thinking_config.clone().unwrap();
    /// assert_eq!(thinking, ThinkingConfig::level(ThinkingLevel::High).with_thoughts());
    /// ```
    #[must_use]
    pub fn with_thinking_level(mut self, level: ThinkingLevel) -> Self {
        let thinking = self.config().thinking_config.get_or_insert_default();
        thinking.thinking_level = Some(level);
        thinking.thinking_budget = None;
        self
    }

    /// Asks for an answer in JSON of the given JSON schema, the usual form (`"type": "object"`).
    ///
    /// Takes the place of a schema in Google's form, which it excludes.
    ///
    /// ```
    /// use keywheel_provider::api::GenerateRequest;
    /// use serde_json::json;
    ///
    /// let schema = json!({"enum": ["a", "b"]});
    /// let request = GenerateRequest::from("Pick one").with_json_schema(schema.clone());
    /// let config = request.generation_config.unwrap();
    /// assert_eq!(config.response_mime_type.as_deref(), Some("application/json"));
    /// assert_eq!(config.response_json_schema, Some(schema.into()));
    /// ```
    #[must_use]
    pub fn with_json_schema(mut self, schema: impl Into<Json>) -> Self {
        let config = self.config();
        config.response_mime_type = Some("application/json".to_owned());
        config.response_json_schema = Some(schema.into());
        config.response_schema = None;
        self
    }

    /// Asks for an answer in JSON of a schema in Google's form, a subset of OpenAPI 3.0
    /// (`"type": "OBJECT"`).
    ///
    /// Takes the place of a JSON schema, which it excludes.
    ///
    /// ```
    /// use keywheel_provider::api::GenerateRequest;
    /// use serde_json::json;
    ///
    /// let mut request = GenerateRequest::from("Pick one")
    ///     .with_json_schema(json!({"type": "string"}))
    ///     .with_response_schema(json!({"type": "STRING"}));
    /// assert_eq!(request.config().response_schema, Some(json!({"type": "STRING"}).into()));
    /// assert_eq!(request.config().response_json_schema, None);
    /// ```
    #[must_use]
    pub fn with_response_schema(mut self, schema: impl Into<Json>) -> Self {
        let config = self.config();
        config.response_mime_type = Some("application/json".to_owned());
        config.response_schema = Some(schema.into());
        config.response_json_schema = None;
        self
    }

    /// Builds on a cache, `cachedContents/…`. It belongs to one quota project and one model, and
    /// system instruction and tools have to be in the cache.
    #[must_use]
    pub fn with_cached_content(mut self, name: impl Into<String>) -> Self {
        self.cached_content = Some(name.into());
        self
    }

    /// Sets what to block.
    #[must_use]
    pub fn with_safety(mut self, settings: impl IntoIterator<Item = SafetySetting>) -> Self {
        self.safety_settings = settings.into_iter().collect();
        self
    }

    /// The generation config, made if there is none.
    pub fn config(&mut self) -> &mut GenerationConfig {
        self.generation_config.get_or_insert_default()
    }

    /// True when a tool is offered whose quota is Google's own (search, URL context, maps, …):
    /// anything but plain function declarations.
    #[must_use]
    pub fn uses_tools(&self) -> bool {
        let names = |tool: &Json| tool.parse::<Map<String, Value>>().unwrap_or_default();
        let plain =
            |name: &String| name == "functionDeclarations" || name == "function_declarations";
        self.tools.iter().any(|tool| !names(tool).keys().all(plain))
    }
}

impl<T: Into<Part>> From<T> for GenerateRequest {
    fn from(part: T) -> Self {
        Self::new([Content::user([part])])
    }
}

impl From<Content> for GenerateRequest {
    fn from(content: Content) -> Self {
        Self::new([content])
    }
}

impl From<Vec<Content>> for GenerateRequest {
    fn from(contents: Vec<Content>) -> Self {
        Self::new(contents)
    }
}
