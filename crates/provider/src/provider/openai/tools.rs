//! Function declarations and how they may be used.

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{fields::Fields, request::no_json, schema::json_schema, unsupported};
use crate::{api::Json, upstream::CallError};

/// What the model may call, and whether it has to.
pub(super) struct Tools {
    pub(super) functions: Vec<Tool>,
    pub(super) choice: Option<Value>,
}

#[derive(Serialize)]
pub(super) struct Tool {
    r#type: &'static str,
    function: Json,
    #[serde(skip)]
    name: String,
}

/// The tools of a request. Of functions, only those that may be called are offered: not every provider knows
/// a choice among several.
pub(super) fn tools(tools: &[Json], config: Option<&Json>) -> Result<Tools, CallError> {
    let mut functions = Vec::new();
    for (at, tool) in tools.iter().enumerate() {
        for (name, value) in Fields::parse(tool.get()).map_err(no_json)?.iter() {
            if !matches!(name, "functionDeclarations" | "function_declarations") {
                return Err(unsupported(format!("tools[{at}].{name}")));
            }
            let declarations: Vec<&RawValue> =
                serde_json::from_str(value.get()).map_err(no_json)?;
            for (n, declaration) in declarations.into_iter().enumerate() {
                let place = format!("tools[{at}].functionDeclarations[{n}]");
                functions.push(function(declaration, &place)?);
            }
        }
    }
    let Calling { mode, allowed } = Calling::read(config)?;
    if !allowed.is_empty() {
        functions.retain(|tool: &Tool| allowed.contains(&tool.name));
    }
    let choice = match (mode.as_deref(), functions.as_slice()) {
        (None | Some("MODE_UNSPECIFIED"), _) => None,
        (Some("AUTO"), _) => Some("auto".into()),
        (Some("NONE"), _) => Some("none".into()),
        (Some("ANY"), [only]) if !allowed.is_empty() => {
            Some(json!({ "type": "function", "function": { "name": only.name } }))
        }
        (Some("ANY"), _) => Some("required".into()),
        (Some(mode), _) => {
            return Err(unsupported(format!("toolConfig.functionCallingConfig.mode {mode:?}")));
        }
    };
    // Providers refuse a choice among nothing.
    let choice = choice.filter(|_| !functions.is_empty());
    Ok(Tools { functions, choice })
}

fn function(declaration: &RawValue, place: &str) -> Result<Tool, CallError> {
    let mut name = String::new();
    let mut fields: Vec<(String, Json)> = Vec::new();
    for (field, value) in Fields::parse(declaration.get()).map_err(no_json)?.iter() {
        let json: Json = serde_json::from_str(value.get()).map_err(no_json)?;
        match field {
            "name" => {
                name = json.parse().map_err(no_json)?;
                fields.push((field.to_owned(), json));
            }
            "parameters" => fields.push((field.to_owned(), json_schema(&json).map_err(no_json)?)),
            "parametersJsonSchema" | "parameters_json_schema" => {
                fields.push(("parameters".to_owned(), json));
            }
            "response" | "responseJsonSchema" | "response_json_schema" | "behavior" => {
                return Err(unsupported(format!("{place}.{field}")));
            }
            // `strict`, and whatever else this provider knows.
            _ => fields.push((field.to_owned(), json)),
        }
    }
    let function = Json::new(&InOrder(&fields)).map_err(no_json)?;
    Ok(Tool { r#type: "function", function, name })
}

struct InOrder<'a>(&'a [(String, Json)]);

impl Serialize for InOrder<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// `toolConfig.functionCallingConfig`.
#[derive(Default)]
struct Calling {
    mode: Option<String>,
    allowed: Vec<String>,
}

impl Calling {
    fn read(config: Option<&Json>) -> Result<Self, CallError> {
        let mut calling = Self::default();
        let Some(config) = config else { return Ok(calling) };
        for (name, value) in Fields::parse(config.get()).map_err(no_json)?.iter() {
            if !matches!(name, "functionCallingConfig" | "function_calling_config") {
                return Err(unsupported(format!("toolConfig.{name}")));
            }
            for (name, value) in Fields::parse(value.get()).map_err(no_json)?.iter() {
                let value = value.get();
                match name {
                    "mode" => calling.mode = serde_json::from_str(value).map_err(no_json)?,
                    "allowedFunctionNames" | "allowed_function_names" => {
                        calling.allowed = serde_json::from_str(value).map_err(no_json)?;
                    }
                    _ => {
                        let name = format!("toolConfig.functionCallingConfig.{name}");
                        return Err(unsupported(name));
                    }
                }
            }
        }
        Ok(calling)
    }
}
