//! What the model may use: functions of the caller's, and tools of Google's.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    json::{Json, null_is_default},
    open_enum::open_enum,
};

/// Something the model may use, kept exactly as it came.
///
/// ```
/// use keywheel_provider::api::{FunctionDeclaration, GenerateRequest, Json, Tool};
/// use serde_json::json;
///
/// let city = json!({
///     "type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"],
/// });
/// let weather = FunctionDeclaration::new("weather", "The weather of a city").with_parameters(city);
/// let request = GenerateRequest::from("Is it raining in Pune?").with_functions([weather]);
/// assert!(!request.uses_tools(), "functions of one's own have no quota of their own");
/// assert!(request.with_tool(Tool::google_search()).uses_tools());
/// ```
///
/// Each kind of tool is an object of its own:
///
/// ```
/// use keywheel_provider::api::{FunctionDeclaration, Tool};
///
/// assert_eq!(Tool::url_context().json().get(), r#"{"urlContext":{}}"#);
/// assert_eq!(Tool::code_execution().json().get(), r#"{"codeExecution":{}}"#);
/// let now = Tool::functions([FunctionDeclaration::new("now", "The time")]);
/// assert!(now.json().get().starts_with(r#"{"functionDeclarations":[{"name":"now""#));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tool(Json);

impl Tool {
    /// Functions that the model may ask to have called. They have no quota of their own.
    #[must_use]
    pub fn functions(functions: impl IntoIterator<Item = FunctionDeclaration>) -> Self {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Functions {
            function_declarations: Vec<FunctionDeclaration>,
        }
        let functions = Functions { function_declarations: functions.into_iter().collect() };
        Self(Json::new(&functions).expect("strings and JSON always have a JSON form"))
    }

    /// Google's search. It has a quota of its own, tiny or none on the free tier.
    #[must_use]
    pub fn google_search() -> Self {
        Self::named("googleSearch")
    }

    /// Reads the addresses that the prompt names. It has a quota of its own.
    #[must_use]
    pub fn url_context() -> Self {
        Self::named("urlContext")
    }

    /// Lets the model write and run Python.
    #[must_use]
    pub fn code_execution() -> Self {
        Self::named("codeExecution")
    }

    /// A tool of any kind, as JSON.
    #[must_use]
    pub const fn from_json(json: Json) -> Self {
        Self(json)
    }

    /// The tool as JSON.
    #[must_use]
    pub const fn json(&self) -> &Json {
        &self.0
    }

    fn named(name: &str) -> Self {
        Self(json!({ name: {} }).into())
    }
}

impl From<Tool> for Json {
    fn from(tool: Tool) -> Self {
        tool.0
    }
}

/// A function of the caller's that the model may ask to have called.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionDeclaration {
    /// Its name: letters, digits, `_`, `.`, `-`, at most 64.
    #[serde(default)]
    pub name: String,
    /// What it does and when to call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its arguments, as a schema of type `OBJECT` in Google's form. `None` means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Json>,
    /// The same as a JSON schema. Only one of the two may be there.
    #[serde(alias = "parameters_json_schema", default, skip_serializing_if = "Option::is_none")]
    pub parameters_json_schema: Option<Json>,
    /// Its result, as a schema in Google's form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Json>,
    /// The same as a JSON schema.
    #[serde(alias = "response_json_schema", default, skip_serializing_if = "Option::is_none")]
    pub response_json_schema: Option<Json>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl FunctionDeclaration {
    /// A function without arguments.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: Some(description.into()), ..Self::default() }
    }

    /// Sets its arguments, as a schema of type `OBJECT` in Google's form (a subset of OpenAPI 3.0).
    #[must_use]
    pub fn with_parameters(mut self, schema: impl Into<Json>) -> Self {
        self.parameters = Some(schema.into());
        self.parameters_json_schema = None;
        self
    }

    /// Sets its arguments, as a JSON schema of type `object`.
    #[must_use]
    pub fn with_json_schema(mut self, schema: impl Into<Json>) -> Self {
        self.parameters_json_schema = Some(schema.into());
        self.parameters = None;
        self
    }
}

/// Whether and which functions are called: `toolConfig.functionCallingConfig`.
///
/// ```
/// use keywheel_provider::api::{FunctionCalling, GenerateRequest};
///
/// let calling = FunctionCalling::any().only(["weather"]);
/// let request = GenerateRequest::from("Pune").with_function_calling(calling);
/// assert_eq!(
///     request.tool_config.unwrap().get(),
///     r#"{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["weather"]}}"#,
/// );
/// ```
///
/// ```
/// use keywheel_provider::api::{FunctionCalling, FunctionMode};
///
/// assert_eq!(FunctionCalling::auto().mode, FunctionMode::Auto);
/// assert_eq!(FunctionCalling::none().mode, FunctionMode::Off);
/// assert_eq!(FunctionCalling::validated().mode.as_str(), "VALIDATED");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionCalling {
    /// Whether.
    #[serde(default = "automatic")]
    pub mode: FunctionMode,
    /// Which; empty means all. Only with [`FunctionMode::Any`] and [`FunctionMode::Validated`].
    #[serde(
        alias = "allowed_function_names",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub allowed_function_names: Vec<String>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl FunctionCalling {
    /// The model decides. This is also the default.
    #[must_use]
    pub fn auto() -> Self {
        Self::of(FunctionMode::Auto)
    }

    /// The model has to call a function.
    #[must_use]
    pub fn any() -> Self {
        Self::of(FunctionMode::Any)
    }

    /// The model knows the functions and may call none.
    #[must_use]
    pub fn none() -> Self {
        Self::of(FunctionMode::Off)
    }

    /// The model decides, and its calls keep to the schema.
    #[must_use]
    pub fn validated() -> Self {
        Self::of(FunctionMode::Validated)
    }

    /// Narrows it to some functions.
    #[must_use]
    pub fn only(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.allowed_function_names = names.into_iter().map(Into::into).collect();
        self
    }

    fn of(mode: FunctionMode) -> Self {
        Self { mode, allowed_function_names: Vec::new(), extra: Map::new() }
    }
}

const fn automatic() -> FunctionMode {
    FunctionMode::Auto
}

open_enum! {
    /// Whether functions are called.
    FunctionMode {
        /// As the model decides.
        Auto = "AUTO",
        /// Always.
        Any = "ANY",
        /// Never.
        Off = "NONE",
        /// As the model decides, with arguments that keep to the schema.
        Validated = "VALIDATED",
    }
}

/// `config` with its `functionCallingConfig` replaced; whatever else it holds stays.
pub(super) fn with_function_calling(config: Option<&Json>, calling: &FunctionCalling) -> Json {
    const NAME: &str = "functionCallingConfig";
    // A config that is no object would be refused by the API, too: it is replaced.
    let mut fields: std::collections::BTreeMap<String, Json> =
        config.and_then(|config| config.parse().ok()).unwrap_or_default();
    fields.remove("function_calling_config");
    let calling = Json::new(calling).expect("strings and a Map always have a JSON form");
    fields.insert(NAME.to_owned(), calling);
    Json::new(&fields).expect("its keys are strings")
}
