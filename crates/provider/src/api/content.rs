//! What is said: a content is one speaker's turn, made of parts.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Value, json, value::RawValue};

use super::json::{Json, LossyText, null_is_default};

/// One turn of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// `user` or `model`. Absent in a system instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What was said. Empty when an answer was blocked, or cut before its first word.
    #[serde(default, deserialize_with = "null_is_default")]
    pub parts: Vec<Part>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Content {
    /// What the user says.
    #[must_use]
    pub fn user(parts: impl IntoIterator<Item = impl Into<Part>>) -> Self {
        Self::of("user", parts)
    }

    /// What the model said. To continue a conversation, pass on the answer's own
    /// [`Content`](super::GenerateResponse::content) instead: it holds the thought signatures.
    #[must_use]
    pub fn model(parts: impl IntoIterator<Item = impl Into<Part>>) -> Self {
        Self::of("model", parts)
    }

    /// The texts of all parts, thoughts excluded.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().filter(|part| !part.is_thought()).filter_map(Part::text).collect()
    }

    fn of(role: &str, parts: impl IntoIterator<Item = impl Into<Part>>) -> Self {
        let parts = parts.into_iter().map(Into::into).collect();
        Self { role: Some(role.to_owned()), parts, extra: Map::new() }
    }
}

impl<T: Into<Part>> From<T> for Content {
    fn from(part: T) -> Self {
        Self::user([part])
    }
}

/// One piece of a content: a text, a picture, a function call, or a kind that does not exist yet.
///
/// It is kept exactly as it came. A part with a `thoughtSignature` has to be sent back unchanged in
/// later turns (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
///
/// Parts of an answer, read:
///
/// ```
/// use keywheel_provider::api::Content;
/// use serde_json::json;
///
/// let said: Content = serde_json::from_value(json!({"role": "model", "parts": [
///     {"text": "First I add.", "thought": true},
///     {"executableCode": {"language": "PYTHON", "code": "print(1 + 1)"}},
///     {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2\n"}},
///     {"text": "It is 2.", "thoughtSignature": "c2ln"},
/// ]}))
/// .unwrap();
/// let [thought, code, result, text] = &said.parts[..] else { panic!("four parts") };
/// assert!(thought.is_thought());
/// assert_eq!(code.executable_code().unwrap().code, "print(1 + 1)");
/// assert_eq!(result.code_execution_result().unwrap().output, "2\n");
/// assert_eq!(text.thought_signature().as_deref(), Some("c2ln"));
/// assert_eq!(said.text(), "It is 2.", "a thought is no part of the answer");
/// ```
///
/// And parts of a question, made:
///
/// ```
/// use keywheel_provider::api::{Blob, FileData, FunctionCall, FunctionResponse, Part};
/// use serde_json::json;
///
/// let blob = Blob { mime_type: "image/png".into(), data: "iVBORw==".into() };
/// assert_eq!(Part::from_blob(&blob).inline_data(), Some(blob));
///
/// let address = "https://generativelanguage.googleapis.com/v1beta/files/abc";
/// let file = FileData { mime_type: None, file_uri: address.into() };
/// assert_eq!(Part::from_file(&file).file_data(), Some(file));
///
/// // A call that a model made elsewhere, and what came of it.
/// let call = FunctionCall { id: None, name: "now".into(), args: None };
/// assert_eq!(Part::from_function_call(&call).function_call(), Some(call));
/// let hour = json!({"hour": 7}).into();
/// let result = FunctionResponse { id: None, name: "now".into(), response: hour };
/// assert_eq!(Part::from_function_response(&result).function_response(), Some(result));
/// ```
#[derive(Clone)]
pub struct Part {
    json: Json,
    /// Read once, since it is what nearly everybody wants.
    text: Option<String>,
    thought: bool,
}

