//! What a request weighs: its texts, its tokens, the files it names.

use serde_json::Value;

use super::either;

/// The texts of a request and their tokens, by the simulator's own count.
#[derive(Debug, Default)]
pub(crate) struct Weight {
    /// All texts, one part after another.
    pub(crate) text: String,
    /// Of texts, tools, functions and media that is sent along (258 for each piece).
    pub(crate) tokens: u64,
    /// The files it names. Their tokens are not in `tokens`.
    pub(crate) files: Vec<String>,
}

impl Weight {
    /// Of contents, system instruction and tools.
    pub(crate) fn of(request: &Value) -> Self {
        let mut out = Self::default();
        out.take(request.get("contents"));
        out.take(either(request, "systemInstruction", "system_instruction"));
        let tools = request.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        out.tokens += tools.iter().map(|tool| count_tokens(&tool.to_string())).sum::<u64>();
        out.tokens += count_tokens(&out.text);
        out
    }

    /// Of one content.
    pub(crate) fn of_content(content: &Value) -> Self {
        let mut out = Self::default();
        out.take(Some(content));
        out.tokens += count_tokens(&out.text);
        out
    }

    fn take(&mut self, value: Option<&Value>) {
        match value {
            Some(Value::Array(values)) => {
                values.iter().for_each(|value| self.take(Some(value)));
            }
            Some(part @ Value::Object(fields)) => {
                if let Some(Value::String(text)) = fields.get("text") {
                    if !self.text.is_empty() {
                        self.text.push('\n');
                    }
                    self.text.push_str(text);
                }
                if either(part, "inlineData", "inline_data").is_some() {
                    self.tokens += 258;
                }
                if let Some(file) = either(part, "fileData", "file_data") {
                    let uri = either(file, "fileUri", "file_uri").and_then(Value::as_str);
                    self.files.push(uri.unwrap_or_default().to_owned());
                }
                let called = either(part, "functionCall", "function_call");
                let answered = either(part, "functionResponse", "function_response");
                for function in [called, answered].into_iter().flatten() {
                    self.tokens += count_tokens(&function.to_string());
                }
                self.take(fields.get("parts"));
            }
            _ => {}
        }
    }
}

/// The simulator's own, simple count: a token for every four bytes.
///
/// Deliberately not keywheel's estimate: what is tested against the simulator must not agree with it by
/// sharing its code.
pub(crate) fn count_tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}
