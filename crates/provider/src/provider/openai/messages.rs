//! A conversation as messages.

use std::{borrow::Cow, collections::HashSet};

use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};

use super::{
    OpenAiApi,
    part::{Media, PartKind, Place, ResultJson, parts},
    unsupported,
};
use crate::{api::Content, upstream::CallError};

/// One message. What is not there is not written.
#[derive(Debug, Serialize)]
pub(super) struct Message<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Said>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(flatten)]
    extra: Option<&'a Map<String, Value>>,
}

/// Text alone goes as a string: not every server reads a list.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Said {
    Text(String),
    Pieces(Vec<Piece>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
    InputAudio { input_audio: InputAudio },
    File { file: File },
}

#[derive(Debug, Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Debug, Serialize)]
struct InputAudio {
    data: String,
    format: &'static str,
}

#[derive(Debug, Serialize)]
struct File {
    filename: String,
    file_data: String,
}

#[derive(Debug, Serialize)]
struct ToolCall<'a> {
    id: String,
    r#type: &'static str,
    function: Function<'a>,
    /// What came with the call and has to go back with it.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
}

/// The messages of a whole request.
///
/// Thoughts stay behind: no provider wants them back as text. Turns that say nothing are left out.
pub(super) fn messages<'a>(
    api: &'a OpenAiApi,
    system: Option<&'a Content>,
    contents: &'a [Content],
) -> Result<Vec<Message<'a>>, CallError> {
    let mut conversation = Conversation { api, messages: Vec::new(), calls: Calls::default() };
    if let Some(system) = system {
        conversation.system(system)?;
    }
    for (at, content) in contents.iter().enumerate() {
        let place = format!("contents[{at}]");
        match content.role.as_deref() {
            None | Some("user" | "function" | "tool") => conversation.user(content, &place)?,
            Some("model" | "assistant") => conversation.model(content, &place)?,
            Some(role) => return Err(unsupported(format!("{place}.role {role:?}"))),
        }
    }
    Ok(conversation.messages)
}

struct Conversation<'a> {
    api: &'a OpenAiApi,
    messages: Vec<Message<'a>>,
    calls: Calls,
}

impl<'a> Conversation<'a> {
    fn system(&mut self, content: &'a Content) -> Result<(), CallError> {
        let mut pieces = Vec::new();
        for (part, place) in parts(content, "systemInstruction") {
            match PartKind::read(part, &place)? {
                PartKind::Nothing => {}
                PartKind::Text(text) => pieces.push(Piece::Text { text }),
                kind => return Err(kind.refused(&place)),
            }
        }
        let role = self.api.system_role;
        self.say(role, pieces, content);
        Ok(())
    }

    fn user(&mut self, content: &'a Content, place: &str) -> Result<(), CallError> {
        let mut pieces = Vec::new();
        for (part, place) in parts(content, place) {
            match PartKind::read(part, &place)? {
                PartKind::Nothing => {}
                PartKind::Text(text) => pieces.push(Piece::Text { text }),
                PartKind::Media(media) => pieces.push(media.into_piece(&place)?),
                PartKind::Result(result) => {
                    // Results come right after the calls, before what the user adds.
                    let id = self.calls.answered(&result, &place)?;
                    let text = result.response.map_or("{}", RawValue::get).to_owned();
                    let content = Some(Said::Text(text));
                    let tool = Message { content, tool_call_id: Some(id), ..Message::by("tool") };
                    self.messages.push(tool);
                }
                kind @ PartKind::Call { .. } => return Err(kind.refused(&place)),
            }
        }
        self.say("user", pieces, content);
        Ok(())
    }

