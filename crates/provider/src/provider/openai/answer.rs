//! A chat completion, or one chunk of a streamed one, as an answer.
//!
//! | OpenAI | Gemini |
//! |---|---|
//! | `content`, `reasoning_content` or `reasoning` | a part with text, one with a thought |
//! | `tool_calls` | `functionCall` parts, with their ids |
//! | `finish_reason`: `stop`, `tool_calls` | `STOP` |
//! | `length`, `content_filter`, any other | `MAX_TOKENS`, `SAFETY`, as it came |
//! | `refusal` | `SAFETY`, with the words in `finishMessage` |
//! | arguments that are no JSON object | `MALFORMED_FUNCTION_CALL`, with the call in `finishMessage` |
//! | `usage` | `usageMetadata`; the block itself stays in `extra` |
//! | `extra_content`, `reasoning_details` | fields of the content, since they have to come back with it |
//! | any other field | `extra` of the answer or the candidate |

use keywheel_core::{Usage, usage::Reported};
use serde::{Deserialize, de::Error as _};
use serde_json::{Map, Value, json};

use crate::api::{
    Candidate, Content, FinishReason, FunctionCall, GenerateResponse, Json, LossyText, Part,
};

/// A completion or a chunk. Both have one shape but for `message` and `delta`.
#[derive(Deserialize)]
pub(super) struct Completion {
    id: Option<String>,
    model: Option<String>,
    pub(super) choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
pub(super) struct Choice {
    index: Option<u32>,
    message: Option<Message>,
    delta: Option<Message>,
    finish_reason: Option<String>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Default, Deserialize)]
struct Message {
    /// A text, or a list of pieces.
    content: Option<Json>,
    refusal: Option<String>,
    tool_calls: Option<Vec<CallDelta>>,
    function_call: Option<FunctionDelta>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
struct CallDelta {
    index: Option<u32>,
    id: Option<String>,
    function: Option<FunctionDelta>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    /// A text with JSON in it; some send the JSON itself.
    arguments: Option<Json>,
}

/// Reads a whole completion.
pub(super) fn read_answer(body: &[u8]) -> serde_json::Result<GenerateResponse> {
    let mut completion: Completion = serde_json::from_slice(body)?;
    let choices = completion.choices.take().unwrap_or_default();
    let mut response = completion.into_response();
    for choice in choices {
        lift_error(&choice, &mut response);
        let mut pending = Pending::default();
        let index = choice.index();
        let candidate = pending.take(choice, true)?;
        response.candidates.push(candidate.unwrap_or_else(|| of_index(index)));
    }
    Ok(response)
}

impl Completion {
    /// All but the choices.
    pub(super) fn into_response(self) -> GenerateResponse {
        let Self { id, model, usage, mut extra, .. } = self;
        let usage_metadata = usage_metadata(usage.as_ref(), &extra);
        // Mistral's errors are not wrapped.
        let calls_itself = |name: &str| extra.get(name).is_some_and(|value| value == "error");
        if !extra.contains_key("error") && (calls_itself("object") || calls_itself("type")) {
            let error = extra.get("message").cloned().unwrap_or(true.into());
            extra.insert("error".to_owned(), error);
        }
        if let Some(usage) = usage.filter(|usage| !usage.is_null()) {
            extra.insert("usage".to_owned(), usage);
        }
        GenerateResponse {
            usage_metadata,
            model_version: model,
            response_id: id,
            extra,
            ..GenerateResponse::default()
        }
    }
}

impl Choice {
    pub(super) fn index(&self) -> u32 {
        self.index.unwrap_or(0)
    }
}

/// OpenRouter says in the choice that its provider failed.
pub(super) fn lift_error(choice: &Choice, response: &mut GenerateResponse) {
    if let Some(error) = choice.extra.get("error").filter(|error| !error.is_null()) {
        response.extra.entry("error").or_insert_with(|| error.clone());
    }
}

/// More calls than this in one answer are no calls: each costs memory, and a look at every other.
const MOST_CALLS: usize = 512;

/// What has come of a choice and cannot be handed out yet.
#[derive(Default)]
pub(super) struct Pending {
    calls: Vec<PartialCall>,
    /// Bytes of the calls.
    call_bytes: usize,
    refusal: String,
    /// The reason for its end has come. What follows all the same waits for nothing more.
    ended: bool,
}

/// A call whose arguments come piece by piece.
#[derive(Default)]
struct PartialCall {
    index: Option<u32>,
    id: Option<String>,
    name: String,
    arguments: String,
    extra: Map<String, Value>,
}

impl Pending {
    /// What `choice` adds to the answer, with all that waited if it ends. `None`: nothing yet.
    ///
    /// # Errors
    /// There are more calls than anybody makes.
    pub(super) fn take(
        &mut self,
        choice: Choice,
        ends: bool,
    ) -> serde_json::Result<Option<Candidate>> {
        let index = choice.index();
        let Choice { message, delta, finish_reason, extra, .. } = choice;
        let mut message = delta.or(message).unwrap_or_default();
        message.extra.remove("role");
        let mut parts = Vec::new();
        let thought = ["reasoning_content", "reasoning"].into_iter().find_map(|name| match message
            .extra
            .get(name)
        {
            Some(Value::String(_)) => message.extra.remove(name),
            _ => None,
        });
        if let Some(Value::String(thought)) = thought {
            push_text(&mut parts, thought, true);
        }
        self.content(message.content.as_ref(), &mut parts);
        self.refusal.push_str(message.refusal.as_deref().unwrap_or_default());
        for call in message.tool_calls.unwrap_or_default() {
            self.call(call)?;
        }
        if let Some(function) = message.function_call {
            let extra = Map::new();
            self.call(CallDelta { index: None, id: None, function: Some(function), extra })?;
        }

        let mut candidate = of_index(index);
        candidate.finish_reason =
            finish_reason.filter(|reason| !reason.is_empty()).map(finish_reason_of);
        self.ended |= ends || candidate.finish_reason.is_some();
        if self.ended {
            self.finish(&mut candidate, &mut parts);
        }
        candidate.extra = extra;
        let mut content = Content { parts, ..Content::model([] as [Part; 0]) };
        for (name, value) in message.extra.into_iter().filter(|(_, value)| !value.is_null()) {
            let goes_back = GOES_BACK.contains(&name.as_str());
            let place = if goes_back { &mut content.extra } else { &mut candidate.extra };
            place.insert(name, value);
        }
        if !content.parts.is_empty() || !content.extra.is_empty() {
            candidate.content = Some(content);
        }
        let says_something = candidate.content.is_some() || candidate.finish_reason.is_some();
        Ok(says_something.then_some(candidate))
    }

