//! A request for an answer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Content, Part,
    json::{Json, null_is_default},
};

/// A request for an answer: `generateContent` and `streamGenerateContent`.
///
/// ```
/// use keywheel_provider::api::{Content, GenerateRequest};
///
/// let request = GenerateRequest::from("Say hello").with_system("Be brief").with_max_output_tokens(100);
/// assert_eq!(
///     serde_json::to_string(&request).unwrap(),
///     r#"{"contents":[{"role":"user","parts":[{"text":"Say hello"}]}],"#.to_owned()
///         + r#""systemInstruction":{"parts":[{"text":"Be brief"}]},"#
///         + r#""generationConfig":{"maxOutputTokens":100}}"#,
/// );
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
    /// Functions the model may call, and tools of Google's own. Search and URL context have a quota of
    /// their own, tiny on the free tier.
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
    /// Fields that this version does not name.
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

    /// Adds a tool, as JSON: `{"functionDeclarations": […]}`, `{"googleSearch": {}}`.
    #[must_use]
    pub fn with_tool(mut self, tool: impl Into<Json>) -> Self {
        self.tools.push(tool.into());
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

    /// Sets how much the model may think.
    #[must_use]
    pub fn with_thinking(mut self, thinking: ThinkingConfig) -> Self {
        self.config().thinking_config = Some(thinking);
        self
    }

    /// Asks for an answer in JSON of the given schema (a subset of OpenAPI 3.0).
    #[must_use]
    pub fn with_json_schema(mut self, schema: impl Into<Json>) -> Self {
        let config = self.config();
        config.response_mime_type = Some("application/json".to_owned());
        config.response_schema = Some(schema.into());
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

    /// True when a tool is offered whose quota is Google's own (search, URL context, maps, …): anything
    /// but plain function declarations.
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

/// How to answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerationConfig {
    /// The most tokens of the answer. Thinking counts inside it.
    #[serde(alias = "max_output_tokens", default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// How many answers to give. Defaults to 1.
    #[serde(alias = "candidate_count", default, skip_serializing_if = "Option::is_none")]
    pub candidate_count: Option<u32>,
    /// Texts that end the answer.
    #[serde(
        alias = "stop_sequences",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub stop_sequences: Vec<String>,
    /// Randomness, 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    #[serde(alias = "top_p", default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Sampling among the most likely tokens.
    #[serde(alias = "top_k", default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<f64>,
    /// Seed of the randomness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// `application/json` for an answer in JSON.
    #[serde(alias = "response_mime_type", default, skip_serializing_if = "Option::is_none")]
    pub response_mime_type: Option<String>,
    /// The schema of such an answer, in Google's form.
    #[serde(alias = "response_schema", default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Json>,
    /// The same as a JSON schema.
    #[serde(alias = "response_json_schema", default, skip_serializing_if = "Option::is_none")]
    pub response_json_schema: Option<Json>,
    /// How much to think.
    #[serde(alias = "thinking_config", default, skip_serializing_if = "Option::is_none")]
    pub thinking_config: Option<ThinkingConfig>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How much to think.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingConfig {
    /// Whether summaries of the thinking come with the answer.
    #[serde(alias = "include_thoughts", default, skip_serializing_if = "Option::is_none")]
    pub include_thoughts: Option<bool>,
    /// Tokens to think with: 0 turns it off, -1 leaves it to the model.
    #[serde(alias = "thinking_budget", default, skip_serializing_if = "Option::is_none")]
    pub thinking_budget: Option<i32>,
    /// `MINIMAL`, `LOW`, `MEDIUM`, `HIGH`, `XHIGH`; models know different ones.
    #[serde(alias = "thinking_level", default, skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ThinkingConfig {
    /// No thinking, where the model allows it.
    #[must_use]
    pub fn off() -> Self {
        Self::budget(0)
    }

    /// At most `tokens` of thinking.
    #[must_use]
    pub fn budget(tokens: i32) -> Self {
        Self { thinking_budget: Some(tokens), ..Self::default() }
    }
}

/// What to block, by category.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SafetySetting {
    /// `HARM_CATEGORY_…`.
    pub category: String,
    /// `BLOCK_NONE`, `BLOCK_ONLY_HIGH`, ….
    pub threshold: String,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