    fn model(&mut self, content: &'a Content, place: &str) -> Result<(), CallError> {
        let mut text = String::new();
        let mut tool_calls = Vec::new();
        for (part, place) in parts(content, place) {
            match PartKind::read(part, &place)? {
                PartKind::Nothing => {}
                PartKind::Text(more) => text.push_str(&more),
                PartKind::Call { call, signature, mut extra } => {
                    if self.api.is_google() && !extra.contains_key("extra_content") {
                        extra.extend(signature.map(google_signature));
                    }
                    let id = self.calls.made(call.id, &call.name);
                    let arguments = call.args.map_or("{}", RawValue::get).into();
                    let function = Function { name: call.name, arguments };
                    tool_calls.push(ToolCall { id, r#type: "function", function, extra });
                }
                kind => return Err(kind.refused(&place)),
            }
        }
        if text.is_empty() && tool_calls.is_empty() {
            return Ok(());
        }
        let content_said = (!text.is_empty()).then_some(Said::Text(text));
        let extra = Some(&content.extra);
        let message =
            Message { content: content_said, tool_calls, extra, ..Message::by("assistant") };
        self.messages.push(message);
        Ok(())
    }

    fn say(&mut self, role: &'static str, pieces: Vec<Piece>, content: &'a Content) {
        if pieces.is_empty() {
            return;
        }
        let texts: Option<String> = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let said = texts.map_or_else(|| Said::Pieces(pieces), Said::Text);
        let extra = Some(&content.extra);
        self.messages.push(Message { content: Some(said), extra, ..Message::by(role) });
    }
}

impl Message<'_> {
    const fn by(role: &'static str) -> Self {
        Self { role, content: None, tool_calls: Vec::new(), tool_call_id: None, extra: None }
    }
}

/// Which calls wait for their results. Results find their calls by an id, which Gemini does not always give.
#[derive(Default)]
struct Calls {
    ids: HashSet<String>,
    open: Vec<Open>,
    made_up: u32,
}

struct Open {
    id: String,
    name: String,
}

impl Calls {
    /// The id of a call of `name`: its own, or one that is made up, the same in every later turn.
    fn made(&mut self, id: Option<Cow<'_, str>>, name: &str) -> String {
        let given = id.filter(|id| !id.is_empty()).map(Cow::into_owned);
        let id = given.unwrap_or_else(|| self.make_up());
        self.ids.insert(id.clone());
        self.open.push(Open { id: id.clone(), name: name.to_owned() });
        id
    }

    /// Nine letters and digits: Mistral takes no others.
    fn make_up(&mut self) -> String {
        loop {
            self.made_up += 1;
            let id = format!("call{:05}", self.made_up);
            if !self.ids.contains(&id) {
                return id;
            }
        }
    }

    /// The id of the call that `result` answers.
    fn answered(
        &mut self,
        result: &ResultJson<'_>,
        place: &Place<'_>,
    ) -> Result<String, CallError> {
        let given = result.id.as_deref().filter(|id| !id.is_empty());
        let by_id = self.open.iter().position(|open| Some(open.id.as_str()) == given);
        let found = by_id.or_else(|| self.open.iter().position(|open| open.name == result.name));
        match (found, given) {
            (Some(at), _) => Ok(self.open.remove(at).id),
            // The call may have been cut off the beginning of the conversation.
            (None, Some(id)) => Ok(id.to_owned()),
            (None, None) => {
                let name = &result.name;
                Err(CallError::Body(format!(
                    "{place} is a result of {name:?}, which was not called"
                )))
            }
        }
    }
}

impl Media<'_> {
    fn into_piece(self, place: &Place<'_>) -> Result<Piece, CallError> {
        let Self { mime_type, data, display_name } = self;
        let url = || format!("data:{mime_type};base64,{data}");
        Ok(match &*mime_type {
            image if image.starts_with("image/") => {
                Piece::ImageUrl { image_url: ImageUrl { url: url() } }
            }
            "audio/wav" | "audio/x-wav" | "audio/wave" => Piece::audio("wav", data),
            "audio/mp3" | "audio/mpeg" => Piece::audio("mp3", data),
            "application/pdf" => {
                let filename = display_name.unwrap_or(Cow::Borrowed("file.pdf")).into_owned();
                Piece::File { file: File { filename, file_data: url() } }
            }
            other => {
                return Err(unsupported(format!("{place}.inlineData of type {other:?}")));
            }
        })
    }
}

impl Piece {
    fn audio(format: &'static str, data: Cow<'_, str>) -> Self {
        Self::InputAudio { input_audio: InputAudio { data: data.into_owned(), format } }
    }
}

/// How Google's compatibility layer has the signature of a call.
fn google_signature(signature: &RawValue) -> (String, Value) {
    let signature: Value = serde_json::from_str(signature.get()).unwrap_or_default();
    let google = serde_json::json!({ "google": { "thought_signature": signature } });
    ("extra_content".to_owned(), google)
}
