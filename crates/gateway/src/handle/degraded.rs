//! The answer for a day without a model: the operator's own words, in the form of the route, and marked.

use std::sync::Arc;

use chrono::SecondsFormat;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use keywheel::sketch::Sketch;
use serde_json::{Value, json};

use super::{End, Record};
use crate::{
    gateway::{App, Current},
    refusal::{Reason, Refusal},
    respond::AnswerBody,
};

const DEGRADED: HeaderName = HeaderName::from_static("x-keywheel-degraded");

/// What stands in the text for the moment at which a model answers again.
const MOMENT: &str = "{next_available_at}";

/// The form of an answer that an app's client reads as the model's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// Google's, whole.
    Whole,
    /// Google's, as one event.
    Events,
    /// Google's, as an array of one.
    Array,
    /// OpenAI's, whole or as events.
    Chat { model: String, stream: bool },
}

/// The degraded answer in the place of `refusal`, if there is one for it: no key can serve, and the operator has set a
/// text. A budget that is spent is never glossed over.
pub(super) fn answer(
    app: &Arc<App>,
    now: &Current,
    refusal: &Refusal,
    record: &mut Record,
) -> Option<Response<AnswerBody>> {
    if !matches!(refusal.reason, Reason::Exhausted | Reason::AllKeysDead) {
        return None;
    }
    let form = record.form.take()?;
    let moment = refusal.reset_at.map_or_else(
        || "further notice".to_owned(),
        |moment| moment.to_rfc3339_opts(SecondsFormat::Secs, true),
    );
    let text = now.settings.degraded.as_ref()?.replace(MOMENT, &moment);
    let (kind, body) = form.body(&text, app.clock.now().timestamp());
    let length = body.len() as u64;
    let mut answer = Response::new(AnswerBody::whole(body));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(DEGRADED, HeaderValue::from_static("true"));
    record.answers(StatusCode::OK);
    record.mark(headers);
    record.sent(length);
    record.ends(End::Degraded);
    Some(answer)
}

impl Form {
    /// What the body says of the answer's form.
    pub(super) fn is_asked_by(&mut self, sketch: &Sketch) {
        if let Self::Chat { model, stream } = self {
            *model = sketch.model.clone().unwrap_or_default();
            *stream = sketch.stream;
        }
    }

    /// The content type, and the body.
    fn body(&self, text: &str, now: i64) -> (&'static str, String) {
        const JSON: &str = "application/json; charset=UTF-8";
        const EVENTS: &str = "text/event-stream";
        match self {
            Self::Whole => (JSON, google(text).to_string()),
            Self::Events => (EVENTS, format!("data: {}\r\n\r\n", google(text))),
            Self::Array => (JSON, format!("[{}]", google(text))),
            Self::Chat { model, stream: false } => (JSON, completion(model, text, now).to_string()),
            Self::Chat { model, stream: true } => {
                let (first, last) = chunks(model, text, now);
                (EVENTS, format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n"))
            }
        }
    }
}

fn google(text: &str) -> Value {
    json!({
        "candidates": [{
            "content": { "parts": [{ "text": text }], "role": "model" },
            "finishReason": "STOP",
            "index": 0,
        }],
        "usageMetadata": { "promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0 },
        "modelVersion": "keywheel-degraded",
    })
}

fn completion(model: &str, text: &str, now: i64) -> Value {
    json!({
        "id": id(),
        "object": "chat.completion",
        "created": now,
        "model": model,
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": text },
            "finish_reason": "stop",
        }],
        "usage": { "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 },
    })
}

fn chunks(model: &str, text: &str, now: i64) -> (Value, Value) {
    let id = id();
    let chunk = |delta: Value, finish: Value| {
        json!({
            "id": id,
            "object": "chat.completion.chunk",
            "created": now,
            "model": model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
        })
    };
    let first = chunk(json!({ "role": "assistant", "content": text }), Value::Null);
    (first, chunk(json!({}), json!("stop")))
}

fn id() -> String {
    format!("chatcmpl-degraded-{:016x}", fastrand::u64(..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_as_the_model_s_own() {
        let text = "Resting \"until\" later";
        let (kind, body) = Form::Whole.body(text, 0);
        assert!(kind.starts_with("application/json"));
        let whole: keywheel::GenerateResponse = serde_json::from_str(&body).unwrap();
        assert_eq!(whole.text(), text);

        let (kind, body) = Form::Events.body(text, 0);
        let event = body.strip_prefix("data: ").unwrap().strip_suffix("\r\n\r\n").unwrap();
        assert_eq!(kind, "text/event-stream");
        assert_eq!(serde_json::from_str::<keywheel::GenerateResponse>(event).unwrap().text(), text);

        let array: Vec<Value> = serde_json::from_str(&Form::Array.body(text, 0).1).unwrap();
        assert_eq!(array.len(), 1);

        let chat = |stream| Form::Chat { model: "m".to_owned(), stream };
        let whole: Value = serde_json::from_str(&chat(false).body(text, 7).1).unwrap();
        assert_eq!(whole["choices"][0]["message"]["content"], text);
        assert_eq!((&whole["model"], &whole["created"]), (&json!("m"), &json!(7)));
        let stream = chat(true).body(text, 7).1;
        let events: Vec<_> = stream.split("\n\n").filter(|event| !event.is_empty()).collect();
        assert_eq!(events.len(), 3);
        let first: Value = serde_json::from_str(&events[0]["data: ".len()..]).unwrap();
        assert_eq!(first["choices"][0]["delta"]["content"], text);
        assert_eq!(events[2], "data: [DONE]");
    }
}