impl Part {
    /// A text.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { json: json!({ "text": text }).into(), text: Some(text), thought: false }
    }

    /// A file's bytes with their media type: a picture, a PDF, a recording. At most 100 MB in one
    /// request.
    ///
    /// ```
    /// use keywheel_provider::api::Part;
    ///
    /// let part = Part::from_bytes("image/png", &[0x89, b'P', b'N', b'G']);
    /// let json = r#"{"inlineData":{"mimeType":"image/png","data":"iVBORw=="}}"#;
    /// assert_eq!(part.json().get(), json);
    /// ```
    #[must_use]
    pub fn from_bytes(mime_type: impl Into<String>, bytes: &[u8]) -> Self {
        Self::from_blob(&Blob { mime_type: mime_type.into(), data: STANDARD.encode(bytes) })
    }

    /// A file's bytes, already in base64, with their media type.
    #[must_use]
    pub fn from_blob(blob: &Blob) -> Self {
        Self::wrap("inlineData", blob)
    }

    /// A file that was uploaded before. Only keys of the same quota project can read it.
    #[must_use]
    pub fn from_file(file: &FileData) -> Self {
        Self::wrap("fileData", file)
    }

    /// A function call that a model made elsewhere. One of this model's own goes back as it came,
    /// in its [`content`](super::GenerateResponse::content): it has a signature.
    #[must_use]
    pub fn from_function_call(call: &FunctionCall) -> Self {
        Self::wrap("functionCall", call)
    }

    /// The result of a function the model called; [`FunctionCall::respond`] makes it of the call.
    #[must_use]
    pub fn from_function_response(response: &FunctionResponse) -> Self {
        Self::wrap("functionResponse", response)
    }

    /// A part of any kind, as JSON.
    #[must_use]
    pub fn from_json(json: Json) -> Self {
        #[derive(Deserialize)]
        struct Head {
            text: Option<LossyText>,
            #[serde(default, deserialize_with = "null_is_default")]
            thought: bool,
        }
        let head = serde_json::from_str(json.get()).unwrap_or(Head { text: None, thought: false });
        Self { json, text: head.text.map(|LossyText(text)| text), thought: head.thought }
    }

    /// The text, of a thought too. `None` for parts of another kind.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// True for a summary of the model's thinking, which is not part of the answer.
    #[must_use]
    pub const fn is_thought(&self) -> bool {
        self.thought
    }

    /// The signature that has to come back with this part, if it has one.
    #[must_use]
    pub fn thought_signature(&self) -> Option<String> {
        self.field(&["thoughtSignature", "thought_signature"])
    }

    /// Bytes sent along in base64.
    #[must_use]
    pub fn inline_data(&self) -> Option<Blob> {
        self.field(&["inlineData", "inline_data"])
    }

    /// A reference to an uploaded file.
    #[must_use]
    pub fn file_data(&self) -> Option<FileData> {
        self.field(&["fileData", "file_data"])
    }

    /// A function that the model wants called.
    #[must_use]
    pub fn function_call(&self) -> Option<FunctionCall> {
        self.field(&["functionCall", "function_call"])
    }

    /// The result of a function.
    #[must_use]
    pub fn function_response(&self) -> Option<FunctionResponse> {
        self.field(&["functionResponse", "function_response"])
    }

    /// Code that the model wrote and ran, with the tool for that.
    #[must_use]
    pub fn executable_code(&self) -> Option<ExecutableCode> {
        self.field(&["executableCode", "executable_code"])
    }

    /// What came of such code.
    #[must_use]
    pub fn code_execution_result(&self) -> Option<CodeExecutionResult> {
        self.field(&["codeExecutionResult", "code_execution_result"])
    }

    /// The whole part as it came: the way to kinds of parts that have no method here.
    #[must_use]
    pub const fn json(&self) -> &Json {
        &self.json
    }

    fn wrap<T: Serialize>(name: &str, value: &T) -> Self {
        let object = BTreeMap::from([(name, value)]);
        Self::from_json(Json::new(&object).expect("strings and JSON always have a JSON form"))
    }

    /// The first of `names` that is there and of the right shape.
    fn field<T: DeserializeOwned>(&self, names: &[&str]) -> Option<T> {
        let fields: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(self.json.get()).ok()?;
        let raw = names.iter().find_map(|&name| fields.get(name))?;
        serde_json::from_str(raw.get()).ok()
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::from_text(text)
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::from_text(text)
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Part").field(&self.json).finish()
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json::deserialize(deserializer).map(Self::from_json)
    }
}

/// Bytes in base64 with their media type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blob {
    /// `image/png` and the like.
    #[serde(alias = "mime_type")]
    pub mime_type: String,
    /// The bytes in base64.
    pub data: String,
}

impl Blob {
    /// The bytes. `None` if they are not in base64; both of its alphabets are understood.
    ///
    /// ```
    /// use keywheel_provider::api::Blob;
    ///
    /// let blob = |data: &str| Blob { mime_type: "image/png".into(), data: data.into() };
    /// assert_eq!(blob("AAH+/w==").bytes(), Some(vec![0, 1, 254, 255]));
    /// assert_eq!(blob("AAH-_w").bytes(), blob("AAH+/w==").bytes());
    /// ```
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let engine = if self.data.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
        engine.decode(&self.data).ok()
    }
}

/// Google's clients write base64 with padding and without.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
/// The usual base64, with or without its padding.
pub(crate) const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// A file that was uploaded before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileData {
    /// `image/png` and the like.
    #[serde(alias = "mime_type", default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its address, as the upload gave it.
    #[serde(alias = "file_uri")]
    pub file_uri: String,
}

/// A function that the model wants called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Goes back with the result, where the model gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The function's name.
    pub name: String,
    /// Its arguments, an object. `None` means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Json>,
}

impl FunctionCall {
    /// The arguments as a `T`.
    ///
    /// ```
    /// use keywheel_provider::api::FunctionCall;
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Weather {
    ///     city: String,
    /// }
    ///
    /// let args = Some(json!({"city": "Pune"}).into());
    /// let call = FunctionCall { id: None, name: "weather".into(), args };
    /// assert_eq!(call.args::<Weather>()?.city, "Pune");
    /// assert!(call.args::<Vec<u8>>().is_err());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    /// The model invented arguments that are no `T`.
    pub fn args<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.args.as_ref().map_or("{}", Json::get))
    }

    /// The result of this call, an object, as a part for the user's next turn.
    ///
    /// ```
    /// use keywheel_provider::api::FunctionCall;
    /// use serde_json::json;
    ///
    /// let call = FunctionCall { id: Some("c1".into()), name: "now".into(), args: None };
    /// assert_eq!(
    ///     call.respond(json!({"hour": 7})).json().get(),
    ///     r#"{"functionResponse":{"id":"c1","name":"now","response":{"hour":7}}}"#,
    /// );
    /// ```
    #[must_use]
    pub fn respond(&self, result: impl Into<Json>) -> Part {
        let (id, name) = (self.id.clone(), self.name.clone());
        Part::from_function_response(&FunctionResponse { id, name, response: result.into() })
    }
}

/// The result of a function that the model called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionResponse {
    /// The call's id, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The function's name.
    pub name: String,
    /// Its result, an object.
    pub response: Json,
}

/// Code that the model wrote and ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutableCode {
    /// `PYTHON`.
    #[serde(default)]
    pub language: String,
    /// The code.
    pub code: String,
}

/// What came of code that the model ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeExecutionResult {
    /// `OUTCOME_OK`, `OUTCOME_FAILED`, `OUTCOME_DEADLINE_EXCEEDED`.
    pub outcome: String,
    /// What it printed, or why it failed.
    #[serde(default)]
    pub output: String,
}