    /// How many bytes wait.
    pub(super) fn held(&self) -> usize {
        self.refusal.len() + self.call_bytes
    }

    fn content(&mut self, content: Option<&Json>, parts: &mut Vec<Part>) {
        let Some(content) = content else { return };
        if let Ok(LossyText(text)) = content.parse() {
            return push_text(parts, text, false);
        }
        // Mistral's thinking models answer in pieces.
        for piece in content.parse::<Vec<Json>>().unwrap_or_default() {
            let fields: Map<String, Value> = piece.parse().unwrap_or_default();
            let text = |name: &str| fields.get(name).map(all_text).unwrap_or_default();
            match fields.get("type").and_then(Value::as_str) {
                Some("text") => push_text(parts, text("text"), false),
                Some("thinking") => push_text(parts, text("thinking"), true),
                Some("refusal") => self.refusal.push_str(&text("refusal")),
                _ => parts.push(Part::from_json(piece)),
            }
        }
    }

    fn call(&mut self, delta: CallDelta) -> serde_json::Result<()> {
        let CallDelta { index, id, function, mut extra } = delta;
        extra.remove("type");
        let (name, arguments) = function.map_or((None, None), |f| (f.name, f.arguments));
        let name = name.unwrap_or_default();
        let id = id.filter(|id| !id.is_empty());
        let arguments = arguments.map(|json| match json.get() {
            "null" => String::new(),
            raw => json.parse().unwrap_or_else(|_| raw.to_owned()),
        });
        let known = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None => self.calls.len().checked_sub(1),
        };
        // Some number every call 0: one with a name and an id of its own is another call.
        let continues = |call: &PartialCall| match (&id, index) {
            _ if name.is_empty() => true,
            (Some(id), _) => call.id.as_ref() == Some(id),
            // Some repeat the name with every piece.
            (None, Some(_)) => call.name == name || call.arguments.is_empty(),
            (None, None) => false,
        };
        let known = known.filter(|at| continues(&self.calls[*at]));
        if known.is_none() && self.calls.len() == MOST_CALLS {
            return Err(serde_json::Error::custom("more calls than can be put together"));
        }
        let arguments = arguments.unwrap_or_default();
        let id_bytes = id.as_ref().map_or(0, String::len);
        self.call_bytes += id_bytes + name.len() + arguments.len() + bytes_of(&extra);
        let at = known.unwrap_or_else(|| {
            self.calls.push(PartialCall { index, id, ..PartialCall::default() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        if call.name != name {
            call.name.push_str(&name);
        }
        call.arguments.push_str(&arguments);
        call.extra.append(&mut extra);
        Ok(())
    }

    fn finish(&mut self, candidate: &mut Candidate, parts: &mut Vec<Part>) {
        self.call_bytes = 0;
        for call in self.calls.drain(..) {
            match call.into_part() {
                Ok(part) => parts.push(part),
                Err(call) => {
                    candidate.finish_message = Some(call);
                    // Of an answer that was cut at its limit, the limit is the reason.
                    if matches!(candidate.finish_reason, None | Some(FinishReason::Stop)) {
                        candidate.finish_reason = Some(FinishReason::MalformedFunctionCall);
                    }
                }
            }
        }
        if !self.refusal.is_empty() {
            candidate.finish_message = Some(std::mem::take(&mut self.refusal));
            candidate.finish_reason = Some(FinishReason::Safety);
        }
    }
}

impl PartialCall {
    /// The call as a part; or, where it cannot be read, in words such as Gemini has for it.
    fn into_part(self) -> Result<Part, String> {
        let Self { id, name, arguments, extra, .. } = self;
        let args: Option<Json> = match arguments.trim() {
            "" | "null" => None,
            text => match serde_json::from_str::<Json>(text) {
                Ok(json) if text.starts_with('{') => Some(json),
                _ => return Err(format!("Malformed function call: {name}({text})")),
            },
        };
        if name.is_empty() {
            return match extra.is_empty() {
                true => Err("Malformed function call without a name".to_owned()),
                // A kind of tool that was asked for by a field of the provider's own.
                false => Ok(Part::from_json(Value::Object(extra).into())),
            };
        }
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct CallPart {
            function_call: FunctionCall,
            #[serde(flatten)]
            extra: Map<String, Value>,
        }
        let part = CallPart { function_call: FunctionCall { id, name, args }, extra };
        Json::new(&part).map(Part::from_json).map_err(|error| error.to_string())
    }
}

/// Fields of a message that the provider wants back with the next request.
const GOES_BACK: [&str; 2] = ["extra_content", "reasoning_details"];

fn of_index(index: u32) -> Candidate {
    Candidate { index: Some(index), ..Candidate::default() }
}

/// About how much memory `fields` take.
fn bytes_of(fields: &Map<String, Value>) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.to_string().len()).sum()
}

fn push_text(parts: &mut Vec<Part>, text: String, thought: bool) {
    if text.is_empty() {
        return;
    }
    parts.push(match thought {
        true => Part::from_json(json!({ "text": text, "thought": true }).into()),
        false => Part::from_text(text),
    });
}

/// A text, or the texts of a list of pieces.
fn all_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(pieces) => {
            pieces.iter().filter_map(|piece| piece.get("text")?.as_str()).collect()
        }
        _ => String::new(),
    }
}

fn finish_reason_of(reason: String) -> FinishReason {
    match reason.as_str() {
        "stop" | "tool_calls" | "function_call" => FinishReason::Stop,
        "length" => FinishReason::MaxTokens,
        "content_filter" => FinishReason::Safety,
        _ => FinishReason::Other(reason.into()),
    }
}

/// The usage in Gemini's words. Groq's streams have it within `x_groq`.
pub(super) fn usage_metadata(usage: Option<&Value>, extra: &Map<String, Value>) -> Option<Json> {
    let named = usage.and_then(|usage| Reported::deserialize(usage).ok()?.0);
    let usage = named.or_else(|| Usage::from_json(extra.get("x_groq")?))?;
    let Usage { input, cached, output, thinking, tool: _, total } = usage;
    let counts = [
        ("promptTokenCount", input),
        ("cachedContentTokenCount", cached),
        ("candidatesTokenCount", output),
        ("thoughtsTokenCount", thinking),
        ("totalTokenCount", total),
    ];
    let told = counts.into_iter().filter(|(_, count)| *count > 0);
    let told: Map<String, Value> =
        told.map(|(name, count)| (name.to_owned(), count.into())).collect();
    Some(Value::Object(told).into())
}

#[cfg(test)]
mod tests;
