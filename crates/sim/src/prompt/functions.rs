//! Functions: which are declared, which are called, and what they answered.

use serde_json::{Value, json};

use super::either;
use crate::{answer::schema, opaque, random};

/// What a request says about functions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Functions {
    declared: Vec<Declared>,
    mode: Mode,
    /// The text of the last turn, which decides what is called.
    pub(crate) asked: String,
    /// What the last turn reports of functions that were called.
    pub(crate) answered: Vec<Answered>,
    /// The first call of every step since the user last spoke: these have to be signed.
    to_be_signed: Vec<SeenCall>,
}

/// A function that answers.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub(crate) name: String,
    pub(crate) response: Value,
}

/// A call that the model makes.
#[derive(Debug, Clone)]
pub(crate) struct FunctionCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) args: Value,
}

#[derive(Debug, Clone)]
struct Declared {
    name: String,
    parameters: Option<Value>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Auto,
    Any,
    None,
}

#[derive(Debug, Clone)]
struct SeenCall {
    name: String,
    /// The place of its content in the request, from 1.
    position: usize,
    signature: Option<String>,
}

/// What Google's documentation offers for calls that no model made.
const UNCHECKED: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

impl Functions {
    pub(crate) fn of(request: &Value) -> Self {
        let contents = list(request.get("contents"));
        let last = contents.last();
        let (declared, mode) = declared(request);
        Self {
            declared,
            mode,
            asked: parts(last).filter_map(|part| part["text"].as_str()).collect(),
            answered: parts(last)
                .filter_map(|part| either(part, "functionResponse", "function_response"))
                .map(|it| Answered {
                    name: it["name"].as_str().unwrap_or_default().to_owned(),
                    response: it["response"].clone(),
                })
                .collect(),
            to_be_signed: to_be_signed(contents),
        }
    }

    /// The calls that the model makes: of every declared function that the last text names. When it has to
    /// call one, and none is named, the first.
    pub(crate) fn called(&self) -> Vec<FunctionCall> {
        if self.mode == Mode::None || !self.answered.is_empty() {
            return Vec::new();
        }
        let named = self.declared.iter().filter(|it| self.asked.contains(&it.name));
        let mut called: Vec<_> = named.collect();
        if called.is_empty() && self.mode == Mode::Any {
            called.extend(self.declared.first());
        }
        let call = |(i, it): (usize, &Declared)| FunctionCall {
            id: format!(
                "call_{:016x}",
                random::hash(&[it.name.as_bytes(), self.asked.as_bytes(), &i.to_le_bytes()])
            ),
            name: it.name.clone(),
            args: it.parameters.as_ref().map_or_else(|| json!({}), schema::instance),
        };
        called.into_iter().enumerate().map(call).collect()
    }

    /// Whether all calls that came back are signed as they were.
    ///
    /// # Errors
    /// What Gemini 3 and newer answer with 400
    /// (<https://github.com/askimo-ai/askimo/issues/543>).
    pub(crate) fn check_signatures(&self) -> Result<(), String> {
        for call in &self.to_be_signed {
            let Some(signature) = &call.signature else {
                return Err(format!(
                    "Function call is missing a thought_signature in functionCall parts. This is \
                     required for tools to work correctly, and missing thought_signature may lead \
                     to degraded model performance. Additional data, function call \
                     `default_api:{}` , position {}. Please refer to \
                     https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
                    call.name, call.position
                ));
            };
            let own = opaque::open(signature) == opaque::open(&sign(&call.name));
            if !own && !UNCHECKED.contains(&signature.as_str()) {
                return Err("Thought signature is not valid.".to_owned());
            }
        }
        Ok(())
    }
}

/// The signature of a call.
pub(crate) fn sign(function: &str) -> String {
    opaque::seal(&format!("simulated signature {:016x}", random::hash(&[function.as_bytes()])))
}

fn declared(request: &Value) -> (Vec<Declared>, Mode) {
    let of_tool = |tool| list(either(tool, "functionDeclarations", "function_declarations"));
    let mut declared: Vec<_> = list(request.get("tools"))
        .iter()
        .flat_map(of_tool)
        .filter_map(|it| {
            let schema = either(it, "parametersJsonSchema", "parameters_json_schema");
            let parameters = it.get("parameters").or(schema).cloned();
            Some(Declared { name: it["name"].as_str()?.to_owned(), parameters })
        })
        .filter(|it| !it.name.is_empty())
        .collect();
    let config = either(request, "toolConfig", "tool_config")
        .and_then(|it| either(it, "functionCallingConfig", "function_calling_config"));
    let mode = match config.and_then(|config| config["mode"].as_str()) {
        Some("ANY") => Mode::Any,
        Some("NONE") => Mode::None,
        _ => Mode::Auto,
    };
    let allowed = config
        .map(|config| list(either(config, "allowedFunctionNames", "allowed_function_names")))
        .unwrap_or_default();
    if !allowed.is_empty() {
        declared.retain(|it| allowed.iter().any(|name| name.as_str() == Some(&it.name)));
    }
    (declared, mode)
}

/// Only the turn under way is checked, from the user's last words on.
fn to_be_signed(contents: &[Value]) -> Vec<SeenCall> {
    let says = |content: &Value| {
        content["role"] != "model" && parts(Some(content)).any(|part| part.get("text").is_some())
    };
    let from = contents.iter().rposition(says).map_or(0, |last| last + 1);
    let first_call = |(i, content): (usize, &Value)| {
        let part = parts(Some(content))
            .find(|part| either(part, "functionCall", "function_call").is_some())?;
        let call = either(part, "functionCall", "function_call")?;
        Some(SeenCall {
            name: call["name"].as_str().unwrap_or_default().to_owned(),
            position: i + 1,
            signature: either(part, "thoughtSignature", "thought_signature")
                .and_then(Value::as_str)
                .map(str::to_owned),
        })
    };
    contents.iter().enumerate().skip(from).filter_map(first_call).collect()
}

fn parts(content: Option<&Value>) -> impl Iterator<Item = &Value> {
    let parts = content.and_then(|content| content.get("parts"));
    list(parts).iter()
}

fn list(value: Option<&Value>) -> &[Value] {
    match value {
        Some(Value::Array(values)) => values,
        Some(one @ Value::Object(_)) => std::slice::from_ref(one),
        _ => &[],
    }
}
